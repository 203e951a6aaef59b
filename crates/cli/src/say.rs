//! [`say!`](crate::say!): a line on standard output. A reader that leaves early, as `head` does, must end neither a training nor
//! a list with an error, which `println!` would.

use std::fmt;
use std::io::Write;

/// Prints a line.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::say::line(format_args!($($text)*)) };
}

/// Prints a line, if anybody reads it.
pub fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
