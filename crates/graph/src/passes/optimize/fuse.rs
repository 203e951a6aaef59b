//! Fusion: merges the bias and activation after a matrix product or convolution into its loop.

use super::{Fusion, OptimizeOptions};
use crate::shape::InferredShapes;
use crate::{AttrMap, Edge, Node, NodeGraph, NodeId, OpLookup};
use tensor::Result;

/// Fuses products with their bias and activation. Returns the number of nodes that were fused into another.
pub(super) fn fuse_nodes(
    graph: &mut NodeGraph,
    ops: &dyn OpLookup,
    shapes: &InferredShapes,
    options: &OptimizeOptions<'_>,
) -> Result<usize> {
    let mut fused = 0;
    let consumers = graph.consumers();
    for id in graph.topological_order()? {
        let Some(chain) = Chain::starting_at(graph, shapes, &consumers, id) else { continue };
        if !(options.may_fuse)(&graph.node(id).device, Fusion::Product) {
            continue;
        }
        // The whole chain, or the part that has a kernel.
        for chain in [Some(chain), chain.without_activation()].into_iter().flatten() {
            if let Some(node) = chain.fused_node(graph, ops)
                && (options.has_kernel)(&node)
            {
                fused += chain.replace(graph, node);
                break;
            }
        }
    }
    Ok(fused)
}

/// A product, the addition of its bias, and an optional activation, each the only consumer of the one before.
#[derive(Clone, Copy)]
struct Chain {
    product: NodeId,
    bias_add: NodeId,
    bias: Edge,
    activation: Option<NodeId>,
}

impl Chain {
    fn starting_at(
        graph: &NodeGraph,
        shapes: &InferredShapes,
        consumers: &[Vec<(NodeId, Option<usize>)>],
        product: NodeId,
    ) -> Option<Chain> {
        let node = graph.get(product)?;
        if !matches!(node.op(), "MatMul" | "Conv2D") || !node.output_types.iter().all(|slot| slot.dtype.is_floating()) {
            return None;
        }
        let only_consumer = |id: NodeId| match consumers.get(id.index())?.as_slice() {
            [(consumer, Some(_))] => {
                let next = graph.get(*consumer)?;
                (next.device == node.device && next.control_inputs.is_empty()).then_some(*consumer)
            }
            _ => None,
        };
        let bias_add = only_consumer(product)?;
        let bias = bias_of(graph, shapes, product, bias_add)?;
        let activation = only_consumer(bias_add).filter(|&id| is_activation(graph.node(id)));
        Some(Chain { product, bias_add, bias, activation })
    }

    fn without_activation(mut self) -> Option<Chain> {
        self.activation.take().map(|_| self)
    }

    fn last(&self) -> NodeId {
        self.activation.unwrap_or(self.bias_add)
    }

    fn fused_node(&self, graph: &NodeGraph, ops: &dyn OpLookup) -> Option<Node> {
        let product = graph.node(self.product);
        let is_matmul = product.op() == "MatMul";
        let schema = ops.op(if is_matmul { "_FusedMatMul" } else { "_FusedConv2D" })?.schema.clone();
        let dtype = product.attrs.dtype("T").ok()?;
        let mut attrs = AttrMap::default();
        for def in &schema.attrs {
            if let Some(value) = product.attrs.get(&def.name) {
                attrs.insert(def.name.clone(), value.clone());
            }
        }
        let mut parts = vec!["BiasAdd"];
        if let Some(activation) = self.activation {
            let activation = graph.node(activation);
            parts.push(activation.op());
            if let Ok(alpha) = activation.attrs.float("alpha") {
                attrs.set("leakyrelu_alpha", alpha);
            }
        }
        attrs.set("fused_ops", parts.as_slice());
        attrs.set("num_args", 1i64);
        if !is_matmul {
            attrs.set("TArgs", [dtype].as_slice());
        }
        // Other nodes refer to the result by the last node's name.
        let mut node = Node::new(graph.node(self.last()).name.clone(), schema, product.device.clone(), attrs).ok()?;
        node.inputs = product.inputs.clone();
        node.inputs.push(self.bias);
        node.control_inputs = product.control_inputs.clone();
        graph.check_inputs(&node).ok()?;
        Some(node)
    }

    /// Replaces the last node by the fused one. Returns the number of the other nodes, which then have no consumer.
    fn replace(&self, graph: &mut NodeGraph, node: Node) -> usize {
        *graph.node_mut(self.last()) = node;
        if self.activation.is_some() { 2 } else { 1 }
    }
}

/// Returns the bias if a node adds one to each row of the product.
fn bias_of(graph: &NodeGraph, shapes: &InferredShapes, product: NodeId, add: NodeId) -> Option<Edge> {
    let node = graph.node(add);
    let is_product = |edge: &Edge| edge.node == product;
    match node.op() {
        "BiasAdd" | "BiasAddV1" => {
            let is_last = node.attrs.string("data_format").map_or(true, |format| format == "NHWC");
            let is_conv_last = graph.node(product).attrs.string("data_format").map_or(true, |format| format == "NHWC");
            (is_last && is_conv_last && is_product(node.inputs.first()?)).then(|| node.inputs.get(1).copied()).flatten()
        }
        "Add" | "AddV2" => {
            let (&a, &b) = (node.inputs.first()?, node.inputs.get(1)?);
            let bias = if is_product(&a) { b } else { a };
            let width = shapes.shape(Edge { node: product, port: 0 }).dims()?.last().copied().flatten()?;
            // A vector of another length would broadcast, and so would a product of one column.
            let is_row = shapes.shape(bias).dims() == Some(&[Some(width)][..]);
            let is_channels_last =
                graph.node(product).attrs.string("data_format").map_or(true, |format| format == "NHWC");
            (is_row && is_channels_last && !is_product(&bias)).then_some(bias)
        }
        _ => None,
    }
    .filter(|&bias| graph.node(bias.node).output_types.get(bias.port as usize).is_some_and(|slot| !slot.is_ref))
}

fn is_activation(node: &Node) -> bool {
    matches!(node.op(), "Relu" | "Relu6" | "Elu" | "LeakyRelu" | "Tanh" | "Sigmoid")
}
