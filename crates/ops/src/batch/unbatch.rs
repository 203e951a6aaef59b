//! Unbatch: gives each step its own rows of a batch.
//!
//! One of the steps in a batch has the whole tensor, and the others only have the key of their rows. The tensor or the step waits
//! for the other, but not longer than the op's timeout.

use super::batch_ops::without_row_count;
use super::table_rows::{num_rows, split_rows};
use graph::ShapeContext;
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, CancellationToken, Gradient, JobRunner, KernelDef, Op, OpContext, OpDef,
    OpFlags, Resource,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::{Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "Unbatch",
        inputs: &["batched_tensor: T", "batch_index: int64", "id: int64"],
        outputs: &["unbatched_tensor: T"],
        attrs: &["timeout_micros: int", "container: string = ''", "shared_name: string = ''", "T: type"],
        flags: OpFlags::NONE,
    },
    shape: unbatch_shape,
    gradient: Gradient::Unsupported,
    kernels: &[KernelDef::any(|builder| {
        let (container, name) = builder.resource_name();
        let timeout = builder.attrs().int("timeout_micros")?;
        let timeout = Duration::from_micros(u64::try_from(timeout).unwrap_or(0));
        BoxedKernel::new_async(Unbatch { container, name, timeout })
    })],
}];

fn unbatch_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = without_row_count(c, 0)?;
    c.set_output(0, shape);
    Ok(())
}

/// The key, the first row and the end of the rows, for each step in a batch.
pub(super) fn index_rows(index: &Tensor) -> Result<Vec<(i64, i64, i64)>> {
    let dims = index.dims();
    if dims.len() != 2 || dims[1] != 3 {
        return Err(Status::invalid_argument(format!(
            "Wrong shape for index tensor. Expected 1st dimension size to be 3 ; Got: {}. It has shape {}",
            index.dims().get(1).copied().unwrap_or(0),
            index.shape()
        )));
    }
    Ok(index.as_slice::<i64>()?.chunks_exact(3).map(|row| (row[0], row[1], row[2])).collect())
}

/// Returns the key of an input that must be a scalar.
pub(super) fn key(context: &OpContext<'_>, input: usize) -> Result<i64> {
    let id = context.input(input)?;
    if !id.shape().is_scalar() {
        return Err(Status::invalid_argument(format!("Input id should be scalar; Got: {}.", id.shape())));
    }
    id.to_scalar()
}

struct Unbatch {
    container: String,
    name: String,
    timeout: Duration,
}

impl AsyncKernel for Unbatch {
    fn compute(&self, mut context: AsyncContext) {
        let prepared = self.prepare(&context.op());
        match prepared {
            Ok((unbatcher, key, pieces)) => unbatcher.exchange(context, key, pieces),
            Err(status) => context.finish(Err(status)),
        }
    }
}

type Pieces = Vec<(i64, Tensor)>;

impl Unbatch {
    fn prepare(&self, context: &OpContext<'_>) -> Result<(Arc<Unbatcher>, i64, Pieces)> {
        let (batch, index) = (context.input(0)?, context.input(1)?);
        let rows = index_rows(index)?;
        let batch_rows = num_rows(batch)?;
        if rows.len() > batch_rows {
            return Err(Status::invalid_argument(format!(
                "Wrong shape for index tensor. Expected 0th dimension size to be no greater than {batch_rows}; Got: {}.",
                rows.len()
            )));
        }
        let key = key(context, 2)?;
        let mut pieces = Pieces::new();
        if !rows.is_empty() {
            let size =
                |&(_, start, end): &(i64, i64, i64)| end.checked_sub(start).and_then(|size| size.try_into().ok());
            let sizes: Option<Vec<usize>> = rows.iter().map(size).collect();
            let sizes = sizes.ok_or_else(|| Status::invalid_argument("a range of rows ends before it starts"))?;
            pieces = rows.iter().map(|row| row.0).zip(split_rows(batch, &sizes)?).collect();
        }
        let create = || Ok(Unbatcher { timeout: self.timeout, state: Mutex::new(State::default()) });
        Ok((context.resources().lookup_or_create(&self.container, &self.name, create)?, key, pieces))
    }
}

/// Where steps and rows of batches wait for each other.
struct Unbatcher {
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tensors: HashMap<i64, (Instant, Tensor)>,
    steps: HashMap<i64, Waiting>,
    /// The time of the next check for expired waits.
    alarm: Option<Instant>,
}

struct Waiting {
    due: Instant,
    context: AsyncContext,
    token: Option<CancellationToken>,
}

impl Unbatcher {
    /// Takes the tensor of a key, or waits for it; passes rows to those that wait for them, and keeps the others.
    fn exchange(self: &Arc<Self>, context: AsyncContext, key: i64, pieces: Pieces) {
        let step = context.step().clone();
        let runner = step.runner.clone();
        let now = runner.now();
        // A timeout that the clock can't represent never expires; a day's wait is equivalent.
        let due = now.checked_add(self.timeout).unwrap_or(now + Duration::from_secs(86_400));
        let mut served: Vec<(Waiting, Result<Tensor>)> = Vec::new();
        {
            let mut state = self.state.lock();
            let mut own = Waiting { due, context, token: None };
            if let Some((_, tensor)) = state.tensors.remove(&key) {
                served.push((own, Ok(tensor)));
            } else if state.steps.contains_key(&key) {
                served.push((own, Err(Status::already_exists("Multiple session runs with the same batch key."))));
            } else if pieces.iter().any(|(key, _)| state.tensors.contains_key(key)) {
                served.push((own, Err(Status::already_exists("Multiple tensors returned for same batch key."))));
            } else {
                let mut own_piece = None;
                for (piece_key, piece) in pieces {
                    if piece_key == key {
                        own_piece = Some(piece);
                    } else if let Some(waiting) = state.steps.remove(&piece_key) {
                        served.push((waiting, Ok(piece)));
                    } else {
                        state.tensors.insert(piece_key, (due, piece));
                    }
                }
                match own_piece {
                    Some(piece) => served.push((own, Ok(piece))),
                    None => {
                        let unbatcher = Arc::downgrade(self);
                        // The lock is held, so that the callback finds the step whenever it runs.
                        let registered = step.cancellation.register(move |status| {
                            if let Some(unbatcher) = unbatcher.upgrade() {
                                unbatcher.give_up(key, status);
                            }
                        });
                        match registered {
                            Ok(token) => {
                                own.token = Some(token);
                                state.steps.insert(key, own);
                            }
                            Err(status) => served.push((own, Err(status))),
                        }
                    }
                }
            }
        }
        finish(served);
        self.set_alarm(&runner);
    }

    fn give_up(&self, key: i64, status: Status) {
        let waiting = self.state.lock().steps.remove(&key);
        finish(waiting.map(|waiting| (waiting, Err(status))).into_iter().collect());
    }

    /// Ends what has waited too long.
    fn expire(self: &Arc<Self>, runner: &Arc<dyn JobRunner>) {
        let now = runner.now();
        let mut expired = Vec::new();
        let mut tensors = Vec::new();
        {
            let mut state = self.state.lock();
            state.alarm = None;
            let late = || Status::deadline_exceeded("Batched data did not arrive within timeout window.");
            expired.extend(
                state.steps.extract_if(|_, waiting| waiting.due <= now).map(|(_, waiting)| (waiting, Err(late()))),
            );
            tensors.extend(state.tensors.extract_if(|_, (due, _)| *due <= now));
        }
        drop(tensors);
        finish(expired);
        self.set_alarm(runner);
    }

    /// Sees to it that somebody looks again when the first of those who wait has waited long enough.
    fn set_alarm(self: &Arc<Self>, runner: &Arc<dyn JobRunner>) {
        let delay = {
            let mut state = self.state.lock();
            // An existing alarm is for an earlier wait, so it is due first.
            if state.alarm.is_some() {
                return;
            }
            let steps = state.steps.values().map(|waiting| waiting.due);
            let Some(due) = steps.chain(state.tensors.values().map(|(due, _)| *due)).min() else { return };
            state.alarm = Some(due);
            due.saturating_duration_since(runner.now())
        };
        let (unbatcher, own) = (Arc::downgrade(self), runner.clone());
        runner.spawn_after(
            delay,
            Box::new(move || {
                if let Some(unbatcher) = unbatcher.upgrade() {
                    unbatcher.expire(&own);
                }
            }),
        );
    }
}

/// Ends the work of nodes, each on a thread of its step, since its continuation may take long.
fn finish(served: Vec<(Waiting, Result<Tensor>)>) {
    for (Waiting { context, token, .. }, result) in served {
        let step = context.step().clone();
        if let Some(token) = token {
            step.cancellation.deregister(token);
        }
        step.runner.spawn(Box::new(move || {
            context.finish_with(|context| {
                context.set_output(0, result?);
                Ok(())
            });
        }));
    }
}

impl Resource for Unbatcher {
    fn type_name(&self) -> &'static str {
        "N10tensorflow15UnbatchResourceE"
    }

    fn describe(&self) -> String {
        let state = self.state.lock();
        format!("unbatcher in which {} steps and {} tensors wait", state.steps.len(), state.tensors.len())
    }
}
