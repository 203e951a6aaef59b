//! Random ops whose numbers depend only on their seed: the Stateless family in both versions, and the ops that convert a seed to
//! the key and counter for the second version.

use super::discrete::{draw_classes, multinomial_arguments, multinomial_shape, shuffled};
use super::fill::{Distribution, FullRange, StandardNormal, TruncatedNormal, Uniform, bound, check_range};
use super::generator::{output_of_shape, shape_argument};
use graph::Output;
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
    kernels, shape,
};
use numeric::philox::{self, Philox, RandomInteger};
use std::fmt::Display;
use std::marker::PhantomData;
use tensor::{DType, Element, PartialShape, Result, Status, Tensor, bf16, f16};

const BY_SEED: &[&str] = &[
    "dtype: {half, bfloat16, float, double} = DT_FLOAT",
    "T: {int32, int64} = DT_INT32",
    "Tseed: {int32, int64} = DT_INT64",
];
const BY_KEY: &[&str] = &["dtype: {half, bfloat16, float, double} = DT_FLOAT", "Tshape: {int32, int64} = DT_INT32"];
const KEY_INPUTS: &[&str] = &["shape: Tshape", "key: uint64", "counter: uint64", "alg: int32"];
const SEED: &str = "Tseed: {int32, int64} = DT_INT64";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    by_seed("StatelessRandomUniform", float_kernels!(Uniform)),
    by_seed("StatelessRandomNormal", float_kernels!(StandardNormal)),
    by_seed("StatelessTruncatedNormal", float_kernels!(TruncatedNormal)),
    by_key("StatelessRandomUniformV2", float_kernels!(Uniform)),
    by_key("StatelessRandomNormalV2", float_kernels!(StandardNormal)),
    by_key("StatelessTruncatedNormalV2", float_kernels!(TruncatedNormal)),
    Op {
        def: OpDef {
            name: "StatelessRandomUniformInt",
            inputs: &["shape: T", "seed: Tseed", "minval: dtype", "maxval: dtype"],
            outputs: &["output: dtype"],
            attrs: &["dtype: {int32, int64}", "T: {int32, int64}", SEED],
            flags: OpFlags::NONE,
        },
        shape: output_of_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("dtype": [i32, i64] => UniformInt),
    },
    Op {
        def: OpDef {
            name: "StatelessRandomUniformIntV2",
            inputs: &[
                "shape: Tshape",
                "key: uint64",
                "counter: uint64",
                "alg: int32",
                "minval: dtype",
                "maxval: dtype",
            ],
            outputs: &["output: dtype"],
            attrs: &["dtype: {int32, int64, uint32, uint64}", "Tshape: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: output_of_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("dtype": [i32, i64, u32, u64] => UniformInt),
    },
    Op {
        def: OpDef {
            name: "StatelessRandomUniformFullInt",
            inputs: &["shape: T", "seed: Tseed"],
            outputs: &["output: dtype"],
            attrs: &[
                "dtype: {int32, int64, uint32, uint64} = DT_UINT64",
                "T: {int32, int64} = DT_INT32",
                "Tseed: {int32, int64, uint32, uint64} = DT_INT64",
            ],
            flags: OpFlags::NONE,
        },
        shape: output_of_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: FULL_RANGE,
    },
    Op {
        def: OpDef {
            name: "StatelessRandomUniformFullIntV2",
            inputs: KEY_INPUTS,
            outputs: &["output: dtype"],
            attrs: &["dtype: {int32, int64, uint32, uint64} = DT_UINT64", "Tshape: {int32, int64} = DT_INT32"],
            flags: OpFlags::NONE,
        },
        shape: output_of_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: FULL_RANGE,
    },
    Op {
        def: OpDef {
            name: "StatelessMultinomial",
            inputs: &["logits: T", "num_samples: int32", "seed: Tseed"],
            outputs: &["output: output_dtype"],
            attrs: &[
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
                SEED,
                "output_dtype: {int32, int64} = DT_INT64",
            ],
            flags: OpFlags::NONE,
        },
        shape: multinomial_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(StatelessMultinomial { output: builder.output_dtype(0) })
        })],
    },
    Op {
        def: OpDef {
            name: "StatelessShuffle",
            inputs: &["value: T", "key: uint64", "counter: uint64", "alg: int32"],
            outputs: &["output: T"],
            attrs: &["T: type"],
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(StatelessShuffle))],
    },
    Op {
        def: OpDef {
            name: "StatelessRandomGetKeyCounter",
            inputs: &["seed: Tseed"],
            outputs: &["key: uint64", "counter: uint64"],
            attrs: &[SEED],
            flags: OpFlags::NONE,
        },
        shape: key_counter_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(KeyCounter))],
    },
    Op {
        def: OpDef {
            name: "StatelessRandomGetKeyCounterAlg",
            inputs: &["seed: Tseed"],
            outputs: &["key: uint64", "counter: uint64", "alg: int32"],
            attrs: &[SEED],
            flags: OpFlags::NONE,
        },
        shape: key_counter_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(KeyCounter))],
    },
    Op {
        def: OpDef {
            name: "StatelessRandomGetAlg",
            inputs: &[],
            outputs: &["alg: int32"],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Algorithm))],
    },
];

const FULL_RANGE: &[KernelDef] = number_kernels!(@list "dtype", RandomFill, (FullRange), [i32, i64, u32, u64]);

/// The number of Philox among TensorFlow's algorithms, and that of "the best one", which is also Philox.
const PHILOX: i32 = 1;
const AUTO_SELECT: i32 = 3;

const fn by_seed(name: &'static str, kernels: &'static [KernelDef]) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &["shape: T", "seed: Tseed"],
            outputs: &["output: dtype"],
            attrs: BY_SEED,
            flags: OpFlags::NONE,
        },
        shape: output_of_shape,
        gradient: Gradient::NotDifferentiable,
        kernels,
    }
}

const fn by_key(name: &'static str, kernels: &'static [KernelDef]) -> Op {
    Op {
        def: OpDef { name, inputs: KEY_INPUTS, outputs: &["output: dtype"], attrs: BY_KEY, flags: OpFlags::NONE },
        shape: output_of_shape,
        gradient: Gradient::NotDifferentiable,
        kernels,
    }
}

/// Returns numbers between 0 and 1 that depend only on two seeds.
#[track_caller]
pub fn stateless_random_uniform(shape: &Output, seed: &Output, dtype: DType) -> Output {
    shape.graph().op("StatelessRandomUniform").input(shape).input(seed).attr("dtype", dtype).output()
}

/// Returns standard normal numbers that depend only on two seeds.
#[track_caller]
pub fn stateless_random_normal(shape: &Output, seed: &Output, dtype: DType) -> Output {
    shape.graph().op("StatelessRandomNormal").input(shape).input(seed).attr("dtype", dtype).output()
}

/// Returns standard normal numbers between -2 and 2 that depend only on two seeds.
#[track_caller]
pub fn stateless_truncated_normal(shape: &Output, seed: &Output, dtype: DType) -> Output {
    shape.graph().op("StatelessTruncatedNormal").input(shape).input(seed).attr("dtype", dtype).output()
}

fn key_counter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 1)?;
    c.set_output(0, PartialShape::from_dims(&[1]));
    c.set_output(1, PartialShape::from_dims(&[2]));
    c.set_output(2, PartialShape::scalar());
    Ok(())
}

/// Returns the stream for an op's seed, or for its key and counter.
fn stream(context: &OpContext<'_>, first: usize) -> Result<Philox> {
    let input = context.input(first)?;
    // Only the second version takes `uint64`s followed by the number of the algorithm.
    if input.dtype() != DType::UInt64 || context.num_inputs() < first + 3 {
        return Ok(Philox::from_stateless_seed(seeds(input)?));
    }
    let algorithm = context.scalar::<i32>(first + 2, "alg")?;
    if algorithm != PHILOX && algorithm != AUTO_SELECT {
        return Err(Status::invalid_argument(format!("Unsupported algorithm id: {algorithm}")));
    }
    let (key, counter) = (input, context.input(first + 1)?);
    if key.dims() != [1] {
        return Err(Status::invalid_argument(format!("key must have shape [1], not {}", key.shape())));
    }
    match counter.as_slice::<u64>()? {
        [low, high, ..] if counter.shape().is_vector() => Ok(Philox::from_state([*low, *high], key.to_scalar()?)),
        _ => Err(Status::invalid_argument(format!(
            "counter must be a vector with length at least 2; got shape: {}",
            counter.shape()
        ))),
    }
}

/// Returns the two seeds of a stateless op.
pub(super) fn seeds(tensor: &Tensor) -> Result<[u64; 2]> {
    if tensor.dims() != [2] {
        return Err(Status::invalid_argument(format!("seed must have shape [2], not {}", tensor.shape())));
    }
    let pair = |at: &dyn Fn(usize) -> u64| [at(0), at(1)];
    Ok(match tensor.dtype() {
        DType::Int32 => {
            let values = tensor.as_slice::<i32>()?;
            pair(&|index| i64::from(values[index]) as u64)
        }
        DType::Int64 => {
            let values = tensor.as_slice::<i64>()?;
            pair(&|index| values[index] as u64)
        }
        DType::UInt32 => {
            let values = tensor.as_slice::<u32>()?;
            pair(&|index| u64::from(values[index]))
        }
        _ => {
            let values = tensor.as_slice::<u64>()?;
            pair(&|index| values[index])
        }
    })
}

struct RandomFill<T, D>(PhantomData<fn() -> (T, D)>);

impl<T: Element, D: Distribution<T>> RandomFill<T, D> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(RandomFill::<T, D>(PhantomData))
    }
}

impl<T: Element, D: Distribution<T>> Kernel for RandomFill<T, D> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = shape_argument(context.input(0)?)?;
        let philox = stream(context, 1)?;
        let output = Tensor::build(shape, |out: &mut [T]| D::fill(philox, out))?;
        context.set_output(0, output);
        Ok(())
    }
}

struct UniformInt<T>(PhantomData<fn() -> T>);

impl<T: Element + RandomInteger + PartialOrd + Display> UniformInt<T> {
    fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(UniformInt::<T>(PhantomData))
    }
}

impl<T: Element + RandomInteger + PartialOrd + Display> Kernel for UniformInt<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = shape_argument(context.input(0)?)?;
        let philox = stream(context, 1)?;
        let last = context.num_inputs() - 1;
        let (low, high) = (bound::<T>(context, last - 1, "minval")?, bound::<T>(context, last, "maxval")?);
        check_range(low, high)?;
        let output = Tensor::build(shape, |out: &mut [T]| philox::fill_uniform_integers(philox, low, high, out))?;
        context.set_output(0, output);
        Ok(())
    }
}

struct StatelessMultinomial {
    output: DType,
}

impl Kernel for StatelessMultinomial {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (_, draws) = multinomial_arguments(context)?;
        let philox = Philox::from_stateless_seed(seeds(context.input(2)?)?);
        let output = draw_classes(context.input(0)?, draws, self.output, philox)?;
        context.set_output(0, output);
        Ok(())
    }
}

struct StatelessShuffle;

impl Kernel for StatelessShuffle {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let philox = stream(context, 1)?;
        let value = context.take_input(0)?;
        let rows = value.dims().first().copied().unwrap_or(0);
        let output = if rows <= 1 || value.num_elements() == 0 { value } else { shuffled(&value, philox)? };
        context.set_output(0, output);
        Ok(())
    }
}

struct KeyCounter;

impl Kernel for KeyCounter {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let philox = Philox::from_stateless_seed(seeds(context.input(0)?)?);
        context.set_output(0, Tensor::vector(&[philox.key()]));
        context.set_output(1, Tensor::vector(&philox.counter()));
        context.set_output(2, Tensor::scalar(PHILOX));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct Algorithm;

impl Kernel for Algorithm {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.set_output(0, Tensor::scalar(PHILOX));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, run_op};

    fn seed() -> Tensor {
        Tensor::vector(&[3i32, 7])
    }

    #[test]
    fn numbers_of_a_seed_are_tensorflows() {
        let shape = Tensor::vector(&[5i32]);
        let uniform = run_op("StatelessRandomUniform", attrs![], &[shape.clone(), seed()]).unwrap();
        let expected = [0.88220143, 0.028234124, 0.9534571, 0.003298521, 0.493901];
        assert_eq!(uniform[0].as_slice::<f32>().unwrap(), &expected);
        let normal = run_op("StatelessRandomNormal", attrs![], &[shape.clone(), seed()]).unwrap();
        assert!((normal[0].as_slice::<f32>().unwrap()[4] + 0.20377386).abs() < 2e-6);
        let truncated = run_op("StatelessTruncatedNormal", attrs![], &[shape.clone(), seed()]).unwrap();
        assert!((truncated[0].as_slice::<f32>().unwrap()[4] - 0.6313674).abs() < 2e-6);
        let inputs = [shape.clone(), seed(), Tensor::scalar(-3i32), Tensor::scalar(100i32)];
        let integers = run_op("StatelessRandomUniformInt", attrs![], &inputs).unwrap();
        assert_eq!(integers[0].as_slice::<i32>().unwrap(), &[70, 45, 5, 91, 93]);
        let whole = run_op("StatelessRandomUniformFullInt", attrs![], &[Tensor::vector(&[3i32]), seed()]).unwrap();
        let expected = [11133915520488762362, 8611001329579068130, 5367302131147552806];
        assert_eq!(whole[0].as_slice::<u64>().unwrap(), &expected);
        let logits = Tensor::from_slice(&[2, 4], &[0.1f32, 0.5, 0.2, 2.0, 1.0, 1.0, 1.0, 1.0]).unwrap();
        let classes = run_op("StatelessMultinomial", attrs![], &[logits, Tensor::scalar(7i32), seed()]).unwrap();
        assert_eq!(classes[0].as_slice::<i64>().unwrap(), &[0, 3, 3, 3, 3, 0, 1, 2, 2, 3, 3, 3, 1, 2]);
        let wrong = run_op("StatelessRandomUniform", attrs![], &[shape, Tensor::vector(&[1i64, 2, 3])]).unwrap_err();
        assert!(wrong.message().starts_with("seed must have shape [2], not [3]"), "{wrong}");
    }

    #[test]
    fn keys_and_counters_are_tensorflows() {
        let state = run_op("StatelessRandomGetKeyCounterAlg", attrs![], &[seed()]).unwrap();
        assert_eq!(state[0].as_slice::<u64>().unwrap(), &[9222191355702222625]);
        assert_eq!(state[1].as_slice::<u64>().unwrap(), &[0, 8674681144361816581]);
        assert_eq!(state[2].to_scalar::<i32>().unwrap(), 1);
        let with_state =
            |first: Tensor, algorithm: i32| vec![first, state[0].clone(), state[1].clone(), Tensor::scalar(algorithm)];
        let uniform = run_op("StatelessRandomUniformV2", attrs![], &with_state(Tensor::vector(&[5i32]), 1)).unwrap();
        assert_eq!(uniform[0].as_slice::<f32>().unwrap()[0], 0.88220143);
        let mut inputs = with_state(Tensor::vector(&[5i32]), 3);
        inputs.extend([Tensor::scalar(3i64), Tensor::scalar(100i64)]);
        let integers = run_op("StatelessRandomUniformIntV2", attrs![], &inputs).unwrap();
        assert_eq!(integers[0].as_slice::<i64>().unwrap(), &[95, 19, 40, 42, 44]);
        let values: Vec<i64> = (0..8).collect();
        let shuffled = run_op("StatelessShuffle", attrs![], &with_state(Tensor::vector(&values), 1)).unwrap();
        assert_eq!(shuffled[0].as_slice::<i64>().unwrap(), &[2, 5, 4, 1, 6, 7, 3, 0]);
        let wrong = run_op("StatelessRandomUniformV2", attrs![], &with_state(Tensor::vector(&[5i32]), 2)).unwrap_err();
        assert!(wrong.message().starts_with("Unsupported algorithm id: 2"), "{wrong}");
    }
}
