//! Tensors of independent random numbers: RandomUniform, RandomUniformInt, RandomStandardNormal, TruncatedNormal.

use super::generator::{Generator, output_of_shape, shape_argument};
use graph::{Graph, Output};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, ShapeContext, kernels};
use numeric::philox::{self, Philox, RandomInteger};
use std::fmt::Display;
use std::marker::PhantomData;
use tensor::{DType, Element, PartialShape, Result, Status, Tensor, bf16, f16};

const FLOATS: &[&str] =
    &["seed: int = 0", "seed2: int = 0", "dtype: {half, bfloat16, float, double}", "T: {int32, int64}"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "RandomUniform",
            inputs: &["shape: T"],
            outputs: &["output: dtype"],
            attrs: FLOATS,
            flags: OpFlags::STATEFUL,
        },
        shape: output_of_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: float_kernels!(Uniform),
    },
    Op {
        def: OpDef {
            name: "RandomStandardNormal",
            inputs: &["shape: T"],
            outputs: &["output: dtype"],
            attrs: FLOATS,
            flags: OpFlags::STATEFUL,
        },
        shape: output_of_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: float_kernels!(StandardNormal),
    },
    Op {
        def: OpDef {
            name: "TruncatedNormal",
            inputs: &["shape: T"],
            outputs: &["output: dtype"],
            attrs: FLOATS,
            flags: OpFlags::STATEFUL,
        },
        shape: output_of_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: float_kernels!(TruncatedNormal),
    },
    Op {
        def: OpDef {
            name: "RandomUniformInt",
            inputs: &["shape: T", "minval: Tout", "maxval: Tout"],
            outputs: &["output: Tout"],
            attrs: &["seed: int = 0", "seed2: int = 0", "Tout: {int32, int64}", "T: {int32, int64}"],
            flags: OpFlags::STATEFUL,
        },
        shape: uniform_int_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("Tout": [i32, i64] => RandomUniformInt),
    },
];

#[track_caller]
fn random(shape: &Output, op: &str, dtype: DType, seed: Option<i64>) -> Output {
    let (seed, seed2) = shape.graph().random_seeds(seed);
    let op = shape.graph().op(op).input(shape).attr("dtype", dtype);
    op.attr("seed", seed).attr("seed2", seed2).output()
}

/// Returns numbers between 0 (included) and 1 (excluded).
#[track_caller]
pub fn random_uniform(shape: &Output, dtype: DType, seed: Option<i64>) -> Output {
    random(shape, "RandomUniform", dtype, seed)
}

/// Returns standard normal numbers.
#[track_caller]
pub fn random_standard_normal(shape: &Output, dtype: DType, seed: Option<i64>) -> Output {
    random(shape, "RandomStandardNormal", dtype, seed)
}

/// Returns standard normal numbers, truncated at -2 and 2 by redrawing.
#[track_caller]
pub fn truncated_normal(shape: &Output, dtype: DType, seed: Option<i64>) -> Output {
    random(shape, "TruncatedNormal", dtype, seed)
}

/// Returns integers from `minval` up to, but excluding, `maxval`.
#[track_caller]
pub fn random_uniform_int(shape: &Output, minval: &Output, maxval: &Output, seed: Option<i64>) -> Output {
    let graph: &Graph = shape.graph();
    let (seed, seed2) = graph.random_seeds(seed);
    let op = graph.op("RandomUniformInt").input(shape).input(minval).input(maxval);
    op.attr("seed", seed).attr("seed2", seed2).output()
}

fn uniform_int_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(1, 0)?;
    c.with_rank(2, 0)?;
    let shape: PartialShape = c.constant_as_shape(0)?;
    c.set_output(0, shape);
    Ok(())
}

/// A distribution of numbers of a type.
pub(super) trait Distribution<T>: Send + Sync + 'static {
    /// Fills a slice from a stream.
    fn fill(philox: Philox, out: &mut [T]);
}

pub(super) struct Uniform;
pub(super) struct StandardNormal;
pub(super) struct TruncatedNormal;
/// Integers over the whole range of their type.
pub(super) struct FullRange;

macro_rules! distributions {
    ($($distribution:ident, $fill:ident: [$($ty:ty),*];)*) => {$($(
        impl Distribution<$ty> for $distribution {
            fn fill(philox: Philox, out: &mut [$ty]) {
                philox::$fill(philox, out);
            }
        }
    )*)*};
}

distributions! {
    Uniform, fill_uniform: [f32, f64, f16, bf16];
    StandardNormal, fill_standard_normal: [f32, f64, f16, bf16];
    TruncatedNormal, fill_truncated_normal: [f32, f64, f16, bf16];
    FullRange, fill_full_range_integers: [i32, i64, u32, u64];
}

struct RandomFill<T, D> {
    generator: Generator,
    types: PhantomData<fn() -> (T, D)>,
}

impl<T: Element, D: Distribution<T>> RandomFill<T, D> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(RandomFill::<T, D> { generator: Generator::new(builder)?, types: PhantomData })
    }
}

impl<T: Element, D: Distribution<T>> Kernel for RandomFill<T, D> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = shape_argument(context.input(0)?)?;
        let philox = self.generator.reserve_outputs(shape.num_elements());
        let output = Tensor::build(shape, |out: &mut [T]| D::fill(philox, out))?;
        context.set_output(0, output);
        Ok(())
    }
}

struct RandomUniformInt<T> {
    generator: Generator,
    element: PhantomData<fn() -> T>,
}

impl<T: Element + RandomInteger + PartialOrd + Display> RandomUniformInt<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(RandomUniformInt::<T> { generator: Generator::new(builder)?, element: PhantomData })
    }
}

impl<T: Element + RandomInteger + PartialOrd + Display> Kernel for RandomUniformInt<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = shape_argument(context.input(0)?)?;
        let (low, high) = (bound::<T>(context, 1, "minval")?, bound::<T>(context, 2, "maxval")?);
        if shape.num_elements() == 0 {
            context.set_output(0, Tensor::zeros(T::DTYPE, shape)?);
            return Ok(());
        }
        check_range(low, high)?;
        let philox = self.generator.reserve_outputs(shape.num_elements());
        let output = Tensor::build(shape, |out: &mut [T]| philox::fill_uniform_integers(philox, low, high, out))?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns a bound of a range of integers.
pub(super) fn bound<T: Element>(context: &OpContext<'_>, index: usize, name: &str) -> Result<T> {
    let tensor = context.input(index)?;
    if !tensor.shape().is_scalar() {
        return Err(Status::invalid_argument(format!("{name} must be 0-D, got shape {}", tensor.shape())));
    }
    tensor.to_scalar()
}

/// Checks that a range of integers isn't empty.
pub(super) fn check_range<T: PartialOrd + Display>(low: T, high: T) -> Result<()> {
    if low < high {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("Need minval < maxval, got {low} >= {high}")))
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestSession, attrs, infer, run_op};
    use graph::AttrMap;
    use tensor::{Code, DType, Tensor};

    fn twice(op: &str, attrs: AttrMap, inputs: &[Tensor]) -> [Tensor; 2] {
        let session = TestSession::new();
        let mut builder = session.graph.op(op).attr("seed", 3i64).attr("seed2", 7i64);
        let placeholders: Vec<_> = inputs.iter().map(|input| session.placeholder(input.dtype())).collect();
        builder = builder.inputs(&placeholders);
        for (name, value) in attrs {
            builder = builder.attr(&name, value);
        }
        let output = builder.output();
        let feeds: Vec<_> = placeholders.iter().zip(inputs.iter().cloned()).collect();
        [session.fetch(&output, &feeds).unwrap(), session.fetch(&output, &feeds).unwrap()]
    }

    fn floats(op: &str) -> [Tensor; 2] {
        twice(op, attrs![("dtype", DType::Float)], &[Tensor::vector(&[5i32])])
    }

    #[test]
    fn the_numbers_are_tensorflows() {
        let [first, second] = floats("RandomUniform");
        assert_eq!(first.as_slice::<f32>().unwrap(), &[0.7300215, 0.5961578, 0.37875235, 0.038805723, 0.7283852]);
        assert_eq!(second.as_slice::<f32>().unwrap(), &[0.018206239, 0.14788377, 0.061796904, 0.5092071, 0.5942911]);
        let close = |tensor: &Tensor, expected: [f32; 5]| {
            let values = tensor.as_slice::<f32>().unwrap();
            let near = |(value, expected): (&f32, f32)| (value - expected).abs() <= 2e-6;
            assert!(values.iter().zip(expected).all(near), "{values:?}");
        };
        let [first, second] = floats("RandomStandardNormal");
        close(&first, [-0.45067555, -0.6528815, 0.3364032, 1.3522494, 0.7076454]);
        close(&second, [2.2676344, 1.694053, -0.13642834, -2.3556721, 0.5309651]);
        let [first, second] = floats("TruncatedNormal");
        close(&first, [-0.45067555, -0.6528815, 0.3364032, 1.3522494, 1.3565425]);
        close(&second, [1.694053, -0.13642834, 0.5309651, 0.8711189, 0.32609048]);
        let [first, second] = twice("RandomUniform", attrs![("dtype", DType::Double)], &[Tensor::vector(&[5i64])]);
        assert_eq!(first.as_slice::<f64>().unwrap()[..2], [0.8401725955235917, 0.030018877310316494]);
        assert_eq!(second.as_slice::<f64>().unwrap()[4], 0.8919544881651502);
    }

    #[test]
    fn integers_are_tensorflows() {
        let shape = Tensor::vector(&[5i32]);
        let inputs = [shape.clone(), Tensor::scalar(-3i32), Tensor::scalar(100i32)];
        let [first, second] = twice("RandomUniformInt", attrs![], &inputs);
        assert_eq!(first.as_slice::<i32>().unwrap(), &[84, 31, 74, 69, 84]);
        assert_eq!(second.as_slice::<i32>().unwrap(), &[5, 18, 42, 60, 24]);
        let inputs = [shape.clone(), Tensor::scalar(-3i64), Tensor::scalar(100i64)];
        let [first, second] = twice("RandomUniformInt", attrs![], &inputs);
        assert_eq!(first.as_slice::<i64>().unwrap(), &[63, 78, 15, 15, 76]);
        assert_eq!(second.as_slice::<i64>().unwrap(), &[92, 97, 22, 61, 46]);
        let empty = run_op("RandomUniformInt", attrs![], &[shape, Tensor::scalar(5i32), Tensor::scalar(5i32)]);
        assert!(empty.unwrap_err().message().starts_with("Need minval < maxval, got 5 >= 5"));
    }

    #[test]
    fn without_seeds_every_session_has_its_own_numbers() {
        let draw = || run_op("RandomUniform", attrs![("dtype", DType::Double)], &[Tensor::vector(&[4i32])]).unwrap();
        assert_ne!(draw()[0].as_slice::<f64>().unwrap(), draw()[0].as_slice::<f64>().unwrap());
    }

    #[test]
    fn shapes() {
        let constant = [(0, Tensor::vector(&[2i32, 3]))];
        let shapes = infer("RandomUniform", attrs![("T", DType::Int32)], "[2]", &constant).unwrap();
        assert_eq!(shapes[0].to_string(), "[2,3]");
        let shapes = infer("RandomUniform", attrs![("T", DType::Int32)], "[2]", &[]).unwrap();
        assert_eq!(shapes[0].to_string(), "[?,?]");
        for (shape, message) in [
            (Tensor::from_slice(&[1, 1], &[5i32]).unwrap(), "shape must be a vector of {int32,int64}, got shape [1,1]"),
            (Tensor::vector(&[-5i32]), "Dimension -5 must be >= 0"),
        ] {
            let status = run_op("RandomUniform", attrs![("dtype", DType::Float)], &[shape]).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().starts_with(message), "{status}");
        }
    }
}
