//! The binary `ferroflow`.
fn main() {}
