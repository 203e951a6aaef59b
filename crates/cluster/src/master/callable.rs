//! Callables: runs that a client prepares once and then calls by number.

use super::compiled_run::{RunEntry, RunNamesRef};
use super::session::MasterSession;
use crate::interface::{RunCallableCall, RunCallableReply};
use foldhash::HashMap;
use parking_lot::Mutex;
use proto::{CallableOptions, RunOptions};
use std::sync::Arc;
use tensor::{Result, Status};

/// A bound on the callables of a session.
const CALLABLES_MAX: usize = 1 << 16;

/// The callables of a session.
#[derive(Default)]
pub(crate) struct Callables {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    callables: HashMap<i64, Arc<Callable>>,
    next_handle: i64,
}

struct Callable {
    entry: Arc<RunEntry>,
    options: Option<RunOptions>,
}

impl MasterSession {
    /// Prepares a callable; returns its handle.
    pub async fn make_callable(&self, options: CallableOptions) -> Result<i64> {
        if !options.tensor_connection.is_empty() {
            return Err(Status::unimplemented("CallableOptions.tensor_connection is not supported"));
        }
        let run_options = options.run_options;
        let timeout_ms = run_options.as_ref().map_or(0, |options| options.timeout_in_ms);
        let names = RunNamesRef {
            feeds: options.feed.iter().map(String::as_str),
            fetches: &options.fetch,
            targets: &options.target,
        };
        let entry = self.run_for(names, self.deadline(timeout_ms)).await?;
        let mut table = self.callables.table.lock();
        if table.callables.len() >= CALLABLES_MAX {
            return Err(Status::resource_exhausted("the session has too many callables"));
        }
        let handle = table.next_handle;
        table.next_handle += 1;
        table.callables.insert(handle, Arc::new(Callable { entry, options: run_options }));
        Ok(handle)
    }

    /// Runs a callable.
    pub async fn run_callable(&self, call: RunCallableCall) -> Result<RunCallableReply> {
        let callable = self.callables.table.lock().callables.get(&call.handle).cloned();
        let callable = callable.ok_or_else(|| no_such(call.handle))?;
        let expected = callable.entry.names.feeds.len();
        if call.feeds.len() != expected {
            return Err(Status::invalid_argument(format!(
                "Expected {expected} feed tensors, but got {}",
                call.feeds.len()
            )));
        }
        let options = callable.options.as_ref();
        let deadline = self.deadline(options.map_or(0, |options| options.timeout_in_ms));
        let run = callable.entry.run.get().ok_or_else(|| Status::internal("a callable was never compiled"))?;
        let result = self.run_compiled(run, call.feeds, options, deadline).await?;
        Ok(RunCallableReply { fetches: result.fetches, metadata: result.metadata })
    }

    /// Drops a callable.
    pub fn release_callable(&self, handle: i64) -> Result<()> {
        let removed = self.callables.table.lock().callables.remove(&handle);
        removed.map(drop).ok_or_else(|| no_such(handle))
    }
}

fn no_such(handle: i64) -> Status {
    Status::invalid_argument(format!("No such callable handle: {handle}"))
}
