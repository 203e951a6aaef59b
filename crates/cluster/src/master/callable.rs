//! Callables: runs that a client prepares once and then runs by handle.

use super::compiled_run::RunNamesRef;
use super::prepared::Callable;
use super::session::MasterSession;
use crate::interface::{RunCallableCall, RunCallableReply};
use proto::CallableOptions;
use tensor::{Result, Status};

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
        self.callables.add(Callable { entry, options: run_options })
    }

    /// Runs a callable.
    pub async fn run_callable(&self, call: RunCallableCall) -> Result<RunCallableReply> {
        let callable = self.callables.get(call.handle).ok_or_else(|| no_such(call.handle))?;
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
        self.callables.remove(handle).map(drop).ok_or_else(|| no_such(handle))
    }
}

fn no_such(handle: i64) -> Status {
    Status::invalid_argument(format!("No such callable handle: {handle}"))
}
