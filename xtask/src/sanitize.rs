//! `cargo xtask sanitize`: runs the tests of `unsafe` code outside of `numeric` under AddressSanitizer: tensor buffers, streams
//! and the shared memory between tasks.

use crate::process;

/// The only target that is supported.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Compiles the unit tests of `tensor` and `cluster` with AddressSanitizer, in a separate directory, and runs them.
///
/// The flag is not stable, but the runtime comes with the stable toolchain; `RUSTC_BOOTSTRAP` makes the compiler accept it.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let filter: &[&str] = match arguments {
        [] => &["transport::stream", "buffer", "shared"],
        [name] => &[name.as_str()],
        _ => return Err("sanitize takes a part of a test's name, or nothing".to_string()),
    };
    let mut command = process::cargo(&["test", "--target", TARGET, "--lib"]);
    command.args(["--package", "ferroflow-tensor", "--package", "ferroflow-cluster"]);
    // Code that is not under test is compiled without much optimization.
    command.args(["--config", "profile.dev.package.\"*\".opt-level=1"]);
    command.args(["--config", "profile.dev.package.ferroflow-numeric.opt-level=1"]);
    command.arg("--").args(filter);
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    command.env("CARGO_TARGET_DIR", process::target().join("sanitize"));
    process::run(&mut command)
}
