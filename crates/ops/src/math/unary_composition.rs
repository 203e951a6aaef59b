//! _UnaryOpsComposition: several unary functions in a row. TensorFlow's optimizer creates it, and its masters send it.

use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels, shape};
use num_traits::Float;
use numeric::parallel;
use numeric::simd_math::SimdMath;
use tensor::{Element, Result, Status, Tensor, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "_UnaryOpsComposition",
        inputs: &["x: T"],
        outputs: &["y: T"],
        attrs: &["T: {float, half, double}", "op_names: list(string)"],
        flags: OpFlags::NONE,
    },
    shape: shape::unchanged,
    gradient: Gradient::Unsupported,
    kernels: kernels!("T": [f32, f16, f64] => Composition),
}];

struct Composition<T> {
    functions: Vec<fn(T) -> T>,
}

impl<T: Element + Float + SimdMath> Composition<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let names = builder.attrs().strings("op_names")?;
        let functions = names.iter().map(|name| function(&String::from_utf8_lossy(name)));
        BoxedKernel::new(Composition::<T> { functions: functions.collect::<Result<_>>()? })
    }
}

impl<T: Element + Float + SimdMath> Kernel for Composition<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        /// A block that fits into the first-level cache.
        const BLOCK: usize = 1024;
        const COST_NS: f64 = 4.0;
        let input = context.take_input(0)?;
        let from = input.as_slice::<T>()?;
        let output = Tensor::build(input.shape().clone(), |to: &mut [T]| {
            parallel::for_each_chunk_mut(to, 1, COST_NS * self.functions.len() as f64, |first, to| {
                to.copy_from_slice(&from[first..first + to.len()]);
                for block in to.chunks_mut(BLOCK) {
                    for function in &self.functions {
                        block.iter_mut().for_each(|value| *value = function(*value));
                    }
                }
            });
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the function that an op computes.
fn function<T: Element + Float + SimdMath>(op: &str) -> Result<fn(T) -> T> {
    fn of<T: Float>(value: f64) -> T {
        T::from(value).unwrap_or_else(T::nan)
    }
    fn round<T: Float>(x: T) -> T {
        x.to_f64().map_or(x, |x| of(x.round_ties_even()))
    }
    const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
    const SELU_SCALE_ALPHA: f64 = 1.758_099_340_847_376_6;
    let function: fn(T) -> T = match op {
        "Abs" => |x| x.abs(),
        "Acos" => |x| x.acos(),
        "Acosh" => |x| x.acosh(),
        "Asin" => |x| x.asin(),
        "Asinh" => |x| x.asinh(),
        "Atan" => |x| x.atan(),
        "Atanh" => |x| x.atanh(),
        "Ceil" => |x| x.ceil(),
        "Cos" => |x| x.cos(),
        "Cosh" => |x| x.cosh(),
        "Elu" => |x| if x < T::zero() { x.simd_expm1() } else { x },
        "Exp" => |x| x.simd_exp(),
        "Expm1" => |x| x.simd_expm1(),
        "Floor" => |x| x.floor(),
        "Inv" | "Reciprocal" => |x| T::one() / x,
        "Log" => |x| x.simd_log(),
        "Log1p" => |x| x.simd_log1p(),
        "Neg" => |x| -x,
        "Relu" => |x| if x < T::zero() { T::zero() } else { x },
        "Relu6" => |x| {
            if x < T::zero() {
                T::zero()
            } else if x > of(6.0) {
                of(6.0)
            } else {
                x
            }
        },
        "Rint" | "Round" => round,
        "Rsqrt" => |x| x.simd_rsqrt(),
        "Selu" => |x| if x < T::zero() { x.simd_expm1() * of(SELU_SCALE_ALPHA) } else { x * of(SELU_SCALE) },
        "Sigmoid" => |x| x.simd_sigmoid(),
        "Sin" => |x| x.sin(),
        "Sinh" => |x| x.sinh(),
        "Sqrt" => |x| x.simd_sqrt(),
        "Square" => |x| x * x,
        "Tan" => |x| x.tan(),
        "Tanh" => |x| x.simd_tanh(),
        other => {
            return Err(Status::invalid_argument(format!("Do not have a compute function registered for op: {other}")));
        }
    };
    Ok(function)
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use tensor::Tensor;

    #[test]
    fn functions_follow_each_other() {
        let names = ["Neg", "Relu", "Square"];
        let y = run_op("_UnaryOpsComposition", attrs![("op_names", &names[..])], &[Tensor::vector(&[-3f32, 2.0])]);
        assert_eq!(y.unwrap()[0].as_slice::<f32>().unwrap(), [9.0, 0.0]);
        let x = [Tensor::vector(&[0.3f64, -0.7, 1.5])];
        for op in ["Abs", "Exp", "Tanh", "Sigmoid", "Selu", "Elu", "Round", "Expm1", "Sin", "Atan", "Relu6", "Floor"] {
            let one = run_op(op, attrs![], &x).unwrap();
            let names = [op];
            let composed = run_op("_UnaryOpsComposition", attrs![("op_names", &names[..])], &x).unwrap();
            let pairs = one[0].as_slice::<f64>().unwrap().iter().zip(composed[0].as_slice::<f64>().unwrap());
            pairs.for_each(|(one, composed)| assert!((one - composed).abs() < 1e-12, "{op}: {one} {composed}"));
        }
        let unknown = ["MatMul"];
        assert!(run_op("_UnaryOpsComposition", attrs![("op_names", &unknown[..])], &x).is_err());
    }
}
