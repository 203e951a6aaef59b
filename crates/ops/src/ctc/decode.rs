//! Label sequences from the outputs of a network: CTCGreedyDecoder, CTCBeamSearchDecoder.

use graph::{Output, ShapeContext};
use kernel::{BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels};
use numeric::float::WideFloat;
use numeric::{ctc, parallel};
use std::marker::PhantomData;
use tensor::{Element, PartialShape, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "CTCGreedyDecoder",
            inputs: &["inputs: T", "sequence_length: int32"],
            outputs: &["decoded_indices: int64", "decoded_values: int64", "decoded_shape: int64", "log_probability: T"],
            attrs: &["merge_repeated: bool = false", "blank_index: int = -1", "T: {float, double} = DT_FLOAT"],
            flags: OpFlags::NONE,
        },
        shape: greedy_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("T": [f32, f64] => Greedy),
    },
    Op {
        def: OpDef {
            name: "CTCBeamSearchDecoder",
            inputs: &["inputs: T", "sequence_length: int32"],
            outputs: &[
                "decoded_indices: top_paths * int64",
                "decoded_values: top_paths * int64",
                "decoded_shape: top_paths * int64",
                "log_probability: T",
            ],
            attrs: &[
                "beam_width: int >= 1",
                "top_paths: int >= 1",
                "merge_repeated: bool = true",
                "T: {float, double} = DT_FLOAT",
            ],
            flags: OpFlags::NONE,
        },
        shape: beam_search_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: kernels!("T": [f32, f64] => BeamSearch),
    },
];

/// Returns the most likely class of each step, without blanks and repeats: indices, values and shape of a sparse matrix, and the
/// negative sum of the logits.
#[track_caller]
pub fn ctc_greedy_decoder(logits: &Output, sequence_length: &Output, merge_repeated: bool) -> Vec<Output> {
    let op = logits.graph().op("CTCGreedyDecoder").input(logits).input(sequence_length);
    op.attr("merge_repeated", merge_repeated).outputs()
}

fn greedy_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    decoded_shape(c, 1)
}

fn beam_search_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let paths = c.num_outputs().saturating_sub(1) / 3;
    decoded_shape(c, paths)
}

fn decoded_shape(c: &mut ShapeContext<'_>, paths: usize) -> Result<()> {
    let batch = c.with_rank(0, 3)?.slice(1, 2).merge(&c.with_rank(1, 1)?)?;
    for path in 0..paths {
        c.set_output(path, PartialShape::new(&[None, Some(2)]));
        c.set_output(paths + path, PartialShape::new(&[None]));
        c.set_output(2 * paths + path, PartialShape::new(&[Some(2)]));
    }
    c.set_output(3 * paths, PartialShape::new(&[batch.dim(0), Some(paths as i64)]));
    Ok(())
}

/// The inputs of both decoders, checked.
struct Batch<'a, T> {
    logits: &'a [T],
    size: usize,
    classes: usize,
    lengths: Vec<usize>,
}

impl<'a, T: Element> Batch<'a, T> {
    fn from_inputs(context: &'a OpContext<'_>) -> Result<Batch<'a, T>> {
        let (inputs, lengths) = (context.input(0)?, context.input(1)?);
        let shape = inputs.shape();
        if shape.rank() != 3 {
            return Err(Status::invalid_argument("inputs is not a 3-Tensor"));
        }
        if shape.num_elements() == 0 {
            return Err(Status::invalid_argument("inputs must not be empty"));
        }
        if !lengths.shape().is_vector() {
            return Err(Status::invalid_argument("sequence_length is not a vector"));
        }
        let (times, size, classes) = (shape.size(0), shape.size(1), shape.size(2));
        let lengths = lengths.as_slice::<i32>()?;
        if lengths.len() != size {
            return Err(Status::failed_precondition(format!(
                "len(sequence_length) != batch_size.  len(sequence_length):  {} batch_size: {size}",
                lengths.len()
            )));
        }
        // A negative length counts as zero, as in TensorFlow.
        let lengths: Vec<usize> = lengths.iter().map(|&length| usize::try_from(length).unwrap_or(0)).collect();
        if let Some(index) = lengths.iter().position(|&length| length > times) {
            return Err(Status::failed_precondition(format!("sequence_length({index}) <= {times}")));
        }
        Ok(Batch { logits: inputs.as_slice()?, size, classes, lengths })
    }

    /// Returns the logits of the steps of one sequence.
    fn rows(&self, sequence: usize) -> impl Iterator<Item = &'a [T]> + '_ {
        (0..self.lengths[sequence])
            .map(move |time| &self.logits[(time * self.size + sequence) * self.classes..][..self.classes])
    }
}

/// Returns the sparse matrix of one labelling for each sequence: indices, values and shape.
fn sparse_matrix(sequences: &[&[usize]]) -> Result<[Tensor; 3]> {
    let values: Vec<i64> = sequences.iter().flat_map(|labels| labels.iter()).map(|&label| label as i64).collect();
    let mut indices = Vec::with_capacity(2 * values.len());
    for (sequence, labels) in sequences.iter().enumerate() {
        indices.extend((0..labels.len()).flat_map(|position| [sequence as i64, position as i64]));
    }
    let longest = sequences.iter().map(|labels| labels.len()).max().unwrap_or(0);
    Ok([
        Tensor::from_slice(&[values.len() as i64, 2], &indices)?,
        Tensor::vector(&values),
        Tensor::vector(&[sequences.len() as i64, longest as i64]),
    ])
}

struct Greedy<T> {
    merges: bool,
    blank: i64,
    element: PhantomData<fn(T)>,
}

impl<T: Element + WideFloat> Greedy<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        BoxedKernel::new(Greedy::<T> {
            merges: attrs.bool("merge_repeated")?,
            blank: attrs.int("blank_index")?,
            element: PhantomData,
        })
    }
}

impl<T: Element + WideFloat> Kernel for Greedy<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let batch = Batch::<T>::from_inputs(context)?;
        let classes = batch.classes as i64;
        let blank = if self.blank < 0 { self.blank.saturating_add(classes) } else { self.blank };
        if !(0..classes).contains(&blank) {
            return Err(Status::invalid_argument(format!(
                "blank_index expected to be between {} and {} but was {}",
                -classes,
                classes - 1,
                self.blank
            )));
        }
        let mut decoded = Vec::with_capacity(batch.size);
        let mut scores = Vec::with_capacity(batch.size);
        for sequence in 0..batch.size {
            let mut labels = Vec::new();
            let mut score = T::zero();
            let mut last = None;
            for row in batch.rows(sequence) {
                let (mut class, mut most) = (0, row[0]);
                for (index, &logit) in row.iter().enumerate() {
                    if logit > most {
                        (class, most) = (index, logit);
                    }
                }
                score = score - most;
                if class as i64 != blank && !(self.merges && last == Some(class)) {
                    labels.push(class);
                }
                last = Some(class);
            }
            decoded.push(labels);
            scores.push(score);
        }
        let sequences: Vec<&[usize]> = decoded.iter().map(Vec::as_slice).collect();
        let scores = Tensor::from_slice(&[batch.size as i64, 1], &scores)?;
        for (index, tensor) in sparse_matrix(&sequences)?.into_iter().chain([scores]).enumerate() {
            context.set_output(index, tensor);
        }
        Ok(())
    }
}

struct BeamSearch<T> {
    width: usize,
    paths: usize,
    merges: bool,
    element: PhantomData<fn(T)>,
}

impl<T: Element + WideFloat> BeamSearch<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let positive = |name: &str| -> Result<usize> {
            let value = attrs.int(name)?;
            usize::try_from(value)
                .ok()
                .filter(|&value| value > 0)
                .ok_or_else(|| Status::invalid_argument(format!("{name} must be positive, got {value}")))
        };
        BoxedKernel::new(BeamSearch::<T> {
            width: positive("beam_width")?,
            paths: positive("top_paths")?,
            merges: attrs.bool("merge_repeated")?,
            element: PhantomData,
        })
    }
}

impl<T: Element + WideFloat> Kernel for BeamSearch<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let batch = Batch::<T>::from_inputs(context)?;
        if self.paths > self.width {
            return Err(Status::invalid_argument("requested more paths than the beam width."));
        }
        let mut found: Vec<Vec<ctc::Path<T>>> = (0..batch.size).map(|_| Vec::new()).collect();
        let longest = batch.lengths.iter().max().copied().unwrap_or(0);
        let cost_ns = 50.0 * longest as f64 * batch.classes as f64 * self.width as f64;
        parallel::for_each_chunk_mut(&mut found, 1, cost_ns, |first, found| {
            for (offset, paths) in found.iter_mut().enumerate() {
                let logits: Vec<T> = batch.rows(first + offset).flatten().copied().collect();
                *paths = ctc::beam_search(&logits, batch.classes, self.width);
                paths.truncate(self.paths);
                if self.merges {
                    paths.iter_mut().for_each(|path| path.labels.dedup());
                }
            }
        });
        if found.iter().any(|paths| paths.len() < self.paths) {
            return Err(Status::invalid_argument("Less leaves in the beam search than requested."));
        }
        let scores: Vec<T> = found.iter().flatten().map(|path| path.log_probability).collect();
        let scores = Tensor::from_slice(&[batch.size as i64, self.paths as i64], &scores)?;
        for path in 0..self.paths {
            let sequences: Vec<&[usize]> = found.iter().map(|paths| &paths[path].labels[..]).collect();
            for (part, tensor) in sparse_matrix(&sequences)?.into_iter().enumerate() {
                context.set_output(part * self.paths + path, tensor);
            }
        }
        context.set_output(3 * self.paths, scores);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, infer, run_op};
    use tensor::Code;

    #[rustfmt::skip]
    const LOGITS: [f32; 24] = [
        0.09762701, 0.43037874, 0.20552675, 0.08976637, -0.1526904, 0.29178822,
        -0.12482557, 0.78354603, 0.92732555, -0.23311697, 0.5834501, 0.05778984,
        0.13608912, 0.85119325, -0.85792786, -0.8257414, -0.9595632, 0.6652397,
        0.5563135, 0.74002427, 0.9572367, 0.59831715, -0.07704128, 0.56105834,
    ];

    fn inputs(lengths: [i32; 2]) -> [Tensor; 2] {
        [Tensor::from_slice(&[4, 2, 3], &LOGITS).unwrap(), Tensor::vector(&lengths)]
    }

    fn longs(tensor: &Tensor) -> Vec<i64> {
        tensor.as_slice().unwrap().to_vec()
    }

    fn check_close(tensor: &Tensor, expected: &[f32]) {
        let got = tensor.as_slice::<f32>().unwrap();
        assert!(got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-5), "{got:?}");
        assert_eq!(got.len(), expected.len());
    }

    /// The numbers come from TensorFlow.
    #[test]
    fn the_likeliest_class_of_each_step() {
        let y = run_op("CTCGreedyDecoder", attrs![("blank_index", 0i64)], &inputs([4, 3])).unwrap();
        assert_eq!(longs(&y[0]), [0, 0, 0, 1, 0, 2, 0, 3, 1, 0, 1, 1, 1, 2]);
        assert_eq!(longs(&y[1]), [1, 2, 1, 2, 2, 1, 2]);
        assert_eq!(longs(&y[2]), [2, 4]);
        check_close(&y[3], &[-3.1661344, -1.540478]);
        let y = run_op("CTCGreedyDecoder", attrs![], &inputs([-1, 2])).unwrap();
        assert_eq!((longs(&y[0]), longs(&y[1])), (vec![1, 0], vec![1]));
    }

    /// The numbers come from TensorFlow.
    #[test]
    fn the_likeliest_labellings() {
        let attributes = attrs![("beam_width", 10i64), ("top_paths", 4i64)];
        let y = run_op("CTCBeamSearchDecoder", attributes, &inputs([4, 3])).unwrap();
        assert_eq!(longs(&y[4]), [1, 1]);
        assert_eq!(longs(&y[5]), [1, 0, 0]);
        assert_eq!(longs(&y[6]), [0, 1, 0, 1]);
        assert_eq!(longs(&y[3]), [0, 0, 1, 0, 1, 1]);
        assert_eq!(longs(&y[9]), [2, 2]);
        let scores = [-1.5615432, -1.6722858, -1.7050009, -2.3587008, -1.0610485, -1.4911513, -1.7530811, -2.1817877];
        check_close(&y[12], &scores);
        let attributes = attrs![("beam_width", 3i64), ("top_paths", 2i64), ("merge_repeated", false)];
        let y = run_op("CTCBeamSearchDecoder", attributes, &inputs([4, 3])).unwrap();
        check_close(&y[6], &[-1.5859156, -1.7562594, -1.1095376, -1.5780056]);
    }

    #[test]
    fn bad_inputs_are_errors() {
        let status = run_op("CTCGreedyDecoder", attrs![("blank_index", -4i64)], &inputs([4, 3])).unwrap_err();
        assert!(status.message().starts_with("blank_index expected to be between -3 and 2 but was -4"), "{status}");
        let beam = |width: i64, paths: i64, lengths| {
            let attributes = attrs![("beam_width", width), ("top_paths", paths)];
            run_op("CTCBeamSearchDecoder", attributes, &inputs(lengths)).unwrap_err()
        };
        assert!(beam(1, 2, [4, 3]).message().starts_with("requested more paths than the beam width."));
        assert!(beam(9, 4, [0, 1]).message().starts_with("Less leaves in the beam search than requested."));
        assert_eq!(beam(9, 1, [9, 1]).code(), Code::FailedPrecondition);
    }

    #[test]
    fn shapes() {
        let attributes = attrs![("beam_width", 10i64), ("top_paths", 2i64)];
        let shapes = infer("CTCBeamSearchDecoder", attributes, "[?,?,7];[5]", &[]).unwrap();
        let shapes: Vec<String> = shapes.iter().map(ToString::to_string).collect();
        assert_eq!(shapes, ["[?,2]", "[?,2]", "[?]", "[?]", "[2]", "[2]", "[5,2]"]);
    }
}
