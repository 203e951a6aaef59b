//! `cargo xtask release`: builds all release artifacts in `dist/`, with checksums and a bill of materials.

use crate::{process, wheel};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const SHELLS: [(&str, &str); 3] = [("bash", "ferroflow.bash"), ("zsh", "_ferroflow"), ("fish", "ferroflow.fish")];
const MUSL: &str = "x86_64-unknown-linux-musl";

/// Builds all artifacts, and lists at the end those that this machine could not build, and why.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(unknown) = arguments.first() {
        return Err(format!("release: unknown argument `{unknown}`"));
    }
    let dist = wheel::dist();
    if dist.exists() {
        std::fs::remove_dir_all(&dist).map_err(|error| format!("cannot remove {}: {error}", dist.display()))?;
    }
    std::fs::create_dir_all(&dist).map_err(|error| format!("cannot make {}: {error}", dist.display()))?;
    let mut left_out = Vec::new();

    println!("== binary");
    process::run(&mut process::cargo(&["build", "--release", "--locked", "--package", "ferroflow-cli"]))?;
    let binary = process::target().join("release/ferroflow");
    write_documents(&binary)?;
    pack(&binary, &host(), &dist)?;
    match build_static() {
        Ok(binary) => pack(&binary, MUSL, &dist)?,
        Err(reason) => left_out.push(format!("static binary: {reason}")),
    }
    let built = wheel::build("release", &dist)?;
    wheel::try_out(&built)?;
    left_out.extend(debian_package(&dist).err().map(|reason| format!("Debian package: {reason}")));
    left_out.extend(container_image(&dist).err().map(|reason| format!("container image: {reason}")));
    println!("== what is inside");
    let bill = format!("{:#}\n", bill_of_materials(&metadata()?)?);
    write(&dist.join(format!("ferroflow-{VERSION}.cdx.json")), &bill)?;
    write_checksums(&dist)?;

    println!("== {}", dist.display());
    for name in names(&dist)? {
        println!("   {name}");
    }
    for line in left_out {
        println!("== LEFT OUT: {line}");
    }
    Ok(())
}

/// Writes the man pages and completions that the binary generates to the directory that packages take them from.
fn write_documents(binary: &Path) -> Result<(), String> {
    process::run(Command::new(binary).arg("man").arg(process::target().join("documents/man")))?;
    let directory = process::target().join("documents/completions");
    std::fs::create_dir_all(&directory).map_err(|error| format!("cannot make {}: {error}", directory.display()))?;
    for (shell, name) in SHELLS {
        let mut command = Command::new(binary);
        let output = command.args(["completions", shell]).output();
        let script = output.map_err(|error| format!("cannot run `{}`: {error}", process::command_line(&command)))?;
        std::fs::write(directory.join(name), script.stdout).map_err(|error| format!("cannot write {name}: {error}"))?;
    }
    Ok(())
}

/// Packs a binary with its pages, completions and licence into a tarball.
fn pack(binary: &Path, target: &str, dist: &Path) -> Result<(), String> {
    let name = format!("ferroflow-{VERSION}-{target}");
    let staging = process::target().join("dist");
    let directory = staging.join(&name);
    let _ = std::fs::remove_dir_all(&directory);
    let root = process::root();
    let documents = process::target().join("documents");
    process::run(Command::new("mkdir").arg("-p").arg(&directory))?;
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(binary).arg(root.join("LICENSE")).arg(root.join("README.md"));
    copy.arg(root.join("CHANGELOG.md")).arg(root.join("deploy"));
    process::run(copy.arg(documents.join("man")).arg(documents.join("completions")).arg(&directory))?;
    let mut tar = Command::new("tar");
    // A reproducible tarball: it does not depend on who packs it and when.
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "-czf"]);
    process::run(tar.arg(dist.join(format!("{name}.tar.gz"))).arg("-C").arg(&staging).arg(&name))
}

/// Builds the binary with musl, so that it needs no libraries of the machine that it runs on.
fn build_static() -> Result<PathBuf, String> {
    let libraries = Command::new("rustc").args(["--print", "target-libdir", "--target", MUSL]).output();
    let libraries = libraries.map_err(|error| format!("cannot run rustc: {error}"))?;
    if !Path::new(String::from_utf8_lossy(&libraries.stdout).trim()).is_dir() {
        return Err(format!("the target is not installed (rustup target add {MUSL})"));
    }
    if !is_there("musl-gcc", "--version") {
        return Err("musl-gcc, which builds the allocator, is not installed (apt install musl-tools)".to_owned());
    }
    println!("== static binary");
    let arguments = ["build", "--release", "--locked", "--package", "ferroflow-cli", "--target", MUSL];
    process::run(&mut process::cargo(&arguments))?;
    Ok(process::target().join(MUSL).join("release/ferroflow"))
}

fn debian_package(dist: &Path) -> Result<(), String> {
    if !is_there("cargo-deb", "--version") {
        return Err("cargo-deb is not installed (cargo install cargo-deb --locked)".to_owned());
    }
    println!("== Debian package");
    let mut command = process::cargo(&["deb", "--package", "ferroflow-cli", "--no-build", "--no-strip", "--output"]);
    process::run(command.arg(dist))
}

fn container_image(dist: &Path) -> Result<(), String> {
    let tools = ["podman", "buildah"];
    let tool = tools.into_iter().find(|tool| is_there(tool, "--version"));
    let tool = tool.ok_or("neither podman nor buildah is installed")?;
    println!("== container image");
    let image = format!("ferroflow:{VERSION}");
    let mut build = Command::new(tool);
    build.args(["build", "--file", "Containerfile", "--tag", &image, "."]).current_dir(process::root());
    process::run(&mut build)?;
    let archive = dist.join(format!("ferroflow-{VERSION}-image.tar"));
    let target = format!("oci-archive:{}", archive.display());
    match tool {
        "podman" => process::run(
            Command::new(tool).args(["save", "--format", "oci-archive", "--output"]).arg(&archive).arg(&image),
        ),
        _ => process::run(Command::new(tool).args(["push", &image, &target])),
    }
}

fn is_there(program: &str, question: &str) -> bool {
    let asked = Command::new(program).arg(question).stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Returns the target triple of this machine.
fn host() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Returns cargo's metadata of the packages in the binary.
fn metadata() -> Result<Value, String> {
    let mut command = process::cargo(&["metadata", "--format-version=1", "--locked", "--filter-platform"]);
    let output = command.arg(host()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run cargo: {error}"))?;
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata can't be read: {error}"))
}

/// Returns the list of the packages in the binary, with versions, licences and sources, as CycloneDX defines it.
fn bill_of_materials(metadata: &Value) -> Result<Value, String> {
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let nodes = metadata["resolve"]["nodes"].as_array().ok_or("cargo metadata lists no dependencies")?;
    let root = packages.iter().find(|package| package["name"] == "ferroflow-cli").ok_or("there is no ferroflow-cli")?;
    // Follows the dependencies that are compiled in, not those of tests and build scripts.
    let mut inside = vec![&root["id"]];
    let mut next = 0;
    while next < inside.len() {
        let node = nodes.iter().find(|node| node["id"] == *inside[next]);
        next += 1;
        for dependency in node.and_then(|node| node["deps"].as_array()).into_iter().flatten() {
            let is_normal = |kind: &Value| kind["kind"].is_null();
            let is_compiled_in = dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(is_normal));
            if is_compiled_in && !inside.contains(&&dependency["pkg"]) {
                inside.push(&dependency["pkg"]);
            }
        }
    }
    let mut components: Vec<Value> = packages
        .iter()
        .filter(|package| package["id"] != root["id"] && inside.contains(&&package["id"]))
        .map(component)
        .collect();
    components.sort_by_key(|component| component["purl"].as_str().unwrap_or_default().to_owned());
    let mut product = component(root);
    product["type"] = json!("application");
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": product },
        "components": components,
    }))
}

fn component(package: &Value) -> Value {
    let (name, version) =
        (package["name"].as_str().unwrap_or_default(), package["version"].as_str().unwrap_or_default());
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({ "type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl });
    if let Some(licence) = package["license"].as_str() {
        // Old manifests separate alternatives by a slash.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(repository) = package["repository"].as_str() {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

/// Writes the checksums in the format of `sha256sum --check`.
fn write_checksums(dist: &Path) -> Result<(), String> {
    let mut lines = String::new();
    for name in names(dist)? {
        let bytes = std::fs::read(dist.join(&name)).map_err(|error| format!("cannot read {name}: {error}"))?;
        let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        lines += &format!("{sum}  {name}\n");
    }
    write(&dist.join("SHA256SUMS"), &lines)
}

fn names(directory: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_what_is_compiled_in_and_nothing_else() {
        let package = |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0" });
        let dependency = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let packages = ["ferroflow-cli", "used", "deep", "test", "build"].map(package);
        let metadata = json!({
            "packages": packages,
            "resolve": { "nodes": [
                { "id": "ferroflow-cli", "deps": [dependency("used", Value::Null), dependency("test", json!("dev"))] },
                { "id": "used", "deps": [dependency("deep", Value::Null), dependency("build", json!("build"))] },
            ] },
        });
        let bill = bill_of_materials(&metadata).expect("a list");
        let components = bill["components"].as_array().expect("components");
        let listed: Vec<&str> = components.iter().filter_map(|component| component["purl"].as_str()).collect();
        assert_eq!(listed, ["pkg:cargo/deep@1.0.0", "pkg:cargo/used@1.0.0"]);
        assert_eq!(bill["metadata"]["component"]["name"], "ferroflow-cli");
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }

    #[test]
    fn checksums_are_those_that_sha256sum_reads() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("a"), "abc").expect("a file");
        write_checksums(directory.path()).expect("sums");
        let sums = std::fs::read_to_string(directory.path().join("SHA256SUMS")).expect("sums");
        assert_eq!(sums, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n");
    }
}
