//! Average pooling: AvgPool, AvgPool3D, and their gradient ops.

use super::max_pool::with_pool_attrs;
use super::padding::Padding;
use super::pool_plan::{PoolWindow, pool_shape};
use crate::compose::{Gradients, shape_of};
use crate::sizes::shape_of_sizes;
use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use numeric::float::Float;
use numeric::pool as loops;
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "AvgPool",
            inputs: &["value: T"],
            outputs: &["output: T"],
            attrs: &[
                "ksize: list(int) >= 4",
                "strides: list(int) >= 4",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "T: {half, bfloat16, float, double}",
            ],
            flags: OpFlags::NONE,
        },
        shape: pool_shape::<2>,
        gradient: Gradient::Fn(avg_pool_gradient),
        kernels: &[forward::<f32, 2>(), forward::<f64, 2>(), forward::<f16, 2>(), forward::<bf16, 2>()],
    },
    Op {
        def: OpDef {
            name: "AvgPool3D",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &[
                "ksize: list(int) >= 5",
                "strides: list(int) >= 5",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
                "T: {half, bfloat16, float, double}",
            ],
            flags: OpFlags::NONE,
        },
        shape: pool_shape::<3>,
        gradient: Gradient::Fn(avg_pool3d_gradient),
        kernels: &[forward::<f32, 3>(), forward::<f64, 3>(), forward::<f16, 3>(), forward::<bf16, 3>()],
    },
    Op {
        def: OpDef {
            name: "AvgPoolGrad",
            inputs: &["orig_input_shape: int32", "grad: T"],
            outputs: &["output: T"],
            attrs: &[
                "ksize: list(int) >= 4",
                "strides: list(int) >= 4",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NHWC', 'NCHW'} = 'NHWC'",
                "T: {half, bfloat16, float, double}",
            ],
            flags: OpFlags::NONE,
        },
        shape: avg_pool_grad_shape::<2>,
        gradient: Gradient::Fn(avg_pool_grad_gradient),
        kernels: &[backward::<f32, 2>(), backward::<f64, 2>(), backward::<f16, 2>(), backward::<bf16, 2>()],
    },
    Op {
        def: OpDef {
            name: "AvgPool3DGrad",
            inputs: &["orig_input_shape: int32", "grad: T"],
            outputs: &["output: T"],
            attrs: &[
                "ksize: list(int) >= 5",
                "strides: list(int) >= 5",
                "padding: {'SAME', 'VALID'}",
                "data_format: {'NDHWC', 'NCDHW'} = 'NDHWC'",
                "T: {half, bfloat16, float, double}",
            ],
            flags: OpFlags::NONE,
        },
        shape: avg_pool_grad_shape::<3>,
        gradient: Gradient::Fn(avg_pool3d_grad_gradient),
        kernels: &[backward::<f32, 3>(), backward::<f64, 3>(), backward::<f16, 3>(), backward::<bf16, 3>()],
    },
];

/// Returns the mean under each window of images (batch, rows, columns, channels).
#[track_caller]
pub fn avg_pool(value: &Output, ksize: [i64; 2], strides: [i64; 2], padding: Padding) -> Output {
    let op = value.graph().op("AvgPool").input(value).attr("ksize", &[1, ksize[0], ksize[1], 1][..]);
    op.attr("strides", &[1, strides[0], strides[1], 1][..]).attr("padding", padding.attr()).output()
}

fn avg_pool_grad_shape<const N: usize>(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(0)?.merge(&PartialShape::unknown_of_rank(N + 2))?;
    c.set_output(0, shape);
    Ok(())
}

fn forward_gradient(args: &GradientArgs<'_>, op: &str) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let builder = grad.graph().op(op).input(&shape_of(&args.input(0))?).input(&grad);
    Ok(vec![Some(with_pool_attrs(builder, args.op).try_build()?.output(0).into())])
}

fn backward_gradient(args: &GradientArgs<'_>, op: &str) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let builder = grad.graph().op(op).input(&grad);
    Ok(vec![None, Some(with_pool_attrs(builder, args.op).try_build()?.output(0).into())])
}

fn avg_pool_gradient(args: &GradientArgs<'_>) -> Gradients {
    forward_gradient(args, "AvgPoolGrad")
}

fn avg_pool3d_gradient(args: &GradientArgs<'_>) -> Gradients {
    forward_gradient(args, "AvgPool3DGrad")
}

fn avg_pool_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    backward_gradient(args, "AvgPool")
}

fn avg_pool3d_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    backward_gradient(args, "AvgPool3D")
}

struct Forward<T> {
    pool: PoolWindow,
    element: PhantomData<fn(T)>,
}

const fn forward<T: Element + Float, const N: usize>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let pool = PoolWindow::from_attrs(builder.attrs(), N)?;
            BoxedKernel::new(Forward::<T> { pool, element: PhantomData })
        },
    }
}

impl<T: Element + Float> Kernel for Forward<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let plan = self.pool.plan(input.shape(), "tensor_in")?;
        if plan.is_empty() {
            let output = Tensor::zeros(T::DTYPE, plan.window.shape(&plan.output)?)?;
            context.set_output(0, output);
            return Ok(());
        }
        let input = plan.window.channels_last::<T>(input)?;
        let elements = input.as_slice::<T>()?;
        let output = Tensor::build(plan.window.shape_channels_last(&plan.output)?, |out: &mut [T]| {
            loops::avg_pool(&plan.shape, elements, out);
        })?;
        let output = plan.window.from_channels_last::<T>(output)?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct Backward<T, const N: usize> {
    pool: PoolWindow,
    element: PhantomData<fn(T)>,
}

const fn backward<T: Element + Float, const N: usize>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let pool = PoolWindow::from_attrs(builder.attrs(), N)?;
            BoxedKernel::new(Backward::<T, N> { pool, element: PhantomData })
        },
    }
}

impl<T: Element + Float, const N: usize> Kernel for Backward<T, N> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (sizes, gradient) = (context.input(0)?, context.input(1)?);
        if !sizes.shape().is_vector() || sizes.num_elements() != N + 2 {
            // The names are TensorFlow's.
            let name = if N == 2 { "out_backprop" } else { "tensor_in" };
            return Err(Status::invalid_argument(format!("{name} must be 1-dimensional and {} elements", N + 2)));
        }
        if gradient.shape().rank() != N + 2 {
            return Err(Status::invalid_argument(format!("out_backprop must be {}-dimensional", N + 2)));
        }
        let sizes = sizes.to_indices()?;
        if let Some(size) = sizes.iter().find(|&&size| size < 0) {
            return Err(Status::invalid_argument(format!("Expected a non-negative size, got {size}")));
        }
        let shape = shape_of_sizes(&sizes)?;
        let plan = self.pool.plan(&shape, "orig_input_shape")?;
        plan.check_output(gradient.shape(), "grad")?;
        if plan.is_empty() {
            let output = Tensor::zeros(T::DTYPE, shape)?;
            context.set_output(0, output);
            return Ok(());
        }
        let gradient = plan.window.channels_last::<T>(gradient)?;
        let elements = gradient.as_slice::<T>()?;
        let output = Tensor::build(plan.window.shape_channels_last(&plan.input)?, |out: &mut [T]| {
            loops::avg_pool_grad(&plan.shape, elements, out);
        })?;
        let output = plan.window.from_channels_last::<T>(output)?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, infer, run_op};

    #[test]
    fn padding_does_not_count() {
        let x = Tensor::from_slice(&[1, 2, 2, 1], &[1f32, 3., 5., 7.]).unwrap();
        let attrs = attrs![("ksize", &[1i64, 2, 2, 1][..]), ("strides", &[1i64, 1, 1, 1][..]), ("padding", "SAME")];
        let y = run_op("AvgPool", attrs, &[x]).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[4., 5., 6., 7.]);
    }

    #[test]
    fn sizes_are_checked() {
        let attrs = || attrs![("ksize", &[1i64, 2, 2, 1][..]), ("strides", &[1i64, 1, 1, 1][..]), ("padding", "SAME")];
        let dy = Tensor::from_slice(&[1, 2, 2, 1], &[1f32, 3., 5., 7.]).unwrap();
        for sizes in [&[1i32, 2, 2][..], &[1, 2, 3, 1], &[1, -2, 2, 1], &[i32::MAX; 4]] {
            assert!(run_op("AvgPoolGrad", attrs(), &[Tensor::vector(sizes), dy.clone()]).is_err(), "{sizes:?}");
        }
        let shapes = infer("AvgPoolGrad", attrs(), "[4];[1,2,2,1]", &[(0, Tensor::vector(&[1i32, 2, 2, 1]))]).unwrap();
        assert_eq!(shapes[0].to_string(), "[1,2,2,1]");
    }

    #[test]
    fn gradients() {
        let values: Vec<f64> = (0..32).map(|index| f64::from((index * 7) % 32)).collect();
        let x = Tensor::from_slice(&[1, 4, 4, 2], &values).unwrap();
        check_gradient(&[x.clone()], |_, x| avg_pool(&x[0], [2, 3], [2, 1], Padding::Same));
        check_gradient(&[x], |graph, x| {
            let sizes = graph.constant_tensor(&Tensor::vector(&[1i32, 5, 5, 2]));
            let op = graph.op("AvgPoolGrad").input(&sizes).inputs(x).attr("padding", "VALID");
            op.attr("ksize", &[1i64, 2, 2, 1][..]).attr("strides", &[1i64, 1, 1, 1][..]).output()
        });
    }
}
