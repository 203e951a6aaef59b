//! Convolutions of quantized images, and requantization of their sums to eight bits: QuantizedConv2D, QuantizedRelu,
//! RequantizationRange, Requantize, QuantizeDownAndShrinkRange.

use super::window::{Images, Window};
use graph::ShapeContext;
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeFn, shape,
};
use numeric::matmul::{MatMulShape, matmul};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

const T_INPUT: &str = "Tinput: {qint8, quint8, qint32, qint16, quint16}";
const OUT_TYPE: &str = "out_type: {qint8, quint8, qint32, qint16, quint16}";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "QuantizedConv2D",
            inputs: &[
                "input: Tinput",
                "filter: Tfilter",
                "min_input: float",
                "max_input: float",
                "min_filter: float",
                "max_filter: float",
            ],
            outputs: &["output: out_type", "min_output: float", "max_output: float"],
            attrs: &[
                T_INPUT,
                "Tfilter: {qint8, quint8, qint32, qint16, quint16}",
                "out_type: {qint8, quint8, qint32, qint16, quint16} = DT_QINT32",
                "strides: list(int)",
                "padding: {'SAME', 'VALID'}",
                "dilations: list(int) = [1, 1, 1, 1]",
            ],
            flags: OpFlags::NONE,
        },
        shape: conv_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef {
            types: &[("Tinput", DType::QUInt8), ("Tfilter", DType::QUInt8), ("out_type", DType::QInt32)],
            create: QuantizedConv2D::create,
        }],
    },
    op(
        "QuantizedRelu",
        &["features: Tinput", "min_features: float", "max_features: float"],
        &["activations: out_type", "min_activations: float", "max_activations: float"],
        &[T_INPUT, "out_type: {qint8, quint8, qint32, qint16, quint16} = DT_QUINT8"],
        with_range_shape,
        &[
            KernelDef { types: &[("Tinput", DType::QUInt8), ("out_type", DType::QUInt8)], create: relu },
            KernelDef { types: &[("Tinput", DType::QInt32), ("out_type", DType::QInt32)], create: relu },
        ],
    ),
    op(
        "RequantizationRange",
        &["input: Tinput", "input_min: float", "input_max: float"],
        &["output_min: float", "output_max: float"],
        &[T_INPUT],
        range_shape,
        &[KernelDef { types: &[("Tinput", DType::QInt32)], create: |_| BoxedKernel::new(RequantizationRange) }],
    ),
    op(
        "Requantize",
        &[
            "input: Tinput",
            "input_min: float",
            "input_max: float",
            "requested_output_min: float",
            "requested_output_max: float",
        ],
        &["output: out_type", "output_min: float", "output_max: float"],
        &[T_INPUT, OUT_TYPE],
        with_range_shape,
        &[
            KernelDef { types: &[("Tinput", DType::QInt32), ("out_type", DType::QInt8)], create: requantize },
            KernelDef { types: &[("Tinput", DType::QInt32), ("out_type", DType::QUInt8)], create: requantize },
        ],
    ),
    op(
        "QuantizeDownAndShrinkRange",
        &["input: Tinput", "input_min: float", "input_max: float"],
        &["output: out_type", "output_min: float", "output_max: float"],
        &[T_INPUT, OUT_TYPE],
        with_range_shape,
        &[KernelDef {
            types: &[("Tinput", DType::QInt32), ("out_type", DType::QUInt8)],
            create: |_| BoxedKernel::new(ShrinkRange),
        }],
    ),
];

const fn op(
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    attrs: &'static [&'static str],
    shape: ShapeFn,
    kernels: &'static [KernelDef],
) -> Op {
    let def = OpDef { name, inputs, outputs, attrs, flags: OpFlags::NONE };
    Op { def, shape, gradient: Gradient::Unsupported, kernels }
}

fn conv_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    super::conv::conv_shape::<2>(c)?;
    scalar_ranges(c, 2..6)?;
    c.set_output(1, PartialShape::from_dims(&[]));
    c.set_output(2, PartialShape::from_dims(&[]));
    Ok(())
}

/// The first output has the input's shape, the others are its range.
fn with_range_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    shape::unchanged(c)?;
    scalar_ranges(c, 1..c.num_inputs())?;
    c.set_output(1, PartialShape::from_dims(&[]));
    c.set_output(2, PartialShape::from_dims(&[]));
    Ok(())
}

fn range_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    scalar_ranges(c, 1..3)?;
    c.set_output(0, PartialShape::from_dims(&[]));
    c.set_output(1, PartialShape::from_dims(&[]));
    Ok(())
}

fn scalar_ranges(c: &mut ShapeContext<'_>, inputs: std::ops::Range<usize>) -> Result<()> {
    for input in inputs {
        c.with_rank(input, 0)?;
    }
    Ok(())
}

/// The numbers that the minimum and maximum of a quantized type represent.
#[derive(Clone, Copy)]
struct Range {
    min: f32,
    max: f32,
}

impl Range {
    fn of(context: &OpContext<'_>, first: usize) -> Result<Range> {
        Range::named(context, first, ["the minimum of a range", "the maximum of a range"])
    }

    /// Returns the range of two inputs, which errors call so.
    fn named(context: &OpContext<'_>, first: usize, names: [&str; 2]) -> Result<Range> {
        let bound = |index: usize| {
            let tensor = context.input(index)?;
            if !tensor.shape().is_scalar() {
                return Err(Status::invalid_argument(format!(
                    "{} must be rank 0 but is rank {}, got shape {}",
                    names[index - first],
                    tensor.shape().rank(),
                    tensor.shape()
                )));
            }
            tensor.to_scalar::<f32>()
        };
        Ok(Range { min: bound(first)?, max: bound(first + 1)? })
    }

    /// Returns the value that represents zero, for a type of this many bits with the minimum `lowest`.
    fn zero(self, bits: u32, lowest: i64) -> i64 {
        if self.min == self.max {
            return lowest;
        }
        let steps = (1u64 << bits) as f64;
        let range = f64::from(self.max - self.min) * (steps / (steps - 1.0));
        // An infinite range has no zero; a cast of it stays within bounds.
        (0i64).saturating_sub((f64::from(self.min) * (steps / range)).round() as i64).saturating_add(lowest)
    }

    /// Returns the difference that a step of an 8-bit type represents.
    fn step8(self) -> f32 {
        (self.max - self.min) / 255.0
    }

    /// Returns the number that a 32-bit value represents.
    fn number(self, value: i32) -> f32 {
        if self.min == self.max {
            return self.min;
        }
        let steps = (1u64 << 32) as f64;
        let range = f64::from(self.max - self.min) * (steps / (steps - 1.0));
        let scale = range / steps;
        let rounded_min = f64::from((self.min / scale as f32).round()) * f64::from(scale as f32);
        (rounded_min + (f64::from(value) - f64::from(i32::MIN)) * scale) as f32
    }

    fn set(self, context: &mut OpContext<'_>, first: usize) {
        context.set_output(first, Tensor::scalar(self.min));
        context.set_output(first + 1, Tensor::scalar(self.max));
    }
}

struct QuantizedConv2D {
    window: Window,
    is_padded: bool,
}

impl QuantizedConv2D {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let window = Window::from_attrs(builder.attrs(), 2)?;
        let [_, rows, columns] = window.strides;
        if rows != columns || window.channel_stride != 1 {
            return Err(Status::invalid_argument(
                "Current implementation only supports equal length strides in the row and column dimensions.",
            ));
        }
        if window.dilations != [1; 3] {
            return Err(Status::invalid_argument(
                "Current implementation only supports dilated rate as 1 in the row and column dimensions.",
            ));
        }
        BoxedKernel::new(QuantizedConv2D { window, is_padded: builder.attrs().string("padding")? == "SAME" })
    }
}

impl Kernel for QuantizedConv2D {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (input, filter) = (context.input(0)?, context.input(1)?);
        let (input_range, filter_range) = (
            Range::named(context, 2, ["min_input", "max_input"])?,
            Range::named(context, 4, ["min_filter", "max_filter"])?,
        );
        let (&[batch, rows, columns, depth], &[filter_rows, filter_columns, filter_depth, count]) =
            (input.dims(), filter.dims())
        else {
            return Err(Status::invalid_argument(format!(
                "{} must be rank 4 but is rank {}: input and filter must be 4-dimensional: {} and {}",
                if input.shape().rank() != 4 { "input" } else { "filter" },
                if input.shape().rank() != 4 { input.shape().rank() } else { filter.shape().rank() },
                input.shape(),
                filter.shape()
            )));
        };
        if depth != filter_depth {
            return Err(Status::invalid_argument(format!(
                "input and filter must have the same depth: {depth} vs {filter_depth}"
            )));
        }
        if input.num_elements() == 0 || filter.num_elements() == 0 {
            return Err(Status::invalid_argument("input and filter must not be empty"));
        }
        let images =
            Images { batch: batch as usize, size: [1, rows as usize, columns as usize], channels: depth as usize };
        let kernel_size = [1, filter_rows as usize, filter_columns as usize];
        let ([_, out_rows, out_columns], _) = self.window.slide(images.size, kernel_size)?;
        self.window.check_reach(&images, kernel_size, [1, out_rows, out_columns])?;
        let shape = Shape::new(&[batch, out_rows as i64, out_columns as i64, count])?;
        if shape.num_elements() == 0 {
            return Err(Status::invalid_argument(format!("the output would be empty: {shape}")));
        }

        // With padding, a window that is smaller than its strides starts within the image, as in TensorFlow.
        let before = |output: usize, kernel: usize, input: usize| match self.is_padded {
            true => ((output as i64 - 1) * self.window.strides[1] as i64 + kernel as i64 - input as i64) / 2,
            false => 0,
        };
        let zero = input_range.zero(8, 0) as i32;
        // The border is zero; TensorFlow writes it as an 8-bit value, which can't represent a zero outside of its range.
        let border = if zero < 0 { 0 } else { i32::from(zero as u8).wrapping_sub(zero) };
        let values: Vec<i32> =
            input.as_slice::<u8>()?.iter().map(|&value| i32::from(value).wrapping_sub(zero)).collect();
        let filter_zero = filter_range.zero(8, 0) as i32;
        let weights: Vec<i32> =
            filter.as_slice::<u8>()?.iter().map(|&value| i32::from(value).wrapping_sub(filter_zero)).collect();
        let patch = PatchGeometry {
            images,
            kernel: [kernel_size[1], kernel_size[2]],
            stride: self.window.strides[1],
            before: [
                before(out_rows, kernel_size[1], images.size[1]),
                before(out_columns, kernel_size[2], images.size[2]),
            ],
            output: [out_rows, out_columns],
        };
        let output =
            Tensor::build(shape, |sums: &mut [i32]| patch.convolve(&values, &weights, border, count as usize, sums))?;
        context.set_output(0, output.with_dtype(DType::QInt32)?);
        let step = input_range.step8() * filter_range.step8();
        Range { min: step * i32::MIN as f32, max: step * i32::MAX as f32 }.set(context, 1);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// The number of elements of patches in memory at once, unless one patch has more.
const PATCH_ELEMENTS_MAX: usize = 1 << 20;

struct PatchGeometry {
    images: Images,
    kernel: [usize; 2],
    stride: usize,
    /// How far the first patch starts above and left of the image; negative within it.
    before: [i64; 2],
    output: [usize; 2],
}

impl PatchGeometry {
    /// Computes the product of the patches and the filter, with some patches of an output line at a time.
    fn convolve(&self, values: &[i32], weights: &[i32], border: i32, count: usize, sums: &mut [i32]) {
        let [_, rows, columns] = self.images.size;
        let patch_len = self.kernel[0] * self.kernel[1] * self.images.channels;
        let [out_rows, out_columns] = self.output;
        let at_once = (PATCH_ELEMENTS_MAX / patch_len).clamp(1, out_columns);
        let mut patches = vec![0; at_once * patch_len];
        let image_len = rows * columns * self.images.channels;
        for (line, sums) in sums.chunks_exact_mut(out_columns * count).enumerate() {
            let image = &values[line / out_rows * image_len..][..image_len];
            for (chunk, sums) in sums.chunks_mut(at_once * count).enumerate() {
                let width = sums.len() / count;
                let patches = &mut patches[..width * patch_len];
                self.copy_patches(image, line % out_rows, chunk * at_once, border, patches);
                matmul(MatMulShape::new(width, patch_len, count), patches, weights, sums);
            }
        }
    }

    /// Copies the patches from a given column on.
    fn copy_patches(&self, image: &[i32], out_row: usize, first: usize, border: i32, patches: &mut [i32]) {
        let [_, rows, columns] = self.images.size;
        let depth = self.images.channels;
        let positions = self.kernel[0] * self.kernel[1];
        for (position, part) in patches.chunks_exact_mut(depth).enumerate() {
            let (out_column, within) = (first + position / positions, position % positions);
            let row = (out_row * self.stride + within / self.kernel[1]) as i64 - self.before[0];
            let column = (out_column * self.stride + within % self.kernel[1]) as i64 - self.before[1];
            if row < 0 || column < 0 || row >= rows as i64 || column >= columns as i64 {
                part.fill(border);
            } else {
                let start = (row as usize * columns + column as usize) * depth;
                part.copy_from_slice(&image[start..start + depth]);
            }
        }
    }
}

fn relu(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    BoxedKernel::new(QuantizedRelu { dtype: builder.input_dtype(0) })
}

struct QuantizedRelu {
    dtype: DType,
}

impl Kernel for QuantizedRelu {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let range = Range::of(context, 1)?;
        let input = context.input(0)?;
        let output = if self.dtype == DType::QUInt8 {
            let zero = range.zero(8, 0).clamp(0, 255) as u8;
            let values = input.as_slice::<u8>()?;
            Tensor::build(input.shape().clone(), |output: &mut [u8]| {
                output.iter_mut().zip(values).for_each(|(output, &value)| *output = value.max(zero));
            })?
        } else {
            let zero = range.zero(32, i64::from(i32::MIN)).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
            let values = input.as_slice::<i32>()?;
            Tensor::build(input.shape().clone(), |output: &mut [i32]| {
                output.iter_mut().zip(values).for_each(|(output, &value)| *output = value.max(zero));
            })?
        };
        context.set_output(0, output.with_dtype(self.dtype)?);
        range.set(context, 1);
        Ok(())
    }
}

/// Returns the range of the actual 32-bit values, extended to zero, which convolutions need.
fn used_range(values: &[i32], range: Range) -> Range {
    let least = values.iter().copied().min().unwrap_or(i32::MAX);
    let greatest = values.iter().copied().max().unwrap_or(i32::MIN);
    Range { min: range.number(least).min(0.0), max: range.number(greatest) }
}

struct RequantizationRange;

impl Kernel for RequantizationRange {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let range = Range::of(context, 1)?;
        used_range(context.slice::<i32>(0)?, range).set(context, 0);
        Ok(())
    }
}

fn requantize(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    BoxedKernel::new(Requantize { dtype: builder.output_dtype(0) })
}

struct Requantize {
    dtype: DType,
}

impl Kernel for Requantize {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (from, to) = (Range::of(context, 1)?, Range::of(context, 3)?);
        for (value, bound, fits) in [
            (to.min, "requested_output_min must be <= 0", to.min <= 0.0),
            (to.max, "requested_output_max must be >= 0", to.max >= 0.0),
        ] {
            if !fits {
                return Err(Status::invalid_argument(format!(
                    "{bound}, but got {value}: zero must lie in the requested range"
                )));
            }
        }
        let input = context.input(0)?;
        let output = match self.dtype {
            DType::QUInt8 => narrowed(input, from, to)?,
            _ => narrowed_signed(input, from, to)?,
        };
        context.set_output(0, output);
        to.set(context, 1);
        Ok(())
    }
}

struct ShrinkRange;

impl Kernel for ShrinkRange {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let from = Range::of(context, 1)?;
        let input = context.input(0)?;
        let to = used_range(input.as_slice()?, from);
        let output = narrowed(input, from, to)?;
        context.set_output(0, output);
        to.set(context, 1);
        Ok(())
    }
}

/// Requantizes 32-bit values to unsigned 8-bit ones in another range, with TensorFlow's fixed-point arithmetic.
fn narrowed(input: &Tensor, from: Range, to: Range) -> Result<Tensor> {
    const POINT: u32 = 16;
    let one = f64::from(1u32 << POINT);
    let (from_size, to_size) = (from.max - from.min, to.max - to.min);
    let middle = ((f64::from(from.min + from.max)) / 2.0) as f32;
    let (scale, middle, start) = if to_size == 0.0 {
        (0, 0, 0)
    } else {
        let reciprocal = (255.0 / f64::from(to_size)) as f32;
        (
            (255.0 * one * f64::from(from_size) / f64::from(to_size)) as i64,
            (middle * reciprocal * one as f32) as i64,
            (one * (f64::from(to.min) * 255.0) / f64::from(to_size)) as i64,
        )
    };
    let offset = middle.wrapping_sub(start).wrapping_add(1 << (POINT - 1));
    let values = input.as_slice::<i32>()?;
    let output = Tensor::build(input.shape().clone(), |output: &mut [u8]| {
        for (output, &value) in output.iter_mut().zip(values) {
            let fixed = (i64::from(value).wrapping_mul(scale) >> 32).wrapping_add(offset) >> POINT;
            *output = fixed.clamp(0, 255) as u8;
        }
    })?;
    output.with_dtype(DType::QUInt8)
}

/// Requantizes 32-bit values to signed 8-bit ones in another range, through floating-point numbers.
fn narrowed_signed(input: &Tensor, from: Range, to: Range) -> Result<Tensor> {
    let from_scale = (f64::from(from.max - from.min) / f64::from(u32::MAX)) as f32;
    let rounded_min = if from.min == from.max { from.min } else { (from.min / from_scale).round() * from_scale };
    let start = rounded_min - i32::MIN as f32 * from_scale;
    let to_scale = if to.min == to.max { 0.0 } else { (255.0 / f64::from(to.max - to.min)) as f32 };
    let offset = (to.min * to_scale).round() - f32::from(i8::MIN);
    let values = input.as_slice::<i32>()?;
    let output = Tensor::build(input.shape().clone(), |output: &mut [i8]| {
        for (output, &value) in output.iter_mut().zip(values) {
            let number = start + value as f32 * from_scale;
            *output = ((number * to_scale).round() - offset).clamp(-128.0, 127.0) as i8;
        }
    })?;
    output.with_dtype(DType::QInt8)
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Code, DType, Tensor};

    fn quantized(dims: &[i64], values: &[u8]) -> Tensor {
        Tensor::from_slice(dims, values).unwrap().with_dtype(DType::QUInt8).unwrap()
    }

    fn scalars(values: &[f32]) -> Vec<Tensor> {
        values.iter().map(|&value| Tensor::scalar(value)).collect()
    }

    #[test]
    fn sums_are_taken_around_zero() {
        let image = quantized(&[1, 2, 2, 1], &[1, 2, 3, 4]);
        let filter = quantized(&[2, 2, 1, 1], &[1, 1, 1, 2]);
        let strides: &[i64] = &[1, 1, 1, 1];
        let run = |padding: &str, range: [f32; 4]| {
            let inputs = [vec![image.clone(), filter.clone()], scalars(&range)].concat();
            run_op("QuantizedConv2D", attrs![("strides", strides), ("padding", padding)], &inputs).unwrap()
        };
        let outputs = run("VALID", [0.0, 255.0, 0.0, 255.0]);
        assert_eq!(outputs[0].as_slice::<i32>().unwrap(), &[14]);
        assert_eq!(outputs[1].to_scalar::<f32>().unwrap(), i32::MIN as f32);
        let outputs = run("SAME", [0.0, 255.0, 0.0, 255.0]);
        assert_eq!(outputs[0].as_slice::<i32>().unwrap(), &[14, 6, 7, 4]);
        // With zero at 1 the border contributes nothing, and all values are one less.
        let outputs = run("SAME", [-1.0, 254.0, 0.0, 255.0]);
        assert_eq!(outputs[0].as_slice::<i32>().unwrap(), &[9, 4, 5, 3]);
    }

    #[test]
    fn ranges_shrink_to_what_is_used() {
        let values = Tensor::vector(&[0i32, 1 << 20, 1 << 30]).with_dtype(DType::QInt32).unwrap();
        let inputs = [vec![values.clone()], scalars(&[-2.0, 2.0])].concat();
        let range = run_op("RequantizationRange", attrs![], &inputs).unwrap();
        assert!(range[0].to_scalar::<f32>().unwrap().abs() < 1e-6);
        assert!((range[1].to_scalar::<f32>().unwrap() - 1.0).abs() < 1e-6);
        let out = || attrs![("out_type", DType::QUInt8)];
        let shrunk = run_op("QuantizeDownAndShrinkRange", out(), &inputs).unwrap();
        assert_eq!(shrunk[0].as_slice::<u8>().unwrap(), &[0, 0, 255]);
        let inputs = [inputs, scalars(&[-1.0, 1.0])].concat();
        assert_eq!(run_op("Requantize", out(), &inputs).unwrap()[0].as_slice::<u8>().unwrap(), &[128, 128, 255]);
        let wrong = [vec![values], scalars(&[-2.0, 2.0, 0.5, 1.0])].concat();
        assert_eq!(run_op("Requantize", out(), &wrong).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn nothing_is_below_zero() {
        let inputs = [vec![quantized(&[3], &[0, 128, 255])], scalars(&[-1.0, 1.0])].concat();
        let outputs = run_op("QuantizedRelu", attrs![], &inputs).unwrap();
        assert_eq!(outputs[0].as_slice::<u8>().unwrap(), &[128, 128, 255]);
    }

    #[test]
    fn mistakes_and_shapes() {
        let strides: &[i64] = &[1, 1, 1, 1];
        let image = quantized(&[1, 1, 1, 1], &[1]);
        let valid = || attrs![("strides", strides), ("padding", "VALID")];
        for filter in [quantized(&[1, 1, 2, 1], &[1, 1]), quantized(&[2, 2, 1, 1], &[1; 4]), quantized(&[1, 1], &[1])] {
            let inputs = [vec![image.clone(), filter], scalars(&[0.0, 1.0, 0.0, 1.0])].concat();
            assert_eq!(run_op("QuantizedConv2D", valid(), &inputs).unwrap_err().code(), Code::InvalidArgument);
        }
        let types = || attrs![("Tinput", DType::QUInt8), ("Tfilter", DType::QUInt8), ("out_type", DType::QInt32)];
        let mut attrs = types();
        attrs.set("strides", strides);
        attrs.set("padding", "SAME");
        check_shape("QuantizedConv2D", attrs, "[1,4,5,2];[3,3,2,6];[];[];[];[]", "[1,4,5,6];[];[]");
        check_shape("RequantizationRange", attrs![("Tinput", DType::QInt32)], "[2];[];[]", "[];[]");
    }
}
