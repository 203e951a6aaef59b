//! _FusedMatMul and _FusedConv2D: products fused with a bias and an activation, which are applied while the product is still in
//! the cache. Optimizers create them; programs don't.

use super::conv::{Plan, conv_shape};
use super::window::Window;
use crate::math::{matmul_shape, matrix_product_shape};
use bytes::Bytes;
use kernel::{
    AttrMap, BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, ShapeContext, kernels,
};
use num_traits::{Float, NumCast};
use numeric::conv::ConvElement;
use numeric::matmul::{Activation, Epilogue, FusedMatMulElement, KeptPanels, matmul_bias_activation_with};
use std::marker::PhantomData;
use tensor::{Element, Result, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "_FusedMatMul",
            inputs: &["a: T", "b: T", "args: num_args * T"],
            outputs: &["product: T"],
            attrs: &[
                "transpose_a: bool = false",
                "transpose_b: bool = false",
                "T: {bfloat16, half, float}",
                "num_args: int >= 0",
                "fused_ops: list(string) = []",
                "epsilon: float = 1e-04",
                "leakyrelu_alpha: float = 0.2",
            ],
            flags: OpFlags::NONE,
        },
        shape: matmul_shape,
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [f32, f16, bf16] => FusedMatMul),
    },
    Op {
        def: OpDef {
            name: "_FusedConv2D",
            inputs: &["input: T", "filter: T", "args: TArgs", "host_args: num_host_args * float"],
            outputs: &["output: T"],
            attrs: &[
                "T: {half, float, double, int8, qint8}",
                "TArgs: list(type) >= 1",
                "num_args: int >= 0",
                "num_host_args: int >= 0 = 0",
                "strides: list(int)",
                "padding: {'SAME', 'VALID', 'EXPLICIT'}",
                "explicit_paddings: list(int) = []",
                "data_format: {'NHWC', 'NCHW', 'NCHW_VECT_C'} = 'NHWC'",
                "filter_format: {'HWIO', 'OIHW', 'OIHW_VECT_I'} = 'HWIO'",
                "dilations: list(int) = [1, 1, 1, 1]",
                "use_cudnn_on_gpu: bool = true",
                "fused_ops: list(string) = []",
                "epsilon: float = 1e-04",
                "leakyrelu_alpha: float = 0.2",
            ],
            flags: OpFlags::NONE,
        },
        shape: fused_conv_shape,
        gradient: Gradient::Unsupported,
        kernels: kernels!("T": [f32, f64, f16] => FusedConv2D),
    },
];

fn fused_conv_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    conv_shape::<2>(c)
}

/// The operations on a product, in this order.
#[derive(Clone, Copy)]
struct Finish {
    channels: ChannelStep,
    /// Whether a tensor of the output's shape is added.
    adds: bool,
    activation: Activation,
    epsilon: f32,
}

/// The operation on each channel of a product.
#[derive(Clone, Copy, PartialEq)]
enum ChannelStep {
    /// A bias is added: one argument.
    Bias,
    /// It is normalized with a given mean and variance: scale, offset, mean and variance.
    Normalize,
}

impl Finish {
    fn from_attrs(attrs: &AttrMap) -> Result<Finish> {
        let names = attrs.strings("fused_ops")?;
        let shown = || names.iter().map(|name| String::from_utf8_lossy(name)).collect::<Vec<_>>().join(",");
        let unknown = || Status::unimplemented(format!("Fusion is not implemented: [{}]", shown()));
        let mut rest: &[Bytes] = names;
        let mut next_is = |wanted: &str| match rest.split_first() {
            Some((first, others)) if first == wanted => {
                rest = others;
                true
            }
            _ => false,
        };
        let channels = if next_is("BiasAdd") {
            ChannelStep::Bias
        } else if next_is("FusedBatchNorm") {
            ChannelStep::Normalize
        } else {
            return Err(unknown());
        };
        let adds = next_is("Add");
        let activation = match rest {
            [] => Activation::Identity,
            [name] => match &name[..] {
                b"Relu" => Activation::Relu,
                b"Relu6" => Activation::Relu6,
                b"Elu" => Activation::Elu,
                b"LeakyRelu" => Activation::LeakyRelu(attrs.float("leakyrelu_alpha")?),
                b"Tanh" => Activation::Tanh,
                b"Sigmoid" => Activation::Sigmoid,
                _ => return Err(unknown()),
            },
            _ => return Err(unknown()),
        };
        let num_args = attrs.int("num_args")?;
        let expected = if channels == ChannelStep::Bias { 1 } else { 4 } + if adds { 1i64 } else { 0 };
        if num_args != expected {
            return Err(Status::invalid_argument(format!(
                "Fused [{}] must have {expected} extra arguments, not {num_args}",
                shown()
            )));
        }
        Ok(Finish { channels, adds, activation, epsilon: attrs.float("epsilon")? })
    }

    /// Computes a product and its epilogue. `product` gets the part of the epilogue that can be applied during the computation.
    fn run<T: Element + Float>(
        &self,
        context: &OpContext<'_>,
        num_channels: usize,
        product: impl FnOnce(Epilogue<'_, T>) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let vector = |index: usize, name: &str| -> Result<&[T]> {
            let tensor = context.input(2 + index)?;
            if !tensor.shape().is_vector() || tensor.num_elements() != num_channels {
                return Err(Status::invalid_argument(format!(
                    "{name} must be a vector of {num_channels} elements, one for each channel, but has shape {}",
                    tensor.shape()
                )));
            }
            tensor.as_slice::<T>()
        };
        match self.channels {
            ChannelStep::Bias => {
                let bias = Some(vector(0, "bias")?);
                if !self.adds {
                    return product(Epilogue { bias, activation: self.activation });
                }
                let output = product(Epilogue { bias, activation: Activation::Identity })?;
                self.add_and_activate::<T>(context, output, 3)
            }
            ChannelStep::Normalize => {
                let (scale, offset) = (vector(0, "scale")?, vector(1, "offset")?);
                let (mean, variance) = (vector(2, "mean")?, vector(3, "variance")?);
                let epsilon = number::<T>(self.epsilon);
                let factors: Vec<T> =
                    scale.iter().zip(variance).map(|(&scale, &variance)| scale / (variance + epsilon).sqrt()).collect();
                let terms: Vec<T> = (0..num_channels).map(|at| offset[at] - mean[at] * factors[at]).collect();
                let mut output = product(Epilogue::NONE)?;
                if num_channels > 0 {
                    for pixel in output.make_mut::<T>()?.chunks_exact_mut(num_channels) {
                        for ((value, &factor), &term) in pixel.iter_mut().zip(&factors).zip(&terms) {
                            *value = *value * factor + term;
                        }
                    }
                }
                self.add_and_activate::<T>(context, output, 6)
            }
        }
    }

    /// Adds input `index`, if there is one to add, and applies the activation.
    fn add_and_activate<T: Element + Float>(
        &self,
        context: &OpContext<'_>,
        mut output: Tensor,
        index: usize,
    ) -> Result<Tensor> {
        if self.adds {
            let other = context.input(index)?;
            if other.shape() != output.shape() {
                return Err(Status::invalid_argument(format!(
                    "what is added must have the output's shape {}, but has {}",
                    output.shape(),
                    other.shape()
                )));
            }
            let other = other.as_slice::<T>()?;
            output.make_mut::<T>()?.iter_mut().zip(other).for_each(|(value, &other)| *value = *value + other);
        }
        if self.activation != Activation::Identity {
            let activation = self.activation;
            output.make_mut::<T>()?.iter_mut().for_each(|value| *value = activate(activation, *value));
        }
        Ok(output)
    }
}

fn number<T: Float>(value: f32) -> T {
    <T as NumCast>::from(value).unwrap_or_else(T::zero)
}

fn activate<T: Float>(activation: Activation, x: T) -> T {
    let zero = T::zero();
    match activation {
        Activation::Identity => x,
        Activation::Relu => {
            if x < zero {
                zero
            } else {
                x
            }
        }
        Activation::Relu6 => {
            let six = number::<T>(6.0);
            if x < zero {
                zero
            } else if x > six {
                six
            } else {
                x
            }
        }
        Activation::Elu => {
            if x < zero {
                x.exp_m1()
            } else {
                x
            }
        }
        Activation::LeakyRelu(alpha) => {
            if x > zero {
                x
            } else {
                x * number(alpha)
            }
        }
        Activation::Tanh => x.tanh(),
        Activation::Sigmoid => T::one() / (T::one() + (-x).exp()),
    }
}

struct FusedMatMul<T> {
    transpose_a: bool,
    transpose_b: bool,
    finish: Finish,
    /// The panels of weights that stay the same, as in the iterations of a loop.
    panels: KeptPanels<T>,
}

impl<T: Element + FusedMatMulElement + Float> FusedMatMul<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let (transpose_a, transpose_b) = (attrs.bool("transpose_a")?, attrs.bool("transpose_b")?);
        let finish = Finish::from_attrs(attrs)?;
        BoxedKernel::new(FusedMatMul { transpose_a, transpose_b, finish, panels: KeptPanels::<T>::new() })
    }
}

impl<T: Element + FusedMatMulElement + Float> Kernel for FusedMatMul<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (a, b) = (context.input(0)?, context.input(1)?);
        let (shape, out_shape) = matrix_product_shape(a.shape(), b.shape(), self.transpose_a, self.transpose_b)?;
        let panels = self.panels.of(shape, b.as_slice::<T>()?, || b.contents());
        let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        let output = self.finish.run::<T>(context, shape.n, |epilogue| {
            let multiply = |out: &mut [T]| matmul_bias_activation_with(shape, a, b, panels.as_deref(), out, epilogue);
            Tensor::build(out_shape, multiply)
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

struct FusedConv2D<T> {
    window: Window,
    finish: Finish,
    element: PhantomData<fn(T)>,
}

impl<T: Element + ConvElement + Float> FusedConv2D<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let finish = Finish::from_attrs(attrs)?;
        let is_simple = finish.channels == ChannelStep::Bias && !finish.adds;
        if attrs.string("filter_format")? != "HWIO" || (attrs.string("data_format")? != "NHWC" && !is_simple) {
            return Err(Status::unimplemented("a fused convolution on the CPU has channels last"));
        }
        let window = Window::from_attrs(attrs, 2)?;
        BoxedKernel::new(FusedConv2D { window, finish, element: PhantomData::<fn(T)> })
    }
}

impl<T: Element + ConvElement + Float> Kernel for FusedConv2D<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, filter) = (context.input(0)?, context.input(1)?);
        let plan = Plan::new(&self.window, input.shape(), filter.shape())?;
        let output = self
            .finish
            .run::<T>(context, plan.shape.out_channels, |epilogue| plan.run::<T>(input, filter, epilogue))?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use graph::AttrMap;
    use tensor::{Code, DType, Result, Tensor};

    fn floats(dims: &[i64], start: f32) -> Tensor {
        let count = dims.iter().product::<i64>() as usize;
        let values: Vec<f32> = (0..count).map(|index| start + 0.37 * index as f32 % 1.9 - 0.6).collect();
        Tensor::from_slice(dims, &values).unwrap()
    }

    fn run_one(op: &str, attrs: AttrMap, inputs: &[&Tensor]) -> Tensor {
        let inputs: Vec<Tensor> = inputs.iter().copied().cloned().collect();
        run_op(op, attrs, &inputs).unwrap_or_else(|status| panic!("{status}")).remove(0)
    }

    fn assert_close(actual: &Tensor, expected: &Tensor) {
        assert_eq!(actual.dims(), expected.dims());
        let (actual, expected) = (actual.as_slice::<f32>().unwrap(), expected.as_slice::<f32>().unwrap());
        for (actual, expected) in actual.iter().zip(expected) {
            assert!((actual - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{actual} is not {expected}");
        }
    }

    #[test]
    fn a_fused_product_is_what_its_parts_are() {
        let (a, b, bias) = (floats(&[3, 4], 0.1), floats(&[5, 4], -0.2), floats(&[5], 0.3));
        let product = run_one("MatMul", attrs![("transpose_b", true)], &[&a, &b]);
        let biased = run_one("BiasAdd", attrs![], &[&product, &bias]);
        for activation in ["", "Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid"] {
            let expected =
                if activation.is_empty() { biased.clone() } else { run_one(activation, attrs![], &[&biased]) };
            let names: Vec<&str> = ["BiasAdd", activation].into_iter().filter(|name| !name.is_empty()).collect();
            let fused = attrs![("transpose_b", true), ("fused_ops", names.as_slice()), ("num_args", 1i64)];
            assert_close(&run_one("_FusedMatMul", fused, &[&a, &b, &bias]), &expected);
            // The same with another tensor added in between.
            let other = floats(&[3, 5], 0.7);
            let sum = run_one("AddV2", attrs![], &[&biased, &other]);
            let expected = if activation.is_empty() { sum } else { run_one(activation, attrs![], &[&sum]) };
            let names: Vec<&str> = ["BiasAdd", "Add", activation].into_iter().filter(|name| !name.is_empty()).collect();
            let fused = attrs![("transpose_b", true), ("fused_ops", names.as_slice()), ("num_args", 2i64)];
            assert_close(&run_one("_FusedMatMul", fused, &[&a, &b, &bias, &other]), &expected);
        }
    }

    fn conv_attrs(names: &[&str], num_args: usize) -> AttrMap {
        let types = vec![DType::Float; num_args];
        attrs![
            ("strides", [1i64, 2, 2, 1].as_slice()),
            ("padding", "SAME"),
            ("fused_ops", names),
            ("TArgs", types.as_slice()),
            ("num_args", num_args as i64),
            ("num_host_args", 0i64),
            ("epsilon", 1e-3f32),
        ]
    }

    #[test]
    fn a_fused_convolution_is_what_its_parts_are() {
        let (image, filter, bias) = (floats(&[2, 5, 5, 3], 0.1), floats(&[3, 3, 3, 4], -0.2), floats(&[4], 0.3));
        let plain = attrs![("strides", [1i64, 2, 2, 1].as_slice()), ("padding", "SAME")];
        let product = run_one("Conv2D", plain, &[&image, &filter]);
        let biased = run_one("BiasAdd", attrs![], &[&product, &bias]);
        let expected = run_one("Relu", attrs![], &[&biased]);
        assert_close(
            &run_one("_FusedConv2D", conv_attrs(&["BiasAdd", "Relu"], 1), &[&image, &filter, &bias]),
            &expected,
        );
    }

    #[test]
    fn a_fused_convolution_can_normalize() {
        let (image, filter) = (floats(&[1, 4, 4, 2], 0.1), floats(&[1, 1, 2, 3], -0.2));
        let plain = attrs![("strides", [1i64, 2, 2, 1].as_slice()), ("padding", "SAME")];
        let product = run_one("Conv2D", plain, &[&image, &filter]);
        let (scale, offset, mean) = (floats(&[3], 0.5), floats(&[3], 0.2), floats(&[3], 0.9));
        let variance = Tensor::vector(&[0.5f32, 1.5, 2.0]);
        let fused = conv_attrs(&["FusedBatchNorm", "Relu"], 4);
        let actual = run_one("_FusedConv2D", fused, &[&image, &filter, &scale, &offset, &mean, &variance]);
        let at = |tensor: &Tensor, index: usize| tensor.as_slice::<f32>().unwrap()[index];
        let normalized: Vec<f32> = (0..product.num_elements())
            .map(|index| {
                let channel = index % 3;
                let centred = at(&product, index) - at(&mean, channel);
                let value =
                    centred / (at(&variance, channel) + 1e-3).sqrt() * at(&scale, channel) + at(&offset, channel);
                value.max(0.0)
            })
            .collect();
        assert_close(&actual, &Tensor::from_slice(product.dims(), &normalized).unwrap());
    }

    #[test]
    fn mistakes() {
        let code = |result: Result<Vec<Tensor>>| result.err().map(|status| status.code());
        let (a, b) = (floats(&[3, 4], 0.1), floats(&[4, 5], -0.2));
        let run = |names: &[&str], num_args: i64, args: &[Tensor]| {
            let inputs: Vec<Tensor> = [a.clone(), b.clone()].into_iter().chain(args.iter().cloned()).collect();
            run_op("_FusedMatMul", attrs![("fused_ops", names), ("num_args", num_args)], &inputs)
        };
        assert_eq!(code(run(&["BiasAdd"], 1, &[floats(&[4], 0.0)])), Some(Code::InvalidArgument));
        assert_eq!(code(run(&["BiasAdd"], 1, &[floats(&[1, 5], 0.0)])), Some(Code::InvalidArgument));
        assert_eq!(code(run(&["Relu"], 0, &[])), Some(Code::Unimplemented));
        assert_eq!(code(run(&["BiasAdd", "Nonsense"], 1, &[floats(&[5], 0.0)])), Some(Code::Unimplemented));
        assert_eq!(code(run(&["BiasAdd", "Add"], 1, &[floats(&[5], 0.0)])), Some(Code::InvalidArgument));
        let (bias, narrow) = (floats(&[5], 0.0), floats(&[3, 1], 0.0));
        assert_eq!(code(run(&["BiasAdd", "Add"], 2, &[bias, narrow])), Some(Code::InvalidArgument));
    }
}
