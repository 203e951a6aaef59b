//! Quantization to integers of any width and dequantization in one op, for quantization-aware training: QuantizeAndDequantizeV2,
//! QuantizeAndDequantizeV3, QuantizeAndDequantizeV4 and QuantizeAndDequantizeV4Grad.

use crate::compose::Gradients;
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Shape, Status, Tensor};

const T: &str = "T: {bfloat16, half, float, double}";
const INPUTS: &[&str] = &["input: T", "input_min: T", "input_max: T"];
const ATTRS: &[&str] = &[
    "signed_input: bool = true",
    "num_bits: int = 8",
    "range_given: bool = false",
    T,
    "round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'",
    "narrow_range: bool = false",
    "axis: int = -1",
];
const KERNELS: &[KernelDef] = &[
    KernelDef { types: &[("T", f32::DTYPE)], create: QuantizeAndDequantize::<f32>::create },
    KernelDef { types: &[("T", f64::DTYPE)], create: QuantizeAndDequantize::<f64>::create },
];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "QuantizeAndDequantizeV2",
            inputs: INPUTS,
            outputs: &["output: T"],
            attrs: ATTRS,
            flags: OpFlags::NONE,
        },
        shape: range_shape,
        gradient: Gradient::Fn(straight_through),
        kernels: KERNELS,
    },
    Op {
        def: OpDef {
            name: "QuantizeAndDequantizeV3",
            inputs: &["input: T", "input_min: T", "input_max: T", "num_bits: int32"],
            outputs: &["output: T"],
            attrs: &[
                "signed_input: bool = true",
                "range_given: bool = true",
                T,
                "narrow_range: bool = false",
                "axis: int = -1",
            ],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            range_shape(c)?;
            c.with_rank(3, 0)?;
            Ok(())
        },
        gradient: Gradient::Fn(straight_through),
        kernels: KERNELS,
    },
    Op {
        def: OpDef {
            name: "QuantizeAndDequantizeV4",
            inputs: INPUTS,
            outputs: &["output: T"],
            attrs: ATTRS,
            flags: OpFlags::NONE,
        },
        shape: range_shape,
        gradient: Gradient::Fn(gradient_within_range),
        kernels: KERNELS,
    },
    Op {
        def: OpDef {
            name: "QuantizeAndDequantizeV4Grad",
            inputs: &["gradients: T", "input: T", "input_min: T", "input_max: T"],
            outputs: &["input_backprop: T", "input_min_backprop: T", "input_max_backprop: T"],
            attrs: &[T, "axis: int = -1"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let limits = limits_shape(c, 1)?;
            let input = c.merged(0, 1)?;
            c.set_output(0, input);
            c.set_output(1, limits.clone());
            c.set_output(2, limits);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[
            KernelDef { types: &[("T", f32::DTYPE)], create: WithinRange::<f32>::create },
            KernelDef { types: &[("T", f64::DTYPE)], create: WithinRange::<f64>::create },
        ],
    },
];

/// Returns numbers quantized to signed integers of `num_bits` bits for the range from `min` to `max`, and dequantized again.
#[track_caller]
pub fn quantize_and_dequantize(input: &Output, min: &Output, max: &Output, num_bits: i64) -> Output {
    let op = input.graph().op("QuantizeAndDequantizeV2").input(input).input(min).input(max);
    op.attr("num_bits", num_bits).attr("range_given", true).output()
}

/// Returns the shape of the two limits that follow the input `of`: scalars, or a number for each index of the axis.
fn limits_shape(c: &mut ShapeContext<'_>, of: usize) -> Result<PartialShape> {
    let axis = c.attrs.int("axis")?;
    if axis < -1 {
        return Err(Status::invalid_argument(format!("axis should be at least -1, got {axis}")));
    }
    let rank = if axis == -1 { 0 } else { 1 };
    let limits = c.with_rank(of + 1, rank)?.merge(&c.with_rank(of + 2, rank)?)?;
    if axis == -1 {
        return Ok(limits);
    }
    let input = c.with_rank_at_least(of, axis as usize + 1)?;
    let depth = if input.rank().is_some() { input.dim(axis as usize) } else { None };
    limits.merge(&PartialShape::new(&[depth]))
}

fn range_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    limits_shape(c, 0)?;
    c.set_output(0, c.input(0));
    Ok(())
}

fn straight_through(args: &GradientArgs<'_>) -> Gradients {
    let mut gradients = vec![None; if args.op.op_type().ends_with("V3") { 4 } else { 3 }];
    gradients[0] = args.grad(0).map(Into::into);
    Ok(gradients)
}

fn gradient_within_range(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let mut op = grad.graph().op("QuantizeAndDequantizeV4Grad").input(&grad);
    for input in 0..3 {
        op = op.input(&args.input(input));
    }
    let op = op.attr("axis", args.op.attrs().int("axis")?).try_build()?;
    Ok((0..3).map(|port| Some(op.output(port).into())).collect())
}

/// The operation that kernels apply to a number.
trait Number: Element + Copy + PartialOrd + std::fmt::Display {
    const ZERO: Self;
    const ONE: Self;
    const MAX: Self;

    fn from_integer(number: i64) -> Self;
    fn product(self, other: Self) -> Self;
    fn quotient(self, other: Self) -> Self;
    fn smaller(self, other: Self) -> Self;
    fn larger(self, other: Self) -> Self;
    fn rounded_to_even(self) -> Self;
    fn rounded_up(self) -> Self;
}

macro_rules! number {
    ($($ty:ident)*) => {$(
        impl Number for $ty {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const MAX: Self = $ty::MAX;

            fn from_integer(number: i64) -> Self {
                number as $ty
            }

            fn product(self, other: Self) -> Self {
                self * other
            }

            fn quotient(self, other: Self) -> Self {
                self / other
            }

            fn smaller(self, other: Self) -> Self {
                self.min(other)
            }

            fn larger(self, other: Self) -> Self {
                self.max(other)
            }

            fn rounded_to_even(self) -> Self {
                self.round_ties_even()
            }

            fn rounded_up(self) -> Self {
                (self + 0.5).floor()
            }
        }
    )*};
}

number!(f32 f64);

/// Iterates over the indices of an axis, each with its elements.
fn for_each_channel(shape: &Shape, axis: Option<usize>, mut visit: impl FnMut(usize, std::ops::Range<usize>)) {
    let Some(axis) = axis else { return visit(0, 0..shape.num_elements()) };
    let (depth, inner) = (shape.size(axis), (axis + 1..shape.rank()).map(|axis| shape.size(axis)).product::<usize>());
    if inner == 0 {
        return;
    }
    for block in 0..shape.num_elements() / inner {
        visit(block % depth, block * inner..(block + 1) * inner);
    }
}

/// The quantization of one channel.
#[derive(Clone, Copy)]
struct Scale<N> {
    min: N,
    max: N,
    scale: N,
    inverse: N,
}

struct QuantizeAndDequantize<N> {
    signed: bool,
    /// `None`: it is an input.
    num_bits: Option<i64>,
    range_given: bool,
    narrow_range: bool,
    half_up: bool,
    axis: Option<usize>,
    number: PhantomData<fn(N)>,
}

impl<N: Number> QuantizeAndDequantize<N> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let bits_given = !builder.node.op().ends_with("V3");
        let axis = attrs.int("axis")?;
        if axis < -1 {
            return Err(Status::invalid_argument(format!("Axis must be at least -1. Found {axis}")));
        }
        let kernel = QuantizeAndDequantize::<N> {
            signed: attrs.bool("signed_input")?,
            num_bits: if bits_given { Some(attrs.int("num_bits")?) } else { None },
            range_given: attrs.bool("range_given")?,
            narrow_range: attrs.bool("narrow_range")?,
            half_up: bits_given && attrs.string("round_mode")? == "HALF_UP",
            axis: usize::try_from(axis).ok(),
            number: PhantomData,
        };
        if let Some(bits) = kernel.num_bits.filter(|&bits| !kernel.has_room_for(bits)) {
            let signed = u8::from(kernel.signed);
            return Err(Status::invalid_argument(format!(
                "num_bits is out of range: {bits} with signed_input_ {signed}"
            )));
        }
        BoxedKernel::new(kernel)
    }

    fn has_room_for(&self, bits: i64) -> bool {
        bits > 0 && bits < if self.signed { 62 } else { 63 }
    }

    fn bits(&self, context: &OpContext<'_>) -> Result<i64> {
        if let Some(bits) = self.num_bits {
            return Ok(bits);
        }
        let input = context.input(3)?;
        if !input.shape().is_scalar() {
            let rank = input.shape().rank();
            return Err(Status::invalid_argument(format!(
                "Invalid shape. The `num_bits` tensor should be a scalar. Got dimensions: {rank}"
            )));
        }
        let bits = i64::from(input.to_scalar::<i32>()?);
        if !self.has_room_for(bits) {
            let signed = u8::from(self.signed);
            return Err(Status::invalid_argument(format!(
                "num_bits is out of range: {bits} with `signed_input_` {signed}"
            )));
        }
        Ok(bits)
    }

    /// Returns the limits of each channel: the given ones, or those of its numbers.
    fn limits(&self, context: &OpContext<'_>, input: &Tensor) -> Result<Vec<(N, N)>> {
        let depth = self.axis.map_or(1, |axis| input.shape().size(axis));
        if !self.range_given {
            let mut limits: Vec<Option<(N, N)>> = vec![None; depth];
            let values = input.as_slice::<N>()?;
            for_each_channel(input.shape(), self.axis, |channel, range| {
                for &value in &values[range] {
                    let (min, max) = limits[channel].unwrap_or((value, value));
                    limits[channel] = Some((min.smaller(value), max.larger(value)));
                }
            });
            return Ok(limits.into_iter().map(|limits| limits.unwrap_or((N::ZERO, N::ZERO))).collect());
        }
        let (min, max) = (context.input(1)?, context.input(2)?);
        for (name, limit) in [("min", min), ("max", max)] {
            check_limit(name, limit, self.axis, depth)?;
        }
        let (min, max) = (min.as_slice::<N>()?, max.as_slice::<N>()?);
        if let (None, Some(min), Some(max)) = (self.axis, min.first(), max.first())
            && (min > max || min.partial_cmp(max).is_none())
        {
            return Err(Status::invalid_argument(format!("Invalid range: input_min {min} > input_max {max}")));
        }
        Ok(min.iter().copied().zip(max.iter().copied()).collect())
    }

    /// Returns the largest scale with which both limits are among the integers and zero stays zero.
    fn scale(&self, (min, max): (N, N), bits: i64) -> Scale<N> {
        let (lowest, highest) = match self.signed {
            true => (-(1i64 << (bits - 1)) + i64::from(self.narrow_range), (1i64 << (bits - 1)) - 1),
            false => (0, (1i64 << bits) - 1),
        };
        let (lowest, highest) = (N::from_integer(lowest), N::from_integer(highest));
        let side = |integer: N, limit: N| match integer.product(limit) > N::ZERO {
            true => integer.quotient(limit),
            false => N::MAX,
        };
        let (below, above) = (side(lowest, min), side(highest, max));
        if below < above {
            let inverse = min.quotient(lowest);
            return Scale { min, max: highest.product(inverse), scale: below, inverse };
        }
        let inverse = max.quotient(highest);
        Scale { min: lowest.product(inverse), max, scale: above, inverse }
    }
}

/// Refuses a limit that isn't a scalar, or a vector with a number for each index of the axis.
fn check_limit(name: &str, limit: &Tensor, axis: Option<usize>, depth: usize) -> Result<()> {
    let Some(axis) = axis else {
        return match limit.num_elements() {
            1 => Ok(()),
            _ => Err(Status::invalid_argument(format!(
                "input_{name} must be a scalar if axis is unspecified, was {}",
                limit.shape()
            ))),
        };
    };
    if !limit.shape().is_vector() {
        return Err(Status::invalid_argument(format!(
            "Shape must be rank 1 for input_{name}_tensor when the axis is specified"
        )));
    }
    if limit.num_elements() != depth {
        let (size, shape) = (limit.num_elements(), limit.shape());
        return Err(Status::invalid_argument(format!(
            "input_{name}_tensor has incorrect size, was {size} expected {depth} to match dim {axis} of the input {shape}"
        )));
    }
    Ok(())
}

impl<N: Number> Kernel for QuantizeAndDequantize<N> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let rank = input.shape().rank();
        if let Some(axis) = self.axis.filter(|&axis| axis >= rank) {
            return Err(Status::invalid_argument(format!(
                "Axis requested is larger than input dimensions. Axis: {axis} Input Dimensions: {rank}"
            )));
        }
        let bits = self.bits(context)?;
        let limits = self.limits(context, input)?;
        let scales: Vec<Scale<N>> = limits.into_iter().map(|limits| self.scale(limits, bits)).collect();
        let values = input.as_slice::<N>()?;
        let round = if self.half_up { N::rounded_up } else { N::rounded_to_even };
        let output = Tensor::build(input.shape().clone(), |out: &mut [N]| {
            for_each_channel(input.shape(), self.axis, |channel, range| {
                let Scale { min, max, scale, inverse } = scales[channel];
                for (out, &value) in out[range.clone()].iter_mut().zip(&values[range]) {
                    // Compared in this way so that NaN stays NaN.
                    let clamped = match value {
                        value if self.range_given && value > max => max,
                        value if self.range_given && value < min => min,
                        value => value,
                    };
                    *out = round(clamped.product(scale)).product(inverse);
                }
            });
        })?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::ByInput
    }
}

/// Passes a gradient on if the number is within the limits.
struct WithinRange<N> {
    axis: Option<usize>,
    number: PhantomData<fn(N)>,
}

impl<N: Number> WithinRange<N> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let axis = builder.attrs().int("axis")?;
        BoxedKernel::new(WithinRange::<N> { axis: usize::try_from(axis).ok(), number: PhantomData })
    }

    fn check(&self, context: &OpContext<'_>) -> Result<()> {
        let input = context.input(1)?;
        if context.input(0)?.shape() != input.shape() {
            return Err(Status::invalid_argument("gradient and input must be the same size"));
        }
        let rank = input.shape().rank();
        if let Some(axis) = self.axis.filter(|&axis| axis >= rank) {
            return Err(Status::invalid_argument(format!(
                "Axis should be -1 or 0 or a positive value less than {rank}but given axis value was {axis}"
            )));
        }
        for (index, name) in [(2, "min"), (3, "max")] {
            let limit = context.input(index)?;
            match self.axis {
                None if !limit.shape().is_scalar() => {
                    return Err(Status::invalid_argument(format!(
                        "input_{name} must be a scalar if axis is unspecified"
                    )));
                }
                Some(_) if !limit.shape().is_vector() => {
                    let rank = limit.shape().rank();
                    return Err(Status::invalid_argument(format!(
                        "Input {name} tensor must have dimension 0 or 1. Received {rank}."
                    )));
                }
                Some(axis) if limit.num_elements() != input.shape().size(axis) => {
                    let (depth, size) = (input.shape().size(axis), limit.num_elements());
                    return Err(Status::invalid_argument(format!(
                        "{name} has incorrect size, expected {depth} was {size}"
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl<N: Number> Kernel for WithinRange<N> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        self.check(context)?;
        let input = context.input(1)?;
        let (gradients, values) = (context.slice::<N>(0)?, input.as_slice::<N>()?);
        let (min, max) = (context.slice::<N>(2)?, context.slice::<N>(3)?);
        let output = Tensor::build(input.shape().clone(), |out: &mut [N]| {
            for_each_channel(input.shape(), self.axis, |channel, range| {
                for index in range {
                    let is_within = values[index] >= min[channel] && values[index] <= max[channel];
                    out[index] = gradients[index].product(if is_within { N::ONE } else { N::ZERO });
                }
            });
        })?;
        let nothing = Tensor::new(N::DTYPE, context.input(2)?.shape().clone())?;
        context.set_output(0, output);
        context.set_output(1, nothing.clone());
        context.set_output(2, nothing);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::ByInput
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Code, Tensor};

    #[test]
    fn numbers_come_back_as_the_nearest_that_integers_stand_for() {
        let x = Tensor::vector(&[-2f32, -0.6, 0.0, 0.4, 3.0]);
        let range = [Tensor::scalar(-1f32), Tensor::scalar(1f32)];
        let inputs = [x.clone(), range[0].clone(), range[1].clone()];
        let run = |attrs| run_op("QuantizeAndDequantizeV2", attrs, &inputs).unwrap()[0].to_vec::<f32>().unwrap();
        let given = run(attrs![("num_bits", 2i64), ("range_given", true), ("narrow_range", true)]);
        assert_eq!(given, [-1.0, -1.0, 0.0, 0.0, 1.0]);
        // Without a given range it is that of the numbers; its upper end decides.
        assert_eq!(run(attrs![("num_bits", 2i64), ("narrow_range", true)]), [-3.0, 0.0, 0.0, 0.0, 3.0]);
        let mut inputs = inputs.to_vec();
        inputs.push(Tensor::scalar(2i32));
        let third = run_op("QuantizeAndDequantizeV3", attrs![("narrow_range", true)], &inputs).unwrap();
        assert_eq!(third[0].to_vec::<f32>().unwrap(), given);
    }

    #[test]
    fn each_channel_has_its_own_range() {
        let x = Tensor::from_slice(&[2, 2], &[1f64, 10.0, -1.0, -10.0]).unwrap();
        let unused = Tensor::vector(&[0f64, 0.0]);
        let attrs = attrs![("num_bits", 2i64), ("narrow_range", true), ("axis", 1i64)];
        let y = run_op("QuantizeAndDequantizeV2", attrs, &[x.clone(), unused.clone(), unused]).unwrap();
        assert_eq!(y[0].to_vec::<f64>().unwrap(), x.to_vec::<f64>().unwrap());
    }

    #[test]
    fn gradients_pass_within_the_limits() {
        let (x, grad) = (Tensor::vector(&[-2f32, 0.0, 2.0]), Tensor::vector(&[1f32, 2.0, 3.0]));
        let inputs = [grad, x, Tensor::scalar(-1f32), Tensor::scalar(2f32)];
        let grads = run_op("QuantizeAndDequantizeV4Grad", attrs![], &inputs).unwrap();
        assert_eq!(grads[0].to_vec::<f32>().unwrap(), [0.0, 2.0, 3.0]);
        assert_eq!(grads[1].to_scalar::<f32>().unwrap(), 0.0);
    }

    #[test]
    fn mistakes_and_shapes() {
        let code = |attrs, min: Tensor, max: Tensor| {
            let x = Tensor::vector(&[1f32, 2.0]);
            run_op("QuantizeAndDequantizeV2", attrs, &[x, min, max]).unwrap_err().code()
        };
        let (one, two) = (Tensor::scalar(1f32), Tensor::vector(&[1f32, 1.0]));
        assert_eq!(code(attrs![("num_bits", 62i64)], one.clone(), one.clone()), Code::InvalidArgument);
        assert_eq!(code(attrs![("range_given", true)], two.clone(), one.clone()), Code::InvalidArgument);
        let zero = Tensor::scalar(0f32);
        assert_eq!(code(attrs![("range_given", true)], one.clone(), zero), Code::InvalidArgument);
        let attrs = attrs![("range_given", true), ("axis", 0i64)];
        assert_eq!(code(attrs, Tensor::vector(&[1f32]), two), Code::InvalidArgument);
        check_shape("QuantizeAndDequantizeV3", attrs![("axis", 1i64)], "[2,?];[3];[?];[]", "[2,?]");
        check_shape("QuantizeAndDequantizeV4Grad", attrs![("axis", 1i64)], "[2,?];[?,4];[?];[4]", "[2,4];[4];[4]");
    }
}
