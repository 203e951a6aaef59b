//! The graph builder: [`Graph`] holds a growing graph with its scopes, [`OpBuilder`] adds one node, and
//! [`Output`] and [`Operation`] are handles to what was added.
//!
//! A mistake in a program, such as incompatible shapes, is detected in the call that makes it, and kept in the graph with the
//! caller's line: see [`Graph::finish`]. [`OpBuilder::try_build`] returns the error instead.

mod contexts;
mod control_flow;
mod control_flow_gradient;
mod function_gradient;
mod gradient;
mod gradients;
mod mistake;
mod op_builder;
mod operators;
mod recall;
mod scope;

pub use control_flow::LoopOptions;
pub use function_gradient::SYMBOLIC_GRADIENT;
pub use gradient::{Grad, Gradient, GradientArgs, GradientFn, IndexedSlices};
pub use mistake::mistaken_output;
pub use op_builder::OpBuilder;
pub use operators::{IntoOperand, scalar_tensor};
pub use scope::Collection;

use crate::attr::{AttrMap, IntoAttr};
use crate::op_def::TypeSlot;
use crate::shape::InferredShapes;
use crate::{Edge, Node, NodeGraph, NodeId, OpLookup};
use parking_lot::Mutex;
use prost::Message;
use proto::GraphDef;
use scope::Scopes;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use tensor::{DType, DTypeAndShape, Element, IntoTensor, PartialShape, Result, Shape, Status, Tensor};

/// A graph under construction. Cloning shares it.
#[derive(Clone)]
pub struct Graph {
    shared: Arc<Shared>,
}

struct Shared {
    ops: &'static dyn OpLookup,
    state: Mutex<State>,
    extensions: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

struct State {
    graph: NodeGraph,
    /// The inferred shapes of outputs.
    inferred: InferredShapes,
    scopes: Scopes,
    contexts: contexts::Contexts,
    mistakes: mistake::Mistakes,
}

/// A node of a graph under construction.
#[derive(Clone)]
pub struct Operation {
    graph: Graph,
    id: NodeId,
}

/// An output of a node, which programs use as a tensor.
#[derive(Clone)]
pub struct Output {
    /// The node.
    pub op: Operation,
    /// The index among the node's outputs.
    pub port: u32,
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new()
    }
}

impl Graph {
    /// Returns an empty graph that knows the ops of every [`Library`](crate::Library) in the program.
    pub fn new() -> Graph {
        Graph::with_ops(crate::library::all_ops())
    }

    /// Returns an empty graph that knows these ops.
    pub fn with_ops(ops: &'static dyn OpLookup) -> Graph {
        let state = State {
            graph: NodeGraph::default(),
            inferred: InferredShapes::default(),
            scopes: Scopes::default(),
            contexts: Default::default(),
            mistakes: Default::default(),
        };
        Graph { shared: Arc::new(Shared { ops, state: Mutex::new(state), extensions: Mutex::default() }) }
    }

    /// Continues to build a graph, whose nodes must be in topological order.
    pub(crate) fn on(graph: NodeGraph, ops: &'static dyn OpLookup) -> Result<Graph> {
        let builder = Graph::with_ops(ops);
        {
            let mut state = builder.shared.state.lock();
            let State { inferred, scopes, .. } = &mut *state;
            for (_, node) in graph.iter() {
                scopes.reserve_name(&node.name);
            }
            // Shapes that cannot be inferred stay unknown; the values decide whether the body runs or fails.
            inferred.extend(&graph, ops, 0)?;
            state.graph = graph;
        }
        Ok(builder)
    }

    /// Returns a builder for a node of the given op.
    pub fn op(&self, op: &str) -> OpBuilder {
        OpBuilder {
            graph: self.clone(),
            op: op.to_owned(),
            name: None,
            inputs: Vec::new(),
            controls: Vec::new(),
            attrs: AttrMap::default(),
            device: None,
            inherits_controls: true,
            in_context: true,
            likely_types: Vec::new(),
        }
    }

    /// Returns the ops that this graph knows.
    pub fn ops(&self) -> &'static dyn OpLookup {
        self.shared.ops
    }

    /// Returns the value that a library attaches to the graph, such as its variable scopes; the first call creates it. It must not
    /// hold the graph itself, which would then never be freed.
    pub fn extension<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut extensions = self.shared.extensions.lock();
        let extension = extensions.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default())).clone();
        drop(extensions);
        extension.downcast().unwrap_or_default()
    }

    /// Returns whether the graph's library has a function of this name.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.shared.state.lock().graph.library.get(name).is_some()
    }

    /// Returns a copy of the graph.
    pub fn graph(&self) -> NodeGraph {
        self.shared.state.lock().graph.clone()
    }

    /// Returns the graph as a GraphDef.
    pub fn to_graph_def(&self) -> GraphDef {
        self.shared.state.lock().graph.to_graph_def()
    }

    /// Returns the number of nodes so far.
    pub fn num_nodes(&self) -> usize {
        self.shared.state.lock().graph.id_bound()
    }

    /// Returns the operation with this name, if there is one.
    pub fn operation(&self, name: &str) -> Option<Operation> {
        let id = self.shared.state.lock().graph.find(name)?;
        Some(Operation { graph: self.clone(), id })
    }

    /// Returns the operation with this id.
    pub fn operation_by_id(&self, id: NodeId) -> Operation {
        Operation { graph: self.clone(), id }
    }

    /// Returns the output that `name:port` names.
    pub fn output(&self, name: &str) -> Result<Output> {
        let (node, port) = crate::import::parse_tensor_name(name)?;
        let op = self.operation(node).ok_or_else(|| Status::not_found(format!("no node is named '{node}'")))?;
        op.try_output(port)
    }

    /// Adds a GraphDef's nodes under their own names; the current name scope is not applied.
    pub fn import(&self, def: &GraphDef) -> Result<()> {
        let mut state = self.shared.state.lock();
        let start = state.graph.id_bound();
        crate::import_graph_def(&mut state.graph, def, self.shared.ops)?;
        let State { graph, inferred, scopes, .. } = &mut *state;
        let errors = inferred.extend(graph, self.shared.ops, start as u32)?;
        let added: Vec<NodeId> = graph.ids().filter(|id| id.index() >= start).collect();
        if let Some((id, status)) = errors.into_iter().next() {
            let status = status.append(format!("; node '{}'", graph.node(id).name));
            added.into_iter().for_each(|id| graph.remove(id));
            return Err(status);
        }
        for id in added {
            scopes.reserve_name(&graph.node(id).name);
        }
        Ok(())
    }

    /// As [`import`](Self::import), for the content of a file that holds a serialized GraphDef, such as a frozen graph.
    ///
    /// ```
    /// # use graph::Graph;
    /// let g = Graph::new();
    /// g.placeholder::<f32>([2]);
    /// let copy = Graph::new();
    /// copy.import_bytes(&g.to_bytes())?;
    /// assert_eq!(copy.num_nodes(), g.num_nodes());
    /// # Ok::<(), tensor::Status>(())
    /// ```
    pub fn import_bytes(&self, content: &[u8]) -> Result<()> {
        let def = GraphDef::decode(content);
        self.import(&def.map_err(|error| Status::invalid_argument(format!("not a GraphDef: {error}")))?)
    }

    /// Returns the graph as a serialized GraphDef, TensorFlow's file format for graphs.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_graph_def().encode_to_vec()
    }

    /// Returns a placeholder of type `T`, which every run must feed. `-1` and `None` are unknown sizes.
    ///
    /// ```
    /// # use graph::Graph;
    /// # let g = Graph::new();
    /// let images = g.placeholder::<f32>((None, 784));
    /// let labels = g.placeholder::<i64>([-1]);
    /// ```
    #[track_caller]
    pub fn placeholder<T: Element>(&self, shape: impl Into<PartialShape>) -> Output {
        self.op("Placeholder").attr("dtype", T::DTYPE).attr("shape", shape.into()).output()
    }

    /// Returns a constant with the value of `tensor`.
    #[track_caller]
    pub fn constant_tensor(&self, tensor: &Tensor) -> Output {
        let constant = self.op("Const").attr("dtype", tensor.dtype());
        match tensor::tensor_to_proto(tensor) {
            Ok(proto) => constant.attr("value", proto).output(),
            Err(status) => constant.mistaken(status).output(0),
        }
    }

    /// Returns a constant: a number, a string, an array, a slice, a vector, a [`Tensor`], or what
    /// [`Tensor::from_slice`] returns.
    #[track_caller]
    pub fn constant(&self, value: impl IntoTensor) -> Output {
        match value.into_tensor() {
            Ok(tensor) => self.constant_tensor(&tensor),
            Err(status) => self.op("Const").mistaken(status).output(0),
        }
    }

    /// Returns whether both handles are of the same graph.
    pub fn same(&self, other: &Graph) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl State {
    fn shape(&self, edge: Edge) -> PartialShape {
        self.inferred.shape(edge)
    }
}

impl Operation {
    /// Returns the graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the node's id in its graph.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Returns the node's name.
    pub fn name(&self) -> String {
        self.with(|node| node.name.clone())
    }

    /// Returns the op's name.
    pub fn op_type(&self) -> String {
        self.with(|node| node.op().to_owned())
    }

    /// Returns the device that the node requests.
    pub fn device(&self) -> String {
        self.with(|node| node.device.clone())
    }

    /// Returns the attributes.
    pub fn attrs(&self) -> AttrMap {
        self.with(|node| node.attrs.clone())
    }

    /// Sets an attribute. It must not change the node's types.
    pub fn set_attr(&self, name: &str, value: impl IntoAttr) {
        if !self.is_mistaken() {
            self.graph.shared.state.lock().graph.node_mut(self.id).attrs.set(name, value);
        }
    }

    /// Returns the number of inputs.
    pub fn num_inputs(&self) -> usize {
        self.with(|node| node.inputs.len())
    }

    /// Returns the number of outputs.
    pub fn num_outputs(&self) -> usize {
        self.with(|node| node.output_types.len())
    }

    /// Returns the output that input `index` is connected to. An index out of range is a mistake.
    #[track_caller]
    pub fn input(&self, index: usize) -> Output {
        match self.with(|node| node.inputs.get(index).copied()) {
            Some(edge) => self.graph.from_edge(edge),
            None => {
                let status = Status::invalid_argument(format!("'{}' has no input {index}", self.name()));
                self.graph.op(&self.op_type()).mistaken(status).output(0)
            }
        }
    }

    /// Returns the outputs that the inputs are connected to.
    pub fn inputs(&self) -> Vec<Output> {
        let edges = self.with(|node| node.inputs.clone());
        edges.into_iter().map(|edge| self.graph.from_edge(edge)).collect()
    }

    /// Returns the nodes that must run before this one.
    pub fn control_inputs(&self) -> Vec<Operation> {
        let ids = self.with(|node| node.control_inputs.clone());
        ids.into_iter().map(|id| self.graph.operation_by_id(id)).collect()
    }

    /// Adds a control input.
    #[track_caller]
    pub fn add_control_input(&self, op: &Operation) {
        if !self.graph.is_own(op) || self.is_mistaken() || op.is_mistaken() {
            return;
        }
        let mut state = self.graph.shared.state.lock();
        let controls = &mut state.graph.node_mut(self.id).control_inputs;
        if !controls.contains(&op.id) {
            controls.push(op.id);
        }
    }

    /// Connects input `index` to another output, such as the back edge of a loop's `Merge`.
    pub fn update_input(&self, index: usize, input: &Output) -> Result<()> {
        if self.is_mistaken() || input.op.is_mistaken() {
            return self.graph.finish();
        }
        let mut state = self.graph.shared.state.lock();
        let old = state.graph.node(self.id).inputs.get(index).copied();
        let Some(old) = old else {
            return Err(Status::invalid_argument(format!("'{}' has no input {index}", state.graph.node(self.id).name)));
        };
        state.graph.node_mut(self.id).inputs[index] = input.edge();
        let checked = state.graph.check_inputs(state.graph.node(self.id));
        if checked.is_err() {
            state.graph.node_mut(self.id).inputs[index] = old;
        }
        checked
    }

    /// Returns an output. A port out of range is a mistake.
    #[track_caller]
    pub fn output(&self, port: u32) -> Output {
        if self.is_mistaken() {
            return Output { op: self.clone(), port };
        }
        match self.try_output(port) {
            Ok(output) => output,
            Err(status) => self.graph.op(&self.op_type()).mistaken(status).output(0),
        }
    }

    /// Returns an output, or an error if the port is out of range.
    pub fn try_output(&self, port: u32) -> Result<Output> {
        self.with(|node| node.output_type(port).map(|_| ()))?;
        Ok(Output { op: self.clone(), port })
    }

    fn with<R>(&self, f: impl FnOnce(&Node) -> R) -> R {
        let state = self.graph.shared.state.lock();
        match state.mistakes.node(self.id) {
            Some(node) => f(node),
            None => f(state.graph.node(self.id)),
        }
    }
}

impl Graph {
    /// Returns the output that an edge comes from.
    pub fn from_edge(&self, edge: Edge) -> Output {
        Output { op: self.operation_by_id(edge.node), port: edge.port }
    }
}

impl Output {
    /// Returns the graph.
    pub fn graph(&self) -> &Graph {
        &self.op.graph
    }

    /// Returns the node's id and the port.
    pub fn edge(&self) -> Edge {
        Edge { node: self.op.id, port: self.port }
    }

    /// Returns `name:port`.
    pub fn name(&self) -> String {
        format!("{}:{}", self.op.name(), self.port)
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.op.with(|node| node.output_types.get(self.port as usize).map_or(DType::Float, |slot| slot.dtype))
    }

    /// Returns the type of the elements, and whether the output is a reference.
    fn slot(&self) -> TypeSlot {
        TypeSlot { dtype: self.dtype(), is_ref: self.is_ref() }
    }

    /// Returns whether the output is a reference to a variable rather than a value.
    pub fn is_ref(&self) -> bool {
        self.op.with(|node| node.output_types.get(self.port as usize).is_some_and(|slot| slot.is_ref))
    }

    /// Returns the inferred shape, which may be partly unknown.
    pub fn shape(&self) -> PartialShape {
        self.op.graph.shared.state.lock().shape(self.edge())
    }

    /// Returns the shape if it is fully known.
    pub fn full_shape(&self) -> Option<Shape> {
        self.shape().to_shape()
    }

    /// Returns the inferred types and shapes of the value behind a resource handle.
    pub fn handle_data(&self) -> Vec<DTypeAndShape> {
        self.op.graph.shared.state.lock().inferred.handle(self.edge())
    }

    /// Merges the given shape into the inferred one. Returns an error if they contradict each other.
    pub fn set_shape(&self, shape: &PartialShape) -> Result<()> {
        if self.op.is_mistaken() {
            return self.graph().finish();
        }
        self.op.graph.shared.state.lock().inferred.merge_shape(self.edge(), shape)
    }

    /// Returns the value if it is a constant.
    pub fn constant_value(&self) -> Option<Tensor> {
        if self.op.is_mistaken() {
            return None;
        }
        let state = self.op.graph.shared.state.lock();
        state.inferred.constant_value(&state.graph, self.edge())
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} {} {}>", self.name(), self.dtype(), self.shape())
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} {}>", self.op_type(), self.name())
    }
}
