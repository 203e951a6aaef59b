//! The log on standard error, which says what a task does and waits for; the last lines are kept for the status page.

use crate::Failure;
use clap::ValueEnum;
use indicatif::ProgressBar;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use std::fmt::{Debug, Write};
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, layer};
use tracing_subscriber::layer::Context;
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

/// The environment variable that sets the log levels: `debug`, or `warn,cluster=debug`.
const VARIABLE: &str = "FERROFLOW_LOG";

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The progress bar that is currently shown; log lines are printed above it.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Sets the progress bar above which lines are printed, so that they don't tear it; `None` if there is none.
pub fn print_above(bar: Option<&ProgressBar>) {
    *BAR.lock() = bar.cloned();
}

/// Standard error, coordinated with the progress bar. Each write is a whole line.
pub struct Lines;

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match &*BAR.lock() {
            Some(bar) => bar.suspend(|| std::io::stderr().write(bytes)),
            None => std::io::stderr().write(bytes),
        }
    }

    fn write_fmt(&mut self, arguments: std::fmt::Arguments<'_>) -> std::io::Result<()> {
        // Writes a line in one piece; otherwise the bar would be drawn between its pieces.
        self.write_all(arguments.to_string().as_bytes())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Starts the log; `usual` sets the levels if the variable isn't set.
pub fn start(usual: &str, format: LogFormat) -> Result<(), Failure> {
    let wanted = std::env::var(VARIABLE).unwrap_or_else(|_| usual.to_owned());
    let filter: Targets = wanted.parse().map_err(|error| {
        Failure::new(format!("{VARIABLE}='{wanted}' is not like 'info' or 'warn,cluster=debug': {error}"))
    })?;
    let lines = layer().with_writer(|| Lines).with_ansi(false).with_target(false);
    let registry = tracing_subscriber::registry().with(Keep.with_filter(filter.clone()));
    match format {
        LogFormat::Text => registry.with(lines.with_filter(filter)).init(),
        LogFormat::Json => registry.with(lines.event_format(JsonLine).with_filter(filter)).init(),
    }
    Ok(())
}

/// Keeps lines for the status page.
struct Keep;

impl<S: Subscriber> tracing_subscriber::Layer<S> for Keep {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut text = fields.message;
        for (name, value) in &fields.others {
            let _ = write!(text, " {name}={value}");
        }
        cluster::keep_line(event.metadata().level().as_str(), &text);
    }
}

/// Formats an event as a JSON object on one line.
struct JsonLine;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for JsonLine {
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        writeln!(writer, "{}", Value::Object(object(event)))
    }
}

fn object(event: &Event<'_>) -> Map<String, Value> {
    let mut fields = Fields::default();
    event.record(&mut fields);
    let mut object = fields.others;
    object.insert("time".to_owned(), humantime::format_rfc3339_micros(SystemTime::now()).to_string().into());
    object.insert("level".to_owned(), event.metadata().level().as_str().into());
    object.insert("target".to_owned(), event.metadata().target().into());
    object.insert("message".to_owned(), fields.message.into());
    object
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            _ => self.put(field, value.into()),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.put(field, format!("{value:?}").into()),
        }
    }
}
