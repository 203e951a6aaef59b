//! OneHot.

use crate::movement::{Movable, copy_cost_ns};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use smallvec::SmallVec;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "OneHot",
        inputs: &["indices: TI", "depth: int32", "on_value: T", "off_value: T"],
        outputs: &["output: T"],
        attrs: &["axis: int = -1", "T: type", "TI: {uint8, int8, int32, int64} = DT_INT64"],
        flags: OpFlags::NONE,
    },
    shape: one_hot_shape,
    gradient: Gradient::NotDifferentiable,
    kernels: &[KernelDef::any(|builder| BoxedKernel::new(OneHot { axis: builder.attrs().int("axis")? }))],
}];

/// Returns, for each index, a vector of `depth` values along the last axis: `on` at the index and `off` elsewhere.
#[track_caller]
pub fn one_hot(indices: &Output, depth: i32, on: f32, off: f32) -> Output {
    let graph = indices.graph();
    let scalar = |value: f32| graph.constant_tensor(&Tensor::scalar(value));
    let depth = graph.constant_tensor(&Tensor::scalar(depth));
    graph.op("OneHot").input(indices).input(&depth).input(&scalar(on)).input(&scalar(off)).output()
}

fn one_hot_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let axis = c.attrs.int("axis")?;
    if axis < -1 {
        return Err(Status::invalid_argument("axis must be >= -1"));
    }
    for index in 1..4 {
        c.with_rank(index, 0)?;
    }
    let depth = match c.constant(1) {
        Some(depth) => {
            let depth = depth.to_index()?;
            if depth < 0 {
                return Err(Status::invalid_argument(format!("Dimension size must be non-negative, got {depth}")));
            }
            Some(depth)
        }
        None => None,
    };
    let indices = c.input(0);
    let Some(dims) = indices.dims() else { return Ok(()) };
    let axis = depth_axis(axis, dims.len())?;
    let mut dims = dims.to_vec();
    dims.insert(axis, depth);
    c.set_output(0, PartialShape::new(&dims));
    Ok(())
}

fn depth_axis(axis: i64, rank: usize) -> Result<usize> {
    if axis == -1 {
        return Ok(rank);
    }
    usize::try_from(axis).ok().filter(|&axis| axis <= rank).ok_or_else(|| {
        Status::invalid_argument(format!("Expected axis to be -1 or between [0, {}).  But received: {axis}", rank + 1))
    })
}

struct OneHot {
    axis: i64,
}

impl Kernel for OneHot {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let indices = context.input(0)?;
        let depth = context.input(1)?;
        let (on, off) = (context.input(2)?, context.input(3)?);
        for (name, tensor) in [("depth", depth), ("on_value", on), ("off_value", off)] {
            if !tensor.shape().is_scalar() {
                return Err(Status::invalid_argument(format!("{name} must be a scalar, but got: {}", tensor.shape())));
            }
        }
        let depth = depth.to_scalar::<i32>()?;
        if depth < 0 {
            return Err(Status::invalid_argument(format!("depth must be non-negative, got: {depth}")));
        }
        let axis = depth_axis(self.axis, indices.shape().rank())?;
        let mut dims: SmallVec<[i64; 8]> = SmallVec::from_slice(indices.dims());
        dims.insert(axis, i64::from(depth));
        let shape = Shape::new(&dims)?;
        let suffix: usize = indices.dims()[axis..].iter().product::<i64>() as usize;
        let indices = match indices.dtype() {
            DType::UInt8 => indices.as_slice::<u8>()?.iter().map(|&index| i64::from(index)).collect(),
            DType::Int8 => indices.as_slice::<i8>()?.iter().map(|&index| i64::from(index)).collect(),
            _ => indices.to_indices()?,
        };
        let output = with_movable!(on.dtype(), E => encoded::<E>(&indices, depth as usize, suffix, on, off, shape))?;
        context.set_output(0, output);
        Ok(())
    }
}

fn encoded<E: Movable>(
    indices: &[i64],
    depth: usize,
    suffix: usize,
    on: &Tensor,
    off: &Tensor,
    shape: Shape,
) -> Result<Tensor> {
    let (Some(on_value), Some(off_value)) = (E::view(on)?.first(), E::view(off)?.first()) else {
        return Err(Status::invalid_argument("on_value and off_value must be scalars"));
    };
    E::build(on.dtype(), shape, |to| {
        if to.is_empty() {
            return;
        }
        let block = depth * suffix;
        numeric::parallel::for_each_chunk_mut(to, block, copy_cost_ns::<E>(block), |first, blocks| {
            blocks.fill(off_value.clone());
            for (offset, to) in blocks.chunks_exact_mut(block).enumerate() {
                let start = (first + offset) * suffix;
                for (place, &index) in indices[start..start + suffix].iter().enumerate() {
                    // An index out of range has no `on` position.
                    if let Some(index) = usize::try_from(index).ok().filter(|&index| index < depth) {
                        to[index * suffix + place] = on_value.clone();
                    }
                }
            }
        });
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, infer, run_op};
    use tensor::Tensor;

    #[test]
    fn values() {
        let hot = |indices: Tensor, depth: i32, axis: i64| {
            let inputs = [indices, Tensor::scalar(depth), Tensor::scalar(1f32), Tensor::scalar(0f32)];
            run_op("OneHot", attrs![("axis", axis)], &inputs).map(|y| y.into_iter().next().unwrap())
        };
        let y = hot(Tensor::vector(&[0i64, 2, -1, 1]), 3, -1).unwrap();
        assert_eq!(y.dims(), [4, 3]);
        assert_eq!(y.as_slice::<f32>().unwrap(), &[1., 0., 0., 0., 0., 1., 0., 0., 0., 0., 1., 0.]);
        let y = hot(Tensor::from_slice(&[2, 2], &[0i32, 2, 1, -1]).unwrap(), 3, 1).unwrap();
        assert_eq!(y.as_slice::<f32>().unwrap(), &[1., 0., 0., 0., 0., 1., 0., 0., 1., 0., 0., 0.]);
        assert_eq!(hot(Tensor::vector(&[0u8, 5]), 0, -1).unwrap().dims(), [2, 0]);
        assert!(hot(Tensor::vector(&[0u8]), -1, -1).is_err());
        assert!(hot(Tensor::vector(&[0u8]), 1, 2).is_err());
    }

    #[test]
    fn shapes() {
        let shape = infer("OneHot", attrs![("axis", 0i64)], "[?,2];[];[];[]", &[(1, Tensor::scalar(5i32))]).unwrap();
        assert_eq!(shape[0].to_string(), "[5,?,2]");
        check_shape("OneHot", attrs![], "[3];[];[];[]", "[3,?]");
    }
}
