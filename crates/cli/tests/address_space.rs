//! Tasks whose address space is limited, as `ulimit -v` does and batch systems do.

use std::process::Command;

#[test]
fn tasks_with_a_limited_address_space_train_and_share_what_fits() {
    // The limit is in kB, and the processes of all tasks inherit it.
    let script = "ulimit -v 4000000 && exec \"$0\" train --processes --ps=1 --hidden_units=32 --train_steps=50";
    let output = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_ferroflow")]).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{}\n{text}", output.status);
    assert!(text.contains("test accuracy"), "{text}");
    // A quarter of the limit, rounded down to a power of two.
    assert!(text.contains("at most 512 MB of tensors are shared with tasks on this machine"), "{text}");
    assert!(!text.contains("memory can't be shared"), "{text}");
}
