//! `ferroflow check SCRIPT.py`: lets a TensorFlow 1 program build its graph, and says what of it we can't run.

use crate::{Failure, check};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python that runs the program, when it is not the first `python3` of the path.
const PYTHON: &str = "FERROFLOW_PYTHON";

/// Runs the program up to its first step, and checks the graph that it has made by then.
pub fn run(script: &Path, arguments: &[OsString]) -> Result<(), Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::new(format!("can't make a directory: {error}")))?;
    let graph = directory.path().join("graph.pb");
    let python = std::env::var_os(PYTHON).unwrap_or_else(|| "python3".into());
    let mut command = Command::new(&python);
    command.args(["-m", "ferroflow.check"]).arg(&graph).arg(script).args(arguments);
    if let Some(path) = python_path() {
        command.env("PYTHONPATH", path);
    }
    let status = command.status().map_err(|error| {
        Failure::new(format!("can't start {}: {error}; {PYTHON} names the Python to use", python.to_string_lossy()))
    })?;
    if !graph.exists() {
        return Err(Failure::new(format!("{} made no graph: Python ended with {status}", script.display())));
    }
    check::run_as(&graph, &format!("the graph of {}", script.display()))
}

/// Returns the path on which Python finds the package: where it is said to be, and in the checkout that this binary was built in.
fn python_path() -> Option<OsString> {
    let binary = std::env::current_exe().ok()?;
    let checkout =
        binary.ancestors().map(|directory| directory.join("python")).find(|path| path.join("ferroflow").is_dir())?;
    let given = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let given: Vec<PathBuf> = std::env::split_paths(&given).filter(|path| !path.as_os_str().is_empty()).collect();
    std::env::join_paths(given.into_iter().chain([checkout])).ok()
}
