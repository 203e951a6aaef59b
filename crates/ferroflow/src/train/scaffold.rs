//! [`Scaffold`]: the parts of a graph that a supervised session needs, made where the program hasn't given them.

use super::session_manager::{InitFn, Initialization};
use super::{Saver, global_variables_initializer, local_variables_initializer, report_uninitialized_variables};
use crate::session::Session;
use crate::summary;
use crate::variable::{collections, global_variables};
use graph::{Graph, Operation, Output};
use std::sync::Arc;
use tensor::{Result, Tensor};

/// The parts of a graph that a supervised session needs. Cloning shares the graph.
#[derive(Clone, Default)]
pub struct Scaffold {
    /// How variables get their first values; without an operation, by their initializers.
    pub init: Initialization,
    /// The vector of names of variables without values.
    pub ready_op: Option<Output>,
    /// What must be empty before the local initialization.
    pub ready_for_local_init_op: Option<Output>,
    /// What every task runs for itself.
    pub local_init_op: Option<Operation>,
    /// The summary.
    pub summary_op: Option<Output>,
    /// The saver.
    pub saver: Option<Arc<Saver>>,
}

impl Scaffold {
    /// Makes a scaffold in which everything is still to be made.
    pub fn new() -> Scaffold {
        Scaffold::default()
    }

    /// Sets the operation that gives variables their first values.
    pub fn init_op(mut self, op: &Operation) -> Self {
        self.init.op = Some(op.clone());
        self
    }

    /// Adds a value that is fed to the init operation.
    pub fn init_feed(mut self, output: &Output, value: impl Into<Tensor>) -> Self {
        self.init.feeds.push((output.clone(), value.into()));
        self
    }

    /// Sets a function that runs after the init operation, and only when there was no checkpoint.
    pub fn init_fn(mut self, function: impl Fn(&Session) -> Result<()> + Send + Sync + 'static) -> Self {
        let function: InitFn = Arc::new(function);
        self.init.function = Some(function);
        self
    }

    /// Sets the operation that every task runs for itself.
    pub fn local_init_op(mut self, op: &Operation) -> Self {
        self.local_init_op = Some(op.clone());
        self
    }

    /// Sets the summary.
    pub fn summary_op(mut self, op: &Output) -> Self {
        self.summary_op = Some(op.clone());
        self
    }

    /// Sets the saver.
    pub fn saver(mut self, saver: Arc<Saver>) -> Self {
        self.saver = Some(saver);
        self
    }

    /// Makes what is still missing.
    pub fn finalize(mut self, graph: &Graph) -> Result<Scaffold> {
        if self.init.op.is_none() {
            self.init.op = Some(global_variables_initializer(graph)?);
        }
        if self.ready_op.is_none() {
            self.ready_op = Some(report_uninitialized_variables(graph, None)?);
        }
        if self.ready_for_local_init_op.is_none() {
            let all = global_variables(graph)?;
            self.ready_for_local_init_op = Some(report_uninitialized_variables(graph, Some(&all))?);
        }
        if self.local_init_op.is_none() {
            self.local_init_op = Some(default_local_init(graph)?);
        }
        if self.summary_op.is_none() {
            self.summary_op = summary::merge_all(graph)?;
        }
        if self.saver.is_none() && !global_variables(graph)?.is_empty() {
            self.saver = Some(Arc::new(Saver::new(graph)?));
        }
        Ok(self)
    }
}

/// Adds the initialization of local variables and of tables.
pub(super) fn default_local_init(graph: &Graph) -> Result<Operation> {
    let locals = local_variables_initializer(graph)?;
    let tables = graph.collection(collections::TABLE_INITIALIZERS);
    if tables.is_empty() {
        return Ok(locals);
    }
    let mut all = vec![locals];
    all.extend(tables.into_iter().map(|table| table.op));
    super::expression::group(graph, &all, "group_deps")
}
