//! [`OpBuilder`]: adds one node.

use super::scope::{self, Colocation};
use super::{Graph, Operation, Output, State};
use crate::attr::{AttrMap, IntoAttr};
use crate::op_def::{OpSchema, TypeSlot};
use crate::{Edge, NodeId};
use std::panic::Location;
use tensor::{DType, Result, Status};

/// A node about to be added.
#[must_use = "the node is added by `build`, `try_build`, `output` or `outputs`"]
pub struct OpBuilder {
    pub(super) graph: Graph,
    pub(super) op: String,
    pub(super) name: Option<String>,
    pub(super) inputs: Vec<Output>,
    pub(super) controls: Vec<Operation>,
    pub(super) attrs: AttrMap,
    pub(super) device: Option<String>,
    pub(super) inherits_controls: bool,
    pub(super) in_context: bool,
    /// The types of the outputs as far as they are known, for the stand-in if the node cannot be added.
    pub(super) likely_types: Vec<TypeSlot>,
}

impl OpBuilder {
    /// Sets the name inside the current name scope; the default is the op's name. The name is made unique.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Adds an input.
    pub fn input(mut self, input: &Output) -> Self {
        self.inputs.push(input.clone());
        self
    }

    /// Adds several inputs.
    pub fn inputs<'a>(mut self, inputs: impl IntoIterator<Item = &'a Output>) -> Self {
        self.inputs.extend(inputs.into_iter().cloned());
        self
    }

    /// Adds a control input.
    pub fn control(mut self, op: &Operation) -> Self {
        self.controls.push(op.clone());
        self
    }

    /// Sets an attribute. Types and counts that follow from the inputs need not be set.
    pub fn attr(mut self, name: &str, value: impl IntoAttr) -> Self {
        self.attrs.set(name, value);
        self
    }

    /// Sets the device, overriding the current device scopes.
    pub fn device(mut self, device: &str) -> Self {
        self.device = Some(device.to_owned());
        self
    }

    /// Ignores the control dependencies of the current scopes.
    pub fn without_scope_controls(mut self) -> Self {
        self.inherits_controls = false;
        self
    }

    /// Uses the inputs as they are, without passing them into the current conditional or loop.
    pub(crate) fn outside_contexts(mut self) -> Self {
        self.in_context = false;
        self
    }

    /// Adds the node. A mistake is kept in the graph with the caller's line, and the returned operation is then inert.
    #[track_caller]
    pub fn build(mut self) -> Operation {
        match self.add() {
            Ok(op) => op,
            Err(status) => self.mistaken(status),
        }
    }

    /// Adds the node and returns its first output; a mistake is kept in the graph.
    #[track_caller]
    pub fn output(self) -> Output {
        self.build().output(0)
    }

    /// Adds the node and returns its outputs; a mistake is kept in the graph.
    #[track_caller]
    pub fn outputs(self) -> Vec<Output> {
        let op = self.build();
        (0..op.num_outputs()).map(|port| op.output(port as u32)).collect()
    }

    /// Adds the node, or says what is wrong with it and leaves the graph as it was.
    #[track_caller]
    pub fn try_build(mut self) -> Result<Operation> {
        self.add()
    }

    /// Keeps a mistake of this node in the graph, and returns an inert operation.
    #[track_caller]
    pub fn mistaken(self, status: Status) -> Operation {
        let inputs: Vec<String> = self.inputs.iter().map(|input| input.described()).collect();
        let of = if inputs.is_empty() { String::new() } else { format!(" of {}", inputs.join(", ")) };
        self.graph.mistake_in(status, &format!("op {}{of}", self.op));
        let name = self.name.unwrap_or_else(|| self.op.clone());
        self.graph.mistaken_operation(&self.op, name, self.likely_types)
    }

    #[track_caller]
    fn add(&mut self) -> Result<Operation> {
        let caller = Location::caller();
        let graph = self.graph.clone();
        let ops = graph.shared.ops;
        let op = self.op.clone();
        let schema = match ops.op(&op) {
            Some(info) => info.schema.clone(),
            None => graph
                .shared
                .state
                .lock()
                .graph
                .library
                .schema(&op)
                .ok_or_else(|| Status::not_found(format!("Op type not registered '{op}'")))?,
        };
        let mut attrs = std::mem::take(&mut self.attrs);
        if let Some(input) = self.inputs.iter().find(|input| input.op.is_mistaken()) {
            self.likely_types = likely_output_types(&schema, &attrs);
            input.op.graph.finish()?;
        }
        if self.inputs.iter().any(|input| !input.op.graph.same(&graph)) {
            return Err(Status::invalid_argument(format!("an input of op {op} belongs to another graph")));
        }
        if self.controls.iter().any(|control| !control.graph.same(&graph)) {
            return Err(Status::invalid_argument(format!("a control input of op {op} belongs to another graph")));
        }
        let inputs = if self.in_context {
            self.inputs.iter().map(|input| graph.passed_in(input)).collect::<Result<Vec<_>>>()?
        } else {
            self.inputs.clone()
        };
        let types: Vec<DType> = inputs.iter().map(Output::dtype).collect();
        let inferred = scope::infer_attrs(&schema, &types, &mut attrs);
        self.likely_types = likely_output_types(&schema, &attrs);
        inferred?;
        // A node that modifies a variable is placed with it, as in TensorFlow. Missing attributes are reported below.
        let slots = schema.input_types(&attrs).unwrap_or_default();
        let refs = inputs.iter().zip(&slots).filter(|(_, slot)| slot.is_ref);
        let colocations: Vec<Colocation> = refs.map(|(input, _)| Colocation::of(&input.op)).collect();
        let mut state = graph.shared.state.lock();
        let asked_name = self.name.as_deref().unwrap_or(&op);
        if self.name.is_some() {
            state.scopes.check_name(asked_name)?;
        }
        let name = state.scopes.unique_name(asked_name);
        let inputs: Vec<Edge> = inputs.iter().map(Output::edge).collect();
        let controls = self.controls.iter().filter(|control| !control.is_mistaken());
        let mut controls: Vec<NodeId> = controls.map(|control| control.id).collect();
        if self.inherits_controls {
            state.scopes.add_controls(&inputs, &mut controls);
        }
        if self.in_context
            && inputs.is_empty()
            && let Some(pivot) = state.contexts.pivot()
        {
            controls.push(pivot);
        }
        controls.sort_unstable();
        controls.dedup();
        let device = match self.device.take() {
            Some(device) => device,
            None => state.scopes.device_for(&op, &name, &colocations, &mut attrs)?,
        };
        let id = state.graph.add_op(ops, &op, name.clone(), attrs, inputs, controls, device)?;
        let State { graph: nodes, inferred, .. } = &mut *state;
        if let Err(status) = inferred.infer(nodes, ops, id) {
            self.likely_types = nodes.node(id).output_types.clone();
            nodes.remove(id);
            return Err(status.append(format!(" for '{name}' (op: '{op}')")));
        }
        state.mistakes.note_line(id, caller);
        if self.inherits_controls {
            state.scopes.note_inside(id);
        }
        if self.in_context {
            state.contexts.note(id);
        }
        Ok(Operation { graph: graph.clone(), id })
    }
}

/// Returns the types of an op's outputs that follow from the attributes, and one output of some type for each of the others.
fn likely_output_types(schema: &OpSchema, attrs: &AttrMap) -> Vec<TypeSlot> {
    let unknown = TypeSlot { dtype: DType::Float, is_ref: false };
    schema.output_types(attrs).unwrap_or_else(|_| {
        let mut types = Vec::new();
        for arg in &schema.outputs {
            let known = types.len();
            if arg.types(attrs, &mut types).is_err() {
                types.truncate(known);
                types.push(unknown);
            }
        }
        types
    })
}
