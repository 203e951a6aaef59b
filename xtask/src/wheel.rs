//! `cargo xtask wheel`: builds a Python wheel with the binary and the module, and tests it in a new environment.

use crate::{process, venv};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the wheel, tests it, and prints its path.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let profile = match arguments {
        [] => "release",
        [flag] if flag == "--dev" => "dev",
        [unknown, ..] => return Err(format!("wheel: unknown argument `{unknown}`")),
    };
    let wheel = build(profile, &dist())?;
    try_out(&wheel)?;
    println!("== {}", wheel.display());
    Ok(())
}

/// Returns the directory for release artifacts.
pub fn dist() -> PathBuf {
    process::root().join("dist")
}

/// Builds the wheel in a directory, and returns its path.
pub fn build(profile: &str, directory: &Path) -> Result<PathBuf, String> {
    println!("== wheel");
    let python = venv::tools().map_err(venv::Missing::into_message)?;
    for old in wheels(directory) {
        std::fs::remove_file(&old).map_err(|error| format!("cannot remove {}: {error}", old.display()))?;
    }
    let mut command = Command::new(&python);
    command.args(["-m", "maturin", "build", "--quiet", "--profile", profile, "--out"]).arg(directory);
    // maturin uses the cargo on the path, which should be the one that runs this.
    if let Some(cargo) = std::env::var_os("CARGO") {
        command.env("CARGO", cargo);
    }
    command.env_remove("CARGO_MANIFEST_DIR").current_dir(process::root().join("python"));
    process::run(&mut command)?;
    match &wheels(directory)[..] {
        [wheel] => Ok(wheel.clone()),
        other => Err(format!("maturin made {} wheels in {}", other.len(), directory.display())),
    }
}

/// Installs a wheel into a new environment without TensorFlow, runs the command, and checks that the module finds it.
pub fn try_out(wheel: &Path) -> Result<(), String> {
    println!("== wheel, installed");
    let python = venv::tools().map_err(venv::Missing::into_message)?;
    let directory = tempfile::tempdir().map_err(|error| format!("cannot make a directory: {error}"))?;
    let environment = directory.path().join("venv");
    process::run(Command::new(python).args(["-m", "venv"]).arg(&environment))?;
    let bin = environment.join("bin");
    let in_environment = |program: &str| {
        let mut command = Command::new(bin.join(program));
        // Hides the binaries of this checkout and of the user.
        command.env("PATH", "/usr/bin:/bin").env_remove("PYTHONPATH").env_remove("FERROFLOW_BIN");
        command.current_dir(directory.path());
        command
    };
    let mut install = in_environment("python");
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]).arg(wheel);
    process::run(&mut install)?;
    process::run(in_environment("ferroflow").arg("--version"))?;
    process::run(in_environment("ferroflow").arg("hello"))?;
    let output = in_environment("python")
        .args(["-m", "ferroflow", "--version"])
        .output()
        .map_err(|error| format!("cannot run the module: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let expected = format!("binary: {}", bin.join("ferroflow").display());
    match output.status.success() && said.contains(&expected) && said.contains("TensorFlow not installed") {
        true => Ok(()),
        false => Err(format!("`python -m ferroflow --version` doesn't say `{expected}`, but:\n{said}")),
    }
}

fn wheels(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "whl"));
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_arguments_are_named() {
        assert!(run(&["--fast".to_string()]).is_err_and(|message| message.contains("--fast")));
    }

    #[test]
    fn the_wheel_has_the_version_of_the_binary_and_its_licence() {
        let read = |path: &str| std::fs::read_to_string(process::root().join(path)).expect("a file is readable");
        let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
        assert!(
            read("python/pyproject.toml").lines().any(|line| line == version),
            "python/pyproject.toml lacks {version}"
        );
        assert_eq!(read("python/LICENSE"), read("LICENSE"));
    }
}
