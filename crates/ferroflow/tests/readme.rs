//! The README's program is an example, which is run here.

#[path = "../examples/mlp.rs"]
#[allow(dead_code)]
mod mlp;

/// Returns a program without documentation and blank lines.
fn code(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with("//!") && !line.trim().is_empty()).collect()
}

#[test]
fn the_program_of_the_readme_is_the_example() {
    let readme = include_str!("../../../README.md");
    let (_, block) = readme.split_once("```rust\n").unwrap();
    let (program, _) = block.split_once("```").unwrap();
    assert_eq!(code(program), code(include_str!("../examples/mlp.rs")));
    assert!(program.lines().count() <= 30);
}

#[test]
fn the_program_of_the_readme_learns() {
    let accuracy = mlp::train().unwrap();
    assert!(accuracy > 0.95, "{accuracy}");
}
