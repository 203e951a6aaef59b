//! [`Scaffold`]: the parts of a graph that a supervised session needs; those that the program doesn't set are created.

use super::session_manager::{InitFn, Initialization};
use super::{
    Saver, SaverOptions, global_variables_initializer, local_variables_initializer, report_uninitialized_variables,
};
use crate::session::Session;
use crate::summary;
use crate::variable::{collections, global_variables};
use graph::{Graph, Operation, Output};
use std::sync::Arc;
use tensor::{Result, Tensor};

/// The parts of a graph that a supervised session needs. Clones share the graph.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let set = w.assign(&g.constant(7f32));
/// let scaffold = Scaffold::new().init_fn(move |session| session.run_ops(&[&set]));
/// let mut session = MonitoredSession::training(&g).scaffold(scaffold).build()?;
/// assert_eq!(session.raw_session()?.eval::<f32>(w.value())?, 7.0);
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Default)]
pub struct Scaffold {
    /// How variables are initialized; by default by their initializers.
    pub init: Initialization,
    /// The vector of names of uninitialized variables.
    pub ready_op: Option<Output>,
    /// The vector that must be empty before the local initialization.
    pub ready_for_local_init_op: Option<Output>,
    /// The operation that every task runs for itself.
    pub local_init_op: Option<Operation>,
    /// The summary.
    pub summary_op: Option<Output>,
    /// The saver.
    pub saver: Option<Arc<Saver>>,
    /// Options of the saver that is created if there is none.
    pub saver_options: Option<SaverOptions>,
}

impl Scaffold {
    /// Returns a scaffold with no parts set.
    ///
    /// ```
    /// use ferroflow::train::Scaffold;
    ///
    /// assert!(Scaffold::new().saver.is_none());
    /// ```
    pub fn new() -> Scaffold {
        Scaffold::default()
    }

    /// Sets the operation that initializes variables.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let init = global_variables_initializer(&g);
    /// let scaffold = Scaffold::new().init_op(&init).finalize(&g)?;
    /// assert_eq!(scaffold.init.op.unwrap().name(), init.name());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn init_op(mut self, op: &Operation) -> Self {
        self.init.op = Some(op.clone());
        self
    }

    /// Adds a value that is fed to the init operation.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// let g = Graph::new();
    /// let first = g.placeholder::<f32>(());
    /// let w = Variable::builder(&g, "w").build_from(&first);
    /// let scaffold = Scaffold::new().init_feed(&first, 2.5f32);
    /// let mut session = MonitoredSession::training(&g).scaffold(scaffold).build()?;
    /// assert_eq!(session.raw_session()?.eval::<f32>(w.value())?, 2.5);
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn init_feed(mut self, output: &Output, value: impl Into<Tensor>) -> Self {
        self.init.feeds.push((output.clone(), value.into()));
        self
    }

    /// Sets a function that runs after the init operation, only if there was no checkpoint.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let load = w.assign(&g.constant(7f32));
    /// let scaffold = Scaffold::new().init_fn(move |session| session.run_ops(&[&load]));
    /// assert!(scaffold.init.function.is_some());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn init_fn(mut self, function: impl Fn(&Session) -> Result<()> + Send + Sync + 'static) -> Self {
        let function: InitFn = Arc::new(function);
        self.init.function = Some(function);
        self
    }

    /// Sets the operation that every task runs for itself.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let local = local_variables_initializer(&g);
    /// let scaffold = Scaffold::new().local_init_op(&local).finalize(&g)?;
    /// assert_eq!(scaffold.local_init_op.unwrap().name(), local.name());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn local_init_op(mut self, op: &Operation) -> Self {
        self.local_init_op = Some(op.clone());
        self
    }

    /// Sets the summary.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let weight = ferroflow::summary::scalar("weight", w.value());
    /// let scaffold = Scaffold::new().summary_op(&weight).finalize(&g)?;
    /// assert_eq!(scaffold.summary_op.unwrap().name(), weight.name());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn summary_op(mut self, op: &Output) -> Self {
        self.summary_op = Some(op.clone());
        self
    }

    /// Sets the saver.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let saver = Saver::with_options(&g, SaverOptions { max_to_keep: 2, ..SaverOptions::default() })?;
    /// let scaffold = Scaffold::new().saver(std::sync::Arc::new(saver)).finalize(&g)?;
    /// assert_eq!(scaffold.saver.unwrap().to_def().max_to_keep, 2);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn saver(mut self, saver: Arc<Saver>) -> Self {
        self.saver = Some(saver);
        self
    }

    /// Creates the missing parts.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// # let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
    /// let scaffold = Scaffold::new().finalize(&g)?;
    /// assert!(scaffold.init.op.is_some() && scaffold.ready_op.is_some() && scaffold.saver.is_some());
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn finalize(mut self, graph: &Graph) -> Result<Scaffold> {
        if self.init.op.is_none() {
            self.init.op = Some(global_variables_initializer(graph));
        }
        if self.ready_op.is_none() {
            self.ready_op = Some(report_uninitialized_variables(graph, None));
        }
        if self.ready_for_local_init_op.is_none() {
            let all = global_variables(graph)?;
            self.ready_for_local_init_op = Some(report_uninitialized_variables(graph, Some(&all)));
        }
        if self.local_init_op.is_none() {
            self.local_init_op = Some(default_local_init(graph)?);
        }
        if self.summary_op.is_none() {
            self.summary_op = summary::merge_all(graph);
        }
        if self.saver.is_none() && !global_variables(graph)?.is_empty() {
            let options = self.saver_options.clone().unwrap_or_default();
            self.saver = Some(Arc::new(Saver::with_options(graph, options)?));
        }
        graph.finish()?;
        Ok(self)
    }
}

/// Adds the initialization of local variables and of tables.
pub(crate) fn default_local_init(graph: &Graph) -> Result<Operation> {
    let locals = local_variables_initializer(graph);
    let tables = graph.collection(collections::TABLE_INITIALIZERS);
    if tables.is_empty() {
        return Ok(locals);
    }
    let mut all = vec![locals];
    all.extend(tables.into_iter().map(|table| table.op));
    super::expression::group(graph, &all, "group_deps")
}
