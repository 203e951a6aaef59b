//! Random numbers of parameters that are tensors: ParameterizedTruncatedNormal, StatelessRandomBinomial,
//! StatefulRandomBinomial.

use super::gamma::{numbers_tensor, to_doubles};
use super::generator::{Generator, output_of_shape, shape_argument};
use super::stateful::reserve;
use super::stateless::seeds;
use crate::array::broadcast;
use crate::elementwise::broadcast_plan;
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, kernels};
use numeric::philox::{self, BoundedFloat, BoundedNormal, BoundedNormalError, Philox};
use std::marker::PhantomData;
use tensor::{DType, Element, Result, Shape, Status, Tensor, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ParameterizedTruncatedNormal",
            inputs: &["shape: T", "means: dtype", "stdevs: dtype", "minvals: dtype", "maxvals: dtype"],
            outputs: &["output: dtype"],
            attrs: &["seed: int = 0", "seed2: int = 0", "dtype: {half, bfloat16, float, double}", "T: {int32, int64}"],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            for parameter in 1..5 {
                c.with_rank_at_most(parameter, 1)?;
            }
            output_of_shape(c)
        },
        gradient: Gradient::Unsupported,
        kernels: kernels!("dtype": [f32, f64, f16] => BoundedNormals),
    },
    Op {
        def: OpDef {
            name: "StatelessRandomBinomial",
            inputs: &["shape: S", "seed: Tseed", "counts: T", "probs: T"],
            outputs: &["output: dtype"],
            attrs: &[
                "S: {int32, int64}",
                "Tseed: {int32, int64} = DT_INT64",
                "T: {half, float, double, int32, int64} = DT_DOUBLE",
                "dtype: {half, float, double, int32, int64} = DT_INT64",
            ],
            flags: OpFlags::NONE,
        },
        shape: output_of_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(StatelessBinomial { output: builder.output_dtype(0) }))],
    },
    Op {
        def: OpDef {
            name: "StatefulRandomBinomial",
            inputs: &["resource: resource", "algorithm: int64", "shape: S", "counts: T", "probs: T"],
            outputs: &["output: dtype"],
            attrs: &[
                "S: {int32, int64}",
                "T: {half, float, double, int32, int64} = DT_DOUBLE",
                "dtype: {half, float, double, int32, int64} = DT_INT64",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            let shape = c.constant_as_shape(2)?;
            c.set_output(0, shape);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(StatefulBinomial { output: builder.output_dtype(0) }))],
    },
];

/// The batch size if all batches have the same parameters.
const BATCH: usize = 100;

struct BoundedNormals<T> {
    generator: Generator,
    element: PhantomData<fn() -> T>,
}

impl<T: Element + BoundedFloat + Default> BoundedNormals<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(BoundedNormals::<T> { generator: Generator::new(builder)?, element: PhantomData })
    }
}

impl<T: Element + BoundedFloat + Default> Kernel for BoundedNormals<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let shape = shape_argument(context.input(0)?)?;
        let Some(&rows) = shape.dims().first() else {
            return Err(Status::invalid_argument("Shape tensor must not be empty, got []"));
        };
        let mut parameters = Vec::with_capacity(4);
        for (index, name) in ["means", "stdevs", "minvals", "maxvals"].into_iter().enumerate() {
            let parameter = context.input(index + 1)?;
            if parameter.shape().rank() > 1 {
                return Err(Status::invalid_argument(format!(
                    "Input {name} should be a scalar or vector, got shape: {}",
                    parameter.shape()
                )));
            }
            parameters.push(parameter);
        }
        let is_single = |parameter: &&Tensor| parameter.num_elements() == 1;
        // TensorFlow treats this as one batch if the same parameters apply to all.
        let is_uniform = parameters[..2].iter().all(is_single)
            && parameters[2..].iter().all(|parameter| parameter.shape().is_scalar());
        if !is_uniform {
            for (parameter, name) in parameters.iter().zip(["means", "stdevs", "minvals", "maxvals"]) {
                if !is_single(parameter) && parameter.dims() != [rows] {
                    return Err(Status::invalid_argument(format!(
                        "Input {name} should have length 1 or shape[0], got shape: {}",
                        parameter.shape()
                    )));
                }
            }
        }
        let samples = if is_uniform { BATCH } else { shape.num_elements().checked_div(rows as usize).unwrap_or(0) };
        let slices = parameters.iter().map(|parameter| parameter.as_slice::<T>()).collect::<Result<Vec<_>>>()?;
        let at = |parameter: usize, batch: usize| {
            let values = slices[parameter];
            values[if values.len() == 1 { 0 } else { batch }]
        };
        let batch = |index: usize| BoundedNormal {
            mean: at(0, index),
            deviation: at(1, index),
            low: at(2, index),
            high: at(3, index),
        };
        let philox = self.generator.reserve_outputs(shape.num_elements());
        let mut result = Ok(());
        let output = Tensor::build(shape, |out: &mut [T]| {
            result = philox::fill_bounded_normal(philox, batch, samples, out);
        })?;
        result.map_err(|error| match error {
            BoundedNormalError::Invalid => Status::invalid_argument("Invalid parameters"),
            BoundedNormalError::OutOfReach(method) => {
                Status::internal(format!("TruncatedNormal {method} rejection sampler failed to accept a sample."))
            }
        })?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// The arguments of a binomial op, from the one that holds the shape on.
struct Trials {
    shape: Shape,
    pairs: Vec<(f64, f64)>,
    samples: usize,
    parameters: DType,
}

impl Trials {
    fn new(context: &OpContext<'_>, shape: &Tensor, counts: usize) -> Result<Trials> {
        if !shape.shape().is_vector() {
            return Err(Status::invalid_argument(format!(
                "Input shape should be a vector, got shape: {}",
                shape.shape()
            )));
        }
        let shape = shape_argument(shape)?;
        let (counts, probabilities) = (context.input(counts)?, context.input(counts + 1)?);
        let (_, pairs_shape) = broadcast_plan(counts, probabilities).map_err(|_| {
            Status::invalid_argument(format!(
                "counts and probs must have compatible batch dimensions: {} vs. {}",
                counts.shape(),
                probabilities.shape()
            ))
        })?;
        if !shape.dims().ends_with(pairs_shape.dims()) {
            return Err(Status::invalid_argument("Shape passed in must end with broadcasted shape."));
        }
        // Doubles are drawn first, whatever the output's type.
        if shape.num_bytes(size_of::<f64>())? > tensor::tensor_bytes_max() {
            return Err(Status::resource_exhausted(format!("out of memory: can't draw numbers of shape {shape}")));
        }
        let numbers = |tensor: &Tensor| to_doubles(&broadcast(tensor, pairs_shape.clone())?);
        let pairs: Vec<(f64, f64)> = numbers(counts)?.into_iter().zip(numbers(probabilities)?).collect();
        let samples = shape.num_elements().checked_div(pairs.len()).unwrap_or(0);
        Ok(Trials { shape, pairs, samples, parameters: counts.dtype() })
    }

    fn draw(&self, philox: Philox, output: DType) -> Result<Tensor> {
        let mut values = vec![0f64; self.shape.num_elements()];
        let expected = |count: f64, probability: f64| match self.parameters {
            DType::Half => (f16::from_f64(count) * f16::from_f64(probability)).to_f64(),
            DType::Float => f64::from(count as f32 * probability as f32),
            _ => count * probability,
        };
        if !values.is_empty() {
            philox::random_binomial(philox, &self.pairs, self.samples, expected, &mut values);
        }
        numbers_tensor(output, self.shape.clone(), &values)
    }
}

struct StatelessBinomial {
    output: DType,
}

impl Kernel for StatelessBinomial {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let seed = seeds(context.input(1)?)?;
        let trials = Trials::new(context, context.input(0)?, 2)?;
        let output = trials.draw(Philox::from_stateless_seed(seed), self.output)?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

struct StatefulBinomial {
    output: DType,
}

impl Kernel for StatefulBinomial {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let trials = Trials::new(context, context.input(2)?, 3)?;
        // More than the draws need. TensorFlow leaves the state as it was, so that all of its draws are the same.
        let set_aside = trials.pairs.len() * 2 * 100 * (trials.samples + 3) / 4;
        let output = trials.draw(reserve(context, set_aside)?, self.output)?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}
