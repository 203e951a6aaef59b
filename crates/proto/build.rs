//! Compiles `proto/*.proto` to Rust and to a serialized FileDescriptorSet, without `protoc`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use protox::prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=proto");

    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    let mut descriptors = protox::compile(proto_files(Path::new("proto"))?, ["proto"])?;

    prost_build::Config::new()
        .out_dir(&out_dir)
        // Two equal graphs must have equal bytes, so maps are written in the order of their keys.
        .btree_map(["."])
        // A message that is decoded from `Bytes` shares its byte fields with the received buffer.
        .bytes(["."])
        // `Any` then has `Bytes` as well, and nothing depends on `prost-types` at run time.
        .compile_well_known_types()
        .compile_fds(descriptors.clone())?;

    // Comments and positions are of no use at run time.
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    fs::write(out_dir.join("descriptors.bin"), descriptors.encode_to_vec())?;
    Ok(())
}

/// Returns the files in an order that doesn't depend on the file system.
fn proto_files(directory: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
