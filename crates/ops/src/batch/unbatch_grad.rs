//! UnbatchGrad: combines the gradients of many steps' rows into one tensor, for the step that had the whole batch.

use super::table_rows::{concat_rows, without_rows};
use super::unbatch::{index_rows, key};
use graph::ShapeContext;
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, CancellationToken, Gradient, KernelDef, Op, OpContext, OpDef, OpFlags,
    Resource,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tensor::{PartialShape, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "UnbatchGrad",
        inputs: &["original_input: T", "batch_index: int64", "grad: T", "id: int64"],
        outputs: &["batched_grad: T"],
        attrs: &["container: string = ''", "shared_name: string = ''", "T: type"],
        flags: OpFlags::NONE,
    },
    shape: unbatch_grad_shape,
    gradient: Gradient::Unsupported,
    kernels: &[KernelDef::any(|builder| {
        let (container, name) = builder.resource_name();
        BoxedKernel::new_async(UnbatchGrad { container, name })
    })],
}];

/// The most gradients that wait for a batch that may never arrive.
const WAITING_GRADIENTS_MAX: usize = 100_000;

fn unbatch_grad_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if let Some(rank) = c.input(2).rank() {
        c.set_output(0, PartialShape::unknown_of_rank(rank));
    }
    Ok(())
}

struct UnbatchGrad {
    container: String,
    name: String,
}

impl AsyncKernel for UnbatchGrad {
    fn compute(&self, mut context: AsyncContext) {
        let prepared = self.prepare(&context.op());
        match prepared {
            Ok(Prepared { gatherer, key, grad, wanted, empty }) => gatherer.gather(context, key, grad, wanted, empty),
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct Prepared {
    gatherer: Arc<Gatherer>,
    key: i64,
    grad: Tensor,
    /// The keys of the batch's rows, if this step had the batch.
    wanted: Option<Vec<i64>>,
    /// The output of a step without a batch.
    empty: Tensor,
}

impl UnbatchGrad {
    fn prepare(&self, context: &OpContext<'_>) -> Result<Prepared> {
        let (original, index, grad) = (context.input(0)?, context.input(1)?, context.input(2)?);
        let key = key(context, 3)?;
        let wanted = if original.num_elements() == 0 {
            None
        } else {
            if index.num_elements() == 0 {
                return Err(Status::invalid_argument("batch_index is empty while the tensor isn't."));
            }
            Some(index_rows(index)?.into_iter().map(|row| row.0).collect())
        };
        if grad.shape().is_scalar() {
            return Err(Status::invalid_argument("grad must have at least one dimension"));
        }
        let empty = without_rows(grad)?;
        let gatherer = context.resources().lookup_or_create(&self.container, &self.name, || Ok(Gatherer::default()))?;
        Ok(Prepared { gatherer, key, grad: grad.clone(), wanted, empty })
    }
}

/// Where gradients and the steps that need them wait for each other.
#[derive(Default)]
struct Gatherer {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    grads: HashMap<i64, Tensor>,
    /// The steps that wait for gradients, by their own keys.
    batches: HashMap<i64, Batch>,
}

struct Batch {
    wanted: Vec<i64>,
    context: AsyncContext,
    token: CancellationToken,
}

impl Gatherer {
    fn gather(
        self: &Arc<Self>,
        context: AsyncContext,
        key: i64,
        grad: Tensor,
        wanted: Option<Vec<i64>>,
        empty: Tensor,
    ) {
        let step = context.step().clone();
        let mut finished: Vec<(AsyncContext, Result<Tensor>)> = Vec::new();
        {
            let mut state = self.state.lock();
            let refused = state.refusal(key, wanted.as_deref());
            match (refused, wanted) {
                (Some(status), _) => finished.push((context, Err(status))),
                (None, wanted) => {
                    state.grads.insert(key, grad);
                    match wanted {
                        None => finished.push((context, Ok(empty))),
                        Some(wanted) => {
                            let gatherer = Arc::downgrade(self);
                            // The lock is held, so that the callback finds the step whenever it runs.
                            let registered = step.cancellation.register(move |status| {
                                if let Some(gatherer) = gatherer.upgrade() {
                                    gatherer.give_up(key, status);
                                }
                            });
                            match registered {
                                Ok(token) => drop(state.batches.insert(key, Batch { wanted, context, token })),
                                Err(status) => finished.push((context, Err(status))),
                            }
                        }
                    }
                    finished.extend(state.complete_with(key));
                }
            }
        }
        for (context, result) in finished {
            let runner = context.step().runner.clone();
            runner.spawn(Box::new(move || {
                context.finish_with(|context| {
                    context.set_output(0, result?);
                    Ok(())
                });
            }));
        }
    }

    fn give_up(&self, key: i64, status: Status) {
        let batch = {
            let mut state = self.state.lock();
            state.grads.remove(&key);
            state.batches.remove(&key)
        };
        if let Some(batch) = batch {
            batch.context.finish(Err(status));
        }
    }
}

impl State {
    /// Returns why a step can't take part.
    fn refusal(&self, key: i64, wanted: Option<&[i64]>) -> Option<Status> {
        if self.grads.contains_key(&key) || self.batches.contains_key(&key) {
            return Some(Status::invalid_argument("Two runs with the same batch key."));
        }
        if self.grads.len() >= WAITING_GRADIENTS_MAX {
            return Some(Status::resource_exhausted(format!(
                "{WAITING_GRADIENTS_MAX} gradients wait for their batches"
            )));
        }
        let others: Vec<i64> = self.batches.values().flat_map(|batch| &batch.wanted).copied().collect();
        let mut seen = std::collections::HashSet::new();
        let wanted_twice = wanted.unwrap_or_default().iter().any(|key| others.contains(key) || !seen.insert(*key));
        wanted_twice.then(|| Status::invalid_argument("Missing tensor wanted by more than one batch."))
    }

    /// Returns the step whose batch is complete with the gradient of this key, or that has this key itself.
    fn complete_with(&mut self, key: i64) -> Option<(AsyncContext, Result<Tensor>)> {
        let is_ready = |own: &i64, batch: &Batch| {
            (*own == key || batch.wanted.contains(&key)) && batch.wanted.iter().all(|key| self.grads.contains_key(key))
        };
        let own = self.batches.iter().find(|(own, batch)| is_ready(own, batch)).map(|(own, _)| *own)?;
        let Batch { wanted, context, token } = self.batches.remove(&own)?;
        context.step().cancellation.deregister(token);
        let parts: Vec<Tensor> = wanted.iter().filter_map(|key| self.grads.remove(key)).collect();
        Some((context, concat_rows(&parts)))
    }
}

impl Resource for Gatherer {
    fn type_name(&self) -> &'static str {
        "N10tensorflow19UnbatchGradResourceE"
    }

    fn describe(&self) -> String {
        let state = self.state.lock();
        format!("{} gradients and {} batches that wait for each other", state.grads.len(), state.batches.len())
    }
}
