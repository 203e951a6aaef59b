//! The status page in a real browser: Chromium, driven by the core package of Playwright, on a cluster that trains.

use crate::interop::{self, Profile};
use crate::process;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The names under which systems install the browser.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

/// `cargo xtask browser`: builds the binary and runs the test.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("browser: unknown argument `{unknown}`"));
    }
    interop::build(Profile::Release)?;
    check(&process::target().join("release/ferroflow"))
}

/// Runs the test, or reports what the machine lacks for it.
pub fn check(binary: &Path) -> Result<(), String> {
    let Some(browser) = BROWSERS.iter().find_map(|name| found(name)) else {
        return left_out("no Chromium is installed (apt install chromium)");
    };
    if found("node").is_none() || found("npm").is_none() {
        return left_out("node and npm are not installed (apt install nodejs npm)");
    }
    let sources = process::root().join("tests/browser");
    let directory = process::target().join("browser");
    let copied = std::fs::create_dir_all(&directory).and_then(|()| {
        for name in ["package.json", "package-lock.json", "page.mjs"] {
            std::fs::copy(sources.join(name), directory.join(name))?;
        }
        Ok(())
    });
    copied.map_err(|error| format!("cannot copy tests/browser to {}: {error}", directory.display()))?;
    process::run(
        Command::new("npm").args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&directory),
    )?;
    let mut test = Command::new("node");
    test.arg(directory.join("page.mjs")).arg(binary).arg(browser).arg(directory.join("screenshots"));
    process::run(test.current_dir(&directory))?;
    println!("   screenshots are in {}", directory.join("screenshots").display());
    Ok(())
}

/// Reports that the test is not run, which counts as a failure only in CI.
fn left_out(why: &str) -> Result<(), String> {
    println!("== the page in a browser: NOT RUN: {why}");
    match std::env::var("CI") {
        Ok(value) if value == "true" || value == "1" => Err(why.to_owned()),
        _ => Ok(()),
    }
}

/// Returns the path of a program that can be run.
fn found(name: &str) -> Option<PathBuf> {
    let variable = std::env::var_os("PATH")?;
    let runs = |path: &PathBuf| {
        Command::new(path)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    std::env::split_paths(&variable).map(|directory| directory.join(name)).filter(|path| path.is_file()).find(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(found("cargo").is_some_and(|path| path.is_absolute() && path.ends_with("cargo")));
        assert_eq!(found("no-such-program"), None);
    }
}
