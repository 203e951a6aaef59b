//! CombinedNonMaxSuppression: the best of overlapping boxes, for each class and for all images of a batch.

use super::suppression::Suppression;
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
};
use tensor::{PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "CombinedNonMaxSuppression",
        inputs: &[
            "boxes: float",
            "scores: float",
            "max_output_size_per_class: int32",
            "max_total_size: int32",
            "iou_threshold: float",
            "score_threshold: float",
        ],
        outputs: &["nmsed_boxes: float", "nmsed_scores: float", "nmsed_classes: float", "valid_detections: int32"],
        attrs: &["pad_per_class: bool = false", "clip_boxes: bool = true"],
        flags: OpFlags::NONE,
    },
    shape: combined_shape,
    gradient: Gradient::NotDifferentiable,
    kernels: &[KernelDef::any(Combined::create)],
}];

fn combined_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (boxes, scores) = (c.with_rank(0, 4)?, c.with_rank(1, 3)?);
    for scalar in 2..6 {
        c.with_rank(scalar, 0)?;
    }
    boxes.slice(0, 2).merge(&scores.slice(0, 2))?;
    boxes.slice(3, 4).merge(&PartialShape::from_dims(&[4]))?;
    if let (Some(of_boxes), Some(classes)) = (boxes.dim(2), scores.dim(2))
        && of_boxes != 1
        && of_boxes != classes
    {
        return Err(Status::invalid_argument(
            "third dimension of boxes must be either 1 or equal to the third dimension of scores",
        ));
    }
    let constant = |input| c.constant(input).map(|value| value.to_index()).transpose();
    let (per_class, total) = (constant(2)?, constant(3)?);
    if total.is_some_and(|total| total <= 0) {
        return Err(Status::invalid_argument("max_total_size should be > 0 "));
    }
    if per_class.is_some_and(|most| most <= 0) {
        return Err(Status::invalid_argument("max_output_size_per_class should be > 0 "));
    }
    let length = match (c.attrs.bool("pad_per_class")?, total) {
        (false, total) => total,
        (true, Some(total)) => {
            per_class.zip(scores.dim(2)).map(|(most, classes)| total.min(most.saturating_mul(classes)))
        }
        (true, None) => None,
    };
    let batch = boxes.dim(0);
    c.set_output(0, PartialShape::new(&[batch, length, Some(4)]));
    c.set_output(1, PartialShape::new(&[batch, length]));
    c.set_output(2, PartialShape::new(&[batch, length]));
    c.set_output(3, PartialShape::new(&[batch]));
    Ok(())
}

struct Combined {
    pad_per_class: bool,
    clip_boxes: bool,
}

/// A selected box of a class.
struct Detection {
    corners: [f32; 4],
    score: f32,
    class: usize,
}

/// The inputs, checked.
struct Inputs<'a> {
    boxes: &'a [[f32; 4]],
    scores: &'a [f32],
    /// Images, boxes of each, positions of each box, and classes.
    sizes: [usize; 4],
    per_class: usize,
    total: usize,
    iou_threshold: f32,
    score_threshold: f32,
}

impl<'a> Inputs<'a> {
    fn of(context: &'a OpContext<'_>) -> Result<Inputs<'a>> {
        let names = ["max_size_per_class", "max_total_size", "iou_threshold", "score_threshold"];
        let (boxes, scores) = (context.input(0)?, context.input(1)?);
        let first = |tensor: &Tensor| tensor.dims().first().copied();
        if first(boxes) != first(scores) {
            return Err(Status::invalid_argument("boxes and scores must have same batch size"));
        }
        for (index, name) in (2..).zip(names) {
            let input = context.input(index)?;
            if !input.shape().is_scalar() {
                return Err(Status::invalid_argument(format!("{name} must be 0-D, got shape {}", input.shape())));
            }
        }
        let per_class = context.input(2)?.to_scalar::<i32>()?;
        if per_class <= 0 {
            return Err(Status::invalid_argument("max_size_per_class must be positive"));
        }
        let total = context.input(3)?.to_scalar::<i32>()?;
        if total <= 0 {
            return Err(Status::invalid_argument("max_total_size must be > 0"));
        }
        let iou_threshold = context.input(4)?.to_scalar::<f32>()?;
        if !(0.0..=1.0).contains(&iou_threshold) {
            return Err(Status::invalid_argument("iou_threshold must be in [0, 1]"));
        }
        let score_threshold = context.input(5)?.to_scalar::<f32>()?;
        let &[images, count, positions, coordinates] = boxes.dims() else {
            return Err(Status::invalid_argument(format!("boxes must be 4-D{}", boxes.shape())));
        };
        let &[_, score_count, classes] = scores.dims() else {
            return Err(Status::invalid_argument(format!("scores must be 3-D{}", scores.shape())));
        };
        if positions != 1 && positions != classes {
            return Err(Status::invalid_argument("third dimension of boxes must be either 1 or num classes"));
        }
        if coordinates != 4 {
            return Err(Status::invalid_argument("boxes must have 4 columns"));
        }
        if score_count != count {
            return Err(Status::invalid_argument("scores has incompatible shape"));
        }
        Ok(Inputs {
            boxes: boxes.as_slice::<f32>()?.as_chunks::<4>().0,
            scores: scores.as_slice::<f32>()?,
            sizes: [images, count, positions, classes].map(|size| size as usize),
            per_class: per_class as usize,
            total: total as usize,
            iou_threshold,
            score_threshold,
        })
    }

    /// Returns the selected boxes of an image, best first.
    fn detections(&self, context: &OpContext<'_>, image: usize) -> Result<Vec<Detection>> {
        let [_, count, positions, classes] = self.sizes;
        let mut found = Vec::new();
        for class in 0..classes {
            if let Some(status) = context.step().cancellation.status() {
                return Err(status);
            }
            let position = if positions == 1 { 0 } else { class };
            let boxes: Vec<[f32; 4]> =
                (0..count).map(|index| self.boxes[(image * count + index) * positions + position]).collect();
            let scores: Vec<f32> =
                (0..count).map(|index| self.scores[(image * count + index) * classes + class]).collect();
            let suppression = Suppression::default();
            let overlap = |one: usize, other: usize| suppression.overlap(&boxes, one, other);
            let (chosen, _) =
                suppression.select(&scores, self.per_class, self.iou_threshold, self.score_threshold, 0.0, &overlap);
            found.extend(chosen.into_iter().map(|index| {
                let index = index as usize;
                Detection { corners: boxes[index], score: scores[index], class }
            }));
        }
        found.sort_by(|one, other| other.score.total_cmp(&one.score));
        Ok(found)
    }
}

impl Combined {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        BoxedKernel::new(Combined {
            pad_per_class: attrs.bool("pad_per_class")?,
            clip_boxes: attrs.bool("clip_boxes")?,
        })
    }
}

impl Kernel for Combined {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let inputs = Inputs::of(context)?;
        let [images, _, _, classes] = inputs.sizes;
        let length = match self.pad_per_class {
            true => inputs.total.min(inputs.per_class.saturating_mul(classes)),
            false => inputs.total,
        };
        let shape = Shape::new(&[images as i64, length as i64])?;
        // Refused here if there isn't enough memory.
        let mut boxes = Tensor::new(tensor::DType::Float, Shape::new(&[images as i64, length as i64, 4])?)?;
        let mut scores = Tensor::new(tensor::DType::Float, shape.clone())?;
        let mut found_classes = Tensor::new(tensor::DType::Float, shape)?;
        let mut counts = Vec::with_capacity(images);
        for image in 0..images {
            let mut detections = inputs.detections(context, image)?;
            detections.truncate(length);
            counts.push(detections.len() as i32);
            for (place, detection) in (image * length..).zip(detections) {
                let corners = match self.clip_boxes {
                    true => detection.corners.map(|corner| corner.clamp(0.0, 1.0)),
                    false => detection.corners,
                };
                boxes.make_mut::<f32>()?[place * 4..][..4].copy_from_slice(&corners);
                scores.make_mut::<f32>()?[place] = detection.score;
                found_classes.make_mut::<f32>()?[place] = detection.class as f32;
            }
        }
        context.set_output(0, boxes);
        context.set_output(1, scores);
        context.set_output(2, found_classes);
        context.set_output(3, Tensor::vector(&counts));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::{Code, Tensor};

    fn inputs(per_class: i32, total: i32) -> Vec<Tensor> {
        let boxes = [0f32, 0., 1., 1., 0., 0.1, 1., 1.1, 0., 10., 1., 11.];
        vec![
            Tensor::from_slice(&[1, 3, 1, 4], &boxes).unwrap(),
            Tensor::from_slice(&[1, 3, 2], &[0.9f32, 0.1, 0.8, 0.7, 0.3, 0.95]).unwrap(),
            Tensor::scalar(per_class),
            Tensor::scalar(total),
            Tensor::scalar(0.5f32),
            Tensor::scalar(0.2f32),
        ]
    }

    #[test]
    fn the_best_of_all_classes_come_first() {
        let found = run_op("CombinedNonMaxSuppression", attrs![("clip_boxes", false)], &inputs(2, 5)).unwrap();
        assert_eq!(found[1].to_vec::<f32>().unwrap(), [0.95, 0.9, 0.7, 0.3, 0.0]);
        assert_eq!(found[2].to_vec::<f32>().unwrap(), [1.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(found[3].to_vec::<i32>().unwrap(), [4]);
        assert_eq!(found[0].to_vec::<f32>().unwrap()[..4], [0.0, 10.0, 1.0, 11.0]);
        let found = run_op("CombinedNonMaxSuppression", attrs![("pad_per_class", true)], &inputs(1, 5)).unwrap();
        assert_eq!(found[0].dims(), [1, 2, 4]);
        assert_eq!(found[0].to_vec::<f32>().unwrap()[..4], [0.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn mistakes_and_shapes() {
        let code = |inputs: &[Tensor]| run_op("CombinedNonMaxSuppression", attrs![], inputs).unwrap_err().code();
        for (place, wrong) in [(2, Tensor::scalar(0i32)), (3, Tensor::scalar(-1i32)), (4, Tensor::scalar(1.5f32))] {
            let mut inputs = inputs(1, 1);
            inputs[place] = wrong;
            assert_eq!(code(&inputs), Code::InvalidArgument);
        }
        let given = "[2,6,1,4];[2,6,5];[];[];[];[]";
        check_shape("CombinedNonMaxSuppression", attrs![], given, "[2,?,4];[2,?];[2,?];[2]");
    }
}
