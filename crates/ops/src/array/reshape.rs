//! The same elements in another shape: Reshape, ExpandDims, Squeeze, EnsureShape.

use crate::compose::{call, shape_of};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Grad, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use smallvec::SmallVec;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Reshape",
            inputs: &["tensor: T", "shape: Tshape"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tshape: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: reshape_shape,
        gradient: Gradient::Fn(reshape_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Reshape))],
    },
    Op {
        def: OpDef {
            name: "ExpandDims",
            inputs: &["input: T", "dim: Tdim"],
            outputs: &["output: T"],
            attrs: &["T: type", "Tdim: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: expand_dims_shape,
        gradient: Gradient::Fn(reshape_gradient),
        kernels: &[KernelDef::any(|_| BoxedKernel::new(ExpandDims))],
    },
    Op {
        def: OpDef {
            name: "Squeeze",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: type", "squeeze_dims: list(int) >= 0 = []"],
            flags: OpFlags::NONE,
        },
        shape: squeeze_shape,
        gradient: Gradient::Fn(reshape_gradient),
        kernels: &[KernelDef::any(Squeeze::create)],
    },
    Op {
        def: OpDef {
            name: "EnsureShape",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["shape: shape", "T: type"],
            flags: OpFlags::NONE,
        },
        shape: ensure_shape_shape,
        gradient: Gradient::Fn(ensure_shape_gradient),
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(EnsureShape { shape: builder.attrs().shape("shape")? }))],
    },
];

/// Returns `tensor` in the shape that the vector `shape` holds, where one size may be -1.
#[track_caller]
pub fn reshape(tensor: &Output, shape: &Output) -> Output {
    tensor.graph().op("Reshape").input(tensor).input(shape).output()
}

/// As [`reshape`], with a shape known now, where one size may be -1.
#[track_caller]
pub fn reshape_to(tensor: &Output, dims: &[i64]) -> Output {
    reshape(tensor, &tensor.graph().constant_tensor(&Tensor::vector(dims)))
}

/// Returns `input` with a dimension of size 1 added at `axis`.
#[track_caller]
pub fn expand_dims(input: &Output, axis: i32) -> Output {
    let axis = input.graph().constant_tensor(&Tensor::scalar(axis));
    input.graph().op("ExpandDims").input(input).input(&axis).output()
}

/// Returns `input` without the given dimensions of size 1; if none are given, without all of them.
#[track_caller]
pub fn squeeze(input: &Output, axes: &[i64]) -> Output {
    input.graph().op("Squeeze").input(input).attr("squeeze_dims", axes).output()
}

/// Returns `input` after checking at run time that it has the shape `shape`.
#[track_caller]
pub fn ensure_shape(input: &Output, shape: &PartialShape) -> Output {
    input.graph().op("EnsureShape").input(input).attr("shape", shape.clone()).output()
}

fn reshape_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    let mut grads = vec![None; args.op.num_inputs()];
    if let Some(grad) = args.grad(0) {
        grads[0] = Some(call("Reshape", &[&grad, &shape_of(&args.input(0))?])?.into());
    }
    Ok(grads)
}

fn ensure_shape_gradient(args: &GradientArgs<'_>) -> Result<Vec<Option<Grad>>> {
    Ok(vec![args.grads.first().cloned().flatten()])
}

fn reshape_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let target = c.constant_as_shape(1)?;
    let shape = match target.dims() {
        None => target,
        Some(dims) => {
            let known = dims.iter().flatten().try_fold(1i64, |product, &dim| product.checked_mul(dim));
            let unknown = dims.iter().filter(|dim| dim.is_none()).count();
            match (input.num_elements(), known, unknown) {
                (Some(count), Some(known), 0) if count != known => {
                    return Err(Status::invalid_argument(format!(
                        "Cannot reshape a tensor with {count} elements to shape {target} ({known} elements)"
                    )));
                }
                (Some(count), Some(0), _) if count != 0 => {
                    return Err(Status::invalid_argument(format!(
                        "Cannot reshape a tensor with {count} elements to shape {target} (0 elements)"
                    )));
                }
                (Some(count), Some(known), 1) if known != 0 => {
                    if count % known != 0 {
                        return Err(Status::invalid_argument(format!(
                            "Cannot reshape a tensor with {count} elements to shape {target}: \
                             {count} is not divisible by {known}"
                        )));
                    }
                    let inferred: Vec<_> = dims.iter().map(|dim| dim.or(Some(count / known))).collect();
                    PartialShape::new(&inferred)
                }
                _ => target,
            }
        }
    };
    c.set_output(0, shape);
    Ok(())
}

fn expand_dims_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let input = c.input(0);
    let axis_shape = c.input(1);
    if axis_shape.num_elements().is_some_and(|count| count != 1) {
        return Err(Status::invalid_argument("'dim' input must be a tensor with a single value"));
    }
    let shape = match (input.dims(), c.constant(1)) {
        (Some(dims), Some(axis)) => {
            let axis = expanded_axis(axis.to_index()?, dims.len())?;
            let mut dims = dims.to_vec();
            dims.insert(axis, Some(1));
            PartialShape::new(&dims)
        }
        (Some(dims), None) => PartialShape::unknown_of_rank(dims.len() + 1),
        (None, _) => PartialShape::unknown(),
    };
    c.set_output(0, shape);
    Ok(())
}

fn squeeze_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let axes = c.attrs.ints("squeeze_dims")?;
    let input = c.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    let shape = if axes.is_empty() {
        // Without given axes, only known sizes decide which dimensions are removed.
        if !input.is_fully_defined() {
            return Ok(());
        }
        let kept: Vec<_> = dims.iter().copied().filter(|dim| *dim != Some(1)).collect();
        PartialShape::new(&kept)
    } else {
        let squeezed = squeezed_axes(axes, dims.len())?;
        let mut kept = Vec::with_capacity(dims.len());
        for (index, &dim) in dims.iter().enumerate() {
            if !squeezed.contains(&index) {
                kept.push(dim);
            } else if let Some(size) = dim.filter(|&size| size != 1) {
                return Err(cannot_squeeze(index, size));
            }
        }
        PartialShape::new(&kept)
    };
    c.set_output(0, shape);
    Ok(())
}

fn ensure_shape_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.input(0).merge(&c.attrs.shape("shape")?)?;
    c.set_output(0, shape);
    Ok(())
}

/// Returns the index at which a dimension is added.
fn expanded_axis(axis: i64, rank: usize) -> Result<usize> {
    let rank = rank as i64;
    if axis < -1 - rank || axis > rank {
        return Err(Status::invalid_argument(format!(
            "Tried to expand dim index {axis} for tensor with {rank} dimensions."
        )));
    }
    Ok(if axis < 0 { axis + rank + 1 } else { axis } as usize)
}

fn squeezed_axes(axes: &[i64], rank: usize) -> Result<SmallVec<[usize; 8]>> {
    let bounds = rank as i64;
    let index = |&axis: &i64| {
        if axis < -bounds || axis >= bounds {
            return Err(Status::invalid_argument(format!(
                "Tried to squeeze dim index {axis} for tensor with {bounds} dimensions."
            )));
        }
        Ok(if axis < 0 { axis + bounds } else { axis } as usize)
    };
    axes.iter().map(index).collect()
}

fn cannot_squeeze(axis: usize, size: i64) -> Status {
    Status::invalid_argument(format!("Can not squeeze dim[{axis}], expected a dimension of 1, got {size}"))
}

struct Reshape;

impl Kernel for Reshape {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (tensor, sizes) = (context.input(0)?, context.input(1)?);
        if sizes.shape().rank() > 1 {
            return Err(Status::invalid_argument(format!("sizes input must be 1-D, not {}", sizes.shape())));
        }
        let shape = reshaped(tensor.dims(), &sizes.to_indices()?)?;
        let output = context.take_input(0)?.into_shape(shape)?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

/// Returns the shape that `sizes` describes, with its -1 replaced by the rest of the tensor's elements. If a size of zero is
/// requested, sizes of zero are ignored on both sides, so that `[0, 5]` reshaped to `[0, -1]` keeps its five columns.
fn reshaped(dims: &[i64], sizes: &[i64]) -> Result<Shape> {
    let too_large = || {
        let sizes = sizes.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        Status::invalid_argument(format!("Shape [{sizes}] has too many elements"))
    };
    let mut unknown = None;
    let mut known: i64 = 1;
    let has_zero = sizes.contains(&0);
    for (index, &size) in sizes.iter().enumerate() {
        match size {
            -1 if unknown.is_some() => {
                return Err(Status::invalid_argument(format!(
                    "Only one input size may be -1, not both {} and {index}",
                    unknown.unwrap_or_default()
                )));
            }
            -1 => unknown = Some(index),
            0 => {}
            size if size < 0 => {
                return Err(Status::invalid_argument(format!("Size {index} must be non-negative, not {size}")));
            }
            size => known = known.checked_mul(size).ok_or_else(too_large)?,
        }
    }
    let product = |dims: &[i64], counts: fn(i64) -> bool| {
        dims.iter().filter(|&&dim| counts(dim)).try_fold(1i64, |product, &dim| product.checked_mul(dim))
    };
    let count: i64 = if dims.contains(&0) { 0 } else { product(dims, |_| true).ok_or_else(too_large)? };
    let mut shape: SmallVec<[i64; 8]> = SmallVec::from_slice(sizes);
    if let Some(index) = unknown {
        let is_counted: fn(i64) -> bool = if has_zero { |dim| dim != 0 } else { |_| true };
        let counted = if has_zero { product(dims, is_counted).ok_or_else(too_large)? } else { count };
        if counted % known != 0 && !(has_zero && count == 0) {
            return Err(Status::invalid_argument(format!(
                "Input to reshape is a tensor with {count} values, but the requested shape requires a multiple of {known}"
            )));
        }
        shape[index] = counted / known;
    }
    let wanted = if has_zero { 0 } else { known * unknown.map_or(1, |index| shape[index]) };
    if wanted != count {
        return Err(Status::invalid_argument(format!(
            "Input to reshape is a tensor with {count} values, but the requested shape has {wanted}"
        )));
    }
    Shape::new(&shape)
}

struct ExpandDims;

impl Kernel for ExpandDims {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let axis = context.input(1)?;
        if axis.num_elements() != 1 {
            return Err(Status::invalid_argument("'dim' must be a tensor with a single value"));
        }
        let axis = expanded_axis(axis.to_index()?, context.input(0)?.shape().rank())?;
        let input = context.take_input(0)?;
        let mut dims: SmallVec<[i64; 8]> = SmallVec::from_slice(input.dims());
        dims.insert(axis, 1);
        context.set_output(0, input.into_shape(Shape::new(&dims)?)?);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct Squeeze {
    axes: Vec<i64>,
}

impl Squeeze {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Squeeze { axes: builder.attrs().ints("squeeze_dims")?.to_vec() })
    }
}

impl Kernel for Squeeze {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.take_input(0)?;
        if input.dtype() == DType::Variant && input.dims() == [0] {
            return Err(Status::invalid_argument("an empty variant tensor can't be squeezed"));
        }
        let axes = squeezed_axes(&self.axes, input.shape().rank())?;
        let mut dims: SmallVec<[i64; 8]> = SmallVec::new();
        for (index, &size) in input.dims().iter().enumerate() {
            if axes.is_empty() {
                if size != 1 {
                    dims.push(size);
                }
            } else if !axes.contains(&index) {
                dims.push(size);
            } else if size != 1 {
                return Err(cannot_squeeze(index, size));
            }
        }
        context.set_output(0, input.into_shape(Shape::new(&dims)?)?);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct EnsureShape {
    shape: PartialShape,
}

impl Kernel for EnsureShape {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.take_input(0)?;
        if !self.shape.is_compatible_with(input.shape()) {
            return Err(Status::invalid_argument(format!(
                "Shape of tensor {} is not compatible with expected shape {}.",
                input.shape(),
                self.shape
            )));
        }
        context.set_output(0, input);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_gradient, check_shape, infer, run_op};
    use tensor::{PartialShape, Tensor};

    fn reshape(count: usize, sizes: &[i32]) -> tensor::Result<Vec<i64>> {
        let x = Tensor::vector(&vec![1f32; count]);
        Ok(run_op("Reshape", attrs![], &[x, Tensor::vector(sizes)])?[0].dims().to_vec())
    }

    #[test]
    fn reshapes() {
        assert_eq!(reshape(6, &[2, -1]).unwrap(), [2, 3]);
        assert_eq!(reshape(0, &[0, 3]).unwrap(), [0, 3]);
        assert_eq!(reshape(0, &[-1, 3]).unwrap(), [0, 3]);
        assert_eq!(reshape(0, &[0, -1]).unwrap(), [0, 1]);
        assert_eq!(reshape(1, &[]).unwrap(), [0i64; 0]);
        for (count, sizes) in [(6, &[4][..]), (6, &[-1, -1]), (6, &[-1, 4]), (6, &[-2, 3]), (6, &[0, -1])] {
            assert!(reshape(count, sizes).is_err(), "{sizes:?}");
        }
        assert!(reshape(6, &[i32::MAX, i32::MAX, i32::MAX]).is_err());
    }

    #[test]
    fn shapes() {
        let reshaped = |input: &str, sizes: &[i32]| {
            infer("Reshape", attrs![], input, &[(1, Tensor::vector(sizes))]).map(|shapes| shapes[0].to_string())
        };
        assert_eq!(reshaped("[6];[2]", &[2, -1]).unwrap(), "[2,3]");
        assert_eq!(reshaped("[?];[2]", &[2, -1]).unwrap(), "[2,?]");
        assert!(reshaped("[6];[2]", &[2, 4]).is_err());
        assert!(reshaped("[6];[2]", &[-1, 4]).is_err());
        check_shape("Reshape", attrs![], "[6];[2]", "[?,?]");
        let axis = |axis: i32| infer("ExpandDims", attrs![], "[2,3];[]", &[(1, Tensor::scalar(axis))]);
        assert_eq!(axis(-1).unwrap()[0].to_string(), "[2,3,1]");
        assert_eq!(axis(0).unwrap()[0].to_string(), "[1,2,3]");
        assert!(axis(3).is_err());
        check_shape("Squeeze", attrs![], "[1,2,1]", "[2]");
        check_shape("Squeeze", attrs![], "[1,?,1]", "?");
        check_shape("Squeeze", attrs![("squeeze_dims", &[-1i64][..])], "[1,2,?]", "[1,2]");
        check_shape("EnsureShape", attrs![("shape", PartialShape::from_dims(&[2, -1]))], "[?,3]", "[2,3]");
    }

    #[test]
    fn adding_and_removing_dimensions() {
        let x = Tensor::from_slice(&[1, 2, 1], &[1i64, 2]).unwrap();
        assert_eq!(run_op("Squeeze", attrs![], &[x.clone()]).unwrap()[0].dims(), [2]);
        let status = run_op("Squeeze", attrs![("squeeze_dims", &[1i64][..])], &[x.clone()]).unwrap_err();
        assert!(status.message().contains("Can not squeeze dim[1], expected a dimension of 1, got 2"));
        assert_eq!(run_op("ExpandDims", attrs![], &[x, Tensor::scalar(-2i32)]).unwrap()[0].dims(), [1, 2, 1, 1]);
        let x = Tensor::vector(&[1f32, 2.0]);
        assert!(run_op("EnsureShape", attrs![("shape", PartialShape::from_dims(&[3]))], &[x]).is_err());
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 1], &[1f64, 2.0]).unwrap();
        check_gradient(&[x.clone()], |_, xs| super::reshape_to(&xs[0], &[1, -1]));
        check_gradient(&[x.clone()], |_, xs| super::squeeze(&xs[0], &[1]));
        check_gradient(&[x], |_, xs| super::expand_dims(&xs[0], 1));
    }
}
