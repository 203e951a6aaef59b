//! `cargo xtask bench`: builds the release binaries and runs a driver of `bench/` in the venv.

use crate::interop::{self, Profile};
use crate::{after_dashes, process, venv};

/// Runs the named driver; without a name, every driver there is.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let drivers = drivers()?;
    let (chosen, rest) = match arguments.split_first() {
        Some((name, rest)) if name != "--" => {
            if !drivers.contains(name) {
                return Err(format!("there is no bench/{name}.py; there are: {}", drivers.join(", ")));
            }
            (vec![name.clone()], after_dashes(rest))
        }
        _ => (drivers, after_dashes(arguments)),
    };
    let python = venv::python().map_err(venv::Missing::into_message)?;
    interop::build(Profile::Release)?;
    process::run(&mut process::cargo(&["build", "--release", "--package", "ferroflow", "--example", "step_rate"]))?;
    let step_rate = process::target().join("release/examples/step_rate");
    for name in chosen {
        let script = process::root().join("bench").join(format!("{name}.py"));
        let mut command = interop::python_command(&python, Profile::Release);
        process::run(command.env("FERROFLOW_STEP_RATE", &step_rate).arg(script).args(rest))?;
    }
    Ok(())
}

/// Returns the names of the drivers: the Python files of `bench/` that don't start with an underscore.
fn drivers() -> Result<Vec<String>, String> {
    let directory = process::root().join("bench");
    let entries = match std::fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) => return Err(format!("cannot read {}: {error}", directory.display())),
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".py").map(str::to_string))
        .filter(|name| !name.starts_with('_'))
        .collect();
    names.sort();
    Ok(names)
}
