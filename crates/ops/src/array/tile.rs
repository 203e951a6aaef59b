//! Repeating a tensor: Tile.

use crate::compose::{call, constant, int_scalar, int_vector, reshape};
use crate::movement::{Rearrangement, rearranged};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Grad, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use smallvec::SmallVec;
use tensor::{PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Tile",
        inputs: &["input: T", "multiples: Tmultiples"],
        outputs: &["output: T"],
        attrs: &["T: type", "Tmultiples: {int32, int64} = DT_INT32"],
        flags: OpFlags::NONE,
    },
    shape: tile_shape,
    gradient: Gradient::Fn(tile_gradient),
    kernels: &[KernelDef::any(|_| BoxedKernel::new(Tile))],
}];

/// Repeats `input` along each axis as often as `multiples` says.
#[track_caller]
pub fn tile(input: &Output, multiples: &[i32]) -> Output {
    let multiples = input.graph().constant_tensor(&Tensor::vector(multiples));
    input.graph().op("Tile").input(input).input(&multiples).output()
}

/// Sums the gradients of the copies.
fn tile_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let graph = grad.graph();
    let (input, multiples) = (args.input(0), args.input(1));
    if let (Some(shape), Some(multiples)) = (input.full_shape(), multiples.constant_value()) {
        // Each axis is treated as two: the copies, and the input.
        let multiples = multiples.to_indices()?;
        let dims: Vec<i64> = multiples.iter().zip(shape.dims()).flat_map(|(&multiple, &dim)| [multiple, dim]).collect();
        let axes: Vec<i32> = (0..shape.rank() as i32).map(|axis| 2 * axis).collect();
        let split = reshape(&grad, &constant(graph, &Tensor::vector(&dims))?)?;
        return Ok(vec![Some(call("Sum", &[&split, &int_vector(graph, &axes)?])?.into()), None]);
    }
    let shape = graph.op("Shape").input(&input).attr("out_type", multiples.dtype()).try_build()?.try_output(0)?;
    let pairs = call("Transpose", &[&call("Pack", &[&multiples, &shape])?, &int_vector(graph, &[1, 0])?])?;
    let split_shape = reshape(&pairs, &int_vector(graph, &[-1])?)?;
    let size = call("Size", &[&split_shape])?;
    let axes = call("Range", &[&int_scalar(graph, 0)?, &size, &int_scalar(graph, 2)?])?;
    let back = call("Sum", &[&reshape(&grad, &split_shape)?, &axes])?;
    back.set_shape(&input.shape())?;
    Ok(vec![Some(back.into()), None])
}

fn tile_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let multiples = c.constant_as_shape(1)?;
    let rank = match (input.rank(), multiples.rank()) {
        (Some(a), Some(b)) if a != b => {
            return Err(Status::invalid_argument(format!("Shape must be rank {b} but is rank {a}")));
        }
        (Some(rank), _) | (None, Some(rank)) => rank,
        (None, None) => return Ok(()),
    };
    let mut dims = Vec::with_capacity(rank);
    for axis in 0..rank {
        dims.push(match (input.dim(axis), multiples.dim(axis)) {
            (Some(dim), Some(multiple)) => {
                Some(dim.checked_mul(multiple).ok_or_else(|| Status::invalid_argument("Dimension is too large"))?)
            }
            _ => None,
        });
    }
    c.set_output(0, PartialShape::new(&dims));
    Ok(())
}

struct Tile;

impl Kernel for Tile {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, multiples) = (context.input(0)?, context.input(1)?);
        if !multiples.shape().is_vector() {
            return Err(Status::invalid_argument(format!(
                "Expected multiples to be 1-D, but got shape {}",
                multiples.shape()
            )));
        }
        let multiples = multiples.to_indices()?;
        if multiples.len() != input.shape().rank() {
            return Err(Status::invalid_argument(format!(
                "Expected multiples argument to be a vector of length {} but got length {}",
                input.shape().rank(),
                multiples.len()
            )));
        }
        let mut dims: SmallVec<[i64; 8]> = SmallVec::new();
        for (axis, &multiple) in multiples.iter().enumerate() {
            if multiple < 0 {
                return Err(Status::invalid_argument(format!("Expected multiples[{axis}] >= 0, but got {multiple}")));
            }
            let dim = input.shape().dim(axis).checked_mul(multiple);
            dims.push(dim.ok_or_else(|| Status::invalid_argument("the tiled shape is too large"))?);
        }
        let output = if multiples.iter().all(|&multiple| multiple == 1) {
            context.take_input(0)?
        } else {
            let multiples = multiples.iter().map(|&multiple| multiple as usize).collect();
            rearranged(input, Shape::new(&dims)?, &Repeat { dims: input.shape().to_usize(), multiples })?
        };
        context.set_output(0, output);
        Ok(())
    }
}

struct Repeat {
    dims: SmallVec<[usize; 6]>,
    multiples: SmallVec<[usize; 6]>,
}

impl Rearrangement for Repeat {
    fn apply<T: Copy + Send + Sync>(&self, from: &[T], to: &mut [T]) {
        numeric::slice_copy::tile(from, &self.dims, &self.multiples, to);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, infer, run_op};
    use graph::Graph;
    use tensor::Tensor;

    #[test]
    fn values() {
        let x = Tensor::from_slice(&[1, 2], &[1u8, 2]).unwrap();
        let y = run_op("Tile", attrs![], &[x.clone(), Tensor::vector(&[2i32, 2])]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<u8>().unwrap()), (&[2i64, 4][..], &[1u8, 2, 1, 2, 1, 2, 1, 2][..]));
        assert_eq!(run_op("Tile", attrs![], &[x.clone(), Tensor::vector(&[0i64, 3])]).unwrap()[0].dims(), [0, 6]);
        assert!(run_op("Tile", attrs![], &[x.clone(), Tensor::vector(&[-1i64, 3])]).is_err());
        assert!(run_op("Tile", attrs![], &[x.clone(), Tensor::vector(&[1i64 << 40, 1 << 40])]).is_err());
        assert!(run_op("Tile", attrs![], &[x, Tensor::vector(&[1i64])]).is_err());
    }

    #[test]
    fn shapes() {
        let shape = infer("Tile", attrs![], "[2,?];[2]", &[(1, Tensor::vector(&[3i32, 2]))]).unwrap();
        assert_eq!(shape[0].to_string(), "[6,?]");
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 1], &[1f64, 2.0]).unwrap();
        check_gradient(&[x.clone()], |_, xs| super::tile(&xs[0], &[3, 2]));
        check_gradient(&[x, Tensor::vector(&[2i32, 3])], |graph: &Graph, xs| {
            graph.op("Tile").input(&xs[0]).input(&xs[1]).output()
        });
    }
}
