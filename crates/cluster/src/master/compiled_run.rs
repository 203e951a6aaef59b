//! [`CompiledRun`]: one combination of feeds, fetches and targets, cut into partitions that are registered on their
//! tasks; and [`RunCache`], which keeps the compiled runs of a session.
//!
//! A partition stays registered as long as anybody holds its run: the cache, a callable, a partial run or a step. What the
//! cache drops is deregistered when its last holder lets go.

use crate::device::task_of;
use crate::interface::{LocalGraph, WorkerInterface};
use crate::metrics::SessionProgress;
use crate::spawner::Spawner;
use foldhash::fast::FixedState;
use foldhash::{HashMap, HashMapExt};
use graph::NodeGraph;
use graph::passes::FeedSlot;
use kernel::Transfer;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use tensor::{DType, Result, Status, Tensor};
use tokio::sync::{OnceCell, watch};
use tracing::debug;

/// The most compiled runs that a session caches. If a client needs more, the least recently used are compiled again. Callables and
/// partial runs hold their runs themselves.
const RUNS_MAX: usize = 1024;

/// A run that is compiled and registered.
pub(crate) struct CompiledRun {
    /// The type and shape that each feed must have.
    pub feed_slots: Vec<FeedSlot>,
    /// The partitions, those in other processes first, because they are started first.
    pub partitions: Vec<Partition>,
    /// The source of each fetch: the partition, and the index among its results.
    pub fetches: Vec<(usize, usize)>,
    /// Whether all tensors between tasks are pushed, so that a task has finished a step when its partition has.
    pub all_pushed: bool,
    /// The only partition, if the calling thread can run it.
    pub local: Option<Arc<dyn LocalGraph>>,
    /// The graph key that its steps are numbered by, if it has collective ops.
    pub collective_graph_key: Option<i64>,
    /// The fetches that the status page shows.
    pub shown: ShownFetches,
    /// The number of its steps that have begun.
    pub steps: AtomicI64,
}

/// The fetches of a run that show the progress of training, recognized by their names.
#[derive(Clone, Copy, Default)]
pub(crate) struct ShownFetches {
    loss: Option<usize>,
    global_step: Option<usize>,
}

impl ShownFetches {
    /// Finds them among the names.
    pub fn of(fetches: &[String]) -> ShownFetches {
        let position = |words: &[&str]| {
            fetches.iter().position(|name| {
                let name = name.to_ascii_lowercase();
                words.iter().any(|word| name.contains(word))
            })
        };
        ShownFetches { loss: position(&["loss", "cost"]), global_step: position(&["global_step"]) }
    }

    /// Records the values that a step has fetched.
    pub fn note(&self, fetches: &[Tensor], progress: &SessionProgress) {
        let scalar = |index: usize| fetches.get(index).filter(|tensor| tensor.shape().num_elements() == 1);
        let is_float = |tensor: &&Tensor| tensor.dtype() == DType::Float;
        if let Some(loss) = self.loss.and_then(|index| scalar(index).filter(is_float)?.to_scalar::<f32>().ok()) {
            progress.set_loss(loss);
        }
        let is_integer = |tensor: &&Tensor| matches!(tensor.dtype(), DType::Int32 | DType::Int64);
        if let Some(step) = self.global_step.and_then(|index| scalar(index).filter(is_integer)?.to_index().ok()) {
            progress.set_global_step(step.unsigned_abs());
        }
    }
}

impl CompiledRun {
    /// Checks that a value fits the feed at `index`.
    pub fn check_feed(&self, index: usize, value: &Tensor) -> Result<()> {
        self.feed_slots.get(index).map_or(Ok(()), |slot| slot.check(value.dtype(), value.shape()))
    }
}

/// A partition that is registered on its task.
pub(crate) struct Partition {
    /// The task.
    pub task: String,
    /// The task's worker.
    pub worker: Arc<dyn WorkerInterface>,
    /// Whether it runs in this process.
    pub is_local: bool,
    /// The registration of its graph on the worker.
    pub graph: Registration,
    /// The indices of its feeds, and their keys.
    pub feeds: Vec<(usize, Arc<str>)>,
    /// The keys of its results.
    pub receives: Arc<[Arc<str>]>,
}

/// A graph that is registered on a worker until this is dropped.
pub(crate) struct Registration {
    handle: Arc<str>,
    session_handle: Arc<str>,
    worker: Arc<dyn WorkerInterface>,
    spawner: Spawner,
    /// Becomes true when the session ends, and its graphs with it.
    closing: watch::Receiver<bool>,
}

impl Registration {
    /// Takes ownership of a graph that a worker has registered for a session.
    pub fn new(
        graph_handle: String,
        session_handle: Arc<str>,
        worker: Arc<dyn WorkerInterface>,
        spawner: Spawner,
        closing: watch::Receiver<bool>,
    ) -> Registration {
        Registration { handle: graph_handle.into(), session_handle, worker, spawner, closing }
    }

    /// Returns the worker's handle of the graph.
    pub fn handle(&self) -> &Arc<str> {
        &self.handle
    }

    /// Returns the worker.
    pub fn worker(&self) -> &Arc<dyn WorkerInterface> {
        &self.worker
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if *self.closing.borrow() {
            // The worker drops the session with all its graphs.
            return;
        }
        let request = proto::DeregisterGraphRequest {
            graph_handle: self.handle.to_string(),
            session_handle: self.session_handle.to_string(),
            create_worker_session_called: true,
        };
        let answer = self.worker.deregister_graph(request);
        self.spawner.spawn(async move {
            if let Err(status) = answer.await {
                debug!("a partition could not be dropped: {status}");
            }
        });
    }
}

/// The feeds and fetches of one partition's graph: names and keys.
#[derive(Default)]
pub(crate) struct Terminals {
    /// The client's feeds.
    pub feeds: Vec<(String, Arc<str>)>,
    /// The client's fetches.
    pub fetches: Vec<(String, Arc<str>)>,
}

impl Terminals {
    /// Finds the arguments that the client feeds and the results that it fetches.
    pub fn of(graph: &NodeGraph) -> Result<Terminals> {
        let mut terminals = Terminals::default();
        for (_, node) in graph.iter().filter(|(_, node)| Transfer::is_with_client(&node.attrs)) {
            let list = match node.op() {
                "_Arg" => &mut terminals.feeds,
                "_Retval" => &mut terminals.fetches,
                op @ ("_Recv" | "_HostRecv" | "_Send" | "_HostSend") => {
                    return Err(Status::invalid_argument(format!(
                        "node '{}' of op {op} has client_terminated=true, but a client feeds and fetches by the names of tensors",
                        node.name
                    )));
                }
                _ => continue,
            };
            list.push((node.attrs.string("tensor_name")?, Transfer::new(&node.attrs)?.key().shared().clone()));
        }
        Ok(terminals)
    }
}

/// The names that identify a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunNames {
    /// The names of the fed tensors.
    pub feeds: Vec<String>,
    /// The names of the fetched tensors.
    pub fetches: Vec<String>,
    /// The names of the nodes that are run.
    pub targets: Vec<String>,
}

/// As [`RunNames`], without owning the names.
pub(crate) struct RunNamesRef<'a, F, N> {
    /// Yields the names of the fed tensors.
    pub feeds: F,
    /// The names of the fetched tensors.
    pub fetches: &'a [N],
    /// The names of the nodes that are run.
    pub targets: &'a [N],
}

impl<'a, F: Iterator<Item = &'a str> + Clone, N: AsRef<str>> RunNamesRef<'a, F, N> {
    fn hash(&self) -> u64 {
        let mut hasher = FixedState::default().build_hasher();
        let mut count = 0;
        for feed in self.feeds.clone() {
            hasher.write(feed.as_bytes());
            count += 1;
        }
        hasher.write_usize(count);
        for names in [self.fetches, self.targets] {
            for name in names {
                hasher.write(name.as_ref().as_bytes());
            }
            hasher.write_usize(names.len());
        }
        hasher.finish()
    }

    fn is(&self, names: &RunNames) -> bool {
        let are = |ours: &[N], others: &[String]| {
            ours.len() == others.len() && ours.iter().zip(others).all(|(name, other)| name.as_ref() == other)
        };
        are(self.fetches, &names.fetches) && are(self.targets, &names.targets) && self.feeds.clone().eq(&names.feeds)
    }

    fn into_owned(self) -> RunNames {
        RunNames {
            feeds: self.feeds.map(str::to_owned).collect(),
            fetches: self.fetches.iter().map(|name| name.as_ref().to_owned()).collect(),
            targets: self.targets.iter().map(|name| name.as_ref().to_owned()).collect(),
        }
    }
}

/// A run that is compiled, or is being compiled by the first caller.
pub(crate) struct RunEntry {
    /// The names that identify it.
    pub names: RunNames,
    /// The run.
    pub run: OnceCell<CompiledRun>,
    used: AtomicU64,
}

/// The compiled runs of a session.
pub(crate) struct RunCache {
    entries: Mutex<Entries>,
    clock: AtomicU64,
}

#[derive(Default)]
struct Entries {
    by_hash: HashMap<u64, Vec<Arc<RunEntry>>>,
    /// The entries used last. A client mostly repeats a few runs, and comparing their names costs less than hashing them.
    recent: VecDeque<Arc<RunEntry>>,
}

/// The number of runs whose names are compared before names are hashed.
const RECENT_MAX: usize = 4;

impl RunCache {
    /// Makes an empty cache.
    pub fn new() -> RunCache {
        RunCache { entries: Mutex::default(), clock: AtomicU64::new(0) }
    }

    /// Returns the entry of a run, new or old.
    pub fn find<'a, F, N>(&self, names: RunNamesRef<'a, F, N>) -> Arc<RunEntry>
    where
        F: Iterator<Item = &'a str> + Clone,
        N: AsRef<str>,
    {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut entries = self.entries.lock();
        let hash = match entries.known(&names, now) {
            Ok(entry) => return entry,
            Err(hash) => hash,
        };
        let total: usize = entries.by_hash.values().map(Vec::len).sum();
        let evicted = if total >= RUNS_MAX { evict(&mut entries) } else { None };
        let entry = Arc::new(RunEntry { names: names.into_owned(), run: OnceCell::new(), used: AtomicU64::new(now) });
        entries.by_hash.entry(hash).or_default().push(entry.clone());
        entries.note(&entry);
        drop(entries);
        // Without the lock, since its end may tell workers.
        drop(evicted);
        entry
    }

    /// Returns the entry of a run that was requested before.
    pub fn known<'a, F, N>(&self, names: &RunNamesRef<'a, F, N>) -> Option<Arc<RunEntry>>
    where
        F: Iterator<Item = &'a str> + Clone,
        N: AsRef<str>,
    {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        self.entries.lock().known(names, now).ok()
    }

    /// Removes an entry, such as one that could not be compiled.
    pub fn remove(&self, entry: &Arc<RunEntry>) {
        self.entries.lock().remove(entry);
    }

    /// Drops all runs.
    pub fn clear(&self) {
        let dropped = std::mem::take(&mut *self.entries.lock());
        // Without the lock, since their end may tell workers.
        drop(dropped);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.lock().by_hash.values().map(Vec::len).sum()
    }
}

impl Entries {
    /// Returns the entry of a run, or the hash of its names if there is none.
    fn known<'a, F, N>(&mut self, names: &RunNamesRef<'a, F, N>, now: u64) -> std::result::Result<Arc<RunEntry>, u64>
    where
        F: Iterator<Item = &'a str> + Clone,
        N: AsRef<str>,
    {
        if let Some(entry) = self.recent.iter().find(|entry| names.is(&entry.names)) {
            entry.used.store(now, Ordering::Relaxed);
            return Ok(entry.clone());
        }
        let hash = names.hash();
        let found = self.by_hash.get(&hash).and_then(|list| list.iter().find(|entry| names.is(&entry.names)));
        let entry = found.cloned().ok_or(hash)?;
        entry.used.store(now, Ordering::Relaxed);
        self.note(&entry);
        Ok(entry)
    }

    fn note(&mut self, entry: &Arc<RunEntry>) {
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_back();
        }
        self.recent.push_front(entry.clone());
    }

    fn remove(&mut self, entry: &Arc<RunEntry>) {
        self.recent.retain(|known| !Arc::ptr_eq(known, entry));
        self.by_hash.retain(|_, list| {
            list.retain(|known| !Arc::ptr_eq(known, entry));
            !list.is_empty()
        });
    }
}

/// Removes the least recently used entry.
fn evict(entries: &mut Entries) -> Option<Arc<RunEntry>> {
    let all = entries.by_hash.values().flatten();
    let oldest = all.min_by_key(|entry| entry.used.load(Ordering::Relaxed))?.clone();
    entries.remove(&oldest);
    Some(oldest)
}

/// Determines the source of each fetch.
pub(crate) fn fetch_sources(names: &[String], partitions: &[Terminals]) -> Result<Vec<(usize, usize)>> {
    let mut sources: HashMap<&str, (usize, usize)> = HashMap::new();
    for (partition, terminals) in partitions.iter().enumerate() {
        for (index, (name, _)) in terminals.fetches.iter().enumerate() {
            sources.insert(name, (partition, index));
        }
    }
    let find = |name: &String| {
        let missing = || Status::internal(format!("no partition returns the fetch '{name}'"));
        sources.get(name.as_str()).copied().ok_or_else(missing)
    };
    names.iter().map(find).collect()
}

/// Returns the tasks that a placed graph uses, each once.
pub(crate) fn tasks_of(graph: &NodeGraph) -> Vec<String> {
    let mut tasks: Vec<String> = Vec::new();
    for (_, node) in graph.iter() {
        let task = task_of(&node.device);
        if !tasks.iter().any(|known| known == task) {
            tasks.push(task.to_owned());
        }
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(cache: &RunCache, feeds: &[&str], fetches: &[&str]) -> Arc<RunEntry> {
        let fetches: Vec<String> = fetches.iter().map(|&name| name.to_owned()).collect();
        cache.find(RunNamesRef { feeds: feeds.iter().copied(), fetches: &fetches, targets: &[] })
    }

    #[test]
    fn a_client_can_not_bring_feeds_and_fetches_of_its_own() {
        let of = |text: &str| Terminals::of(&NodeGraph::from_text(text, ops::registry()).unwrap());
        let key = "client_terminated=true, recv_device=\"d\", send_device=\"d\", send_device_incarnation=1, tensor_name=\"x:0\"";
        let terminals =
            of(&format!("x = _Arg() {{T=float, index=0, {key}}}\ny = _Retval(x) {{index=0, {key}}}")).unwrap();
        let names = |list: Vec<(String, Arc<str>)>| list.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(
            (names(terminals.feeds), names(terminals.fetches)),
            (vec!["x:0".to_owned()], vec!["x:0".to_owned()])
        );
        let status = of(&format!("x = _Recv() {{tensor_type=float, {key}}}")).err().unwrap();
        assert_eq!(status.code(), tensor::Code::InvalidArgument);
        assert!(status.message().starts_with("node 'x' of op _Recv has client_terminated=true"), "{status}");
    }

    #[test]
    fn runs_are_told_apart() {
        let cache = RunCache::new();
        let first = find(&cache, &["a"], &["b"]);
        assert!(Arc::ptr_eq(&first, &find(&cache, &["a"], &["b"])));
        assert!(!Arc::ptr_eq(&first, &find(&cache, &[], &["a", "b"])));
        assert!(!Arc::ptr_eq(&first, &find(&cache, &["a"], &["b", "b"])));
        assert_eq!(cache.len(), 3);
        cache.remove(&first);
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn the_least_recently_used_makes_room() {
        let cache = RunCache::new();
        let names: Vec<String> = (0..RUNS_MAX).map(|index| format!("x{index}")).collect();
        let entries: Vec<_> = names.iter().map(|name| Arc::downgrade(&find(&cache, &[], &[name]))).collect();
        let held = find(&cache, &[], &["x1"]);
        for name in names.iter().filter(|name| *name != "x1") {
            find(&cache, &[], &[name]);
        }
        find(&cache, &[], &["new"]);
        find(&cache, &[], &["newer"]);
        assert_eq!(cache.len(), RUNS_MAX);
        assert!(entries[0].upgrade().is_none(), "nobody held it");
        assert!(entries[1].upgrade().is_some_and(|entry| Arc::ptr_eq(&entry, &held)), "somebody holds it");
        assert!(entries[2].upgrade().is_some());
        drop(held);
        assert!(entries[1].upgrade().is_none(), "its last holder let go");
    }
}
