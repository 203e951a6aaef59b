//! Runs Python with everything that the interop tests need: the venv, the binary and the descriptors.

use crate::{process, venv};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The build of the binary that a Python program uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// For tests: builds quickly, and checks arithmetic.
    Dev,
    /// For measuring.
    Release,
}

/// Runs pytest on `tests/interop` with these arguments.
pub fn run_pytest(arguments: &[String]) -> Result<(), String> {
    let python = venv::python().map_err(venv::Missing::into_message)?;
    build(Profile::Dev)?;
    process::run(pytest_command(&python).args(arguments))
}

/// Runs the tests of object stores against moto's S3 server, instead of their own small one.
pub fn run_s3(arguments: &[String]) -> Result<(), String> {
    let server = venv::s3().map_err(venv::Missing::into_message)?;
    let python = venv::python().map_err(venv::Missing::into_message)?;
    build(Profile::Dev)?;
    let mut command = pytest_command(&python);
    process::run(command.arg("test_object_store.py").args(arguments).env("FERROFLOW_S3_PYTHON", server))
}

/// Writes `docs/ops.md` and the numbers of cases in the binary, by the test that otherwise checks them.
pub fn run_document() -> Result<(), String> {
    let python = venv::python().map_err(venv::Missing::into_message)?;
    build(Profile::Dev)?;
    process::run(pytest_command(&python).args(["ops/test_coverage.py"]).env("FERROFLOW_WRITE_DOCUMENT", "1"))
}

/// Runs one of the scripts of `tests/interop` that need no server.
pub fn run_script(name: &str, arguments: &[String]) -> Result<(), String> {
    let python = venv::python().map_err(venv::Missing::into_message)?;
    let script = process::root().join("tests/interop").join(name);
    process::run(python_command(&python, Profile::Dev).arg(script).args(arguments))
}

/// Attacks a release build while a client trains on it.
pub fn run_attack(arguments: &[String]) -> Result<(), String> {
    let python = venv::python().map_err(venv::Missing::into_message)?;
    build(Profile::Release)?;
    let script = process::root().join("tests/attack/attack.py");
    process::run(python_command(&python, Profile::Release).arg(script).args(arguments))
}

/// Runs the venv's Python itself.
pub fn run_python(arguments: &[String]) -> Result<(), String> {
    let python = venv::python().map_err(venv::Missing::into_message)?;
    process::run(python_command(&python, Profile::Dev).args(arguments))
}

/// Builds the binary, the examples that `bench/` measures, and the descriptors of our messages.
pub fn build(profile: Profile) -> Result<(), String> {
    let examples = ["--example", "step_rate", "--example", "mnist_replica"];
    match profile {
        // With the features of the whole workspace, so that the build shares its artifacts with the tests.
        Profile::Dev => {
            process::run(process::cargo(&["build", "--workspace", "--bin", "ferroflow"]).args(examples))?;
        }
        // Only the package, as users build it.
        Profile::Release => {
            process::run(&mut process::cargo(&["build", "--release", "--package", "ferroflow-cli"]))?;
            process::run(process::cargo(&["build", "--release", "--package", "ferroflow"]).args(examples))?;
        }
    }
    write_descriptors()
}

/// Returns a command that runs pytest in `tests/interop`.
pub fn pytest_command(python: &Path) -> Command {
    let mut command = python_command(python, Profile::Dev);
    command.args(["-m", "pytest", "--color=auto"]).current_dir(process::root().join("tests/interop"));
    command
}

/// Returns a command for the venv's Python, with the environment that the Python side expects.
pub fn python_command(python: &Path, profile: Profile) -> Command {
    let root = process::root();
    let mut command = Command::new(python);
    command
        .env("FERROFLOW_BIN", binary(profile))
        .env("FERROFLOW_DESCRIPTORS", descriptors_path())
        .env("PYTHONPATH", root.join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TF_CPP_MIN_LOG_LEVEL", "2")
        .current_dir(root);
    process::without_incremental_builds(&mut command);
    command
}

fn binary(profile: Profile) -> PathBuf {
    let directory = match profile {
        Profile::Dev => "debug",
        Profile::Release => "release",
    };
    process::target().join(directory).join("ferroflow")
}

fn descriptors_path() -> PathBuf {
    process::target().join("descriptors.bin")
}

/// Writes the FileDescriptorSet of our `.proto` files to the path where Python looks for it.
fn write_descriptors() -> Result<(), String> {
    let mut command = process::cargo(&["run", "--quiet", "--package", "ferroflow-proto", "--example", "descriptors"]);
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{}` ended with {}", process::command_line(&command), output.status));
    }
    let path = descriptors_path();
    std::fs::write(&path, output.stdout).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
