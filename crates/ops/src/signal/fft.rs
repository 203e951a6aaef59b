//! Fourier transforms over the last one, two or three dimensions: FFT, RFFT, their inverses, and those with 2D and 3D.
//!
//! All are computed in double precision, whatever their type.

use crate::compose::{Gradients, binary, cast, int_scalar, int_vector, reshape, scalar, shape_of, ternary, unary};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags,
};
use numeric::fft::Transform;
use parking_lot::Mutex;
use tensor::{Complex32, Complex64, DType, Result, Shape, Status, Tensor};

const COMPLEX_ATTRS: &[&str] = &["Tcomplex: {complex64, complex128} = DT_COMPLEX64"];
const REAL_ATTRS: &[&str] = &["Treal: {float, double} = DT_FLOAT", "Tcomplex: {complex64, complex128} = DT_COMPLEX64"];
const KERNELS: &[KernelDef] = &[
    KernelDef { types: &[("Tcomplex", DType::Complex64)], create: Fft::create },
    KernelDef { types: &[("Tcomplex", DType::Complex128)], create: Fft::create },
];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    complex_op("FFT"),
    complex_op("IFFT"),
    complex_op("FFT2D"),
    complex_op("IFFT2D"),
    complex_op("FFT3D"),
    complex_op("IFFT3D"),
    forward_op("RFFT", Gradient::Fn(rfft_gradient)),
    inverse_op("IRFFT", Gradient::Fn(irfft_gradient)),
    forward_op("RFFT2D", Gradient::Fn(rfft_gradient)),
    inverse_op("IRFFT2D", Gradient::Fn(irfft_gradient)),
    forward_op("RFFT3D", Gradient::Unsupported),
    inverse_op("IRFFT3D", Gradient::Unsupported),
];

const fn complex_op(name: &'static str) -> Op {
    let (inputs, outputs) = (&["input: Tcomplex"], &["output: Tcomplex"]);
    let def = OpDef { name, inputs, outputs, attrs: COMPLEX_ATTRS, flags: OpFlags::NONE };
    Op { def, shape: fft_shape, gradient: Gradient::Fn(fft_gradient), kernels: KERNELS }
}

const fn forward_op(name: &'static str, gradient: Gradient) -> Op {
    let (inputs, outputs) = (&["input: Treal", "fft_length: int32"], &["output: Tcomplex"]);
    let def = OpDef { name, inputs, outputs, attrs: REAL_ATTRS, flags: OpFlags::NONE };
    Op { def, shape: fft_shape, gradient, kernels: KERNELS }
}

const fn inverse_op(name: &'static str, gradient: Gradient) -> Op {
    let (inputs, outputs) = (&["input: Tcomplex", "fft_length: int32"], &["output: Treal"]);
    let def = OpDef { name, inputs, outputs, attrs: REAL_ATTRS, flags: OpFlags::NONE };
    Op { def, shape: fft_shape, gradient, kernels: KERNELS }
}

macro_rules! complex_transforms {
    ($($(#[$doc:meta])* $name:ident => $op:literal;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(input: &Output) -> Output {
            input.graph().op($op).input(input).output()
        }
    )*};
}

complex_transforms! {
    /// Returns the Fourier transform of complex numbers over the last dimension.
    fft => "FFT";
    /// Returns the inverse of [`fft`].
    ifft => "IFFT";
    /// Returns the Fourier transform of complex numbers over the last two dimensions.
    fft2d => "FFT2D";
    /// Returns the inverse of [`fft2d`].
    ifft2d => "IFFT2D";
    /// Returns the Fourier transform of complex numbers over the last three dimensions.
    fft3d => "FFT3D";
    /// Returns the inverse of [`fft3d`].
    ifft3d => "IFFT3D";
}

macro_rules! real_transforms {
    ($($(#[$doc:meta])* $name:ident => $op:literal, $part:literal;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(input: &Output, fft_length: &Output) -> Output {
            let dtype = if $part == "Tcomplex" { complex_of(input.dtype()) } else { input.dtype().real() };
            input.graph().op($op).input(input).input(fft_length).attr($part, dtype).output()
        }
    )*};
}

real_transforms! {
    /// Returns the first half of the Fourier transform of `fft_length` real numbers; the other half is its mirror image.
    rfft => "RFFT", "Tcomplex";
    /// Returns the inverse of [`rfft`].
    irfft => "IRFFT", "Treal";
    /// Returns the Fourier transform of real numbers over the last two dimensions; of the last dimension, the first half.
    rfft2d => "RFFT2D", "Tcomplex";
    /// Returns the inverse of [`rfft2d`].
    irfft2d => "IRFFT2D", "Treal";
    /// Returns the Fourier transform of real numbers over the last three dimensions; of the last dimension, the first half.
    rfft3d => "RFFT3D", "Tcomplex";
    /// Returns the inverse of [`rfft3d`].
    irfft3d => "IRFFT3D", "Treal";
}

fn complex_of(real: DType) -> DType {
    if real == DType::Double { DType::Complex128 } else { DType::Complex64 }
}

/// The properties of an op, from its name.
#[derive(Clone, Copy)]
struct Kind {
    rank: usize,
    inverse: bool,
    /// One side holds real numbers.
    real: bool,
}

impl Kind {
    fn of(op: &str) -> Kind {
        let rank = match op.as_bytes() {
            [.., b'2', b'D'] => 2,
            [.., b'3', b'D'] => 3,
            _ => 1,
        };
        Kind { rank, inverse: op.starts_with('I'), real: op.trim_start_matches('I').starts_with('R') }
    }

    /// Returns the op of the same kind with another prefix.
    fn op(self, begin: &str) -> &'static str {
        const NAMES: [[&str; 3]; 4] = [
            ["FFT", "FFT2D", "FFT3D"],
            ["IFFT", "IFFT2D", "IFFT3D"],
            ["RFFT", "RFFT2D", "RFFT3D"],
            ["IRFFT", "IRFFT2D", "IRFFT3D"],
        ];
        let row = NAMES.iter().find(|row| row[0] == begin).unwrap_or(&NAMES[0]);
        row[self.rank - 1]
    }

    /// Returns the number of elements in the last dimension of a transform of `len`, on the complex side.
    fn half(self, len: i64) -> i64 {
        if len == 0 { 0 } else { len / 2 + 1 }
    }
}

fn fft_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let kind = Kind::of(&c.schema.name);
    let mut shape = c.with_rank_at_least(0, kind.rank)?;
    if !kind.real {
        c.set_output(0, shape);
        return Ok(());
    }
    c.with_rank(1, 1)?.merge(&tensor::PartialShape::from_dims(&[kind.rank as i64]))?;
    let lengths = c.constant(1).map(|lengths| lengths.to_indices()).transpose()?;
    if let Some(rank) = shape.rank() {
        for axis in 0..kind.rank {
            let len = lengths.as_ref().and_then(|lengths| lengths.get(axis).copied()).filter(|&len| len >= 0);
            let halved = !kind.inverse && axis + 1 == kind.rank;
            let len = len.map(|len| if halved { kind.half(len) } else { len });
            shape = shape.with_dim(rank - kind.rank + axis, len);
        }
    }
    c.set_output(0, shape);
    Ok(())
}

/// Returns the product of the last dimensions, as a number of a type.
fn size_of_last(x: &Output, rank: usize, dtype: DType) -> Result<Output> {
    let graph = x.graph();
    let begin = binary("Sub", &unary("Rank", x)?, &int_scalar(graph, rank as i32)?)?;
    let begin = binary("ExpandDims", &begin, &int_scalar(graph, 0)?)?;
    let dims = ternary("Slice", &shape_of(x)?, &begin, &int_vector(graph, &[rank as i32])?)?;
    cast(&binary("Prod", &dims, &int_vector(graph, &[0])?)?, dtype)
}

fn fft_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None]) };
    let kind = Kind::of(&args.op.op_type());
    let size = size_of_last(&grad, kind.rank, grad.dtype())?;
    let back = unary(kind.op(if kind.inverse { "FFT" } else { "IFFT" }), &grad)?;
    let scaled = binary(if kind.inverse { "RealDiv" } else { "Mul" }, &back, &size)?;
    Ok(vec![Some(scaled.into())])
}

/// Returns `x` padded with zeros at the end of each dimension, up to a shape.
fn pad_to(x: &Output, shape: &Output) -> Result<Output> {
    let missing = binary("Sub", shape, &shape_of(x)?)?;
    let none = unary("ZerosLike", &missing)?;
    let op = x.graph().op("Pack").inputs([&none, &missing]).attr("axis", 1i64);
    binary("Pad", x, &op.try_build()?.output(0))
}

/// The transform drops half of a spectrum, and input beyond its length: there the gradient is zero.
fn rfft_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let kind = Kind::of(&args.op.op_type());
    let (input, lengths) = (args.input(0), args.input(1));
    let graph = grad.graph();
    let rank = unary("Rank", &grad)?;
    let batch_rank = binary("Sub", &rank, &int_scalar(graph, kind.rank as i32)?)?;
    let batch_rank = binary("ExpandDims", &batch_rank, &int_scalar(graph, 0)?)?;
    let batch = ternary("Slice", &shape_of(&grad)?, &int_vector(graph, &[0])?, &batch_rank)?;
    let op = graph.op("ConcatV2").inputs([&batch, &lengths]).input(&int_scalar(graph, 0)?);
    let whole = pad_to(&grad, &op.try_build()?.output(0))?;
    let size = size_of_last(&whole, kind.rank, grad.dtype())?;
    let back = binary("Mul", &unary(kind.op("IFFT"), &whole)?, &size)?;
    let real = graph.op("Real").input(&back).attr("Tout", input.dtype()).try_build()?.output(0);
    Ok(vec![Some(pad_to(&real, &shape_of(&input)?)?.into()), None])
}

/// Each number of the spectrum also represents its mirror image, except for the first and, with an even length, the last.
fn irfft_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let kind = Kind::of(&args.op.op_type());
    let (input, lengths) = (args.input(0), args.input(1));
    let (graph, complex) = (grad.graph(), input.dtype());
    let op = graph.op(kind.op("RFFT")).input(&grad).input(&lengths).attr("Tcomplex", complex);
    let spectrum = op.try_build()?.output(0);
    let (zero, one, two) = (int_scalar(graph, 0)?, int_scalar(graph, 1)?, int_scalar(graph, 2)?);
    let last = ternary("Slice", &lengths, &int_vector(graph, &[kind.rank as i32 - 1])?, &int_vector(graph, &[1])?)?;
    let last = reshape(&last, &int_vector(graph, &[])?)?;
    let half = binary("AddV2", &binary("FloorDiv", &last, &two)?, &one)?;
    let places = ternary("Range", &zero, &half, &one)?;
    let is_first = binary("Equal", &places, &zero)?;
    let is_middle = binary("Equal", &binary("Mul", &places, &two)?, &last)?;
    let alone = cast(&binary("LogicalOr", &is_first, &is_middle)?, grad.dtype())?;
    let factors = binary("Sub", &scalar(&grad, 2.0)?, &alone)?;
    let factors = binary("RealDiv", &factors, &size_of_last(&grad, kind.rank, grad.dtype())?)?;
    let scaled = binary("Mul", &spectrum, &cast(&factors, complex)?)?;
    Ok(vec![Some(pad_to(&scaled, &shape_of(&input)?)?.into()), None])
}

struct Fft {
    kind: Kind,
    output: DType,
    /// The transforms of the last run: the next one usually has the same lengths.
    transforms: Mutex<[Option<Transform>; 3]>,
}

impl Fft {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let kind = Kind::of(builder.node.op());
        let (input, output) = (builder.input_dtype(0), builder.output_dtype(0));
        BoxedKernel::new(Fft { kind, output: check_types(kind, input, output)?, transforms: Mutex::default() })
    }

    /// Returns the lengths of the transform in the last dimensions.
    fn lengths(&self, context: &OpContext<'_>) -> Result<Vec<usize>> {
        let rank = self.kind.rank;
        let shape = context.input(0)?.shape();
        if shape.rank() < rank {
            return Err(Status::invalid_argument(format!("Input must have rank of at least {rank} but got: {shape}")));
        }
        let first = shape.rank() - rank;
        if !self.kind.real {
            return Ok((first..shape.rank()).map(|axis| shape.size(axis)).collect());
        }
        let given = context.input(1)?;
        if given.dims() != [rank as i64] {
            return Err(Status::invalid_argument(format!("fft_length must have shape [{rank}]")));
        }
        let mut lengths = Vec::with_capacity(rank);
        for (axis, &len) in given.as_slice::<i32>()?.iter().enumerate() {
            let Ok(len) = usize::try_from(len) else {
                return Err(Status::invalid_argument(format!("fft_length[{axis}] must >= 0, but got: {len}")));
            };
            let needed = if self.kind.inverse && axis + 1 == rank { len / 2 + 1 } else { len };
            let there = shape.size(first + axis);
            if there != 0 && there < needed {
                return Err(Status::invalid_argument(format!(
                    "Input dimension {} must have length of at least {needed} but got: {there}",
                    first + axis
                )));
            }
            lengths.push(len);
        }
        Ok(lengths)
    }

    fn transform(&self, axis: usize, len: usize) -> Transform {
        let mut transforms = self.transforms.lock();
        match &transforms[axis] {
            Some(transform) if transform.is_for(len, self.kind.inverse) => transform.clone(),
            _ => transforms[axis].insert(Transform::new(len, self.kind.inverse)).clone(),
        }
    }
}

/// Returns the type of the output after checking that both sides have the same precision.
fn check_types(kind: Kind, input: DType, output: DType) -> Result<DType> {
    if input.real() == output.real() {
        return Ok(output);
    }
    let which = match (kind.real, kind.inverse) {
        (false, _) => "FFT",
        (true, false) => "forward real FFT",
        (true, true) => "backward real FFT",
    };
    Err(Status::invalid_argument(format!("Wrong types for {which}: in={} out={}", input as i32, output as i32)))
}

impl Kernel for Fft {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let lengths = self.lengths(context)?;
        let (kind, input) = (self.kind, context.input(0)?);
        let first = input.shape().rank() - kind.rank;
        let mut dims = input.dims().to_vec();
        dims[first..].iter_mut().zip(&lengths).for_each(|(dim, &len)| *dim = len as i64);
        let (batch, inner) = (input.shape().slice(0, first).num_elements(), lengths[kind.rank - 1]);
        let mut output_dims = dims;
        if kind.real && !kind.inverse {
            let last = output_dims.len() - 1;
            output_dims[last] = kind.half(output_dims[last]);
        }
        let shape = Shape::new(&output_dims)?;
        if input.num_elements() == 0 || shape.num_elements() == 0 {
            context.set_output(0, Tensor::zeros(self.output, shape)?);
            return Ok(());
        }
        // The input of an inverse with a real result has half of the last dimension; the rest is derived from it at the end.
        let halved = kind.real && kind.inverse;
        let width = if halved { inner / 2 + 1 } else { inner };
        let from: Vec<usize> = (first..input.shape().rank()).map(|axis| input.shape().size(axis)).collect();
        let mut sizes = lengths.clone();
        sizes[kind.rank - 1] = width;
        let mut values = load(input, batch, &from, &sizes)?;
        for axis in 0..kind.rank - 1 {
            self.transform(axis, lengths[axis]).run(&mut values, sizes[axis + 1..].iter().product());
        }
        if halved {
            values = with_mirror_image(&values, width, inner);
        }
        self.transform(kind.rank - 1, inner).run(&mut values, 1);
        if kind.inverse {
            let scale = 1.0 / lengths.iter().map(|&len| len as f64).product::<f64>();
            values.iter_mut().for_each(|value| *value *= scale);
        }
        context.set_output(0, store(self.output, shape, &values, inner)?);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// Returns the first `sizes` elements of each dimension except the first; `from` are the current sizes.
fn load(input: &Tensor, batch: usize, from: &[usize], sizes: &[usize]) -> Result<Vec<Complex64>> {
    fn rows<T: Copy>(all: &[T], from: &[usize], sizes: &[usize], wide: fn(T) -> Complex64, to: &mut Vec<Complex64>) {
        match (from, sizes) {
            ([_], [size]) => to.extend(all[..*size].iter().map(|&value| wide(value))),
            ([_, from @ ..], [size, sizes @ ..]) => {
                let part = from.iter().product::<usize>();
                all.chunks_exact(part).take(*size).for_each(|all| rows(all, from, sizes, wide, to));
            }
            _ => {}
        }
    }
    let (from, sizes) = ([&[batch], from].concat(), [&[batch], sizes].concat());
    let mut to = Vec::with_capacity(sizes.iter().product());
    match input.dtype() {
        DType::Float => rows(input.as_slice()?, &from, &sizes, |x: f32| Complex64::from(f64::from(x)), &mut to),
        DType::Double => rows(input.as_slice()?, &from, &sizes, |x: f64| Complex64::from(x), &mut to),
        DType::Complex64 => {
            let wide = |x: Complex32| Complex64::new(f64::from(x.re), f64::from(x.im));
            rows(input.as_slice()?, &from, &sizes, wide, &mut to);
        }
        _ => rows(input.as_slice()?, &from, &sizes, |x: Complex64| x, &mut to),
    }
    Ok(to)
}

/// Returns lines of `len` numbers from their first halves: the spectrum of real numbers equals its conjugated mirror image.
fn with_mirror_image(halves: &[Complex64], width: usize, len: usize) -> Vec<Complex64> {
    let mut whole = Vec::with_capacity(halves.len() / width * len);
    for half in halves.chunks_exact(width) {
        whole.extend_from_slice(&half[..width.min(len)]);
        whole.extend((width..len).map(|index| half[len - index].conj()));
    }
    whole
}

/// Returns the starts of lines of `inner` numbers that fit into an output.
fn store(dtype: DType, shape: Shape, values: &[Complex64], inner: usize) -> Result<Tensor> {
    fn fill<T: tensor::Element>(
        shape: Shape,
        values: &[Complex64],
        inner: usize,
        to: fn(Complex64) -> T,
    ) -> Result<Tensor> {
        let width = shape.size(shape.rank() - 1);
        Tensor::build(shape, |out: &mut [T]| {
            for (out, line) in out.chunks_exact_mut(width).zip(values.chunks_exact(inner)) {
                out.iter_mut().zip(line).for_each(|(out, &value)| *out = to(value));
            }
        })
    }
    match dtype {
        DType::Float => fill(shape, values, inner, |x| x.re as f32),
        DType::Double => fill(shape, values, inner, |x| x.re),
        DType::Complex64 => fill(shape, values, inner, |x| Complex32::new(x.re as f32, x.im as f32)),
        _ => fill(shape, values, inner, |x| x),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::{complex, real};
    use crate::testing::{attrs, check_gradient, check_shape, run_op};
    use tensor::Code;

    fn wave(dims: &[i64]) -> Tensor {
        let count = dims.iter().product::<i64>();
        let values: Vec<f64> = (0..count).map(|index| (index as f64 * 0.7).sin() + 0.1).collect();
        Tensor::from_slice(dims, &values).unwrap()
    }

    #[test]
    fn an_inverse_gives_back_what_was_transformed() {
        for (rank, ops) in [("RFFT", "IRFFT"), ("RFFT2D", "IRFFT2D"), ("RFFT3D", "IRFFT3D")].into_iter().enumerate() {
            for last in [4, 5] {
                let dims = [2i64, 3, 2, last];
                let lengths: Vec<i32> = dims[3 - rank..].iter().map(|&dim| dim as i32).collect();
                let (x, lengths) = (wave(&dims), Tensor::vector(&lengths));
                let types = attrs![("Tcomplex", DType::Complex128), ("Treal", DType::Double)];
                let y = run_op(ops.0, types.clone(), &[x.clone(), lengths.clone()]).unwrap();
                assert_eq!(y[0].dims(), [2, 3, 2, last / 2 + 1]);
                let back = run_op(ops.1, types, &[y[0].clone(), lengths]).unwrap();
                for (a, b) in back[0].as_slice::<f64>().unwrap().iter().zip(x.as_slice::<f64>().unwrap()) {
                    assert!((a - b).abs() < 1e-12, "{a} and {b}");
                }
            }
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let (re, im) = (wave(&[2, 2, 3, 4]), wave(&[2, 2, 3, 4]));
        for op in ["FFT", "IFFT", "FFT2D", "IFFT2D", "FFT3D", "IFFT3D"] {
            check_gradient(&[re.clone(), im.clone()], |graph, x| {
                let z = graph.op(op).input(&complex(&x[0], &x[1])).output();
                real(&z)
            });
        }
        // Also if the input is longer than the transform.
        for last in [3, 4] {
            check_gradient(&[wave(&[2, 3, 4])], |graph, x| real(&rfft(&x[0], &graph.constant([last]))));
            check_gradient(&[wave(&[2, 3, 4])], |graph, x| real(&rfft2d(&x[0], &graph.constant([2, last]))));
            check_gradient(&[wave(&[2, 3, 3]), wave(&[2, 3, 3])], |graph, x| {
                irfft(&complex(&x[0], &x[1]), &graph.constant([last]))
            });
        }
    }

    #[test]
    fn mistakes_and_shapes() {
        let x = Tensor::vector(&[1f32, 2.0, 3.0]);
        let code = |op: &str, inputs: &[Tensor]| run_op(op, attrs![], inputs).unwrap_err().code();
        for lengths in [Tensor::vector(&[4i32]), Tensor::vector(&[-1i32]), Tensor::vector(&[1i32, 1])] {
            assert_eq!(code("RFFT", &[x.clone(), lengths]), Code::InvalidArgument);
        }
        assert_eq!(code("RFFT2D", &[x.clone(), Tensor::vector(&[1i32, 1])]), Code::InvalidArgument);
        let mixed = run_op("RFFT", attrs![("Tcomplex", DType::Complex128)], &[x.clone(), Tensor::vector(&[3i32])]);
        assert_eq!(mixed.unwrap_err().code(), Code::InvalidArgument);
        let none = run_op("RFFT", attrs![], &[x, Tensor::vector(&[0i32])]).unwrap();
        assert_eq!(none[0].dims(), [0]);
        check_shape("FFT2D", attrs![], "[?,2,3]", "[?,2,3]");
        check_shape("RFFT", attrs![], "[5,8];[1]", "[5,?]");
        check_shape("IRFFT3D", attrs![], "[5,8,2,4];[3]", "[5,?,?,?]");
    }
}
