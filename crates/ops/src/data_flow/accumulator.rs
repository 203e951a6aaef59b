//! [`Accumulator`]: the resource that collects gradients of several workers and returns their mean or sum.
//!
//! A gradient that was computed from an older step than the current one is dropped. A request for the result waits until there
//! are enough gradients; taking it starts the next step.

use crate::arithmetic::Arithmetic;
use kernel::{AsyncContext, CancellationToken, Resource};
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// Collects gradients.
pub(super) struct Accumulator {
    name: String,
    options: AccumulatorOptions,
    state: Mutex<State>,
}

/// The configuration of an accumulator.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AccumulatorOptions {
    pub dtype: DType,
    pub shape: PartialShape,
    /// Whether the result is the mean rather than the sum.
    pub mean: bool,
    /// Whether gradients are sparse.
    pub sparse: bool,
}

#[derive(Default)]
struct State {
    global_step: i64,
    count: usize,
    sum: Option<Sum>,
    takers: VecDeque<Taker>,
    next_taker: u64,
}

enum Sum {
    Dense(Tensor),
    Rows {
        indices: Vec<i64>,
        /// The number of gradients of each row.
        counts: Vec<usize>,
        values: Tensor,
    },
}

struct Taker {
    id: u64,
    required: usize,
    context: AsyncContext,
    token: Option<CancellationToken>,
}

impl Accumulator {
    pub(super) fn new(name: &str, options: AccumulatorOptions) -> Accumulator {
        Accumulator { name: name.to_owned(), options, state: Mutex::default() }
    }

    pub(super) fn options(&self) -> &AccumulatorOptions {
        &self.options
    }

    pub(super) fn num_accumulated(&self) -> usize {
        self.state.lock().count
    }

    /// Sets the step; gradients of earlier steps are dropped.
    pub(super) fn set_global_step(&self, global_step: i64) {
        self.state.lock().global_step = global_step;
    }

    /// Adds a gradient, unless it is too old.
    pub(super) fn apply(&self, local_step: i64, gradient: Tensor) -> Result<()> {
        if self.options.sparse {
            return Err(Status::invalid_argument(format!("Accumulator '{}' takes sparse gradients", self.name)));
        }
        let mut finished = Vec::new();
        {
            let mut state = self.state.lock();
            if local_step < state.global_step {
                return Ok(());
            }
            self.check_dtype(&gradient)?;
            match &mut state.sum {
                Some(Sum::Dense(sum)) if sum.shape() == gradient.shape() => add_dense(sum, gradient)?,
                Some(Sum::Dense(sum)) => return Err(shape_mismatch(sum.shape(), gradient.shape())),
                _ if !self.options.shape.is_compatible_with(gradient.shape()) => {
                    return Err(shape_mismatch(&self.options.shape, gradient.shape()));
                }
                none => *none = Some(Sum::Dense(gradient)),
            }
            state.count += 1;
            self.flush(&mut state, &mut finished);
        }
        complete(finished);
        Ok(())
    }

    /// Adds rows of a gradient, unless it is too old. `shape` is the shape of the whole gradient, if the caller knows it.
    pub(super) fn apply_rows(
        &self,
        local_step: i64,
        indices: &Tensor,
        values: Tensor,
        shape: Option<&Tensor>,
    ) -> Result<()> {
        if !self.options.sparse {
            return Err(Status::invalid_argument(format!("Accumulator '{}' takes dense gradients", self.name)));
        }
        let mut finished = Vec::new();
        {
            let mut state = self.state.lock();
            if local_step < state.global_step {
                return Ok(());
            }
            self.check_dtype(&values)?;
            self.check_rows(state.sum.as_ref(), indices, &values, shape)?;
            let new = indices.as_slice::<i64>()?;
            match &mut state.sum {
                Some(Sum::Rows { indices, counts, values: sum }) => add_rows(indices, counts, sum, new, values)?,
                none => *none = Some(Sum::Rows { indices: new.to_vec(), counts: vec![1; new.len()], values }),
            }
            state.count += 1;
            self.flush(&mut state, &mut finished);
        }
        complete(finished);
        Ok(())
    }

    /// Sets the context's outputs to the mean or sum, as soon as there are `required` gradients.
    pub(super) fn take(self: &Arc<Self>, context: AsyncContext, required: usize) {
        let cancellation = context.step().cancellation.clone();
        let mut finished = Vec::new();
        {
            let mut state = self.state.lock();
            let id = state.next_taker;
            state.next_taker += 1;
            state.takers.push_back(Taker { id, required, context, token: None });
            self.flush(&mut state, &mut finished);
            if let Some(position) = state.takers.iter().position(|taker| taker.id == id) {
                let accumulator = Arc::downgrade(self);
                // The lock is held, so that the callback finds the request whenever it runs.
                let registered = cancellation.register(move |_| {
                    if let Some(accumulator) = accumulator.upgrade() {
                        accumulator.cancel(id);
                    }
                });
                match registered {
                    Ok(token) => state.takers[position].token = Some(token),
                    Err(_) => finished.extend(state.remove(id).map(|taker| (taker, Err(cancelled())))),
                }
            }
        }
        complete(finished);
    }

    fn cancel(&self, id: u64) {
        let mut finished = Vec::new();
        {
            let mut state = self.state.lock();
            finished.extend(state.remove(id).map(|taker| (taker, Err(cancelled()))));
            // The next one may require fewer.
            self.flush(&mut state, &mut finished);
        }
        complete(finished);
    }

    fn flush(&self, state: &mut State, finished: &mut Vec<(Taker, Result<Vec<Tensor>>)>) {
        while state.takers.front().is_some_and(|taker| state.count >= taker.required)
            && let Some(taker) = state.takers.pop_front()
        {
            let result = self.result(state);
            finished.push((taker, result));
        }
    }

    /// Returns the result and starts the next step.
    fn result(&self, state: &mut State) -> Result<Vec<Tensor>> {
        let sum = state.sum.take().ok_or_else(|| Status::internal("an accumulator without gradients"))?;
        let count = std::mem::take(&mut state.count);
        state.global_step += 1;
        match sum {
            Sum::Dense(mut sum) => {
                if self.options.mean {
                    divide(&mut sum, &[count])?;
                }
                Ok(vec![sum])
            }
            Sum::Rows { indices, counts, mut values } => {
                if self.options.mean {
                    divide(&mut values, &counts)?;
                }
                let mut dims = values.dims().to_vec();
                dims[0] = self.options.shape.dim(0).unwrap_or(-1);
                Ok(vec![Tensor::vector(&indices), values, Tensor::vector(&dims)])
            }
        }
    }

    fn check_dtype(&self, gradient: &Tensor) -> Result<()> {
        if gradient.dtype() == self.options.dtype {
            return Ok(());
        }
        Err(Status::invalid_argument(format!(
            "Accumulator '{}' collects {}, but the gradient is {}",
            self.name,
            self.options.dtype,
            gradient.dtype()
        )))
    }

    fn check_rows(&self, sum: Option<&Sum>, indices: &Tensor, values: &Tensor, shape: Option<&Tensor>) -> Result<()> {
        let invalid = |text: String| Err(Status::invalid_argument(text));
        if !indices.shape().is_vector() {
            return invalid(format!("Input indices should be vector but received shape: {}", indices.shape()));
        }
        let Some(&rows) = values.dims().first() else {
            return invalid("Values cannot be 0-dimensional.".to_owned());
        };
        if rows != indices.dims()[0] {
            return invalid(format!("Expected {} non-empty input values, got {rows}", indices.dims()[0]));
        }
        let declared = self.options.shape.dims().unwrap_or_default();
        if let Some(shape) = shape {
            let dims = shape.as_slice::<i64>()?;
            if dims.len() < declared.len() {
                return mismatch(format!("expected shape rank at least {}, got {}", declared.len(), dims.len()));
            }
            check_dims("shape", 0, declared, dims)?;
        }
        if let Some(Some(limit)) = declared.first() {
            for (position, index) in indices.as_slice::<i64>()?.iter().enumerate() {
                if index >= limit {
                    let text = format!("index of slice {position} exceeded limits of shape; index is {index}");
                    return mismatch(format!("{text} exceeded {limit}"));
                }
            }
        }
        // The first gradient must match the declared shape, which may be a prefix of its own; later ones must match the first.
        if let Some(Sum::Rows { values: sum, .. }) = sum {
            if sum.dims().len() != values.dims().len() {
                return mismatch(format!("expected values rank {}, got {}", sum.dims().len(), values.dims().len()));
            }
            let expected: Vec<Option<i64>> = sum.dims().iter().copied().map(Some).collect();
            return check_dims("values", 1, &expected, values.dims());
        }
        if values.dims().len() < declared.len() {
            return mismatch(format!("expected values rank at least {}, got {}", declared.len(), values.dims().len()));
        }
        check_dims("values", 1, declared, values.dims())
    }
}

/// Compares the known dimensions from an axis on; there are at least as many dimensions as expected ones.
fn check_dims(what: &str, from: usize, expected: &[Option<i64>], dims: &[i64]) -> Result<()> {
    for (axis, (&expected, &dim)) in expected.iter().zip(dims).enumerate().skip(from) {
        if let Some(expected) = expected
            && dim != expected
        {
            return mismatch(format!("expected {what} dim {axis} to be {expected}, got {dim}"));
        }
    }
    Ok(())
}

fn mismatch(text: String) -> Result<()> {
    Err(Status::invalid_argument(format!("Shape mismatch: {text}")))
}

impl State {
    fn remove(&mut self, id: u64) -> Option<Taker> {
        let position = self.takers.iter().position(|taker| taker.id == id)?;
        self.takers.remove(position)
    }
}

impl Drop for Accumulator {
    fn drop(&mut self) {
        for taker in std::mem::take(&mut self.state.get_mut().takers) {
            taker.context.finish(Err(Status::cancelled(format!("Accumulator '{}' was destroyed.", self.name))));
        }
    }
}

impl Resource for Accumulator {
    fn type_name(&self) -> &'static str {
        "N10tensorflow26ConditionalAccumulatorBaseE"
    }

    fn describe(&self) -> String {
        format!("accumulator of {} gradients", self.num_accumulated())
    }
}

fn complete(finished: Vec<(Taker, Result<Vec<Tensor>>)>) {
    for (taker, result) in finished {
        if let Some(token) = taker.token {
            taker.context.step().cancellation.deregister(token);
        }
        taker.context.finish_with(|context| {
            for (index, tensor) in result?.into_iter().enumerate() {
                context.set_output(index, tensor);
            }
            Ok(())
        });
    }
}

fn cancelled() -> Status {
    Status::cancelled("TakeGrad operation was cancelled")
}

fn shape_mismatch(expected: &dyn std::fmt::Display, got: &Shape) -> Status {
    Status::invalid_argument(format!("Shape mismatch: expected {expected}, got {got}"))
}

/// Runs a body with `T` bound to the number type of a [`DType`] that accumulators support.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::Float => {
                type $T = f32;
                $body
            }
            DType::Double => {
                type $T = f64;
                $body
            }
            DType::Half => {
                type $T = f16;
                $body
            }
            DType::BFloat16 => {
                type $T = bf16;
                $body
            }
            other => Err(Status::unimplemented(format!("accumulators of {other}"))),
        }
    };
}

fn add_dense(sum: &mut Tensor, gradient: Tensor) -> Result<()> {
    with_float!(sum.dtype(), T => {
        // The first gradient may still be shared; then the second may be writable.
        if sum.is_unique() {
            add(sum.make_mut::<T>()?, gradient.as_slice::<T>()?);
        } else if gradient.is_unique() {
            let first = std::mem::replace(sum, gradient);
            add(sum.make_mut::<T>()?, first.as_slice::<T>()?);
        } else {
            let (a, b) = (sum.as_slice::<T>()?, gradient.as_slice::<T>()?);
            *sum = Tensor::build(sum.shape().clone(), |to: &mut [T]| {
                to.iter_mut().zip(a.iter().zip(b)).for_each(|(to, (&a, &b))| *to = a.plus(b));
            })?;
        }
        Ok(())
    })
}

fn add<T: Arithmetic>(sum: &mut [T], gradient: &[T]) {
    numeric::parallel::for_each_chunk_mut(sum, 1, numeric::elementwise::CHEAP, |first, run| {
        run.iter_mut().zip(&gradient[first..]).for_each(|(sum, &value)| *sum = sum.plus(value));
    });
}

/// Divides each of several equal parts by its count.
fn divide(sum: &mut Tensor, counts: &[usize]) -> Result<()> {
    if counts.iter().all(|&count| count == 1) || sum.num_elements() == 0 {
        return Ok(());
    }
    let len = sum.num_elements() / counts.len();
    with_float!(sum.dtype(), T => {
        for (part, &count) in sum.make_mut::<T>()?.chunks_exact_mut(len).zip(counts) {
            let count = <T as num_traits::NumCast>::from(count).unwrap_or(<T as num_traits::One>::one());
            part.iter_mut().for_each(|value| *value = value.over(count));
        }
        Ok(())
    })
}

/// Merges two lists of rows in ascending order, as TensorFlow does: rows that aren't sorted stay separate.
fn add_rows(
    indices: &mut Vec<i64>,
    counts: &mut Vec<usize>,
    values: &mut Tensor,
    new_indices: &[i64],
    new_values: Tensor,
) -> Result<()> {
    /// Where a row of the result comes from.
    enum Source {
        Old(usize),
        New(usize),
        Both(usize, usize),
    }
    let mut sources = Vec::with_capacity(indices.len() + new_indices.len());
    let (mut old, mut new) = (0, 0);
    while old < indices.len() || new < new_indices.len() {
        let order = match (indices.get(old), new_indices.get(new)) {
            (Some(a), Some(b)) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            _ => Ordering::Greater,
        };
        sources.push(match order {
            Ordering::Less => Source::Old(old),
            Ordering::Greater => Source::New(new),
            Ordering::Equal => Source::Both(old, new),
        });
        old += usize::from(order != Ordering::Greater);
        new += usize::from(order != Ordering::Less);
    }
    let row_len = new_values.shape().slice(1, new_values.shape().rank()).num_elements();
    with_float!(values.dtype(), T => {
        let from = new_values.as_slice::<T>()?;
        let row = |index: usize| index * row_len..(index + 1) * row_len;
        if sources.len() == indices.len() {
            let to = values.make_mut::<T>()?;
            for source in &sources {
                if let Source::Both(old, new) = *source {
                    add(&mut to[row(old)], &from[row(new)]);
                    counts[old] += 1;
                }
            }
            return Ok(());
        }
        let before = values.as_slice::<T>()?;
        let shape = new_values.shape().with_dim(0, sources.len() as i64)?;
        let merged = Tensor::build(shape, |to: &mut [T]| {
            for (position, source) in sources.iter().enumerate() {
                let to = &mut to[row(position)];
                match *source {
                    Source::Old(old) => to.copy_from_slice(&before[row(old)]),
                    Source::New(new) => to.copy_from_slice(&from[row(new)]),
                    Source::Both(old, new) => {
                        to.copy_from_slice(&before[row(old)]);
                        add(to, &from[row(new)]);
                    }
                }
            }
        })?;
        let merged_indices = sources.iter().map(|source| match *source {
            Source::New(new) => new_indices[new],
            Source::Old(old) | Source::Both(old, _) => indices[old],
        });
        let merged_counts = sources.iter().map(|source| match *source {
            Source::Old(old) => counts[old],
            Source::New(_) => 1,
            Source::Both(old, _) => counts[old] + 1,
        });
        let (merged_indices, merged_counts) = (merged_indices.collect(), merged_counts.collect());
        (*indices, *counts, *values) = (merged_indices, merged_counts, merged);
        Ok(())
    })
}
