//! Conversion between numbers in a range and quantized types: QuantizeV2, Dequantize.

use graph::Output;
use kernel::{
    AttrMap, BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor, bf16};

const TYPES: &str = "T: {qint8, quint8, qint32, qint16, quint16}";
const MODE: &str = "mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'";

macro_rules! typed_kernels {
    ($attr:literal: [$($dtype:ident),*] => $create:expr) => {
        &[$(KernelDef { types: &[($attr, DType::$dtype)], create: $create },)*]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "QuantizeV2",
            inputs: &["input: float", "min_range: float", "max_range: float"],
            outputs: &["output: T", "output_min: float", "output_max: float"],
            attrs: &[
                TYPES,
                MODE,
                "round_mode: {'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'} = 'HALF_AWAY_FROM_ZERO'",
                "narrow_range: bool = false",
                "axis: int = -1",
                "ensure_minimum_range: float = 0.01",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let ranges = ranges_shape(c)?;
            c.set_output(1, ranges.clone());
            c.set_output(2, ranges);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: typed_kernels!("T": [QInt8, QUInt8, QInt16, QUInt16, QInt32] => Quantize::create),
    },
    Op {
        def: OpDef {
            name: "Dequantize",
            inputs: &["input: T", "min_range: float", "max_range: float"],
            outputs: &["output: dtype"],
            attrs: &[
                TYPES,
                MODE,
                "narrow_range: bool = false",
                "axis: int = -1",
                "dtype: {bfloat16, float} = DT_FLOAT",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| ranges_shape(c).map(|_| ()),
        gradient: Gradient::Unsupported,
        kernels: typed_kernels!("T": [QInt8, QUInt8, QInt16, QUInt16, QInt32] => Dequantize::create),
    },
];

/// Quantizes numbers; returns them with the range that the quantized type represents.
#[track_caller]
pub fn quantize_v2(input: &Output, min_range: &Output, max_range: &Output, dtype: DType) -> Vec<Output> {
    input.graph().op("QuantizeV2").inputs([input, min_range, max_range]).attr("T", dtype).outputs()
}

/// Returns the numbers that quantized values represent.
#[track_caller]
pub fn dequantize(input: &Output, min_range: &Output, max_range: &Output) -> Output {
    input.graph().op("Dequantize").inputs([input, min_range, max_range]).output()
}

/// Sets the first output to the shape of the input, and returns the shape of the ranges.
fn ranges_shape(c: &mut ShapeContext<'_>) -> Result<PartialShape> {
    let axis = c.attrs.int("axis")?;
    if axis < -1 {
        return Err(Status::invalid_argument(format!("axis should be at least -1, got {axis}")));
    }
    let rank = if axis == -1 { 0 } else { 1 };
    let ranges = c.with_rank(1, rank)?.merge(&c.with_rank(2, rank)?)?;
    let input = c.input(0);
    if axis >= 0
        && let Some(rank) = input.rank()
    {
        if axis as usize >= rank {
            return Err(Status::invalid_argument(format!("axis {axis} is out of range for rank {rank}")));
        }
        ranges.merge(&input.slice(axis as usize, axis as usize + 1))?;
    }
    c.set_output(0, input);
    Ok(ranges)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    MinCombined,
    MinFirst,
    Scaled,
}

/// The attributes of both ops.
struct Scheme {
    mode: Mode,
    narrow: bool,
    axis: i64,
    lowest: f64,
    highest: f64,
}

impl Scheme {
    fn new(attrs: &AttrMap) -> Result<Scheme> {
        let (lowest, highest) = match attrs.dtype("T")? {
            DType::QInt8 => (f64::from(i8::MIN), f64::from(i8::MAX)),
            DType::QUInt8 => (0.0, f64::from(u8::MAX)),
            DType::QInt16 => (f64::from(i16::MIN), f64::from(i16::MAX)),
            DType::QUInt16 => (0.0, f64::from(u16::MAX)),
            _ => (f64::from(i32::MIN), f64::from(i32::MAX)),
        };
        let mode = match attrs.string("mode")?.as_str() {
            "MIN_COMBINED" => Mode::MinCombined,
            "MIN_FIRST" => Mode::MinFirst,
            _ => Mode::Scaled,
        };
        let axis = attrs.int("axis")?;
        if axis < -1 {
            return Err(Status::invalid_argument(format!("axis should be at least -1, got {axis}")));
        }
        Ok(Scheme { mode, narrow: attrs.bool("narrow_range")?, axis, lowest, highest })
    }

    fn is_signed(&self) -> bool {
        self.lowest < 0.0
    }

    /// Returns half of the type's range, by which signed types are shifted.
    fn half_range(&self) -> f32 {
        if self.is_signed() { ((self.highest - self.lowest + 1.0) / 2.0) as f32 } else { 0.0 }
    }

    fn lowest_used(&self) -> f64 {
        self.lowest + if self.narrow { 1.0 } else { 0.0 }
    }

    /// Returns the ranges, one for each slice along the axis, and the number of adjacent elements of a slice.
    fn ranges<'a>(&self, context: &'a OpContext<'_>) -> Result<Ranges<'a>> {
        let shape = context.input(0)?.shape();
        let (low, high) = (context.input(1)?, context.input(2)?);
        let (slices, inner) = match usize::try_from(self.axis) {
            Err(_) => (1, shape.num_elements()),
            Ok(axis) if axis < shape.rank() => (shape.size(axis), shape.slice(axis + 1, shape.rank()).num_elements()),
            Ok(axis) => {
                let rank = shape.rank();
                return Err(Status::invalid_argument(format!(
                    "Axis must be less than input dimension({rank}), got {axis}"
                )));
            }
        };
        let fits = |range: &Tensor| match self.axis {
            -1 => range.num_elements() == 1,
            _ => range.shape().is_vector() && range.num_elements() == slices,
        };
        if !fits(low) || !fits(high) {
            return Err(Status::invalid_argument(format!(
                "min_range and max_range must have {slices} elements, got shapes {} and {}",
                low.shape(),
                high.shape()
            )));
        }
        if slices > 1 && self.mode == Mode::MinFirst {
            return Err(Status::unimplemented("MIN_FIRST mode is not implemented with axis != -1."));
        }
        Ok(Ranges { low: low.as_slice()?, high: high.as_slice()?, inner })
    }
}

struct Ranges<'a> {
    low: &'a [f32],
    high: &'a [f32],
    inner: usize,
}

impl Ranges<'_> {
    fn slice_of(&self, index: usize) -> usize {
        index / self.inner.max(1) % self.low.len().max(1)
    }
}

struct Quantize {
    scheme: Scheme,
    half_to_even: bool,
    minimum_range: f32,
    dtype: DType,
}

/// The quantization of one slice: clipping, scaling and shifting.
struct Step {
    low: f32,
    high: f32,
    scale: f32,
}

impl Quantize {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let scheme = Scheme::new(attrs)?;
        let half_to_even = attrs.string("round_mode")? == "HALF_TO_EVEN";
        if half_to_even && scheme.mode != Mode::Scaled {
            return Err(Status::invalid_argument("Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED'"));
        }
        let minimum_range = attrs.float("ensure_minimum_range")?;
        BoxedKernel::new(Quantize { scheme, half_to_even, minimum_range, dtype: builder.output_dtype(0) })
    }

    fn step(&self, low: f32, high: f32) -> Result<Step> {
        if high < low {
            return Err(Status::invalid_argument("input_max_range must be larger than input_min_range."));
        }
        let scheme = &self.scheme;
        // The range always contains zero, and its ends are never too close together.
        let apart = low.abs().max(high.abs()).max(1.0) * self.minimum_range;
        let low = low.min(0.0);
        let high = high.max(low + apart).max(0.0);
        Ok(match scheme.mode {
            Mode::MinCombined => {
                Step { low, high, scale: ((scheme.highest - scheme.lowest) / f64::from(high - low)) as f32 }
            }
            Mode::MinFirst => {
                let scale = if high == low { 0.0 } else { (scheme.highest - scheme.lowest) / f64::from(high - low) };
                Step { low, high, scale: scale as f32 }
            }
            Mode::Scaled => {
                let (lowest, highest) = (scheme.lowest_used() as f32, scheme.highest as f32);
                let side = |end: f32, range: f32| if end * range > 0.0 { end / range } else { f32::MAX };
                let scale = side(lowest, low).min(side(highest, high));
                Step { low: lowest / scale, high: highest / scale, scale }
            }
        })
    }

    fn apply(&self, value: f32, step: &Step) -> f32 {
        let scheme = &self.scheme;
        let clipped = value.min(step.high).max(step.low);
        match scheme.mode {
            Mode::MinCombined if scheme.is_signed() => {
                ((clipped - step.low) * step.scale - scheme.half_range()).round()
            }
            Mode::MinCombined => ((clipped - step.low) * step.scale + 0.5).floor(),
            Mode::MinFirst => {
                let shift = (step.low * step.scale).round() - scheme.lowest as f32;
                ((value * step.scale).round() - shift).max(scheme.lowest as f32).min(scheme.highest as f32)
            }
            Mode::Scaled if self.half_to_even => (clipped * step.scale).round_ties_even(),
            Mode::Scaled => (clipped * step.scale).round(),
        }
    }
}

impl Kernel for Quantize {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let ranges = self.scheme.ranges(context)?;
        let steps =
            ranges.low.iter().zip(ranges.high).map(|(&low, &high)| self.step(low, high)).collect::<Result<Vec<_>>>()?;
        let quantized: Vec<f32> = input
            .as_slice::<f32>()?
            .iter()
            .enumerate()
            .map(|(index, &value)| self.apply(value, &steps[ranges.slice_of(index)]))
            .collect();
        let dims = input.dims();
        let output = match self.dtype {
            DType::QInt8 => Tensor::from_slice(dims, &quantized.iter().map(|&x| x as i8).collect::<Vec<_>>())?,
            DType::QUInt8 => Tensor::from_slice(dims, &quantized.iter().map(|&x| x as u8).collect::<Vec<_>>())?,
            DType::QInt16 => Tensor::from_slice(dims, &quantized.iter().map(|&x| x as i16).collect::<Vec<_>>())?,
            DType::QUInt16 => Tensor::from_slice(dims, &quantized.iter().map(|&x| x as u16).collect::<Vec<_>>())?,
            _ => Tensor::from_slice(dims, &quantized.iter().map(|&x| x as i32).collect::<Vec<_>>())?,
        };
        let output = output.with_dtype(self.dtype)?;
        // Without an axis, or with a single slice along it, the range is scalar.
        let shape = if steps.len() == 1 { Shape::scalar() } else { Shape::vector(steps.len()) };
        let ends = |end: fn(&Step) -> f32| {
            Tensor::build::<f32>(shape.clone(), |to| to.iter_mut().zip(&steps).for_each(|(to, step)| *to = end(step)))
        };
        let (low, high) = (ends(|step| step.low)?, ends(|step| step.high)?);
        context.set_output(0, output);
        context.set_output(1, low);
        context.set_output(2, high);
        Ok(())
    }
}

struct Dequantize {
    scheme: Scheme,
    dtype: DType,
}

impl Dequantize {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let scheme = Scheme::new(builder.attrs())?;
        let dtype = builder.output_dtype(0);
        if dtype == DType::BFloat16 && scheme.mode != Mode::MinCombined {
            return Err(Status::invalid_argument("When output type is bfloat16, Mode string must be 'MIN_COMBINED'"));
        }
        BoxedKernel::new(Dequantize { scheme, dtype })
    }

    fn apply(&self, value: f32, low: f32, high: f32) -> f32 {
        let scheme = &self.scheme;
        let span = scheme.highest as f32 - scheme.lowest as f32;
        match scheme.mode {
            Mode::MinCombined => (value + scheme.half_range()) * ((high - low) / span) + low,
            Mode::MinFirst => {
                let scale = (f64::from(high - low) / (scheme.highest - scheme.lowest)) as f32;
                let start = if high == low { low } else { (low / scale).round() * scale };
                start - scheme.lowest as f32 * scale + value * scale
            }
            Mode::Scaled if !scheme.is_signed() => value * (high / scheme.highest as f32),
            Mode::Scaled => value * (low / scheme.lowest_used() as f32).max(high / scheme.highest as f32),
        }
    }
}

impl Kernel for Dequantize {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let ranges = self.scheme.ranges(context)?;
        let values: Vec<f32> = match input.dtype() {
            DType::QInt8 => input.as_slice::<i8>()?.iter().map(|&x| f32::from(x)).collect(),
            DType::QUInt8 => input.as_slice::<u8>()?.iter().map(|&x| f32::from(x)).collect(),
            DType::QInt16 => input.as_slice::<i16>()?.iter().map(|&x| f32::from(x)).collect(),
            DType::QUInt16 => input.as_slice::<u16>()?.iter().map(|&x| f32::from(x)).collect(),
            _ => input.as_slice::<i32>()?.iter().map(|&x| x as f32).collect(),
        };
        let number = |(index, &value): (usize, &f32)| {
            let slice = ranges.slice_of(index);
            self.apply(value, ranges.low[slice], ranges.high[slice])
        };
        let numbers = values.iter().enumerate().map(number);
        let output = match self.dtype {
            DType::BFloat16 => Tensor::from_slice(input.dims(), &numbers.map(bf16::from_f32).collect::<Vec<_>>())?,
            _ => Tensor::from_slice(input.dims(), &numbers.collect::<Vec<_>>())?,
        };
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, run_op};

    #[test]
    fn there_and_back() {
        let numbers = [-1.0f32, -0.4, 0.0, 0.3, 2.0];
        let (low, high) = (Tensor::scalar(-1.0f32), Tensor::scalar(2.0f32));
        for mode in ["MIN_COMBINED", "MIN_FIRST", "SCALED"] {
            for dtype in [DType::QInt8, DType::QUInt8] {
                if mode == "SCALED" && dtype == DType::QUInt8 {
                    continue;
                }
                let inputs = [Tensor::vector(&numbers), low.clone(), high.clone()];
                let few = run_op("QuantizeV2", attrs![("mode", mode), ("T", dtype)], &inputs).unwrap();
                let back = run_op("Dequantize", attrs![("mode", mode)], &few).unwrap();
                let close = back[0].as_slice::<f32>().unwrap().iter().zip(numbers).all(|(a, b)| (a - b).abs() < 0.02);
                assert!(close, "{mode} {dtype}: {back:?}");
            }
        }
    }

    #[test]
    fn a_range_the_wrong_way_is_refused() {
        let inputs = [Tensor::vector(&[1f32]), Tensor::scalar(2f32), Tensor::scalar(1f32)];
        assert!(run_op("QuantizeV2", attrs![("T", DType::QInt8)], &inputs).is_err());
    }
}
