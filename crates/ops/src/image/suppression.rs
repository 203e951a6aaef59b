//! NonMaxSuppression in its versions, and NonMaxSuppressionWithOverlaps: the best of overlapping boxes.

use super::pixels::{load, store};
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor, f16};

const TYPES: &str = "T: {half, float} = DT_FLOAT";
const THRESHOLD_TYPES: &str = "T_threshold: {half, float} = DT_FLOAT";
const PAD: &str = "pad_to_max_output_size: bool = false";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "NonMaxSuppression",
            inputs: &["boxes: float", "scores: float", "max_output_size: int32"],
            outputs: &["selected_indices: int32"],
            attrs: &["iou_threshold: float = 0.5"],
            flags: OpFlags::NONE,
        },
        shape: suppression_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Suppression::create)],
    },
    Op {
        def: OpDef {
            name: "NonMaxSuppressionV2",
            inputs: &["boxes: T", "scores: T", "max_output_size: int32", "iou_threshold: T_threshold"],
            outputs: &["selected_indices: int32"],
            attrs: &[TYPES, THRESHOLD_TYPES],
            flags: OpFlags::NONE,
        },
        shape: suppression_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(Suppression::create)],
    },
    Op {
        def: OpDef {
            name: "NonMaxSuppressionV3",
            inputs: &[
                "boxes: T",
                "scores: T",
                "max_output_size: int32",
                "iou_threshold: T_threshold",
                "score_threshold: T_threshold",
            ],
            outputs: &["selected_indices: int32"],
            attrs: &[TYPES, THRESHOLD_TYPES],
            flags: OpFlags::NONE,
        },
        shape: suppression_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Suppression::create)],
    },
    Op {
        def: OpDef {
            name: "NonMaxSuppressionV4",
            inputs: &[
                "boxes: T",
                "scores: T",
                "max_output_size: int32",
                "iou_threshold: T_threshold",
                "score_threshold: T_threshold",
            ],
            outputs: &["selected_indices: int32", "valid_outputs: int32"],
            attrs: &[TYPES, THRESHOLD_TYPES, PAD],
            flags: OpFlags::NONE,
        },
        shape: suppression_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Suppression::create)],
    },
    Op {
        def: OpDef {
            name: "NonMaxSuppressionV5",
            inputs: &[
                "boxes: T",
                "scores: T",
                "max_output_size: int32",
                "iou_threshold: T",
                "score_threshold: T",
                "soft_nms_sigma: T",
            ],
            outputs: &["selected_indices: int32", "selected_scores: T", "valid_outputs: int32"],
            attrs: &[TYPES, PAD],
            flags: OpFlags::NONE,
        },
        shape: suppression_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(Suppression::create)],
    },
    Op {
        def: OpDef {
            name: "NonMaxSuppressionWithOverlaps",
            inputs: &[
                "overlaps: float",
                "scores: float",
                "max_output_size: int32",
                "overlap_threshold: float",
                "score_threshold: float",
            ],
            outputs: &["selected_indices: int32"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: overlaps_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Suppression { overlaps: true, ..Suppression::default() }))],
    },
];

fn suppression_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let boxes = c.with_rank(0, 2)?;
    let scores = c.with_rank(1, 1)?;
    for scalar in 2..c.num_inputs() {
        c.with_rank(scalar, 0)?;
    }
    boxes.slice(0, 1).merge(&scores)?;
    boxes.slice(1, 2).merge(&PartialShape::from_dims(&[4]))?;
    let mut length = None;
    if c.attrs.bool("pad_to_max_output_size").unwrap_or(false)
        && let Some(most) = c.constant(2)
    {
        length = Some(most.to_index()?);
    }
    c.set_output(0, PartialShape::new(&[length]));
    let last = c.num_outputs() - 1;
    if last == 2 {
        c.set_output(1, PartialShape::new(&[length]));
    }
    if last > 0 {
        c.set_output(last, PartialShape::scalar());
    }
    Ok(())
}

fn overlaps_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let overlaps = c.with_rank(0, 2)?;
    let scores = c.with_rank(1, 1)?;
    for scalar in 2..5 {
        c.with_rank(scalar, 0)?;
    }
    overlaps.slice(0, 1).merge(&scores)?;
    overlaps.slice(1, 2).merge(&overlaps.slice(0, 1))?;
    c.set_output(0, PartialShape::unknown_of_rank(1));
    Ok(())
}

/// A candidate box.
struct Candidate {
    score: f32,
    index: usize,
    /// The number of selected boxes that it has been compared with.
    compared: usize,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        // Among equal scores the earlier box wins.
        let scores = self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal);
        scores.then(other.index.cmp(&self.index))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

#[derive(Default)]
pub(super) struct Suppression {
    /// Whether the first input has the overlaps of boxes rather than their positions.
    overlaps: bool,
    /// If it is an attribute.
    iou_threshold: Option<f32>,
    pad: bool,
    is_half: bool,
}

impl Suppression {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        BoxedKernel::new(Suppression {
            overlaps: false,
            iou_threshold: attrs.float("iou_threshold").ok(),
            pad: attrs.bool("pad_to_max_output_size").unwrap_or(false),
            is_half: builder.input_dtype(0) == DType::Half,
        })
    }

    /// Rounds a number to the type's precision.
    fn round(&self, value: f32) -> f32 {
        if self.is_half { f16::from_f32(value).to_f32() } else { value }
    }

    /// Returns the intersection of two boxes over their union.
    pub(super) fn overlap(&self, boxes: &[[f32; 4]], i: usize, j: usize) -> f32 {
        let round = |value| self.round(value);
        let corners = |[a, b, c, d]: [f32; 4]| [a.min(c), b.min(d), a.max(c), b.max(d)];
        let area = |[top, left, bottom, right]: [f32; 4]| round(round(bottom - top) * round(right - left));
        let (one, other) = (corners(boxes[i]), corners(boxes[j]));
        let (one_area, other_area) = (area(one), area(other));
        if one_area <= 0.0 || other_area <= 0.0 {
            return 0.0;
        }
        let height = round(one[2].min(other[2]) - one[0].max(other[0])).max(0.0);
        let width = round(one[3].min(other[3]) - one[1].max(other[1])).max(0.0);
        let both = round(height * width);
        round(both / round(round(one_area + other_area) - both))
    }

    /// Returns the selected boxes, with their scores.
    pub(super) fn select(
        &self,
        scores: &[f32],
        most: usize,
        threshold: f32,
        least_score: f32,
        sigma: f32,
        similarity: &dyn Fn(usize, usize) -> f32,
    ) -> (Vec<i32>, Vec<f64>) {
        let soft = sigma > 0.0;
        let scale = if soft { self.round(-0.5 / sigma) } else { 0.0 };
        let candidates = scores.iter().enumerate().filter(|&(_, &score)| score > least_score);
        let mut queue: BinaryHeap<Candidate> =
            candidates.map(|(index, &score)| Candidate { score, index, compared: 0 }).collect();
        let (mut chosen, mut chosen_scores): (Vec<usize>, Vec<f64>) = Default::default();
        while chosen.len() < most
            && let Some(mut next) = queue.pop()
        {
            let before = next.score;
            let mut suppressed = false;
            for &other in chosen[next.compared..].iter().rev() {
                let similar = similarity(next.index, other);
                if !soft && similar > threshold {
                    suppressed = true;
                    break;
                }
                if soft {
                    let weight = self.round(self.round(self.round(scale * similar) * similar).exp());
                    next.score = self.round(next.score * weight);
                }
                if next.score <= least_score {
                    break;
                }
            }
            next.compared = chosen.len();
            if suppressed {
                continue;
            }
            if next.score == before {
                chosen.push(next.index);
                chosen_scores.push(f64::from(next.score));
            } else if next.score > least_score {
                queue.push(next);
            }
        }
        (chosen.into_iter().map(|index| index as i32).collect(), chosen_scores)
    }
}

impl Kernel for Suppression {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let scalar = |index: usize, name: &str| -> Result<f32> {
            let input = context.input(index)?;
            match (input.shape().is_scalar(), load(input)?.first()) {
                (true, Some(&value)) => Ok(value),
                _ => Err(Status::invalid_argument(format!("{name} must be 0-D, got shape {}", input.shape()))),
            }
        };
        let (boxes, scores) = (context.input(0)?, context.input(1)?);
        let size = context.input(2)?;
        if !size.shape().is_scalar() {
            return Err(Status::invalid_argument(format!("max_output_size must be 0-D, got shape {}", size.shape())));
        }
        let threshold = match self.iou_threshold {
            Some(threshold) => threshold,
            None => scalar(3, "iou_threshold")?,
        };
        if !self.overlaps && !(0.0..=1.0).contains(&threshold) {
            return Err(Status::invalid_argument("iou_threshold must be in [0, 1]"));
        }
        let least_score = if context.num_inputs() > 4 { scalar(4, "score_threshold")? } else { f32::MIN };
        let sigma = if context.num_inputs() > 5 { scalar(5, "soft_nms_sigma")? } else { 0.0 };
        if sigma < 0.0 {
            return Err(Status::invalid_argument("soft_nms_sigma_val must be >= 0"));
        }
        if !boxes.shape().is_matrix() {
            return Err(Status::invalid_argument(format!(
                "boxes must be 2-D{} (Shape must be rank 2 but is rank {})",
                boxes.shape(),
                boxes.shape().rank()
            )));
        }
        let count = boxes.shape().size(0);
        match (self.overlaps, boxes.shape().size(1)) {
            (false, 4) => {}
            (true, width) if width == count => {}
            (true, _) => return Err(Status::invalid_argument(format!("overlaps must be square{}", boxes.shape()))),
            _ => {
                return Err(Status::invalid_argument(format!(
                    "boxes must have 4 columns (Dimension must be 4 but is {})",
                    boxes.shape().size(1)
                )));
            }
        }
        if !scores.shape().is_vector() || scores.num_elements() != count {
            return Err(Status::invalid_argument(format!(
                "scores has incompatible shape (Dimensions must be equal, but are {count} and {}): {}",
                scores.shape().dims().first().copied().unwrap_or(0),
                scores.shape()
            )));
        }
        let Ok(most) = usize::try_from(size.to_scalar::<i32>()?) else {
            return Err(Status::invalid_argument("output size must be non-negative"));
        };
        let (numbers, score_values) = (load(boxes)?, load(scores)?);
        let corners = numbers.as_chunks::<4>().0;
        let by_table = |i: usize, j: usize| numbers[i * count + j];
        let by_corners = |i: usize, j: usize| self.overlap(corners, i, j);
        let similarity: &dyn Fn(usize, usize) -> f32 = if self.overlaps { &by_table } else { &by_corners };
        let (mut chosen, mut chosen_scores) =
            self.select(&score_values, most, threshold, least_score, sigma, similarity);
        let valid = chosen.len() as i32;
        let dtype = scores.dtype();
        let length = if self.pad { most } else { chosen.len() };
        let shape = Shape::vector(length);
        // Refused here if there isn't enough memory.
        let indices = Tensor::build::<i32>(shape.clone(), |to| {
            let padding = to.len() - chosen.len();
            chosen.extend(std::iter::repeat_n(0, padding));
            to.copy_from_slice(&chosen);
        })?;
        context.set_output(0, indices);
        if context.num_outputs() == 3 {
            chosen_scores.resize(length, 0.0);
            context.set_output(1, store(dtype, shape, &chosen_scores)?);
        }
        if context.num_outputs() > 1 {
            context.set_output(context.num_outputs() - 1, Tensor::scalar(valid));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_shape, run_op};

    #[test]
    fn the_best_of_each_cluster() {
        let boxes = [0f32, 0., 1., 1., 0., 0.1, 1., 1.1, 0., -0.1, 1., 0.9, 0., 10., 1., 11., 0., 10.1, 1., 11.1];
        let boxes = Tensor::from_slice(&[5, 4], &boxes).unwrap();
        let scores = Tensor::vector(&[0.9f32, 0.75, 0.6, 0.95, 0.5]);
        let chosen = |most: i32| {
            let inputs = [boxes.clone(), scores.clone(), Tensor::scalar(most)];
            run_op("NonMaxSuppression", attrs![], &inputs).unwrap()[0].as_slice::<i32>().unwrap().to_vec()
        };
        assert_eq!(chosen(3), [3, 0]);
        assert_eq!(chosen(1), [3]);
        assert!(chosen(0).is_empty());
    }

    #[test]
    fn shapes() {
        check_shape("NonMaxSuppression", attrs![], "[?,4];[5];[]", "[?]");
        let pad = attrs![("pad_to_max_output_size", true)];
        check_shape("NonMaxSuppressionV4", pad, "[?,4];[5];[];[];[]", "[?];[]");
    }
}
