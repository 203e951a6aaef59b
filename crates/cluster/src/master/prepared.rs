//! A session's prepared steps: [`Callables`], which are run many times, and [`OpenPartialRuns`], which are fed and fetched in
//! parts.

use super::compiled_run::RunEntry;
use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;
use proto::RunOptions;
use std::sync::Arc;
use tensor::{Result, Status};

/// The most callables of a session.
const CALLABLES_MAX: usize = 1 << 16;

/// The most open partial runs of a session.
const PARTIAL_RUNS_MAX: usize = 1 << 10;

/// The callables of a session.
#[derive(Default)]
pub(crate) struct Callables {
    table: Mutex<CallableTable>,
}

#[derive(Default)]
struct CallableTable {
    callables: HashMap<i64, Arc<Callable>>,
    next_handle: i64,
}

/// A run with a handle.
pub(crate) struct Callable {
    /// The run.
    pub entry: Arc<RunEntry>,
    /// The options of its steps.
    pub options: Option<RunOptions>,
}

impl Callables {
    /// Adds a callable; returns its handle.
    pub fn add(&self, callable: Callable) -> Result<i64> {
        let mut table = self.table.lock();
        if table.callables.len() >= CALLABLES_MAX {
            return Err(Status::resource_exhausted("the session has too many callables"));
        }
        let handle = table.next_handle;
        table.next_handle += 1;
        table.callables.insert(handle, Arc::new(callable));
        Ok(handle)
    }

    /// Returns a callable.
    pub fn get(&self, handle: i64) -> Option<Arc<Callable>> {
        self.table.lock().callables.get(&handle).cloned()
    }

    /// Removes a callable.
    pub fn remove(&self, handle: i64) -> Option<Arc<Callable>> {
        self.table.lock().callables.remove(&handle)
    }
}

/// The partial runs of a session.
#[derive(Default)]
pub(crate) struct OpenPartialRuns {
    table: Mutex<PartialRunTable>,
}

#[derive(Default)]
struct PartialRunTable {
    runs: HashMap<String, Arc<OpenPartialRun>>,
    next_handle: u64,
}

/// A step that is fed and fetched in parts.
pub(crate) struct OpenPartialRun {
    /// The run.
    pub entry: Arc<RunEntry>,
    /// The step.
    pub step_id: i64,
    /// The pending feeds and fetches.
    pub pending: Mutex<Pending>,
}

/// Pending feeds and fetches.
pub(crate) struct Pending {
    /// The names of the feeds.
    pub feeds: HashSet<String>,
    /// The fetches, each with the feeds that it depends on.
    pub fetches: HashMap<String, Vec<String>>,
}

impl OpenPartialRuns {
    /// Adds a partial run; returns its handle.
    pub fn add(&self, run: OpenPartialRun) -> Result<String> {
        let mut table = self.table.lock();
        if table.runs.len() >= PARTIAL_RUNS_MAX {
            return Err(Status::resource_exhausted("the session has too many partial runs"));
        }
        let handle = table.next_handle.to_string();
        table.next_handle += 1;
        table.runs.insert(handle.clone(), Arc::new(run));
        Ok(handle)
    }

    /// Returns a partial run.
    pub fn get(&self, handle: &str) -> Option<Arc<OpenPartialRun>> {
        self.table.lock().runs.get(handle).cloned()
    }

    /// Removes a partial run.
    pub fn remove(&self, handle: &str) -> Option<Arc<OpenPartialRun>> {
        self.table.lock().runs.remove(handle)
    }

    /// Removes all partial runs.
    pub fn take_all(&self) -> Vec<Arc<OpenPartialRun>> {
        // In the order of their handles, so that a simulation is reproducible.
        let mut runs: Vec<_> = std::mem::take(&mut self.table.lock().runs).into_iter().collect();
        runs.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        runs.into_iter().map(|(_, run)| run).collect()
    }
}
