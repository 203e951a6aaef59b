//! PrefetchDataset: computes elements ahead of time.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, argument, dataset_op,
    input_dataset, shared_dataset_kernel,
};
use super::position::{Position, Restoring, Saving};
use super::task::{Fulfil, background, or_cancelled, promise, start, turn};
use kernel::{Cancellation, KernelDef, Op, OpFlags, Step};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{Result, Status};

/// The default buffer size.
const DEFAULT_BUFFER_SIZE: usize = 2;

/// The largest buffer.
const MAX_BUFFER_SIZE: i64 = 1 << 20;

/// The ops of this file.
pub(super) const OPS: &[Op] = &[dataset_op(
    "PrefetchDataset",
    &[INPUT, "buffer_size: int64"],
    &[TYPES, SHAPES, "slack_period: int = 0", "legacy_autotune: bool = true", "buffer_size_min: int = 0", METADATA],
    OpFlags::NONE,
    &[KernelDef::any(|_| {
        shared_dataset_kernel(|context| {
            let input = input_dataset(context, 0)?;
            Ok(match argument::<i64>(context, 1, "buffer_size")? {
                0 => input,
                -1 => Arc::new(Prefetch { input, size: DEFAULT_BUFFER_SIZE }),
                size if size > 0 => Arc::new(Prefetch { input, size: size.min(MAX_BUFFER_SIZE) as usize }),
                _ => {
                    return Err(Status::invalid_argument(
                        "buffer_size must be >= 0 or set buffer_size to be -1 for auto-tuning",
                    ));
                }
            })
        })
    })],
)];

struct Prefetch {
    input: Arc<dyn Dataset>,
    size: usize,
}

impl Dataset for Prefetch {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let input = Some(self.input.iterator(nesting.deeper()?)?);
        let state =
            State { input, buffer: VecDeque::new(), waiting: None, ended: false, filling: None, is_paused: false };
        let shared = Shared { size: self.size, state: Mutex::new(state) };
        Ok(Box::new(PrefetchIterator { shared: Arc::new(shared) }))
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }
}

struct PrefetchIterator {
    shared: Arc<Shared>,
}

struct Shared {
    size: usize,
    state: Mutex<State>,
}

struct State {
    /// `None` while the buffer is being filled.
    input: Option<Box<dyn DatasetIterator>>,
    buffer: VecDeque<Result<Element>>,
    waiting: Option<Fulfil<()>>,
    ended: bool,
    /// Stops the filling.
    filling: Option<Cancellation>,
    /// Whether the input is wanted back for a while: then the element in progress is the last.
    is_paused: bool,
}

impl DatasetIterator for PrefetchIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            loop {
                let (found, arrival) = {
                    let mut state = self.shared.state.lock();
                    let found = state.buffer.pop_front();
                    let arrival = match found.is_none() && !state.ended {
                        true => {
                            let (fulfil, arrival) = promise();
                            state.waiting = Some(fulfil);
                            Some(arrival)
                        }
                        false => None,
                    };
                    (found, arrival)
                };
                self.fill(step);
                match (found, arrival) {
                    (Some(element), _) => return element.map(Some),
                    (None, None) => return Ok(None),
                    (None, Some(arrival)) => {
                        if let Err(status) = or_cancelled(step, arrival).await {
                            // What it waited for may never arrive, and may never be requested again.
                            self.shared.stop(&status);
                            return Err(status);
                        }
                    }
                }
            }
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(async move {
            let mut input = self.paused(step).await?;
            let position = {
                let state = self.shared.state.lock();
                let position = Position::of::<Self>().flag(state.ended).size(state.buffer.len());
                let results = state.buffer.iter().map(|element| element.clone().map(Some));
                results.fold(position, |position, result| position.result(&result))
            };
            let position = position.within(&mut *input, step).await;
            self.shared.state.lock().input = Some(input);
            position
        })
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            let mut input = self.paused(step).await?;
            {
                let mut state = self.shared.state.lock();
                state.ended = reader.flag()?;
                for _ in 0..reader.size()? {
                    state.buffer.push_back(reader.result()?.map(Option::unwrap_or_default));
                }
            }
            reader.within(&mut *input, step).await?;
            self.shared.state.lock().input = Some(input);
            Ok(())
        })
    }
}

impl PrefetchIterator {
    /// Takes the input back, once the buffer is no longer being filled from it.
    async fn paused(&self, step: &Arc<Step>) -> Result<Box<dyn DatasetIterator>> {
        loop {
            let arrival = {
                let mut state = self.shared.state.lock();
                if let Some(input) = state.input.take() {
                    state.is_paused = false;
                    return Ok(input);
                }
                state.is_paused = true;
                let (fulfil, arrival) = promise();
                state.waiting = Some(fulfil);
                arrival
            };
            if let Err(status) = or_cancelled(step, arrival).await {
                self.shared.state.lock().is_paused = false;
                return Err(status);
            }
        }
    }

    /// Starts to fill the buffer in the background, unless it is being filled.
    fn fill(&self, step: &Arc<Step>) {
        let started = {
            let mut state = self.shared.state.lock();
            let input = match state.buffer.len() < self.shared.size && !state.ended {
                true => state.input.take(),
                false => None,
            };
            input.map(|input| (input, state.filling.insert(Cancellation::new()).clone()))
        };
        if let Some((input, cancellation)) = started {
            let within = background(step, cancellation);
            let shared = self.shared.clone();
            step.runner.spawn(Box::new(move || start(shared.fill(input, within))));
        }
    }
}

impl Shared {
    /// Stops the filling, if it is in progress.
    fn stop(&self, reason: &Status) {
        let filling = self.state.lock().filling.take();
        if let Some(filling) = filling {
            filling.cancel(reason.clone());
        }
    }

    async fn fill(self: Arc<Self>, input: Box<dyn DatasetIterator>, step: Arc<Step>) {
        let mut input = Some(input);
        while let Some(mut current) = input.take() {
            let next = match turn(&step).await {
                Ok(()) => current.next(&step).await,
                Err(status) => Err(status),
            };
            let waiting = {
                let mut state = self.state.lock();
                let is_stopped = step.cancellation.is_cancelled();
                let is_error = next.is_err();
                match next.transpose() {
                    // Not an error of the dataset: the next request continues where this one was stopped.
                    Some(Err(_)) if is_stopped => {}
                    Some(element) => state.buffer.push_back(element),
                    None => state.ended = true,
                }
                // After an error the reader decides whether to continue.
                if state.ended || is_error || state.buffer.len() >= self.size || is_stopped || state.is_paused {
                    state.input = Some(current);
                } else {
                    input = Some(current);
                }
                state.waiting.take()
            };
            if let Some(waiting) = waiting {
                // The reader may have a lot to do with the element, and filling continues meanwhile.
                step.runner.spawn(Box::new(move || waiting.set(())));
            }
        }
    }
}

impl Drop for PrefetchIterator {
    fn drop(&mut self) {
        self.shared.stop(&Status::cancelled("the iterator was destroyed"));
    }
}
