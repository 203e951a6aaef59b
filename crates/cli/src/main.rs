//! The binary `ferroflow`: a hello world, servers, training, and tools for graphs, checkpoints and SavedModels.

mod attached;
mod certs;
mod check;
mod check_script;
mod checkpoint;
mod children;
mod documents;
mod exit;
mod files;
mod hello;
mod list_ops;
mod listen;
mod log;
mod memory;
mod proxy;
mod run;
mod saved_model;
mod say;
mod server;
mod status;
mod tls;
mod train;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

/// Distributed TensorFlow 1 in Rust.
#[derive(Parser)]
#[command(name = "ferroflow", version, long_version = LONG_VERSION.as_str(), about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the hello world of distributed TensorFlow on a server inside this process.
    Hello(tls::TlsFlags),
    /// Runs one task of a cluster until it is told to stop (SIGTERM or SIGINT).
    Server(server::Flags),
    /// Describes a GraphDef, MetaGraphDef or SavedModel, or the graph that a TensorFlow 1 program builds, and lists the ops that
    /// can't be run.
    Check {
        /// The file, a SavedModel's directory, or a program (`SCRIPT.py`), which runs up to its first step.
        file: PathBuf,
        /// The program's arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Lists the supported ops.
    Ops {
        /// Lists only ops whose names contain this.
        filter: Option<String>,
        /// Prints a Markdown table.
        #[arg(long)]
        markdown: bool,
    },
    /// Starts a cluster on this machine: every task runs the given program, with its own TF_CONFIG.
    Run(run::Flags),
    /// Trains a classifier of digits, on a cluster inside this process or as one task of a cluster.
    Train(train::Flags),
    /// Creates a certificate authority, and certificates for the tasks and clients of a cluster.
    #[command(subcommand)]
    Certs(certs::Command),
    /// Forwards clients that speak plain text only, such as TensorFlow's, from loopback to servers that require TLS.
    Proxy(proxy::Flags),
    /// Shows the state of the tasks of a cluster.
    Status(status::StatusArguments),
    /// Shows the state of the tasks of a cluster live in the terminal.
    Top(status::TargetFlags),
    /// Stops the tasks of a cluster in order: workers, the chief, then parameter servers.
    Stop(status::TargetFlags),
    /// Inspects checkpoints.
    #[command(subcommand)]
    Checkpoint(checkpoint::Command),
    /// Inspects SavedModels, and runs them.
    #[command(subcommand, name = "saved_model", alias = "saved-model")]
    SavedModel(saved_model::Command),
    /// Prints the completion script of a shell: `source <(ferroflow completions bash)`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Writes a man page for each command into a directory, such as ~/.local/share/man/man1.
    Man {
        /// The directory.
        directory: PathBuf,
    },
}

/// A command's failure: a message for people, and an exit code for programs.
pub struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// Returns a failure with a message.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), code: exit::FAILED }
    }

    /// Returns the failure with another exit code.
    pub fn with_code(self, code: u8) -> Failure {
        Failure { code, ..self }
    }
}

impl From<tensor::Status> for Failure {
    fn from(status: tensor::Status) -> Failure {
        Failure { message: status.to_string(), code: exit::code_of(&status) }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(train::spelled(server::with_underscores(std::env::args_os())));
    match run(&arguments.command) {
        Ok(()) => exit::code_of_success(),
        Err(Failure { message, code }) => {
            // The reader of the pipe may have exited.
            let _ = writeln!(std::io::stderr(), "ferroflow: {message}");
            ExitCode::from(code)
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    cpu::requested().map_err(Failure::new)?;
    memory::return_memory_when_idle();
    match command {
        Command::Hello(flags) => hello::run(flags),
        Command::Server(flags) => {
            listen::raise_open_files();
            server::run(flags)
        }
        Command::Check { file, arguments } => match file.extension() {
            Some(extension) if extension == "py" => check_script::run(file, arguments),
            _ if !arguments.is_empty() => Err(Failure::new("only a program (SCRIPT.py) takes arguments")),
            _ => check::run(file),
        },
        Command::Ops { filter, markdown } => {
            list_ops::run(filter.as_deref(), *markdown);
            Ok(())
        }
        Command::Run(flags) => run::run(flags),
        Command::Train(flags) => {
            listen::raise_open_files();
            train::run(flags)
        }
        Command::Certs(command) => certs::run(command),
        Command::Proxy(flags) => {
            listen::raise_open_files();
            proxy::run(flags)
        }
        Command::Status(arguments) => status::status(arguments),
        Command::Top(flags) => status::top(flags),
        Command::Stop(flags) => status::stop(flags),
        Command::Checkpoint(command) => checkpoint::run(command),
        Command::SavedModel(command) => saved_model::run(command),
        Command::Completions { shell } => documents::complete(*shell),
        Command::Man { directory } => documents::write_man_pages(directory),
    }
}

/// The output of `--version` after the name: the version, and the instruction sets, which bug reports need.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let available: Vec<&str> = cpu::available().iter().map(|level| level.name()).collect();
    let used = cpu::requested().map_or_else(|message| message, |level| level.to_string());
    format!("{}\ninstructions: {used}\nthis processor has: {}", env!("CARGO_PKG_VERSION"), available.join(", "))
});
