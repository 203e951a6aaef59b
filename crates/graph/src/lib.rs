//! Graphs as data: operation definitions, attributes, nodes and edges, GraphDef in and out, functions, shape inference,
//! the graph builder with its autodiff walk, and the passes that a master runs over a graph.
//!
//! Invariant: graph in, graphs out. This crate does no I/O, starts no threads, and knows no kernels.

pub mod attr;
pub mod builder;
pub mod control_flow;
pub mod device;
mod function;
mod function_body;
mod graph;
mod import;
mod library;
pub mod op_def;
pub mod passes;
pub mod shape;
mod text;

pub use attr::{AttrMap, AttrNames, IntoAttr};
pub use builder::{Gradient, GradientFn, Graph, IntoOperand, Operation, Output, SYMBOLIC_GRADIENT};
pub use device::DeviceName;
pub use function::FunctionLibrary;
pub use function_body::FunctionBody;
pub use graph::{Edge, Node, NodeGraph, NodeId};
pub use import::{NODES_MAX, check_number_of_nodes, import_graph_def, why_only_the_client_runs};
pub use library::{LIBRARIES, Library, is_in_library};
pub use op_def::{Arg, ArgType, OpDef, OpFlags, OpSchema, TypeSlot};
pub use shape::{ShapeContext, ShapeFn};

use std::sync::Arc;

/// The properties of an op that graphs need: definition, shape function and gradient.
#[derive(Clone)]
pub struct OpInfo {
    /// The definition, parsed.
    pub schema: Arc<OpSchema>,
    /// The shape function.
    pub shape: ShapeFn,
    /// The gradient.
    pub gradient: Gradient,
}

/// Finds ops by name. The registry of the crate `kernel` implements it.
pub trait OpLookup: Send + Sync {
    /// Returns the op with this name, if there is one.
    fn op(&self, name: &str) -> Option<&OpInfo>;
}

#[linkme::distributed_slice(LIBRARIES)]
static LIBRARY: Library = Library { root: file!(), ops: None };
