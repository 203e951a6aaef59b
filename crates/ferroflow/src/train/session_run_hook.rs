//! [`SessionRunHook`]: takes part in every run of a [`MonitoredSession`](super::MonitoredSession).

use super::Coordinator;
use crate::session::{RunMetadata, RunOptions, Session};
use graph::{Graph, Operation, Output};
use std::cell::Cell;
use tensor::{Result, Tensor};

/// The arguments of a run.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let mut session = MonitoredSession::training(&g).build()?;
/// let values = session.run(&RunArgs::new().target(&train).fetch(step.value()))?;
/// assert_eq!(values.len(), 1);
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RunArgs {
    pub(super) feeds: Vec<(String, Tensor)>,
    pub(super) fetches: Vec<String>,
    pub(super) targets: Vec<String>,
    pub(super) options: RunOptions,
}

impl RunArgs {
    /// Returns empty arguments.
    ///
    /// ```
    /// use ferroflow::{Graph, train::{MonitoredSession, RunArgs}};
    ///
    /// let mut session = MonitoredSession::training(&Graph::new()).build()?;
    /// // To run nothing is a mistake.
    /// assert!(session.run(&RunArgs::new()).is_err());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn new() -> RunArgs {
        RunArgs::default()
    }

    /// Feeds a value for an output.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::{MonitoredSession, RunArgs};
    ///
    /// let g = Graph::new();
    /// let x = g.placeholder::<f32>(());
    /// let double = &x * 2.0;
    /// let values = MonitoredSession::training(&g).build()?.run(&RunArgs::new().feed(&x, 3f32).fetch(&double))?;
    /// assert_eq!(values[0].to_scalar::<f32>()?, 6.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn feed(mut self, output: &Output, value: impl Into<Tensor>) -> Self {
        self.feeds.push((output.name(), value.into()));
        self
    }

    /// Fetches an output.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::{MonitoredSession, RunArgs};
    ///
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let values = MonitoredSession::training(&g).build()?.run(&RunArgs::new().fetch(&one))?;
    /// assert_eq!(values[0].to_scalar::<f32>()?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn fetch(mut self, output: &Output) -> Self {
        self.fetches.push(output.name());
        self
    }

    /// Runs an operation for its side effects.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let mut session = MonitoredSession::training(&g).build()?;
    /// session.run(&RunArgs::new().target(&train))?;
    /// assert_eq!(session.raw_session()?.eval::<i64>(step.value())?, 1);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn target(mut self, operation: &Operation) -> Self {
        self.targets.push(operation.name());
        self
    }

    /// Sets the options of the run; anything that one hook requests to be traced is traced for all.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::RunOptions;
    /// use ferroflow::train::{MonitoredSession, RunArgs};
    ///
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let args = RunArgs::new().fetch(&one).options(RunOptions::default());
    /// assert_eq!(MonitoredSession::training(&g).build()?.run(&args)?.len(), 1);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn options(mut self, options: RunOptions) -> Self {
        self.options = options;
        self
    }

    /// Runs with these arguments in a plain session.
    pub(super) fn run(&self, session: &Session) -> Result<(Vec<Tensor>, Option<RunMetadata>)> {
        let mut runner = session.runner().options(self.options.clone());
        for (name, value) in &self.feeds {
            runner = runner.feed_name(name, value.clone());
        }
        let runner = self.fetches.iter().fold(runner, |runner, name| runner.fetch_name(name));
        self.targets.iter().fold(runner, |runner, name| runner.target_name(name)).run_with_metadata()
    }
}

/// The current run, before or after it.
///
/// ```
/// use ferroflow::train::{RunArgs, RunContext, RunValues, SessionRunHook};
///
/// /// Stops after the first run.
/// struct Once;
///
/// impl SessionRunHook for Once {
///     fn after_run(&mut self, context: &RunContext<'_>, _values: &RunValues) -> ferroflow::Result<()> {
///         context.request_stop();
///         Ok(())
///     }
/// }
///
/// let g = ferroflow::Graph::new();
/// let one = g.constant(1f32);
/// let mut session = ferroflow::train::MonitoredSession::training(&g).hook(Once).build()?;
/// session.run(&RunArgs::new().fetch(&one))?;
/// assert!(session.should_stop());
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct RunContext<'a> {
    session: &'a Session,
    coordinator: &'a Coordinator,
    original: &'a RunArgs,
    stop: Cell<bool>,
}

impl<'a> RunContext<'a> {
    pub(super) fn new(session: &'a Session, coordinator: &'a Coordinator, original: &'a RunArgs) -> RunContext<'a> {
        RunContext { session, coordinator, original, stop: Cell::new(false) }
    }

    /// Returns the session.
    ///
    /// ```
    /// use ferroflow::train::{RunContext, RunValues};
    ///
    /// fn after_run(context: &RunContext<'_>, _values: &RunValues) -> ferroflow::Result<()> {
    ///     println!("the graph has {} nodes", context.session().graph().num_nodes());
    ///     Ok(())
    /// }
    /// ```
    pub fn session(&self) -> &Session {
        self.session
    }

    /// Returns the coordinator, which stops the threads.
    ///
    /// ```
    /// use ferroflow::train::{RunContext, RunValues};
    ///
    /// fn after_run(context: &RunContext<'_>, _values: &RunValues) -> ferroflow::Result<()> {
    ///     println!("the threads should stop: {}", context.coordinator().should_stop());
    ///     Ok(())
    /// }
    /// ```
    pub fn coordinator(&self) -> &Coordinator {
        self.coordinator
    }

    /// Returns the arguments of the program's run.
    ///
    /// ```
    /// use ferroflow::train::{RunArgs, RunContext};
    ///
    /// fn before_run(context: &RunContext<'_>) -> ferroflow::Result<RunArgs> {
    ///     println!("the program asks for {:?}", context.original_args());
    ///     Ok(RunArgs::new())
    /// }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn original_args(&self) -> &RunArgs {
        self.original
    }

    /// Requests that the loop end after this run.
    ///
    /// ```
    /// use ferroflow::train::{RunContext, RunValues};
    ///
    /// fn after_run(context: &RunContext<'_>, values: &RunValues) -> ferroflow::Result<()> {
    ///     if values.results[0].to_scalar::<f32>()? < 0.01 {
    ///         context.request_stop();
    ///     }
    ///     Ok(())
    /// }
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn request_stop(&self) {
        self.stop.set(true);
    }

    /// Returns whether a hook requested that the loop end.
    ///
    /// ```
    /// use ferroflow::train::{RunContext, RunValues};
    ///
    /// fn after_run(context: &RunContext<'_>, _values: &RunValues) -> ferroflow::Result<()> {
    ///     if context.stop_requested() {
    ///         println!("this was the last run");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn stop_requested(&self) -> bool {
        self.stop.get()
    }
}

/// A hook's results of a run.
///
/// ```
/// use ferroflow::train::{RunContext, RunValues};
///
/// fn after_run(_context: &RunContext<'_>, values: &RunValues) -> ferroflow::Result<()> {
///     println!("the loss is {}", values.results[0].to_scalar::<f32>()?);
///     Ok(())
/// }
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct RunValues {
    /// The values that the hook fetched.
    pub results: Vec<Tensor>,
    /// The run's metadata.
    pub metadata: Option<RunMetadata>,
}

/// Takes part in the life cycle of a monitored session. By default the methods do nothing.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
///
/// /// Ends training when the weight is small.
/// struct StopWhenSmall(Output);
///
/// impl SessionRunHook for StopWhenSmall {
///     fn before_run(&mut self, _context: &RunContext<'_>) -> ferroflow::Result<RunArgs> {
///         Ok(RunArgs::new().fetch(&self.0))
///     }
///
///     fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> ferroflow::Result<()> {
///         if values.results[0].to_scalar::<f32>()? < 1.0 {
///             context.request_stop();
///         }
///         Ok(())
///     }
/// }
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let mut session = MonitoredSession::training(&g).hook(StopWhenSmall(w.value().clone())).build()?;
/// while !session.should_stop() {
///     session.run(&RunArgs::new().target(&train))?;
/// }
/// assert!(session.raw_session()?.eval::<f32>(w.value())? < 1.0);
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub trait SessionRunHook: Send {
    /// Called once, while nodes can still be added to the graph.
    fn begin(&mut self, _graph: &Graph) -> Result<()> {
        Ok(())
    }

    /// Called after every session is created: at the start, and after every recovery.
    fn after_create_session(&mut self, _session: &Session, _coordinator: &Coordinator) -> Result<()> {
        Ok(())
    }

    /// Returns arguments to add to the program's run.
    fn before_run(&mut self, _context: &RunContext<'_>) -> Result<RunArgs> {
        Ok(RunArgs::new())
    }

    /// Called with the values that [`before_run`](Self::before_run) fetched, unless the run failed.
    fn after_run(&mut self, _context: &RunContext<'_>, _values: &RunValues) -> Result<()> {
        Ok(())
    }

    /// Called at the end, unless training failed.
    fn end(&mut self, _session: &Session) -> Result<()> {
        Ok(())
    }

    /// Returns whether the variables already have the values to go on with when a session is made again because a task was lost. Then
    /// they are neither restored nor initialized.
    fn keeps_variables(&self) -> bool {
        false
    }
}

impl<H: SessionRunHook + ?Sized> SessionRunHook for Box<H> {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        (**self).begin(graph)
    }

    fn after_create_session(&mut self, session: &Session, coordinator: &Coordinator) -> Result<()> {
        (**self).after_create_session(session, coordinator)
    }

    fn before_run(&mut self, context: &RunContext<'_>) -> Result<RunArgs> {
        (**self).before_run(context)
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        (**self).after_run(context, values)
    }

    fn keeps_variables(&self) -> bool {
        (**self).keeps_variables()
    }

    fn end(&mut self, session: &Session) -> Result<()> {
        (**self).end(session)
    }
}
