//! `ferroflow check SCRIPT.py`: has a TensorFlow 1 program build its graph, and lists the ops that can't run.

use crate::{Failure, check};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the Python that runs the program, if it is not the first `python3` on the path.
const PYTHON: &str = "FERROFLOW_PYTHON";

/// Runs the program up to its first step, and checks the graph that it has built by then.
pub fn run(script: &Path, arguments: &[OsString]) -> Result<(), Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::new(format!("can't create a directory: {error}")))?;
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

/// Returns Python's search path with the package: the configured one, and that of the checkout in which this binary was built.
fn python_path() -> Option<OsString> {
    let binary = std::env::current_exe().ok()?;
    let checkout =
        binary.ancestors().map(|directory| directory.join("python")).find(|path| path.join("ferroflow").is_dir())?;
    let given = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let given: Vec<PathBuf> = std::env::split_paths(&given).filter(|path| !path.as_os_str().is_empty()).collect();
    std::env::join_paths(given.into_iter().chain([checkout])).ok()
}
