//! CropAndResize, which crops boxes out of images and resizes them, and its gradient ops.

use super::pixels::{Sizes, load, store, target_size};
use crate::compose::{Gradients, shape_of};
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use numeric::parallel;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

const IMAGE_TYPES: &str = "T: {uint8, uint16, int8, int16, int32, int64, half, float, double}";
const METHOD: &str = "method: {'bilinear', 'nearest'} = 'bilinear'";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "CropAndResize",
            inputs: &["image: T", "boxes: float", "box_ind: int32", "crop_size: int32"],
            outputs: &["crops: float"],
            attrs: &[IMAGE_TYPES, METHOD, "extrapolation_value: float = 0.0"],
            flags: OpFlags::NONE,
        },
        shape: crop_shape,
        gradient: Gradient::Fn(crop_gradient),
        kernels: &[KernelDef::any(Crop::create)],
    },
    Op {
        def: OpDef {
            name: "CropAndResizeGradImage",
            inputs: &["grads: float", "boxes: float", "box_ind: int32", "image_size: int32"],
            outputs: &["output: T"],
            attrs: &["T: {float, half, double}", METHOD],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let shape = c.constant_as_shape(3)?;
            let shape = PartialShape::unknown_of_rank(4).merge(&shape)?;
            c.set_output(0, shape);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(CropGradImage { nearest: is_nearest(builder)?, dtype: builder.output_dtype(0) })
        })],
    },
    Op {
        def: OpDef {
            name: "CropAndResizeGradBoxes",
            inputs: &["grads: float", "image: T", "boxes: float", "box_ind: int32"],
            outputs: &["output: float"],
            attrs: &[IMAGE_TYPES, "method: {'bilinear'} = 'bilinear'"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let boxes = c.with_rank(2, 2)?;
            c.set_output(0, boxes);
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(CropGradBoxes))],
    },
];

/// Returns parts of images, all resized to one size; `boxes` has top, left, bottom and right as fractions, `box_indices` the
/// image of each.
#[track_caller]
pub fn crop_and_resize(image: &Output, boxes: &Output, box_indices: &Output, height: i32, width: i32) -> Output {
    let size = image.graph().constant_tensor(&Tensor::vector(&[height, width]));
    image.graph().op("CropAndResize").inputs([image, boxes, box_indices, &size]).output()
}

fn crop_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let image = c.with_rank(0, 4)?;
    let boxes = c.with_rank(1, 2)?;
    let indices = c.with_rank(2, 1)?;
    let count = boxes.slice(0, 1).merge(&indices.slice(0, 1))?.dim(0);
    boxes.slice(1, 2).merge(&PartialShape::from_dims(&[4]))?;
    c.with_rank(3, 1)?.merge(&PartialShape::from_dims(&[2]))?;
    let (mut height, mut width) = (None, None);
    if let Some(size) = c.constant(3)
        && let &[rows, columns] = size.as_slice::<i32>()?
    {
        (height, width) = (Some(i64::from(rows)), Some(i64::from(columns)));
    }
    c.set_output(0, PartialShape::new(&[count, height, width, image.dim(3)]));
    Ok(())
}

fn crop_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None, None, None]) };
    let graph = grad.graph();
    let (image, boxes, indices) = (args.input(0), args.input(1), args.input(2));
    let mut to_image = None;
    if matches!(image.dtype(), DType::Half | DType::Float | DType::Double) {
        let op = graph.op("CropAndResizeGradImage").inputs([&grad, &boxes, &indices, &shape_of(&image)?]);
        let op = op.attr("T", image.dtype()).attr("method", args.op.attrs().string("method")?);
        to_image = Some(op.try_build()?.output(0).into());
    }
    // With nearest-neighbour sampling, boxes get the gradient of the interpolation too, which points in the right direction.
    let to_boxes = graph.op("CropAndResizeGradBoxes").inputs([&grad, &image, &boxes, &indices]).try_build()?;
    Ok(vec![to_image, Some(to_boxes.output(0).into()), None, None])
}

fn is_nearest(builder: &KernelBuilder<'_>) -> Result<bool> {
    Ok(builder.attrs().string("method")? == "nearest")
}

/// The boxes, and the image of each.
struct Boxes<'a> {
    boxes: &'a [[f32; 4]],
    images: &'a [i32],
}

impl<'a> Boxes<'a> {
    fn new(boxes: &'a Tensor, indices: &'a Tensor) -> Result<Boxes<'a>> {
        if boxes.num_elements() == 0 && indices.num_elements() == 0 {
            return Ok(Boxes { boxes: &[], images: &[] });
        }
        if !boxes.shape().is_matrix() || boxes.shape().dim(1) != 4 {
            return Err(Status::invalid_argument(format!("boxes must have 4 columns and be 2-D: {}", boxes.shape())));
        }
        if !indices.shape().is_vector() || indices.dims()[0] != boxes.dims()[0] {
            return Err(Status::invalid_argument(format!("box_index has incompatible shape {}", indices.shape())));
        }
        Ok(Boxes { boxes: boxes.as_slice::<f32>()?.as_chunks::<4>().0, images: indices.as_slice::<i32>()? })
    }

    /// Refuses boxes of images that don't exist.
    fn check(&self, batch: usize) -> Result<()> {
        match self.images.iter().all(|&image| usize::try_from(image).is_ok_and(|image| image < batch)) {
            true => Ok(()),
            false => Err(Status::out_of_range("box_index has values outside [0, batch_size)")),
        }
    }
}

/// The pixels before and after a crop position along one axis of the image, and the weight in between; `None` outside.
struct Places(Vec<Option<(usize, usize, f32)>>);

impl Places {
    fn new(start: f32, end: f32, image: usize, crop: usize) -> Places {
        let last = (image - 1) as f32;
        let scale = if crop > 1 { (end - start) * last / (crop - 1) as f32 } else { 0.0 };
        let place = |index: usize| {
            let place = match crop {
                1 => (0.5 * f64::from(start + end) * f64::from(last)) as f32,
                _ => start * last + index as f32 * scale,
            };
            // This is also false for NaN.
            (place >= 0.0 && place <= last)
                .then(|| (place.floor() as usize, place.ceil() as usize, place - place.floor()))
        };
        Places((0..crop).map(place).collect())
    }

    /// Moves each position to the nearest pixel.
    fn nearest(mut self) -> Places {
        for (before, after, share) in self.0.iter_mut().flatten() {
            // Halves are rounded up.
            let place = if *share < 0.5 { *before } else { *after };
            (*before, *after, *share) = (place, place, 0.0);
        }
        self
    }
}

fn places([top, left, bottom, right]: [f32; 4], image: Sizes, crop: (usize, usize), nearest: bool) -> (Places, Places) {
    let rows = Places::new(top, bottom, image.height, crop.0);
    let columns = Places::new(left, right, image.width, crop.1);
    if nearest { (rows.nearest(), columns.nearest()) } else { (rows, columns) }
}

fn image_sizes(image: &Tensor) -> Result<Sizes> {
    let sizes = Sizes::of(image)?;
    match sizes.height > 0 && sizes.width > 0 {
        true => Ok(sizes),
        false => Err(Status::invalid_argument("image dimensions must be positive")),
    }
}

struct Crop {
    nearest: bool,
    extrapolation: f32,
}

impl Crop {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let extrapolation = builder.attrs().float("extrapolation_value")?;
        BoxedKernel::new(Crop { nearest: is_nearest(builder)?, extrapolation })
    }
}

impl Kernel for Crop {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let image = context.input(0)?;
        let sizes = image_sizes(image)?;
        let boxes = Boxes::new(context.input(1)?, context.input(2)?)?;
        let (height, width) = target_size(context.input(3)?)?;
        boxes.check(sizes.batch)?;
        let depth = sizes.channels;
        let shape = Shape::from_usize(&[boxes.boxes.len(), height, width, depth])?;
        let pixels = load(image)?;
        let pixels = &pixels[..];
        let output = Tensor::build::<f32>(shape, |to| {
            let length = height * width * depth;
            if to.is_empty() {
                return;
            }
            parallel::for_each_chunk_mut(to, length, (length * 8) as f64, |first, chunk| {
                for (offset, crop) in chunk.chunks_exact_mut(length).enumerate() {
                    let index = first + offset;
                    let (rows, columns) = places(boxes.boxes[index], sizes, (height, width), self.nearest);
                    let image = boxes.images[index] as usize * sizes.height;
                    for (to, (row, column)) in crop
                        .chunks_exact_mut(depth)
                        .zip(rows.0.iter().flat_map(|row| columns.0.iter().map(move |c| (row, c))))
                    {
                        let (&Some((top, bottom, down)), &Some((left, right, across))) = (row, column) else {
                            to.fill(self.extrapolation);
                            continue;
                        };
                        let at = |y: usize, x: usize| &pixels[((image + y) * sizes.width + x) * depth..][..depth];
                        let corners = [at(top, left), at(top, right), at(bottom, left), at(bottom, right)];
                        for (channel, to) in to.iter_mut().enumerate() {
                            let [a, b, c, d] = corners.map(|corner| corner[channel]);
                            let (upper, lower) = (a + (b - a) * across, c + (d - c) * across);
                            *to = upper + (lower - upper) * down;
                        }
                    }
                }
            });
        })?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Checks the gradients of crops and returns their sizes.
fn grad_sizes(grads: &Tensor, boxes: &Boxes<'_>) -> Result<Sizes> {
    if grads.shape().rank() != 4 {
        return Err(Status::invalid_argument(format!("grads image must be 4-D{}", grads.shape())));
    }
    let sizes = Sizes::of(grads)?;
    if sizes.height == 0 || sizes.width == 0 {
        return Err(Status::invalid_argument("grads dimensions must be positive"));
    }
    if sizes.batch != boxes.boxes.len() {
        return Err(Status::invalid_argument("boxes and grads have incompatible shape"));
    }
    Ok(sizes)
}

struct CropGradImage {
    nearest: bool,
    dtype: DType,
}

impl Kernel for CropGradImage {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let grads = context.input(0)?;
        let boxes = Boxes::new(context.input(1)?, context.input(2)?)?;
        let crops = grad_sizes(grads, &boxes)?;
        let size = context.input(3)?;
        let image = match (size.shape().is_vector(), size.as_slice::<i32>()?) {
            (true, &[batch, height, width, channels]) if batch >= 0 && height > 0 && width > 0 && channels >= 0 => {
                [batch, height, width, channels].map(|size| size as usize)
            }
            (true, [_, _, _, _]) => return Err(Status::invalid_argument("image dimensions must be positive")),
            _ => {
                return Err(Status::invalid_argument(format!(
                    "image_size must be 1-D with 4 elements{}",
                    size.shape()
                )));
            }
        };
        let image = Sizes { batch: image[0], height: image[1], width: image[2], channels: image[3] };
        if image.channels != crops.channels {
            return Err(Status::invalid_argument("image_size and grads are incompatible"));
        }
        boxes.check(image.batch)?;
        let shape = image.shape()?;
        // Refused here, before memory runs out.
        drop(Tensor::new(DType::Double, shape.clone())?);
        let mut sums = vec![0f64; shape.num_elements()];
        let depth = image.channels;
        if depth > 0 {
            let mut grads = grads.as_slice::<f32>()?.chunks_exact(depth);
            for (&corners, &index) in boxes.boxes.iter().zip(boxes.images) {
                let (rows, columns) = places(corners, image, (crops.height, crops.width), self.nearest);
                for row in &rows.0 {
                    for column in &columns.0 {
                        let (Some(grad), &Some((top, bottom, down)), &Some((left, right, across))) =
                            (grads.next(), row, column)
                        else {
                            continue;
                        };
                        for (y, x, weight) in [
                            (top, left, (1.0 - down) * (1.0 - across)),
                            (top, right, (1.0 - down) * across),
                            (bottom, left, down * (1.0 - across)),
                            (bottom, right, down * across),
                        ] {
                            let start = ((index as usize * image.height + y) * image.width + x) * depth;
                            for (to, &grad) in sums[start..start + depth].iter_mut().zip(grad) {
                                *to += f64::from(weight * grad);
                            }
                        }
                    }
                }
            }
        }
        context.set_output(0, store(self.dtype, shape, &sums)?);
        Ok(())
    }
}

struct CropGradBoxes;

impl Kernel for CropGradBoxes {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let grads = context.input(0)?;
        let image = context.input(1)?;
        let sizes = image_sizes(image)?;
        let boxes = Boxes::new(context.input(2)?, context.input(3)?)?;
        let crops = grad_sizes(grads, &boxes)?;
        if crops.channels != sizes.channels {
            return Err(Status::invalid_argument("image, grads depth differ"));
        }
        boxes.check(sizes.batch)?;
        let pixels = load(image)?;
        let depth = sizes.channels;
        let mut sums = vec![0f32; boxes.boxes.len() * 4];
        // The effect of the box's first edge on a position of the crop, scaled to pixels; the rest comes from the last edge.
        let share = |index: usize, count: usize, image: usize| match count {
            1 => (0.5 * (image - 1) as f32, 0.5 * (image - 1) as f32),
            _ => {
                let ratio = (image - 1) as f32 / (count - 1) as f32;
                ((image - 1) as f32 - index as f32 * ratio, index as f32 * ratio)
            }
        };
        if depth > 0 {
            let mut grads = grads.as_slice::<f32>()?.chunks_exact(depth);
            for ((&corners, &index), to) in boxes.boxes.iter().zip(boxes.images).zip(sums.as_chunks_mut::<4>().0) {
                let (rows, columns) = places(corners, sizes, (crops.height, crops.width), false);
                for (y, row) in rows.0.iter().enumerate() {
                    for (x, column) in columns.0.iter().enumerate() {
                        let (Some(grad), &Some((top, bottom, down)), &Some((left, right, across))) =
                            (grads.next(), row, column)
                        else {
                            continue;
                        };
                        let image = index as usize * sizes.height;
                        let at = |y: usize, x: usize| &pixels[((image + y) * sizes.width + x) * depth..][..depth];
                        let corners = [at(top, left), at(top, right), at(bottom, left), at(bottom, right)];
                        let (mut along_y, mut along_x) = (0.0, 0.0);
                        for (channel, &grad) in grad.iter().enumerate() {
                            let [a, b, c, d] = corners.map(|corner| corner[channel]);
                            along_y += grad * ((1.0 - across) * (c - a) + across * (d - b));
                            along_x += grad * ((1.0 - down) * (b - a) + down * (d - c));
                        }
                        let (first_y, last_y) = share(y, crops.height, sizes.height);
                        let (first_x, last_x) = share(x, crops.width, sizes.width);
                        to[0] += along_y * first_y;
                        to[1] += along_x * first_x;
                        to[2] += along_y * last_y;
                        to[3] += along_x * last_x;
                    }
                }
            }
        }
        context.set_output(0, Tensor::from_slice(&[boxes.boxes.len() as i64, 4], &sums)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    #[test]
    fn values() {
        let image = Tensor::from_slice(&[1, 2, 2, 1], &[1f32, 2.0, 3.0, 4.0]).unwrap();
        let boxes = Tensor::from_slice(&[2, 4], &[0f32, 0.0, 1.0, 1.0, 0.5, 0.5, 1.5, 1.5]).unwrap();
        let crops = |attrs| {
            let inputs = [image.clone(), boxes.clone(), Tensor::vector(&[0, 0]), Tensor::vector(&[2, 2])];
            run_op("CropAndResize", attrs, &inputs).unwrap()[0].as_slice::<f32>().unwrap().to_vec()
        };
        assert_eq!(crops(attrs![]), [1.0, 2.0, 3.0, 4.0, 2.5, 0.0, 0.0, 0.0]);
        let nearest = attrs![("method", "nearest"), ("extrapolation_value", 9f32)];
        assert_eq!(crops(nearest), [1.0, 2.0, 3.0, 4.0, 4.0, 9.0, 9.0, 9.0]);
    }

    #[test]
    fn mistakes() {
        let image = Tensor::from_slice(&[1, 2, 2, 1], &[1f32, 2.0, 3.0, 4.0]).unwrap();
        let boxes = Tensor::from_slice(&[1, 4], &[0f32, 0.0, 1.0, 1.0]).unwrap();
        let run = |index: i32, size: [i32; 2]| {
            let inputs = [image.clone(), boxes.clone(), Tensor::vector(&[index]), Tensor::vector(&size)];
            run_op("CropAndResize", attrs![], &inputs).map(|_| ()).map_err(|status| status.code())
        };
        assert_eq!(run(0, [1, 1]), Ok(()));
        assert_eq!(run(1, [1, 1]), Err(tensor::Code::OutOfRange));
        assert_eq!(run(-1, [1, 1]), Err(tensor::Code::OutOfRange));
        assert_eq!(run(0, [0, 1]), Err(tensor::Code::InvalidArgument));
    }

    #[test]
    fn shapes() {
        check_shape("CropAndResize", attrs![], "[2,?,?,3];[?,4];[5];[2]", "[5,?,?,3]");
    }
}
