//! Running totals along an axis: Cumsum, Cumprod, CumulativeLogsumexp.

use crate::compose::{Gradients, binary, scalar, select, unary, unary_gradient};
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape,
};
use numeric::parallel;
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, Element, Result, Status, Tensor, bf16, f16};

/// Lists the kernels of a running total: its initial value, and how elements are combined.
macro_rules! running_kernels {
    ($([$($ty:ident),* $(,)?] => $initial:expr, $function:expr),* $(,)?) => {
        &[$($(KernelDef {
            types: &[("T", <$ty as Element>::DTYPE)],
            create: |builder| {
                Running::<$ty, _>::boxed(builder, $initial, kernel_function!($ty, fn($ty, $ty) -> $ty, $function))
            },
        },)*)*]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Cumsum",
            inputs: &["x: T", "axis: Tidx"],
            outputs: &["out: T"],
            attrs: &[
                "exclusive: bool = false",
                "reverse: bool = false",
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tidx: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(cumsum_gradient),
        kernels: running_kernels!(
            [f32, f64, f16, bf16, Complex32, Complex64] => Default::default(), |x, y| x + y,
            [i8, i16, i32, i64, u8, u16, u32, u64] => 0, |x, y| x.wrapping_add(y),
        ),
    },
    Op {
        def: OpDef {
            name: "Cumprod",
            inputs: &["x: T", "axis: Tidx"],
            outputs: &["out: T"],
            attrs: &[
                "exclusive: bool = false",
                "reverse: bool = false",
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "Tidx: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(cumprod_gradient),
        kernels: running_kernels!(
            [f32, f64] => 1.0, |x, y| x * y,
            [f16] => f16::ONE, |x, y| x * y,
            [bf16] => bf16::ONE, |x, y| x * y,
            [Complex32] => Complex32::new(1.0, 0.0), |x, y| x * y,
            [Complex64] => Complex64::new(1.0, 0.0), |x, y| x * y,
            [i8, i16, i32, i64, u8, u16, u32, u64] => 1, |x, y| x.wrapping_mul(y),
        ),
    },
    Op {
        def: OpDef {
            name: "CumulativeLogsumexp",
            inputs: &["x: T", "axis: Tidx"],
            outputs: &["out: T"],
            attrs: &[
                "exclusive: bool = false",
                "reverse: bool = false",
                "T: {bfloat16, half, float, double}",
                "Tidx: {int32, int64} = DT_INT32",
            ],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(cumulative_logsumexp_gradient),
        kernels: running_kernels!(
            [f32] => f32::NEG_INFINITY, |x, y| log_sum_exp(f64::from(x), f64::from(y)) as f32,
            [f64] => f64::NEG_INFINITY, log_sum_exp,
            [f16] => f16::NEG_INFINITY, |x, y| f16::from_f64(log_sum_exp(x.to_f64(), y.to_f64())),
            [bf16] => bf16::NEG_INFINITY, |x, y| bf16::from_f64(log_sum_exp(x.to_f64(), y.to_f64())),
        ),
    },
];

/// Returns the running sums along an axis; an exclusive one leaves the element itself out.
#[track_caller]
pub fn cumsum(x: &Output, axis: i32, exclusive: bool, reverse: bool) -> Output {
    running("Cumsum", x, axis, exclusive, reverse)
}

/// Returns the running products along an axis; an exclusive one leaves the element itself out.
#[track_caller]
pub fn cumprod(x: &Output, axis: i32, exclusive: bool, reverse: bool) -> Output {
    running("Cumprod", x, axis, exclusive, reverse)
}

#[track_caller]
fn running(op: &str, x: &Output, axis: i32, exclusive: bool, reverse: bool) -> Output {
    let graph = x.graph();
    let axis = graph.constant_tensor(&Tensor::scalar(axis));
    graph.op(op).input(x).input(&axis).attr("exclusive", exclusive).attr("reverse", reverse).output()
}

/// Adds an op with another's axis and attributes; `flips` reverses its direction.
fn like(args: &GradientArgs<'_>, op: &str, x: &Output, flips: bool) -> Result<Output> {
    let attrs = args.op.attrs();
    let builder = x.graph().op(op).input(x).input(&args.input(1)).attr("exclusive", attrs.bool("exclusive")?);
    Ok(builder.attr("reverse", attrs.bool("reverse")? != flips).try_build()?.output(0))
}

fn cumsum_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, _, _| like(args, "Cumsum", grad, true))
}

fn cumprod_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, _| {
        let product = like(args, "Cumprod", x, false)?;
        let total = like(args, "Cumsum", &binary("Mul", &product, grad)?, true)?;
        binary("DivNoNan", &total, x)
    })
}

/// Positive and negative parts of the gradient are summed separately, since their logarithms are taken.
fn cumulative_logsumexp_gradient(args: &GradientArgs<'_>) -> Gradients {
    unary_gradient(args, |grad, x, y| {
        let zero = scalar(grad, 0.0)?;
        let lowest = match grad.dtype() {
            tensor::DType::Double => f64::MIN,
            tensor::DType::Half => f16::MIN.to_f64(),
            tensor::DType::BFloat16 => bf16::MIN.to_f64(),
            _ => f64::from(f32::MIN),
        };
        let lowest = scalar(grad, lowest)?;
        let part = |has_sign: &Output, size: &Output| -> Result<Output> {
            let log = select(has_sign, &unary("Log", size)?, &lowest)?;
            let total = like(args, "CumulativeLogsumexp", &binary("Sub", &log, y)?, true)?;
            unary("Exp", &binary("AddV2", &total, x)?)
        };
        let positive = part(&binary("Greater", grad, &zero)?, grad)?;
        let negative = part(&binary("Less", grad, &zero)?, &unary("Neg", grad)?)?;
        binary("Sub", &positive, &negative)
    })
}

fn log_sum_exp(x: f64, y: f64) -> f64 {
    let (low, high) = if x < y { (x, y) } else { (y, x) };
    if high == f64::NEG_INFINITY { high } else { high + (low - high).exp().ln_1p() }
}

struct Running<T, F> {
    exclusive: bool,
    reverse: bool,
    initial: T,
    combine: F,
    element: PhantomData<fn(T)>,
}

impl<T: Element, F: Fn(T, T) -> T + Send + Sync + 'static> Running<T, F> {
    fn boxed(builder: &KernelBuilder<'_>, initial: T, combine: F) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let (exclusive, reverse) = (attrs.bool("exclusive")?, attrs.bool("reverse")?);
        BoxedKernel::new(Running { exclusive, reverse, initial, combine, element: PhantomData::<fn(T)> })
    }
}

impl<T: Element, F: Fn(T, T) -> T + Send + Sync> Kernel for Running<T, F> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, axis) = (context.input(0)?, context.input(1)?);
        if !axis.shape().is_scalar() {
            return Err(Status::invalid_argument(format!("ScanOp: axis must be a scalar, not {}", axis.shape())));
        }
        let shape = input.shape();
        let (rank, axis) = (shape.rank() as i64, axis.to_index()?);
        if axis < -rank || axis >= rank {
            return Err(Status::invalid_argument(format!(
                "ScanOp: Expected scan axis in the range [{}, {rank}), but got {axis}",
                -rank
            )));
        }
        let axis = (if axis < 0 { axis + rank } else { axis }) as usize;
        let dims = shape.to_usize();
        let (len, inner): (usize, usize) = (dims[axis], dims[axis + 1..].iter().product());
        let values = input.as_slice::<T>()?;
        let output = Tensor::build(shape.clone(), |out: &mut [T]| {
            if out.is_empty() {
                return;
            }
            let block = len * inner;
            parallel::for_each_chunk_mut(out, block, block as f64, |first, out| {
                let values = &values[first * block..][..out.len()];
                for (values, out) in values.chunks_exact(block).zip(out.chunks_exact_mut(block)) {
                    self.run(values, out, len, inner);
                }
            });
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

impl<T: Element, F: Fn(T, T) -> T> Running<T, F> {
    /// Accumulates along the axis of one block of `len` rows of `inner` elements.
    fn run(&self, values: &[T], out: &mut [T], len: usize, inner: usize) {
        let mut totals = vec![self.initial; inner];
        for step in 0..len {
            let row = if self.reverse { len - 1 - step } else { step };
            let range = row * inner..(row + 1) * inner;
            for ((total, &value), out) in totals.iter_mut().zip(&values[range.clone()]).zip(&mut out[range]) {
                let next = (self.combine)(*total, value);
                *out = if self.exclusive { *total } else { next };
                *total = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, run_op};

    #[test]
    fn running_totals() {
        let x = Tensor::from_slice(&[2, 3], &[1i32, 2, 3, 4, 5, 6]).unwrap();
        let run = |op: &str, axis: i32, exclusive: bool, reverse: bool| {
            let attrs = attrs![("exclusive", exclusive), ("reverse", reverse)];
            run_op(op, attrs, &[x.clone(), Tensor::scalar(axis)]).unwrap()[0].as_slice::<i32>().unwrap().to_vec()
        };
        assert_eq!(run("Cumsum", 1, false, false), [1, 3, 6, 4, 9, 15]);
        assert_eq!(run("Cumsum", -1, true, true), [5, 3, 0, 11, 6, 0]);
        assert_eq!(run("Cumsum", 0, false, false), [1, 2, 3, 5, 7, 9]);
        assert_eq!(run("Cumprod", 1, true, false), [1, 1, 2, 1, 4, 20]);
        assert!(run_op("Cumsum", attrs![], &[x, Tensor::scalar(2i32)]).is_err());
    }

    #[test]
    fn logarithms_of_sums() {
        let x = Tensor::vector(&[0f32, 0.0, 1000.0]);
        let y = run_op("CumulativeLogsumexp", attrs![], &[x, Tensor::scalar(0i32)]).unwrap();
        let y = y[0].as_slice::<f32>().unwrap();
        assert!(y[0] == 0.0 && (y[1] - std::f32::consts::LN_2).abs() < 1e-6 && y[2] == 1000.0, "{y:?}");
    }

    #[test]
    fn gradients() {
        let x = Tensor::from_slice(&[2, 3], &[1f64, -2., 3., 4., 0.5, 6.]).unwrap();
        for exclusive in [false, true] {
            for reverse in [false, true] {
                for op in ["Cumsum", "Cumprod", "CumulativeLogsumexp"] {
                    // The logarithm of an empty sum is infinite, so differences with it can't be taken.
                    if exclusive && op == "CumulativeLogsumexp" {
                        continue;
                    }
                    check_gradient(std::slice::from_ref(&x), |_, x| running(op, &x[0], 1, exclusive, reverse));
                }
            }
        }
    }
}
