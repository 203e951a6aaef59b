//! `cargo xtask fuzz`: runs random graphs on an embedded server for a while.

use crate::process;

/// Builds the loop and runs it for so many seconds, from a seed on.
pub fn run(arguments: &[String]) -> Result<(), String> {
    let (mut seconds, mut seed) = ("60".to_owned(), "1".to_owned());
    let mut rest = arguments.iter();
    while let Some(flag) = rest.next() {
        let place = match flag.as_str() {
            "--seconds" => &mut seconds,
            "--seed" => &mut seed,
            unknown => return Err(format!("unknown argument `{unknown}`: fuzz [--seconds N] [--seed N]")),
        };
        *place = rest.next().ok_or_else(|| format!("{flag} needs a number"))?.clone();
    }
    process::run(&mut process::cargo(&["run", "--package", "testkit", "--example", "fuzz", "--", &seconds, &seed]))
}
