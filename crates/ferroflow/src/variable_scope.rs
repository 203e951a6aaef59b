//! Variables by name: [`get_variable`] creates one or finds an existing one, and [`variable_scope`] prefixes their names.

use crate::initializers::{Initializer, glorot_uniform, zeros};
use crate::kept::kept_in;
use crate::losses::REGULARIZATION_LOSSES;
use crate::train::constraint::{Constraint, set_constraint};
use crate::variable::{Kind, SaveSlice, Variable};
use graph::{Edge, Graph, Output};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Shape, Status};

/// Computes a scalar loss from a variable's value.
///
/// ```
/// use ferroflow::layers::Dense;
/// use ferroflow::layers::regularizers::Regularizer;
/// use ferroflow::ops::math;
///
/// let own: Regularizer = std::sync::Arc::new(|w| math::reduce_max(&math::abs(w), None, false));
/// let layer = Dense::new(10).kernel_regularizer(own);
/// ```
pub type Regularizer = Arc<dyn Fn(&Output) -> Output + Send + Sync>;

/// Whether a scope creates variables or finds existing ones.
///
/// ```
/// use ferroflow::variable_scope::{Reuse, get_variable, variable_scope};
///
/// let g = ferroflow::Graph::new();
/// let get = |reuse| variable_scope(&g, "model", reuse, |g| get_variable(g, "w", &[2]).get());
/// let made = get(Reuse::New);
/// assert_eq!(get(Reuse::Auto).name(), made.name());
/// assert_eq!(get(Reuse::Existing).name(), made.name());
/// assert!(g.finish().is_ok());
/// // The name is taken.
/// get(Reuse::New);
/// assert!(g.finish().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// A name that exists already is an error.
    #[default]
    New,
    /// A name that doesn't exist is an error.
    Existing,
    /// Finds existing variables, and creates the others.
    Auto,
}

#[derive(Default)]
struct Store {
    scopes: Mutex<Vec<OpenScope>>,
    variables: Mutex<HashMap<String, Edge>>,
    /// The number of times that each scope was opened since its enclosing scope was.
    opened: Mutex<HashMap<String, usize>>,
}

/// An open scope.
#[derive(Clone, Default)]
pub(crate) struct OpenScope {
    name: String,
    reuse: Reuse,
    initializer: Option<Initializer>,
    regularizer: Option<Regularizer>,
}

/// Runs `body` in a variable scope and a name scope: `name/` is prefixed to the names of its variables.
///
/// ```
/// use ferroflow::variable_scope::{Reuse, get_variable, variable_scope};
/// use ferroflow::Graph;
///
/// let g = Graph::new();
/// let first = variable_scope(&g, "tower", Reuse::New, |g| get_variable(g, "w", &[2, 3]).get());
/// let again = variable_scope(&g, "tower", Reuse::Existing, |g| get_variable(g, "w", &[2, 3]).get());
/// assert_eq!((first.name(), again.name()), ("tower/w".into(), "tower/w".into()));
/// ```
pub fn variable_scope<R>(graph: &Graph, name: &str, reuse: Reuse, body: impl FnOnce(&Graph) -> R) -> R {
    VariableScope::new(name).reuse(reuse).run(graph, body)
}

/// A variable scope with options.
///
/// ```
/// use ferroflow::layers::{Dense, regularizers};
/// use ferroflow::variable::trainable_variables;
/// use ferroflow::variable_scope::VariableScope;
/// use ferroflow::{Graph, initializers};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 4));
/// let scope = VariableScope::new("model").initializer(initializers::constant(0.1)).regularizer(regularizers::l2(0.01));
/// scope.run(&g, |_| Dense::new(3).apply(&x));
/// assert_eq!(trainable_variables(&g)?[0].name(), "model/dense/kernel");
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[must_use = "the scope is opened by `run`"]
pub struct VariableScope {
    name: String,
    is_default: bool,
    reuse: Reuse,
    initializer: Option<Initializer>,
    regularizer: Option<Regularizer>,
}

impl VariableScope {
    /// Returns a scope of this name.
    ///
    /// ```
    /// use ferroflow::variable_scope::{VariableScope, get_variable};
    ///
    /// let g = ferroflow::Graph::new();
    /// let w = VariableScope::new("a").run(&g, |g| get_variable(g, "w", &[]).get());
    /// assert_eq!(w.name(), "a/w");
    /// ```
    pub fn new(name: &str) -> VariableScope {
        VariableScope {
            name: name.to_owned(),
            is_default: false,
            reuse: Reuse::New,
            initializer: None,
            regularizer: None,
        }
    }

    /// Returns a scope of this name, with a number appended if the enclosing scope already has one of this name.
    ///
    /// ```
    /// use ferroflow::variable_scope::{VariableScope, get_variable};
    ///
    /// let g = ferroflow::Graph::new();
    /// for name in ["block/w", "block_1/w"] {
    ///     let w = VariableScope::with_default_name("block").run(&g, |g| get_variable(g, "w", &[]).get());
    ///     assert_eq!(w.name(), name);
    /// }
    /// ```
    pub fn with_default_name(name: &str) -> VariableScope {
        VariableScope { is_default: true, ..VariableScope::new(name) }
    }

    /// Sets whether the scope creates or finds variables; by default as in the enclosing scope.
    ///
    /// ```
    /// use ferroflow::variable_scope::{Reuse, VariableScope, get_variable};
    ///
    /// let g = ferroflow::Graph::new();
    /// for _ in 0..2 {
    ///     VariableScope::new("a").reuse(Reuse::Auto).run(&g, |g| get_variable(g, "w", &[]).get());
    /// }
    /// ```
    pub fn reuse(mut self, reuse: Reuse) -> Self {
        self.reuse = reuse;
        self
    }

    /// Sets the default initializer of variables.
    ///
    /// ```
    /// use ferroflow::variable_scope::{VariableScope, get_variable};
    /// use ferroflow::{Graph, Session, initializers};
    ///
    /// let g = Graph::new();
    /// let scope = VariableScope::new("a").initializer(initializers::constant(0.5));
    /// let w = scope.run(&g, |g| get_variable(g, "w", &[]).get());
    /// assert_eq!(Session::new(&g)?.eval::<f32>(w.initial_value())?, 0.5);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn initializer(mut self, initializer: Initializer) -> Self {
        self.initializer = Some(initializer);
        self
    }

    /// Sets the default regularizer of variables.
    ///
    /// ```
    /// use ferroflow::layers::regularizers;
    /// use ferroflow::variable_scope::{VariableScope, get_variable};
    ///
    /// let g = ferroflow::Graph::new();
    /// let scope = VariableScope::new("a").regularizer(regularizers::l2(0.01));
    /// scope.run(&g, |g| get_variable(g, "w", &[3]).get());
    /// assert_eq!(ferroflow::losses::get_regularization_losses(&g).len(), 1);
    /// ```
    pub fn regularizer(mut self, regularizer: Regularizer) -> Self {
        self.regularizer = Some(regularizer);
        self
    }

    /// Runs `body` in the scope.
    ///
    /// ```
    /// use ferroflow::variable_scope::{VariableScope, get_variable};
    ///
    /// let g = ferroflow::Graph::new();
    /// VariableScope::new("a").run(&g, |g| get_variable(g, "w", &[3]).get());
    /// ```
    pub fn run<R>(self, graph: &Graph, body: impl FnOnce(&Graph) -> R) -> R {
        let store = graph.extension::<Store>();
        let outer = store.scopes.lock().last().cloned().unwrap_or_default();
        let name = if self.is_default { store.free_name(&outer.name, &self.name) } else { self.name };
        let full = joined(&outer.name, &name);
        *store.opened.lock().entry(full.clone()).or_insert(0) += 1;
        store.scopes.lock().push(OpenScope {
            name: full.clone(),
            reuse: if self.reuse == Reuse::New { outer.reuse } else { self.reuse },
            initializer: self.initializer.or(outer.initializer),
            regularizer: self.regularizer.or(outer.regularizer),
        });
        let result = graph.name_scope(&name, body);
        store.scopes.lock().pop();
        // The inner names are free again, as in TensorFlow: a program that reopens the scope gets the same ones.
        let inside = format!("{full}/");
        store.opened.lock().retain(|name, _| !name.starts_with(&inside));
        result
    }
}

impl OpenScope {
    /// Returns the innermost open scope.
    pub(crate) fn current(graph: &Graph) -> OpenScope {
        graph.extension::<Store>().scopes.lock().last().cloned().unwrap_or_default()
    }

    /// Returns the full name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reopens this scope for `body`, from any scope, without a name scope. It finds existing variables.
    pub(crate) fn again<R>(&self, graph: &Graph, body: impl FnOnce(&Graph) -> R) -> R {
        let store = graph.extension::<Store>();
        let opened = store.opened.lock().clone();
        store.scopes.lock().push(OpenScope { reuse: Reuse::Auto, ..self.clone() });
        let result = body(graph);
        store.scopes.lock().pop();
        *store.opened.lock() = opened;
        result
    }
}

impl Store {
    fn free_name(&self, outer: &str, name: &str) -> String {
        let opened = self.opened.lock();
        let is_free = |name: &String| opened.get(&joined(outer, name)).is_none_or(|&count| count == 0);
        let numbered = (1u32..).map(|number| format!("{name}_{number}"));
        std::iter::once(name.to_owned()).chain(numbered).find(is_free).unwrap_or_default()
    }
}

fn joined(outer: &str, name: &str) -> String {
    if outer.is_empty() { name.to_owned() } else { format!("{outer}/{name}") }
}

/// Builds or finds a variable.
///
/// ```
/// use ferroflow::variable_scope::get_variable;
/// use ferroflow::{Graph, initializers};
///
/// let g = Graph::new();
/// let bias = get_variable(&g, "bias", &[3]).initializer(initializers::zeros()).trainable(false).get();
/// assert_eq!((bias.name().as_str(), bias.is_trainable()), ("bias", false));
/// ```
#[must_use = "the variable is made by `get`"]
pub struct VariableRequest<'a> {
    graph: &'a Graph,
    name: String,
    /// Wrong dimensions are reported when the variable is built.
    shape: Result<Shape>,
    dtype: DType,
    initializer: Option<Initializer>,
    trainable: bool,
    kind: Kind,
    collections: Option<Vec<&'static str>>,
    regularizer: Option<Regularizer>,
    constraint: Option<Constraint>,
}

/// Returns a builder of the variable with a name in the current variable scope. By default it is `float` and trainable, with
/// Glorot's uniform initializer (zeros for other than floating types).
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::variable_scope::get_variable;
///
/// let g = Graph::new();
/// let w = get_variable(&g, "w", &[2, 3]).get();
/// assert_eq!((w.dtype(), w.shape()), (DType::Float, &PartialShape::from([2, 3])));
/// ```
pub fn get_variable<'a>(graph: &'a Graph, name: &str, dims: &[i64]) -> VariableRequest<'a> {
    VariableRequest {
        graph,
        name: name.to_owned(),
        shape: Shape::new(dims),
        dtype: DType::Float,
        initializer: None,
        trainable: true,
        kind: Kind::Ref,
        collections: None,
        regularizer: None,
        constraint: None,
    }
}

impl VariableRequest<'_> {
    /// Sets the type of the elements.
    ///
    /// ```
    /// use ferroflow::variable_scope::get_variable;
    /// use ferroflow::{DType, Graph, initializers};
    ///
    /// let g = Graph::new();
    /// let count = get_variable(&g, "count", &[]).dtype(DType::Int64).initializer(initializers::zeros()).get();
    /// assert_eq!(count.dtype(), DType::Int64);
    /// ```
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Sets the initializer.
    ///
    /// ```
    /// use ferroflow::variable_scope::get_variable;
    /// use ferroflow::{Graph, Session, initializers};
    ///
    /// let g = Graph::new();
    /// let w = get_variable(&g, "w", &[2]).initializer(initializers::constant(0.5)).get();
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[w.initializer()])?;
    /// assert_eq!(session.run(&[w.value()])?[0].to_vec::<f32>()?, [0.5, 0.5]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn initializer(mut self, initializer: Initializer) -> Self {
        self.initializer = Some(initializer);
        self
    }

    /// Sets whether optimizers change the variable.
    ///
    /// ```
    /// use ferroflow::variable_scope::get_variable;
    ///
    /// let g = ferroflow::Graph::new();
    /// assert!(!get_variable(&g, "w", &[2]).trainable(false).get().is_trainable());
    /// ```
    pub fn trainable(mut self, trainable: bool) -> Self {
        self.trainable = trainable;
        self
    }

    /// Sets how the variable is represented in the graph.
    ///
    /// ```
    /// use ferroflow::variable::Kind;
    /// use ferroflow::variable_scope::get_variable;
    ///
    /// let g = ferroflow::Graph::new();
    /// assert_eq!(get_variable(&g, "w", &[2]).kind(Kind::Resource).get().kind(), Kind::Resource);
    /// ```
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the collections.
    ///
    /// ```
    /// use ferroflow::variable::{collections, local_variables};
    /// use ferroflow::variable_scope::get_variable;
    ///
    /// let g = ferroflow::Graph::new();
    /// get_variable(&g, "seen", &[]).collections(&[collections::LOCAL_VARIABLES]).get();
    /// assert_eq!(local_variables(&g)?[0].name(), "seen");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn collections(mut self, collections: &[&'static str]) -> Self {
        self.collections = Some(collections.to_vec());
        self
    }

    /// Sets the regularizer, whose loss is added to the regularization losses when the variable is created.
    ///
    /// ```
    /// use ferroflow::layers::regularizers;
    /// use ferroflow::losses::get_regularization_losses;
    /// use ferroflow::variable_scope::get_variable;
    ///
    /// let g = ferroflow::Graph::new();
    /// get_variable(&g, "w", &[2]).regularizer(regularizers::l2(0.01)).get();
    /// assert_eq!(get_regularization_losses(&g).len(), 1);
    /// ```
    pub fn regularizer(mut self, regularizer: Regularizer) -> Self {
        self.regularizer = Some(regularizer);
        self
    }

    /// Sets a constraint, which is applied to the variable's value after each update by an optimizer.
    ///
    /// ```
    /// use ferroflow::layers::constraints;
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::{GradientDescentOptimizer, global_variables_initializer};
    /// use ferroflow::variable_scope::get_variable;
    ///
    /// let g = Graph::new();
    /// let w = get_variable(&g, "w", &[]).constraint(constraints::non_negative()).get();
    /// let train = GradientDescentOptimizer::new(100.0).minimize(w.value(), None)?;
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&global_variables_initializer(&g)])?;
    /// session.run_ops(&[&train])?;
    /// assert_eq!(session.eval::<f32>(w.value())?, 0.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn constraint(mut self, constraint: Constraint) -> Self {
        self.constraint = Some(constraint);
        self
    }

    /// Creates the variable, or finds it.
    ///
    /// ```
    /// use ferroflow::variable_scope::get_variable;
    ///
    /// let g = ferroflow::Graph::new();
    /// assert_eq!(get_variable(&g, "w", &[2]).get().name(), "w");
    /// ```
    #[track_caller]
    pub fn get(self) -> Variable {
        let (graph, what, kind) = (self.graph, self.what(), self.kind);
        kept_in(graph, &what, &[], || self.try_get(), |instead| Variable::standing_for(instead, kind))
    }

    /// As [`get`](Self::get), but returns an error, for layers that add to its message.
    pub(crate) fn try_get(mut self) -> Result<Variable> {
        let scope = OpenScope::current(self.graph);
        self.take_defaults(&scope);
        let full = joined(&scope.name, &self.name);
        self.get_as(&full, scope.reuse)
    }

    /// Describes the variable, for an error message.
    fn what(&self) -> String {
        format!("variable {}", self.name)
    }

    fn take_defaults(&mut self, scope: &OpenScope) {
        self.initializer = self.initializer.take().or_else(|| scope.initializer.clone());
        self.regularizer = self.regularizer.take().or_else(|| scope.regularizer.clone());
    }

    fn get_as(self, full: &str, reuse: Reuse) -> Result<Variable> {
        let shape = self.shape?;
        let store = self.graph.extension::<Store>();
        let found = store.variables.lock().get(full).copied();
        if let Some(edge) = found {
            if reuse == Reuse::New {
                return Err(Status::invalid_argument(format!(
                    "Variable {full} already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE \
                     in VarScope?"
                )));
            }
            let variable = Variable::from_handle(&self.graph.from_edge(edge))?;
            if variable.dtype() != self.dtype || *variable.shape() != PartialShape::from(&shape) {
                return Err(Status::invalid_argument(format!(
                    "Trying to share variable {full}, but specified shape {shape} and dtype {} and found shape {} and dtype {}.",
                    self.dtype,
                    variable.shape(),
                    variable.dtype()
                )));
            }
            return Ok(variable);
        }
        if reuse == Reuse::Existing {
            return Err(Status::invalid_argument(format!(
                "Variable {full} does not exist, or was not created with tf.get_variable(). Did you mean to set \
                 reuse=tf.AUTO_REUSE in VarScope?"
            )));
        }
        let default = || if self.dtype.is_floating() { glorot_uniform(None) } else { zeros() };
        let initializer = self.initializer.clone().unwrap_or_else(default);
        // Name scopes don't affect the names of variables.
        let variable = self.graph.in_name_scope("", |graph| {
            let mut builder = Variable::in_graph(graph, full).kind(self.kind).trainable(self.trainable);
            if let Some(collections) = &self.collections {
                builder = builder.collections(collections);
            }
            builder.try_build(|graph| initializer(graph, &shape, self.dtype))
        });
        let variable = variable.map_err(|status| status.context(format!("the first value of variable '{full}'")))?;
        store.variables.lock().insert(full.to_owned(), variable.handle().edge());
        if let Some(constraint) = self.constraint {
            set_constraint(&variable, constraint);
        }
        if let Some(regularizer) = &self.regularizer {
            regularize(&variable, regularizer);
        }
        Ok(variable)
    }

    /// Creates or finds the variable in parts along one axis, as `partitioner` decides.
    ///
    /// ```
    /// use ferroflow::variable_scope::{FixedSizePartitioner, get_variable};
    ///
    /// let g = ferroflow::Graph::new();
    /// let table = get_variable(&g, "table", &[5, 8]).get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 });
    /// let names: Vec<String> = table.parts().iter().map(|part| part.name()).collect();
    /// assert_eq!(names, ["table/part_0", "table/part_1"]);
    /// ```
    #[track_caller]
    pub fn get_partitioned(self, partitioner: &dyn Partitioner) -> PartitionedVariable {
        let (graph, what, kind, name) = (self.graph, self.what(), self.kind, self.name.clone());
        let instead = |instead: &Output| {
            let parts = vec![Variable::standing_for(instead, kind)];
            PartitionedVariable { parts, axis: 0, name }
        };
        kept_in(graph, &what, &[], || self.try_get_partitioned(partitioner), instead)
    }

    fn try_get_partitioned(mut self, partitioner: &dyn Partitioner) -> Result<PartitionedVariable> {
        let whole = self.shape.clone()?;
        let counts = partitioner.parts(&whole, self.dtype);
        if counts.len() != whole.rank() {
            let (count, rank) = (counts.len(), whole.rank());
            return Err(Status::invalid_argument(format!(
                "the partitioner returned {count} axes for {whole}, which has {rank}"
            )));
        }
        let mut cut: Vec<(usize, i64)> = counts.iter().copied().enumerate().filter(|(_, parts)| *parts > 1).collect();
        let (axis, parts) = match cut.len() {
            0 => (0, 1),
            1 => cut.remove(0),
            _ => return Err(Status::invalid_argument("a variable can be partitioned along one axis only")),
        };
        if whole.rank() == 0 || parts > whole.dim(axis) {
            return Err(Status::invalid_argument(format!("{whole} can't be split into {parts} parts")));
        }
        let scope = OpenScope::current(self.graph);
        self.take_defaults(&scope);
        let full = joined(&scope.name, &self.name);
        // If the size isn't divisible, the first parts are larger by one.
        let size = whole.dim(axis);
        let (each, extra) = (size / parts, size % parts);
        let mut made = Vec::new();
        let mut start = 0;
        for part in 0..parts {
            let length = each + i64::from(part < extra);
            let shape = whole.with_dim(axis, length)?;
            let request = VariableRequest {
                graph: self.graph,
                name: String::new(),
                shape: Ok(shape.clone()),
                dtype: self.dtype,
                initializer: self.initializer.clone(),
                trainable: self.trainable,
                kind: self.kind,
                collections: self.collections.clone(),
                regularizer: self.regularizer.clone(),
                constraint: self.constraint.clone(),
            };
            let mut variable = request.get_as(&format!("{full}/part_{part}"), scope.reuse)?;
            let mut offset = vec![0; whole.rank()];
            offset[axis] = start;
            variable.set_save_slice(SaveSlice { full_name: full.clone(), full_shape: whole.clone(), offset, shape });
            start += length;
            made.push(variable);
        }
        Ok(PartitionedVariable { parts: made, axis, name: full })
    }
}

/// Decides how a variable is partitioned.
///
/// ```
/// use ferroflow::variable_scope::{Partitioner, get_variable};
/// use ferroflow::{DType, Graph, Shape};
///
/// /// A part for each row.
/// struct Rows;
///
/// impl Partitioner for Rows {
///     fn parts(&self, shape: &Shape, _dtype: DType) -> Vec<i64> {
///         let mut parts = vec![1; shape.rank()];
///         parts[0] = shape.dim(0);
///         parts
///     }
/// }
///
/// let g = Graph::new();
/// assert_eq!(get_variable(&g, "table", &[3, 8]).get_partitioned(&Rows).parts().len(), 3);
/// ```
pub trait Partitioner {
    /// Returns the number of parts along each axis; only one axis may have more than one.
    fn parts(&self, shape: &Shape, dtype: DType) -> Vec<i64>;
}

/// Splits every variable into a fixed number of parts along one axis.
///
/// ```
/// use ferroflow::PartialShape;
/// use ferroflow::variable_scope::{FixedSizePartitioner, get_variable};
///
/// let g = ferroflow::Graph::new();
/// let table = get_variable(&g, "table", &[5, 8]).get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 });
/// assert_eq!(table.parts()[0].shape(), &PartialShape::from([3, 8]));
/// ```
pub struct FixedSizePartitioner {
    /// The number of parts.
    pub num_shards: i64,
    /// The axis.
    pub axis: usize,
}

impl Partitioner for FixedSizePartitioner {
    fn parts(&self, shape: &Shape, _dtype: DType) -> Vec<i64> {
        let mut parts = vec![1; shape.rank()];
        if let Some(count) = parts.get_mut(self.axis) {
            *count = self.num_shards.min(shape.dim(self.axis)).max(1);
        }
        parts
    }
}

/// Splits variables into parts of at most a number of bytes.
///
/// ```
/// use ferroflow::variable_scope::{VariableAxisSizePartitioner, get_variable};
///
/// let g = ferroflow::Graph::new();
/// let partitioner = VariableAxisSizePartitioner { max_shard_bytes: 64, axis: 0, max_shards: None };
/// // Two rows of eight floats are 64 bytes.
/// assert_eq!(get_variable(&g, "table", &[6, 8]).get_partitioned(&partitioner).parts().len(), 3);
/// ```
pub struct VariableAxisSizePartitioner {
    /// The largest size of a part in bytes.
    pub max_shard_bytes: i64,
    /// The axis.
    pub axis: usize,
    /// The most parts, if there is a limit.
    pub max_shards: Option<i64>,
}

impl Partitioner for VariableAxisSizePartitioner {
    fn parts(&self, shape: &Shape, dtype: DType) -> Vec<i64> {
        let mut parts = vec![1; shape.rank()];
        let Some(count) = parts.get_mut(self.axis) else { return parts };
        // A string counts as 16 bytes, as in TensorFlow.
        let element_bytes = if dtype == DType::String { 16 } else { dtype.size() as i64 };
        let rows = shape.dim(self.axis).max(1);
        let row_bytes = (shape.num_elements() as i64 / rows).saturating_mul(element_bytes).max(1);
        let rows_per_part = (self.max_shard_bytes / row_bytes).max(1);
        let wanted = (rows + rows_per_part - 1) / rows_per_part;
        *count = wanted.min(self.max_shards.unwrap_or(i64::MAX)).max(1);
        parts
    }
}

/// Splits variables into up to a number of parts, none smaller than a number of bytes.
///
/// ```
/// use ferroflow::variable_scope::{MinMaxVariablePartitioner, get_variable};
///
/// let g = ferroflow::Graph::new();
/// let partitioner = MinMaxVariablePartitioner { max_partitions: 4, axis: 0, min_slice_bytes: 96 };
/// assert_eq!(get_variable(&g, "table", &[6, 8]).get_partitioned(&partitioner).parts().len(), 2);
/// ```
pub struct MinMaxVariablePartitioner {
    /// The most parts.
    pub max_partitions: i64,
    /// The axis.
    pub axis: usize,
    /// The smallest size of a part in bytes.
    pub min_slice_bytes: i64,
}

impl Partitioner for MinMaxVariablePartitioner {
    fn parts(&self, shape: &Shape, dtype: DType) -> Vec<i64> {
        let mut parts = vec![1; shape.rank()];
        let Some(count) = parts.get_mut(self.axis) else { return parts };
        let element_bytes = if dtype == DType::String { 16 } else { dtype.size() as i64 };
        let bytes = (shape.num_elements() as i64).saturating_mul(element_bytes);
        let wanted = (bytes / self.min_slice_bytes.max(1)).max(1);
        *count = wanted.min(self.max_partitions).min(shape.dim(self.axis)).max(1);
        parts
    }
}

/// A partitioned variable.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::variable_scope::{FixedSizePartitioner, get_variable};
///
/// let g = Graph::new();
/// let table = get_variable(&g, "table", &[4, 2]).get_partitioned(&FixedSizePartitioner { num_shards: 4, axis: 0 });
/// assert_eq!((table.name(), table.parts().len()), ("table", 4));
/// assert_eq!(table.as_tensor().shape(), PartialShape::from([4, 2]));
/// ```
#[derive(Clone, Debug)]
pub struct PartitionedVariable {
    parts: Vec<Variable>,
    axis: usize,
    name: String,
}

impl PartitionedVariable {
    /// Returns the parts.
    ///
    /// ```
    /// use ferroflow::variable_scope::{FixedSizePartitioner, get_variable};
    ///
    /// let g = ferroflow::Graph::new();
    /// let table = get_variable(&g, "table", &[4]).get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 });
    /// assert_eq!(table.parts()[1].save_slice().unwrap().offset, [2]);
    /// ```
    pub fn parts(&self) -> &[Variable] {
        &self.parts
    }

    /// Returns the name of the whole variable.
    ///
    /// ```
    /// use ferroflow::variable_scope::{FixedSizePartitioner, get_variable};
    ///
    /// let g = ferroflow::Graph::new();
    /// let table = get_variable(&g, "table", &[4]).get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 });
    /// assert_eq!(table.name(), "table");
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds the value of the whole variable.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::train::global_variables_initializer;
    /// use ferroflow::variable_scope::{FixedSizePartitioner, get_variable};
    /// use ferroflow::initializers;
    ///
    /// let g = Graph::new();
    /// let request = get_variable(&g, "table", &[3]).initializer(initializers::ones());
    /// let whole = request.get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 }).as_tensor();
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&global_variables_initializer(&g)])?;
    /// assert_eq!(session.run(&[&whole])?[0].to_vec::<f32>()?, [1.0, 1.0, 1.0]);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn as_tensor(&self) -> graph::Output {
        let values: Vec<graph::Output> = self.parts.iter().map(Variable::read).collect();
        let [first, ..] = &values[..] else {
            let status = Status::invalid_argument(format!("variable '{}' has no parts", self.name));
            return graph::builder::mistaken_output("ConcatV2", status);
        };
        if values.len() == 1 {
            return first.clone();
        }
        let graph = first.graph();
        let axis = graph.constant_tensor(&tensor::Tensor::scalar(self.axis as i32));
        graph.op("ConcatV2").inputs(&values).input(&axis).attr("N", values.len() as i64).output()
    }
}

/// Adds a variable's regularization loss to the graph's.
fn regularize(variable: &Variable, regularizer: &Regularizer) {
    let graph = variable.graph();
    graph.outside_control_flow(|graph| {
        graph.colocate_with(variable.op(), |graph| {
            graph.in_name_scope(&format!("{}/Regularizer", variable.name()), |graph| {
                graph.add_to_collection(REGULARIZATION_LOSSES, &regularizer(&variable.read()));
            });
        });
    });
}
