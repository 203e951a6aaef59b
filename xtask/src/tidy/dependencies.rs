//! Checks that every dependency in the workspace's list is used by a crate.

use crate::process;

#[test]
fn every_dependency_of_the_workspace_is_one_of_a_crate() {
    let root = process::root();
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).expect("the workspace's manifest is readable");
    let mut manifests = std::fs::read_to_string(root.join("xtask/Cargo.toml")).expect("a manifest is readable");
    for entry in std::fs::read_dir(root.join("crates")).expect("crates/ is readable").flatten() {
        manifests += &std::fs::read_to_string(entry.path().join("Cargo.toml")).expect("a manifest is readable");
    }
    let listed: Vec<&str> = names(&workspace, "[workspace.dependencies]").collect();
    assert!(listed.len() > 40, "the dependencies were not found");
    let is_used = |name: &str| {
        let with_options = format!("{name} = {{ workspace");
        manifests.lines().any(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(".workspace"))
                || line.starts_with(&with_options)
        })
    };
    let unused: Vec<&str> = listed.into_iter().filter(|name| !is_used(name)).collect();
    assert!(unused.is_empty(), "no crate depends on {unused:?}: take them out of Cargo.toml");
}

/// Returns the keys of a section of a manifest.
fn names<'a>(manifest: &'a str, section: &str) -> impl Iterator<Item = &'a str> {
    let lines = manifest.lines().skip_while(move |line| *line != section).skip(1);
    lines.take_while(|line| !line.starts_with('[')).filter_map(|line| {
        let (name, _) = line.split_once(" = ")?;
        name.chars().all(|character| character.is_alphanumeric() || "-_".contains(character)).then_some(name)
    })
}
