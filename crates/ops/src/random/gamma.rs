//! Gamma and Poisson numbers: RandomGamma, RandomPoisson, RandomPoissonV2.

use super::generator::{Generator, shape_argument};
use crate::compose::{Gradients, binary, int_scalar, sum, ternary, unary};
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use num_traits::{AsPrimitive, Bounded};
use numeric::philox::{self, Philox};
use tensor::{DType, Element, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "RandomGamma",
            inputs: &["shape: S", "alpha: T"],
            outputs: &["output: T"],
            attrs: &["seed: int = 0", "seed2: int = 0", "S: {int32, int64}", "T: {half, float, double}"],
            flags: OpFlags::STATEFUL,
        },
        shape: per_parameter_shape,
        gradient: Gradient::Fn(gamma_gradient),
        kernels: &[KernelDef::any(|builder| RandomByParameter::create(builder, philox::random_gamma))],
    },
    Op {
        def: OpDef {
            name: "RandomPoisson",
            inputs: &["shape: S", "rate: dtype"],
            outputs: &["output: dtype"],
            attrs: &["seed: int = 0", "seed2: int = 0", "S: {int32, int64}", "dtype: {half, float, double}"],
            flags: OpFlags::STATEFUL,
        },
        shape: per_parameter_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| RandomByParameter::create(builder, philox::random_poisson))],
    },
    Op {
        def: OpDef {
            name: "RandomPoissonV2",
            inputs: &["shape: S", "rate: R"],
            outputs: &["output: dtype"],
            attrs: &[
                "seed: int = 0",
                "seed2: int = 0",
                "S: {int32, int64}",
                "R: {half, float, double, int32, int64} = DT_DOUBLE",
                "dtype: {half, float, double, int32, int64} = DT_INT64",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: per_parameter_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| RandomByParameter::create(builder, philox::random_poisson))],
    },
];

/// Returns gamma numbers of shape `shape` for each of `alpha`'s elements.
#[track_caller]
pub fn random_gamma(shape: &Output, alpha: &Output, seed: Option<i64>) -> Output {
    let (seed, seed2) = shape.graph().random_seeds(seed);
    let op = shape.graph().op("RandomGamma").input(shape).input(alpha);
    op.attr("seed", seed).attr("seed2", seed2).output()
}

/// Returns Poisson numbers of shape `shape` for each of `rate`'s elements.
#[track_caller]
pub fn random_poisson_v2(shape: &Output, rate: &Output, seed: Option<i64>, dtype: DType) -> Output {
    let (seed, seed2) = shape.graph().random_seeds(seed);
    let op = shape.graph().op("RandomPoissonV2").input(shape).input(rate).attr("dtype", dtype);
    op.attr("seed", seed).attr("seed2", seed2).output()
}

/// Differentiates each sample with respect to its parameter, at a fixed quantile.
fn gamma_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let graph = grad.graph();
    let slope = binary("RandomGammaGrad", &args.input(1), &args.output(0))?;
    // The axes of the samples precede those of the parameter.
    let count = unary("Size", &args.input(0))?;
    let axes = ternary("Range", &int_scalar(graph, 0)?, &count, &int_scalar(graph, 1)?)?;
    Ok(vec![None, Some(sum(&binary("Mul", &grad, &slope)?, &axes, false)?.into())])
}

/// The output has the shape in the first input, followed by that of the parameters.
fn per_parameter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.constant_as_shape(0)?.concat(&c.input(1));
    c.set_output(0, shape);
    Ok(())
}

type Draw = fn(Philox, &[f64], usize, &mut [f64]);

struct RandomByParameter {
    generator: Generator,
    draw: Draw,
    output: DType,
}

impl RandomByParameter {
    fn create(builder: &KernelBuilder<'_>, draw: Draw) -> Result<BoxedKernel> {
        let generator = Generator::new(builder)?;
        BoxedKernel::new(RandomByParameter { generator, draw, output: builder.output_dtype(0) })
    }
}

impl Kernel for RandomByParameter {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = shape_argument(context.input(0)?)?;
        let parameters = context.input(1)?;
        let samples = shape.num_elements();
        let shape = shape.concat(parameters.shape())?;
        let parameters = to_doubles(parameters)?;
        if shape.num_bytes(size_of::<f64>())? > tensor::tensor_bytes_max() {
            return Err(Status::resource_exhausted(format!("out of memory: can't draw numbers of shape {shape}")));
        }
        let mut values = vec![0f64; shape.num_elements()];
        if !values.is_empty() {
            let philox = self.generator.reserve_outputs(values.len());
            (self.draw)(philox, &parameters, samples, &mut values);
        }
        let output = numbers_tensor(self.output, shape, &values)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns numbers as a tensor of a type.
pub(super) fn numbers_tensor(dtype: DType, shape: Shape, values: &[f64]) -> Result<Tensor> {
    match dtype {
        DType::Float => converted::<f32>(shape, values),
        DType::Double => converted::<f64>(shape, values),
        DType::Half => Tensor::build(shape, |out: &mut [f16]| {
            out.iter_mut().zip(values).for_each(|(out, &value)| *out = f16::from_f64(value));
        }),
        DType::Int32 => converted::<i32>(shape, values),
        DType::Int64 => converted::<i64>(shape, values),
        other => Err(Status::unimplemented(format!("random numbers of type {other}"))),
    }
}

fn converted<T: Element + Bounded>(shape: Shape, values: &[f64]) -> Result<Tensor>
where
    f64: AsPrimitive<T>,
{
    Tensor::build(shape, |out: &mut [T]| out.iter_mut().zip(values).for_each(|(out, &value)| *out = value.as_()))
}

pub(super) fn to_doubles(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(match tensor.dtype() {
        DType::Float => tensor.as_slice::<f32>()?.iter().map(|&value| f64::from(value)).collect(),
        DType::Double => tensor.as_slice::<f64>()?.to_vec(),
        DType::Half => tensor.as_slice::<f16>()?.iter().map(|&value| f64::from(value)).collect(),
        DType::BFloat16 => tensor.as_slice::<bf16>()?.iter().map(|&value| f64::from(value)).collect(),
        DType::Int32 => tensor.as_slice::<i32>()?.iter().map(|&value| f64::from(value)).collect(),
        DType::Int64 => tensor.as_slice::<i64>()?.iter().map(|&value| value as f64).collect(),
        other => return Err(Status::unimplemented(format!("parameters of type {other}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestSession, attrs, check_shape};

    fn twice(op: &str, parameters: Tensor, dtype: Option<DType>) -> [Tensor; 2] {
        let session = TestSession::new();
        let (shape, parameter) = (session.placeholder(DType::Int32), session.placeholder(parameters.dtype()));
        let mut op = session.graph.op(op).input(&shape).input(&parameter).attr("seed", 3i64).attr("seed2", 7i64);
        if let Some(dtype) = dtype {
            op = op.attr("dtype", dtype);
        }
        let output = op.output();
        let feeds = [(&shape, Tensor::vector(&[3i32])), (&parameter, parameters)];
        [session.fetch(&output, &feeds).unwrap(), session.fetch(&output, &feeds).unwrap()]
    }

    #[test]
    fn gamma_numbers_are_tensorflows() {
        let [first, second] = twice("RandomGamma", Tensor::vector(&[0.5f64, 2.0]), None);
        let expected = [
            1.307596429652203,
            1.2996970716611704,
            0.021732080363560596,
            0.7113094170713432,
            0.23523142912956552,
            0.20030208785535777,
        ];
        assert_eq!(first.dims(), &[3, 2]);
        for (value, expected) in first.as_slice::<f64>().unwrap().iter().zip(expected) {
            assert!((value - expected).abs() < 1e-12, "{value} instead of {expected}");
        }
        assert!((second.as_slice::<f64>().unwrap()[4] - 4.451909419123988).abs() < 1e-12);
        let [first, _] = twice("RandomGamma", Tensor::vector(&[0.5f32, 2.0]), None);
        assert!((first.as_slice::<f32>().unwrap()[0] - 1.3075964).abs() < 1e-6);
    }

    #[test]
    fn poisson_numbers_are_tensorflows() {
        let [first, second] = twice("RandomPoissonV2", Tensor::vector(&[0.5f32, 20.0]), Some(DType::Int64));
        assert_eq!(first.as_slice::<i64>().unwrap(), &[0, 21, 0, 18, 0, 20]);
        assert_eq!(second.as_slice::<i64>().unwrap(), &[0, 16, 0, 22, 0, 22]);
    }

    #[test]
    fn shapes() {
        check_shape("RandomGamma", attrs![("S", DType::Int32)], "[2];[3]", "[?,?,3]");
    }
}
