//! Datasets that group elements by a key: GroupByWindowDataset, GroupByReducerDataset.

use super::base::{
    Dataset, DatasetIterator, Element, INPUT, METADATA, Nesting, Next, SHAPES, TYPES, dataset_kernel, dataset_of,
    dataset_op, dataset_tensor, element_bytes, input_dataset,
};
use super::functional::{CapturedFunction, CapturedFunctionDef, not_the_end};
use super::position::{Position, Restoring, Saving};
use super::task::turn;
use super::window::Elements;
use kernel::{KernelBuilder, KernelDef, Op, OpFlags, Step};
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{DType, Result, Status, Tensor};

const KEY_ARGUMENTS: [&str; 2] =
    ["key_func_other_arguments: Tkey_func_other_arguments", "Tkey_func_other_arguments: list(type) >= 0"];
const REDUCE_ARGUMENTS: [&str; 2] =
    ["reduce_func_other_arguments: Treduce_func_other_arguments", "Treduce_func_other_arguments: list(type) >= 0"];
const SIZE_ARGUMENTS: [&str; 2] = [
    "window_size_func_other_arguments: Twindow_size_func_other_arguments",
    "Twindow_size_func_other_arguments: list(type) >= 0",
];
const INIT_ARGUMENTS: [&str; 2] =
    ["init_func_other_arguments: Tinit_func_other_arguments", "Tinit_func_other_arguments: list(type) >= 0"];
const FINALIZE_ARGUMENTS: [&str; 2] = [
    "finalize_func_other_arguments: Tfinalize_func_other_arguments",
    "Tfinalize_func_other_arguments: list(type) >= 0",
];
const WINDOW_INPUTS: &[&str] = &[INPUT, KEY_ARGUMENTS[0], REDUCE_ARGUMENTS[0], SIZE_ARGUMENTS[0]];
const REDUCER_INPUTS: &[&str] =
    &[INPUT, KEY_ARGUMENTS[0], INIT_ARGUMENTS[0], REDUCE_ARGUMENTS[0], FINALIZE_ARGUMENTS[0]];
const REDUCER_ATTRS: &[&str] = &[
    "key_func: func",
    "init_func: func",
    "reduce_func: func",
    "finalize_func: func",
    KEY_ARGUMENTS[1],
    INIT_ARGUMENTS[1],
    REDUCE_ARGUMENTS[1],
    FINALIZE_ARGUMENTS[1],
    TYPES,
    SHAPES,
];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    dataset_op(
        "GroupByWindowDataset",
        WINDOW_INPUTS,
        &[
            "key_func: func",
            "reduce_func: func",
            "window_size_func: func",
            KEY_ARGUMENTS[1],
            REDUCE_ARGUMENTS[1],
            SIZE_ARGUMENTS[1],
            TYPES,
            SHAPES,
            METADATA,
        ],
        OpFlags::NONE,
        WINDOW,
    ),
    dataset_op(
        "ExperimentalGroupByWindowDataset",
        WINDOW_INPUTS,
        &[
            "key_func: func",
            "reduce_func: func",
            "window_size_func: func",
            KEY_ARGUMENTS[1],
            REDUCE_ARGUMENTS[1],
            SIZE_ARGUMENTS[1],
            TYPES,
            SHAPES,
        ],
        OpFlags::NONE,
        WINDOW,
    ),
    dataset_op("GroupByReducerDataset", REDUCER_INPUTS, REDUCER_ATTRS, OpFlags::STATEFUL, REDUCER),
    dataset_op("ExperimentalGroupByReducerDataset", REDUCER_INPUTS, REDUCER_ATTRS, OpFlags::STATEFUL, REDUCER),
];

const WINDOW: &[KernelDef] = &[KernelDef::any(|builder| {
    let (key, reduce) = (function(builder, "key_func")?, function(builder, "reduce_func")?);
    let window_size = function(builder, "window_size_func")?;
    dataset_kernel(move |context| {
        Ok(GroupByWindow {
            input: input_dataset(context, 0)?,
            key: key.bind(context)?,
            reduce: reduce.bind(context)?,
            window_size: window_size.bind(context)?,
        })
    })
})];
const REDUCER: &[KernelDef] = &[KernelDef::any(|builder| {
    let (key, init) = (function(builder, "key_func")?, function(builder, "init_func")?);
    let (reduce, finalize) = (function(builder, "reduce_func")?, function(builder, "finalize_func")?);
    dataset_kernel(move |context| {
        Ok(GroupByReducer {
            input: input_dataset(context, 0)?,
            key: key.bind(context)?,
            init: init.bind(context)?,
            reduce: reduce.bind(context)?,
            finalize: finalize.bind(context)?,
        })
    })
})];

fn function(builder: &KernelBuilder<'_>, name: &str) -> Result<CapturedFunctionDef> {
    CapturedFunctionDef::with_inputs(builder, name, &format!("{name}_other_arguments"))
}

/// Calls a function that returns a number.
async fn number(name: &str, function: &CapturedFunction, args: Element, step: &Arc<Step>) -> Result<i64> {
    let results = function.call(args, step).await.map_err(not_the_end)?;
    match &results[..] {
        [number] if number.dtype() == DType::Int64 && number.num_elements() == 1 => number.to_scalar(),
        _ => Err(Status::invalid_argument(format!("`{name}` must return a scalar int64."))),
    }
}

struct GroupByWindow {
    input: Arc<dyn Dataset>,
    key: CapturedFunction,
    reduce: CapturedFunction,
    window_size: CapturedFunction,
}

impl Dataset for GroupByWindow {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(GroupByWindowIterator {
            input: Some(self.input.iterator(nesting.deeper()?)?),
            key: self.key.own(&nesting)?,
            reduce: self.reduce.own(&nesting)?,
            window_size: self.window_size.own(&nesting)?,
            groups: BTreeMap::new(),
            sizes: BTreeMap::new(),
            bytes: 0,
            current: None,
            nesting,
        }))
    }
}

struct GroupByWindowIterator {
    input: Option<Box<dyn DatasetIterator>>,
    key: CapturedFunction,
    reduce: CapturedFunction,
    window_size: CapturedFunction,
    groups: BTreeMap<i64, Vec<Element>>,
    /// The window size of a key, which is computed once.
    sizes: BTreeMap<i64, usize>,
    bytes: usize,
    current: Option<Box<dyn DatasetIterator>>,
    nesting: Nesting,
}

impl GroupByWindowIterator {
    /// Adds an element; returns its key if the window is now full.
    async fn gather(&mut self, element: Element, step: &Arc<Step>) -> Result<Option<i64>> {
        let key = number("key_func", &self.key, element.clone(), step).await?;
        let size = match self.sizes.get(&key) {
            Some(&size) => size,
            None => {
                let size = number("window_size_func", &self.window_size, vec![Tensor::scalar(key)], step).await?;
                let size = usize::try_from(size).ok().filter(|&size| size > 0).ok_or_else(|| {
                    Status::invalid_argument(format!("Window size must be greater than zero, but got {size}."))
                })?;
                self.bytes = self.bytes.saturating_add(size_of::<(i64, usize)>());
                self.sizes.insert(key, size);
                size
            }
        };
        self.bytes = self.bytes.saturating_add(element_bytes(&element));
        tensor::check_elements_fit(self.bytes, 1)?;
        let group = self.groups.entry(key).or_default();
        group.push(element);
        Ok((group.len() == size).then_some(key))
    }

    /// Continues with the dataset that is computed from a group.
    async fn flush(&mut self, key: i64, step: &Arc<Step>) -> Result<()> {
        let group = self.groups.remove(&key).unwrap_or_default();
        self.bytes = group.iter().map(element_bytes).fold(self.bytes, usize::saturating_sub);
        let window = dataset_tensor(Arc::new(Elements(Arc::new(group))), Nesting::default());
        let results = self.reduce.call(vec![Tensor::scalar(key), window], step).await.map_err(not_the_end)?;
        let [dataset] = &results[..] else {
            return Err(Status::invalid_argument("`reduce_func` must return a single dataset."));
        };
        self.current = Some(dataset_of(dataset)?.iterator(self.nesting.deeper()?)?);
        Ok(())
    }
}

impl DatasetIterator for GroupByWindowIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            loop {
                turn(step).await?;
                if let Some(current) = &mut self.current {
                    match current.next(step).await? {
                        Some(element) => return Ok(Some(element)),
                        None => self.current = None,
                    }
                } else if let Some(input) = &mut self.input {
                    match input.next(step).await? {
                        Some(element) => {
                            if let Some(key) = self.gather(element, step).await? {
                                self.flush(key, step).await?;
                            }
                        }
                        None => self.input = None,
                    }
                } else if let Some((&key, _)) = self.groups.first_key_value() {
                    self.flush(key, step).await?;
                } else {
                    return Ok(None);
                }
            }
        })
    }
}

struct GroupByReducer {
    input: Arc<dyn Dataset>,
    key: CapturedFunction,
    init: CapturedFunction,
    reduce: CapturedFunction,
    finalize: CapturedFunction,
}

impl Dataset for GroupByReducer {
    fn iterator(&self, nesting: Nesting) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(GroupByReducerIterator {
            input: Some(self.input.iterator(nesting.deeper()?)?),
            key: self.key.own(&nesting)?,
            init: self.init.own(&nesting)?,
            reduce: self.reduce.own(&nesting)?,
            finalize: self.finalize.own(&nesting)?,
            states: BTreeMap::new(),
            bytes: 0,
        }))
    }
}

struct GroupByReducerIterator {
    input: Option<Box<dyn DatasetIterator>>,
    key: CapturedFunction,
    init: CapturedFunction,
    reduce: CapturedFunction,
    finalize: CapturedFunction,
    states: BTreeMap<i64, Element>,
    bytes: usize,
}

impl GroupByReducerIterator {
    async fn gather(&mut self, element: Element, step: &Arc<Step>) -> Result<()> {
        let key = number("key_func", &self.key, element.clone(), step).await?;
        let mut args = match self.states.remove(&key) {
            Some(state) => {
                self.bytes = self.bytes.saturating_sub(element_bytes(&state));
                state
            }
            None => self.init.call(vec![Tensor::scalar(key)], step).await.map_err(not_the_end)?,
        };
        args.extend(element);
        let state = self.reduce.call(args, step).await.map_err(not_the_end)?;
        self.bytes = self.bytes.saturating_add(element_bytes(&state));
        tensor::check_elements_fit(self.bytes, 1)?;
        self.states.insert(key, state);
        Ok(())
    }
}

impl DatasetIterator for GroupByReducerIterator {
    fn next<'a>(&'a mut self, step: &'a Arc<Step>) -> Next<'a> {
        Box::pin(async move {
            while let Some(input) = &mut self.input {
                turn(step).await?;
                match input.next(step).await? {
                    Some(element) => self.gather(element, step).await?,
                    None => self.input = None,
                }
            }
            match self.states.pop_first() {
                Some((_, state)) => self.finalize.call(state, step).await.map_err(not_the_end).map(Some),
                None => Ok(None),
            }
        })
    }

    fn save<'a>(&'a mut self, step: &'a Arc<Step>) -> Saving<'a> {
        Box::pin(async move {
            let position = Position::of::<Self>().size(self.states.len());
            let position =
                self.states.iter().fold(position, |position, (&key, state)| position.number(key).element(state));
            position.within_maybe(&mut self.input, step).await
        })
    }

    fn restore<'a>(&'a mut self, position: &'a Position, step: &'a Arc<Step>) -> Restoring<'a> {
        Box::pin(async move {
            let mut reader = position.read::<Self>()?;
            for _ in 0..reader.size()? {
                let (key, state) = (reader.number()?, reader.element()?);
                self.bytes = self.bytes.saturating_add(element_bytes(&state));
                self.states.insert(key, state);
            }
            reader.within_or_ended(&mut self.input, step).await
        })
    }
}
