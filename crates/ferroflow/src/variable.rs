//! [`Variable`]: mutable state with an initializer, in the graph nodes that TensorFlow 1 uses.

use graph::{Edge, Graph, NodeId, Operation, Output};
use parking_lot::Mutex;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The collections that variables are added to.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::variable::collections;
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant(1f32));
/// assert_eq!(g.collection(collections::TRAINABLE_VARIABLES)[0].name(), w.handle().name());
/// ```
pub mod collections {
    /// All variables that are saved and shared among workers.
    ///
    /// ```
    /// assert_eq!(ferroflow::variable::collections::GLOBAL_VARIABLES, "variables");
    /// ```
    pub const GLOBAL_VARIABLES: &str = "variables";
    /// The variables that optimizers change.
    ///
    /// ```
    /// assert_eq!(ferroflow::variable::collections::TRAINABLE_VARIABLES, "trainable_variables");
    /// ```
    pub const TRAINABLE_VARIABLES: &str = "trainable_variables";
    /// Variables that each worker has for itself.
    ///
    /// ```
    /// assert_eq!(ferroflow::variable::collections::LOCAL_VARIABLES, "local_variables");
    /// ```
    pub const LOCAL_VARIABLES: &str = "local_variables";
    /// The step counter.
    ///
    /// ```
    /// assert_eq!(ferroflow::variable::collections::GLOBAL_STEP, "global_step");
    /// ```
    pub const GLOBAL_STEP: &str = "global_step";
    /// Variables that have a moving average.
    ///
    /// ```
    /// assert_eq!(ferroflow::variable::collections::MOVING_AVERAGE_VARIABLES, "moving_average_variables");
    /// ```
    pub const MOVING_AVERAGE_VARIABLES: &str = "moving_average_variables";
    /// The train operations.
    ///
    /// ```
    /// assert_eq!(ferroflow::variable::collections::TRAIN_OP, "train_op");
    /// ```
    pub const TRAIN_OP: &str = "train_op";
    /// Tensors with serialized summaries.
    ///
    /// ```
    /// assert_eq!(ferroflow::variable::collections::SUMMARIES, "summaries");
    /// ```
    pub const SUMMARIES: &str = "summaries";
    /// The operations that initialize tables.
    ///
    /// ```
    /// assert_eq!(ferroflow::variable::collections::TABLE_INITIALIZERS, "table_initializer");
    /// ```
    pub const TABLE_INITIALIZERS: &str = "table_initializer";
    /// The paths of files that a model needs wherever it runs, such as vocabularies.
    ///
    /// ```
    /// assert_eq!(ferroflow::variable::collections::ASSET_FILEPATHS, "asset_filepaths");
    /// ```
    pub const ASSET_FILEPATHS: &str = "asset_filepaths";
}

/// How a variable is represented in the graph.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::variable::Kind;
///
/// let g = Graph::new();
/// let w = Variable::builder(&g, "w").kind(Kind::Resource).build_constant(&Tensor::scalar(1f32));
/// assert_eq!((w.kind(), w.op().op_type().as_str()), (Kind::Resource, "VarHandleOp"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// By reference (`VariableV2`), TensorFlow 1's default.
    #[default]
    Ref,
    /// By resource handle (`VarHandleOp`).
    Resource,
}

/// A variable in a graph.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::global_variables_initializer;
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant([1f32, 2.0]));
/// let double = w.assign(&(w.value() * 2.0));
/// let session = Session::new(&g)?;
/// session.run_ops(&[&global_variables_initializer(&g)])?;
/// session.run_ops(&[&double])?;
/// assert_eq!(session.run(&[w.value()])?[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct Variable {
    handle: Output,
    value: Output,
    initializer: Operation,
    initial_value: Output,
    kind: Kind,
    dtype: DType,
    shape: PartialShape,
    trainable: bool,
    slice: Option<SaveSlice>,
}

/// The position of a part within its partitioned variable.
///
/// ```
/// use ferroflow::variable_scope::{FixedSizePartitioner, get_variable};
///
/// let g = ferroflow::Graph::new();
/// let table = get_variable(&g, "table", &[4, 8]).get_partitioned(&FixedSizePartitioner { num_shards: 2, axis: 0 });
/// let slice = table.parts()[1].save_slice().unwrap();
/// assert_eq!((slice.full_name.as_str(), slice.offset.as_slice()), ("table", &[2, 0][..]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveSlice {
    /// The name of the whole.
    pub full_name: String,
    /// The shape of the whole variable.
    pub full_shape: Shape,
    /// The offset of the part.
    pub offset: Vec<i64>,
    /// The shape of the part.
    pub shape: Shape,
}

impl SaveSlice {
    /// Returns the specification for the save and restore ops, such as `10 20 0,5:0,20`.
    ///
    /// ```
    /// use ferroflow::Shape;
    /// use ferroflow::variable::SaveSlice;
    ///
    /// let slice = SaveSlice {
    ///     full_name: "table".to_owned(),
    ///     full_shape: Shape::new(&[10, 20])?,
    ///     offset: vec![5, 0],
    ///     shape: Shape::new(&[5, 20])?,
    /// };
    /// assert_eq!(slice.spec(), "10 20 5,5:0,20");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn spec(&self) -> String {
        let dims: Vec<String> = self.full_shape.dims().iter().map(i64::to_string).collect();
        let parts: Vec<String> =
            self.offset.iter().zip(self.shape.dims()).map(|(offset, size)| format!("{offset},{size}")).collect();
        format!("{} {}", dims.join(" "), parts.join(":"))
    }
}

/// Information about a graph's variables that their nodes don't hold. It has no handle to the graph, which owns it.
#[derive(Default)]
struct Known(Mutex<Vec<Record>>);

struct Record {
    handle: Edge,
    value: Edge,
    initializer: NodeId,
    initial_value: Edge,
    trainable: bool,
    slice: Option<SaveSlice>,
}

/// Builds a variable.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::variable::{VariableBuilder, trainable_variables};
///
/// let g = Graph::new();
/// let builder: VariableBuilder<'_> = Variable::builder(&g, "mean").trainable(false);
/// let mean = builder.build_constant(&Tensor::scalar(0f32));
/// assert_eq!(mean.name(), "mean");
/// assert!(trainable_variables(&g)?.is_empty());
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[must_use = "the variable is added by `build`"]
pub struct VariableBuilder<'a> {
    graph: &'a Graph,
    name: String,
    trainable: bool,
    kind: Kind,
    collections: Option<Vec<&'static str>>,
    validate_shape: bool,
}

impl Variable {
    /// Keeps a mistake in the graph, and returns an inert variable in place of the one that couldn't be added.
    #[track_caller]
    pub(crate) fn mistaken(graph: &Graph, kind: Kind, status: Status) -> Variable {
        Variable::standing_for(&graph.mistaken_output("Variable", status), kind)
    }

    /// Returns a variable made of an inert output.
    pub(crate) fn standing_for(mistaken: &Output, kind: Kind) -> Variable {
        let handle = mistaken.clone();
        Variable {
            value: handle.clone(),
            initializer: handle.op.clone(),
            initial_value: handle.clone(),
            kind,
            dtype: handle.dtype(),
            shape: PartialShape::unknown(),
            trainable: false,
            slice: None,
            handle,
        }
    }

    /// Returns a builder of a variable.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::builder(&g, "w").build_constant(&Tensor::vector(&[1f32, 2.0]));
    /// assert_eq!(w.shape(), &PartialShape::from([2]));
    /// ```
    pub fn builder<'a>(graph: &'a Graph, name: &str) -> VariableBuilder<'a> {
        Variable::in_graph(graph, name)
    }

    /// As [`builder`](Self::builder), for code that has only the inner builder.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::in_graph(&g, "w").build_constant(&Tensor::scalar(1f32));
    /// assert_eq!(w.name(), "w");
    /// ```
    pub fn in_graph<'a>(graph: &'a Graph, name: &str) -> VariableBuilder<'a> {
        VariableBuilder {
            graph,
            name: name.to_owned(),
            trainable: true,
            kind: Kind::Ref,
            collections: None,
            validate_shape: true,
        }
    }

    /// Adds a trainable variable with an initial value.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(3f32));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[w.initializer()])?;
    /// assert_eq!(session.eval::<f32>(w.value())?, 3.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn new(graph: &Graph, name: &str, initial_value: &Output) -> Variable {
        Variable::builder(graph, name).build_from(initial_value)
    }

    /// Returns the variable whose handle is in a collection.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::variable::collections;
    ///
    /// let g = Graph::new();
    /// Variable::new(&g, "w", &g.constant(3f32));
    /// let handle = g.collection(collections::GLOBAL_VARIABLES).remove(0);
    /// assert_eq!(Variable::from_handle(&handle)?.name(), "w");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn from_handle(handle: &Output) -> Result<Variable> {
        let graph = handle.graph();
        graph.finish()?;
        let edge = handle.edge();
        let known = graph.extension::<Known>();
        let records = known.0.lock();
        if let Some(record) = records.iter().find(|record| record.handle == edge) {
            let value = graph.from_edge(record.value);
            let initializer = graph.operation_by_id(record.initializer);
            let initial_value = graph.from_edge(record.initial_value);
            let (trainable, slice) = (record.trainable, record.slice.clone());
            drop(records);
            return Variable::assemble(handle.clone(), value, initializer, initial_value, trainable, slice);
        }
        drop(records);
        // A variable of an imported graph: its nodes have TensorFlow's names.
        let name = handle.op.name();
        let find = |suffix: &str| {
            let found = graph.operation(&format!("{name}/{suffix}"));
            found.ok_or_else(|| Status::not_found(format!("variable '{name}' has no node '{name}/{suffix}'")))
        };
        let read = if handle.is_ref() { "read" } else { "Read/ReadVariableOp" };
        let (value, initializer) = (find(read)?.output(0), find("Assign")?);
        let initial_value = initializer.input(1);
        let trainable = graph.collection(collections::TRAINABLE_VARIABLES).iter().any(|other| other.edge() == edge);
        Variable::assemble(handle.clone(), value, initializer, initial_value, trainable, None)
    }

    fn assemble(
        handle: Output,
        value: Output,
        initializer: Operation,
        initial_value: Output,
        trainable: bool,
        slice: Option<SaveSlice>,
    ) -> Result<Variable> {
        let kind = if handle.is_ref() { Kind::Ref } else { Kind::Resource };
        let attrs = handle.op.attrs();
        let (dtype, shape) = (attrs.dtype("dtype")?, attrs.shape("shape")?);
        Ok(Variable { handle, value, initializer, initial_value, kind, dtype, shape, trainable, slice })
    }

    /// Returns the graph.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(3f32));
    /// assert!(w.graph().same(&g));
    /// ```
    pub fn graph(&self) -> &Graph {
        self.handle.graph()
    }

    /// Returns the value at this point of the program: for a resource variable a new read op, as TensorFlow adds one wherever a
    /// variable is used.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::variable::Kind;
    ///
    /// let g = Graph::new();
    /// let w = Variable::builder(&g, "w").kind(Kind::Resource).build_constant(&Tensor::scalar(1f32));
    /// let add = w.assign_add(&g.constant(1f32));
    /// // Read after the addition, whatever else the step does.
    /// let after = g.control_dependencies(&[add], |_| w.read());
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[w.initializer()])?;
    /// assert_eq!(session.eval::<f32>(&after)?, 2.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn read(&self) -> Output {
        match self.kind {
            Kind::Ref => self.value.clone(),
            Kind::Resource => self.graph().without_colocation(|graph| self.read_op(graph)),
        }
    }

    /// As [`read`](Self::read), placed by the current device scopes.
    #[track_caller]
    pub(crate) fn read_op(&self, graph: &Graph) -> Output {
        graph.op("ReadVariableOp").input(&self.handle).attr("dtype", self.dtype).output()
    }

    /// Returns the variable's position within a partitioned variable, if it is a part of one.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// // A variable that is not partitioned is a part of nothing.
    /// assert_eq!(Variable::new(&g, "w", &g.constant(1f32)).save_slice(), None);
    /// ```
    pub fn save_slice(&self) -> Option<&SaveSlice> {
        self.slice.as_ref()
    }

    /// Sets the variable's position within a partitioned variable.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::variable::SaveSlice;
    ///
    /// let g = Graph::new();
    /// let mut part = Variable::new(&g, "table/part_1", &g.constant([1f32, 2.0]));
    /// let (full_shape, shape) = (Shape::new(&[4])?, Shape::new(&[2])?);
    /// part.set_save_slice(SaveSlice { full_name: "table".to_owned(), full_shape, offset: vec![2], shape });
    /// assert_eq!(part.save_slice().unwrap().spec(), "4 2,2");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn set_save_slice(&mut self, slice: SaveSlice) {
        let known = self.graph().extension::<Known>();
        let edge = self.handle.edge();
        if let Some(record) = known.0.lock().iter_mut().find(|record| record.handle == edge) {
            record.slice = Some(slice.clone());
        }
        self.slice = Some(slice);
    }

    /// Returns the ref or the resource handle.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(3f32));
    /// assert!(w.handle().is_ref());
    /// ```
    pub fn handle(&self) -> &Output {
        &self.handle
    }

    /// Returns the value; the read op is added when it is needed.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant([3f32, 4.0]));
    /// let norm = w.value().square().sum().sqrt();
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[w.initializer()])?;
    /// assert_eq!(session.eval::<f32>(&norm)?, 5.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn value(&self) -> &Output {
        &self.value
    }

    /// Returns the initializer, the operation that sets the initial value.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::Code;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(3f32));
    /// let session = Session::new(&g)?;
    /// assert_eq!(session.eval::<f32>(w.value()).unwrap_err().code(), Code::FailedPrecondition);
    /// session.run_ops(&[w.initializer()])?;
    /// assert_eq!(session.eval::<f32>(w.value())?, 3.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn initializer(&self) -> &Operation {
        &self.initializer
    }

    /// Returns the initial value.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let first = Variable::new(&g, "first", &g.constant(3f32));
    /// // The same first value, without waiting for the first variable.
    /// let second = Variable::new(&g, "second", first.initial_value());
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[second.initializer()])?;
    /// assert_eq!(session.eval::<f32>(second.value())?, 3.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn initial_value(&self) -> &Output {
        &self.initial_value
    }

    /// Returns how the variable is represented in the graph.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::variable::Kind;
    ///
    /// let g = Graph::new();
    /// assert_eq!(Variable::new(&g, "w", &g.constant(1f32)).kind(), Kind::Ref);
    /// ```
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the type of the elements.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// assert_eq!(Variable::new(&g, "w", &g.constant(1i64)).dtype(), DType::Int64);
    /// ```
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the shape.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// assert_eq!(Variable::new(&g, "w", &g.constant([[1f32, 2.0]])).shape(), &PartialShape::from([1, 2]));
    /// ```
    pub fn shape(&self) -> &PartialShape {
        &self.shape
    }

    /// Returns whether optimizers change it.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::variable::create_global_step;
    ///
    /// let g = Graph::new();
    /// assert!(Variable::new(&g, "w", &g.constant(1f32)).is_trainable());
    /// assert!(!create_global_step(&g).is_trainable());
    /// ```
    pub fn is_trainable(&self) -> bool {
        self.trainable
    }

    /// Returns the name of the variable's node.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = g.name_scope("layer", |g| Variable::new(g, "w", &g.constant(1f32)));
    /// assert_eq!(w.name(), "layer/w");
    /// ```
    pub fn name(&self) -> String {
        self.handle.op.name()
    }

    /// Returns the operation that holds the variable.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(1f32));
    /// let beside = g.colocate_with(w.op(), |g| g.constant(2f32));
    /// assert_eq!(beside.op.attrs().colocation(), ["w"]);
    /// ```
    pub fn op(&self) -> &Operation {
        &self.handle.op
    }

    /// Adds an operation that sets the value.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(1f32));
    /// let set = w.assign(&g.constant(5f32));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[&set])?;
    /// assert_eq!(session.eval::<f32>(w.value())?, 5.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn assign(&self, value: &Output) -> Operation {
        self.update("Assign", "AssignVariableOp", value)
    }

    /// Adds an operation that adds to the value.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let count = Variable::new(&g, "count", &g.constant(0i64));
    /// let add = count.assign_add(&g.constant(2i64));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[count.initializer()])?;
    /// session.run_ops(&[&add])?;
    /// assert_eq!(session.eval::<i64>(count.value())?, 2);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn assign_add(&self, delta: &Output) -> Operation {
        self.update("AssignAdd", "AssignAddVariableOp", delta)
    }

    /// Adds an operation that subtracts from the value.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::new(&g, "w", &g.constant(5f32));
    /// let step = w.assign_sub(&g.constant(2f32));
    /// let session = Session::new(&g)?;
    /// session.run_ops(&[w.initializer()])?;
    /// session.run_ops(&[&step])?;
    /// assert_eq!(session.eval::<f32>(w.value())?, 3.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    #[track_caller]
    pub fn assign_sub(&self, delta: &Output) -> Operation {
        self.update("AssignSub", "AssignSubVariableOp", delta)
    }

    #[track_caller]
    fn update(&self, ref_op: &str, resource_op: &str, value: &Output) -> Operation {
        let op = if self.kind == Kind::Ref { ref_op } else { resource_op };
        self.handle.graph().op(op).input(&self.handle).input(value).build()
    }
}

impl VariableBuilder<'_> {
    /// Sets whether optimizers change the variable; by default they do.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let mean = Variable::builder(&g, "mean").trainable(false).build_constant(&Tensor::scalar(0f32));
    /// assert!(!mean.is_trainable());
    /// ```
    pub fn trainable(mut self, trainable: bool) -> Self {
        self.trainable = trainable;
        self
    }

    /// Sets how the variable is represented in the graph.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::variable::Kind;
    ///
    /// let g = Graph::new();
    /// let w = Variable::builder(&g, "w").kind(Kind::Resource).build_constant(&Tensor::scalar(0f32));
    /// assert_eq!(w.handle().dtype(), DType::Resource);
    /// ```
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the collections, in place of `variables` (and `trainable_variables`).
    ///
    /// ```
    /// use ferroflow::prelude::*;
    /// use ferroflow::variable::{collections, global_variables, local_variables};
    ///
    /// let g = Graph::new();
    /// Variable::builder(&g, "seen").collections(&[collections::LOCAL_VARIABLES]).build_constant(&Tensor::scalar(0f32));
    /// assert_eq!((global_variables(&g)?.len(), local_variables(&g)?.len()), (0, 1));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn collections(mut self, collections: &[&'static str]) -> Self {
        self.collections = Some(collections.to_vec());
        self
    }

    /// Sets whether assigned values must have the initial value's shape; by default they must.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let seen = Variable::builder(&g, "seen").validate_shape(false).build_constant(&Tensor::vector(&[0f32]));
    /// assert_eq!(seen.shape().rank(), None);
    /// ```
    pub fn validate_shape(mut self, validate_shape: bool) -> Self {
        self.validate_shape = validate_shape;
        self
    }

    /// Adds the variable; `initial_value` builds its initial value in the variable's name scope, on the variable's device.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::builder(&g, "w").build(|g| g.constant([0.5f32; 4]) * 2.0);
    /// assert!(w.initial_value().op.name().starts_with("w/Initializer/"));
    /// ```
    #[track_caller]
    pub fn build(self, initial_value: impl FnOnce(&Graph) -> Output) -> Variable {
        let (graph, kind) = (self.graph, self.kind);
        added(graph, kind, self.add(|graph, scope| Ok(in_initializer(graph, scope, initial_value))))
    }

    /// As [`build`](Self::build), but adds no variable if `initial_value` fails.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let missing = Variable::builder(&g, "w").try_build(|_| Err(Status::not_found("no file")));
    /// assert_eq!(missing.unwrap_err().message(), "no file");
    /// assert!(g.operation("w").is_none());
    /// ```
    #[track_caller]
    pub fn try_build(self, initial_value: impl FnOnce(&Graph) -> Result<Output>) -> Result<Variable> {
        self.add(|graph, scope| in_initializer(graph, scope, initial_value))
    }

    /// Adds the variable with an initial value that is already in the graph.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::builder(&g, "w").build_from(&g.constant(1f32));
    /// assert_eq!(w.initial_value().name(), "Const:0");
    /// ```
    #[track_caller]
    pub fn build_from(self, initial_value: &Output) -> Variable {
        let (graph, kind) = (self.graph, self.kind);
        added(graph, kind, self.add(|_, _| Ok(initial_value.clone())))
    }

    /// Adds the variable with a constant as its initial value.
    ///
    /// ```
    /// use ferroflow::prelude::*;
    ///
    /// let g = Graph::new();
    /// let w = Variable::builder(&g, "w").build_constant(&Tensor::scalar(1f32));
    /// assert_eq!(w.initial_value().name(), "w/initial_value:0");
    /// ```
    #[track_caller]
    pub fn build_constant(self, value: &Tensor) -> Variable {
        let (graph, kind) = (self.graph, self.kind);
        let constant = |graph: &Graph| named_constant(graph, "initial_value", value);
        let built = self.add(|graph, scope| match kind {
            Kind::Ref => Ok(constant(graph)),
            Kind::Resource => Ok(in_initializer(graph, scope, constant)),
        });
        added(graph, kind, built)
    }

    #[track_caller]
    fn add(self, initial_value: impl FnOnce(&Graph, &str) -> Result<Output>) -> Result<Variable> {
        let graph = self.graph;
        // A variable that is created in a branch or a loop's body exists, and can be initialized, even if the branch or body
        // never runs.
        let variable = graph.outside_control_flow(|graph| {
            graph.name_scope(&self.name, |graph| {
                let scope = graph.current_name_scope();
                let initial_value = initial_value(graph, &scope)?;
                Ok::<_, Status>(self.finish(graph, &scope, initial_value))
            })
        })?;
        let default: &[&'static str] = if variable.trainable {
            &[collections::GLOBAL_VARIABLES, collections::TRAINABLE_VARIABLES]
        } else {
            &[collections::GLOBAL_VARIABLES]
        };
        graph.extension::<Known>().0.lock().push(Record {
            handle: variable.handle.edge(),
            value: variable.value.edge(),
            initializer: variable.initializer.id(),
            initial_value: variable.initial_value.edge(),
            trainable: variable.trainable,
            slice: None,
        });
        for collection in self.collections.as_deref().unwrap_or(default) {
            graph.add_to_collection(collection, &variable.handle);
        }
        Ok(variable)
    }

    #[track_caller]
    fn finish(&self, graph: &Graph, scope: &str, initial_value: Output) -> Variable {
        let dtype = initial_value.dtype();
        let shape = if self.validate_shape { initial_value.shape() } else { PartialShape::unknown() };
        // The variable's own node has the scope's name, as in TensorFlow.
        let whole_name = format!("{scope}/");
        // The initial value must be on the variable's device, but the variable's node doesn't exist yet.
        let built_here = initial_value.op.name().starts_with(&format!("{whole_name}Initializer/"));
        let in_class = |graph: &Graph, build: &dyn Fn(&Graph) -> Output| {
            if built_here || self.kind == Kind::Resource {
                graph.with_attr("_class", class_of(scope), |graph| build(graph))
            } else {
                build(graph)
            }
        };
        let (handle, value, initializer) = match self.kind {
            Kind::Ref => {
                let handle = in_class(graph, &|graph| {
                    let op = graph.op("VariableV2").name(&whole_name).attr("dtype", dtype);
                    op.attr("shape", shape.clone()).output()
                });
                let initializer = graph
                    .op("Assign")
                    .input(&handle)
                    .input(&initial_value)
                    .attr("validate_shape", self.validate_shape)
                    .build();
                let value =
                    graph.colocate_with(&handle.op, |graph| graph.op("Identity").name("read").input(&handle).output());
                (handle, value, initializer)
            }
            Kind::Resource => {
                let handle = in_class(graph, &|graph| {
                    let op = graph.op("VarHandleOp").name(&whole_name).attr("dtype", dtype);
                    op.attr("shape", shape.clone()).attr("shared_name", scope).attr("debug_name", &*whole_name).output()
                });
                graph.name_scope("IsInitialized", |graph| graph.op("VarIsInitializedOp").input(&handle).build());
                let device = handle.op.device();
                let initializer = graph.without_colocation(|graph| {
                    graph.device(&device, |graph| {
                        graph.op("AssignVariableOp").name("Assign").input(&handle).input(&initial_value).build()
                    })
                });
                let value = graph.name_scope("Read", |graph| {
                    graph.device(&device, |graph| {
                        graph.op("ReadVariableOp").input(&handle).attr("dtype", dtype).output()
                    })
                });
                (handle, value, initializer)
            }
        };
        Variable {
            handle,
            value,
            initializer,
            initial_value,
            kind: self.kind,
            dtype,
            shape,
            trainable: self.trainable,
            slice: None,
        }
    }
}

#[track_caller]
fn added(graph: &Graph, kind: Kind, variable: Result<Variable>) -> Variable {
    match variable {
        Ok(variable) => variable,
        Err(status) => Variable::mistaken(graph, kind, status),
    }
}

fn class_of(name: &str) -> proto::attr_value::ListValue {
    proto::attr_value::ListValue { s: vec![format!("loc:@{name}").into()], ..Default::default() }
}

fn in_initializer<R>(graph: &Graph, scope: &str, build: impl FnOnce(&Graph) -> R) -> R {
    graph.with_attr("_class", class_of(scope), |graph| {
        graph.name_scope("Initializer", |graph| graph.without_device(build))
    })
}

/// Adds a constant with a name.
#[track_caller]
pub(crate) fn named_constant(graph: &Graph, name: &str, value: &Tensor) -> Output {
    let constant = graph.op("Const").name(name).attr("dtype", value.dtype());
    match tensor::tensor_to_proto(value) {
        Ok(proto) => constant.attr("value", proto).output(),
        Err(status) => constant.mistaken(status).output(0),
    }
}

/// Returns the variables of a collection.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::variable::{collections, variables_in};
///
/// let g = Graph::new();
/// let w = Variable::new(&g, "w", &g.constant(1f32));
/// g.add_to_collection(collections::MOVING_AVERAGE_VARIABLES, w.handle());
/// assert_eq!(variables_in(&g, collections::MOVING_AVERAGE_VARIABLES)?[0].name(), "w");
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn variables_in(graph: &Graph, collection: &str) -> Result<Vec<Variable>> {
    graph.collection(collection).iter().map(Variable::from_handle).collect()
}

/// Returns all variables that are saved and shared among workers.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::variable::{create_global_step, global_variables};
///
/// let g = Graph::new();
/// Variable::new(&g, "w", &g.constant(1f32));
/// create_global_step(&g);
/// let names: Vec<String> = global_variables(&g)?.iter().map(Variable::name).collect();
/// assert_eq!(names, ["w", "global_step"]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn global_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::GLOBAL_VARIABLES)
}

/// Returns the variables that optimizers change.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::variable::{create_global_step, trainable_variables};
///
/// let g = Graph::new();
/// Variable::new(&g, "w", &g.constant(1f32));
/// create_global_step(&g);
/// let names: Vec<String> = trainable_variables(&g)?.iter().map(Variable::name).collect();
/// assert_eq!(names, ["w"]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn trainable_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::TRAINABLE_VARIABLES)
}

/// Returns the variables that each worker has for itself.
///
/// ```
/// use ferroflow::metrics;
/// use ferroflow::prelude::*;
/// use ferroflow::variable::local_variables;
///
/// let g = Graph::new();
/// assert!(local_variables(&g)?.is_empty());
/// metrics::mean(&g.constant([1f32, 2.0])).build();
/// assert_eq!(local_variables(&g)?.len(), 2);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn local_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::LOCAL_VARIABLES)
}

/// Returns the `global_step` variable, if there is one.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::variable::{create_global_step, get_global_step};
///
/// let g = Graph::new();
/// assert!(get_global_step(&g)?.is_none());
/// create_global_step(&g);
/// assert_eq!(get_global_step(&g)?.map(|step| step.name()), Some("global_step".to_owned()));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn get_global_step(graph: &Graph) -> Result<Option<Variable>> {
    if let Some(handle) = graph.collection(collections::GLOBAL_STEP).first() {
        return Variable::from_handle(handle).map(Some);
    }
    match graph.operation("global_step") {
        Some(op) => Variable::from_handle(&op.output(0)).map(Some),
        None => Ok(None),
    }
}

/// Adds a `global_step` variable: an `int64` scalar that starts at 0 and isn't trained.
///
/// ```
/// use ferroflow::prelude::*;
/// use ferroflow::train::{GradientDescentOptimizer, global_variables_initializer};
/// use ferroflow::variable::create_global_step;
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(1f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let session = Session::new(&g)?;
/// session.run_ops(&[&global_variables_initializer(&g)])?;
/// session.run_ops(&[&train])?;
/// assert_eq!(session.eval::<i64>(step.value())?, 1);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn create_global_step(graph: &Graph) -> Variable {
    Variable::builder(graph, "global_step")
        .trainable(false)
        .collections(&[collections::GLOBAL_VARIABLES, collections::GLOBAL_STEP])
        .build(|graph| named_constant(graph, "zeros", &Tensor::scalar(0i64)))
}
