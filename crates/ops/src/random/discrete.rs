//! Shuffling, and drawing of classes: RandomShuffle, Multinomial.

use super::generator::Generator;
use crate::rows::gather_slices;
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext, shape,
};
use numeric::philox::{self, Philox};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "RandomShuffle",
            inputs: &["value: T"],
            outputs: &["output: T"],
            attrs: &["seed: int = 0", "seed2: int = 0", "T: type"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unchanged,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| BoxedKernel::new(RandomShuffle { generator: Generator::new(builder)? }))],
    },
    Op {
        def: OpDef {
            name: "Multinomial",
            inputs: &["logits: T", "num_samples: int32"],
            outputs: &["output: output_dtype"],
            attrs: &[
                "seed: int = 0",
                "seed2: int = 0",
                "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64}",
                "output_dtype: {int32, int64} = DT_INT64",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: multinomial_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Multinomial::create)],
    },
];

/// Returns the rows of `value` in a random order.
#[track_caller]
pub fn random_shuffle(value: &Output, seed: Option<i64>) -> Output {
    let (seed, seed2) = value.graph().random_seeds(seed);
    value.graph().op("RandomShuffle").input(value).attr("seed", seed).attr("seed2", seed2).output()
}

/// Draws `num_samples` classes for each row of `logits`, in proportion to their exponentials.
#[track_caller]
pub fn multinomial(logits: &Output, num_samples: &Output, seed: Option<i64>, output_dtype: DType) -> Output {
    let (seed, seed2) = logits.graph().random_seeds(seed);
    let op = logits.graph().op("Multinomial").input(logits).input(num_samples).attr("output_dtype", output_dtype);
    op.attr("seed", seed).attr("seed2", seed2).output()
}

/// The output has a row of `num_samples` for each row of logits.
pub(super) fn multinomial_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let logits = c.with_rank(0, 2)?;
    c.with_rank(1, 0)?;
    let samples = match c.constant(1) {
        Some(count) => Some(i64::from(count.to_scalar::<i32>()?)).filter(|&count| count >= 0),
        None => None,
    };
    c.set_output(0, PartialShape::new(&[logits.dim(0), samples]));
    Ok(())
}

struct RandomShuffle {
    generator: Generator,
}

impl Kernel for RandomShuffle {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let value = context.take_input(0)?;
        let rows = value.dims().first().map_or(0, |&rows| rows as usize);
        let output = if rows <= 1 || value.num_elements() <= 1 {
            value
        } else {
            shuffled(&value, self.generator.reserve_samples32(rows - 1))?
        };
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the rows of a tensor in a random order.
pub(super) fn shuffled(value: &Tensor, philox: Philox) -> Result<Tensor> {
    let rows = value.shape().size(0);
    let order = philox::shuffled_indices(philox, rows);
    gather_slices(value, &order, value.num_elements() / rows.max(1), value.shape().clone())
}

struct Multinomial {
    generator: Generator,
    output: DType,
}

impl Multinomial {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Multinomial { generator: Generator::new(builder)?, output: builder.output_dtype(0) })
    }
}

impl Kernel for Multinomial {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (rows, draws) = multinomial_arguments(context)?;
        // TensorFlow rounds up to whole samples and draws doubles, which take two words each.
        let reserved = draws.checked_next_multiple_of(4).and_then(|draws| draws.checked_mul(2 * rows));
        let reserved = reserved.ok_or_else(|| Status::invalid_argument("num_samples is too large"))?;
        let philox = self.generator.reserve_outputs(reserved);
        let output = draw_classes(context.input(0)?, draws, self.output, philox)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Checks the arguments, and returns the numbers of rows and of draws for each.
pub(super) fn multinomial_arguments(context: &OpContext<'_>) -> Result<(usize, usize)> {
    let logits = context.input(0)?.shape();
    if !logits.is_matrix() {
        return Err(Status::invalid_argument(format!("logits should be a matrix, got shape {logits}")));
    }
    let samples = context.input(1)?;
    if !samples.shape().is_scalar() {
        return Err(Status::invalid_argument(format!("num_samples should be a scalar, got shape {}", samples.shape())));
    }
    let samples = samples.to_scalar::<i32>()?;
    let Ok(draws) = usize::try_from(samples) else {
        return Err(Status::invalid_argument(format!("num_samples should be nonnegative, got {samples}")));
    };
    if logits.dim(1) == 0 && draws > 0 {
        return Err(Status::invalid_argument("num_classes should be positive, got 0"));
    }
    Ok((logits.size(0), draws))
}

/// Draws classes for each row of logits.
pub(super) fn draw_classes<'a>(logits: &'a Tensor, draws: usize, output: DType, philox: Philox) -> Result<Tensor> {
    let classes = logits.shape().size(1);
    let shape = Shape::new(&[logits.dims()[0], draws as i64])?;
    macro_rules! draw {
        ($index:ty, [$($dtype:ident => $ty:ty, $view:expr;)*]) => {
            match logits.dtype() {
                $(DType::$dtype => {
                    let view = $view;
                    let values: std::borrow::Cow<'_, [$ty]> = view(logits)?;
                    Tensor::build(shape, |out: &mut [$index]| {
                        philox::multinomial(philox, &values, classes, draws, out, |class| class as $index)
                    })
                })*
                other => Err(Status::unimplemented(format!("logits of type {other}"))),
            }
        };
    }
    macro_rules! draw_as {
        ($index:ty) => {
            draw!($index, [
                Float => f32, |t: &'a Tensor| t.as_slice::<f32>().map(std::borrow::Cow::Borrowed);
                Double => f64, |t: &'a Tensor| t.as_slice::<f64>().map(std::borrow::Cow::Borrowed);
                Half => f32, |t: &Tensor| widened::<tensor::f16>(t, f32::from);
                BFloat16 => f32, |t: &Tensor| widened::<tensor::bf16>(t, f32::from);
                Int8 => f32, |t: &Tensor| widened::<i8>(t, f32::from);
                Int16 => f32, |t: &Tensor| widened::<i16>(t, f32::from);
                Int32 => f32, |t: &Tensor| widened::<i32>(t, |value| value as f32);
                Int64 => f32, |t: &Tensor| widened::<i64>(t, |value| value as f32);
                UInt8 => f32, |t: &Tensor| widened::<u8>(t, f32::from);
                UInt16 => f32, |t: &Tensor| widened::<u16>(t, f32::from);
                UInt32 => f32, |t: &Tensor| widened::<u32>(t, |value| value as f32);
                UInt64 => f32, |t: &Tensor| widened::<u64>(t, |value| value as f32);
            ])
        };
    }
    if output == DType::Int32 { draw_as!(i32) } else { draw_as!(i64) }
}

fn widened<T: tensor::Element>(logits: &Tensor, widen: impl Fn(T) -> f32) -> Result<std::borrow::Cow<'static, [f32]>> {
    Ok(logits.as_slice::<T>()?.iter().map(|&value| widen(value)).collect::<Vec<_>>().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestSession, attrs, check_shape, run_op};

    fn twice(op: &str, inputs: &[Tensor]) -> [Tensor; 2] {
        let session = TestSession::new();
        let placeholders: Vec<_> = inputs.iter().map(|input| session.placeholder(input.dtype())).collect();
        let op = session.graph.op(op).inputs(&placeholders).attr("seed", 3i64).attr("seed2", 7i64);
        let output = op.output();
        let feeds: Vec<_> = placeholders.iter().zip(inputs.iter().cloned()).collect();
        [session.fetch(&output, &feeds).unwrap(), session.fetch(&output, &feeds).unwrap()]
    }

    #[test]
    fn shuffled_as_tensorflow_does() {
        let values: Vec<i64> = (0..8).collect();
        let [first, second] = twice("RandomShuffle", &[Tensor::vector(&values)]);
        assert_eq!(first.as_slice::<i64>().unwrap(), &[0, 5, 1, 3, 6, 2, 7, 4]);
        assert_eq!(second.as_slice::<i64>().unwrap(), &[1, 6, 3, 0, 5, 4, 2, 7]);
        let [first, second] = twice("RandomShuffle", &[Tensor::from_slice(&[4, 2], &values).unwrap()]);
        assert_eq!(first.as_slice::<i64>().unwrap(), &[0, 1, 4, 5, 6, 7, 2, 3]);
        assert_eq!(second.as_slice::<i64>().unwrap(), &[4, 5, 2, 3, 6, 7, 0, 1]);
        let alone = run_op("RandomShuffle", attrs![], &[Tensor::scalar(1f32)]).unwrap();
        assert_eq!(alone[0].to_scalar::<f32>().unwrap(), 1.0);
        let empty = Tensor::zeros(DType::Float, Shape::new(&[3, 0]).unwrap()).unwrap();
        assert_eq!(run_op("RandomShuffle", attrs![], &[empty]).unwrap()[0].dims(), &[3, 0]);
    }

    #[test]
    fn classes_are_drawn_as_tensorflow_does() {
        let logits = Tensor::from_slice(&[2, 4], &[0.1f32, 0.5, 0.2, 2.0, 1.0, 1.0, 1.0, 1.0]).unwrap();
        let [first, second] = twice("Multinomial", &[logits, Tensor::scalar(7i32)]);
        assert_eq!(first.as_slice::<i64>().unwrap(), &[3, 0, 3, 3, 3, 2, 0, 1, 1, 1, 3, 0, 1, 2]);
        assert_eq!(second.as_slice::<i64>().unwrap(), &[3, 3, 3, 3, 3, 3, 3, 0, 3, 1, 1, 2, 1, 3]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let message = |logits: Tensor, samples: i32| {
            let result = run_op("Multinomial", attrs![], &[logits, Tensor::scalar(samples)]);
            result.unwrap_err().message().lines().next().unwrap_or_default().to_owned()
        };
        assert_eq!(message(Tensor::vector(&[1f32; 4]), 7), "logits should be a matrix, got shape [4]");
        let matrix = |dims: &[i64]| Tensor::zeros(DType::Float, Shape::new(dims).unwrap()).unwrap();
        assert_eq!(message(matrix(&[2, 0]), 7), "num_classes should be positive, got 0");
        assert_eq!(message(matrix(&[2, 1]), -1), "num_samples should be nonnegative, got -1");
        check_shape("Multinomial", attrs![], "[2,?];[]", "[2,?]");
    }
}
