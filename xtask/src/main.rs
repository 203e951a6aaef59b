//! Automation: `cargo xtask help` lists what it does.
fn main() {}
