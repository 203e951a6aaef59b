//! [`Queue`]: the resource behind all four kinds of queue.
//!
//! Attempts that can't complete at once wait in line, without a thread: enqueues for room, dequeues for elements. Every change
//! advances the lines as far as possible. A dequeue of many takes elements as they arrive, so it may request more than the queue
//! can hold; if it fails, the elements that it took are returned.

use super::stacking::{stack, stack_padded};
use crate::random::SingleSample;
use kernel::{AsyncContext, Cancellation, CancellationToken, Holdings, Resource};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// An element of a queue: a tensor for each component.
pub(crate) type Tuple = SmallVec<[Tensor; 2]>;

/// The order in which elements are dequeued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKind {
    /// First in, first out.
    Fifo,
    /// First in, first out; a batch of elements of different sizes is padded with zeros.
    Padding,
    /// At random.
    Shuffle {
        /// The number of elements that must remain while the queue is open.
        min_after_dequeue: usize,
        /// Seeds of the order; if both are zero, the order is different every time.
        seeds: (i64, i64),
    },
    /// By the first component, which is a number; lower ones come first.
    Priority,
}

/// The configuration of a queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueOptions {
    pub kind: QueueKind,
    pub capacity: usize,
    pub dtypes: Vec<DType>,
    /// The shape of each component; empty if unspecified.
    pub shapes: Vec<PartialShape>,
}

/// A queue of tuples of tensors.
pub(crate) struct Queue {
    name: String,
    options: QueueOptions,
    state: Mutex<State>,
}

struct State {
    closed: bool,
    elements: Elements,
    enqueues: VecDeque<Enqueue>,
    dequeues: VecDeque<Dequeue>,
    next_attempt: u64,
}

enum Elements {
    Line(VecDeque<Tuple>),
    Bag(Vec<Tuple>, SingleSample),
    Heap { tuples: BTreeMap<(i64, u64), Tuple>, next: u64 },
}

struct Enqueue {
    attempt: Attempt,
    work: EnqueueWork,
}

enum EnqueueWork {
    One(Option<Tuple>),
    Many {
        batch: Tuple,
        next: usize,
        count: usize,
    },
    /// Closing waits for the enqueues before it.
    Close,
}

struct Dequeue {
    attempt: Attempt,
    mode: DequeueMode,
    /// The number of elements that are still missing.
    missing: usize,
    taken: Vec<Tuple>,
}

/// How a dequeue combines its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DequeueMode {
    /// A single element, unchanged.
    One,
    /// A batch of the requested size.
    Many,
    /// A batch, which may be smaller when the queue is closed.
    UpTo,
}

/// An attempt that waits.
struct Attempt {
    id: u64,
    context: AsyncContext,
    token: Option<CancellationToken>,
}

struct Finished {
    attempt: Attempt,
    result: Result<Option<(DequeueMode, Vec<Tuple>)>>,
}

enum Progress {
    None,
    Some,
    Done(Result<()>),
}

impl Queue {
    pub(crate) fn new(name: &str, options: QueueOptions) -> Queue {
        let elements = match options.kind {
            QueueKind::Fifo | QueueKind::Padding => Elements::Line(VecDeque::new()),
            QueueKind::Shuffle { seeds, .. } => Elements::Bag(Vec::new(), SingleSample::new(seeds)),
            QueueKind::Priority => Elements::Heap { tuples: BTreeMap::new(), next: 0 },
        };
        let state =
            State { closed: false, elements, enqueues: VecDeque::new(), dequeues: VecDeque::new(), next_attempt: 0 };
        Queue { name: name.to_owned(), options, state: Mutex::new(state) }
    }

    pub(crate) fn options(&self) -> &QueueOptions {
        &self.options
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().elements.len()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Adds an element, once there is room.
    pub(crate) fn enqueue(self: &Arc<Self>, context: AsyncContext, tuple: Tuple) {
        match self.check_tuple(&tuple) {
            Ok(()) => self.submit_enqueue(context, EnqueueWork::One(Some(tuple))),
            Err(status) => context.finish(Err(status)),
        }
    }

    /// Adds the rows of a batch, as there is room.
    pub(crate) fn enqueue_many(self: &Arc<Self>, context: AsyncContext, batch: Tuple) {
        match self.check_batch(&batch) {
            Ok(0) => context.finish(Ok(())),
            Ok(count) => self.submit_enqueue(context, EnqueueWork::Many { batch, next: 0, count }),
            Err(status) => context.finish(Err(status)),
        }
    }

    /// Takes elements, once there are enough; `count` is 1 for [`DequeueMode::One`].
    pub(crate) fn dequeue(self: &Arc<Self>, mut context: AsyncContext, mode: DequeueMode, count: usize) {
        if mode != DequeueMode::One && self.options.kind != QueueKind::Padding && self.options.shapes.is_empty() {
            let name = self.kind_name();
            return context.finish(Err(Status::invalid_argument(format!(
                "{name}'s DequeueMany and DequeueUpTo require the components to have specified shapes."
            ))));
        }
        if count == 0 {
            let result = self.set_outputs(&mut context, mode, Vec::new());
            return context.finish(result);
        }
        let cancellation = context.step().cancellation.clone();
        let mut finished = Vec::new();
        {
            let mut state = self.state.lock();
            let attempt = state.attempt(context);
            let id = attempt.id;
            state.dequeues.push_back(Dequeue { attempt, mode, missing: count, taken: Vec::new() });
            self.flush(&mut state, &mut finished);
            if let Some(position) = state.dequeues.iter().position(|dequeue| dequeue.attempt.id == id) {
                match self.register(&cancellation, id) {
                    Ok(token) => state.dequeues[position].attempt.token = Some(token),
                    Err(_) => state.cancel(id, &mut finished),
                }
            }
        }
        self.complete(finished);
    }

    /// Closes the queue, after the pending enqueues or instead of them.
    pub(crate) fn close(self: &Arc<Self>, context: AsyncContext, cancel_pending_enqueues: bool) {
        if !cancel_pending_enqueues {
            return self.submit_enqueue(context, EnqueueWork::Close);
        }
        self.close_now();
        context.finish(Ok(()));
    }

    /// Adds elements immediately; for a queue without a bound.
    pub(super) fn insert(&self, tuples: Vec<Tuple>) -> Result<()> {
        tuples.iter().try_for_each(|tuple| self.check_tuple(tuple))?;
        let mut finished = Vec::new();
        {
            let mut state = self.state.lock();
            for tuple in tuples {
                state.elements.push(tuple)?;
            }
            self.flush(&mut state, &mut finished);
        }
        self.complete(finished);
        Ok(())
    }

    /// Closes the queue immediately; pending enqueues are cancelled.
    pub(super) fn close_now(&self) {
        let mut finished = Vec::new();
        {
            let mut state = self.state.lock();
            state.closed = true;
            let cancelled = || Err(Status::cancelled("Enqueue operation was cancelled"));
            let pending = std::mem::take(&mut state.enqueues);
            finished
                .extend(pending.into_iter().map(|enqueue| Finished { attempt: enqueue.attempt, result: cancelled() }));
            self.flush(&mut state, &mut finished);
        }
        self.complete(finished);
    }

    fn submit_enqueue(self: &Arc<Self>, context: AsyncContext, work: EnqueueWork) {
        let cancellation = context.step().cancellation.clone();
        let mut finished = Vec::new();
        {
            let mut state = self.state.lock();
            let attempt = state.attempt(context);
            let id = attempt.id;
            state.enqueues.push_back(Enqueue { attempt, work });
            self.flush(&mut state, &mut finished);
            if let Some(position) = state.enqueues.iter().position(|enqueue| enqueue.attempt.id == id) {
                match self.register(&cancellation, id) {
                    Ok(token) => state.enqueues[position].attempt.token = Some(token),
                    Err(_) => state.cancel(id, &mut finished),
                }
            }
        }
        self.complete(finished);
    }

    /// Registers for the cancellation of a waiting attempt's step. The lock is held, so that the callback finds it.
    fn register(self: &Arc<Self>, cancellation: &Cancellation, id: u64) -> Result<CancellationToken> {
        let queue = Arc::downgrade(self);
        cancellation.register(move |_| {
            if let Some(queue) = queue.upgrade() {
                let mut finished = Vec::new();
                {
                    let mut state = queue.state.lock();
                    state.cancel(id, &mut finished);
                    // Attempts behind the cancelled one may be able to proceed.
                    queue.flush(&mut state, &mut finished);
                }
                queue.complete(finished);
            }
        })
    }

    /// Advances both lines as far as possible.
    fn flush(&self, state: &mut State, finished: &mut Vec<Finished>) {
        loop {
            let enqueued = self.flush_enqueues(state, finished);
            let dequeued = self.flush_dequeues(state, finished);
            if !enqueued && !dequeued {
                return;
            }
        }
    }

    fn flush_enqueues(&self, state: &mut State, finished: &mut Vec<Finished>) -> bool {
        let mut moved = false;
        while let Some(mut enqueue) = state.enqueues.pop_front() {
            match self.try_enqueue(state, &mut enqueue.work) {
                Progress::Done(result) => {
                    moved = true;
                    finished.push(Finished { attempt: enqueue.attempt, result: result.map(|()| None) });
                }
                progress => {
                    state.enqueues.push_front(enqueue);
                    return moved || matches!(progress, Progress::Some);
                }
            }
        }
        moved
    }

    fn try_enqueue(&self, state: &mut State, work: &mut EnqueueWork) -> Progress {
        let closed = || Status::cancelled(format!("{} '{}' is closed.", self.kind_name(), self.name));
        match work {
            EnqueueWork::Close if state.closed => {
                Progress::Done(Err(Status::cancelled(format!("Queue '{}' is already closed.", self.name))))
            }
            EnqueueWork::Close => {
                state.closed = true;
                Progress::Done(Ok(()))
            }
            _ if state.closed => Progress::Done(Err(closed())),
            EnqueueWork::One(tuple) => {
                if state.elements.len() >= self.options.capacity {
                    return Progress::None;
                }
                Progress::Done(tuple.take().map_or(Ok(()), |tuple| state.elements.push(tuple)))
            }
            EnqueueWork::Many { batch, next, count } => {
                let mut progress = Progress::None;
                while state.elements.len() < self.options.capacity {
                    progress = Progress::Some;
                    let pushed = self.row(batch, *next).and_then(|tuple| state.elements.push(tuple));
                    *next += 1;
                    if pushed.is_err() || next == count {
                        return Progress::Done(pushed);
                    }
                }
                progress
            }
        }
    }

    fn flush_dequeues(&self, state: &mut State, finished: &mut Vec<Finished>) -> bool {
        let mut moved = false;
        while let Some(mut dequeue) = state.dequeues.pop_front() {
            match self.try_dequeue(state, &mut dequeue) {
                Progress::Done(result) => {
                    moved = true;
                    let result = result.map(|()| Some((dequeue.mode, dequeue.taken)));
                    finished.push(Finished { attempt: dequeue.attempt, result });
                }
                progress => {
                    state.dequeues.push_front(dequeue);
                    return moved || matches!(progress, Progress::Some);
                }
            }
        }
        moved
    }

    fn try_dequeue(&self, state: &mut State, dequeue: &mut Dequeue) -> Progress {
        let available = state.elements.len();
        if state.closed && available < dequeue.missing {
            let requested = dequeue.missing;
            state.elements.give_back(std::mem::take(&mut dequeue.taken));
            if dequeue.mode == DequeueMode::UpTo && state.elements.len() > 0 {
                dequeue.missing = state.elements.len();
            } else {
                return Progress::Done(Err(Status::out_of_range(format!(
                    "{} '{}' is closed and has insufficient elements (requested {requested}, current size {available})",
                    self.kind_name(),
                    self.name
                ))));
            }
        }
        let kept = match self.options.kind {
            QueueKind::Shuffle { min_after_dequeue, .. } if !state.closed => min_after_dequeue,
            _ => 0,
        };
        let mut progress = Progress::None;
        while state.elements.len() > kept {
            let Some(tuple) = state.elements.take() else { break };
            progress = Progress::Some;
            dequeue.taken.push(tuple);
            dequeue.missing -= 1;
            if dequeue.missing == 0 {
                return Progress::Done(Ok(()));
            }
        }
        progress
    }

    /// Notifies completed attempts, without holding the lock.
    fn complete(&self, finished: Vec<Finished>) {
        for Finished { attempt, result } in finished {
            let mut context = attempt.context;
            if let Some(token) = attempt.token {
                context.step().cancellation.deregister(token);
            }
            let result = match result {
                Ok(Some((mode, tuples))) => self.set_outputs(&mut context, mode, tuples),
                other => other.map(|_| ()),
            };
            context.finish(result);
        }
    }

    fn set_outputs(&self, context: &mut AsyncContext, mode: DequeueMode, tuples: Vec<Tuple>) -> Result<()> {
        let mut context = context.op();
        if mode == DequeueMode::One {
            for (index, tensor) in tuples.into_iter().flatten().enumerate() {
                context.set_output(index, tensor);
            }
            return Ok(());
        }
        for (index, dtype) in self.options.dtypes.iter().enumerate() {
            let parts: Vec<&Tensor> = tuples.iter().map(|tuple| &tuple[index]).collect();
            let shape = self.options.shapes.get(index).cloned().unwrap_or_default();
            let batch = match self.options.kind {
                QueueKind::Padding => stack_padded(*dtype, &shape, &parts)?,
                _ => {
                    let shape =
                        shape.to_shape().ok_or_else(|| Status::internal("the shape of an element is unknown"))?;
                    stack(*dtype, &shape, &parts)?
                }
            };
            context.set_output(index, batch);
        }
        Ok(())
    }

    /// Returns row `index` of a batch as an element.
    fn row(&self, batch: &Tuple, index: usize) -> Result<Tuple> {
        let row = |tensor: &Tensor| {
            let row = tensor.slice_rows(index, index + 1)?;
            let shape = row.shape().slice(1, row.shape().rank());
            let row = row.into_shape(shape)?;
            // A row shares the batch's memory. If it may stay in the queue long after its neighbours, that would keep the whole
            // batch alive.
            match self.options.kind {
                QueueKind::Fifo | QueueKind::Padding => Ok(row),
                _ => row.deep_copy(),
            }
        };
        batch.iter().map(row).collect()
    }

    fn check_tuple(&self, tuple: &Tuple) -> Result<()> {
        for (index, (tensor, shape)) in tuple.iter().zip(&self.options.shapes).enumerate() {
            if !shape.is_compatible_with(tensor.shape()) {
                return Err(Status::invalid_argument(format!(
                    "Shape mismatch in tuple component {index}. Expected {shape}, got {}",
                    tensor.shape()
                )));
            }
        }
        Ok(())
    }

    /// Returns the number of elements of a batch.
    fn check_batch(&self, batch: &Tuple) -> Result<usize> {
        let Some(count) = batch.first().and_then(|tensor| tensor.dims().first()).copied() else {
            return Err(Status::invalid_argument(
                "Components of a batch to be enqueued must have at least one dimension, but component 0 is a scalar",
            ));
        };
        for (index, tensor) in batch.iter().enumerate() {
            match self.options.shapes.get(index) {
                Some(shape) => {
                    let expected = PartialShape::new(&[Some(count)]).concat(shape);
                    if !expected.is_compatible_with(tensor.shape()) {
                        return Err(Status::invalid_argument(format!(
                            "Shape mismatch in tuple component {index}. Expected {expected}, got {}",
                            tensor.shape()
                        )));
                    }
                }
                None if tensor.dims().first() != Some(&count) => {
                    return Err(Status::invalid_argument(format!(
                        "All input tensors must have the same size in the 0th dimension. Component {index} has shape \
                         {}, and should have {count} rows",
                        tensor.shape()
                    )));
                }
                None => {}
            }
        }
        Ok(count as usize)
    }

    /// Returns the name of the kind for messages.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.options.kind {
            QueueKind::Fifo => "FIFOQueue",
            QueueKind::Padding => "PaddingFIFOQueue",
            QueueKind::Shuffle { .. } => "RandomShuffleQueue",
            QueueKind::Priority => "PriorityQueue",
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let enqueues = std::mem::take(&mut state.enqueues).into_iter().map(|enqueue| enqueue.attempt);
        let dequeues = std::mem::take(&mut state.dequeues).into_iter().map(|dequeue| dequeue.attempt);
        for attempt in enqueues.chain(dequeues).collect::<Vec<_>>() {
            attempt.context.finish(Err(Status::cancelled(format!("Queue '{}' was destroyed.", self.name))));
        }
    }
}

impl State {
    fn attempt(&mut self, context: AsyncContext) -> Attempt {
        let id = self.next_attempt;
        self.next_attempt += 1;
        Attempt { id, context, token: None }
    }

    /// Removes an attempt from its line, unless it is already done.
    fn cancel(&mut self, id: u64, finished: &mut Vec<Finished>) {
        if let Some(position) = self.enqueues.iter().position(|enqueue| enqueue.attempt.id == id)
            && let Some(enqueue) = self.enqueues.remove(position)
        {
            let result = Err(Status::cancelled("Enqueue operation was cancelled"));
            finished.push(Finished { attempt: enqueue.attempt, result });
        } else if let Some(position) = self.dequeues.iter().position(|dequeue| dequeue.attempt.id == id)
            && let Some(dequeue) = self.dequeues.remove(position)
        {
            self.elements.give_back(dequeue.taken);
            let result = Err(Status::cancelled("Dequeue operation was cancelled"));
            finished.push(Finished { attempt: dequeue.attempt, result });
        }
    }
}

impl Elements {
    fn len(&self) -> usize {
        match self {
            Elements::Line(tuples) => tuples.len(),
            Elements::Bag(tuples, _) => tuples.len(),
            Elements::Heap { tuples, .. } => tuples.len(),
        }
    }

    fn push(&mut self, tuple: Tuple) -> Result<()> {
        match self {
            Elements::Line(tuples) => tuples.push_back(tuple),
            Elements::Bag(tuples, _) => tuples.push(tuple),
            Elements::Heap { tuples, next } => {
                let priority = tuple.first().ok_or_else(|| Status::internal("an element without a priority"))?;
                tuples.insert((priority.to_scalar::<i64>()?, *next), tuple);
                *next += 1;
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Option<Tuple> {
        match self {
            Elements::Line(tuples) => tuples.pop_front(),
            Elements::Bag(tuples, random) => {
                // TensorFlow's order for the same seeds: the last element moves to the position of the removed one.
                let index = random.next_u32() as usize % tuples.len().max(1);
                (!tuples.is_empty()).then(|| tuples.swap_remove(index))
            }
            Elements::Heap { tuples, .. } => tuples.pop_first().map(|(_, tuple)| tuple),
        }
    }

    /// Returns the elements that a failed attempt took to where they came from.
    fn give_back(&mut self, taken: Vec<Tuple>) {
        for tuple in taken.into_iter().rev() {
            match &mut *self {
                Elements::Line(tuples) => tuples.push_front(tuple),
                // These elements fit before, so they fit again.
                other => drop(other.push(tuple)),
            }
        }
    }
}

impl Resource for Queue {
    fn type_name(&self) -> &'static str {
        "N10tensorflow14QueueInterfaceE"
    }

    fn describe(&self) -> String {
        format!("{} of {} elements", self.kind_name(), self.len())
    }

    fn holdings(&self) -> Holdings {
        Holdings { queue_elements: Some(self.len()), ..Holdings::default() }
    }
}

/// Formats a shape as TensorFlow does for components.
pub(crate) fn shape_list_text(shapes: &[PartialShape]) -> String {
    let shapes: Vec<String> = shapes.iter().map(PartialShape::to_string).collect();
    format!("[{}]", shapes.join(","))
}

/// Formats types as TensorFlow does for components.
pub(crate) fn dtype_list_text(dtypes: &[DType]) -> String {
    let dtypes: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
    dtypes.join(", ")
}
