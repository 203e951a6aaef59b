//! Tasks whose address space is limited, as `ulimit -v` does and batch systems do.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Returns the program with an address space of 4 GB, which the processes that it starts inherit.
fn limited(arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = "ulimit -v 4000000 && exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_ferroflow")]).args(arguments);
    command
}

#[test]
fn tasks_with_a_limited_address_space_train() {
    let arguments = ["train", "--processes", "--ps=1", "--hidden_units=32", "--train_steps=50"];
    let output = limited(&arguments).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{}\n{text}", output.status);
    assert!(text.contains("test accuracy"), "{text}");
    assert!(!text.contains("memory can't be shared"), "{text}");
}

#[test]
fn a_server_with_a_limited_address_space_says_how_much_it_shares() {
    let mut child = limited(&["server", "--port=0"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = Vec::new();
    // A quarter of the limit, rounded down to a power of two.
    let expected = "at most 512 MB of tensors are shared with tasks on this machine";
    let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let found = lines
        .inspect(|line| seen.push(line.clone()))
        .any(|line| line.contains(expected) || line.contains("listens on"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(found && seen.iter().any(|line| line.contains(expected)), "{}", seen.join("\n"));
}
