//! Tests a user's new project: README's program in a package outside of the workspace that depends only on `ferroflow`, by
//! path. It runs in its own process, on a server, and with a mistake in it.

use crate::process;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The accuracy that README promises.
const ACCURACY_MIN: f64 = 95.0;

/// A program as a reader of README might write it. The shapes in the marked line are incompatible.
const MISTAKEN: &str = "\
use ferroflow::layers::{Activation, Apply, Dense};
use ferroflow::prelude::*;
use ferroflow::train::AdamOptimizer;

fn main() -> ferroflow::Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>((None, 784));
    let hidden = x.apply(&Dense::new(100).activation(Activation::Relu));
    let logits = hidden.matmul(&g.constant([[0.1f32; 10]; 50])); // wrong
    let labels = g.placeholder::<f32>((None, 10));
    let loss = logits.softmax_cross_entropy(Labels(&labels)).mean();
    let step = AdamOptimizer::new(0.003).minimize(&loss, None)?;
    Session::new(&g)?.run_ops(&[&step])
}
";

/// A program whose mistake only the run finds: the weights of the line that is marked have no values.
const UNINITIALIZED: &str = "\
use ferroflow::layers::{Apply, Dense};
use ferroflow::prelude::*;

fn main() -> ferroflow::Result<()> {
    let g = Graph::new();
    let x = g.placeholder::<f32>((None, 4));
    let logits = x.apply(&Dense::new(10)); // wrong
    let session = Session::new(&g)?;
    session.runner().feed(&x, [[0f32; 4]]).fetch(&logits).run().map(drop)
}
";

/// Makes the project, runs README's program in it, then the same on a server of `binary`, then some with a mistake.
pub fn check(binary: &Path) -> Result<(), String> {
    let readme = process::root().join("README.md");
    let readme = std::fs::read_to_string(&readme).map_err(|error| format!("{}: {error}", readme.display()))?;
    let Program { text, local, remote } = program_of(&readme)?;
    let directory = tempfile::tempdir().map_err(|error| format!("cannot make a directory: {error}"))?;
    let project = Project { root: directory.path().to_path_buf() };
    project.write("Cargo.toml", &manifest())?;

    println!("   README's program");
    project.write("src/main.rs", &text)?;
    check_accuracy(&project.run()?)?;

    println!("   README's program on a server");
    let server = Server::start(binary)?;
    let line = with_address(&remote, &server.address).ok_or("README's second line names no grpc:// address")?;
    project.write("src/main.rs", &text.replace(&local, &line))?;
    check_accuracy(&project.run()?)?;
    drop(server);

    for (program, word) in [(MISTAKEN, "MatMul"), (UNINITIALIZED, "uninitialized value dense/kernel")] {
        println!("   a program with a mistake: {word}");
        project.write("src/main.rs", program)?;
        let said = match project.run() {
            Ok(said) => return Err(format!("a program with a mistake ended well: {said}")),
            Err(said) => said,
        };
        let line = program.lines().position(|line| line.ends_with("// wrong")).map_or(0, |index| index + 1);
        let expected = format!("src/main.rs:{line}:");
        if !said.contains(&expected) || !said.contains(word) {
            return Err(format!("what a mistake prints doesn't name {word} and {expected}\n{said}"));
        }
    }
    Ok(())
}

/// README's program, and the line to replace for a cluster.
struct Program {
    text: String,
    local: String,
    remote: String,
}

fn program_of(readme: &str) -> Result<Program, String> {
    let section = readme.split_once("\n## In Rust\n").ok_or("README has no section `In Rust`")?.1;
    let mut blocks = section.split("```rust\n").skip(1).filter_map(|block| block.split("```").next());
    let text = blocks.next().ok_or("README has no program in Rust")?.to_owned();
    let remote = blocks.next().ok_or("README doesn't say which line is another on a cluster")?.trim_end().to_owned();
    let start = remote.split_once('=').ok_or("README's second line assigns nothing")?.0;
    let local =
        text.lines().find(|line| line.starts_with(start)).ok_or("README's second line takes the place of none")?;
    let local = local.to_owned();
    Ok(Program { text, local, remote })
}

/// Returns the line with its address replaced.
fn with_address(line: &str, address: &str) -> Option<String> {
    let (before, rest) = line.split_once("grpc://")?;
    let (_, after) = rest.split_once('"')?;
    Some(format!("{before}grpc://{address}\"{after}"))
}

fn manifest() -> String {
    let library = process::root().join("crates/ferroflow");
    format!(
        "[package]\nname = \"fresh\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\nferroflow = {{ path = {:?} }}\n",
        library.display().to_string()
    )
}

fn check_accuracy(said: &str) -> Result<(), String> {
    let accuracy =
        said.lines().find_map(|line| line.strip_prefix("test accuracy ")?.strip_suffix(" %")?.parse::<f64>().ok());
    match accuracy {
        Some(accuracy) if accuracy >= ACCURACY_MIN => {
            println!("   test accuracy {accuracy:.1} %");
            Ok(())
        }
        _ => Err(format!("README promises {ACCURACY_MIN} %, and its program says: {said}")),
    }
}

struct Project {
    root: PathBuf,
}

impl Project {
    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.root.join(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(&path, text)).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Builds and runs the program, and returns its output. An error has all output, including that of cargo.
    fn run(&self) -> Result<String, String> {
        let mut command = process::cargo(&["run", "--quiet"]);
        // Lightly optimised, so that it trains in seconds and builds faster than a release.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "0");
        command.env("CARGO_TARGET_DIR", process::target().join("release-check/fresh")).current_dir(&self.root);
        // A user does not have the variables that `cargo xtask` sets for the workspace.
        command.env_remove("CARGO_MANIFEST_DIR").env("FERROFLOW_LOG", "warn");
        let output = command.output().map_err(|error| format!("cannot run cargo: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(said),
            false => Err(said + &String::from_utf8_lossy(&output.stderr)),
        }
    }
}

/// A server of one task, which is stopped when this is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(binary: &Path) -> Result<Server, String> {
        let mut command = Command::new(binary);
        command.args(["server", "--port=0"]).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", binary.display()))?;
        let lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
        let ready = lines.map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("server ready: ")?.1.split_once(" at ")?;
            Some(rest.split_whitespace().next()?.to_owned())
        });
        let server = Server { child, address: ready.unwrap_or_default() };
        if server.address.is_empty() { Err("the server ended before it was ready".to_owned()) } else { Ok(server) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_has_a_program_and_the_line_that_changes() {
        let readme = std::fs::read_to_string(process::root().join("README.md")).expect("README is readable");
        let Program { text, local, remote } = program_of(&readme).expect("the program is there");
        assert!(text.contains("fn main()") && text.lines().filter(|line| !line.is_empty()).count() <= 33, "{text}");
        assert_eq!(text.matches(&local).count(), 1);
        let line = with_address(&remote, "host:1").expect("an address");
        assert_eq!(line, "    let session = Session::connect(&g, \"grpc://host:1\")?;");
    }

    #[test]
    fn the_accuracy_is_read() {
        assert_eq!(check_accuracy("test accuracy 95.0 %\n"), Ok(()));
        assert!(check_accuracy("test accuracy 94.9 %\n").is_err());
        assert!(check_accuracy("").is_err());
    }
}
