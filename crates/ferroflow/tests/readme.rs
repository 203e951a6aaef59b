//! The README's program is an example, which is run here, and so is the same program with the README's other line, which trains on
//! a cluster.

#[path = "../examples/mlp.rs"]
#[allow(dead_code)]
mod mlp;
#[path = "../examples/mlp_on_cluster.rs"]
#[allow(dead_code)]
mod mlp_on_cluster;

use ferroflow::Result;
use ferroflow::distributed::{ClusterSpec, start_server, stop};

const README: &str = include_str!("../../../README.md");

/// Returns the README's blocks of Rust: the program, and the line that makes it train on a cluster.
fn blocks() -> (&'static str, &'static str) {
    let mut blocks = README.split("```rust\n").skip(1).map(|block| block.split_once("```").unwrap().0);
    (blocks.next().unwrap(), blocks.next().unwrap())
}

/// Returns a program without documentation and blank lines.
fn code(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with("//") && !line.trim().is_empty()).collect()
}

#[test]
fn the_program_of_the_readme_is_the_example() {
    let (program, _) = blocks();
    assert_eq!(code(program), code(include_str!("../examples/mlp.rs")));
    assert!(program.lines().count() <= 30);
}

#[test]
fn the_program_of_the_readme_learns() {
    let accuracy = mlp::train().unwrap();
    assert!(accuracy > 0.95, "{accuracy}");
}

#[test]
fn the_program_with_the_other_line_is_the_example_for_clusters() {
    let (program, line) = blocks();
    let changed = program.replace("    let session = Session::new(&g)?;\n", line);
    // The example takes the address from its arguments, in what is behind the program.
    let (example, _) = include_str!("../examples/mlp_on_cluster.rs").split_once("\n/// The address of a task").unwrap();
    let example = example.replace("&target()", "\"grpc://127.0.0.1:2223\"");
    assert_ne!(program, changed);
    assert_eq!(code(&changed), code(&example));
}

#[test]
fn the_program_with_the_other_line_learns_on_a_cluster() -> Result<()> {
    let addresses = cluster::unused_addresses(3).unwrap();
    let cluster = ClusterSpec::new().with_job("ps", &addresses[..1])?.with_job("worker", &addresses[1..])?;
    let servers =
        [start_server(&cluster, "ps", 0)?, start_server(&cluster, "worker", 0)?, start_server(&cluster, "worker", 1)?];
    mlp_on_cluster::ADDRESS.set(format!("grpc://{}", addresses[1])).unwrap();
    let accuracy = mlp_on_cluster::train()?;
    assert!(accuracy > 0.95, "{accuracy}");
    servers.iter().try_for_each(stop)
}
