//! The loss of unaligned label sequences: CTCLoss.

use crate::compose::{Gradients, binary, int_vector, reshape};
use graph::{Output, ShapeContext};
use kernel::{
    BoxedKernel, Cost, Gradient, GradientArgs, Kernel, KernelBuilder, Op, OpContext, OpDef, OpFlags, kernels,
};
use numeric::float::WideFloat;
use numeric::{ctc, parallel};
use std::marker::PhantomData;
use tensor::{Element, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "CTCLoss",
        inputs: &["inputs: T", "labels_indices: int64", "labels_values: int32", "sequence_length: int32"],
        outputs: &["loss: T", "gradient: T"],
        attrs: &[
            "preprocess_collapse_repeated: bool = false",
            "ctc_merge_repeated: bool = true",
            "ignore_longer_outputs_than_inputs: bool = false",
            "T: {float, double} = DT_FLOAT",
        ],
        flags: OpFlags::NONE,
    },
    shape: loss_shape,
    gradient: Gradient::Fn(loss_gradient),
    kernels: kernels!("T": [f32, f64] => CtcLoss),
}];

/// Returns the loss of each sequence of a batch. `logits` are (time, batch, classes), and the last class is the blank; the labels
/// are a sparse matrix (batch, position) of which `indices` and `values` are given.
#[track_caller]
pub fn ctc_loss(indices: &Output, values: &Output, logits: &Output, sequence_length: &Output) -> Output {
    logits.graph().op("CTCLoss").inputs([logits, indices, values, sequence_length]).output()
}

fn loss_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let inputs = c.with_rank(0, 3)?;
    let indices = c.with_rank(1, 2)?;
    let values = c.with_rank(2, 1)?;
    indices.slice(0, 1).merge(&values)?;
    let batch = inputs.slice(1, 2).merge(&c.with_rank(3, 1)?)?;
    c.set_output(1, inputs.with_dim(1, batch.dim(0)));
    c.set_output(0, batch);
    Ok(())
}

/// The op has computed the gradient already, for a weight of one.
fn loss_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None; 4]) };
    let message =
        "Currently there is no way to take the second derivative of ctc_loss: its gradient is computed with the loss";
    let fixed = grad.graph().op("PreventGradient").input(&args.output(1)).attr("message", message).try_build()?;
    let weight = reshape(&grad, &int_vector(grad.graph(), &[1, -1, 1])?)?;
    Ok(vec![Some(binary("Mul", &weight, &fixed.output(0))?.into()), None, None, None])
}

struct CtcLoss<T> {
    collapses: bool,
    merges: bool,
    ignores_longer: bool,
    element: PhantomData<fn(T)>,
}

impl<T: Element + WideFloat> CtcLoss<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        BoxedKernel::new(CtcLoss::<T> {
            collapses: attrs.bool("preprocess_collapse_repeated")?,
            merges: attrs.bool("ctc_merge_repeated")?,
            ignores_longer: attrs.bool("ignore_longer_outputs_than_inputs")?,
            element: PhantomData,
        })
    }

    /// Returns the labels of one sequence without trailing blanks.
    fn labels(&self, given: &[i32], classes: usize, batch: usize, steps: usize) -> Result<Vec<usize>> {
        let invalid = |message: String| Err(Status::invalid_argument(message));
        if given.is_empty() {
            return invalid(format!("Labels length is zero in batch {batch}"));
        }
        let joined = |labels: &[i32]| labels.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
        let mut labels = Vec::with_capacity(given.len());
        let mut kept = Vec::with_capacity(given.len());
        let mut is_finished = false;
        for (index, &label) in given.iter().enumerate() {
            if self.collapses && index > 0 && given[index - 1] == label {
                continue;
            }
            let class = usize::try_from(label);
            if class.is_ok_and(|class| class + 1 >= classes) {
                is_finished = true;
                continue;
            }
            if is_finished {
                return invalid(format!(
                    "Saw a non-null label (index >= num_classes - 1) following a null label, batch: {batch} \
                     num_classes: {classes} labels: {} labels seen so far: {}",
                    joined(given),
                    joined(&kept)
                ));
            }
            kept.push(label);
            labels.extend(class);
        }
        if labels.len() < kept.len() {
            return invalid(format!(
                "All labels must be nonnegative integers, batch: {batch} labels: {}",
                joined(&kept)
            ));
        }
        if !self.ignores_longer && given.len() > steps {
            return invalid(format!(
                "Not enough time for target transition sequence (required: {}, available: {steps}){batch}You can turn \
                 this error into a warning by using the flag ignore_longer_outputs_than_inputs",
                given.len()
            ));
        }
        Ok(labels)
    }
}

/// One sequence of a batch.
struct Sequence<T> {
    labels: Vec<usize>,
    steps: usize,
    loss: T,
    gradient: Vec<T>,
}

impl<T: Element + WideFloat> Kernel for CtcLoss<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let inputs = context.input(0)?;
        let shape = inputs.shape().clone();
        if shape.rank() != 3 {
            return Err(Status::invalid_argument("inputs is not a 3-Tensor"));
        }
        let (times, batch, classes) = (shape.size(0), shape.size(1), shape.size(2));
        let lengths = sequence_lengths(context.input(3)?, times, batch)?;
        let given = labels_by_sequence(context.input(1)?, context.input(2)?, batch)?;
        if times == 0 {
            return Err(Status::invalid_argument("Max time or first dimension of input cannot be 0."));
        }
        if classes == 0 {
            return Err(Status::invalid_argument("num_classes must be positive"));
        }
        let mut sequences = Vec::with_capacity(batch);
        for (index, (&steps, given)) in lengths.iter().zip(&given).enumerate() {
            let labels = self.labels(given, classes, index, steps)?;
            // If invalid sequences are to be ignored, they have no loss and no gradient.
            let steps = if given.len() > steps { 0 } else { steps };
            sequences.push(Sequence { labels, steps, loss: T::zero(), gradient: Vec::new() });
        }
        let logits = inputs.as_slice::<T>()?;
        let longest = sequences.iter().map(|sequence| sequence.labels.len()).max().unwrap_or(0);
        let cost_ns = times as f64 * (3.0 * classes as f64 + 40.0 * longest as f64);
        parallel::for_each_chunk_mut(&mut sequences, 1, cost_ns, |first, sequences| {
            for (offset, sequence) in sequences.iter_mut().enumerate() {
                let rows: Vec<T> = (0..sequence.steps)
                    .flat_map(|time| &logits[(time * batch + first + offset) * classes..][..classes])
                    .copied()
                    .collect();
                sequence.gradient = vec![T::zero(); rows.len()];
                sequence.loss = ctc::loss(&rows, classes, &sequence.labels, self.merges, &mut sequence.gradient);
            }
        });
        let losses: Vec<T> = sequences.iter().map(|sequence| sequence.loss).collect();
        let gradient = Tensor::build(shape, |out: &mut [T]| {
            out.fill(T::zero());
            for (index, sequence) in sequences.iter().enumerate() {
                for (time, row) in sequence.gradient.chunks_exact(classes).enumerate() {
                    out[(time * batch + index) * classes..][..classes].copy_from_slice(row);
                }
            }
        })?;
        context.set_output(0, Tensor::vector(&losses));
        context.set_output(1, gradient);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

fn sequence_lengths(tensor: &Tensor, times: usize, batch: usize) -> Result<Vec<usize>> {
    if !tensor.shape().is_vector() {
        return Err(Status::invalid_argument("sequence_length is not a vector"));
    }
    let lengths = tensor.as_slice::<i32>()?;
    if lengths.len() != batch {
        return Err(Status::invalid_argument(format!(
            "len(sequence_length) != batch_size.  len(sequence_length):  {} batch_size: {batch}",
            lengths.len()
        )));
    }
    if batch == 0 {
        return Err(Status::invalid_argument("batch_size must not be 0"));
    }
    let length = |(index, &length): (usize, &i32)| match usize::try_from(length) {
        Ok(length) if length <= times => Ok(length),
        Ok(_) => Err(Status::invalid_argument(format!("sequence_length({index}) <= {times}"))),
        Err(_) => Err(Status::invalid_argument(format!("seq_len({index}) < 0"))),
    };
    lengths.iter().enumerate().map(length).collect()
}

/// Returns the labels of each sequence from a sparse matrix, whose indices must be sorted.
fn labels_by_sequence(indices: &Tensor, values: &Tensor, batch: usize) -> Result<Vec<Vec<i32>>> {
    if !indices.shape().is_matrix() {
        return Err(Status::invalid_argument("labels_indices is not a matrix"));
    }
    if !values.shape().is_vector() {
        return Err(Status::invalid_argument("labels_values is not a vector"));
    }
    if indices.shape().dim(0) != values.shape().dim(0) || indices.shape().dim(1) != 2 {
        return Err(Status::invalid_argument(format!(
            "labels_indices and labels_values must contain the same number of rows, but saw shapes: {} vs. {}",
            indices.shape(),
            values.shape()
        )));
    }
    let invalid = |index: usize, pair: &[i64], what: String| {
        Status::invalid_argument(format!(
            "label SparseTensor is not valid: indices[{index}] = [{},{}] is {what}",
            pair[0], pair[1]
        ))
    };
    let pairs = indices.as_slice::<i64>()?;
    let longest = pairs.chunks_exact(2).map(|pair| pair[1].saturating_add(1)).max().unwrap_or(0);
    let mut labels = vec![Vec::new(); batch];
    let mut last: Option<&[i64]> = None;
    for (index, (pair, &value)) in pairs.chunks_exact(2).zip(values.as_slice::<i32>()?).enumerate() {
        let sequence = usize::try_from(pair[0]).ok().and_then(|sequence| labels.get_mut(sequence));
        let Some(sequence) = sequence.filter(|_| pair[1] >= 0) else {
            let what = format!("out of bounds: need 0 <= index < {}", Shape::new(&[batch as i64, longest.max(0)])?);
            return Err(invalid(index, pair, what));
        };
        match last {
            Some(last) if last == pair => return Err(invalid(index, pair, "repeated".to_owned())),
            Some(last) if last > pair => {
                let what = "out of order. Many sparse ops require sorted indices.\n    Use `tf.sparse.reorder` to create \
                            a correctly ordered copy.\n\n";
                return Err(invalid(index, pair, what.to_owned()));
            }
            _ => last = Some(pair),
        }
        sequence.push(value);
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, check_gradient, infer, run_op};
    use tensor::Code;

    #[rustfmt::skip]
    const LOGITS: [f64; 24] = [
        0.09762701, 0.43037874, 0.20552675, 0.08976637, -0.1526904, 0.29178822,
        -0.12482557, 0.78354603, 0.92732555, -0.23311697, 0.5834501, 0.05778984,
        0.13608912, 0.85119325, -0.85792786, -0.8257414, -0.9595632, 0.6652397,
        0.5563135, 0.74002427, 0.9572367, 0.59831715, -0.07704128, 0.56105834,
    ];

    fn inputs(labels: [i32; 3], lengths: [i32; 2]) -> [Tensor; 4] {
        [
            Tensor::from_slice(&[4, 2, 3], &LOGITS).unwrap(),
            Tensor::from_slice(&[3, 2], &[0i64, 0, 0, 1, 1, 0]).unwrap(),
            Tensor::vector(&labels),
            Tensor::vector(&lengths),
        ]
    }

    /// The numbers come from TensorFlow.
    #[test]
    fn losses() {
        let losses = |labels, attributes| -> Vec<f64> {
            let y = run_op("CTCLoss", attributes, &inputs(labels, [4, 3])).unwrap();
            y[0].as_slice().unwrap().to_vec()
        };
        let check = |got: Vec<f64>, expected: [f64; 2]| {
            assert!(got.iter().zip(expected).all(|(got, expected)| (got - expected).abs() < 1e-6), "{got:?}");
        };
        check(losses([0, 1, 0], attrs![]), [1.7050009965896606, 1.4911514520645142]);
        check(losses([0, 1, 0], attrs![("ctc_merge_repeated", false)]), [2.687230110168457, 1.904695749282837]);
        check(losses([0, 0, 1], attrs![]), [3.44250226020813, 1.0610483884811401]);
        let collapsed = attrs![("preprocess_collapse_repeated", true)];
        check(losses([0, 0, 1], collapsed), [2.795438051223755, 1.0610483884811401]);
        check(losses([0, 2, 1], attrs![]), [2.795438051223755, 1.0610483884811401]);
        let longer = attrs![("ignore_longer_outputs_than_inputs", true)];
        let y = run_op("CTCLoss", longer, &inputs([0, 1, 0], [1, 3])).unwrap();
        check(y[0].as_slice().unwrap().to_vec(), [0.0, 1.4911514520645142]);
        assert!(y[1].as_slice::<f64>().unwrap()[..3].iter().all(|&value| value == 0.0));
    }

    #[test]
    fn bad_inputs_are_errors() {
        let message = |inputs: &[Tensor]| {
            let status = run_op("CTCLoss", attrs![], inputs).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            status.message().to_owned()
        };
        let check = |inputs: [Tensor; 4], text: &str| {
            let got = message(&inputs);
            assert!(got.starts_with(text), "{got}");
        };
        check(
            inputs([2, 0, 1], [4, 3]),
            "Saw a non-null label (index >= num_classes - 1) following a null label, batch: 0",
        );
        check(inputs([-1, 0, 1], [4, 3]), "All labels must be nonnegative integers, batch: 0 labels: -1,0");
        check(inputs([0, 1, 0], [1, 3]), "Not enough time for target transition sequence (required: 2, available: 1)0");
        check(inputs([0, 1, 0], [5, 3]), "sequence_length(0) <= 4");
        check(inputs([0, 1, 0], [-1, 3]), "seq_len(0) < 0");
        let with_indices = |indices: [i64; 6]| {
            let mut all = inputs([0, 1, 0], [4, 3]);
            all[1] = Tensor::from_slice(&[3, 2], &indices).unwrap();
            all
        };
        check(
            with_indices([0, 0, 0, 1, 2, 0]),
            "label SparseTensor is not valid: indices[2] = [2,0] is out of bounds: need 0 <= index < [2,2]",
        );
        check(with_indices([0, 1, 0, 0, 1, 0]), "label SparseTensor is not valid: indices[1] = [0,0] is out of order");
        check(with_indices([0, 0, 0, 1, 0, 2]), "Labels length is zero in batch 1");
    }

    #[test]
    fn shapes_and_gradients() {
        let shapes = infer("CTCLoss", attrs![], "[?,?,7];[?,2];[?];[5]", &[]).unwrap();
        assert_eq!((shapes[0].to_string(), shapes[1].to_string()), ("[5]".into(), "[?,5,7]".into()));
        check_gradient(&inputs([0, 1, 0], [4, 3]), |_, x| ctc_loss(&x[1], &x[2], &x[0], &x[3]));
    }
}
