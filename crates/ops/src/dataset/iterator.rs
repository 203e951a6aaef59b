//! [`IteratorResource`]: an iterator that lives on a device between steps.
//!
//! Requests are served one at a time; one that waits for a function holds no thread.

use super::base::{Dataset, DatasetIterator, Element, Nesting};
use super::position::Position;
use super::task::{cancelled_status, start};
use kernel::{AsyncContext, CancellationToken, KernelBuilder, OpContext, Resource, Step};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// A future of the next element.
pub(super) type Deliver = fn(&mut OpContext<'_>, Option<Element>) -> Result<()>;

/// A request to an iterator.
pub(super) enum Wish {
    /// The next element.
    Next(Deliver),
    /// The iterator's position, as the node's output.
    Save,
    /// To move to a saved position.
    Restore(Arc<Position>),
}

/// The declared types and shapes of an iterator's elements.
#[derive(Clone)]
pub(super) struct Signature {
    pub dtypes: Vec<DType>,
    pub shapes: Vec<PartialShape>,
}

impl Signature {
    pub(super) fn new(builder: &KernelBuilder<'_>) -> Result<Signature> {
        let (dtypes, shapes) = (builder.attrs().dtypes("output_types")?, builder.attrs().shapes("output_shapes")?);
        if dtypes.len() != shapes.len() {
            return Err(Status::invalid_argument("`output_shapes` must be the same length as `output_types`"));
        }
        Ok(Signature { dtypes, shapes })
    }

    pub(super) fn iterator(&self) -> IteratorResource {
        IteratorResource::new(self.clone())
    }

    /// Refuses types and shapes that the elements don't have; empty lists accept any.
    pub(super) fn check_promise(&self, dtypes: &[DType], shapes: &[PartialShape]) -> Result<()> {
        let check_count = |count: usize, own: usize, what: &str| match count == 0 || count == own {
            true => Ok(()),
            false => Err(Status::invalid_argument(format!(
                "Number of components does not match: expected {count} {what} but got {own}."
            ))),
        };
        check_count(dtypes.len(), self.dtypes.len(), "types")?;
        if let Some((index, (dtype, own))) = dtypes.iter().zip(&self.dtypes).enumerate().find(|(_, (a, b))| a != b) {
            return Err(Status::invalid_argument(format!(
                "Data type mismatch at component {index}: expected {dtype} but got {own}."
            )));
        }
        check_count(shapes.len(), self.shapes.len(), "shapes")?;
        let mut pairs = shapes.iter().zip(&self.shapes).enumerate();
        match pairs.find(|(_, (shape, own))| shape.merge(own).is_err()) {
            Some((index, (shape, own))) => Err(Status::invalid_argument(format!(
                "Incompatible shapes at component {index}: expected {shape} but got {own}."
            ))),
            None => Ok(()),
        }
    }
}

/// An iterator with declared element types and shapes.
pub(super) trait HasSignature {
    fn signature(&self) -> &Signature;
}

impl HasSignature for IteratorResource {
    fn signature(&self) -> &Signature {
        &self.signature
    }
}

/// An iterator over the dataset that it was last given.
pub(super) struct IteratorResource {
    signature: Signature,
    state: Mutex<State>,
}

struct State {
    /// `None` before a dataset is set, and while a request is being served.
    iterator: Option<Box<dyn DatasetIterator>>,
    /// The dataset, so that it can restart from a saved position.
    dataset: Option<Arc<dyn Dataset>>,
    /// Counts the datasets, so that an iterator that is returned after it was replaced is dropped.
    generation: u64,
    line: VecDeque<Request>,
    next_id: u64,
    is_busy: bool,
}

/// A waiting request.
struct Request {
    id: u64,
    context: AsyncContext,
    wish: Wish,
    /// Removes it from the line when its step is cancelled.
    token: Option<CancellationToken>,
}

impl IteratorResource {
    pub(super) fn new(signature: Signature) -> IteratorResource {
        let state =
            State { iterator: None, dataset: None, generation: 0, line: VecDeque::new(), next_id: 0, is_busy: false };
        IteratorResource { signature, state: Mutex::new(state) }
    }

    /// Starts at the first element of a dataset.
    pub(super) fn restart(&self, dataset: Arc<dyn Dataset>) -> Result<()> {
        let iterator = dataset.iterator(Nesting::outermost())?;
        let before = {
            let mut state = self.state.lock();
            state.generation += 1;
            (state.dataset.replace(dataset), state.iterator.replace(iterator))
        };
        drop(before);
        Ok(())
    }

    /// Makes a request; the node's work ends when it is served.
    pub(super) fn request(self: &Arc<Self>, context: AsyncContext, wish: Wish) {
        let cancellation = context.step().cancellation.clone();
        let (id, is_first) = {
            let mut state = self.state.lock();
            let id = state.next_id;
            state.next_id += 1;
            state.line.push_back(Request { id, context, wish, token: None });
            (id, !std::mem::replace(&mut state.is_busy, true))
        };
        if is_first {
            return self.clone().go_on();
        }
        // The previous one may take long, and a request that is cancelled meanwhile doesn't wait for it.
        let iterator = Arc::downgrade(self);
        let registered = cancellation.register(move |_| {
            if let Some(iterator) = iterator.upgrade() {
                iterator.cancel(id);
            }
        });
        match registered {
            Err(_) => self.cancel(id),
            Ok(token) => {
                let mut state = self.state.lock();
                match state.line.iter_mut().find(|request| request.id == id) {
                    Some(request) => request.token = Some(token),
                    None => {
                        drop(state);
                        cancellation.deregister(token);
                    }
                }
            }
        }
    }

    /// Ends a request that is still in line.
    fn cancel(&self, id: u64) {
        let request = {
            let mut state = self.state.lock();
            let position = state.line.iter().position(|request| request.id == id);
            position.and_then(|position| state.line.remove(position))
        };
        if let Some(request) = request {
            request.context.finish(Err(cancelled_status()));
        }
    }

    fn go_on(self: Arc<Self>) {
        start(self.serve());
    }

    /// Serves the first request in line.
    async fn serve(self: Arc<Self>) {
        let (request, iterator, dataset, generation) = {
            let mut state = self.state.lock();
            (state.line.pop_front(), state.iterator.take(), state.dataset.clone(), state.generation)
        };
        let Some(Request { context, wish, token, .. }) = request else {
            let mut state = self.state.lock();
            state.is_busy = false;
            if state.generation == generation {
                state.iterator = iterator;
            }
            return;
        };
        let step = context.step().clone();
        if let Some(token) = token {
            step.cancellation.deregister(token);
        }
        let (iterator, answer) = match (iterator, dataset) {
            (Some(iterator), Some(dataset)) => granted(&wish, iterator, &*dataset, &step).await,
            _ => (None, Err(not_initialized(&wish))),
        };
        let (dropped, goes_on) = {
            let mut state = self.state.lock();
            let dropped = match state.generation == generation {
                true => {
                    state.iterator = iterator;
                    None
                }
                false => iterator,
            };
            state.is_busy = !state.line.is_empty();
            (dropped, state.is_busy)
        };
        drop(dropped);
        if goes_on {
            let next = self.clone();
            // The receiver of this element may be busy with it for a while.
            step.runner.spawn(Box::new(move || next.go_on()));
        }
        let answer = answer.and_then(|answer| self.checked(answer));
        context.finish_with(|context| match answer? {
            Answer::Next(deliver, element) => deliver(context, element),
            Answer::Saved(position) => {
                context.set_output(0, position.into_tensor()?);
                Ok(())
            }
            Answer::Restored => Ok(()),
        });
    }

    fn checked(&self, answer: Answer) -> Result<Answer> {
        if let Answer::Next(_, Some(parts)) = &answer {
            check_element(&self.signature, parts)?;
        }
        Ok(answer)
    }
}

/// Checks an element against its declaration.
pub(super) fn check_element(signature: &Signature, parts: &[Tensor]) -> Result<()> {
    if parts.len() != signature.dtypes.len() {
        return Err(Status::invalid_argument(format!(
            "Number of components does not match: expected {} types but got {}.",
            signature.dtypes.len(),
            parts.len()
        )));
    }
    for (index, (part, dtype)) in parts.iter().zip(&signature.dtypes).enumerate() {
        if part.dtype() != *dtype {
            return Err(Status::invalid_argument(format!(
                "Data type mismatch at component {index}: expected {dtype} but got {}.",
                part.dtype()
            )));
        }
    }
    for (index, (part, shape)) in parts.iter().zip(&signature.shapes).enumerate() {
        if !shape.is_compatible_with(part.shape()) {
            return Err(Status::invalid_argument(format!(
                "Incompatible shapes at component {index}: expected {shape} but got {}.",
                part.shape()
            )));
        }
    }
    Ok(())
}

/// The result of a request.
enum Answer {
    Next(Deliver, Option<Element>),
    Saved(Position),
    Restored,
}

/// Serves a request, and returns the iterator that takes this one's place.
async fn granted(
    wish: &Wish,
    mut iterator: Box<dyn DatasetIterator>,
    dataset: &dyn Dataset,
    step: &Arc<Step>,
) -> (Option<Box<dyn DatasetIterator>>, Result<Answer>) {
    let answer = match wish {
        Wish::Next(deliver) => iterator.next(step).await.map(|element| Answer::Next(*deliver, element)),
        Wish::Save => iterator.save(step).await.map(Answer::Saved),
        Wish::Restore(position) => match restored(position, dataset, step).await {
            Ok(moved) => return (Some(moved), Ok(Answer::Restored)),
            Err(status) => Err(status),
        },
    };
    (Some(iterator), answer)
}

async fn restored(position: &Position, dataset: &dyn Dataset, step: &Arc<Step>) -> Result<Box<dyn DatasetIterator>> {
    let mut iterator = dataset.iterator(Nesting::outermost())?;
    iterator.restore(position, step).await?;
    Ok(iterator)
}

fn not_initialized(wish: &Wish) -> Status {
    let (call, purpose) = match wish {
        Wish::Next(_) => ("GetNext()", "getting the next element"),
        Wish::Save => ("Save()", "saving it"),
        Wish::Restore(_) => ("Restore()", "restoring it"),
    };
    Status::failed_precondition(format!(
        "{call} failed because the iterator has not been initialized. Ensure that you have run the initializer operation for \
         this iterator before {purpose}."
    ))
}

impl Resource for IteratorResource {
    fn type_name(&self) -> &'static str {
        "N10tensorflow4data16IteratorResourceE"
    }

    fn describe(&self) -> String {
        let state = if self.state.lock().dataset.is_some() { "at work" } else { "not initialized" };
        format!("iterator over {} components, {state}", self.signature.dtypes.len())
    }
}
