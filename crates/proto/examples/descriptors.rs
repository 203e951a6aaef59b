//! Writes the serialized FileDescriptorSet of our messages to the path given, or else to standard output.

use std::io::Write;

fn main() -> std::io::Result<()> {
    match std::env::args_os().nth(1) {
        Some(path) => std::fs::write(path, proto::DESCRIPTORS),
        None => std::io::stdout().write_all(proto::DESCRIPTORS),
    }
}
