//! Permuting axes: Transpose, ConjugateTranspose, InvertPermutation.

use crate::compose::{call, constant};
use crate::movement::{Rearrangement, rearranged};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Cost, Grad, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use smallvec::SmallVec;
use tensor::{Complex32, Complex64, DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Transpose",
            inputs: &["x: T", "perm: Tperm"],
            outputs: &["y: T"],
            attrs: &["T: type", "Tperm: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: transpose_shape,
        gradient: Gradient::Fn(transpose_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Transpose { conjugates: false }))],
    },
    Op {
        def: OpDef {
            name: "ConjugateTranspose",
            inputs: &["x: T", "perm: Tperm"],
            outputs: &["y: T"],
            attrs: &["T: type", "Tperm: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: transpose_shape,
        gradient: Gradient::Fn(transpose_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Transpose { conjugates: true }))],
    },
    Op {
        def: OpDef {
            name: "InvertPermutation",
            inputs: &["x: T"],
            outputs: &["y: T"],
            attrs: &["T: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: invert_permutation_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(InvertPermutation))],
    },
];

/// Returns `x` with its axes permuted: axis `i` of the result is axis `permutation[i]` of `x`.
#[track_caller]
pub fn transpose(x: &Output, permutation: &[i32]) -> Output {
    transpose_with(x, &x.graph().constant_tensor(&Tensor::vector(permutation)))
}

/// As [`transpose`], with a permutation that is computed in the graph.
#[track_caller]
pub fn transpose_with(x: &Output, permutation: &Output) -> Output {
    x.graph().op("Transpose").input(x).input(permutation).output()
}

/// Returns the inverse of the permutation `x`.
#[track_caller]
pub fn invert_permutation(x: &Output) -> Output {
    x.graph().op("InvertPermutation").input(x).output()
}

fn transpose_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let permutation = args.input(1);
    let inverse = match permutation.constant_value().and_then(|value| inverse(&value).ok()) {
        Some(inverse) => constant(grad.graph(), &inverse)?,
        None => call("InvertPermutation", &[&permutation])?,
    };
    let back = grad.graph().op(&args.op.op_type()).input(&grad).input(&inverse).try_build()?.try_output(0)?;
    Ok(vec![Some(back.into()), None])
}

fn transpose_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let entries = c.with_rank(1, 1)?;
    let permutation = c.constant(1).map(|value| value.to_indices()).transpose()?;
    let rank = input
        .rank()
        .or(entries.dim(0).and_then(|rank| usize::try_from(rank).ok()))
        .or(permutation.as_ref().map(Vec::len));
    let Some(rank) = rank.filter(|&rank| rank <= 254) else { return Ok(()) };
    if entries.dim(0).is_some_and(|count| count != rank as i64) {
        return Err(Status::invalid_argument(format!(
            "Dimension must be {rank} but is {}",
            entries.dim(0).unwrap_or_default()
        )));
    }
    let shape = match permutation {
        Some(permutation) => {
            let axes = checked_permutation(&permutation, rank)?;
            PartialShape::new(&axes.iter().map(|&axis| input.dim(axis)).collect::<Vec<_>>())
        }
        None => PartialShape::unknown_of_rank(rank),
    };
    c.set_output(0, shape);
    Ok(())
}

fn invert_permutation_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.with_rank(0, 1)?;
    c.set_output(0, shape);
    Ok(())
}

/// Returns a permutation of `0..rank` after checking it; negative axes count from the end.
fn checked_permutation(permutation: &[i64], rank: usize) -> Result<SmallVec<[usize; 8]>> {
    if permutation.len() != rank {
        return Err(Status::invalid_argument(format!(
            "transpose expects a vector of size {rank}. But input(1) is a vector of size {}",
            permutation.len()
        )));
    }
    let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, rank);
    let mut axes = SmallVec::with_capacity(rank);
    for &entry in permutation {
        let axis = if entry < 0 { entry.saturating_add(rank as i64) } else { entry };
        let Some(axis) = usize::try_from(axis).ok().filter(|&axis| axis < rank) else {
            return Err(Status::invalid_argument(format!("{entry} is out of range [0 .. {rank})")));
        };
        seen[axis] = true;
        axes.push(axis);
    }
    match seen.iter().position(|seen| !seen) {
        Some(missing) => Err(Status::invalid_argument(format!("{missing} is missing from {permutation:?}."))),
        None => Ok(axes),
    }
}

struct Transpose {
    conjugates: bool,
}

impl Kernel for Transpose {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let permutation = context.input(1)?;
        if !permutation.shape().is_vector() {
            return Err(Status::invalid_argument(format!("perm must be rank 1, got shape {}", permutation.shape())));
        }
        let shape = context.input(0)?.shape().clone();
        let axes = checked_permutation(&permutation.to_indices()?, shape.rank())?;
        let output = permuted(&context.take_input(0)?, axes)?;
        let output = if self.conjugates { conjugated(output)? } else { output };
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns a tensor with its axes permuted; `axes` must be a permutation.
pub(super) fn permuted(input: &Tensor, axes: SmallVec<[usize; 8]>) -> Result<Tensor> {
    let shape = input.shape();
    let dims: SmallVec<[i64; 8]> = axes.iter().map(|&axis| shape.dim(axis)).collect();
    let out_shape = Shape::new(&dims)?;
    // If only dimensions of size 1 move, the elements stay where they are.
    if axes.iter().filter(|&&axis| shape.dim(axis) != 1).is_sorted() {
        return input.reshape(out_shape);
    }
    rearranged(input, out_shape, &Permute { dims: shape.to_usize(), axes })
}

struct Permute {
    dims: SmallVec<[usize; 6]>,
    axes: SmallVec<[usize; 8]>,
}

impl Rearrangement for Permute {
    fn apply<T: Copy + Send + Sync>(&self, from: &[T], to: &mut [T]) {
        numeric::transpose::transpose(from, &self.dims, &self.axes, to);
    }
}

fn conjugated(mut tensor: Tensor) -> Result<Tensor> {
    match tensor.dtype() {
        DType::Complex64 => tensor.make_mut::<Complex32>()?.iter_mut().for_each(|value| *value = value.conj()),
        DType::Complex128 => tensor.make_mut::<Complex64>()?.iter_mut().for_each(|value| *value = value.conj()),
        _ => {}
    }
    Ok(tensor)
}

struct InvertPermutation;

impl Kernel for InvertPermutation {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let output = inverse(context.input(0)?)?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

fn inverse(permutation: &Tensor) -> Result<Tensor> {
    if !permutation.shape().is_vector() {
        return Err(Status::invalid_argument(format!(
            "invert_permutation expects a 1D vector. It has shape {}",
            permutation.shape()
        )));
    }
    let values = permutation.to_indices()?;
    let mut inverse = vec![-1i64; values.len()];
    for (index, &value) in values.iter().enumerate() {
        let Some(place) = usize::try_from(value).ok().and_then(|place| inverse.get_mut(place)) else {
            return Err(Status::invalid_argument(format!("{value} is not between 0 and {}", values.len())));
        };
        if *place != -1 {
            return Err(Status::invalid_argument(format!("{value} is duplicated in the input.")));
        }
        *place = index as i64;
    }
    super::shape::index_vector(&inverse, permutation.dtype() == DType::Int64)
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use tensor::{Complex32, Shape, Tensor};

    #[test]
    fn values() {
        let x = Tensor::from_slice(&[2, 3], &[1i16, 2, 3, 4, 5, 6]).unwrap();
        let y = run_op("Transpose", attrs![], &[x.clone(), Tensor::vector(&[1i64, 0])]).unwrap();
        assert_eq!((y[0].dims(), y[0].as_slice::<i16>().unwrap()), (&[3i64, 2][..], &[1i16, 4, 2, 5, 3, 6][..]));
        let same = run_op("Transpose", attrs![], &[x.clone(), Tensor::vector(&[0i32, -1])]).unwrap();
        assert!(same[0].shares_memory(&x));
        let row = x.reshape(Shape::new(&[1, 6]).unwrap()).unwrap();
        assert!(
            run_op("Transpose", attrs![], &[row.clone(), Tensor::vector(&[1i32, 0])]).unwrap()[0].shares_memory(&row)
        );
        for bad in [&[0i32][..], &[0, 0], &[0, 2], &[-3, 0]] {
            assert!(run_op("Transpose", attrs![], &[x.clone(), Tensor::vector(bad)]).is_err(), "{bad:?}");
        }
        let text = Tensor::from_strings(Shape::new(&[2, 2]).unwrap(), ["a", "b", "c", "d"].map(Into::into).to_vec());
        let y = run_op("Transpose", attrs![], &[text.unwrap(), Tensor::vector(&[1i32, 0])]).unwrap();
        assert_eq!(y[0].strings().unwrap(), ["a", "c", "b", "d"]);
        let x = Tensor::from_slice(&[1, 2], &[Complex32::new(1.0, 2.0), Complex32::new(3.0, -4.0)]).unwrap();
        let y = run_op("ConjugateTranspose", attrs![], &[x, Tensor::vector(&[1i32, 0])]).unwrap();
        assert_eq!(y[0].as_slice::<Complex32>().unwrap(), &[Complex32::new(1.0, -2.0), Complex32::new(3.0, 4.0)]);
    }

    #[test]
    fn inverses() {
        let y = run_op("InvertPermutation", attrs![], &[Tensor::vector(&[3i32, 4, 0, 2, 1])]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[2, 4, 3, 0, 1]);
        for bad in [&[0i32, 0][..], &[2, 0], &[-1, 0]] {
            assert!(run_op("InvertPermutation", attrs![], &[Tensor::vector(bad)]).is_err());
        }
    }

    #[test]
    fn shapes() {
        let shape = infer("Transpose", attrs![], "[2,?,4];[3]", &[(1, Tensor::vector(&[2i32, 0, 1]))]).unwrap();
        assert_eq!(shape[0].to_string(), "[4,2,?]");
        check_shape("Transpose", attrs![], "?;[2]", "[?,?]");
        assert!(infer("Transpose", attrs![], "[2];[2]", &[]).is_err());
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[1, 2, 3], &[1f64, 2., 3., 4., 5., 6.]).unwrap();
        check_gradient(&[x], |_, xs| super::transpose(&xs[0], &[2, 0, 1]));
    }
}
