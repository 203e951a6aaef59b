//! Datasets and values with a state that is carried from element to element: ScanDataset, ReduceDataset, DatasetToSingleElement.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, dataset_kernel, dataset_of,
    dataset_op, input_dataset,
};
use super::functional::{
    ARGUMENTS, CAPTURED, CARDINALITY, CapturedFunction, CapturedFunctionDef, mapped, mapped_cardinality,
};
use super::iterator_ops::{next_shape, set_components};
use super::position::{Position, Restoring, Saving};
use super::task::{start, turn};
use kernel::{AsyncContext, AsyncKernel, BoxedKernel, Gradient, KernelDef, Op, OpDef, OpFlags, Step};
use std::ops::Range;
use std::sync::Arc;
use tensor::{Result, Status};

const INITIAL: &str = "initial_state: Tstate";
const STATE: &str = "Tstate: list(type) >= 1";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op(
        "ScanDataset",
        &[INPUT, INITIAL, CAPTURED],
        &["f: func", STATE, ARGUMENTS, TYPES, SHAPES, CARDINALITY, "use_default_device: bool = true", METADATA],
        OpFlags::NONE,
        SCAN,
    ),
    dataset_op(
        "ExperimentalScanDataset",
        &[INPUT, INITIAL, CAPTURED],
        &["f: func", STATE, ARGUMENTS, TYPES, SHAPES, CARDINALITY],
        OpFlags::NONE,
        SCAN,
    ),
    Op {
        def: OpDef {
            name: "ReduceDataset",
            inputs: &[INPUT, INITIAL, CAPTURED],
            outputs: &["components: output_types"],
            attrs: &["f: func", STATE, ARGUMENTS, TYPES, SHAPES, "use_inter_op_parallelism: bool = true", METADATA],
            flags: OpFlags::STATEFUL,
        },
        shape: next_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            let (function, state) = (CapturedFunctionDef::new(builder, "f")?, builder.input_range("initial_state")?);
            BoxedKernel::new_async(ReduceDataset { function, state })
        })],
    },
    Op {
        def: OpDef {
            name: "DatasetToSingleElement",
            inputs: &["dataset: variant"],
            outputs: &["components: output_types"],
            attrs: &[TYPES, SHAPES, METADATA],
            flags: OpFlags::STATEFUL,
        },
        shape: next_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new_async(SingleElement))],
    },
];

const SCAN: &[KernelDef] = &[KernelDef::any(|builder| {
    let (captured, state) = (CapturedFunctionDef::new(builder, "f")?, builder.input_range("initial_state")?);
    let preserves = builder.attrs().bool("preserve_cardinality")?;
    dataset_kernel(move |context| {
        let initial = context.input_list(state.clone())?.into_iter().cloned().collect();
        let (input, function) = (input_dataset(context, 0)?, captured.bind(context)?);
        Ok(Scan { input, initial, function, preserves })
    })
})];

struct Scan {
    input: Arc<dyn Dataset>,
    initial: Element,
    function: CapturedFunction,
    preserves: bool,
}

impl Dataset for Scan {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        let function = self.function.own(&nesting)?;
        let input = self.input.iterator(nesting.deeper()?)?;
        Ok(Box::new(ScanIterator { input, state: self.initial.clone(), function, preserves: self.preserves }))
    }

    fn cardinality(&self) -> i64 {
        mapped_cardinality(&*self.input, self.preserves)
    }
}

struct ScanIterator {
    input: Box<dyn DatasetIterator>,
    state: Element,
    function: CapturedFunction,
    preserves: bool,
}

impl DatasetIterator for ScanIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            let Some(element) = self.input.next(step).await? else { return Ok(None) };
            let mut args = self.state.clone();
            args.extend(element);
            let results = self.function.call(args, step).await;
            let Some(mut results) = mapped(results, self.preserves)? else { return Ok(None) };
            if results.len() <= self.state.len() {
                return Err(Status::invalid_argument("the function of a scan must return its state and an element"));
            }
            for (index, (new, old)) in results.iter().zip(&self.state).enumerate() {
                if new.dtype() != old.dtype() {
                    return Err(Status::invalid_argument(format!(
                        "Expected component {index} of the state to be of type {}, but got {}",
                        old.dtype(),
                        new.dtype()
                    )));
                }
            }
            let output = results.split_off(self.state.len());
            self.state = results;
            Ok(Some(output))
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(Position::of::<Self>().element(&self.state).within(&mut *self.input, step))
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            self.state = reader.element()?;
            reader.within(&mut *self.input, step).await
        })
    }
}

/// Runs a future that computes a node's outputs.
pub(super) fn finish_with_elements(
    context: AsyncContext,
    work: impl Future<Output = Result<Element>> + Send + 'static,
) {
    start(async move {
        let element = work.await;
        context.finish_with(|context| set_components(context, element?));
    });
}

struct ReduceDataset {
    function: CapturedFunctionDef,
    state: Range<usize>,
}

impl AsyncKernel for ReduceDataset {
    fn compute(&self, mut context: AsyncContext) {
        let step = context.step().clone();
        let prepared = {
            let op = context.op();
            dataset_of(match op.input(0) {
                Ok(input) => input,
                Err(status) => return context.finish(Err(status)),
            })
            .and_then(|dataset| {
                let state = op.input_list(self.state.clone())?.into_iter().cloned().collect::<Element>();
                let nesting = Nesting::outermost();
                let function = self.function.bind(&op)?.own(&nesting)?;
                Ok((dataset.iterator(nesting)?, function, state))
            })
        };
        match prepared {
            Ok((input, function, state)) => finish_with_elements(context, reduced(input, function, state, step)),
            Err(status) => context.finish(Err(status)),
        }
    }
}

async fn reduced(
    mut input: Box<dyn DatasetIterator>,
    function: CapturedFunction,
    mut state: Element,
    step: Arc<Step>,
) -> Result<Element> {
    while let Some(element) = input.next(&step).await? {
        turn(&step).await?;
        let num_states = state.len();
        let mut args = state;
        args.extend(element);
        state = mapped(function.call(args, &step).await, true)?.unwrap_or_default();
        if state.len() != num_states {
            return Err(Status::invalid_argument(format!(
                "the function of a reduction must return {num_states} tensors, but it returned {}",
                state.len()
            )));
        }
    }
    Ok(state)
}

struct SingleElement;

impl AsyncKernel for SingleElement {
    fn compute(&self, mut context: AsyncContext) {
        let step = context.step().clone();
        let input = context.op().input(0).and_then(dataset_of).and_then(|it| it.iterator(Nesting::outermost()));
        match input {
            Ok(input) => finish_with_elements(context, single(input, step)),
            Err(status) => context.finish(Err(status)),
        }
    }
}

async fn single(mut input: Box<dyn DatasetIterator>, step: Arc<Step>) -> Result<Element> {
    let element = input.next(&step).await?.ok_or_else(|| Status::invalid_argument("Dataset was empty."))?;
    match input.next(&step).await? {
        Some(_) => Err(Status::invalid_argument("Dataset had more than one element.")),
        None => Ok(element),
    }
}
