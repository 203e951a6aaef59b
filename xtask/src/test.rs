//! `cargo xtask test`: runs all checks, and prints a summary in the last line.

use crate::{interop, levels, manifests, process, release, venv};
use std::path::PathBuf;
use std::time::Instant;

/// Runs the parts that the arguments select. The error names those that failed.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let options = Options::parse(arguments)?;
    let mut report = Report::default();
    if options.rust {
        run_rust_parts(&options, &mut report);
    }
    if options.interop {
        run_interop_parts(&options, &mut report);
    }
    report.finish()
}

struct Options {
    quick: bool,
    filter: Option<String>,
    rust: bool,
    interop: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Options { quick: false, filter: None, rust: true, interop: true };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--rust-only" => options.interop = false,
                "--interop-only" => options.rust = false,
                "--filter" => match rest.next() {
                    Some(value) => options.filter = Some(value.clone()),
                    None => return Err("--filter needs a part of a test's name".to_string()),
                },
                other => match other.strip_prefix("--filter=") {
                    Some(value) => options.filter = Some(value.to_string()),
                    None => return Err(format!("test: unknown argument `{other}`")),
                },
            }
        }
        if !options.rust && !options.interop {
            return Err("--rust-only and --interop-only leave nothing to run".to_string());
        }
        Ok(options)
    }
}

fn run_rust_parts(options: &Options, report: &mut Report) {
    // A filter selects tests, so formatting and lints are skipped.
    if options.filter.is_none() {
        report.part("fmt", || process::run(&mut process::cargo(&["fmt", "--all", "--check"])));
        report.part("clippy", || {
            process::run(&mut process::cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--quiet",
                "--",
                "--deny",
                "warnings",
            ]))
        });
    }
    if options.filter.is_none() {
        check_dependencies(report);
        report.part("packages", release::pack);
        match venv::tools() {
            Ok(python) => drop(report.part("manifests", || manifests::check(&python))),
            Err(venv::Missing::Failed(message)) => report.failed("manifests", Instant::now(), &message),
            Err(venv::Missing::NoPython(message)) => report.left_out("manifests", &message),
        }
    }
    let filter: Vec<&str> = options.filter.as_deref().into_iter().collect();
    report.part("rust tests", || {
        let mut command = process::cargo(&["test", "--workspace", "--no-fail-fast"]);
        command.args(["--lib", "--bins", "--tests", "--examples"]);
        // The same random cases in every run, so that a failure is reproducible; plain `cargo test` explores.
        command.env("PROPTEST_RNG_SEED", "20161");
        process::run(command.args(&filter))
    });
    match levels::lower() {
        Ok(lower) => {
            for level in lower {
                report.part(&format!("rust tests at {level}"), || levels::run_tests(level, &filter));
            }
        }
        Err(message) => report.failed("rust tests at lower levels", Instant::now(), &message),
    }
    report.part("doc tests", || {
        let mut command = process::cargo(&["test", "--workspace", "--no-fail-fast", "--doc"]);
        process::run(command.args(&filter))
    });
}

/// Checks the dependencies against `deny.toml` if cargo-deny is installed, and for advisories if their database was fetched.
fn check_dependencies(report: &mut Report) {
    let installed = process::cargo(&["deny", "--version"]).output().is_ok_and(|output| output.status.success());
    if !installed {
        println!(
            "== dependencies: not looked at, since cargo-deny is not installed (cargo install cargo-deny --locked)"
        );
        return;
    }
    // cargo-deny reads the packages of all targets, including those that no build here needs.
    let fetched =
        process::cargo(&["fetch", "--locked", "--quiet"]).output().is_ok_and(|output| output.status.success());
    if !fetched {
        println!("== dependencies: not looked at, since `cargo fetch --locked` fails here");
        return;
    }
    report.part("dependencies", || {
        process::run(&mut process::cargo(&[
            "deny",
            "--offline",
            "--log-level",
            "error",
            "check",
            "bans",
            "licenses",
            "sources",
        ]))
    });
    match advisories_are_here() {
        true => drop(report.part("advisories", || {
            process::run(&mut process::cargo(&["deny", "--offline", "--log-level", "error", "check", "advisories"]))
        })),
        false => println!("== advisories: not looked at, since there is no database of them (cargo deny fetch)"),
    }
}

fn advisories_are_here() -> bool {
    let home = std::env::home_dir().map(|home| home.join(".cargo"));
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
    let databases = cargo_home.and_then(|home| std::fs::read_dir(home.join("advisory-dbs")).ok());
    databases.is_some_and(|mut entries| entries.next().is_some())
}

fn run_interop_parts(options: &Options, report: &mut Report) {
    let mut python: Option<PathBuf> = None;
    let started = Instant::now();
    println!("== venv");
    match venv::python() {
        Ok(path) => {
            report.passed("venv", started);
            python = Some(path);
        }
        Err(venv::Missing::Failed(message)) => report.failed("venv", started, &message),
        Err(venv::Missing::NoPython(message)) => report.left_out("interop tests", &message),
    }
    let Some(python) = python else { return };
    let built = report.part("build for interop", || interop::build(interop::Profile::Dev));
    if !built {
        return;
    }
    report.part("interop tests", || {
        let mut command = interop::pytest_command(&python);
        if options.quick {
            command.args(["-m", "not slow"]);
        }
        if let Some(filter) = &options.filter {
            command.args(["-k", filter]);
        }
        process::run(&mut command)
    });
}

/// The parts that passed, failed, or could not be run.
#[derive(Default)]
struct Report {
    passed: Vec<String>,
    failed: Vec<String>,
    left_out: Vec<String>,
}

impl Report {
    /// Runs one part, prints its result, and returns whether it passed.
    fn part(&mut self, name: &str, body: impl FnOnce() -> Result<(), String>) -> bool {
        println!("== {name}");
        let started = Instant::now();
        match body() {
            Ok(()) => {
                self.passed(name, started);
                true
            }
            Err(message) => {
                self.failed(name, started, &message);
                false
            }
        }
    }

    fn passed(&mut self, name: &str, started: Instant) {
        println!("== {name}: ok in {:.1} s", started.elapsed().as_secs_f64());
        self.passed.push(name.to_string());
    }

    fn failed(&mut self, name: &str, started: Instant, message: &str) {
        println!("== {name}: FAILED in {:.1} s: {message}", started.elapsed().as_secs_f64());
        self.failed.push(name.to_string());
    }

    fn left_out(&mut self, name: &str, message: &str) {
        println!("== {name}: NOT RUN: {message}");
        self.left_out.push(name.to_string());
    }

    /// Prints the summary. Parts that could not be run are failures only in CI.
    fn finish(self) -> Result<(), String> {
        let mut line = format!("{} passed, {} failed", self.passed.len(), self.failed.len());
        if !self.failed.is_empty() {
            line += &format!(" ({})", self.failed.join(", "));
        }
        if !self.left_out.is_empty() {
            line += &format!(", not run: {}", self.left_out.join(", "));
        }
        println!("== {line}");
        let unattended = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        if self.failed.is_empty() && (self.left_out.is_empty() || !unattended) {
            Ok(())
        } else {
            // The summary has already been printed.
            Err(String::new())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_in_both_spellings() {
        let options = parse("--quick --filter=matmul --rust-only").expect("valid options");
        assert!(options.quick && options.rust && !options.interop);
        assert_eq!(options.filter.as_deref(), Some("matmul"));
        let options = parse("--filter conv --interop-only").expect("valid options");
        assert!(!options.quick && !options.rust && options.interop);
        assert_eq!(options.filter.as_deref(), Some("conv"));
    }

    #[test]
    fn wrong_options_are_named() {
        assert!(parse("--fast").is_err_and(|message| message.contains("--fast")));
        assert!(parse("--filter").is_err());
        assert!(parse("--rust-only --interop-only").is_err());
    }

    #[test]
    fn a_failed_part_fails_the_whole() {
        let mut report = Report::default();
        assert!(report.part("good", || Ok(())));
        assert!(!report.part("bad", || Err("no".to_string())));
        assert_eq!(report.failed, ["bad"]);
        assert!(report.finish().is_err());
    }
}
