//! Quantization and dequantization in one op, for quantization-aware training: FakeQuantWithMinMaxArgs, FakeQuantWithMinMaxVars,
//! FakeQuantWithMinMaxVarsPerChannel, and their gradients.

use crate::compose::Gradients;
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape,
};
use tensor::{PartialShape, Result, Shape, Status, Tensor};

const KERNELS: &[KernelDef] = &[KernelDef::any(FakeQuantize::create)];
const ARGS_ATTRS: &[&str] =
    &["min: float = -6.0", "max: float = 6.0", "num_bits: int = 8", "narrow_range: bool = false"];
const VARS_ATTRS: &[&str] = &["num_bits: int = 8", "narrow_range: bool = false"];
const VARS_INPUTS: &[&str] = &["inputs: float", "min: float", "max: float"];
const GRADIENT_INPUTS: &[&str] = &["gradients: float", "inputs: float", "min: float", "max: float"];
const GRADIENT_OUTPUTS: &[&str] = &["backprops_wrt_input: float", "backprop_wrt_min: float", "backprop_wrt_max: float"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "FakeQuantWithMinMaxArgs",
            inputs: &["inputs: float"],
            outputs: &["outputs: float"],
            attrs: ARGS_ATTRS,
            flags: OpFlags::NONE,
        },
        shape: shape::unchanged,
        gradient: Gradient::Fn(args_gradient),
        kernels: KERNELS,
    },
    Op {
        def: OpDef {
            name: "FakeQuantWithMinMaxArgsGradient",
            inputs: &["gradients: float", "inputs: float"],
            outputs: &["backprops: float"],
            attrs: ARGS_ATTRS,
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let shape = c.merged(0, 1)?;
            c.set_output(0, shape);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: KERNELS,
    },
    vars_op("FakeQuantWithMinMaxVars", |c| vars_shape(c, false)),
    vars_gradient_op("FakeQuantWithMinMaxVarsGradient", |c| vars_gradient_shape(c, false)),
    vars_op("FakeQuantWithMinMaxVarsPerChannel", |c| vars_shape(c, true)),
    vars_gradient_op("FakeQuantWithMinMaxVarsPerChannelGradient", |c| vars_gradient_shape(c, true)),
];

type ShapeFn = fn(&mut ShapeContext<'_>) -> Result<()>;

const fn vars_op(name: &'static str, shape: ShapeFn) -> Op {
    let def =
        OpDef { name, inputs: VARS_INPUTS, outputs: &["outputs: float"], attrs: VARS_ATTRS, flags: OpFlags::NONE };
    Op { def, shape, gradient: Gradient::Fn(vars_gradient), kernels: KERNELS }
}

const fn vars_gradient_op(name: &'static str, shape: ShapeFn) -> Op {
    let def =
        OpDef { name, inputs: GRADIENT_INPUTS, outputs: GRADIENT_OUTPUTS, attrs: VARS_ATTRS, flags: OpFlags::NONE };
    Op { def, shape, gradient: Gradient::Unsupported, kernels: KERNELS }
}

/// Returns numbers quantized to `num_bits` bits for the range from `min` to `max`, and dequantized again.
#[track_caller]
pub fn fake_quant_with_min_max_vars(inputs: &Output, min: &Output, max: &Output, num_bits: i64) -> Output {
    let op = inputs.graph().op("FakeQuantWithMinMaxVars").input(inputs).input(min).input(max);
    op.attr("num_bits", num_bits).output()
}

/// Returns the shape of `min` and `max`, and the depth that they imply.
fn limits(c: &ShapeContext<'_>, first: usize, inputs: &PartialShape, per_channel: bool) -> Result<PartialShape> {
    if !per_channel {
        c.with_rank(first, 0)?;
        return c.with_rank(first + 1, 0);
    }
    let depth = match inputs.rank() {
        Some(rank) => PartialShape::new(&[inputs.dim(rank - 1)]),
        None => PartialShape::unknown_of_rank(1),
    };
    c.with_rank(first, 1)?.merge(&c.with_rank(first + 1, 1)?)?.merge(&depth)
}

fn vars_shape(c: &mut ShapeContext<'_>, per_channel: bool) -> Result<()> {
    let mut inputs = if per_channel { c.with_rank_at_least(0, 1)? } else { c.input(0) };
    let limits = limits(c, 1, &inputs, per_channel)?;
    if let (true, Some(rank)) = (per_channel, inputs.rank()) {
        inputs = inputs.with_dim(rank - 1, limits.dim(0));
    }
    c.set_output(0, inputs);
    Ok(())
}

fn vars_gradient_shape(c: &mut ShapeContext<'_>, per_channel: bool) -> Result<()> {
    let inputs = c.merged(0, 1)?;
    if per_channel {
        c.with_rank_at_least(0, 1)?;
    }
    let limits = limits(c, 2, &inputs, per_channel)?;
    c.set_output(0, inputs);
    c.set_output(1, limits.clone());
    c.set_output(2, limits);
    Ok(())
}

fn args_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let attrs = args.op.attrs();
    let op = grad.graph().op("FakeQuantWithMinMaxArgsGradient").input(&grad).input(&args.input(0));
    let op = op.attr("min", attrs.float("min")?).attr("max", attrs.float("max")?);
    let op = op.attr("num_bits", attrs.int("num_bits")?).attr("narrow_range", attrs.bool("narrow_range")?);
    Ok(vec![Some(op.try_build()?.output(0).into())])
}

fn vars_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 3]) };
    let attrs = args.op.attrs();
    let mut op = grad.graph().op(&format!("{}Gradient", args.op.op_type())).input(&grad);
    for input in 0..3 {
        op = op.input(&args.input(input));
    }
    let op = op.attr("num_bits", attrs.int("num_bits")?).attr("narrow_range", attrs.bool("narrow_range")?);
    let op = op.try_build()?;
    Ok((0..3).map(|port| Some(op.output(port).into())).collect())
}

/// The numbers that can be represented: zero is always one of them.
#[derive(Clone, Copy)]
enum Scale {
    /// From zero to zero.
    Nothing,
    Steps {
        min: f32,
        max: f32,
        step: f32,
    },
}

impl Scale {
    fn new(min: f32, max: f32, lowest: f32, highest: f32) -> Scale {
        let step = (max - min) / (highest - lowest);
        let zero = (lowest - min / step).clamp(lowest, highest).round();
        Scale::Steps { min: (lowest - zero) * step, max: (highest - zero) * step, step }
    }

    /// Returns the nearest number that can be represented.
    fn nearest(self, value: f32) -> f32 {
        match self {
            Scale::Nothing => 0.0,
            Scale::Steps { min, max, step } => {
                let zero = (-min / step + 0.5).floor();
                // In this order the limits replace NaN.
                let clamped = value.min(max).max(min);
                ((clamped - min) / step - zero + 0.5).floor() * step
            }
        }
    }

    /// Returns the gradients with respect to a number, to the lower and to the upper limit.
    fn grads(self, value: f32, grad: f32) -> [f32; 3] {
        match self {
            Scale::Nothing => [grad, 0.0, 0.0],
            Scale::Steps { min, max, .. } => {
                let factor = |holds: bool| grad * if holds { 1.0 } else { 0.0 };
                [factor(value >= min && value <= max), factor(value < min), factor(value > max)]
            }
        }
    }
}

struct FakeQuantize {
    /// The limits, if they are attributes.
    fixed: Option<(f32, f32)>,
    is_gradient: bool,
    per_channel: bool,
    lowest: f32,
    highest: f32,
}

impl FakeQuantize {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let (attrs, op) = (builder.attrs(), builder.node.op());
        let fixed = match op.contains("Args") {
            true => Some((attrs.float("min")?, attrs.float("max")?)),
            false => None,
        };
        if let Some((min, max)) = fixed.filter(|(min, max)| min.is_nan() || max.is_nan() || min >= max) {
            return Err(Status::invalid_argument(format!("min has to be smaller than max, was: {min} >= {max}")));
        }
        let bits = attrs.int("num_bits")?;
        if !(2..=16).contains(&bits) {
            return Err(Status::invalid_argument("num_bits must be between 2 and 16, inclusive"));
        }
        BoxedKernel::new(FakeQuantize {
            fixed,
            is_gradient: op.ends_with("Gradient"),
            per_channel: op.contains("PerChannel"),
            lowest: if attrs.bool("narrow_range")? { 1.0 } else { 0.0 },
            highest: ((1u32 << bits) - 1) as f32,
        })
    }

    /// Returns the scale of each channel, or a single one for all.
    fn scales(&self, context: &OpContext<'_>, inputs: &Tensor) -> Result<Vec<Scale>> {
        if let Some((min, max)) = self.fixed {
            return Ok(vec![Scale::new(min, max, self.lowest, self.highest)]);
        }
        let first = if self.is_gradient { 2 } else { 1 };
        let (min, max) = (context.input(first)?, context.input(first + 1)?);
        for (name, limit) in [("min", min), ("max", max)] {
            self.check_limit(name, limit, inputs)?;
        }
        let limits = min.as_slice::<f32>()?.iter().zip(max.as_slice::<f32>()?);
        Ok(limits
            .map(|(&min, &max)| match min == 0.0 && max == 0.0 {
                true => Scale::Nothing,
                false => Scale::new(min, max, self.lowest, self.highest),
            })
            .collect())
    }

    fn check_limit(&self, name: &str, limit: &Tensor, inputs: &Tensor) -> Result<()> {
        if !self.per_channel {
            return match limit.shape().is_scalar() {
                true => Ok(()),
                false => {
                    let rank = limit.shape().rank();
                    Err(Status::invalid_argument(format!("`{name}` must be rank 0 but is rank {rank}")))
                }
            };
        }
        let rank = inputs.shape().rank();
        if rank == 0 {
            return Err(Status::invalid_argument(format!("Input must be of rank >= 1 but got: {}", inputs.shape())));
        }
        let depth = inputs.shape().size(rank - 1);
        if !limit.shape().is_vector() {
            let rank = limit.shape().rank();
            return Err(Status::invalid_argument(format!("`{name}` must be rank 1 but is rank {rank}")));
        }
        if limit.num_elements() != depth {
            return Err(Status::invalid_argument(format!(
                "{name} has incorrect size, expected {depth} was {}",
                limit.num_elements()
            )));
        }
        Ok(())
    }
}

impl Kernel for FakeQuantize {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let inputs = context.input(usize::from(self.is_gradient))?;
        let values = inputs.as_slice::<f32>()?;
        if self.is_gradient && context.input(0)?.shape() != inputs.shape() {
            return Err(Status::invalid_argument(match self.fixed {
                Some(_) => format!(
                    "Inputs to operation {} of type FakeQuantWithMinMaxArgsGradient must have the same size and shape.  Input 0: {} != input 1: {}",
                    context.node_name(),
                    context.input(0)?.shape(),
                    inputs.shape()
                ),
                None => "gradient and input must be the same size".to_owned(),
            }));
        }
        let scales = self.scales(context, inputs)?;
        if !self.is_gradient {
            let output = Tensor::build(inputs.shape().clone(), |out: &mut [f32]| {
                let channels = scales.iter().cycle();
                out.iter_mut().zip(values).zip(channels).for_each(|((out, &value), scale)| *out = scale.nearest(value));
            })?;
            context.set_output(0, output);
            return Ok(());
        }
        let gradients = context.slice::<f32>(0)?;
        let mut of_limits = [vec![0f64; scales.len()], vec![0f64; scales.len()]];
        let output = Tensor::build(inputs.shape().clone(), |out: &mut [f32]| {
            for (index, out) in out.iter_mut().enumerate() {
                let channel = index % scales.len();
                let [of_input, of_min, of_max] = scales[channel].grads(values[index], gradients[index]);
                *out = of_input;
                of_limits[0][channel] += f64::from(of_min);
                of_limits[1][channel] += f64::from(of_max);
            }
        })?;
        let shape = if self.per_channel { Shape::vector(scales.len()) } else { Shape::scalar() };
        context.set_output(0, output);
        if self.fixed.is_none() {
            for (index, sums) in of_limits.iter().enumerate() {
                let tensor = Tensor::build(shape.clone(), |out: &mut [f32]| {
                    out.iter_mut().zip(sums).for_each(|(out, &sum)| *out = sum as f32);
                })?;
                context.set_output(1 + index, tensor);
            }
        }
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
    fn numbers_are_those_that_the_bits_stand_for() {
        let x = Tensor::vector(&[-2f32, -0.6, 0.0, 0.4, 3.0]);
        let attrs = || attrs![("num_bits", 2i64)];
        let y = run_op("FakeQuantWithMinMaxVars", attrs(), &[x.clone(), Tensor::scalar(-1f32), Tensor::scalar(2f32)]);
        assert_eq!(y.unwrap()[0].as_slice::<f32>().unwrap(), [-1.0, -1.0, 0.0, 0.0, 2.0]);
        let y = run_op("FakeQuantWithMinMaxVars", attrs(), &[x.clone(), Tensor::scalar(0f32), Tensor::scalar(0f32)]);
        assert_eq!(y.unwrap()[0].as_slice::<f32>().unwrap(), [0.0; 5]);
        let grad = Tensor::vector(&[1f32, 2.0, 3.0, 4.0, 5.0]);
        let limits = [Tensor::scalar(-1f32), Tensor::scalar(2f32)];
        let inputs = [grad, x, limits[0].clone(), limits[1].clone()];
        let grads = run_op("FakeQuantWithMinMaxVarsGradient", attrs(), &inputs).unwrap();
        assert_eq!(grads[0].as_slice::<f32>().unwrap(), [0.0, 2.0, 3.0, 4.0, 0.0]);
        assert_eq!(grads[1].to_scalar::<f32>().unwrap(), 1.0);
        assert_eq!(grads[2].to_scalar::<f32>().unwrap(), 5.0);
    }

    #[test]
    fn mistakes_and_shapes() {
        let x = Tensor::vector(&[1f32, 2.0]);
        let code = |op: &str, attrs, inputs: &[Tensor]| run_op(op, attrs, inputs).unwrap_err().code();
        let limit = Tensor::vector(&[1f32, 2.0, 3.0]);
        for attrs in [attrs![("min", 7f32)], attrs![("num_bits", 1i64)], attrs![("num_bits", 17i64)]] {
            assert_eq!(code("FakeQuantWithMinMaxArgs", attrs, &[x.clone()]), Code::InvalidArgument);
        }
        for op in ["FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel"] {
            let inputs = [x.clone(), limit.clone(), limit.clone()];
            assert_eq!(code(op, attrs![], &inputs), Code::InvalidArgument);
        }
        check_shape("FakeQuantWithMinMaxVarsPerChannel", attrs![], "[2,?];[3];[?]", "[2,3]");
        check_shape("FakeQuantWithMinMaxVarsGradient", attrs![], "[2,?];[?,4];[];[]", "[2,4];[];[]");
    }
}
