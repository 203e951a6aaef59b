//! Checks rules for the sources that no compiler checks: module docs, file sizes, arrows between crates, no dead files.

mod arrows;
mod dependencies;
mod environment;
mod examples;
mod linux;

use crate::process;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The crates in the order of their dependencies: a crate depends only on crates before it.
const CRATES: [&str; 16] = [
    "cpu",
    "cpu_macros",
    "proto",
    "tensor",
    "numeric",
    "storage",
    "graph",
    "kernel",
    "ops",
    "executor",
    "cluster",
    "census",
    "digits",
    "ferroflow",
    "cli",
    "testkit",
];

/// Dependencies that the order would allow but the architecture forbids.
const FORBIDDEN: [(&str, &str); 4] =
    [("executor", "ops"), ("cluster", "ops"), ("graph", "storage"), ("numeric", "tensor")];

const LINES_MAX: usize = 1000;

/// Words that mark unfinished work or disabled tests, in two parts so that this file passes.
const UNFINISHED: [(&str, &str); 4] = [("todo", "!("), ("unimplemented", "!("), ("#[", "ignore"), ("/wo", "rk/")];

#[test]
fn every_source_file_is_tidy() {
    let mut complaints = Vec::new();
    for path in rust_files() {
        let text = std::fs::read_to_string(&path).expect("a source file is readable");
        let shown = path.strip_prefix(process::root()).unwrap_or(&path).display().to_string();
        if !text.starts_with("//!") {
            complaints.push(format!("{shown}: does not open with `//!` and what it is for"));
        }
        let lines = text.lines().count();
        if lines > LINES_MAX {
            complaints.push(format!("{shown}: has {lines} lines, more than {LINES_MAX}"));
        }
        for (first, second) in UNFINISHED {
            let word = format!("{first}{second}");
            if text.contains(&word) {
                complaints.push(format!("{shown}: has `{word}`"));
            }
        }
        if text.contains(&["_feature", "_detected!"].concat()) && !shown.starts_with("crates/cpu/") {
            complaints.push(format!("{shown}: asks the processor itself instead of the crate `cpu`"));
        }
        if let Some(complaint) = dead_file(&path, &shown) {
            complaints.push(complaint);
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn crates_depend_only_on_those_above_them() {
    let rank: BTreeMap<&str, usize> = CRATES.iter().enumerate().map(|(rank, name)| (*name, rank)).collect();
    let mut complaints = Vec::new();
    for entry in std::fs::read_dir(process::root().join("crates")).expect("crates/ is readable") {
        let name = entry.expect("an entry of crates/").file_name().into_string().expect("a plain name");
        let Some(own) = rank.get(name.as_str()) else {
            complaints.push(format!("crates/{name} has no place in the order of crates"));
            continue;
        };
        for dependency in dependencies(&name) {
            let Some(other) = rank.get(dependency.as_str()) else { continue };
            if other >= own || FORBIDDEN.contains(&(name.as_str(), dependency.as_str())) {
                complaints.push(format!("{name} depends on {dependency}, which the architecture forbids"));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn every_row_of_the_compatibility_tables_names_tests_that_exist() {
    let text = std::fs::read_to_string(process::root().join("docs/compatibility.md")).expect("the page is readable");
    let mut complaints = Vec::new();
    let mut num_references = 0;
    for (index, line) in text.lines().enumerate() {
        let references: Vec<(&str, &str)> = line.split('`').filter_map(|word| word.split_once("::")).collect();
        let is_row = line.starts_with('|') && !line.starts_with("|---") && !line.ends_with("| shown by |");
        if is_row && references.is_empty() {
            complaints.push(format!("line {}: names no test", index + 1));
        }
        for (file, test) in references {
            num_references += 1;
            let (directory, definition) = if file.ends_with(".py") {
                ("tests/interop", format!("def {test}("))
            } else {
                ("crates", format!("fn {test}("))
            };
            let path = process::root().join(directory).join(file);
            if !std::fs::read_to_string(&path).is_ok_and(|source| source.contains(&definition)) {
                complaints.push(format!("line {}: there is no test {file}::{test}", index + 1));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    assert!(num_references > 40, "the references were not found");
}

#[test]
fn every_crate_can_be_published_from_its_own_folder() {
    let mut complaints = Vec::new();
    for name in CRATES {
        let folder = process::root().join("crates").join(name);
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest is readable");
        if manifest.contains("publish = false") {
            continue;
        }
        for key in ["description", "license", "readme", "keywords", "categories"] {
            if !manifest.lines().any(|line| line.starts_with(key)) {
                complaints.push(format!("crates/{name}/Cargo.toml has no `{key}`"));
            }
        }
        let readme = manifest.lines().find_map(|line| Some(line.strip_prefix("readme = ")?.trim_matches('"')));
        if readme.is_none_or(|readme| !folder.join(readme).is_file()) {
            complaints.push(format!("crates/{name}: its readme is not there"));
        }
        for path in rust_files().iter().filter(|path| path.starts_with(folder.join("src"))) {
            let text = std::fs::read_to_string(path).expect("a source file is readable");
            for included in included_paths(&text) {
                let target = path.parent().unwrap_or(path).join(included).canonicalize();
                if !target.is_ok_and(|target| target.starts_with(folder.canonicalize().unwrap_or_default())) {
                    complaints.push(format!("{}: includes {included}, outside its package", path.display()));
                }
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Returns the paths that a source includes.
fn included_paths(text: &str) -> Vec<&str> {
    let after = |part: &'static str| text.split(part).skip(1).filter_map(|rest| rest.split('"').next());
    after("include_bytes!(\"").chain(after("include_str!(\"")).chain(after("include!(\"")).collect()
}

/// Returns the `[dependencies]` of a crate's manifest; dev-dependencies may be more.
fn dependencies(name: &str) -> Vec<String> {
    let path = process::root().join("crates").join(name).join("Cargo.toml");
    let text = std::fs::read_to_string(&path).expect("a manifest is readable");
    text.lines()
        .skip_while(|line| line.trim() != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| Some(line.split(['.', '=', ' ']).next()?.trim().to_string()))
        .filter(|word| !word.is_empty() && !word.starts_with('#'))
        .collect()
}

/// Returns a complaint if no `mod` declares a file below `src`.
fn dead_file(path: &Path, shown: &str) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    let directory = path.parent()?;
    if !shown.contains("/src/") || shown.contains("/bin/") || matches!(stem, "main" | "lib") {
        return None;
    }
    // `a/mod.rs` and `a.rs` are declared one directory up, `a/b.rs` in `a/mod.rs`, `a.rs` or the crate's root.
    let (module, home) =
        if stem == "mod" { (directory.file_name()?.to_str()?, directory.parent()?) } else { (stem, directory) };
    let mut parents = vec![home.join("mod.rs"), home.join("lib.rs"), home.join("main.rs")];
    parents.push(home.with_extension("rs"));
    let declared = parents.iter().any(|parent| {
        std::fs::read_to_string(parent).is_ok_and(|text| {
            text.lines().any(|line| line.trim_end().trim_end_matches(';').ends_with(&format!("mod {module}")))
        })
    });
    (!declared).then(|| format!("{shown}: no `mod {module};` leads to it"))
}

/// Returns every Rust file of the workspace.
fn rust_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> =
        ["crates", "xtask", "examples", "bench"].iter().map(|name| process::root().join(name)).collect();
    while let Some(directory) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target" && name != "generated") {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(found.len() > 20, "the sources were not found");
    found
}
