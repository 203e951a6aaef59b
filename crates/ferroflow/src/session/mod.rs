//! [`Session`]: runs a graph, in this process or on a cluster.

mod direct;
mod remote;
mod target;

use graph::{GraphBuilder, Operation, Output};
use parking_lot::Mutex;
use proto::GraphDef;
use std::sync::Arc;
use std::time::Duration;
use tensor::{Element, Result, Status, Tensor};

pub use direct::DirectSession;
pub use remote::{MasterSession, runtime};
pub use target::Target;

/// How a run is done.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Gives up with `DeadlineExceeded` after this long.
    pub timeout: Option<Duration>,
    /// Records when every node ran.
    pub full_trace: bool,
    /// Records the graphs that every device was given.
    pub output_partition_graphs: bool,
}

/// What is known of a run afterwards.
pub type RunMetadata = proto::RunMetadata;

/// Where a session's graph runs.
pub trait SessionBackend: Send + Sync {
    /// Adds nodes to the graph.
    fn extend(&self, def: &GraphDef) -> Result<()>;

    /// Runs a step: `feeds` stand in for the tensors that they name, `targets` are run for their effects.
    fn run(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, Option<RunMetadata>)>;

    /// Ends the session.
    fn close(&self) -> Result<()>;
}

/// Runs a graph. Nodes that are added to the graph later are sent along with the next run.
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    backend: Box<dyn SessionBackend>,
    graph: GraphBuilder,
    /// How many of the graph's nodes the backend has.
    sent: Mutex<usize>,
}

impl Session {
    /// Makes a session that runs the graph in this process.
    pub fn new(graph: &GraphBuilder) -> Result<Session> {
        Ok(Session::with_backend(graph, Box::new(DirectSession::new(ops::registry()))))
    }

    /// Makes a session on the server at `grpc://host:port`; an empty target means this process.
    pub fn connect(graph: &GraphBuilder, target: &str) -> Result<Session> {
        Session::connect_with(graph, target, proto::ConfigProto::default())
    }

    /// As [`connect`](Self::connect), with settings such as device filters and soft placement.
    pub fn connect_with(graph: &GraphBuilder, target: &str, config: proto::ConfigProto) -> Result<Session> {
        if target.is_empty() {
            return Session::new(graph);
        }
        Ok(Session::with_backend(graph, Box::new(MasterSession::connect(target, config)?)))
    }

    /// Makes a session on a master in this process, such as an embedded cluster's.
    pub fn on_master(
        graph: &GraphBuilder,
        master: Arc<dyn cluster::MasterInterface>,
        config: proto::ConfigProto,
    ) -> Result<Session> {
        Ok(Session::with_backend(graph, Box::new(MasterSession::new(master, config)?)))
    }

    /// Makes a session over a backend of your own.
    pub fn with_backend(graph: &GraphBuilder, backend: Box<dyn SessionBackend>) -> Session {
        Session { shared: Arc::new(Shared { backend, graph: graph.clone(), sent: Mutex::new(0) }) }
    }

    /// Returns the graph.
    pub fn graph(&self) -> &GraphBuilder {
        &self.shared.graph
    }

    /// Returns a number that no other session has while this one lives.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Returns the values of some outputs.
    pub fn run(&self, fetches: &[&Output]) -> Result<Vec<Tensor>> {
        let mut runner = self.runner();
        for fetch in fetches {
            runner = runner.fetch(fetch);
        }
        runner.run()
    }

    /// Runs operations for their effects.
    pub fn run_ops(&self, operations: &[&Operation]) -> Result<()> {
        let mut runner = self.runner();
        for operation in operations {
            runner = runner.target(operation);
        }
        runner.run().map(drop)
    }

    /// Returns the value of a scalar output.
    pub fn eval<T: Element>(&self, fetch: &Output) -> Result<T> {
        self.run(&[fetch])?.first().map_or_else(|| Err(Status::internal("no value")), Tensor::to_scalar)
    }

    /// Returns the value of a scalar output of type `int32` or `int64`, such as a step counter.
    pub fn eval_index(&self, fetch: &Output) -> Result<i64> {
        self.run(&[fetch])?.first().map_or_else(|| Err(Status::internal("no value")), Tensor::to_index)
    }

    /// Starts a run with feeds, fetches and targets.
    pub fn runner(&self) -> Runner<'_> {
        Runner {
            session: self,
            options: RunOptions::default(),
            feeds: Vec::new(),
            fetches: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// Prepares a run that is done many times: the feeds are then given by position.
    pub fn make_callable(&self, feeds: &[&Output], fetches: &[&Output], targets: &[&Operation]) -> Result<Callable> {
        self.send_new_nodes()?;
        Ok(Callable {
            session: self.clone(),
            feeds: feeds.iter().map(|output| output.name()).collect(),
            fetches: fetches.iter().map(|output| output.name()).collect(),
            targets: targets.iter().map(|operation| operation.name()).collect(),
        })
    }

    /// Ends the session; runs that are under way fail.
    pub fn close(&self) -> Result<()> {
        self.shared.backend.close()
    }

    fn send_new_nodes(&self) -> Result<()> {
        let mut sent = self.shared.sent.lock();
        if self.shared.graph.num_nodes() == *sent {
            return Ok(());
        }
        let graph = self.shared.graph.graph();
        let mut def = GraphDef { versions: graph.versions.clone(), ..Default::default() };
        def.node =
            graph.iter().filter(|(id, _)| id.index() >= *sent).map(|(_, node)| graph.to_node_def(node)).collect();
        if *sent == 0 && !graph.library.is_empty() {
            def.library = Some(graph.library.to_proto());
        }
        self.shared.backend.extend(&def)?;
        *sent = graph.id_bound();
        Ok(())
    }
}

/// A run about to be done.
#[must_use = "nothing happens until `run`"]
pub struct Runner<'a> {
    session: &'a Session,
    options: RunOptions,
    feeds: Vec<(String, Tensor)>,
    fetches: Vec<String>,
    targets: Vec<String>,
}

impl Runner<'_> {
    /// Gives a value for an output, usually a placeholder's.
    pub fn feed(mut self, output: &Output, value: impl Into<Tensor>) -> Self {
        self.feeds.push((output.name(), value.into()));
        self
    }

    /// Asks for an output's value.
    pub fn fetch(mut self, output: &Output) -> Self {
        self.fetches.push(output.name());
        self
    }

    /// Runs an operation for its effects.
    pub fn target(mut self, operation: &Operation) -> Self {
        self.targets.push(operation.name());
        self
    }

    /// Gives a value by name.
    pub fn feed_name(mut self, name: &str, value: Tensor) -> Self {
        self.feeds.push((name.to_owned(), value));
        self
    }

    /// Asks for a value by name, `node:port`.
    pub fn fetch_name(mut self, name: &str) -> Self {
        self.fetches.push(name.to_owned());
        self
    }

    /// Runs an operation by name.
    pub fn target_name(mut self, name: &str) -> Self {
        self.targets.push(name.to_owned());
        self
    }

    /// Sets how the run is done.
    pub fn options(mut self, options: RunOptions) -> Self {
        self.options = options;
        self
    }

    /// Runs, and returns the values asked for.
    pub fn run(self) -> Result<Vec<Tensor>> {
        self.run_with_metadata().map(|(values, _)| values)
    }

    /// Runs, and returns the values asked for and what was recorded of the run.
    pub fn run_with_metadata(self) -> Result<(Vec<Tensor>, Option<RunMetadata>)> {
        self.session.send_new_nodes()?;
        let feeds: Vec<(&str, Tensor)> =
            self.feeds.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let fetches: Vec<&str> = self.fetches.iter().map(String::as_str).collect();
        let targets: Vec<&str> = self.targets.iter().map(String::as_str).collect();
        self.session.shared.backend.run(&self.options, &feeds, &fetches, &targets)
    }
}

/// A prepared run.
pub struct Callable {
    session: Session,
    feeds: Vec<String>,
    fetches: Vec<String>,
    targets: Vec<String>,
}

impl Callable {
    /// Runs with these feeds, in the order in which they were declared.
    pub fn call(&self, feeds: &[Tensor]) -> Result<Vec<Tensor>> {
        if feeds.len() != self.feeds.len() {
            return Err(Status::invalid_argument(format!(
                "{} feeds expected, {} given",
                self.feeds.len(),
                feeds.len()
            )));
        }
        let feeds: Vec<(&str, Tensor)> = self.feeds.iter().map(String::as_str).zip(feeds.iter().cloned()).collect();
        let fetches: Vec<&str> = self.fetches.iter().map(String::as_str).collect();
        let targets: Vec<&str> = self.targets.iter().map(String::as_str).collect();
        let options = RunOptions::default();
        self.session.shared.backend.run(&options, &feeds, &fetches, &targets).map(|(values, _)| values)
    }
}
