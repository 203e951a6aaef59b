//! `cargo xtask release-check`, which checks that the crates could be published, and the quick part of it in every test run.

use crate::{browser, fresh, interop, process};
use std::path::Path;
use std::process::Command;

/// The largest package that crates.io takes.
const PACKAGE_BYTES_MAX: u64 = 10 << 20;

/// The largest package of code, since every program that depends on it carries it; packages of data may be larger.
const CODE_BYTES_MAX: u64 = 1 << 20;

/// Packs every crate without building it, and checks the sizes.
pub fn pack() -> Result<(), String> {
    process::run(&mut package(&["--no-verify", "--quiet", "--offline"]))?;
    check_sizes(&process::target().join("package"))
}

/// Packs every crate and builds it from its package alone; builds `ferroflow` without its features; installs the binary as
/// a user would; runs README's program in a new project; looks at the status page in a browser; saves checkpoints on an S3
/// server; and makes the documentation.
pub fn check(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("release-check: unknown argument `{unknown}`"));
    }
    println!("== packages, each built from what it contains");
    process::run(&mut package(&[]))?;
    check_sizes(&process::target().join("package"))?;
    println!("== ferroflow without its features");
    process::run(&mut process::cargo(&["check", "--package", "ferroflow", "--no-default-features"]))?;
    println!("== cargo install");
    let root = process::target().join("release-check");
    let mut install = process::cargo(&["install", "--path", "crates/cli", "--locked", "--force", "--root"]);
    process::run(install.arg(&root))?;
    let binary = root.join("bin/ferroflow");
    process::run(Command::new(&binary).arg("--version"))?;
    println!("== a new project");
    fresh::check(&binary)?;
    println!("== the page in a browser");
    browser::check(&binary)?;
    println!("== checkpoints on an S3 server");
    interop::run_s3(&[])?;
    println!("== documentation");
    let mut documentation = process::cargo(&["doc", "--no-deps", "--workspace", "--quiet"]);
    process::run(documentation.env("RUSTDOCFLAGS", "--deny warnings"))
}

fn package(arguments: &[&str]) -> Command {
    // Includes uncommitted changes, which are being tested.
    let mut command = process::cargo(&["package", "--workspace", "--allow-dirty"]);
    command.args(arguments);
    command
}

/// Returns an error if a package in a directory is too large.
fn check_sizes(directory: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut num_packages = 0;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".crate") else { continue };
        let bytes = entry.metadata().map_err(|error| format!("{name}: {error}"))?.len();
        check_size(name, bytes)?;
        num_packages += 1;
    }
    if num_packages == 0 { Err(format!("{} holds no package", directory.display())) } else { Ok(()) }
}

fn check_size(name: &str, bytes: u64) -> Result<(), String> {
    let bytes_max = if name.starts_with("ferroflow-digits-") { PACKAGE_BYTES_MAX } else { CODE_BYTES_MAX };
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(format!("the package {name} has {bytes} bytes, more than {bytes_max}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_digits_may_be_large() {
        assert_eq!(check_size("ferroflow-0.1.0", 900_000), Ok(()));
        assert!(check_size("ferroflow-0.1.0", 2_700_000).is_err_and(|message| message.contains("ferroflow-0.1.0")));
        assert_eq!(check_size("ferroflow-digits-0.1.0", 2_700_000), Ok(()));
        assert!(check_size("ferroflow-digits-0.1.0", 11 << 20).is_err());
    }

    #[test]
    fn unknown_arguments_are_named() {
        assert!(check(&["--fast".to_string()]).is_err_and(|message| message.contains("--fast")));
    }
}
