//! Resizing: ResizeBilinear, ResizeBicubic, ResizeArea, ResizeNearestNeighbor and their gradients.
//!
//! All except the nearest neighbour are the same sum with different weights: each row and each column of the result is computed
//! from a few rows and columns of the image, and the gradient uses the same weights in reverse.

use super::pixels::{Sizes, load, store, target_size};
use crate::compose::{Gradients, constant, int_vector, ternary, unary};
use crate::movement::Movable;
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use numeric::parallel;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

const IMAGES: &[&str] = &["images: T", "size: int32"];
const ALL_TYPES: &str = "T: {int8, uint8, int16, uint16, int32, int64, half, float, double, bfloat16}";
const ALIGN: &str = "align_corners: bool = false";
const CENTERS: &str = "half_pixel_centers: bool = false";

macro_rules! typed_kernels {
    ([$($dtype:ident),*] => $create:expr) => {
        &[$(KernelDef { types: &[("T", DType::$dtype)], create: $create },)*]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ResizeBilinear",
            inputs: IMAGES,
            outputs: &["resized_images: float"],
            attrs: &[
                "T: {int8, uint8, int16, uint16, int32, int64, bfloat16, half, float, double, bfloat16}",
                ALIGN,
                CENTERS,
            ],
            flags: OpFlags::NONE,
        },
        shape: resize_shape,
        gradient: Gradient::Fn(bilinear_gradient),
        kernels: typed_kernels!(
            [Int8, UInt8, Int16, UInt16, Int32, Int64, Half, BFloat16, Float, Double] => |b| Resample::create(b, bilinear)
        ),
    },
    Op {
        def: OpDef {
            name: "ResizeBilinearGrad",
            inputs: &["grads: float", "original_image: T"],
            outputs: &["output: T"],
            attrs: &["T: {float, bfloat16, half, double}", ALIGN, CENTERS],
            flags: OpFlags::NONE,
        },
        shape: original_shape,
        gradient: Gradient::Unsupported,
        kernels: typed_kernels!([Float, BFloat16, Half, Double] => |b| ResampleGrad::create(b, bilinear)),
    },
    Op {
        def: OpDef {
            name: "ResizeBicubic",
            inputs: IMAGES,
            outputs: &["resized_images: float"],
            attrs: &[ALL_TYPES, ALIGN, CENTERS],
            flags: OpFlags::NONE,
        },
        shape: resize_shape,
        gradient: Gradient::Fn(bicubic_gradient),
        kernels: typed_kernels!(
            [Int8, UInt8, Int16, UInt16, Int32, Int64, Half, BFloat16, Float, Double] => |b| Resample::create(b, bicubic)
        ),
    },
    Op {
        def: OpDef {
            name: "ResizeBicubicGrad",
            inputs: &["grads: float", "original_image: T"],
            outputs: &["output: T"],
            attrs: &["T: {float, double}", ALIGN, CENTERS],
            flags: OpFlags::NONE,
        },
        shape: original_shape,
        gradient: Gradient::Unsupported,
        kernels: typed_kernels!([Float, Double] => |b| ResampleGrad::create(b, bicubic)),
    },
    Op {
        def: OpDef {
            name: "ResizeArea",
            inputs: IMAGES,
            outputs: &["resized_images: float"],
            attrs: &[ALL_TYPES, ALIGN],
            flags: OpFlags::NONE,
        },
        shape: resize_shape,
        gradient: Gradient::Unsupported,
        kernels: typed_kernels!(
            [Int8, UInt8, Int16, UInt16, Int32, Int64, Half, BFloat16, Float, Double] => |b| Resample::create(b, area)
        ),
    },
    Op {
        def: OpDef {
            name: "ResizeNearestNeighbor",
            inputs: IMAGES,
            outputs: &["resized_images: T"],
            attrs: &[ALL_TYPES, ALIGN, CENTERS],
            flags: OpFlags::NONE,
        },
        shape: resize_shape,
        gradient: Gradient::Fn(nearest_gradient),
        kernels: typed_kernels!(
            [Int8, UInt8, Int16, UInt16, Int32, Int64, Half, BFloat16, Float, Double] =>
                |b| BoxedKernel::new(Nearest(Scaling::new(b)?))
        ),
    },
    Op {
        def: OpDef {
            name: "ResizeNearestNeighborGrad",
            inputs: &["grads: T", "size: int32"],
            outputs: &["output: T"],
            attrs: &["T: {uint8, int8, int32, half, float, double, bfloat16}", ALIGN, CENTERS],
            flags: OpFlags::NONE,
        },
        shape: resize_shape,
        gradient: Gradient::Fn(nearest_grad_gradient),
        kernels: typed_kernels!(
            [UInt8, Int8, Int32, Half, BFloat16, Float, Double] => |b| BoxedKernel::new(NearestGrad(Scaling::new(b)?))
        ),
    },
];

/// The interpolation method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResizeMethod {
    /// Each pixel is computed from the four nearest.
    #[default]
    Bilinear,
    /// Each pixel is the nearest one.
    NearestNeighbor,
    /// Each pixel is computed from the sixteen nearest.
    Bicubic,
    /// Each pixel is the mean of those that it covers.
    Area,
}

/// Returns images resized by `method`.
///
/// ```
/// use ops::image::{ResizeMethod, resize_images};
///
/// let g = graph::Graph::new();
/// let images = g.placeholder::<f32>((None, 28, 28, 1));
/// let half = resize_images(&images, [14, 14], ResizeMethod::Area);
/// assert_eq!(half.shape(), (None, 14, 14, 1).into());
/// ```
#[track_caller]
pub fn resize_images(images: &Output, [height, width]: [i32; 2], method: ResizeMethod) -> Output {
    let op = match method {
        ResizeMethod::Bilinear => "ResizeBilinear",
        ResizeMethod::NearestNeighbor => "ResizeNearestNeighbor",
        ResizeMethod::Bicubic => "ResizeBicubic",
        ResizeMethod::Area => "ResizeArea",
    };
    resize(op, images, height, width)
}

/// Returns images resized with bilinear interpolation.
#[track_caller]
pub fn resize_bilinear(images: &Output, height: i32, width: i32) -> Output {
    resize("ResizeBilinear", images, height, width)
}

/// Returns images resized to the nearest neighbours.
#[track_caller]
pub fn resize_nearest_neighbor(images: &Output, height: i32, width: i32) -> Output {
    resize("ResizeNearestNeighbor", images, height, width)
}

/// Returns images resized with bicubic interpolation.
#[track_caller]
pub fn resize_bicubic(images: &Output, height: i32, width: i32) -> Output {
    resize("ResizeBicubic", images, height, width)
}

/// Returns images resized by area, with each pixel the mean of those that it covers.
#[track_caller]
pub fn resize_area(images: &Output, height: i32, width: i32) -> Output {
    resize("ResizeArea", images, height, width)
}

#[track_caller]
fn resize(op: &str, images: &Output, height: i32, width: i32) -> Output {
    let size = images.graph().constant_tensor(&Tensor::vector(&[height, width]));
    images.graph().op(op).input(images).input(&size).output()
}

fn resize_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank(0, 4)?;
    let size = c.with_rank(1, 1)?;
    size.merge(&PartialShape::from_dims(&[2]))?;
    let (mut height, mut width) = (None, None);
    if let Some(size) = c.constant(1)
        && let &[rows, columns] = size.as_slice::<i32>()?
    {
        (height, width) = (Some(i64::from(rows)), Some(i64::from(columns)));
    }
    c.set_output(0, PartialShape::new(&[images.dim(0), height, width, images.dim(3)]));
    Ok(())
}

fn original_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let original = c.input(1);
    c.set_output(0, original);
    Ok(())
}

fn bilinear_gradient(args: &GradientArgs<'_>) -> Gradients {
    resample_gradient(args, "ResizeBilinearGrad")
}

fn bicubic_gradient(args: &GradientArgs<'_>) -> Gradients {
    match args.input(0).dtype() {
        DType::Float | DType::Double => resample_gradient(args, "ResizeBicubicGrad"),
        _ => Ok(vec![None, None]),
    }
}

fn resample_gradient(args: &GradientArgs<'_>, op: &str) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let back = with_scaling(args, grad.graph().op(op).input(&grad).input(&args.input(0)))?;
    Ok(vec![Some(back.into()), None])
}

fn with_scaling(args: &GradientArgs<'_>, op: graph::builder::OpBuilder) -> Result<Output> {
    let attrs = args.op.attrs();
    let op = op.attr("align_corners", attrs.bool("align_corners")?);
    Ok(op.attr("half_pixel_centers", attrs.bool("half_pixel_centers")?).try_build()?.output(0))
}

fn nearest_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let graph = grad.graph();
    let shape = args.input(0).shape();
    let size = match (shape.dim(1), shape.dim(2)) {
        (Some(height), Some(width)) => constant(graph, &Tensor::vector(&[height as i32, width as i32]))?,
        _ => {
            let whole = unary("Shape", &args.input(0))?;
            ternary("Slice", &whole, &int_vector(graph, &[1])?, &int_vector(graph, &[2])?)?
        }
    };
    let back = with_scaling(args, graph.op("ResizeNearestNeighborGrad").input(&grad).input(&size))?;
    Ok(vec![Some(back.into()), None])
}

fn nearest_grad_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let graph = grad.graph();
    let whole = unary("Shape", &args.input(0))?;
    let size = ternary("Slice", &whole, &int_vector(graph, &[1])?, &int_vector(graph, &[2])?)?;
    let forward = with_scaling(args, graph.op("ResizeNearestNeighbor").input(&grad).input(&size))?;
    Ok(vec![Some(forward.into()), None])
}

/// The mapping from positions of the result to the image.
#[derive(Clone, Copy)]
struct Scaling {
    align_corners: bool,
    half_pixel_centers: bool,
}

impl Scaling {
    fn new(builder: &KernelBuilder<'_>) -> Result<Scaling> {
        let scaling = Scaling {
            align_corners: builder.attrs().bool("align_corners")?,
            // ResizeArea has no such attribute.
            half_pixel_centers: builder.attrs().bool("half_pixel_centers").unwrap_or(false),
        };
        if scaling.half_pixel_centers && scaling.align_corners {
            return Err(Status::invalid_argument("If half_pixel_centers is True, align_corners must be False."));
        }
        Ok(scaling)
    }

    /// Returns the number of image pixels per pixel of the result.
    fn scale(self, from: usize, to: usize) -> f32 {
        match self.align_corners && to > 1 {
            true => (from - 1) as f32 / (to - 1) as f32,
            false => from as f32 / to as f32,
        }
    }

    fn position(self, index: usize, scale: f32) -> f32 {
        match self.half_pixel_centers {
            true => (index as f32 + 0.5) * scale - 0.5,
            false => index as f32 * scale,
        }
    }

    /// Returns the nearest pixel for each of the result.
    fn nearest(self, from: usize, to: usize) -> Vec<usize> {
        let scale = self.scale(from, to);
        let nearest = |index: usize| {
            let position = index as f32 * scale;
            let position = match (self.half_pixel_centers, self.align_corners) {
                (true, _) => ((index as f32 + 0.5) * scale).floor(),
                (false, true) => position.round(),
                (false, false) => position.floor(),
            };
            (position.max(0.0) as usize).min(from - 1)
        };
        (0..to).map(nearest).collect()
    }
}

/// The positions in the image from which a position of the result is computed, and their weights.
pub(super) type Taps = Vec<(usize, f32)>;

/// Computes the taps of all positions along one axis.
type MakeTaps = fn(Scaling, usize, usize) -> Vec<Taps>;

fn bilinear(scaling: Scaling, from: usize, to: usize) -> Vec<Taps> {
    let scale = scaling.scale(from, to);
    let taps = |index| {
        let position = scaling.position(index, scale);
        let share = position - position.floor();
        let lower = (position.floor().max(0.0) as usize).min(from - 1);
        let upper = (position.ceil().max(0.0) as usize).min(from - 1);
        vec![(lower, 1.0 - share), (upper, share)]
    };
    (0..to).map(taps).collect()
}

/// The number of steps of TensorFlow's table of the cubic.
const CUBIC_STEPS: f32 = 1024.0;

fn bicubic(scaling: Scaling, from: usize, to: usize) -> Vec<Taps> {
    let scale = scaling.scale(from, to);
    let sharpness = if scaling.half_pixel_centers { -0.5f32 } else { -0.75 };
    let a = f64::from(sharpness);
    let near = |step: f32| {
        let x = f64::from(step / CUBIC_STEPS);
        (((a + 2.0) * x - (a + 3.0)) * x * x + 1.0) as f32
    };
    let far = |step: f32| {
        let x = f64::from(step / CUBIC_STEPS + 1.0);
        (((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a) as f32
    };
    let last = from as i64 - 1;
    let taps = |index| {
        let position = scaling.position(index, scale);
        let place = position.floor() as i64;
        let step = ((position - position.floor()) * CUBIC_STEPS).round_ties_even();
        let weights = [far(step), near(step), near(CUBIC_STEPS - step), far(CUBIC_STEPS - step)];
        let mut taps: Taps = Vec::with_capacity(4);
        for (offset, weight) in (-1..).zip(weights) {
            let inside = (place + offset).clamp(0, last);
            // With half-pixel centers, positions outside of the image don't count.
            let counts = !scaling.half_pixel_centers || inside == place + offset;
            taps.push((inside as usize, if counts { weight } else { 0.0 }));
        }
        let sum: f32 = taps.iter().map(|(_, weight)| weight).sum();
        if scaling.half_pixel_centers && sum.abs() >= 1000.0 * f32::MIN_POSITIVE {
            taps.iter_mut().for_each(|(_, weight)| *weight *= 1.0 / sum);
        }
        taps
    };
    (0..to).map(taps).collect()
}

fn area(scaling: Scaling, from: usize, to: usize) -> Vec<Taps> {
    let scale = scaling.scale(from, to);
    let taps = |index: usize| {
        let (start, end) = (index as f32 * scale, (index + 1) as f32 * scale);
        let share = |place: i64| {
            let left = place as f32;
            let covered = match (left < start, left + 1.0 > end) {
                (true, true) => scale,
                (true, false) => left + 1.0 - start,
                (false, true) => end - left,
                (false, false) => 1.0,
            };
            covered / scale
        };
        let places = start.floor() as i64..end.ceil() as i64;
        places.map(|place| (place.clamp(0, from as i64 - 1) as usize, share(place))).collect()
    };
    (0..to).map(taps).collect()
}

/// Refuses images that are too large for a tensor before anything is allocated for each of their rows; returns whether they have
/// elements.
pub(super) fn check_target(target: Sizes, element_size: usize) -> Result<bool> {
    let shape = target.shape()?;
    if shape.num_bytes(element_size)? > tensor::tensor_bytes_max() {
        return Err(Status::resource_exhausted(format!("OOM when allocating tensor with shape {shape}")));
    }
    Ok(shape.num_elements() > 0)
}

pub(super) fn not_empty(sizes: Sizes) -> Result<Sizes> {
    if sizes.height == 0 || sizes.width == 0 {
        return Err(Status::invalid_argument("input image must be of non-zero size"));
    }
    Ok(sizes)
}

struct Resample {
    scaling: Scaling,
    taps: MakeTaps,
}

impl Resample {
    fn create(builder: &KernelBuilder<'_>, taps: MakeTaps) -> Result<BoxedKernel> {
        BoxedKernel::new(Resample { scaling: Scaling::new(builder)?, taps })
    }
}

impl Kernel for Resample {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let images = context.input(0)?;
        let sizes = Sizes::of(images)?;
        let (height, width) = target_size(context.input(1)?)?;
        let sizes = not_empty(sizes)?;
        let target = Sizes { height, width, ..sizes };
        if !check_target(target, size_of::<f32>())? {
            let nothing = Tensor::new(DType::Float, target.shape()?)?;
            context.set_output(0, nothing);
            return Ok(());
        }
        let from = load(images)?;
        let rows = (self.taps)(self.scaling, sizes.height, height);
        let columns = (self.taps)(self.scaling, sizes.width, width);
        context.set_output(0, resample(&from, sizes, target, &rows, &columns)?);
        Ok(())
    }
}

/// Resamples images: each row and each column is computed from its taps.
pub(super) fn resample(from: &[f32], sizes: Sizes, target: Sizes, rows: &[Taps], columns: &[Taps]) -> Result<Tensor> {
    Tensor::build::<f32>(target.shape()?, |to| {
        let row_length = target.width * sizes.channels;
        if to.is_empty() {
            return;
        }
        let cost = (row_length * 4) as f64;
        parallel::for_each_chunk_mut(to, row_length, cost, |first, chunk| {
            let mut mixed = vec![0f32; sizes.width * sizes.channels];
            for (offset, to) in chunk.chunks_exact_mut(row_length).enumerate() {
                let row = first + offset;
                let image = &from[row / target.height * sizes.height * mixed.len()..];
                mix_rows(&mut mixed, image, &rows[row % target.height]);
                mix_columns(to, &mixed, columns, sizes.channels);
            }
        });
    })
}

/// Distributes gradients of resampled images along the taps.
pub(super) fn give_back(
    grads: &[f32],
    from: Sizes,
    original: Sizes,
    rows: &[Taps],
    columns: &[Taps],
) -> Result<Vec<f64>> {
    let mut sums = vec![0f64; original.shape()?.num_elements()];
    if sums.is_empty() {
        return Ok(sums);
    }
    for (index, grad) in grads.chunks_exact(from.channels).enumerate() {
        let (row, column) = (index / from.width, index % from.width);
        let first = row / from.height * original.height;
        for &(y, y_weight) in &rows[row % from.height] {
            for &(x, x_weight) in &columns[column] {
                let start = ((first + y) * original.width + x) * from.channels;
                for (to, &grad) in sums[start..start + from.channels].iter_mut().zip(grad) {
                    *to += f64::from(grad * y_weight * x_weight);
                }
            }
        }
    }
    Ok(sums)
}

fn mix_rows(mixed: &mut [f32], image: &[f32], taps: &Taps) {
    mixed.fill(0.0);
    for &(row, weight) in taps {
        let from = &image[row * mixed.len()..(row + 1) * mixed.len()];
        for (to, &from) in mixed.iter_mut().zip(from) {
            *to += weight * from;
        }
    }
}

fn mix_columns(to: &mut [f32], mixed: &[f32], columns: &[Taps], channels: usize) {
    for (to, taps) in to.chunks_exact_mut(channels).zip(columns) {
        to.fill(0.0);
        for &(column, weight) in taps {
            for (to, &from) in to.iter_mut().zip(&mixed[column * channels..(column + 1) * channels]) {
                *to += weight * from;
            }
        }
    }
}

struct ResampleGrad {
    scaling: Scaling,
    taps: MakeTaps,
    dtype: DType,
}

impl ResampleGrad {
    fn create(builder: &KernelBuilder<'_>, taps: MakeTaps) -> Result<BoxedKernel> {
        let dtype = builder.attrs().dtype("T")?;
        BoxedKernel::new(ResampleGrad { scaling: Scaling::new(builder)?, taps, dtype })
    }
}

impl Kernel for ResampleGrad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let grads = context.input(0)?;
        let (from, original) = (Sizes::of(grads)?, Sizes::of(context.input(1)?)?);
        if from.batch != original.batch || from.channels != original.channels {
            return Err(Status::invalid_argument(format!(
                "grads and original_image must have the same batch and channels: {} and {}",
                grads.shape(),
                context.input(1)?.shape()
            )));
        }
        let original = not_empty(original)?;
        let (mut rows, mut columns) = Default::default();
        if grads.num_elements() > 0 {
            rows = (self.taps)(self.scaling, original.height, from.height);
            columns = (self.taps)(self.scaling, original.width, from.width);
        }
        let sums = give_back(grads.as_slice::<f32>()?, from, original, &rows, &columns)?;
        context.set_output(0, store(self.dtype, original.shape()?, &sums)?);
        Ok(())
    }
}

struct Nearest(Scaling);

impl Kernel for Nearest {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let images = context.input(0)?;
        let sizes = Sizes::of(images)?;
        let (height, width) = target_size(context.input(1)?)?;
        let sizes = not_empty(sizes)?;
        let target = Sizes { height, width, ..sizes };
        let shape = target.shape()?;
        let (mut rows, mut columns) = Default::default();
        if check_target(target, images.dtype().size().max(1))? {
            rows = self.0.nearest(sizes.height, height);
            columns = self.0.nearest(sizes.width, width);
        }
        let output = with_movable!(images.dtype(), E => {
            let from = E::view(images)?;
            E::build(images.dtype(), shape, |to| {
                for (index, to) in to.chunks_exact_mut(sizes.channels.max(1)).enumerate() {
                    let (row, column) = (index / width, index % width);
                    let line = row / height * sizes.height + rows[row % height];
                    let start = (line * sizes.width + columns[column]) * sizes.channels;
                    to.clone_from_slice(&from[start..start + sizes.channels]);
                }
            })
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

struct NearestGrad(Scaling);

impl Kernel for NearestGrad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let grads = context.input(0)?;
        let from = Sizes::of(grads)?;
        let (height, width) = target_size(context.input(1)?)?;
        let target = Sizes { height, width, ..from };
        let shape: Shape = target.shape()?;
        check_target(target, size_of::<f64>())?;
        let mut sums = vec![0f64; shape.num_elements()];
        if !sums.is_empty() && grads.num_elements() > 0 {
            let rows = self.0.nearest(height, from.height);
            let columns = self.0.nearest(width, from.width);
            let values: Vec<f64> = match grads.dtype() {
                DType::Double => grads.as_slice::<f64>()?.to_vec(),
                DType::Int32 => grads.as_slice::<i32>()?.iter().map(|&x| f64::from(x)).collect(),
                _ => load(grads)?.iter().map(|&x| f64::from(x)).collect(),
            };
            for (index, grad) in values.chunks_exact(from.channels).enumerate() {
                let (row, column) = (index / from.width, index % from.width);
                let line = row / from.height * height + rows[row % from.height];
                let start = (line * width + columns[column]) * from.channels;
                for (to, grad) in sums[start..start + from.channels].iter_mut().zip(grad) {
                    *to += grad;
                }
            }
        }
        context.set_output(0, store(grads.dtype(), shape, &sums)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, infer, run_op};

    fn images(height: i64, width: i64, values: &[f32]) -> Tensor {
        Tensor::from_slice(&[1, height, width, values.len() as i64 / height / width], values).unwrap()
    }

    fn resized(op: &str, attrs: graph::AttrMap, image: Tensor, size: [i32; 2]) -> Vec<f32> {
        run_op(op, attrs, &[image, Tensor::vector(&size)]).unwrap()[0].as_slice::<f32>().unwrap().to_vec()
    }

    #[test]
    fn values() {
        let image = || images(2, 2, &[1.0, 2.0, 3.0, 4.0]);
        let expected = [1.0, 5.0 / 3.0, 2.0, 7.0 / 3.0, 3.0, 10.0 / 3.0, 3.0, 11.0 / 3.0, 4.0];
        let bilinear = resized("ResizeBilinear", attrs![], image(), [3, 3]);
        assert!(bilinear.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{bilinear:?}");
        assert_eq!(
            resized("ResizeNearestNeighbor", attrs![], image(), [3, 3]),
            [1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 3.0, 3.0, 4.0]
        );
        assert_eq!(resized("ResizeArea", attrs![], image(), [1, 1]), [2.5]);
        let centered = attrs![("half_pixel_centers", true)];
        assert_eq!(resized("ResizeBilinear", centered, image(), [1, 1]), [2.5]);
        let same = resized("ResizeBicubic", attrs![], image(), [2, 2]);
        assert_eq!(same, [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn gradients_give_back_along_the_same_weights() {
        // A linear map and its adjoint: <resize(x), y> = <x, back(y)>.
        let x: Vec<f32> = (0..30).map(|index| ((index * 7) % 11) as f32).collect();
        let y: Vec<f32> = (0..28 * 2).map(|index| ((index * 5) % 13) as f32).collect();
        for (forward, back) in [
            ("ResizeBilinear", "ResizeBilinearGrad"),
            ("ResizeBicubic", "ResizeBicubicGrad"),
            ("ResizeNearestNeighbor", "ResizeNearestNeighborGrad"),
        ] {
            for scaling in ["align_corners", "half_pixel_centers", ""] {
                let attrs = || if scaling.is_empty() { attrs![] } else { attrs![(scaling, true)] };
                let image = images(3, 5, &x);
                let up = resized(forward, attrs(), image.clone(), [4, 7]);
                let grads = Tensor::from_slice(&[1, 4, 7, 2], &y).unwrap();
                let other = if forward == "ResizeNearestNeighbor" { Tensor::vector(&[3, 5]) } else { image };
                let down = run_op(back, attrs(), &[grads, other]).unwrap();
                let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
                let (one, other) = (dot(&up, &y), dot(&x, down[0].as_slice::<f32>().unwrap()));
                assert!((one - other).abs() < 1e-2, "{forward} {scaling}: {one} {other}");
            }
        }
    }

    #[test]
    fn mistakes() {
        let fails = |image: Tensor, size: Tensor| run_op("ResizeBilinear", attrs![], &[image, size]).is_err();
        assert!(fails(images(1, 1, &[1.0]), Tensor::vector(&[0, 1])));
        assert!(fails(images(1, 1, &[1.0]), Tensor::vector(&[1, 1, 1])));
        assert!(fails(Tensor::vector(&[1f32]), Tensor::vector(&[1, 1])));
        assert!(fails(Tensor::from_slice::<f32>(&[1, 0, 1, 1], &[]).unwrap(), Tensor::vector(&[1, 1])));
    }

    #[test]
    fn huge_sizes_are_refused_before_work_is_done() {
        for op in ["ResizeBicubic", "ResizeBilinear", "ResizeArea", "ResizeNearestNeighbor"] {
            let sizes = Tensor::vector(&[i32::MAX, i32::MAX]);
            assert!(run_op(op, attrs![], &[images(1, 1, &[1.0]), sizes]).is_err(), "{op}");
            // Nothing to compute, however many rows there are.
            let none = Tensor::from_slice::<f32>(&[0, 1, 1, 1], &[]).unwrap();
            let sizes = Tensor::vector(&[i32::MAX, 1]);
            let output = run_op(op, attrs![], &[none, sizes]).unwrap();
            assert_eq!(output[0].dims(), [0, i64::from(i32::MAX), 1, 1], "{op}");
        }
        let sizes = Tensor::vector(&[i32::MAX, i32::MAX]);
        assert!(run_op("ResizeNearestNeighborGrad", attrs![], &[images(1, 1, &[1.0]), sizes]).is_err());
    }

    #[test]
    fn shapes() {
        check_shape("ResizeArea", attrs![], "[2,?,4,3];[2]", "[2,?,?,3]");
        let size = Tensor::vector(&[5, 6]);
        let known = infer("ResizeBilinear", attrs![], "[2,?,4,3];[2]", &[(1, size)]).unwrap();
        assert_eq!(known[0].to_string(), "[2,5,6,3]");
    }
}
