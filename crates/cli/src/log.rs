//! The lines on standard error that say what a task does and waits for.

use crate::Failure;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use std::io::Write;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::prelude::*;

/// Names the variable that says which lines are printed: `debug`, or `warn,cluster=debug`.
const VARIABLE: &str = "FERROFLOW_LOG";

/// The bar that is drawn now, above which lines are printed.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Has lines be printed above a bar, which they would tear otherwise; without one, as they come.
pub fn print_above(bar: Option<&ProgressBar>) {
    *BAR.lock() = bar.cloned();
}

/// Standard error, beside a bar.
struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match &*BAR.lock() {
            Some(bar) => bar.suspend(|| std::io::stderr().write(bytes)),
            None => std::io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Begins to print lines; `usual` says which ones when the variable isn't set.
pub fn start(usual: &str) -> Result<(), Failure> {
    let wanted = std::env::var(VARIABLE).unwrap_or_else(|_| usual.to_owned());
    let filter: Targets = wanted.parse().map_err(|error| {
        Failure::new(format!("{VARIABLE}='{wanted}' is not like 'info' or 'warn,cluster=debug': {error}"))
    })?;
    let lines = layer().with_writer(|| Lines).with_ansi(false).with_target(false);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    Ok(())
}
