//! The README's program is the one that the crate's documentation shows, and that its tests run.

/// Returns a program without comments and blank space, and its imports in order.
fn normalized(lines: impl Iterator<Item = String>) -> (Vec<String>, String) {
    let code = |line: String| line.split("//").next().unwrap_or_default().trim().to_owned();
    let is_address = |line: &str| line.contains("Session::new(&g)?");
    let lines: Vec<String> = lines
        .map(|line| if is_address(&line) { "let session = Session::new(&g)?;".to_owned() } else { code(line) })
        .collect();
    let (imports, rest): (Vec<String>, Vec<String>) = lines.into_iter().partition(|line| line.starts_with("use "));
    let mut names: Vec<String> = imports
        .iter()
        .flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    names.sort();
    (names, rest.concat())
}

#[test]
fn the_program_of_the_readme_is_tested() {
    let readme = include_str!("../../../README.md");
    let (_, block) = readme.split_once("```rust\n").unwrap();
    let (program, _) = block.split_once("```").unwrap();
    let docs = include_str!("../src/lib.rs");
    let (_, block) = docs.split_once("fits a line:\n//!\n//! ```\n").unwrap();
    let (tested, _) = block.split_once("//! ```").unwrap();
    let tested = tested.lines().map(|line| line.trim_start_matches("//!").to_owned());
    assert_eq!(normalized(program.lines().map(str::to_owned)), normalized(tested));
    assert!(program.lines().count() <= 28);
}
