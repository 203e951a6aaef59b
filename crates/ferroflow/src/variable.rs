//! [`Variable`]: state that training changes, with its initializer, as TensorFlow 1 builds it.

use graph::{Edge, Graph, NodeId, Operation, Output};
use parking_lot::Mutex;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The collections that variables are added to.
pub mod collections {
    /// All variables that are saved and shared.
    pub const GLOBAL_VARIABLES: &str = "variables";
    /// The variables that optimizers change.
    pub const TRAINABLE_VARIABLES: &str = "trainable_variables";
    /// Variables of one worker only.
    pub const LOCAL_VARIABLES: &str = "local_variables";
    /// The step counter.
    pub const GLOBAL_STEP: &str = "global_step";
    /// Variables of which a moving average is kept.
    pub const MOVING_AVERAGE_VARIABLES: &str = "moving_average_variables";
    /// The operations that train.
    pub const TRAIN_OP: &str = "train_op";
    /// Tensors with serialized summaries.
    pub const SUMMARIES: &str = "summaries";
    /// The operations that fill tables.
    pub const TABLE_INITIALIZERS: &str = "table_initializer";
}

/// How a variable is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Behind a ref edge (`VariableV2`), as TensorFlow 1 does by default.
    #[default]
    Ref,
    /// Behind a resource handle (`VarHandleOp`).
    Resource,
}

/// A variable in a graph.
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

/// Which part of a partitioned variable a variable is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveSlice {
    /// The name of the whole.
    pub full_name: String,
    /// The shape of the whole.
    pub full_shape: Shape,
    /// Where the part begins.
    pub offset: Vec<i64>,
    /// The shape of the part.
    pub shape: Shape,
}

impl SaveSlice {
    /// Returns the specification that the save and restore ops take, such as `10 20 0,5:0,20`.
    pub fn spec(&self) -> String {
        let dims: Vec<String> = self.full_shape.dims().iter().map(i64::to_string).collect();
        let parts: Vec<String> =
            self.offset.iter().zip(self.shape.dims()).map(|(offset, size)| format!("{offset},{size}")).collect();
        format!("{} {}", dims.join(" "), parts.join(":"))
    }
}

/// What is known of a graph's variables beyond their nodes. It holds no handle to the graph, which keeps it.
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

/// A variable about to be added.
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
    /// Keeps a mistake in the graph, and returns a variable that stands for the one that couldn't be added.
    #[track_caller]
    pub(crate) fn mistaken(graph: &Graph, kind: Kind, status: Status) -> Variable {
        let handle = graph.mistaken_output("Variable", status);
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

    /// Starts a variable.
    pub fn builder<'a>(graph: &'a Graph, name: &str) -> VariableBuilder<'a> {
        Variable::in_graph(graph, name)
    }

    /// As [`builder`](Self::builder), for code that has the inner builder only.
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

    /// Makes a trainable variable with an initial value.
    #[track_caller]
    pub fn new(graph: &Graph, name: &str, initial_value: &Output) -> Variable {
        Variable::builder(graph, name).build_from(initial_value)
    }

    /// Returns the variable that a collection holds the handle of.
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
    pub fn graph(&self) -> &Graph {
        self.handle.graph()
    }

    /// Returns the value at the place where the program is: for a resource variable a read of its own, as TensorFlow adds
    /// one wherever a variable is used.
    #[track_caller]
    pub fn read(&self) -> Output {
        match self.kind {
            Kind::Ref => self.value.clone(),
            Kind::Resource => self.graph().without_colocation(|graph| self.read_op(graph)),
        }
    }

    /// As [`read`](Self::read), placed as the scopes say.
    #[track_caller]
    pub(crate) fn read_op(&self, graph: &Graph) -> Output {
        graph.op("ReadVariableOp").input(&self.handle).attr("dtype", self.dtype).output()
    }

    /// Returns which part of a partitioned variable this is.
    pub fn save_slice(&self) -> Option<&SaveSlice> {
        self.slice.as_ref()
    }

    /// Says which part of a partitioned variable this is.
    pub fn set_save_slice(&mut self, slice: SaveSlice) {
        let known = self.graph().extension::<Known>();
        let edge = self.handle.edge();
        if let Some(record) = known.0.lock().iter_mut().find(|record| record.handle == edge) {
            record.slice = Some(slice.clone());
        }
        self.slice = Some(slice);
    }

    /// Returns the ref or the resource handle.
    pub fn handle(&self) -> &Output {
        &self.handle
    }

    /// Returns the value, read when it is needed.
    pub fn value(&self) -> &Output {
        &self.value
    }

    /// Returns the operation that sets the initial value.
    pub fn initializer(&self) -> &Operation {
        &self.initializer
    }

    /// Returns the initial value.
    pub fn initial_value(&self) -> &Output {
        &self.initial_value
    }

    /// Returns how the variable is kept.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the shape.
    pub fn shape(&self) -> &PartialShape {
        &self.shape
    }

    /// Returns whether optimizers change it.
    pub fn is_trainable(&self) -> bool {
        self.trainable
    }

    /// Returns the name of the variable's node.
    pub fn name(&self) -> String {
        self.handle.op.name()
    }

    /// Returns the operation that holds the variable.
    pub fn op(&self) -> &Operation {
        &self.handle.op
    }

    /// Adds an operation that sets the value.
    #[track_caller]
    pub fn assign(&self, value: &Output) -> Operation {
        self.update("Assign", "AssignVariableOp", value)
    }

    /// Adds an operation that adds to the value.
    #[track_caller]
    pub fn assign_add(&self, delta: &Output) -> Operation {
        self.update("AssignAdd", "AssignAddVariableOp", delta)
    }

    /// Adds an operation that subtracts from the value.
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
    /// Sets whether optimizers change the variable; they do unless told otherwise.
    pub fn trainable(mut self, trainable: bool) -> Self {
        self.trainable = trainable;
        self
    }

    /// Sets how the variable is kept.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the collections, instead of `variables` (and `trainable_variables`).
    pub fn collections(mut self, collections: &[&'static str]) -> Self {
        self.collections = Some(collections.to_vec());
        self
    }

    /// Sets whether later values must have the initial value's shape; they must unless told otherwise.
    pub fn validate_shape(mut self, validate_shape: bool) -> Self {
        self.validate_shape = validate_shape;
        self
    }

    /// Adds the variable; `initial_value` builds its first value in the variable's name scope, placed with it.
    #[track_caller]
    pub fn build(self, initial_value: impl FnOnce(&Graph) -> Output) -> Variable {
        let (graph, kind) = (self.graph, self.kind);
        added(graph, kind, self.add(|graph, scope| Ok(in_initializer(graph, scope, initial_value))))
    }

    /// As [`build`](Self::build), but adds no variable when `initial_value` fails.
    #[track_caller]
    pub fn try_build(self, initial_value: impl FnOnce(&Graph) -> Result<Output>) -> Result<Variable> {
        self.add(|graph, scope| in_initializer(graph, scope, initial_value))
    }

    /// Adds the variable with a first value that is in the graph already.
    #[track_caller]
    pub fn build_from(self, initial_value: &Output) -> Variable {
        let (graph, kind) = (self.graph, self.kind);
        added(graph, kind, self.add(|_, _| Ok(initial_value.clone())))
    }

    /// Adds the variable with a constant as its first value.
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
        // A variable made in a branch or a loop's body is there, and can be initialized, whatever is run of these.
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
        // A first value built for the variable is placed with it before there is a node to be placed with.
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

/// Adds a constant under a name.
#[track_caller]
pub(crate) fn named_constant(graph: &Graph, name: &str, value: &Tensor) -> Output {
    let constant = graph.op("Const").name(name).attr("dtype", value.dtype());
    match tensor::tensor_to_proto(value) {
        Ok(proto) => constant.attr("value", proto).output(),
        Err(status) => constant.mistaken(status).output(0),
    }
}

/// Returns the variables of a collection.
pub fn variables_in(graph: &Graph, collection: &str) -> Result<Vec<Variable>> {
    graph.collection(collection).iter().map(Variable::from_handle).collect()
}

/// Returns all variables that are saved and shared.
pub fn global_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::GLOBAL_VARIABLES)
}

/// Returns the variables that optimizers change.
pub fn trainable_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::TRAINABLE_VARIABLES)
}

/// Returns the variables of one worker only.
pub fn local_variables(graph: &Graph) -> Result<Vec<Variable>> {
    variables_in(graph, collections::LOCAL_VARIABLES)
}

/// Returns the `global_step` variable, when there is one.
pub fn get_global_step(graph: &Graph) -> Result<Option<Variable>> {
    if let Some(handle) = graph.collection(collections::GLOBAL_STEP).first() {
        return Variable::from_handle(handle).map(Some);
    }
    match graph.operation("global_step") {
        Some(op) => Variable::from_handle(&op.output(0)).map(Some),
        None => Ok(None),
    }
}

/// Returns a `global_step` variable: an `int64` scalar that starts at 0 and isn't trained.
#[track_caller]
pub fn create_global_step(graph: &Graph) -> Variable {
    Variable::builder(graph, "global_step")
        .trainable(false)
        .collections(&[collections::GLOBAL_VARIABLES, collections::GLOBAL_STEP])
        .build(|graph| named_constant(graph, "zeros", &Tensor::scalar(0i64)))
}
