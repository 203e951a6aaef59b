//! GeneratorDataset: a dataset whose elements come from functions with a shared state, as in `from_generator`.

use super::base::{Dataset, DatasetIterator, METADATA, Nesting, Next, SHAPES, TYPES, dataset_kernel, dataset_op};
use super::functional::{CapturedFunction, CapturedFunctionDef};
use super::task::background;
use kernel::{Cancellation, KernelDef, Op, OpFlags, Step};
use std::sync::Arc;
use tensor::{Code, Result, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[dataset_op(
    "GeneratorDataset",
    &[
        "init_func_other_args: Tinit_func_args",
        "next_func_other_args: Tnext_func_args",
        "finalize_func_other_args: Tfinalize_func_args",
    ],
    &[
        "init_func: func",
        "next_func: func",
        "finalize_func: func",
        "Tinit_func_args: list(type) >= 0",
        "Tnext_func_args: list(type) >= 0",
        "Tfinalize_func_args: list(type) >= 0",
        TYPES,
        SHAPES,
        METADATA,
    ],
    OpFlags::STATEFUL,
    &[KernelDef::any(|builder| {
        let init = CapturedFunctionDef::with_inputs(builder, "init_func", "init_func_other_args")?;
        let next = CapturedFunctionDef::with_inputs(builder, "next_func", "next_func_other_args")?;
        let finalize = CapturedFunctionDef::with_inputs(builder, "finalize_func", "finalize_func_other_args")?;
        dataset_kernel(move |context| {
            let functions =
                Functions { init: init.bind(context)?, next: next.bind(context)?, finalize: finalize.bind(context)? };
            Ok(Generator { functions: Arc::new(functions) })
        })
    })],
)];

struct Functions {
    init: CapturedFunction,
    next: CapturedFunction,
    finalize: CapturedFunction,
}

struct Generator {
    functions: Arc<Functions>,
}

impl Dataset for Generator {
    fn iterator(&self, _: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(GeneratorIterator { functions: self.functions.clone(), state: State::New }))
    }
}

enum State {
    New,
    /// The result of `init_func`, and a step in which it can be finalized when the iterator is dropped.
    Open(Vec<Tensor>, Arc<Step>),
    Ended,
}

struct GeneratorIterator {
    functions: Arc<Functions>,
    state: State,
}

impl DatasetIterator for GeneratorIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            if let State::New = self.state {
                let state = self.functions.init.call(Vec::new(), step).await?;
                self.state = State::Open(state, background(step, Cancellation::new()));
            }
            let State::Open(state, _) = &self.state else { return Ok(None) };
            match self.functions.next.call(state.clone(), step).await {
                Ok(element) => Ok(Some(element)),
                Err(status) if status.code() == Code::OutOfRange => {
                    let state = state.clone();
                    self.state = State::Ended;
                    self.functions.finalize.call(state, step).await?;
                    Ok(None)
                }
                Err(status) => Err(status),
            }
        })
    }
}

impl Drop for GeneratorIterator {
    fn drop(&mut self) {
        if let State::Open(state, step) = std::mem::replace(&mut self.state, State::Ended) {
            // Nobody waits for it or gets its error.
            drop(self.functions.finalize.call_elsewhere(state, &step));
        }
    }
}
