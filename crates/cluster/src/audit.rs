//! [`AuditLog`]: a file with a line of JSON for every session, reset, refusal, and file that an op changes, so that it can be
//! found out later who did what.

use crate::clock::system_time;
use crate::log_limit::LogLimit;
use parking_lot::Mutex;
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tensor::{Account, Result, Status};
use tracing::warn;

/// The interval at which a line says that the file can't be written.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The most refusals written in ten seconds: a refused client can come again at once.
const REFUSALS_MAX: u32 = 100;

/// The event of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A session was opened, or failed to open.
    Open,
    /// A session was closed.
    Close,
    /// Containers were cleared.
    Reset,
    /// A connection or a call was refused.
    Refusal,
}

/// A file to which lines are appended.
pub struct AuditLog {
    path: PathBuf,
    file: Mutex<File>,
    refusals: LogLimit,
}

impl AuditLog {
    /// Opens the file; an existing one is continued.
    pub fn open(path: &Path) -> Result<AuditLog> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(|error| {
            Status::invalid_argument(format!("the audit log {} can't be written: {error}", path.display()))
        })?;
        let refusals = LogLimit::several(REFUSALS_MAX, LINE_INTERVAL);
        Ok(AuditLog { path: path.to_owned(), file: Mutex::new(file), refusals })
    }

    /// Appends a line: who requested what, from where, and the outcome.
    pub(crate) fn write(&self, event: Event, who: &str, from: SocketAddr, call: &str, outcome: &Result<()>) {
        let left_out = match event {
            Event::Refusal => match self.refusals.allow() {
                Some(count) => count,
                None => return,
            },
            Event::Open | Event::Close | Event::Reset => 0,
        };
        let (code, message) = told(outcome);
        self.add(json!({
            "time": now(),
            "event": event.name(),
            "who": who,
            "from": from.to_string(),
            "call": call,
            "code": code,
            "message": message,
            "left_out": left_out,
        }));
    }

    /// Appends a line for a file that an op changed, with the operation, such as `write`. The session is identified by its number
    /// in log lines about memory, if this process knows that the op belongs to it.
    pub fn write_file(&self, change: &str, path: &str, outcome: &Result<()>) {
        let session = Account::current().map(|account| account.state().session);
        let (code, message) = told(outcome);
        self.add(json!({
            "time": now(),
            "event": "file",
            "call": change,
            "path": path,
            "session": session,
            "code": code,
            "message": message,
        }));
    }

    fn add(&self, line: serde_json::Value) {
        static LIMIT: LogLimit = LogLimit::new(LINE_INTERVAL);
        // A single write keeps lines whole if several tasks share one file.
        if let Err(error) = self.file.lock().write_all(format!("{line}\n").as_bytes())
            && let Some(count) = LIMIT.allow()
        {
            warn!("the audit log {} can't be written: {error}{}", self.path.display(), LogLimit::left_out(count));
        }
    }
}

fn now() -> String {
    humantime::format_rfc3339_millis(system_time()).to_string()
}

/// Returns the code and the message of an outcome.
fn told(outcome: &Result<()>) -> (&'static str, &str) {
    match outcome {
        Ok(()) => ("OK", ""),
        Err(status) => (status.code().name(), status.message()),
    }
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Event::Open => "session",
            Event::Close => "close",
            Event::Reset => "reset",
            Event::Refusal => "refusal",
        }
    }
}
