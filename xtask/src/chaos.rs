//! `cargo xtask chaos`: builds a release build of the servers, the packet forwarder and a Rust worker, and runs `tests/chaos` with them.

use crate::interop::{self, Profile};
use crate::{process, venv};
use std::path::PathBuf;

/// Injects faults into a cluster of real processes while real clients train on it.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let python = venv::python().map_err(venv::Missing::into_message)?;
    interop::build(Profile::Release)?;
    let forwarder = build_forwarder()?;
    let script = process::root().join("tests/chaos/chaos.py");
    let mut command = interop::python_command(&python, Profile::Release);
    command
        .arg(script)
        .args(arguments)
        .arg("--forwarder")
        .arg(forwarder)
        .arg("--out")
        .arg(process::target().join("chaos"));
    process::run(&mut command)
}

/// Builds the forwarder and the Rust worker, and returns the path of the former.
pub fn build_forwarder() -> Result<PathBuf, String> {
    let what = ["--bin", "forwarder", "--example", "chaos_worker"];
    process::run(process::cargo(&["build", "--release", "--package", "ferroflow-testkit"]).args(what))?;
    Ok(process::target().join("release/forwarder"))
}
