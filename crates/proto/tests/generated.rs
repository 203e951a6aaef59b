//! Compiles `proto/*.proto`, without `protoc`, and compares `generated/` with the result. The generated code is in the
//! repository so that building Ferroflow does not build a compiler first; `UPDATE_EXPECT=1` rewrites it.

use protox::prost::Message;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn generated_code_is_that_of_the_proto_files() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("generated");
    let wanted = generate().expect("the files in proto/ compile");
    let found = read(&directory).expect("generated/ is readable");
    let mut differ: Vec<&str> = Vec::new();
    for name in wanted.keys().chain(found.keys()) {
        if wanted.get(name) != found.get(name) && !differ.contains(&name.as_str()) {
            differ.push(name);
        }
    }
    if !differ.is_empty() && std::env::var_os("UPDATE_EXPECT").is_some() {
        write(&directory, &wanted).expect("generated/ is writable");
        return;
    }
    assert!(differ.is_empty(), "{differ:?} are not up to date: run `UPDATE_EXPECT=1 cargo test -p ferroflow-proto`");
}

/// The contents of files by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Returns the Rust files, and the serialized FileDescriptorSet.
fn generate() -> Result<Files, Box<dyn Error>> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut descriptors = protox::compile(proto_files(&sources)?, [&sources])?;
    let directory = tempfile::tempdir()?;
    prost_build::Config::new()
        .out_dir(directory.path())
        // Equal graphs must have equal bytes, so maps are written in the order of their keys.
        .btree_map(["."])
        // A message that is decoded from `Bytes` shares its byte fields with the received buffer.
        .bytes(["."])
        // Rare and large parts are boxed, so that the many small nodes and attributes of a graph take little memory.
        .boxed(".tensorflow.AttrValue.value.list")
        .boxed(".tensorflow.AttrValue.value.tensor")
        .boxed(".tensorflow.AttrValue.value.func")
        .boxed(".tensorflow.NodeDef.experimental_debug_info")
        .boxed(".tensorflow.NodeDef.experimental_type")
        // `Any` then has `Bytes`, too, and nothing depends on `prost-types` at run time.
        .compile_well_known_types()
        .compile_fds(descriptors.clone())?;
    let mut files = read(directory.path())?;
    // Comments and positions are not needed at run time.
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    files.insert("descriptors.bin".to_owned(), descriptors.encode_to_vec());
    Ok(files)
}

fn read(directory: &Path) -> Result<Files, Box<dyn Error>> {
    let mut files = Files::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.insert(name, fs::read(&path)?);
    }
    Ok(files)
}

fn write(directory: &Path, files: &Files) -> Result<(), Box<dyn Error>> {
    for stale in read(directory)?.keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(directory.join(stale))?;
    }
    for (name, bytes) in files {
        fs::write(directory.join(name), bytes)?;
    }
    Ok(())
}

/// Returns the files in an order that does not depend on the file system.
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
