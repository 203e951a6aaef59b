//! [`Variable`]: state that training changes, with its initializer, as TensorFlow 1 builds it.

use crate::Graph;
use graph::{GraphBuilder, Operation, Output};
use tensor::{DType, PartialShape, Tensor};

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
}

/// A variable about to be added.
#[must_use = "the variable is added by `build`"]
pub struct VariableBuilder<'a> {
    graph: &'a GraphBuilder,
    name: String,
    trainable: bool,
    kind: Kind,
    collections: Option<Vec<&'static str>>,
    validate_shape: bool,
}

impl Variable {
    /// Starts a variable.
    pub fn builder<'a>(graph: &'a Graph, name: &str) -> VariableBuilder<'a> {
        Variable::in_graph(graph, name)
    }

    /// As [`builder`](Self::builder), for code that has the inner builder only.
    pub fn in_graph<'a>(graph: &'a GraphBuilder, name: &str) -> VariableBuilder<'a> {
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
        Variable::builder(graph, name).build(|_| initial_value.clone())
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

    /// Adds the variable; `initial_value` builds its first value in the variable's name scope.
    #[track_caller]
    pub fn build(self, initial_value: impl FnOnce(&GraphBuilder) -> Output) -> Variable {
        let graph = self.graph;
        let variable = graph.without_control_dependencies(|graph| {
            graph.name_scope(&self.name, |graph| {
                let scope = graph.current_name_scope();
                let initial_value = graph.name_scope("Initializer", |graph| initial_value(graph));
                self.finish(graph, &scope, initial_value)
            })
        });
        let default: &[&'static str] = if variable.trainable {
            &[collections::GLOBAL_VARIABLES, collections::TRAINABLE_VARIABLES]
        } else {
            &[collections::GLOBAL_VARIABLES]
        };
        for collection in self.collections.as_deref().unwrap_or(default) {
            graph.add_to_collection(collection, &variable.handle);
        }
        variable
    }

    #[track_caller]
    fn finish(&self, graph: &GraphBuilder, scope: &str, initial_value: Output) -> Variable {
        let dtype = initial_value.dtype();
        let shape = if self.validate_shape { initial_value.shape() } else { PartialShape::unknown() };
        // The variable's own node has the scope's name, as in TensorFlow.
        let whole_name = format!("{scope}/");
        let (handle, value, initializer) = match self.kind {
            Kind::Ref => {
                let handle =
                    graph.op("VariableV2").name(&whole_name).attr("dtype", dtype).attr("shape", shape.clone()).output();
                let (value, initializer) = graph.colocate_with(&handle.op, |graph| {
                    let initializer = graph
                        .op("Assign")
                        .input(&handle)
                        .input(&initial_value)
                        .attr("validate_shape", self.validate_shape)
                        .build();
                    (graph.op("Identity").name("read").input(&handle).output(), initializer)
                });
                (handle, value, initializer)
            }
            Kind::Resource => {
                let handle = graph
                    .op("VarHandleOp")
                    .name(&whole_name)
                    .attr("dtype", dtype)
                    .attr("shape", shape.clone())
                    .attr("shared_name", scope)
                    .output();
                let initializer =
                    graph.op("AssignVariableOp").name("Assign").input(&handle).input(&initial_value).build();
                let value =
                    graph.op("ReadVariableOp").name("Read/ReadVariableOp").input(&handle).attr("dtype", dtype).output();
                (handle, value, initializer)
            }
        };
        Variable { handle, value, initializer, initial_value, kind: self.kind, dtype, shape, trainable: self.trainable }
    }
}

/// Returns a `global_step` variable: an `int64` scalar that starts at 0 and isn't trained.
#[track_caller]
pub fn create_global_step(graph: &Graph) -> Variable {
    Variable::builder(graph, "global_step")
        .trainable(false)
        .collections(&[collections::GLOBAL_VARIABLES, collections::GLOBAL_STEP])
        .build(|graph| graph.constant_tensor(&Tensor::scalar(0i64)))
}
