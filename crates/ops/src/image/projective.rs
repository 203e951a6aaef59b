//! Projective transforms of images: ImageProjectiveTransformV2, ImageProjectiveTransformV3.

use crate::compose::{Gradients, binary, int_scalar, int_vector, reshape, scalar, shape_of, ternary, unary};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels,
};
use num_traits::AsPrimitive;
use numeric::parallel;
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Shape, Status, Tensor, f16};

/// The number of coefficients of a transform; the ninth element of its matrix is one.
const PARAMETERS: usize = 8;

const ATTRS: &[&str] =
    &["dtype: {uint8, int32, int64, half, float, double}", "interpolation: string", "fill_mode: string = 'CONSTANT'"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "ImageProjectiveTransformV2",
            inputs: &["images: dtype", "transforms: float", "output_shape: int32"],
            outputs: &["transformed_images: dtype"],
            attrs: ATTRS,
            flags: OpFlags::NONE,
        },
        shape: transform_shape,
        gradient: Gradient::Fn(transform_gradient),
        kernels: kernels!("dtype": [u8, i32, i64, f16, f32, f64] => Project),
    },
    Op {
        def: OpDef {
            name: "ImageProjectiveTransformV3",
            inputs: &["images: dtype", "transforms: float", "output_shape: int32", "fill_value: float"],
            outputs: &["transformed_images: dtype"],
            attrs: ATTRS,
            flags: OpFlags::NONE,
        },
        shape: transform_shape,
        gradient: Gradient::Fn(transform_gradient),
        kernels: kernels!("dtype": [u8, i32, i64, f16, f32, f64] => Project),
    },
];

/// Returns images of size `output_shape` in which each point is that of the input to which its transform maps it.
#[track_caller]
pub fn image_projective_transform(
    images: &Output,
    transforms: &Output,
    output_shape: &Output,
    interpolation: &str,
) -> Output {
    let op = images.graph().op("ImageProjectiveTransformV2").input(images).input(transforms).input(output_shape);
    op.attr("interpolation", interpolation).output()
}

fn transform_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank(0, 4)?;
    c.with_rank(2, 1)?.merge(&PartialShape::from_dims(&[2]))?;
    let size = c.constant(2).map(|size| size.to_indices()).transpose()?;
    let side = |axis: usize| size.as_ref().map(|size| size[axis]);
    if let Some(size) = &size
        && size.iter().any(|&side| side <= 0)
    {
        return Err(Status::invalid_argument("output dimensions must be positive"));
    }
    c.set_output(0, PartialShape::new(&[images.dim(0), side(0), side(1), images.dim(3)]));
    Ok(())
}

/// The gradient of an image is transformed by the inverse.
fn transform_gradient(args: &GradientArgs<'_>) -> Gradients {
    let mut grads = vec![None; args.op.num_inputs()];
    let Some(grad) = args.grad(0) else { return Ok(grads) };
    let (graph, attrs) = (grad.graph(), args.op.attrs());
    let transforms = reshape(&args.input(1), &int_vector(graph, &[-1, PARAMETERS as i32])?)?;
    let begin = int_vector(graph, &[0, 0])?;
    let one = ternary("Slice", &transforms, &begin, &int_vector(graph, &[-1, 1])?)?;
    let axis = int_scalar(graph, 1)?;
    let whole = graph.op("ConcatV2").inputs([&transforms, &unary("OnesLike", &one)?]).input(&axis).try_build()?;
    let inverse = unary("MatrixInverse", &reshape(&whole.output(0), &int_vector(graph, &[-1, 3, 3])?)?)?;
    let flat = reshape(&inverse, &int_vector(graph, &[-1, 9])?)?;
    let last = ternary("Slice", &flat, &int_vector(graph, &[0, 8])?, &int_vector(graph, &[-1, 1])?)?;
    let flat = binary("RealDiv", &flat, &last)?;
    let flat = ternary("Slice", &flat, &begin, &int_vector(graph, &[-1, PARAMETERS as i32])?)?;
    let size = ternary("Slice", &shape_of(&args.input(0))?, &int_vector(graph, &[1])?, &int_vector(graph, &[2])?)?;
    let mut op = graph.op(&args.op.op_type()).input(&grad).input(&flat).input(&size);
    if args.op.num_inputs() > 3 {
        op = op.input(&scalar(&args.input(3), 0.0)?);
    }
    let op = op.attr("interpolation", attrs.string("interpolation")?).attr("fill_mode", attrs.string("fill_mode")?);
    grads[0] = Some(op.try_build()?.output(0).into());
    Ok(grads)
}

/// The fill mode beyond the edge of an image.
#[derive(Clone, Copy)]
enum FillMode {
    Constant,
    /// The image, mirrored at its edge.
    Reflect,
    /// The image, repeated.
    Wrap,
    /// The pixels of the edge.
    Nearest,
}

impl FillMode {
    fn parse(name: &str) -> Result<FillMode> {
        Ok(match name {
            "CONSTANT" => FillMode::Constant,
            "REFLECT" => FillMode::Reflect,
            "WRAP" => FillMode::Wrap,
            "NEAREST" => FillMode::Nearest,
            other => {
                return Err(Status::invalid_argument(format!(
                    "Invalid mode {other}. Supported types: REFLECT, WRAP, CONSTANT, NEAREST"
                )));
            }
        })
    }

    /// Maps a position that may be beyond the edge into `0..len`.
    fn inside(self, place: f32, len: usize) -> f32 {
        let (size, last) = (len as f32, len as f32 - 1.0);
        let beyond = place < 0.0 || place > last;
        match self {
            FillMode::Constant => place,
            FillMode::Nearest => place.min(last).max(0.0),
            _ if beyond && len <= 1 => 0.0,
            FillMode::Reflect => {
                let twice = 2.0 * size;
                let found = if place < 0.0 {
                    let near = place + twice * (-place / twice).trunc();
                    if near < -size { near + twice } else { -near - 1.0 }
                } else if beyond {
                    let near = place - twice * (place / twice).trunc();
                    if near >= size { twice - near - 1.0 } else { near }
                } else {
                    place
                };
                found.min(last).max(0.0)
            }
            FillMode::Wrap => {
                let found = if place < 0.0 {
                    place + size * ((-place / last).trunc() + 1.0)
                } else if beyond {
                    place - size * (place / last).trunc()
                } else {
                    place
                };
                found.min(last).max(0.0)
            }
        }
    }
}

struct Project<T> {
    bilinear: bool,
    fill_mode: FillMode,
    element: PhantomData<fn(T)>,
}

impl<T: Element + AsPrimitive<f32>> Project<T>
where
    f32: AsPrimitive<T>,
{
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let bilinear = match attrs.string("interpolation")?.as_str() {
            "NEAREST" => false,
            "BILINEAR" => true,
            other => {
                return Err(Status::invalid_argument(format!(
                    "Invalid interpolation {other}. Supported types: NEAREST, BILINEAR"
                )));
            }
        };
        let fill_mode = FillMode::parse(&attrs.string("fill_mode")?)?;
        BoxedKernel::new(Project::<T> { bilinear, fill_mode, element: PhantomData })
    }
}

/// One image.
struct Image<'a, T> {
    pixels: &'a [T],
    height: usize,
    width: usize,
    channels: usize,
    fill: T,
}

impl<T: Copy + AsPrimitive<f32>> Image<'_, T>
where
    f32: AsPrimitive<T>,
{
    fn read(&self, y: f32, x: f32, channel: usize) -> T {
        if y >= 0.0 && x >= 0.0 && y < self.height as f32 && x < self.width as f32 {
            return self.pixels[(y as usize * self.width + x as usize) * self.channels + channel];
        }
        self.fill
    }

    fn between(&self, y: f32, x: f32, channel: usize) -> T {
        let (top, left) = (y.floor(), x.floor());
        let (bottom, right) = (top + 1.0, left + 1.0);
        let row = |at: f32| {
            let (a, b): (f32, f32) = (self.read(at, left, channel).as_(), self.read(at, right, channel).as_());
            (right - x) * a + (x - left) * b
        };
        ((bottom - y) * row(top) + (y - top) * row(bottom)).as_()
    }
}

/// Returns the output sizes of both ops.
fn sizes(context: &OpContext<'_>) -> Result<([usize; 4], [usize; 2])> {
    let (images, transforms, size) = (context.input(0)?, context.input(1)?, context.input(2)?);
    let [batch, height, width, channels] = images.shape().to_usize()[..] else {
        return Err(Status::invalid_argument("Input images must have rank 4"));
    };
    match transforms.shape().to_usize()[..] {
        [count, PARAMETERS] if count == batch || count == 1 => {}
        _ => return Err(Status::invalid_argument("Input transform should be num_images x 8 or 1 x 8")),
    }
    if size.shape().rank() != 1 {
        return Err(Status::invalid_argument(format!("output shape must be 1-dimensional{}", size.shape())));
    }
    let &[out_height, out_width] = size.as_slice::<i32>()? else {
        return Err(Status::invalid_argument(format!("output shape must have two elements{}", size.shape())));
    };
    if out_height <= 0 || out_width <= 0 {
        return Err(Status::invalid_argument("output dimensions must be positive"));
    }
    Ok(([batch, height, width, channels], [out_height as usize, out_width as usize]))
}

impl<T: Element + AsPrimitive<f32>> Kernel for Project<T>
where
    f32: AsPrimitive<T>,
{
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let ([batch, height, width, channels], [out_height, out_width]) = sizes(context)?;
        let fill: T = match context.num_inputs() > 3 {
            true => context.scalar::<f32>(3, "fill_value")?.as_(),
            false => 0f32.as_(),
        };
        let (pixels, transforms) = (context.slice::<T>(0)?, context.slice::<f32>(1)?);
        let shape = Shape::from_usize(&[batch, out_height, out_width, channels])?;
        let (bilinear, fill_mode) = (self.bilinear, self.fill_mode);
        let output = Tensor::build(shape, |out: &mut [T]| {
            if out.is_empty() {
                return;
            }
            let row_len = out_width * channels;
            parallel::for_each_chunk_mut(out, row_len, row_len as f64 * 20.0, |first, out| {
                for (offset, row) in out.chunks_exact_mut(row_len).enumerate() {
                    let (index, y) = ((first + offset) / out_height, ((first + offset) % out_height) as f32);
                    let transform = &transforms[if transforms.len() == PARAMETERS { 0 } else { index * PARAMETERS }..];
                    let pixels = &pixels[index * height * width * channels..][..height * width * channels];
                    let image = Image { pixels, height, width, channels, fill };
                    for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
                        let x = x as f32;
                        let projection = transform[6] * x + transform[7] * y + 1.0;
                        if projection == 0.0 {
                            pixel.fill(fill);
                            continue;
                        }
                        let at = |row: usize| transform[row] * x + transform[row + 1] * y + transform[row + 2];
                        let from_x = fill_mode.inside(at(0) / projection, width);
                        let from_y = fill_mode.inside(at(3) / projection, height);
                        for (channel, out) in pixel.iter_mut().enumerate() {
                            *out = match bilinear {
                                true => image.between(from_y, from_x, channel),
                                false => image.read(from_y.round(), from_x.round(), channel),
                            };
                        }
                    }
                }
            });
        })?;
        context.set_output(0, output);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use super::FillMode;
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Code, Tensor};

    #[test]
    fn images_are_moved_and_turned() {
        let image = Tensor::from_slice(&[1, 2, 2, 1], &[1u8, 2, 3, 4]).unwrap();
        let moved = |transform: [f32; 8], interpolation: &str, fill_mode: &str| {
            let attrs = attrs![("interpolation", interpolation), ("fill_mode", fill_mode)];
            let transform = Tensor::from_slice(&[1, 8], &transform).unwrap();
            let outputs = run_op(
                "ImageProjectiveTransformV3",
                attrs,
                &[image.clone(), transform, Tensor::vector(&[2i32, 2]), Tensor::scalar(9f32)],
            );
            outputs.map(|outputs| outputs[0].as_slice::<u8>().unwrap().to_vec())
        };
        let right = [1.0, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0];
        assert_eq!(moved(right, "NEAREST", "CONSTANT").unwrap(), [9, 1, 9, 3]);
        assert_eq!(moved(right, "NEAREST", "NEAREST").unwrap(), [1, 1, 3, 3]);
        assert_eq!(moved(right, "NEAREST", "REFLECT").unwrap(), [1, 1, 3, 3]);
        assert_eq!(moved(right, "BILINEAR", "WRAP").unwrap(), [2, 1, 4, 3]);
        assert_eq!(moved([0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], "NEAREST", "CONSTANT").unwrap(), [1, 3, 2, 4]);
        for (interpolation, mode) in [("CUBIC", "CONSTANT"), ("NEAREST", "OTHER")] {
            assert_eq!(moved(right, interpolation, mode).unwrap_err().code(), Code::InvalidArgument);
        }
    }

    /// For every number, the position is in the image.
    #[test]
    fn no_place_is_outside() {
        for mode in [FillMode::Reflect, FillMode::Wrap, FillMode::Nearest] {
            for place in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1e30, 1e30, -7.3, 5.5, 0.0] {
                for len in [1, 2, 5] {
                    let found = mode.inside(place, len);
                    assert!((0.0..=len as f32 - 1.0).contains(&found), "{place} of {len} at {found}");
                }
            }
        }
    }

    #[test]
    fn shapes() {
        check_shape("ImageProjectiveTransformV2", attrs![], "[5,2,3,4];[1,8];[2]", "[5,?,?,4]");
    }
}
