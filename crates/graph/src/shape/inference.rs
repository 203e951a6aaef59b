//! Shape inference over whole graphs, including loops.

use super::ShapeContext;
use super::constant_value::Known;
use crate::control_flow::NodeClass;
use crate::{Edge, Node, NodeGraph, NodeId, OpLookup};
use tensor::{DTypeAndShape, PartialShape, Result, Status, Tensor};

/// The inferred shapes of a graph's outputs.
#[derive(Clone, Debug, Default)]
pub struct InferredShapes {
    /// The shapes of every node's outputs, by node index.
    shapes: Vec<Vec<PartialShape>>,
    /// The types and shapes of the values behind resource outputs, likewise.
    handles: Vec<Vec<Vec<DTypeAndShape>>>,
}

/// Infers the shapes of all outputs of a graph.
///
/// Iterates over loops until nothing changes, so that the shapes hold for every iteration. The second result lists the nodes
/// whose shape functions failed; the shapes of their outputs are unknown.
pub fn infer_shapes(graph: &NodeGraph, ops: &dyn OpLookup) -> Result<(InferredShapes, Vec<(NodeId, Status)>)> {
    let mut shapes = InferredShapes::default();
    let errors = shapes.extend(graph, ops, 0)?;
    Ok((shapes, errors))
}

impl InferredShapes {
    /// Returns an output's inferred shape.
    pub fn shape(&self, edge: Edge) -> PartialShape {
        let shapes = self.shapes.get(edge.node.index());
        shapes.and_then(|shapes| shapes.get(edge.port as usize)).cloned().unwrap_or_default()
    }

    /// Returns the types and shapes of the value behind a resource output.
    pub fn handle(&self, edge: Edge) -> Vec<DTypeAndShape> {
        let handles = self.handles.get(edge.node.index());
        handles.and_then(|handles| handles.get(edge.port as usize)).cloned().unwrap_or_default()
    }

    /// Merges a shape into the inferred one of an output. Returns an error if they contradict each other.
    pub fn merge_shape(&mut self, edge: Edge, shape: &PartialShape) -> Result<()> {
        let known = self.shapes.get_mut(edge.node.index()).and_then(|shapes| shapes.get_mut(edge.port as usize));
        let known = known.ok_or_else(|| Status::internal("an output that doesn't exist"))?;
        *known = known.merge(shape)?;
        Ok(())
    }

    /// Replaces the inferred shape of an output, such as a loop variable whose shape changes between iterations.
    pub(crate) fn replace_shape(&mut self, edge: Edge, shape: &PartialShape) -> Result<()> {
        let known = self.shapes.get_mut(edge.node.index()).and_then(|shapes| shapes.get_mut(edge.port as usize));
        *known.ok_or_else(|| Status::internal("an output that doesn't exist"))? = shape.clone();
        Ok(())
    }

    /// Returns an output's value if it is a constant.
    pub fn constant_value(&self, graph: &NodeGraph, edge: Edge) -> Option<Tensor> {
        Known::new(graph, &|edge| self.shape(edge)).constant_value(edge)
    }

    /// Returns the shapes of a node's outputs, for its attribute `_output_shapes`.
    pub fn output_shapes(&self, id: NodeId) -> Vec<PartialShape> {
        self.shapes.get(id.index()).cloned().unwrap_or_default()
    }

    /// Runs a node's shape function and stores the results. After an error, the shapes of the outputs are unknown.
    pub fn infer(&mut self, graph: &NodeGraph, ops: &dyn OpLookup, id: NodeId) -> Result<()> {
        let node = graph.node(id);
        let inputs: Vec<PartialShape> = node.inputs.iter().map(|edge| self.shape(*edge)).collect();
        let computed = self.compute(graph, ops, node, &inputs);
        self.reserve(graph);
        let (outputs, handles, result) = match computed {
            Ok((outputs, handles)) => (outputs, handles, Ok(())),
            Err(status) => {
                let count = node.output_types.len();
                (vec![PartialShape::unknown(); count], vec![Vec::new(); count], Err(status))
            }
        };
        self.shapes[id.index()] = outputs;
        self.handles[id.index()] = handles;
        result
    }

    /// Infers the shapes of the nodes with ids from `start` on. Returns the nodes whose shape functions failed.
    pub fn extend(&mut self, graph: &NodeGraph, ops: &dyn OpLookup, start: u32) -> Result<Vec<(NodeId, Status)>> {
        self.reserve(graph);
        let order: Vec<NodeId> = graph.topological_order()?.into_iter().filter(|id| id.0 >= start).collect();
        let consumers = graph.consumers();
        let mut is_inferred = vec![true; graph.id_bound()];
        let mut is_due = vec![false; graph.id_bound()];
        for id in &order {
            is_inferred[id.index()] = false;
            is_due[id.index()] = true;
        }
        let mut errors: Vec<(NodeId, Status)> = Vec::new();
        // Every cycle leads through a Merge, whose shape only ever becomes less specific, so this ends.
        let mut is_first_round = true;
        loop {
            let mut is_settled = true;
            for &id in &order {
                if !std::mem::replace(&mut is_due[id.index()], false) {
                    continue;
                }
                is_settled = false;
                let before = (self.shapes[id.index()].clone(), self.handles[id.index()].clone());
                let result = self.infer_in_loop(graph, ops, id, &is_inferred, is_first_round);
                is_inferred[id.index()] = true;
                if let Err(status) = result
                    && is_first_round
                {
                    errors.push((id, status));
                }
                if (&self.shapes[id.index()], &self.handles[id.index()]) != (&before.0, &before.1) {
                    for &(consumer, input) in &consumers[id.index()] {
                        if input.is_some() && consumer.0 >= start {
                            is_due[consumer.index()] = true;
                        }
                    }
                }
            }
            if is_settled {
                return Ok(errors);
            }
            is_first_round = false;
        }
    }

    fn infer_in_loop(
        &mut self,
        graph: &NodeGraph,
        ops: &dyn OpLookup,
        id: NodeId,
        is_inferred: &[bool],
        is_first: bool,
    ) -> Result<()> {
        let node = graph.node(id);
        let class = NodeClass::of(node.op());
        if class != NodeClass::Merge {
            let result = self.infer(graph, ops, id);
            if class == NodeClass::Enter
                && let (Some(&input), Some(output)) =
                    (node.inputs.first(), self.shapes[id.index()].len().checked_sub(1))
            {
                // An `Enter` has the shape of its input, whatever the definition leaves open.
                self.shapes[id.index()][output] = self.shape(input);
            }
            self.apply_output_shapes(node, id);
            return result;
        }
        // The shape from the first iteration stands for that of later ones until they are inferred.
        let known = node.inputs.iter().find(|edge| is_inferred[edge.node.index()]).map(|&edge| self.shape(edge));
        let shape_of = |edge: &Edge| match &known {
            Some(known) if !is_inferred[edge.node.index()] => known.clone(),
            _ => self.shape(*edge),
        };
        let inputs: Vec<PartialShape> = node.inputs.iter().map(shape_of).collect();
        let (mut outputs, handles) = self.compute(graph, ops, node, &inputs)?;
        if !is_first {
            for (output, before) in outputs.iter_mut().zip(&self.shapes[id.index()]) {
                *output = common(output, before);
            }
        }
        self.shapes[id.index()] = outputs;
        self.handles[id.index()] = handles;
        Ok(())
    }

    /// Merges the shapes in a node's attribute `_output_shapes`, unless they contradict the inferred ones.
    fn apply_output_shapes(&mut self, node: &Node, id: NodeId) {
        let Ok(given) = node.attrs.shapes("_output_shapes") else { return };
        for (known, given) in self.shapes[id.index()].iter_mut().zip(given) {
            if let Ok(merged) = known.merge(&given) {
                *known = merged;
            }
        }
    }

    fn compute(
        &self,
        graph: &NodeGraph,
        ops: &dyn OpLookup,
        node: &Node,
        inputs: &[PartialShape],
    ) -> Result<(Vec<PartialShape>, Vec<Vec<DTypeAndShape>>)> {
        let outputs = vec![PartialShape::unknown(); node.output_types.len()];
        let output_handles = vec![Vec::new(); node.output_types.len()];
        let Some(info) = ops.op(node.op()) else { return Ok((outputs, output_handles)) };
        let input_handles: Vec<Vec<DTypeAndShape>> = node.inputs.iter().map(|edge| self.handle(*edge)).collect();
        let shape = |edge| self.shape(edge);
        let known = Known::new(graph, &shape);
        let constant = |index: usize| known.constant_value(*node.inputs.get(index)?);
        let constant_shape = |index: usize| known.constant_shape(*node.inputs.get(index)?);
        let mut context = ShapeContext {
            schema: &node.schema,
            attrs: &node.attrs,
            output_types: &node.output_types,
            inputs,
            input_handles: &input_handles,
            constant: &constant,
            constant_shape: &constant_shape,
            outputs,
            output_handles,
        };
        (info.shape)(&mut context)?;
        Ok((context.outputs, context.output_handles))
    }

    fn reserve(&mut self, graph: &NodeGraph) {
        if self.shapes.len() < graph.id_bound() {
            self.shapes.resize_with(graph.id_bound(), Vec::new);
            self.handles.resize_with(graph.id_bound(), Vec::new);
        }
    }
}

/// Returns the most specific shape that both shapes are instances of.
fn common(a: &PartialShape, b: &PartialShape) -> PartialShape {
    match (a.dims(), b.dims()) {
        (Some(a), Some(b)) if a.len() == b.len() => {
            let dims: Vec<Option<i64>> = a.iter().zip(b).map(|(a, b)| if a == b { *a } else { None }).collect();
            PartialShape::new(&dims)
        }
        _ => PartialShape::unknown(),
    }
}
