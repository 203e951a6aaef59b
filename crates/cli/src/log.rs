//! The lines on standard error that say what a task does and waits for.

use crate::Failure;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::layer;
use tracing_subscriber::prelude::*;

/// Names the variable that says which lines are printed: `debug`, or `warn,cluster=debug`.
const VARIABLE: &str = "FERROFLOW_LOG";

/// Starts logging; `usual` is the filter when the variable isn't set.
pub fn start(usual: &str) -> Result<(), Failure> {
    let wanted = std::env::var(VARIABLE).unwrap_or_else(|_| usual.to_owned());
    let filter: Targets = wanted.parse().map_err(|error| {
        Failure::new(format!("{VARIABLE}='{wanted}' is not like 'info' or 'warn,cluster=debug': {error}"))
    })?;
    let lines = layer().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    Ok(())
}
