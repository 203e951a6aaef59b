//! [`say!`](crate::say!): prints a line on standard output. If the reader closes the pipe early, as `head` does, this is not an
//! error, whereas `println!` would end the training or list.

use std::fmt;
use std::io::Write;

/// Prints a line.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::say::line(format_args!($($text)*)) };
}

/// Prints a line, and ignores a closed pipe.
pub fn line(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}
