//! EditDistance: the Levenshtein distance between sequences in sparse tensors.

use crate::sizes::shape_of_sizes;
use graph::ShapeContext;
use kernel::{BoxedKernel, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags};
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "EditDistance",
        inputs: &[
            "hypothesis_indices: int64",
            "hypothesis_values: T",
            "hypothesis_shape: int64",
            "truth_indices: int64",
            "truth_values: T",
            "truth_shape: int64",
        ],
        outputs: &["output: float"],
        attrs: &["normalize: bool = true", "T: type"],
        flags: OpFlags::NONE,
    },
    shape: edit_distance_shape,
    gradient: Gradient::NotDifferentiable,
    kernels: &[KernelDef::any(|builder| {
        BoxedKernel::new(EditDistance { normalizes: builder.attrs().bool("normalize")? })
    })],
}];

fn edit_distance_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    for (indices, values, shape) in [(0, 1, 2), (3, 4, 5)] {
        let (rank, rows) = (c.with_rank(indices, 2)?, c.with_rank(values, 1)?);
        PartialShape::new(&[rank.dim(0)]).merge(&rows)?;
        PartialShape::new(&[rank.dim(1)]).merge(&c.with_rank(shape, 1)?)?;
    }
    if let (Some(a), Some(b)) = (c.constant(2), c.constant(5)) {
        let (a, b) = (a.to_indices()?, b.to_indices()?);
        if a.len() != b.len() {
            return Err(Status::invalid_argument(format!("Num elements of the shapes must match: {a:?} and {b:?}")));
        }
        let groups = a.len().saturating_sub(1);
        let dims: Vec<i64> = a.iter().zip(&b).take(groups).map(|(&a, &b)| a.max(b)).collect();
        c.set_output(0, PartialShape::from_dims(&dims));
    }
    Ok(())
}

struct EditDistance {
    normalizes: bool,
}

impl Kernel for EditDistance {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        for (input, name) in [(5, "truth"), (2, "hypothesis")] {
            let shape = context.input(input)?;
            if shape.shape().is_vector() && shape.num_elements() < 2 {
                return Err(Status::invalid_argument(format!(
                    "Input SparseTensors must have rank at least 2, but {name}_shape rank is: {}",
                    shape.num_elements()
                )));
            }
        }
        let hypothesis = Sequences::from_inputs(context, 0, "hypothesis")?;
        let truth = Sequences::from_inputs(context, 3, "truth")?;
        if truth.dims.len() != hypothesis.dims.len() {
            return Err(Status::invalid_argument(format!(
                "Expected truth and hypothesis to have matching ranks, but their shapes are: {:?} and {:?}",
                truth.dims, hypothesis.dims
            )));
        }
        let groups = truth.dims.len() - 1;
        let dims: Vec<i64> = truth.dims.iter().zip(&hypothesis.dims).take(groups).map(|(&a, &b)| a.max(b)).collect();
        let shape = Shape::new(&dims)?;
        if shape.num_elements() == 0 {
            return Err(Status::invalid_argument(format!("Got output shape {shape} which has 0 elements")));
        }
        macro_rules! by_type {
            ($($dtype:ident => $rust:ty),* $(,)?) => {
                match truth.values.dtype() {
                    $(DType::$dtype => self.numbers::<$rust>(&hypothesis, &truth, shape),)*
                    DType::String => {
                        self.distances(&hypothesis, &truth, hypothesis.values.strings()?, truth.values.strings()?, shape)
                    }
                    other => Err(Status::unimplemented(format!("{other} elements can't be compared"))),
                }
            };
        }
        let output = by_type!(
            Float => f32, Double => f64, Half => tensor::f16, BFloat16 => tensor::bf16, Bool => bool,
            Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64,
            UInt8 => u8, UInt16 => u16, UInt32 => u32, UInt64 => u64,
        )?;
        context.set_output(0, output);
        Ok(())
    }
}

impl EditDistance {
    fn numbers<T: Element>(&self, hypothesis: &Sequences<'_>, truth: &Sequences<'_>, shape: Shape) -> Result<Tensor> {
        self.distances(hypothesis, truth, hypothesis.values.as_slice::<T>()?, truth.values.as_slice::<T>()?, shape)
    }

    fn distances<T: PartialEq>(
        &self,
        hypothesis: &Sequences<'_>,
        truth: &Sequences<'_>,
        hypothesis_values: &[T],
        truth_values: &[T],
        shape: Shape,
    ) -> Result<Tensor> {
        if shape.num_bytes(size_of::<f32>())? > tensor::tensor_bytes_max() {
            return Err(Status::resource_exhausted(format!("out of memory: can't hold distances of shape {shape}")));
        }
        let mut output = vec![0f32; shape.num_elements()];
        let (mut hypotheses, mut truths) = (hypothesis.groups().peekable(), truth.groups().peekable());
        loop {
            let (group, hypothesis, truth) = match (hypotheses.peek(), truths.peek()) {
                (None, None) => break,
                (Some(&(group, rows)), None) => (group, Some(rows), None),
                (None, Some(&(group, rows))) => (group, None, Some(rows)),
                (Some(&(a, rows)), Some(&(b, other))) => match a.cmp(b) {
                    std::cmp::Ordering::Less => (a, Some(rows), None),
                    std::cmp::Ordering::Greater => (b, None, Some(other)),
                    std::cmp::Ordering::Equal => (a, Some(rows), Some(other)),
                },
            };
            if hypothesis.is_some() {
                hypotheses.next();
            }
            if truth.is_some() {
                truths.next();
            }
            let place = place_of(group, &shape)?;
            let part = |rows: Option<(usize, usize)>| rows.unwrap_or((0, 0));
            let (from, to) = part(hypothesis);
            let hypothesis = &hypothesis_values[from..to];
            let (from, to) = part(truth);
            let truth = &truth_values[from..to];
            output[place] = self.scaled(levenshtein(truth, hypothesis), truth.len());
        }
        Tensor::from_slice(shape.dims(), &output)
    }

    fn scaled(&self, distance: usize, truth_len: usize) -> f32 {
        match (self.normalizes, distance) {
            (false, _) | (true, 0) => distance as f32,
            // The distance from an empty truth is infinite.
            (true, _) if truth_len == 0 => f32::INFINITY,
            (true, _) => distance as f32 / truth_len as f32,
        }
    }
}

fn place_of(group: &[i64], shape: &Shape) -> Result<usize> {
    let mut place = 0usize;
    for (&index, &size) in group.iter().zip(shape.dims()) {
        if index < 0 || index >= size {
            return Err(Status::invalid_argument(format!("index {group:?} lies outside of shape {shape}")));
        }
        place = place * size as usize + index as usize;
    }
    Ok(place)
}

/// Sequences along the last dimension of a sparse tensor whose indices are in row-major order.
struct Sequences<'a> {
    indices: &'a [i64],
    values: &'a Tensor,
    dims: Vec<i64>,
}

impl<'a> Sequences<'a> {
    fn from_inputs(context: &'a OpContext<'_>, first: usize, name: &str) -> Result<Sequences<'a>> {
        let (indices, values, shape) = (context.input(first)?, context.input(first + 1)?, context.input(first + 2)?);
        let wrong = |what: &str| Err(Status::invalid_argument(format!("{name}_{what}")));
        if !indices.shape().is_matrix() {
            return wrong("indices should be a matrix");
        }
        if !values.shape().is_vector() || values.num_elements() as i64 != indices.shape().dim(0) {
            return Err(Status::invalid_argument(format!(
                "Expected {name}_values.NumElements == #rows({name}_indices), their shapes are: {} and {}",
                values.shape(),
                indices.shape()
            )));
        }
        if !shape.shape().is_vector() || shape.num_elements() as i64 != indices.shape().dim(1) {
            return wrong("shape should be a vector with as many elements as there are columns of indices");
        }
        if shape.num_elements() < 2 {
            return wrong("shape must have rank at least 2");
        }
        let dims = shape.as_slice::<i64>()?.to_vec();
        shape_of_sizes(&dims)?;
        Ok(Sequences { indices: indices.as_slice::<i64>()?, values, dims })
    }

    /// Returns each group of rows that agree in all indices except the last: the common index, and the rows.
    fn groups(&self) -> impl Iterator<Item = (&[i64], (usize, usize))> {
        let rank = self.dims.len();
        let rows = self.indices.len() / rank;
        let group = move |row: usize| &self.indices[row * rank..(row + 1) * rank - 1];
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = next;
            if start >= rows {
                return None;
            }
            while next < rows && group(next) == group(start) {
                next += 1;
            }
            Some((group(start), (start, next)))
        })
    }
}

/// Returns the number of insertions, deletions and replacements that turn one sequence into the other.
fn levenshtein<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    if a.is_empty() || b.is_empty() {
        return a.len() + b.len();
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, infer, run_op};
    use tensor::Tensor;

    fn sparse(indices: &[i64], values: &[i32], shape: &[i64]) -> [Tensor; 3] {
        let rows = values.len() as i64;
        [
            Tensor::from_slice(&[rows, shape.len() as i64], indices).unwrap(),
            Tensor::vector(values),
            Tensor::vector(shape),
        ]
    }

    #[test]
    fn distances() {
        let hypothesis = sparse(&[0, 0, 0, 1, 1, 0, 3, 0], &[1, 2, 3, 4], &[4, 2]);
        let truth = sparse(&[0, 0, 0, 1, 0, 2, 2, 0, 2, 1], &[1, 3, 2, 1, 1], &[3, 3]);
        let inputs: Vec<Tensor> = hypothesis.into_iter().chain(truth).collect();
        // As TensorFlow answers.
        let y = run_op("EditDistance", attrs![], &inputs).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[1.0 / 3.0, f32::INFINITY, 1.0, f32::INFINITY]);
        let y = run_op("EditDistance", attrs![("normalize", false)], &inputs).unwrap();
        assert_eq!(y[0].as_slice::<f32>().unwrap(), &[1., 1., 2., 1.]);
        assert_eq!(super::levenshtein(b"kitten", b"sitting"), 3);
        assert_eq!(super::levenshtein(b"", b"abc"), 3);
    }

    #[test]
    fn what_is_wrong() {
        let outside = sparse(&[5, 0], &[1], &[2, 2]);
        let truth = sparse(&[0, 0], &[1], &[2, 2]);
        let inputs: Vec<Tensor> = outside.into_iter().chain(truth.clone()).collect();
        assert!(run_op("EditDistance", attrs![], &inputs).is_err());
        let flat = sparse(&[0], &[1], &[2]);
        let inputs: Vec<Tensor> = flat.into_iter().chain(truth).collect();
        assert!(run_op("EditDistance", attrs![], &inputs).is_err());
    }

    #[test]
    fn shapes() {
        let constants = [(2, Tensor::vector(&[2i64, 5])), (5, Tensor::vector(&[3i64, 4]))];
        let shape = infer("EditDistance", attrs![], "[4,2];[4];[2];[5,2];[5];[2]", &constants).unwrap();
        assert_eq!(shape[0].to_string(), "[3]");
    }
}
