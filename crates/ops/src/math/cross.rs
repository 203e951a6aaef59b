//! Cross: the cross product.

use crate::compose::{Gradients, binary};
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Status, Tensor, bf16, f16};

/// Lists the kernels: `a * b - c * d` of each type.
macro_rules! cross_kernels {
    ($([$($ty:ident),* $(,)?] => $function:expr),* $(,)?) => {
        &[$($(KernelDef {
            types: &[("T", <$ty as Element>::DTYPE)],
            create: |_| BoxedKernel::new(Cross::<$ty> { difference: $function, element: PhantomData }),
        },)*)*]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Cross",
        inputs: &["a: T", "b: T"],
        outputs: &["product: T"],
        attrs: &["T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}"],
        flags: OpFlags::NONE,
    },
    shape: cross_shape,
    gradient: Gradient::Fn(cross_gradient),
    kernels: cross_kernels!(
        [f32, f64, f16, bf16] => |a, b, c, d| a * b - c * d,
        [i8, i16, i32, i64, u8, u16, u32, u64] => |a, b, c, d| a.wrapping_mul(b).wrapping_sub(c.wrapping_mul(d)),
    ),
}];

/// Returns the cross products along the last axis, which has three elements.
#[track_caller]
pub fn cross(a: &Output, b: &Output) -> Output {
    a.graph().op("Cross").input(a).input(b).output()
}

fn cross_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (a, b) = (c.with_rank_at_least(0, 1)?, c.with_rank_at_least(1, 1)?);
    let shape = a.merge(&b)?;
    if let Some(rank) = shape.rank() {
        shape.slice(rank - 1, rank).merge(&PartialShape::new(&[Some(3)]))?;
    }
    c.set_output(0, shape);
    Ok(())
}

fn cross_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (a, b) = (args.input(0), args.input(1));
    Ok(vec![Some(binary("Cross", &b, &grad)?.into()), Some(binary("Cross", &grad, &a)?.into())])
}

struct Cross<T> {
    difference: fn(T, T, T, T) -> T,
    element: PhantomData<fn(T)>,
}

impl<T: Element> Kernel for Cross<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (a, b) = (context.input(0)?, context.input(1)?);
        if a.shape() != b.shape() {
            return Err(Status::invalid_argument(format!(
                "Both inputs must be of same shape: {} vs. {}",
                a.shape(),
                b.shape()
            )));
        }
        if a.shape().last() != Some(&3) {
            return Err(Status::failed_precondition(format!(
                "Cross-products are only defined for 3-element vectors. They have shape {}",
                a.shape()
            )));
        }
        let (x, y) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        let output = Tensor::build(a.shape().clone(), |out: &mut [T]| {
            for ((u, v), out) in x.chunks_exact(3).zip(y.chunks_exact(3)).zip(out.chunks_exact_mut(3)) {
                out[0] = (self.difference)(u[1], v[2], u[2], v[1]);
                out[1] = (self.difference)(u[2], v[0], u[0], v[2]);
                out[2] = (self.difference)(u[0], v[1], u[1], v[0]);
            }
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, run_op};

    #[test]
    fn products_and_gradients() {
        let (a, b) = (Tensor::vector(&[1i32, 2, 3]), Tensor::vector(&[4i32, 5, 6]));
        let y = run_op("Cross", attrs![], &[a.clone(), b]).unwrap();
        assert_eq!(y[0].as_slice::<i32>().unwrap(), &[-3, 6, -3]);
        assert!(run_op("Cross", attrs![], &[Tensor::vector(&[1i32]), Tensor::vector(&[1i32])]).is_err());
        let (a, b) = (Tensor::vector(&[1f64, 2., 3.]), Tensor::vector(&[4f64, -5., 6.]));
        check_gradient(&[a, b], |_, x| cross(&x[0], &x[1]));
    }
}
