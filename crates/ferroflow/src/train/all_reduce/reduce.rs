//! [`Reducer`]: adds the reductions of gradients to a graph. Small dense gradients share a reduction, in the order in which they are
//! computed; gradients that consist of rows are gathered.

use super::Members;
use crate::train::expression::group as group_operations;
use crate::train::optimizer::GradientAndVariable;
use crate::variable::Variable;
use crate::worker_group::WorkerGroup;
use graph::builder::{Grad, IndexedSlices};
use graph::{DeviceName, Graph, Operation, Output};
use ops::{array, math};
use tensor::{DType, Result, Shape, Status, Tensor};

/// Adds the reductions of gradients to a graph.
pub(super) struct Reducer<'a> {
    pub graph: &'a Graph,
    pub group: &'a WorkerGroup,
    pub members: &'a Members,
    pub bucket_bytes: usize,
    pub is_compressed: bool,
}

/// A dense gradient that is to be reduced.
struct Dense<'a> {
    /// Its place among the gradients.
    index: usize,
    gradient: &'a Output,
    /// Its shape, if known.
    shape: Option<Shape>,
}

/// Dense gradients that are reduced together.
#[derive(Default)]
struct Bucket<'a> {
    gradients: Vec<Dense<'a>>,
    bytes: usize,
}

impl Reducer<'_> {
    /// Returns the means of gradients over all workers. Each waits for all of them, so that a step changes all variables or none.
    pub(super) fn reduce(&self, gradients: &[GradientAndVariable]) -> Result<Vec<GradientAndVariable>> {
        let mut means = gradients.to_vec();
        let mut dense = Vec::new();
        let mut changed = Vec::new();
        // The gradients of the last layers are computed first.
        for (index, (gradient, variable)) in gradients.iter().enumerate().rev() {
            let Some(gradient) = gradient.as_ref() else { continue };
            if !is_mirrored(variable, self.group) {
                return Err(Status::invalid_argument(format!(
                    "variable '{}' is on {}, which the steps of several workers can't change beside collective ops: these give their \
                     steps the same id. Fetch its rows before the step, and apply their gradients after it.",
                    variable.name(),
                    variable.op().device()
                )));
            }
            changed.push(index);
            match gradient {
                Grad::Dense(gradient) => dense.push(Dense { index, gradient, shape: known_shape(gradient, variable) }),
                Grad::Slices(slices) => means[index].0 = Some(Grad::Slices(self.gather_rows(slices)?)),
            }
        }
        // The chief's call is reduced along with gradients, so that it needs no exchange of its own. Once is enough.
        let call = self.members.call.as_ref().filter(|call| call.mean.lock().is_none());
        if let Some(call) = call {
            let shape = Some(Shape::scalar());
            dense.push(Dense { index: gradients.len(), gradient: &call.given, shape });
        }
        let mut also = Vec::new();
        for bucket in self.buckets(dense) {
            for (index, mean) in self.reduce_bucket(&bucket)? {
                match means.get_mut(index) {
                    Some(gradient) => gradient.0 = Some(Grad::Dense(mean)),
                    None => also.push(mean),
                }
            }
        }
        self.graph.finish()?;
        if let (Some(call), Some(mean)) = (call, also.first()) {
            *call.mean.lock() = Some(mean.clone());
        }
        self.gate(&mut means, &changed, &also)?;
        Ok(means)
    }

    fn buckets<'a>(&self, dense: Vec<Dense<'a>>) -> Vec<Bucket<'a>> {
        let (mut full, mut open): (Vec<Bucket<'a>>, Vec<(DType, Bucket<'a>)>) = (Vec::new(), Vec::new());
        for gradient in dense {
            let dtype = gradient.gradient.dtype();
            let bytes = gradient.shape.as_ref().and_then(|shape| shape.num_bytes(dtype.size()).ok());
            let Some(bytes) = bytes.filter(|&bytes| bytes < self.bucket_bytes) else {
                full.push(Bucket { gradients: vec![gradient], bytes: 0 });
                continue;
            };
            let position = open.iter().position(|(other, _)| *other == dtype).unwrap_or_else(|| {
                open.push((dtype, Bucket::default()));
                open.len() - 1
            });
            let bucket = &mut open[position].1;
            if bucket.bytes.saturating_add(bytes) > self.bucket_bytes {
                full.push(std::mem::take(bucket));
            }
            bucket.bytes += bytes;
            bucket.gradients.push(gradient);
        }
        full.extend(open.into_iter().map(|(_, bucket)| bucket));
        full
    }

    fn reduce_bucket(&self, bucket: &Bucket<'_>) -> Result<Vec<(usize, Output)>> {
        if let [only] = &bucket.gradients[..] {
            let mean = self.mean(only.gradient)?;
            mean.set_shape(&only.gradient.shape())?;
            return Ok(vec![(only.index, mean)]);
        }
        let flat: Vec<Output> =
            bucket.gradients.iter().map(|gradient| array::reshape_to(gradient.gradient, &[-1])).collect();
        let shapes: Vec<&Shape> = bucket.gradients.iter().filter_map(|gradient| gradient.shape.as_ref()).collect();
        let sizes: Vec<i64> = shapes.iter().map(|shape| shape.num_elements() as i64).collect();
        let parts = array::split_v(&self.mean(&array::concat(&flat, 0))?, &sizes, 0);
        let shaped = bucket.gradients.iter().zip(parts).zip(shapes);
        Ok(shaped.map(|((gradient, part), shape)| (gradient.index, array::reshape_to(&part, shape.dims()))).collect())
    }

    /// Returns the mean of a tensor over all workers.
    fn mean(&self, value: &Output) -> Result<Output> {
        let dtype = value.dtype();
        let is_compressed = self.is_compressed && matches!(dtype, DType::Float | DType::Double);
        if !matches!(dtype, DType::BFloat16 | DType::Half | DType::Float | DType::Double) {
            return Err(Status::invalid_argument(format!(
                "a gradient of type {dtype} can't be reduced: {} has another than bfloat16, half, float and double",
                value.name()
            )));
        }
        let given = if is_compressed { math::cast(value, DType::BFloat16) } else { value.clone() };
        let mean = self.collective("Add", "Div", &given);
        Ok(if is_compressed { math::cast(&mean, dtype) } else { mean })
    }

    fn collective(&self, merge_op: &str, final_op: &str, value: &Output) -> Output {
        let op = self.members.op(self.graph, "CollectiveReduceV2", &[value]);
        op.attr("merge_op", merge_op).attr("final_op", final_op).output()
    }

    /// Returns the rows of all workers, divided by their number. Workers may have different numbers of rows: all are padded to the largest
    /// number, gathered, and the padding is removed again.
    fn gather_rows(&self, slices: &IndexedSlices) -> Result<IndexedSlices> {
        let graph = self.graph;
        let gather = |value: &Output| self.members.op(graph, "CollectiveGatherV2", &[value]).output();
        let (values, indices) = (&slices.values, &slices.indices);
        if !matches!(values.dtype(), DType::Half | DType::Float | DType::Double) {
            return Err(Status::invalid_argument(format!(
                "rows of type {} can't be gathered: {} has another than half, float and double",
                values.dtype(),
                values.name()
            )));
        }
        let vector = |value: i32| graph.constant_tensor(&Tensor::vector(&[value]));
        let count = array::reshape_to(&graph.op("Size").input(indices).output(), &[1]);
        let counts = gather(&count);
        let most = math::reduce_max(&counts, None, false);
        let missing = math::subtract(&array::reshape_to(&most, &[1]), &count);
        let padded = |value: &Output| {
            // Rows may be tensors of any rank, and only the first dimension grows.
            let shape = graph.op("Shape").input(value).output();
            let rest = graph.op("Slice").input(&shape).input(&vector(1)).input(&vector(-1)).output();
            let filled = array::concat(&[missing.clone(), rest], 0);
            let zero = graph.op("Cast").input(&graph.constant(0i32)).attr("DstT", value.dtype()).output();
            let zeros = graph.op("Fill").input(&filled).input(&zero).output();
            array::concat(&[value.clone(), zeros], 0)
        };
        let positions =
            graph.op("Range").input(&graph.constant(0i32)).input(&most).input(&graph.constant(1i32)).output();
        let is_given = math::less(&array::reshape_to(&positions, &[1, -1]), &array::reshape_to(&counts, &[-1, 1]));
        let given = graph.op("Where").input(&array::reshape_to(&is_given, &[-1])).attr("T", DType::Bool).output();
        let given = array::reshape_to(&given, &[-1]);
        let axis = graph.constant(0i32);
        let rows = |gathered: &Output| graph.op("GatherV2").input(gathered).input(&given).input(&axis).output();
        let share = graph.op("Cast").input(&self.members.size).attr("DstT", values.dtype()).output();
        let all = rows(&gather(&padded(values)));
        Ok(IndexedSlices {
            values: graph.op("RealDiv").input(&all).input(&share).output(),
            indices: rows(&gather(&padded(indices))),
            dense_shape: slices.dense_shape.clone(),
        })
    }

    /// Makes every mean wait for all of them, and for the chief's call that was reduced with them.
    fn gate(&self, means: &mut [GradientAndVariable], changed: &[usize], also: &[Output]) -> Result<()> {
        let values = |gradient: &Grad| match gradient {
            Grad::Dense(output) => output.op.clone(),
            Grad::Slices(slices) => slices.values.op.clone(),
        };
        let mut all: Vec<Operation> = changed.iter().filter_map(|&index| means[index].0.as_ref().map(values)).collect();
        all.extend(also.iter().map(|output| output.op.clone()));
        if all.len() < 2 {
            return Ok(());
        }
        let gate = group_operations(self.graph, &all, "all_reduced")?;
        let pass = |output: &Output| {
            let op = self.graph.op("Identity").name("control_dependency").input(output).control(&gate);
            op.try_build().map(|op| op.output(0))
        };
        for &index in changed {
            means[index].0 = match means[index].0.take() {
                None => None,
                Some(Grad::Dense(output)) => Some(Grad::Dense(pass(&output)?)),
                Some(Grad::Slices(slices)) => {
                    Some(Grad::Slices(IndexedSlices { values: pass(&slices.values)?, ..slices }))
                }
            };
        }
        Ok(())
    }
}

/// Returns whether every worker has its own copy of a variable, instead of one on a parameter server.
pub(super) fn is_mirrored(variable: &Variable, group: &WorkerGroup) -> bool {
    let (of, own) = (DeviceName::parse(&variable.op().device()), DeviceName::parse(group.device()));
    match (of, own) {
        (Ok(of), Ok(own)) => (of.job.is_none() && of.task.is_none()) || (of.job == own.job && of.task == own.task),
        _ => true,
    }
}

/// Runs `body` on a device, if one is named.
pub(super) fn on<R>(graph: &Graph, device: &str, body: impl FnOnce(&Graph) -> R) -> R {
    if device.is_empty() { body(graph) } else { graph.device(device, body) }
}

fn known_shape(gradient: &Output, variable: &Variable) -> Option<Shape> {
    gradient.shape().to_shape().or_else(|| variable.shape().to_shape())
}
