//! Boxes in images: DrawBoundingBoxes, and SampleDistortedBoundingBox, which draws a random box.

use super::pixels::Sizes;
use crate::random::{Generator, SingleSample};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext};
use tensor::{DType, PartialShape, Result, Status, Tensor, f16};

const DRAWN_TYPES: &[&str] = &["T: {float, half} = DT_FLOAT"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "DrawBoundingBoxes",
            inputs: &["images: T", "boxes: float"],
            outputs: &["output: T"],
            attrs: DRAWN_TYPES,
            flags: OpFlags::NONE,
        },
        shape: drawn_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(DrawBoxes))],
    },
    Op {
        def: OpDef {
            name: "DrawBoundingBoxesV2",
            inputs: &["images: T", "boxes: float", "colors: float"],
            outputs: &["output: T"],
            attrs: DRAWN_TYPES,
            flags: OpFlags::NONE,
        },
        shape: drawn_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(DrawBoxes))],
    },
    Op {
        def: OpDef {
            name: "SampleDistortedBoundingBox",
            inputs: &["image_size: T", "bounding_boxes: float"],
            outputs: &["begin: T", "size: T", "bboxes: float"],
            attrs: &[
                "T: {uint8, int8, int16, int32, int64}",
                "seed: int = 0",
                "seed2: int = 0",
                "min_object_covered: float = 0.1",
                "aspect_ratio_range: list(float) = [0.75, 1.33]",
                "area_range: list(float) = [0.05, 1.0]",
                "max_attempts: int = 100",
                "use_image_if_no_bounding_boxes: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: sampled_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(SampleBox::create)],
    },
    Op {
        def: OpDef {
            name: "SampleDistortedBoundingBoxV2",
            inputs: &["image_size: T", "bounding_boxes: float", "min_object_covered: float"],
            outputs: &["begin: T", "size: T", "bboxes: float"],
            attrs: &[
                "T: {uint8, int8, int16, int32, int64}",
                "seed: int = 0",
                "seed2: int = 0",
                "aspect_ratio_range: list(float) = [0.75, 1.33]",
                "area_range: list(float) = [0.05, 1.0]",
                "max_attempts: int = 100",
                "use_image_if_no_bounding_boxes: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: sampled_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(SampleBox::create)],
    },
];

fn drawn_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let images = c.with_rank(0, 4)?;
    if let Some(channels) = images.dim(3).filter(|channels| !matches!(channels, 1 | 3 | 4)) {
        return Err(Status::invalid_argument(format!(
            "Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA), got {channels}"
        )));
    }
    c.with_rank(1, 3)?.slice(2, 3).merge(&PartialShape::from_dims(&[4]))?;
    let images = c.input(0);
    c.set_output(0, images);
    Ok(())
}

fn sampled_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.with_rank(0, 1)?.merge(&PartialShape::from_dims(&[3]))?;
    let boxes = c.with_rank(1, 3)?;
    boxes.slice(2, 3).merge(&PartialShape::from_dims(&[4]))?;
    if c.num_inputs() > 2 {
        c.with_rank(2, 0)?;
    }
    c.set_output(0, PartialShape::from_dims(&[3]));
    c.set_output(1, PartialShape::from_dims(&[3]));
    c.set_output(2, PartialShape::from_dims(&[1, 1, 4]));
    Ok(())
}

struct DrawBoxes;

/// The default colors of boxes, in turn.
const COLORS: [[f32; 4]; 10] = [
    [1.0, 1.0, 0.0, 1.0],
    [0.0, 0.0, 1.0, 1.0],
    [1.0, 0.0, 0.0, 1.0],
    [0.0, 1.0, 0.0, 1.0],
    [0.5, 0.0, 0.5, 1.0],
    [0.5, 0.5, 0.0, 1.0],
    [0.5, 0.0, 0.0, 1.0],
    [0.0, 0.0, 0.5, 1.0],
    [0.0, 1.0, 1.0, 1.0],
    [1.0, 0.0, 1.0, 1.0],
];

impl Kernel for DrawBoxes {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (images, boxes) = (context.input(0)?, context.input(1)?);
        if images.shape().rank() != 4 {
            return Err(Status::invalid_argument("The rank of the images should be 4"));
        }
        let sizes = Sizes::of(images)?;
        if boxes.shape().rank() != 3 {
            return Err(Status::invalid_argument("The rank of the boxes tensor should be 3"));
        }
        if boxes.shape().size(0) != sizes.batch {
            return Err(Status::invalid_argument("The batch sizes should be the same"));
        }
        if !matches!(sizes.channels, 1 | 3 | 4) {
            return Err(Status::invalid_argument("Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)"));
        }
        if boxes.shape().size(2) != 4 {
            return Err(Status::invalid_argument(format!(
                "The size of the third dimension of the box must be 4. Received: {}",
                boxes.shape().size(2)
            )));
        }
        let colors = colors(context, sizes.channels)?;
        let boxes = boxes.clone();
        let mut output = context.take_input(0)?;
        let corners = boxes.as_slice::<f32>()?.as_chunks::<4>().0;
        let count = boxes.shape().size(1);
        let is_half = output.dtype() == DType::Half;
        let lines = |paint: &mut dyn FnMut(usize, &[f32])| {
            for (index, &corners) in corners.iter().enumerate() {
                let color = &colors[index % count % colors.len()];
                outline(corners, sizes, &mut |row, column| {
                    let pixel = (index / count * sizes.height + row) * sizes.width + column;
                    paint(pixel * sizes.channels, &color[..sizes.channels]);
                });
            }
        };
        if is_half {
            let canvas = output.make_mut::<f16>()?;
            lines(&mut |start, color| {
                for (to, &color) in canvas[start..].iter_mut().zip(color) {
                    *to = f16::from_f32(color);
                }
            });
        } else {
            let canvas = output.make_mut::<f32>()?;
            lines(&mut |start, color| canvas[start..start + color.len()].copy_from_slice(color));
        }
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the colors of the boxes: those of the third input, if it has any.
fn colors(context: &OpContext<'_>, channels: usize) -> Result<Vec<[f32; 4]>> {
    if context.num_inputs() > 2 {
        let given = context.input(2)?;
        if !given.shape().is_matrix() {
            return Err(Status::invalid_argument(format!("colors must be a 2-D matrix{}", given.shape())));
        }
        let width = given.shape().size(1);
        if width < channels {
            return Err(Status::invalid_argument(format!(
                "colors must have equal or more channels than the image provided: {}",
                given.shape()
            )));
        }
        if given.num_elements() > 0 {
            let color = |row: &[f32]| std::array::from_fn(|channel| row.get(channel).copied().unwrap_or(0.0));
            return Ok(given.as_slice::<f32>()?.chunks_exact(width).map(color).collect());
        }
    }
    let mut colors = COLORS.to_vec();
    if channels == 1 {
        colors.iter_mut().for_each(|color| color[0] = 1.0);
    }
    Ok(colors)
}

/// Calls `paint` for each pixel on the edges of a box, as far as they are inside the image.
fn outline(corners: [f32; 4], sizes: Sizes, paint: &mut dyn FnMut(usize, usize)) {
    let (height, width) = (sizes.height as i64, sizes.width as i64);
    let [top, left, bottom, right] = corners;
    let place = |fraction: f32, size: i64| (fraction * (size - 1) as f32) as i64;
    let (top, bottom) = (place(top, height), place(bottom, height));
    let (left, right) = (place(left, width), place(right, width));
    let inverted = top > bottom || left > right;
    if inverted || top >= height || bottom < 0 || left >= width || right < 0 {
        return;
    }
    for row in [top, bottom] {
        if (0..height).contains(&row) {
            (left.max(0)..=right.min(width - 1)).for_each(|column| paint(row as usize, column as usize));
        }
    }
    for column in [left, right] {
        if (0..width).contains(&column) {
            (top.max(0)..=bottom.min(height - 1)).for_each(|row| paint(row as usize, column as usize));
        }
    }
}

/// A box in pixels; its ends are exclusive.
#[derive(Clone, Copy)]
struct Rectangle {
    top: i32,
    left: i32,
    bottom: i32,
    right: i32,
}

impl Rectangle {
    fn area(&self) -> f32 {
        (self.right - self.left).wrapping_mul(self.bottom - self.top) as f32
    }

    fn common_area(&self, other: &Rectangle) -> f32 {
        let (top, left) = (self.top.max(other.top), self.left.max(other.left));
        let (bottom, right) = (self.bottom.min(other.bottom), self.right.min(other.right));
        match left > right || top > bottom {
            true => 0.0,
            false => Rectangle { top, left, bottom, right }.area(),
        }
    }

    /// Returns whether enough of an object is inside.
    fn covers_one(&self, objects: &[Rectangle], least: f32) -> bool {
        self.area() >= 1.0
            && objects.iter().any(|object| object.area() >= 1.0 && self.common_area(object) / object.area() >= least)
    }
}

struct SampleBox {
    generator: Generator,
    min_object_covered: Option<f32>,
    aspect_ratios: [f32; 2],
    areas: [f32; 2],
    max_attempts: usize,
    use_image: bool,
}

impl SampleBox {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let invalid = |message: String| Err(Status::invalid_argument(message));
        let range = |name: &str| match *attrs.floats(name)? {
            [low, high] => Ok([low, high]),
            _ => Err(Status::invalid_argument(format!("{name} must specify 2 dimensions"))),
        };
        let (aspect_ratios, areas) = (range("aspect_ratio_range")?, range("area_range")?);
        let min_object_covered = attrs.float("min_object_covered").ok();
        if let Some(least) = min_object_covered.filter(|&least| least.is_nan() || least < 0.0) {
            return invalid(format!("Min object covered must be non-negative: {least}"));
        }
        if !aspect_ratios.iter().all(|&ratio| ratio > 0.0) {
            return invalid(format!("Aspect ratio range must be non-negative: {aspect_ratios:?}"));
        }
        if !areas.iter().all(|&area| area > 0.0 && area <= 1.0) {
            return invalid(format!("Area range must be positive and at most 1.0: {areas:?}"));
        }
        let max_attempts = attrs.int("max_attempts")?;
        if !(1..=i64::from(i32::MAX)).contains(&max_attempts) {
            return invalid(format!("Max attempts must be non-negative: {max_attempts}"));
        }
        BoxedKernel::new(SampleBox {
            generator: Generator::new(builder)?,
            min_object_covered,
            aspect_ratios,
            areas,
            max_attempts: max_attempts as usize,
            use_image: attrs.bool("use_image_if_no_bounding_boxes")?,
        })
    }

    /// Returns a box of an aspect ratio whose area is within the range, if there is one.
    fn random_crop(&self, height: i32, width: i32, ratio: f32, random: &mut SingleSample) -> Option<Rectangle> {
        if ratio <= 0.0 || width <= 0 || height <= 0 || self.areas[0] > self.areas[1] {
            return None;
        }
        let round = |value: f32| value.round_ties_even() as i32;
        let [least, most] = self.areas.map(|area| area * width as f32 * height as f32);
        let mut rows = round((least / ratio).sqrt());
        let mut most_rows = round((most / ratio).sqrt());
        if round(most_rows as f32 * ratio) > width {
            // The greatest number of rows whose columns, rounded, still fit.
            most_rows = ((f64::from(width) + 0.5 - f64::from(0.0000001f32)) / f64::from(ratio)) as i32;
        }
        most_rows = most_rows.min(height);
        rows = rows.min(most_rows);
        if rows < most_rows {
            rows += random.below((most_rows - rows + 1) as u32) as i32;
        }
        let columns_of = |rows: i32| round(rows as f32 * ratio);
        let area_of = |rows: i32| columns_of(rows).wrapping_mul(rows) as f32;
        // One row more or less compensates for rounding.
        if area_of(rows) < least {
            rows += 1;
        }
        if area_of(rows) > most {
            rows -= 1;
        }
        let (columns, area) = (columns_of(rows), area_of(rows));
        if area < least || area > most || columns > width || rows > height || columns <= 0 || rows <= 0 {
            return None;
        }
        let top = if rows < height { random.below((height - rows) as u32) as i32 } else { 0 };
        let left = if columns < width { random.below((width - columns) as u32) as i32 } else { 0 };
        Some(Rectangle { top, left, bottom: top + rows, right: left + columns })
    }

    fn sample(&self, height: i32, width: i32, objects: &[Rectangle], least: f32) -> Rectangle {
        let mut random = self.generator.reserve_single_samples(4 * self.max_attempts);
        let [low, high] = self.aspect_ratios;
        for _ in 0..self.max_attempts {
            let ratio = random.fraction() * (high - low) + low;
            if let Some(crop) = self.random_crop(height, width, ratio, &mut random)
                && crop.covers_one(objects, least)
            {
                return crop;
            }
        }
        Rectangle { top: 0, left: 0, bottom: height, right: width }
    }
}

impl Kernel for SampleBox {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let image_size = context.input(0)?;
        let invalid = |message: String| Err(Status::invalid_argument(message));
        if !image_size.shape().is_vector() || image_size.num_elements() != 3 {
            return invalid(format!("image_size must contain 3 elements{}", image_size.shape()));
        }
        let numbers: Vec<i64> = match image_size.dtype() {
            DType::UInt8 => image_size.as_slice::<u8>()?.iter().map(|&size| i64::from(size)).collect(),
            DType::Int8 => image_size.as_slice::<i8>()?.iter().map(|&size| i64::from(size)).collect(),
            DType::Int16 => image_size.as_slice::<i16>()?.iter().map(|&size| i64::from(size)).collect(),
            _ => image_size.to_indices()?,
        };
        let side = |size: i64, name: &str| match (0..i64::from(i32::MAX)).contains(&size) {
            true => Ok(size as i32),
            false => Err(Status::invalid_argument(format!("image {name} cannot be >= int32 max"))),
        };
        let (height, width) = (side(numbers[0], "height")?, side(numbers[1], "width")?);
        let boxes = context.input(1)?;
        if boxes.shape().rank() != 3 || boxes.shape().size(2) != 4 {
            return invalid(format!("bounding boxes must have shape [batch, num_boxes, 4], got {}", boxes.shape()));
        }
        let least = match self.min_object_covered {
            Some(least) => least,
            None => {
                let least = context.input(2)?;
                if !least.shape().is_scalar() {
                    return invalid(format!("min_object_covered must be 0-D, got shape {}", least.shape()));
                }
                least.to_scalar::<f32>()?
            }
        };
        if least.is_nan() || least < 0.0 {
            return invalid(format!("Min object covered must be non-negative: {least}"));
        }
        let mut objects = Vec::new();
        for corners in boxes.as_slice::<f32>()?.as_chunks::<4>().0 {
            if let Some(outside) = corners.iter().find(|corner| !(0.0..=1.0).contains(*corner)) {
                return invalid(format!("All bounding box coordinates must be in [0.0, 1.0]: {outside}"));
            }
            let [top, left, bottom, right] = *corners;
            let (row, column) = (|part: f32| (part * height as f32) as i32, |part: f32| (part * width as f32) as i32);
            objects.push(Rectangle { top: row(top), left: column(left), bottom: row(bottom), right: column(right) });
        }
        if objects.is_empty() {
            if !self.use_image {
                return invalid(
                    "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to \
                     not provide any bounding boxes."
                        .to_owned(),
                );
            }
            objects.push(Rectangle { top: 0, left: 0, bottom: height, right: width });
        }
        let dtype = image_size.dtype();
        let crop = self.sample(height, width, &objects, least);
        context.set_output(0, integers(dtype, [crop.top, crop.left, 0]));
        context.set_output(1, integers(dtype, [crop.bottom - crop.top, crop.right - crop.left, -1]));
        let part = |place: i32, whole: i32| place as f32 / whole as f32;
        let corners =
            [part(crop.top, height), part(crop.left, width), part(crop.bottom, height), part(crop.right, width)];
        context.set_output(2, Tensor::from_slice(&[1, 1, 4], &corners)?);
        Ok(())
    }
}

fn integers(dtype: DType, values: [i32; 3]) -> Tensor {
    match dtype {
        DType::UInt8 => Tensor::vector(&values.map(|value| value as u8)),
        DType::Int8 => Tensor::vector(&values.map(|value| value as i8)),
        DType::Int16 => Tensor::vector(&values.map(|value| value as i16)),
        DType::Int64 => Tensor::vector(&values.map(i64::from)),
        _ => Tensor::vector(&values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    #[test]
    fn boxes_are_drawn() {
        let image = Tensor::from_slice(&[1, 3, 3, 1], &[0f32; 9]).unwrap();
        let boxes = Tensor::from_slice(&[1, 1, 4], &[0f32, 0.0, 1.0, 1.0]).unwrap();
        let drawn = run_op("DrawBoundingBoxes", attrs![], &[image, boxes]).unwrap();
        assert_eq!(drawn[0].as_slice::<f32>().unwrap(), [1., 1., 1., 1., 0., 1., 1., 1., 1.]);
    }

    #[test]
    fn samples_cover_the_object() {
        let size = Tensor::vector(&[40, 30, 3]);
        let boxes = Tensor::from_slice(&[1, 1, 4], &[0.2f32, 0.2, 0.6, 0.7]).unwrap();
        for seed in 1..20i64 {
            let inputs = [size.clone(), boxes.clone(), Tensor::scalar(0.5f32)];
            let outputs = run_op("SampleDistortedBoundingBoxV2", attrs![("seed", seed)], &inputs).unwrap();
            let &[top, left, zero] = outputs[0].as_slice::<i32>().unwrap() else { panic!() };
            let &[height, width, all] = outputs[1].as_slice::<i32>().unwrap() else { panic!() };
            assert_eq!((zero, all), (0, -1));
            let crop = Rectangle { top, left, bottom: top + height, right: left + width };
            assert!(crop.covers_one(&[Rectangle { top: 8, left: 6, bottom: 24, right: 21 }], 0.5));
            assert!(crop.bottom <= 40 && crop.right <= 30);
        }
    }

    #[test]
    fn shapes() {
        check_shape("SampleDistortedBoundingBox", attrs![], "[3];[1,?,4]", "[3];[3];[1,1,4]");
        check_shape("DrawBoundingBoxes", attrs![], "[2,?,4,3];[2,?,4]", "[2,?,4,3]");
    }
}
