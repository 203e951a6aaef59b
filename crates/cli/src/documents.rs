//! `ferroflow completions` and `ferroflow man`: completion scripts and man pages, generated from the flags.

use crate::{Arguments, Failure};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::io::Write;
use std::path::Path;

/// Prints a shell's completion script.
pub fn complete(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "ferroflow", &mut script);
    // A reader that closes the pipe early, such as `head`, is not a failure.
    match std::io::stdout().write_all(&script) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("can't write the script: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes the man pages, one for each command, into a directory, which is created if it doesn't exist.
pub fn write_man_pages(directory: &Path) -> Result<(), Failure> {
    let written = std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(command(), directory));
    written.map_err(|error| Failure::new(format!("can't write the man pages to {}: {error}", directory.display())))
}

/// Returns the command without machine-dependent defaults, since the pages are read on other machines.
fn command() -> Command {
    Arguments::command().long_version(env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_man_page() {
        let directory = tempfile::tempdir().unwrap();
        let pages = directory.path().join("man1");
        assert!(write_man_pages(&pages).is_ok());
        for name in ["ferroflow", "ferroflow-server", "ferroflow-checkpoint-ls", "ferroflow-completions"] {
            let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
            assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{page}");
        }
        let server = std::fs::read_to_string(pages.join("ferroflow-server.1")).unwrap();
        assert!(server.contains("task_index") && !server.contains("attached"), "{server}");
        let taken = directory.path().join("taken");
        std::fs::write(&taken, "").unwrap();
        assert!(write_man_pages(&taken).is_err_and(|failure| failure.message.contains("taken")));
    }
}
