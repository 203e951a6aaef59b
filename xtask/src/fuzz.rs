//! `cargo xtask fuzz`: runs random graphs, and changed graphs of the real client, on an embedded server for a while.

use crate::{interop, process, venv};

/// Builds the loop and runs it for so many seconds, from a seed on: half of them with graphs made from the definitions of
/// ops, half with changed graphs of the tests beside TensorFlow. Without Python only the former.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (mut seconds, mut seed) = (60u64, "1".to_owned());
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{flag} needs a number"))?;
        match flag.as_str() {
            "--seconds" => seconds = value.parse().map_err(|_| format!("{value} is no number of seconds"))?,
            "--seed" => seed = value.clone(),
            unknown => return Err(format!("unknown argument `{unknown}`: fuzz [--seconds N] [--seed N]")),
        }
    }
    let corpus = process::target().join("fuzz-corpus");
    let half = (seconds / 2).to_string();
    let fuzz = |more: &[&str]| {
        let arguments =
            ["run", "--package", "ferroflow-testkit", "--example", "fuzz", "--", "--seconds", &half, "--seed", &seed];
        process::run(process::cargo(&arguments).args(more))
    };
    fuzz(&[])?;
    match venv::python() {
        Ok(_) => {
            interop::run_script("ops/corpus.py", &[corpus.display().to_string()])?;
            fuzz(&["--corpus", &corpus.display().to_string()])
        }
        Err(missing) => {
            println!("no graphs of the real client: {}", missing.into_message());
            Ok(())
        }
    }
}
