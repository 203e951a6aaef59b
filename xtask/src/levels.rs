//! Runs the arithmetic tests at the lower instruction levels that this processor has.

use crate::process;
use cpu::Level;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The packages whose results depend on the level.
const PACKAGES: [&str; 2] = ["numeric", "ops"];

/// Returns the levels below the one that the other tests use.
pub fn lower() -> Result<Vec<Level>, String> {
    let used = cpu::requested()?;
    Ok(cpu::available().iter().copied().filter(|level| *level < used).collect())
}

/// Runs the unit tests of numeric and ops at a level.
pub fn run_tests(level: Level, filter: &[&str]) -> Result<(), String> {
    for program in test_programs()? {
        let mut command = Command::new(&program.path);
        command.env(cpu::VARIABLE, level.name()).env("PROPTEST_RNG_SEED", "20161").current_dir(&program.directory);
        process::run(command.arg("--quiet").args(filter))?;
    }
    Ok(())
}

/// A program of unit tests, and the directory of its package, in which cargo would run it.
struct TestProgram {
    path: PathBuf,
    directory: PathBuf,
}

/// Returns the test programs of the whole workspace: built for one package alone, its dependencies could have other features and
/// would be rebuilt.
fn test_programs() -> Result<Vec<TestProgram>, String> {
    let mut command = process::cargo(&["test", "--workspace", "--lib", "--no-run", "--quiet", "--message-format=json"]);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{}` ended with {}", process::command_line(&command), output.status));
    }
    let programs = programs_in(&String::from_utf8_lossy(&output.stdout));
    match programs.len() == PACKAGES.len() {
        true => Ok(programs),
        false => Err(format!("`{}` built {} of {PACKAGES:?}", process::command_line(&command), programs.len())),
    }
}

/// Returns the test programs of our packages from cargo's messages, one line of JSON each.
fn programs_in(messages: &str) -> Vec<TestProgram> {
    let parsed = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    parsed
        .filter(|message| PACKAGES.iter().any(|package| message["target"]["name"] == *package))
        .filter_map(|message| {
            let path = PathBuf::from(message["executable"].as_str()?);
            let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_path_buf();
            Some(TestProgram { path, directory })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_found_among_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"ops"},"executable":null,"manifest_path":"/x/ops/Cargo.toml"}
not json
{"reason":"compiler-artifact","target":{"name":"ops"},"executable":"/t/ops-1","manifest_path":"/x/ops/Cargo.toml"}
{"reason":"compiler-artifact","target":{"name":"graph"},"executable":"/t/graph-1","manifest_path":"/x/graph/Cargo.toml"}"#;
        let [program] = &programs_in(messages)[..] else { panic!("one program") };
        assert_eq!((program.path.as_path(), program.directory.as_path()), ("/t/ops-1".as_ref(), "/x/ops".as_ref()));
    }

    #[test]
    fn lower_levels_are_below_the_one_in_use() {
        let lower = lower().expect("a level that this processor has");
        assert!(lower.iter().all(|level| *level < cpu::level()), "{lower:?}");
        assert_eq!(lower.len(), cpu::level() as usize);
    }
}
