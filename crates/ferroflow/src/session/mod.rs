//! [`Session`]: runs a graph, in this process or on a cluster.

mod chrome_trace;
mod client;
mod config;
mod lines;
mod options;
mod target;
mod typed;

use graph::{FunctionLibrary, Graph, Operation, Output};
use parking_lot::Mutex;
use proto::GraphDef;
use std::panic::Location;
use std::sync::Arc;
use tensor::{IntoTensor, Result, Status, Tensor};

pub use chrome_trace::chrome_trace;
pub use client::{ClientSession, runtime};
pub use config::SessionConfig;
use lines::{Feed, at_line, with_lines};
pub use options::{NodeRun, RunMetadata, RunOptions};
pub use target::Target;
pub use typed::{FromTensor, FromTensors};

/// Runs a session's graph. Its interface uses TensorFlow's messages; programs don't need it.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::session::SessionBackend;
/// use ferroflow::{Result, RunOptions, proto};
///
/// /// Answers every fetch with zero, so that a test needs no arithmetic.
/// struct Zeros;
///
/// impl SessionBackend for Zeros {
///     fn extend(&self, _: &proto::GraphDef) -> Result<()> {
///         Ok(())
///     }
///     fn run(
///         &self,
///         _: &RunOptions,
///         _: &[(&str, Tensor)],
///         fetches: &[&str],
///         _: &[&str],
///     ) -> Result<(Vec<Tensor>, Option<proto::RunMetadata>)> {
///         Ok((vec![Tensor::scalar(0f32); fetches.len()], None))
///     }
///     fn partial_run_setup(&self, _: &[&str], _: &[&str], _: &[&str]) -> Result<String> {
///         Err(Status::unimplemented("no partial runs"))
///     }
///     fn partial_run(&self, _: &str, _: &[(&str, Tensor)], _: &[&str]) -> Result<Vec<Tensor>> {
///         Err(Status::unimplemented("no partial runs"))
///     }
///     fn close(&self) -> Result<()> {
///         Ok(())
///     }
/// }
///
/// let g = Graph::new();
/// let one = g.constant(1f32);
/// assert_eq!(Session::with_backend(&g, Box::new(Zeros)).eval::<f32>(&one)?, 0.0);
/// # Ok::<(), Status>(())
/// ```
pub trait SessionBackend: Send + Sync {
    /// Adds nodes to the graph.
    fn extend(&self, def: &GraphDef) -> Result<()>;

    /// Runs a step: `feeds` replace the tensors that they name, `targets` are run for their side effects.
    fn run(
        &self,
        options: &RunOptions,
        feeds: &[(&str, Tensor)],
        fetches: &[&str],
        targets: &[&str],
    ) -> Result<(Vec<Tensor>, Option<proto::RunMetadata>)>;

    /// Prepares a partial run, which is fed and fetched in parts; returns its handle.
    fn partial_run_setup(&self, feeds: &[&str], fetches: &[&str], targets: &[&str]) -> Result<String>;

    /// Runs one part of a partial run; the last part waits until the step has ended.
    fn partial_run(&self, handle: &str, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<Vec<Tensor>>;

    /// Closes the session.
    fn close(&self) -> Result<()>;
}

/// Runs a graph. Nodes that are added later are sent with the next run.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>([-1]);
/// let session = Session::new(&g)?;
/// // What is added later is there in the next run.
/// let sum = x.sum();
/// let values = session.runner().feed(&x, [1f32, 2.0, 3.0]).fetch(&sum).run()?;
/// assert_eq!(values[0].to_scalar::<f32>()?, 6.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    backend: Box<dyn SessionBackend>,
    graph: Graph,
    sent: Mutex<Sent>,
}

/// The part of the graph that the backend has.
#[derive(Default)]
struct Sent {
    /// The number of nodes.
    nodes: usize,
    /// The functions.
    library: Arc<FunctionLibrary>,
}

impl Session {
    /// Returns a session that runs the graph in this process.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let sum = g.constant(1f32) + 2.0;
    /// assert_eq!(Session::new(&g)?.eval::<f32>(&sum)?, 3.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new(graph: &Graph) -> Result<Session> {
        Session::connect(graph, "")
    }

    /// Returns a session on the server at `grpc://host:port`; an empty target means this process.
    ///
    /// ```
    /// use ferroflow::distributed::create_local_server;
    /// use ferroflow::prelude::*;
    ///
    /// let server = create_local_server()?;
    /// let g = Graph::new();
    /// let sum = g.constant(1f32) + 2.0;
    /// let session = Session::connect(&g, &server.target())?;
    /// assert_eq!(session.eval::<f32>(&sum)?, 3.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn connect(graph: &Graph, target: &str) -> Result<Session> {
        Session::connect_with(graph, target, SessionConfig::default())
    }

    /// As [`connect`](Self::connect), with settings such as device filters, soft placement and graph optimization.
    ///
    /// ```
    /// use ferroflow::SessionConfig;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let session = Session::connect_with(&g, "", SessionConfig::new().allow_soft_placement(true))?;
    /// assert_eq!(session.eval::<f32>(&one)?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn connect_with(graph: &Graph, target: &str, config: impl Into<SessionConfig>) -> Result<Session> {
        graph.finish()?;
        let config = config.into();
        if target.is_empty() {
            return Ok(Session::with_backend(graph, Box::new(ClientSession::local(ops::registry(), config.into())?)));
        }
        Ok(Session::with_backend(graph, Box::new(ClientSession::connect(target, config)?)))
    }

    /// Returns a session on a master in this process, such as an embedded cluster's.
    ///
    /// ```
    /// use ferroflow::distributed::{ClusterSpec, start_embedded};
    /// use ferroflow::SessionConfig;
    /// use ferroflow::prelude::*;
    ///
    /// let cluster = start_embedded(&ClusterSpec::new().with_job("worker", &["a:1", "b:1"])?)?;
    /// let g = Graph::new();
    /// let there = g.device("/job:worker/task:1", |g| g.constant(2f32) * 3.0);
    /// let session = Session::on_master(&g, cluster.master("worker", 0)?, SessionConfig::new())?;
    /// assert_eq!(session.eval::<f32>(&there)?, 6.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn on_master(
        graph: &Graph,
        master: Arc<dyn cluster::MasterInterface>,
        config: impl Into<SessionConfig>,
    ) -> Result<Session> {
        graph.finish()?;
        Ok(Session::with_backend(graph, Box::new(ClientSession::new(master, config.into().into())?)))
    }

    /// Returns a session with a custom backend.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::{SessionConfig, ops, session::ClientSession};
    ///
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let session = Session::with_backend(&g, Box::new(ClientSession::local(ops::registry(), SessionConfig::new().into())?));
    /// assert_eq!(session.eval::<f32>(&one)?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn with_backend(graph: &Graph, backend: Box<dyn SessionBackend>) -> Session {
        Session { shared: Arc::new(Shared { backend, graph: graph.clone(), sent: Mutex::default() }) }
    }

    /// Returns the graph.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let session = Session::new(&Graph::new())?;
    /// let two = session.graph().constant(2f32);
    /// assert_eq!(session.eval::<f32>(&two)?, 2.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn graph(&self) -> &Graph {
        &self.shared.graph
    }

    /// Returns a number that is unique among the living sessions.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    /// Returns the values of outputs.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let x = g.constant([1f32, 2.0]);
    /// let values = Session::new(&g)?.run(&[&(&x * 2.0), &x.sum()])?;
    /// assert_eq!(values[0].to_vec::<f32>()?, [2.0, 4.0]);
    /// assert_eq!(values[1].to_scalar::<f32>()?, 3.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn run(&self, fetches: &[&Output]) -> Result<Vec<Tensor>> {
        let mut runner = self.runner();
        for fetch in fetches {
            runner = runner.fetch(fetch);
        }
        runner.run()
    }

    /// Runs operations for their side effects.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let count = Variable::new(&g, "count", &g.constant(0f32));
    /// let add = count.assign_add(&g.constant(1f32));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[count.initializer()])?;
    /// session.run_ops(&[&add])?;
    /// assert_eq!(session.eval::<f32>(count.value())?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn run_ops(&self, operations: &[&Operation]) -> Result<()> {
        let mut runner = self.runner();
        for operation in operations {
            runner = runner.target(operation);
        }
        runner.run().map(drop)
    }

    /// Returns the value of a scalar output.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let mean = g.constant([1f32, 2.0]).mean();
    /// assert_eq!(Session::new(&g)?.eval::<f32>(&mean)?, 1.5);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn eval<T: FromTensor>(&self, fetch: &Output) -> Result<T> {
        let values = self.run(&[fetch])?;
        let value = values.first().ok_or_else(|| Status::internal("no value"))?;
        let caller = Location::caller();
        T::from_tensor(value)
            .map_err(|status| at_line(status.context(format!("the value of {}", fetch.name())), caller))
    }

    /// Returns the value of a scalar output of type `int32` or `int64`, such as a step counter.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::variable::create_global_step;
    ///
    /// let g = Graph::new();
    /// let step = create_global_step(&g);
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[step.initializer()])?;
    /// assert_eq!(session.eval_index(step.value())?, 0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn eval_index(&self, fetch: &Output) -> Result<i64> {
        self.run(&[fetch])?.first().map_or_else(|| Err(Status::internal("no value")), Tensor::to_index)
    }

    /// Returns a builder of a run with feeds, fetches and targets.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let (x, y) = (g.placeholder::<f32>(()), g.placeholder::<f32>(()));
    /// let product = &x * &y;
    /// let session = Session::new(&g)?;
    /// let values = session.runner().feed(&x, 6f32).feed(&y, 7f32).fetch(&product).run()?;
    /// assert_eq!(values[0].to_scalar::<f32>()?, 42.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn runner(&self) -> Runner<'_> {
        Runner {
            session: self,
            options: RunOptions::default(),
            feeds: Vec::new(),
            fetches: Vec::new(),
            targets: Vec::new(),
            mistake: None,
        }
    }

    /// Prepares a run that is repeated many times; its feeds are passed by position.
    ///
    /// ```
    /// use ferroflow::{Graph, Session, Tensor};
    ///
    /// let g = Graph::new();
    /// let x = g.placeholder::<f32>(());
    /// let square = Session::new(&g)?.make_callable(&[&x], &[&(&x * &x)], &[])?;
    /// assert_eq!(square.call(&[Tensor::scalar(3f32)])?[0].to_scalar::<f32>()?, 9.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn make_callable(&self, feeds: &[&Output], fetches: &[&Output], targets: &[&Operation]) -> Result<Callable> {
        self.send_new_nodes()?;
        Ok(Callable {
            session: self.clone(),
            feeds: feeds.iter().map(|output| output.name()).collect(),
            fetches: fetches.iter().map(|output| output.name()).collect(),
            targets: targets.iter().map(|operation| operation.name()).collect(),
        })
    }

    /// Prepares a partial run, which is fed and fetched in parts, so that early results can determine later feeds.
    ///
    /// ```
    /// use ferroflow::{Graph, Session, Tensor};
    ///
    /// let g = Graph::new();
    /// let a = g.placeholder::<f32>(());
    /// let b = g.placeholder::<f32>(());
    /// let double = &a * 2.0;
    /// let sum = &double + &b;
    /// let session = Session::new(&g)?;
    /// let step = session.partial_run_setup(&[&a, &b], &[&double, &sum], &[])?;
    /// let doubled = step.run(&[(&a, Tensor::scalar(3f32))], &[&double])?;
    /// let total = step.run(&[(&b, doubled[0].clone())], &[&sum])?;
    /// assert_eq!(total[0].to_scalar::<f32>()?, 12.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn partial_run_setup(
        &self,
        feeds: &[&Output],
        fetches: &[&Output],
        targets: &[&Operation],
    ) -> Result<PartialRun> {
        self.send_new_nodes()?;
        let names = |outputs: &[&Output]| outputs.iter().map(|output| output.name()).collect::<Vec<_>>();
        let (feeds, fetches) = (names(feeds), names(fetches));
        let targets: Vec<String> = targets.iter().map(|operation| operation.name()).collect();
        let handle =
            self.shared.backend.partial_run_setup(&borrowed(&feeds), &borrowed(&fetches), &borrowed(&targets))?;
        Ok(PartialRun { session: self.clone(), handle })
    }

    /// Closes the session; pending runs fail.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let session = Session::new(&g)?;
    /// session.close()?;
    /// assert!(session.eval::<f32>(&one).is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn close(&self) -> Result<()> {
        self.shared.backend.close()
    }

    fn send_new_nodes(&self) -> Result<()> {
        self.shared.graph.finish()?;
        let mut sent = self.shared.sent.lock();
        if self.shared.graph.num_nodes() == sent.nodes {
            return Ok(());
        }
        let graph = self.shared.graph.graph();
        let mut def = GraphDef { versions: graph.versions.clone(), ..Default::default() };
        def.node =
            graph.iter().filter(|(id, _)| id.index() >= sent.nodes).map(|(_, node)| graph.to_node_def(node)).collect();
        if !Arc::ptr_eq(&graph.library, &sent.library) && !graph.library.is_empty() {
            let mut library = graph.library.to_proto();
            // Nodes that the backend has already aren't sent again.
            let name_of =
                |function: &proto::FunctionDef| function.signature.as_ref().map(|signature| signature.name.clone());
            library.function.retain(|function| name_of(function).is_none_or(|name| sent.library.get(&name).is_none()));
            def.library = Some(library);
        }
        self.shared.backend.extend(&def)?;
        *sent = Sent { nodes: graph.id_bound(), library: graph.library };
        Ok(())
    }
}

fn borrowed(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// A step that is fed and fetched in parts.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let (a, b) = (g.placeholder::<f32>(()), g.placeholder::<f32>(()));
/// let (double, sum) = (&a * 2.0, &a + &b);
/// let step = Session::new(&g)?.partial_run_setup(&[&a, &b], &[&double, &sum], &[])?;
/// let doubled = step.run(&[(&a, 3f32.into())], &[&double])?.remove(0);
/// assert_eq!(step.run(&[(&b, doubled)], &[&sum])?[0].to_scalar::<f32>()?, 9.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct PartialRun {
    session: Session,
    handle: String,
}

impl PartialRun {
    /// Feeds and fetches some of the prepared outputs; each of them only once.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let a = g.placeholder::<f32>(());
    /// let double = &a * 2.0;
    /// let step = Session::new(&g)?.partial_run_setup(&[&a], &[&double], &[])?;
    /// assert_eq!(step.run(&[(&a, 3f32.into())], &[&double])?[0].to_scalar::<f32>()?, 6.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn run(&self, feeds: &[(&Output, Tensor)], fetches: &[&Output]) -> Result<Vec<Tensor>> {
        let names: Vec<String> = feeds.iter().map(|(output, _)| output.name()).collect();
        let feeds: Vec<(&str, Tensor)> =
            names.iter().map(String::as_str).zip(feeds.iter().map(|(_, value)| value.clone())).collect();
        let fetches: Vec<String> = fetches.iter().map(|output| output.name()).collect();
        let result = self.session.shared.backend.partial_run(&self.handle, &feeds, &borrowed(&fetches));
        let caller = Location::caller();
        result.map_err(|status| with_lines(status, self.session.graph(), &[], caller))
    }
}

/// Builds a run.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 2));
/// let total = Variable::new(&g, "total", &g.constant(0f32));
/// let add = total.assign_add(&x.sum());
/// let session = Session::new(&g)?;
/// session.run_ops(&[total.initializer()])?;
/// session.runner().feed(&x, [[1f32, 2.0], [3.0, 4.0]]).target(&add).run()?;
/// assert_eq!(session.eval::<f32>(total.value())?, 10.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[must_use = "nothing happens until `run`"]
pub struct Runner<'a> {
    session: &'a Session,
    options: RunOptions,
    feeds: Vec<Feed>,
    fetches: Vec<String>,
    targets: Vec<String>,
    /// The first error in a feed, fetch or target.
    mistake: Option<Status>,
}

impl Runner<'_> {
    /// Feeds a value for an output, usually a placeholder: a number, a string, an array, a slice, a vector or a tensor.
    ///
    /// ```
    /// use ferroflow::{Graph, Session};
    ///
    /// let g = Graph::new();
    /// let x = g.placeholder::<f32>([2, 2]);
    /// let sums = Session::new(&g)?.runner().feed(&x, [[1f32, 2.0], [3.0, 4.0]]).fetch(&(&x + &x)).run()?;
    /// assert_eq!(sums[0].to_vec::<f32>()?, [2.0, 4.0, 6.0, 8.0]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn feed(mut self, output: &Output, value: impl IntoTensor) -> Self {
        self.check_graph(&output.op);
        match value.into_tensor() {
            Ok(value) => self.feeds.push(Feed { name: output.name(), value, caller: Location::caller() }),
            Err(status) => self.note(status.context(format!("the feed of {}", output.name()))),
        }
        self
    }

    #[track_caller]
    fn check_graph(&mut self, operation: &Operation) {
        if !operation.graph().same(self.session.graph()) {
            let what = format!("'{}' belongs to another graph than the session's", operation.name());
            self.note(Status::invalid_argument(what));
        }
    }

    #[track_caller]
    fn note(&mut self, status: Status) {
        let caller = Location::caller();
        self.mistake.get_or_insert_with(|| at_line(status, caller));
    }

    /// Fetches an output.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let x = g.constant([1f32, 2.0]);
    /// let values = Session::new(&g)?.runner().fetch(&x.sum()).fetch(&x.mean()).run()?;
    /// assert_eq!((f32::try_from(&values[0])?, f32::try_from(&values[1])?), (3.0, 1.5));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn fetch(mut self, output: &Output) -> Self {
        self.check_graph(&output.op);
        self.fetches.push(output.name());
        self
    }

    /// Runs an operation for its side effects.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(1f32));
    /// let session = Session::new(&g)?;
    /// session.runner().target(w.initializer()).run()?;
    /// assert_eq!(session.eval::<f32>(w.value())?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn target(mut self, operation: &Operation) -> Self {
        self.check_graph(operation);
        self.targets.push(operation.name());
        self
    }

    /// Feeds a value by name.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let _double = g.name_scope("model", |g| g.placeholder::<f32>(()) * 2.0);
    /// let session = Session::new(&g)?;
    /// let run = session.runner().feed_name("model/Placeholder:0", Tensor::scalar(3f32)).fetch_name("model/Mul:0");
    /// assert_eq!(run.run()?[0].to_scalar::<f32>()?, 6.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn feed_name(mut self, name: &str, value: Tensor) -> Self {
        self.feeds.push(Feed { name: name.to_owned(), value, caller: Location::caller() });
        self
    }

    /// Fetches an output by name, `node:port`.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let _answer = g.name_scope("model", |g| g.constant(42i32));
    /// let values = Session::new(&g)?.runner().fetch_name("model/Const:0").run()?;
    /// assert_eq!(values[0].to_scalar::<i32>()?, 42);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn fetch_name(mut self, name: &str) -> Self {
        self.fetches.push(name.to_owned());
        self
    }

    /// Runs an operation by name.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(1f32));
    /// let session = Session::new(&g)?;
    /// session.runner().target_name("w/Assign").run()?;
    /// assert_eq!(session.eval::<f32>(w.value())?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn target_name(mut self, name: &str) -> Self {
        self.targets.push(name.to_owned());
        self
    }

    /// Sets the options of the run.
    ///
    /// ```
    /// use ferroflow::RunOptions;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let options = RunOptions::new().full_trace(true);
    /// let (_, metadata) = Session::new(&g)?.runner().fetch(&one).options(options).run_with_metadata()?;
    /// assert!(metadata.is_some());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn options(mut self, options: RunOptions) -> Self {
        self.options = options;
        self
    }

    /// Runs, and returns the fetched values.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let x = g.placeholder::<i32>([3]);
    /// let values = Session::new(&g)?.runner().feed(&x, [1i32, 2, 3]).fetch(&(&x * &x)).run()?;
    /// assert_eq!(values[0].to_vec::<i32>()?, [1, 4, 9]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn run(self) -> Result<Vec<Tensor>> {
        Ok(self.run_with_metadata()?.0)
    }

    /// Runs, and returns the fetches as Rust values.
    ///
    /// ```
    /// use ferroflow::{Graph, Session, Tensor};
    ///
    /// let g = Graph::new();
    /// let x = g.constant_tensor(&Tensor::vector(&[1f32, 2.0]));
    /// let name = g.constant_tensor(&Tensor::string("x"));
    /// let session = Session::new(&g)?;
    /// let (values, name): (Vec<f32>, String) = session.runner().fetch(&(&x * 2.0)).fetch(&name).run_as()?;
    /// assert_eq!((values, name.as_str()), (vec![2.0, 4.0], "x"));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn run_as<T: FromTensors>(self) -> Result<T> {
        let caller = Location::caller();
        T::from_tensors(&self.run()?).map_err(|status| at_line(status, caller))
    }

    /// Runs, and returns the fetched values and the run's metadata.
    ///
    /// ```
    /// use ferroflow::RunOptions;
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let sum = g.constant(1f32) + 2.0;
    /// let options = RunOptions::new().full_trace(true);
    /// let (values, metadata) = Session::new(&g)?.runner().fetch(&sum).options(options).run_with_metadata()?;
    /// assert_eq!(values[0].to_scalar::<f32>()?, 3.0);
    /// assert!(!metadata.unwrap_or_default().node_runs().is_empty());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn run_with_metadata(self) -> Result<(Vec<Tensor>, Option<RunMetadata>)> {
        self.session.send_new_nodes()?;
        if let Some(status) = self.mistake {
            return Err(status);
        }
        let feeds: Vec<(&str, Tensor)> =
            self.feeds.iter().map(|feed| (feed.name.as_str(), feed.value.clone())).collect();
        let fetches: Vec<&str> = self.fetches.iter().map(String::as_str).collect();
        let targets: Vec<&str> = self.targets.iter().map(String::as_str).collect();
        let caller = Location::caller();
        match self.session.shared.backend.run(&self.options, &feeds, &fetches, &targets) {
            Ok((values, metadata)) => Ok((values, metadata.map(RunMetadata::from))),
            Err(status) => Err(with_lines(status, self.session.graph(), &self.feeds, caller)),
        }
    }
}

/// A prepared run.
///
/// ```
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>(());
/// let square = Session::new(&g)?.make_callable(&[&x], &[&x.square()], &[])?;
/// for n in [1f32, 2.0, 3.0] {
///     assert_eq!(square.call(&[n.into()])?[0].to_scalar::<f32>()?, n * n);
/// }
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct Callable {
    session: Session,
    feeds: Vec<String>,
    fetches: Vec<String>,
    targets: Vec<String>,
}

impl Callable {
    /// Runs with these feeds, in the order of their declaration.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let x = g.placeholder::<f32>(());
    /// let double = Session::new(&g)?.make_callable(&[&x], &[&(&x * 2.0)], &[])?;
    /// assert_eq!(double.call(&[4f32.into()])?[0].to_scalar::<f32>()?, 8.0);
    /// assert!(double.call(&[]).is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
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
        let caller = Location::caller();
        let result = self.session.shared.backend.run(&options, &feeds, &fetches, &targets);
        result.map(|(values, _)| values).map_err(|status| with_lines(status, self.session.graph(), &[], caller))
    }
}
