//! Values of outputs that are known without running the graph: constants, and shapes computed from shapes.

use crate::{Edge, NodeGraph};
use std::cell::Cell;
use tensor::{DType, PartialShape, Tensor};

/// The deepest recursion into inputs, which bounds the use of the stack.
const DEPTH_MAX: usize = 64;

/// The most nodes visited for one query. A value that is used twice is visited twice.
const VISITS_MAX: u32 = 4096;

/// A graph and the shapes of its outputs.
pub(super) struct Known<'a> {
    graph: &'a NodeGraph,
    shapes: &'a dyn Fn(Edge) -> PartialShape,
    /// The number of nodes that the current query may still visit.
    budget: Cell<u32>,
}

impl<'a> Known<'a> {
    pub(super) fn new(graph: &'a NodeGraph, shapes: &'a dyn Fn(Edge) -> PartialShape) -> Known<'a> {
        Known { graph, shapes, budget: Cell::new(0) }
    }

    fn spend(&self) -> Option<()> {
        self.budget.set(self.budget.get().checked_sub(1)?);
        Some(())
    }

    fn shape(&self, edge: Edge) -> PartialShape {
        (self.shapes)(edge)
    }

    /// Returns the value if it is a constant, or computed from known shapes.
    pub(super) fn constant_value(&self, edge: Edge) -> Option<Tensor> {
        self.budget.set(VISITS_MAX);
        self.constant_value_within(edge, DEPTH_MAX)
    }

    fn constant_value_within(&self, edge: Edge, depth: usize) -> Option<Tensor> {
        let depth = depth.checked_sub(1)?;
        self.spend()?;
        let node = self.graph.get(edge.node)?;
        match node.op() {
            "Const" => node.attrs.tensor("value").ok(),
            "Identity" | "StopGradient" | "PreventGradient" | "EnsureShape" => {
                self.constant_value_within(*node.inputs.first()?, depth)
            }
            "Shape" => self.shape_vector(*node.inputs.first()?, node.output_types[0].dtype),
            "ShapeN" => self.shape_vector(*node.inputs.get(edge.port as usize)?, node.output_types[0].dtype),
            "Size" => {
                let count = self.shape(*node.inputs.first()?).num_elements()?;
                index_scalar(count, node.output_types[0].dtype)
            }
            "Rank" => Some(Tensor::scalar(i32::try_from(self.shape(*node.inputs.first()?).rank()?).ok()?)),
            "Cast" => {
                let value = self.constant_value_within(*node.inputs.first()?, depth)?;
                match (value.dtype(), node.output_types[0].dtype) {
                    (from, to) if from == to => Some(value),
                    (DType::Int32 | DType::Int64, to @ (DType::Int32 | DType::Int64)) => {
                        let shape = value.shape().clone();
                        index_vector(&value.to_indices().ok()?, to)?.into_shape(shape).ok()
                    }
                    _ => None,
                }
            }
            // Other ops that compute parts of shapes, if the result is fully known.
            "Pack" | "ConcatV2" | "StridedSlice" | "ExpandDims" | "Squeeze" | "Prod" | "Range" | "Mul" | "AddV2"
            | "Add" | "Sub" | "FloorDiv" | "Maximum" | "Minimum" | "Reshape" => {
                let dtype = node.output_types[0].dtype;
                if !matches!(dtype, DType::Int32 | DType::Int64) {
                    return None;
                }
                let (values, is_scalar) = self.index_values(edge, depth)?;
                let values: Option<Vec<i64>> = values.into_iter().collect();
                let vector = index_vector(&values?, dtype)?;
                if is_scalar { vector.into_shape(tensor::Shape::scalar()).ok() } else { Some(vector) }
            }
            _ => None,
        }
    }

    /// Returns an output's value as a shape, with the sizes that are known.
    pub(super) fn constant_shape(&self, edge: Edge) -> Option<PartialShape> {
        self.budget.set(VISITS_MAX);
        let (values, is_scalar) = self.index_values(edge, DEPTH_MAX)?;
        if is_scalar {
            return None;
        }
        let dims: Vec<Option<i64>> = values.into_iter().map(|value| value.filter(|&value| value >= 0)).collect();
        Some(PartialShape::new(&dims))
    }

    fn shape_vector(&self, edge: Edge, dtype: DType) -> Option<Tensor> {
        index_vector(self.shape(edge).to_shape()?.dims(), dtype)
    }

    /// Returns the elements of a small integer vector or scalar, each `None` if unknown, and whether it is a scalar.
    fn index_values(&self, edge: Edge, depth: usize) -> Option<(Vec<Option<i64>>, bool)> {
        const LENGTH_MAX: usize = 1024;
        let depth = depth.checked_sub(1)?;
        self.spend()?;
        let node = self.graph.get(edge.node)?;
        let input = |index: usize| node.inputs.get(index).copied();
        let values = |index: usize| self.index_values(input(index)?, depth);
        match node.op() {
            "Shape" | "ShapeN" => {
                let shape = self.shape(input(edge.port as usize)?);
                Some((shape.dims()?.to_vec(), false))
            }
            "Pack" => {
                let mut all = Vec::with_capacity(node.inputs.len());
                for index in 0..node.inputs.len() {
                    if self.shape(input(index)?).rank() != Some(0) {
                        return None;
                    }
                    all.push(values(index).and_then(|(values, _)| values.first().copied().flatten()));
                }
                Some((all, false))
            }
            "ConcatV2" => {
                let mut all = Vec::new();
                for index in 0..node.inputs.len() - 1 {
                    match values(index) {
                        Some((values, false)) => all.extend(values),
                        _ => {
                            let shape = self.shape(input(index)?);
                            let len = shape.dim(0).filter(|_| shape.rank() == Some(1))?;
                            all.resize(all.len().checked_add(usize::try_from(len).ok()?)?.min(LENGTH_MAX), None);
                        }
                    }
                }
                (all.len() < LENGTH_MAX).then_some((all, false))
            }
            "StridedSlice" => self.strided_slice_values(node, depth),
            "ExpandDims" | "Reshape" | "Squeeze" => {
                let (values, _) = values(0)?;
                match self.shape(edge).rank()? {
                    0 => Some((values, true)),
                    1 => Some((values, false)),
                    _ => None,
                }
            }
            "Prod" => {
                let (values, _) = values(0)?;
                let product = values.into_iter().try_fold(1i64, |product, value| product.checked_mul(value?));
                Some((vec![product], true)).filter(|_| self.shape(edge).rank() == Some(0))
            }
            "Range" => {
                let bound = |index: usize| values(index).and_then(|(values, _)| values.first().copied().flatten());
                let (start, limit, delta) = (bound(0)?, bound(1)?, bound(2)?);
                if delta == 0 || limit.checked_sub(start)?.checked_div(delta)? > LENGTH_MAX as i64 {
                    return None;
                }
                let mut all = Vec::new();
                let mut value = start;
                while (delta > 0 && value < limit) || (delta < 0 && value > limit) {
                    all.push(Some(value));
                    value = value.checked_add(delta)?;
                }
                Some((all, false))
            }
            "Mul" | "AddV2" | "Add" | "Sub" | "FloorDiv" | "Maximum" | "Minimum" => {
                let ((a, a_scalar), (b, b_scalar)) = (values(0)?, values(1)?);
                let len = if a_scalar { b.len() } else { a.len() };
                if (!a_scalar && a.len() != len) || (!b_scalar && b.len() != len) {
                    return None;
                }
                let at = |values: &[Option<i64>], scalar: bool, index: usize| values[if scalar { 0 } else { index }];
                let combine = |x: i64, y: i64| match node.op() {
                    "Mul" => x.checked_mul(y),
                    "Sub" => x.checked_sub(y),
                    "FloorDiv" => (y != 0).then(|| x.div_euclid(y)).filter(|_| x >= 0 && y > 0),
                    "Maximum" => Some(x.max(y)),
                    "Minimum" => Some(x.min(y)),
                    _ => x.checked_add(y),
                };
                let all = (0..len)
                    .map(|index| at(&a, a_scalar, index).zip(at(&b, b_scalar, index)).and_then(|(x, y)| combine(x, y)));
                Some((all.collect(), a_scalar && b_scalar))
            }
            _ => {
                let value = self.constant_value_within(edge, depth)?;
                if !matches!(value.dtype(), DType::Int32 | DType::Int64) || value.shape().rank() > 1 {
                    return None;
                }
                (value.num_elements() <= LENGTH_MAX).then_some(())?;
                let is_scalar = value.shape().is_scalar();
                Some((value.to_indices().ok()?.into_iter().map(Some).collect(), is_scalar))
            }
        }
    }

    /// Evaluates `shape[i]` and `shape[a:b]`.
    fn strided_slice_values(&self, node: &crate::Node, depth: usize) -> Option<(Vec<Option<i64>>, bool)> {
        let (values, is_scalar) = self.index_values(*node.inputs.first()?, depth)?;
        if is_scalar {
            return None;
        }
        let number = |index: usize| -> Option<i64> {
            let value = self.constant_value_within(*node.inputs.get(index)?, depth)?;
            (value.num_elements() == 1).then(|| value.to_index().ok()).flatten()
        };
        let mask = |name: &str| node.attrs.int(name).ok();
        if mask("ellipsis_mask")? != 0 || mask("new_axis_mask")? != 0 {
            return None;
        }
        let len = values.len() as i64;
        let clamp = |value: i64| (if value < 0 { value + len } else { value }).clamp(0, len);
        if mask("shrink_axis_mask")? & 1 == 1 {
            let begin = number(1)?;
            let index = if begin < 0 { begin + len } else { begin };
            return Some((vec![*values.get(usize::try_from(index).ok()?)?], true));
        }
        if number(3)? != 1 {
            return None;
        }
        let begin = if mask("begin_mask")? & 1 == 1 { 0 } else { clamp(number(1)?) };
        let end = if mask("end_mask")? & 1 == 1 { len } else { clamp(number(2)?) };
        Some((values.get(begin as usize..end.max(begin) as usize)?.to_vec(), false))
    }
}

fn index_vector(values: &[i64], dtype: DType) -> Option<Tensor> {
    match dtype {
        DType::Int32 => {
            let narrow: Option<Vec<i32>> = values.iter().map(|&value| i32::try_from(value).ok()).collect();
            Some(Tensor::vector(&narrow?))
        }
        _ => Some(Tensor::vector(values)),
    }
}

fn index_scalar(value: i64, dtype: DType) -> Option<Tensor> {
    index_vector(&[value], dtype)?.into_shape(tensor::Shape::scalar()).ok()
}
