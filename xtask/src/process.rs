//! Paths of the checkout, and running commands and reporting their failures.

use std::path::PathBuf;
use std::process::Command;

/// Returns the directory of the workspace's `Cargo.toml`.
pub fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    match manifest.parent() {
        Some(parent) => parent.to_path_buf(),
        None => manifest,
    }
}

/// Returns the directory that cargo builds into.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// Returns a cargo command that runs in the workspace's root.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    without_incremental_builds(&mut command);
    command
}

/// Turns off incremental compilation in CI, for a command and the processes that it starts. If everything is built once, it would only
/// write gigabytes. All callers must agree, since cargo builds everything again when the setting changes.
pub fn without_incremental_builds(command: &mut Command) {
    if std::env::var_os("CI").is_some() && std::env::var_os("CARGO_INCREMENTAL").is_none() {
        command.env("CARGO_INCREMENTAL", "0");
    }
}

/// Runs a command. Any exit code but 0 is an error that shows the command line.
pub fn run(command: &mut Command) -> Result<(), String> {
    let line = command_line(command);
    let status = command.status().map_err(|error| format!("cannot run `{line}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{line}` ended with {status}")) }
}

/// Returns the command as a person would type it, for messages.
pub fn command_line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    if let Some(name) = std::path::Path::new(&words[0]).file_name() {
        words[0] = name.to_string_lossy().into_owned();
    }
    for argument in command.get_args() {
        let argument = argument.to_string_lossy();
        if argument.is_empty() || argument.contains(char::is_whitespace) {
            words.push(format!("'{argument}'"));
        } else {
            words.push(argument.into_owned());
        }
    }
    words.join(" ")
}
