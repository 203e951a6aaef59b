//! Slice.

use super::strided_slice::Take;
use crate::compose::{call, constant, int_scalar, reshape};
use crate::movement::rearranged;
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use numeric::slice_copy::SliceAxis;
use smallvec::SmallVec;
use tensor::{PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Slice",
        inputs: &["input: T", "begin: Index", "size: Index"],
        outputs: &["output: T"],
        attrs: &["T: type", "Index: {int32, int64}"],
        flags: OpFlags::NONE,
    },
    shape: slice_shape,
    gradient: Gradient::Fn(slice_gradient),
    kernels: &[KernelDef::any(|_| BoxedKernel::new(Slice))],
}];

/// Returns the box of `input` that starts at `begin` and has `size`, where -1 means everything up to the end.
#[track_caller]
pub fn slice(input: &Output, begin: &[i64], size: &[i64]) -> Output {
    let vector = |values: &[i64]| input.graph().constant_tensor(&Tensor::vector(values));
    input.graph().op("Slice").input(input).input(&vector(begin)).input(&vector(size)).output()
}

/// Pads the gradient with zeros to the input's shape.
fn slice_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let graph = grad.graph();
    let (input, begin) = (args.input(0), args.input(1));
    let index_type = begin.dtype();
    if let (Some(whole), Some(part), Some(begin)) =
        (input.full_shape(), args.output(0).full_shape(), begin.constant_value())
    {
        let mut paddings = Vec::with_capacity(2 * whole.rank());
        for (axis, &begin) in begin.to_indices()?.iter().enumerate() {
            paddings.extend([begin, whole.dim(axis) - part.dim(axis) - begin]);
        }
        let paddings = constant(graph, &Tensor::from_slice(&[whole.rank() as i64, 2], &paddings)?)?;
        return Ok(vec![Some(call("Pad", &[&grad, &paddings])?.into()), None, None]);
    }
    let shape =
        |output: &Output| graph.op("Shape").input(output).attr("out_type", index_type).try_build()?.try_output(0);
    let (whole, part) = (shape(&input)?, shape(&args.output(0))?);
    let rank = call("Rank", &[&input])?;
    let column = call("Pack", &[&rank, &int_scalar(graph, 1)?])?;
    let before = reshape(&begin, &column)?;
    let after = call("Sub", &[&call("Sub", &[&whole, &part])?, &begin])?;
    let after = reshape(&after, &column)?;
    let axis = int_scalar(graph, 1)?;
    let paddings =
        graph.op("ConcatV2").input(&before).input(&after).input(&axis).attr("N", 2i64).try_build()?.try_output(0)?;
    Ok(vec![Some(call("Pad", &[&grad, &paddings])?.into()), None, None])
}

fn slice_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let entries = c.with_rank(1, 1)?.merge(&c.with_rank(2, 1)?)?;
    let rank = match (input.rank(), entries.dim(0)) {
        (Some(rank), Some(count)) if rank as i64 != count => {
            return Err(Status::invalid_argument(format!("Shape must be rank {count} but is rank {rank}")));
        }
        (Some(rank), _) => rank,
        (None, Some(count)) if (0..=254).contains(&count) => count as usize,
        _ => return Ok(()),
    };
    let shape = match (c.constant(1), c.constant(2)) {
        (Some(begin), Some(size)) => {
            let (begin, size) = (begin.to_indices()?, size.to_indices()?);
            let mut dims = Vec::with_capacity(rank);
            for axis in 0..rank {
                let (Some(&begin), Some(&size)) = (begin.get(axis), size.get(axis)) else { return Ok(()) };
                dims.push(match input.dim(axis) {
                    Some(whole) => Some(part_len(begin, size, whole, axis)?),
                    None => (size >= 0).then_some(size),
                });
            }
            PartialShape::new(&dims)
        }
        (None, Some(size)) => PartialShape::from_dims(&size.to_indices()?),
        _ => match c.constant_as_shape(2) {
            Ok(size) if size.rank() == Some(rank) => size,
            _ => PartialShape::unknown_of_rank(rank),
        },
    };
    c.set_output(0, shape);
    Ok(())
}

/// Returns the number of elements that a slice takes of an axis, after checking that they exist.
fn part_len(begin: i64, size: i64, whole: i64, axis: usize) -> Result<i64> {
    let len = if size == -1 { whole.saturating_sub(begin) } else { size };
    if begin < 0 || begin > whole {
        return Err(Status::invalid_argument(format!("Expected begin[{axis}] in [0, {whole}], but got {begin}")));
    }
    if len < 0 || len > whole - begin {
        return Err(Status::invalid_argument(format!(
            "Expected size[{axis}] in [0, {}], but got {size}",
            whole - begin
        )));
    }
    Ok(len)
}

struct Slice;

impl Kernel for Slice {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let rank = input.shape().rank();
        let (begin, size) = (context.input(1)?, context.input(2)?);
        if !begin.shape().is_vector()
            || !size.shape().is_vector()
            || begin.num_elements() != rank
            || size.num_elements() != rank
        {
            return Err(Status::invalid_argument(format!(
                "Expected begin and size arguments to be 1-D tensors of size {rank}, but got shapes {} and {} instead.",
                begin.shape(),
                size.shape()
            )));
        }
        let (begin, size) = (begin.to_indices()?, size.to_indices()?);
        let mut dims: SmallVec<[i64; 8]> = SmallVec::new();
        for axis in 0..rank {
            dims.push(part_len(begin[axis], size[axis], input.shape().dim(axis), axis)?);
        }
        let output = slice_of(context.take_input(0)?, &begin, &dims)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the box of `input` that starts at `begin` and has `dims`, which must be within bounds.
pub(super) fn slice_of(input: Tensor, begin: &[i64], dims: &[i64]) -> Result<Tensor> {
    if *dims == *input.dims() {
        return Ok(input);
    }
    if !dims.is_empty() && dims[1..] == input.dims()[1..] {
        return input.slice_rows(begin[0] as usize, (begin[0] + dims[0]) as usize);
    }
    let axes = begin.iter().zip(dims);
    let axes = axes.map(|(&begin, &len)| SliceAxis { begin: begin as usize, stride: 1, len: len as usize }).collect();
    rearranged(&input, Shape::new(dims)?, &Take { dims: input.shape().to_usize(), axes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use graph::Graph;
    use tensor::Tensor;

    fn counted() -> Tensor {
        Tensor::from_slice(&[3, 4], &(0..12).map(f64::from).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn values() {
        let slice = |begin: &[i32], size: &[i32]| -> tensor::Result<Vec<f64>> {
            let y = run_op("Slice", attrs![], &[counted(), Tensor::vector(begin), Tensor::vector(size)])?;
            Ok(y[0].as_slice::<f64>()?.to_vec())
        };
        assert_eq!(slice(&[1, 1], &[2, 2]).unwrap(), [5., 6., 9., 10.]);
        assert_eq!(slice(&[2, 0], &[-1, -1]).unwrap(), [8., 9., 10., 11.]);
        assert_eq!(slice(&[3, 0], &[0, 4]).unwrap(), [0f64; 0]);
        assert_eq!(slice(&[0, 3], &[-1, 1]).unwrap(), [3., 7., 11.]);
        for (begin, size) in [([0, 0], [4, 1]), ([-1, 0], [1, 1]), ([0, 2], [1, 3]), ([0, 0], [-2, 1])] {
            assert!(slice(&begin, &size).is_err(), "{begin:?} {size:?}");
        }
        assert!(slice(&[0], &[1]).is_err());
    }

    #[test]
    fn shapes() {
        let constants = [(1, Tensor::vector(&[1i32, 0])), (2, Tensor::vector(&[-1i32, 2]))];
        assert_eq!(infer("Slice", attrs![], "[3,?];[2];[2]", &constants).unwrap()[0].to_string(), "[2,2]");
        check_shape("Slice", attrs![], "[3,?];[2];[2]", "[?,?]");
    }

    #[test]
    fn gradients() {
        check_gradient(&[counted()], |_, xs| super::slice(&xs[0], &[1, 0], &[1, -1]));
        // Without constants the paddings are computed when the graph runs.
        let begin = Tensor::vector(&[1i32, 2]);
        check_gradient(&[counted(), begin], |graph: &Graph, xs| {
            let size = graph.constant_tensor(&Tensor::vector(&[2i32, 1]));
            graph.op("Slice").input(&xs[0]).input(&xs[1]).input(&size).output()
        });
    }
}
