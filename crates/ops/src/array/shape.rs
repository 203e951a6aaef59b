//! Shapes as tensors: Shape, ShapeN, Size, Rank, and the arithmetic of broadcasting on shapes.

use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, Value, shape as infer,
};
use smallvec::SmallVec;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Shape",
            inputs: &["input: T"],
            outputs: &["output: out_type"],
            attrs: &["T: type", "out_type: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: shape_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(ShapeKernel::create)],
    },
    Op {
        def: OpDef {
            name: "ShapeN",
            inputs: &["input: N * T"],
            outputs: &["output: N * out_type"],
            attrs: &["N: int >= 1", "T: type", "out_type: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: shape_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(ShapeKernel::create)],
    },
    Op {
        def: OpDef {
            name: "Size",
            inputs: &["input: T"],
            outputs: &["output: out_type"],
            attrs: &["T: type", "out_type: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: infer::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(Size { wide: is_wide(builder) }))],
    },
    Op {
        def: OpDef {
            name: "Rank",
            inputs: &["input: T"],
            outputs: &["output: int32"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: infer::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Rank))],
    },
    Op {
        def: OpDef {
            name: "BroadcastGradientArgs",
            inputs: &["s0: T", "s1: T"],
            outputs: &["r0: T", "r1: T"],
            attrs: &["T: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: broadcast_gradient_args_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(BroadcastGradientArgs))],
    },
    Op {
        def: OpDef {
            name: "BroadcastArgs",
            inputs: &["s0: T", "s1: T"],
            outputs: &["r0: T"],
            attrs: &["T: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: broadcast_args_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(BroadcastArgs))],
    },
];

/// Returns the shape of `input` as an `int32` vector.
#[track_caller]
pub fn shape(input: &Output) -> Output {
    input.graph().op("Shape").input(input).output()
}

/// Returns the shape of `input` as a vector of `out_type`.
#[track_caller]
pub fn shape_with(input: &Output, out_type: DType) -> Output {
    input.graph().op("Shape").input(input).attr("out_type", out_type).output()
}

/// Returns the number of elements of `input`.
#[track_caller]
pub fn size(input: &Output) -> Output {
    input.graph().op("Size").input(input).output()
}

/// Returns the number of dimensions of `input`.
#[track_caller]
pub fn rank(input: &Output) -> Output {
    input.graph().op("Rank").input(input).output()
}

/// Returns, for each of two shapes, the axes that a gradient must be summed over when they were broadcast together.
#[track_caller]
pub fn broadcast_gradient_args(s0: &Output, s1: &Output) -> (Output, Output) {
    let op = s0.graph().op("BroadcastGradientArgs").input(s0).input(s1).build();
    (op.output(0), op.output(1))
}

fn shape_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for index in 0..c.num_outputs() {
        let rank = c.input(index).rank().map(|rank| rank as i64);
        c.set_output(index, PartialShape::new(&[rank]));
    }
    Ok(())
}

fn broadcast_gradient_args_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 1)?;
    c.with_rank(1, 1)?;
    c.set_output(0, PartialShape::unknown_of_rank(1));
    c.set_output(1, PartialShape::unknown_of_rank(1));
    Ok(())
}

fn broadcast_args_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (a, b) = (c.with_rank(0, 1)?, c.with_rank(1, 1)?);
    let len = match (a.dim(0), b.dim(0)) {
        (Some(a), Some(b)) => Some(a.max(b)),
        _ => None,
    };
    c.set_output(0, PartialShape::new(&[len]));
    Ok(())
}

/// Returns an input's shape, without reading a variable.
pub(crate) fn input_shape(context: &OpContext<'_>, index: usize) -> Result<Shape> {
    match context.value(index) {
        Value::Ref(variable) => variable.read_with(|tensor| Ok(tensor.shape().clone())),
        _ => Ok(context.input(index)?.shape().clone()),
    }
}

fn is_wide(builder: &KernelBuilder<'_>) -> bool {
    builder.output_dtype(0) == DType::Int64
}

/// Returns integers as an `int64` vector if `wide`, otherwise as an `int32` one.
pub(crate) fn index_vector(values: &[i64], wide: bool) -> Result<Tensor> {
    if wide {
        return Ok(Tensor::vector(values));
    }
    let narrow: Result<SmallVec<[i32; 8]>> = values.iter().map(|&value| narrow(value)).collect();
    Ok(Tensor::vector(&narrow?))
}

fn narrow(value: i64) -> Result<i32> {
    i32::try_from(value)
        .map_err(|_| Status::invalid_argument(format!("{value} does not fit an int32; ask for int64 instead")))
}

struct ShapeKernel {
    wide: bool,
}

impl ShapeKernel {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(ShapeKernel { wide: is_wide(builder) })
    }
}

impl Kernel for ShapeKernel {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        for index in 0..context.num_outputs() {
            let shape = input_shape(context, index)?;
            context.set_output(index, index_vector(shape.dims(), self.wide)?);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }

    fn takes_refs(&self) -> bool {
        true
    }
}

struct Size {
    wide: bool,
}

impl Kernel for Size {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let count = input_shape(context, 0)?.num_elements() as i64;
        context.set_output(0, if self.wide { Tensor::scalar(count) } else { Tensor::scalar(narrow(count)?) });
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }

    fn takes_refs(&self) -> bool {
        true
    }
}

struct Rank;

impl Kernel for Rank {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let rank = input_shape(context, 0)?.rank();
        context.set_output(0, Tensor::scalar(rank as i32));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }

    fn takes_refs(&self) -> bool {
        true
    }
}

struct BroadcastGradientArgs;

impl Kernel for BroadcastGradientArgs {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (a, b) = shape_inputs(context)?;
        let rank = a.len().max(b.len());
        let (mut a_axes, mut b_axes): (SmallVec<[i64; 8]>, SmallVec<[i64; 8]>) = Default::default();
        // Equal shapes were not broadcast at all, not even where both are 1.
        if a != b {
            for axis in 0..rank {
                match (padded(&a, rank, axis), padded(&b, rank, axis)) {
                    (1, 1) => {
                        a_axes.push(axis as i64);
                        b_axes.push(axis as i64);
                    }
                    (x, y) if x == y => {}
                    (1, _) => a_axes.push(axis as i64),
                    (_, 1) => b_axes.push(axis as i64),
                    _ => return Err(incompatible(&a, &b)),
                }
            }
        }
        let wide = context.input(0)?.dtype() == DType::Int64;
        context.set_output(0, index_vector(&a_axes, wide)?);
        context.set_output(1, index_vector(&b_axes, wide)?);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct BroadcastArgs;

impl Kernel for BroadcastArgs {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (a, b) = shape_inputs(context)?;
        let rank = a.len().max(b.len());
        let mut dims: SmallVec<[i64; 8]> = SmallVec::new();
        for axis in 0..rank {
            dims.push(match (padded(&a, rank, axis), padded(&b, rank, axis)) {
                (x, y) if x == y => x,
                (1, other) | (other, 1) => other,
                _ => return Err(incompatible(&a, &b)),
            });
        }
        let wide = context.input(0)?.dtype() == DType::Int64;
        context.set_output(0, index_vector(&dims, wide)?);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

fn shape_inputs(context: &OpContext<'_>) -> Result<(Vec<i64>, Vec<i64>)> {
    for index in 0..2 {
        let shape = context.input(index)?.shape();
        if !shape.is_vector() {
            return Err(Status::invalid_argument(format!("In[{index}] must be a vector.{shape}")));
        }
    }
    Ok((context.input(0)?.to_indices()?, context.input(1)?.to_indices()?))
}

/// Returns a size of a shape that is left-padded with ones to `rank` dimensions.
fn padded(dims: &[i64], rank: usize, axis: usize) -> i64 {
    axis.checked_sub(rank - dims.len()).map_or(1, |axis| dims[axis])
}

fn incompatible(a: &[i64], b: &[i64]) -> Status {
    let list = |dims: &[i64]| dims.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    Status::invalid_argument(format!("Incompatible shapes: [{}] vs. [{}]", list(a), list(b)))
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{DType, Shape, Tensor};

    #[test]
    fn shapes_as_values() {
        let x = Tensor::zeros(DType::String, Shape::new(&[2, 0, 3]).unwrap()).unwrap();
        assert_eq!(run_op("Shape", attrs![], &[x.clone()]).unwrap()[0].as_slice::<i32>().unwrap(), &[2, 0, 3]);
        let wide = run_op("Shape", attrs![("out_type", DType::Int64)], &[x.clone()]).unwrap();
        assert_eq!(wide[0].as_slice::<i64>().unwrap(), &[2, 0, 3]);
        assert_eq!(run_op("Size", attrs![], &[x.clone()]).unwrap()[0].to_scalar::<i32>().unwrap(), 0);
        assert_eq!(run_op("Rank", attrs![], &[x]).unwrap()[0].to_scalar::<i32>().unwrap(), 3);
        let shapes = run_op("ShapeN", attrs![], &[Tensor::scalar(1f32), Tensor::vector(&[1f32])]).unwrap();
        assert_eq!(shapes[0].dims(), [0]);
        assert_eq!(shapes[1].as_slice::<i32>().unwrap(), &[1]);
        check_shape("Shape", attrs![], "[2,?]", "[2]");
        check_shape("ShapeN", attrs![("N", 2i64)], "[2,?];?", "[2];[?]");
    }

    #[test]
    fn axes_to_sum_over() {
        let axes = |a: &[i32], b: &[i32]| -> tensor::Result<(Vec<i32>, Vec<i32>)> {
            let y = run_op("BroadcastGradientArgs", attrs![], &[Tensor::vector(a), Tensor::vector(b)])?;
            Ok((y[0].as_slice::<i32>()?.to_vec(), y[1].as_slice::<i32>()?.to_vec()))
        };
        // As TensorFlow answers.
        assert_eq!(axes(&[2, 3, 5], &[1]).unwrap(), (vec![], vec![0, 1, 2]));
        assert_eq!(axes(&[5], &[2, 1, 5]).unwrap(), (vec![0, 1], vec![1]));
        assert_eq!(axes(&[1, 1], &[1, 1]).unwrap(), (vec![], vec![]));
        assert_eq!(axes(&[2, 1], &[2, 1]).unwrap(), (vec![], vec![]));
        assert_eq!(axes(&[2, 1], &[1, 3]).unwrap(), (vec![1], vec![0]));
        assert_eq!(axes(&[0], &[1]).unwrap(), (vec![], vec![0]));
        assert!(axes(&[2], &[3]).is_err());
    }

    #[test]
    fn broadcast_shapes() {
        let y = run_op("BroadcastArgs", attrs![], &[Tensor::vector(&[3i64, 1]), Tensor::vector(&[5i64])]).unwrap();
        assert_eq!(y[0].as_slice::<i64>().unwrap(), &[3, 5]);
        assert!(run_op("BroadcastArgs", attrs![], &[Tensor::vector(&[2i64]), Tensor::vector(&[5i64])]).is_err());
        check_shape("BroadcastArgs", attrs![("T", DType::Int32)], "[2];[3]", "[3]");
    }
}
