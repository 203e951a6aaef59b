//! The output lines of all tasks, each prefixed with the task's name, in colours on a terminal.

use std::io::{IsTerminal, Write};

/// The colours of tasks, as terminal codes; red is reserved for failures.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 96];

/// Prints lines of tasks.
pub struct Printer {
    names: Vec<String>,
    width: usize,
    is_coloured: bool,
}

impl Printer {
    /// Returns a printer for tasks with these names.
    pub fn new(names: Vec<String>) -> Printer {
        let width = names.iter().map(String::len).max().unwrap_or(0);
        let wants_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Printer { names, width, is_coloured: std::io::stdout().is_terminal() && !wants_none }
    }

    /// Prints a line of a task to the stream that the task printed it to. A closed pipe is ignored.
    pub fn line(&self, number: usize, is_error: bool, text: &str) {
        let line = self.behind_name(number, text);
        let _ = if is_error {
            writeln!(std::io::stderr().lock(), "{line}")
        } else {
            let mut out = std::io::stdout().lock();
            writeln!(out, "{line}").and_then(|()| out.flush())
        };
    }

    /// Prints a line of this process.
    pub fn note(&self, text: &str) {
        let (bold, plain) = if self.is_coloured { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        let _ = writeln!(std::io::stderr().lock(), "{bold}ferroflow run: {text}{plain}");
    }

    fn behind_name(&self, number: usize, text: &str) -> String {
        let name = self.names.get(number).map_or("", String::as_str);
        let width = self.width;
        if !self.is_coloured {
            return format!("{name:width$} | {text}");
        }
        let colour = COLOURS[number % COLOURS.len()];
        format!("\x1b[{colour}m{name:width$} |\x1b[0m {text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_same_width() {
        let names = vec!["ps 0".to_owned(), "evaluator 0".to_owned()];
        let mut printer = Printer { names, width: 11, is_coloured: false };
        assert_eq!(printer.behind_name(0, "ready"), "ps 0        | ready");
        assert_eq!(printer.behind_name(1, "ready"), "evaluator 0 | ready");
        printer.is_coloured = true;
        assert_eq!(printer.behind_name(1, "ready"), "\x1b[33mevaluator 0 |\x1b[0m ready");
    }
}
