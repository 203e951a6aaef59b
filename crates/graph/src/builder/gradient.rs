//! What an op says of its gradient ([`Gradient`]), and what a gradient function sees and returns.

use super::{Operation, Output};
use tensor::Result;

/// An op's gradient.
#[derive(Clone, Copy)]
pub enum Gradient {
    /// Built by a function.
    Fn(GradientFn),
    /// Nothing flows back through the op.
    NotDifferentiable,
    /// There could be a gradient, but TensorFlow has none either (or we don't yet): asking for it is an error.
    Unsupported,
}

/// Builds the gradients with respect to an op's inputs: one entry per input, `None` where nothing flows.
pub type GradientFn = fn(&GradientArgs<'_>) -> Result<Vec<Option<Grad>>>;

/// What a gradient function is given.
pub struct GradientArgs<'a> {
    /// The op whose gradient is built.
    pub op: &'a Operation,
    /// The gradients with respect to its outputs, `None` where nothing flows.
    pub grads: &'a [Option<Grad>],
}

/// A gradient: a tensor, or only some of its rows.
#[derive(Clone, Debug)]
pub enum Grad {
    /// Every element.
    Dense(Output),
    /// Some rows; the others are zero.
    Slices(IndexedSlices),
}

/// Rows of a tensor.
#[derive(Clone, Debug)]
pub struct IndexedSlices {
    /// The rows.
    pub values: Output,
    /// Which rows they are; one may occur several times, and the rows add up.
    pub indices: Output,
    /// The shape of the whole, where known.
    pub dense_shape: Option<Output>,
}

impl GradientArgs<'_> {
    /// Returns the op's input `index`.
    pub fn input(&self, index: usize) -> Output {
        self.op.input(index)
    }

    /// Returns the op's output `index`.
    pub fn output(&self, index: u32) -> Output {
        self.op.output(index)
    }

    /// Returns the gradient with respect to output `index` as a whole tensor, when there is one.
    pub fn grad(&self, index: usize) -> Option<Output> {
        Some(self.grads.get(index)?.as_ref()?.to_dense())
    }
}

impl Grad {
    /// Returns the whole tensor.
    pub fn to_dense(&self) -> Output {
        match self {
            Grad::Dense(output) => output.clone(),
            Grad::Slices(slices) => slices.to_dense(),
        }
    }
}

impl From<Output> for Grad {
    fn from(output: Output) -> Grad {
        Grad::Dense(output)
    }
}

impl IndexedSlices {
    /// Returns the whole tensor, with the rows added up, as TensorFlow converts it (`UnsortedSegmentSum`).
    pub fn to_dense(&self) -> Output {
        let graph = self.values.graph();
        let rows = match &self.dense_shape {
            Some(shape) => {
                let index = |value: i32| graph.constant_tensor(&tensor::Tensor::vector(&[value]));
                graph
                    .op("StridedSlice")
                    .input(shape)
                    .input(&index(0))
                    .input(&index(1))
                    .input(&index(1))
                    .attr("shrink_axis_mask", 1i64)
                    .output()
            }
            // Without a shape the caller can't have asked for a whole tensor; the largest index decides.
            None => {
                let axis = graph.constant_tensor(&tensor::Tensor::scalar(0i32));
                let largest = graph.op("Max").input(&self.indices).input(&axis).output();
                let one = graph.op("OnesLike").input(&largest).output();
                graph.op("AddV2").input(&largest).input(&one).output()
            }
        };
        graph.op("UnsortedSegmentSum").input(&self.values).input(&self.indices).input(&rows).output()
    }
}
