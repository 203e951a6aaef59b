//! How an op declares its gradient ([`Gradient`]), and the arguments and results of gradient functions.

use super::{Operation, Output};
use tensor::Result;

/// An op's gradient.
#[derive(Clone, Copy)]
pub enum Gradient {
    /// Built by a function.
    Fn(GradientFn),
    /// The op has no gradient: its outputs do not depend differentiably on its inputs.
    NotDifferentiable,
    /// There is no gradient, because TensorFlow has none or because it is not implemented; asking for it is an error.
    Unsupported,
}

/// Builds the gradients with respect to an op's inputs: one entry per input, `None` for no gradient.
pub type GradientFn = fn(&GradientArgs<'_>) -> Result<Vec<Option<Grad>>>;

/// The arguments of a gradient function.
pub struct GradientArgs<'a> {
    /// The op whose gradient is built.
    pub op: &'a Operation,
    /// The gradients with respect to its outputs, `None` for no gradient.
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
    /// The index of each row. Rows with the same index add up.
    pub indices: Output,
    /// The shape of the dense tensor, if known.
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

    /// Returns the gradient with respect to output `index` as a dense tensor, if there is one.
    pub fn grad(&self, index: usize) -> Option<Output> {
        Some(self.grads.get(index)?.as_ref()?.to_dense())
    }
}

impl Grad {
    /// Returns the dense tensor.
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
    /// Returns the dense tensor, as TensorFlow converts it (`UnsortedSegmentSum`).
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
            // Without a shape, the largest index decides the number of rows.
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
