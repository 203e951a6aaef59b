//! Staging areas by key: MapStage, MapUnstage, MapUnstageNoKey, MapPeek, MapSize, MapIncompleteSize, MapClear, and their ordered
//! versions.

use super::monitor::Monitor;
use super::stage::too_large;
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef,
    OpFlags, Resource, ShapeFn, shape,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{DType, Result, Status, Tensor};

const CAPACITY: &str = "capacity: int >= 0 = 0";
const MEMORY_LIMIT: &str = "memory_limit: int >= 0 = 0";
const CONTAINER: &str = "container: string = ''";
const SHARED_NAME: &str = "shared_name: string = ''";
const TYPED: &[&str] = &[CAPACITY, MEMORY_LIMIT, "dtypes: list(type) >= 1", CONTAINER, SHARED_NAME];
const UNTYPED: &[&str] = &[CAPACITY, MEMORY_LIMIT, "dtypes: list(type)", CONTAINER, SHARED_NAME];
const STAGING: &[&str] =
    &[CAPACITY, MEMORY_LIMIT, "dtypes: list(type)", "fake_dtypes: list(type) >= 1", CONTAINER, SHARED_NAME];
const STAGED: &[&str] = &["key: int64", "indices: int32", "values: fake_dtypes"];
const BY_KEY: &[&str] = &["key: int64", "indices: int32"];
const INDICES: &[&str] = &["indices: int32"];
const VALUES: &[&str] = &["values: dtypes"];
const KEY_AND_VALUES: &[&str] = &["key: int64", "values: dtypes"];
const SIZE: &[&str] = &["size: int32"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    op("MapStage", STAGED, &[], STAGING, shape::unknown, STAGE),
    op("MapPeek", BY_KEY, VALUES, TYPED, shape::unknown, PEEK),
    op("MapUnstage", BY_KEY, VALUES, TYPED, shape::unknown, UNSTAGE),
    op("MapUnstageNoKey", INDICES, KEY_AND_VALUES, TYPED, shape::unknown, UNSTAGE_NO_KEY),
    op("MapSize", &[], SIZE, UNTYPED, shape::scalar, COMPLETE_SIZE),
    op("MapIncompleteSize", &[], SIZE, UNTYPED, shape::scalar, INCOMPLETE_SIZE),
    op("MapClear", &[], &[], UNTYPED, shape::unknown, CLEAR),
    op("OrderedMapStage", STAGED, &[], STAGING, shape::unknown, STAGE),
    op("OrderedMapPeek", BY_KEY, VALUES, TYPED, shape::unknown, PEEK),
    op("OrderedMapUnstage", BY_KEY, VALUES, TYPED, shape::unknown, UNSTAGE),
    op("OrderedMapUnstageNoKey", INDICES, KEY_AND_VALUES, TYPED, shape::unknown, UNSTAGE_NO_KEY),
    op("OrderedMapSize", &[], SIZE, UNTYPED, shape::scalar, COMPLETE_SIZE),
    op("OrderedMapIncompleteSize", &[], SIZE, UNTYPED, shape::scalar, INCOMPLETE_SIZE),
    op("OrderedMapClear", &[], &[], UNTYPED, shape::unknown, CLEAR),
];

const STAGE: &[KernelDef] = &[KernelDef::any(|builder| BoxedKernel::new_async(StageOp(Area::new(builder)?)))];
const PEEK: &[KernelDef] = &[KernelDef::any(|builder| TakeOp::create(builder, Take::Peek))];
const UNSTAGE: &[KernelDef] = &[KernelDef::any(|builder| TakeOp::create(builder, Take::ByKey))];
const UNSTAGE_NO_KEY: &[KernelDef] = &[KernelDef::any(|builder| TakeOp::create(builder, Take::First))];
const COMPLETE_SIZE: &[KernelDef] = &[KernelDef::any(|builder| SizeOp::create(builder, false))];
const INCOMPLETE_SIZE: &[KernelDef] = &[KernelDef::any(|builder| SizeOp::create(builder, true))];
const CLEAR: &[KernelDef] = &[KernelDef::any(|builder| BoxedKernel::new(ClearOp(Area::new(builder)?)))];

const fn op(
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    attrs: &'static [&'static str],
    shape: ShapeFn,
    kernels: &'static [KernelDef],
) -> Op {
    let def = OpDef { name, inputs, outputs, attrs, flags: OpFlags::STATEFUL };
    Op { def, shape, gradient: Gradient::NotDifferentiable, kernels }
}

/// A staging area by key among a device's resources.
struct StagingMap {
    capacity: usize,
    memory_limit: usize,
    components: usize,
    monitor: Arc<Monitor<Staged>>,
}

type Entry = Vec<Option<Tensor>>;

#[derive(Default)]
struct Staged {
    complete: BTreeMap<i64, Entry>,
    incomplete: BTreeMap<i64, Entry>,
    bytes: usize,
}

impl Resource for StagingMap {
    fn type_name(&self) -> &'static str {
        "N10tensorflow10StagingMapE"
    }

    fn describe(&self) -> String {
        format!("staging area of {} keys", self.monitor.look(|staged| staged.complete.len()))
    }
}

impl Staged {
    /// Adds components to a key. Each must be in range and not set yet.
    fn put(&mut self, key: i64, indices: &[usize], tensors: Vec<Tensor>, components: usize) -> Result<()> {
        let mut entry = match indices.len() == components {
            true => vec![None; components],
            false => self.incomplete.remove(&key).unwrap_or_else(|| vec![None; components]),
        };
        let taken = indices.iter().find(|&&index| entry[index].is_some()).copied();
        if let Some(index) = taken {
            self.incomplete.insert(key, entry);
            return Err(Status::invalid_argument(format!(
                "The tensor for index '{index}' for key '{key}' was already initialized '{components}'."
            )));
        }
        for (&index, tensor) in indices.iter().zip(tensors) {
            self.bytes += tensor.num_bytes();
            entry[index] = Some(tensor);
        }
        let entries = if entry.iter().all(Option::is_some) { &mut self.complete } else { &mut self.incomplete };
        if let Some(replaced) = entries.insert(key, entry) {
            self.bytes -= replaced.iter().flatten().map(Tensor::num_bytes).sum::<usize>();
        }
        Ok(())
    }

    /// Returns components of a key, and removes them unless it is a peek.
    fn take(&mut self, key: i64, indices: &[usize], removes: bool) -> Option<Result<Vec<Tensor>>> {
        let entry = self.complete.get_mut(&key)?;
        if let Some(index) = indices.iter().find(|&&index| entry[index].is_none()) {
            return Some(Err(Status::invalid_argument(format!(
                "Tensor at index '{index}' for key '{key}' has already been removed."
            ))));
        }
        let part = |index: &usize| if removes { entry[*index].take() } else { entry[*index].clone() };
        let tensors: Vec<Tensor> = indices.iter().filter_map(part).collect();
        if removes {
            self.bytes -= tensors.iter().map(Tensor::num_bytes).sum::<usize>();
            if entry.iter().all(Option::is_none) {
                self.complete.remove(&key);
            }
        }
        Some(Ok(tensors))
    }
}

/// Finds and creates a node's staging area.
struct Area {
    container: String,
    name: String,
    capacity: usize,
    memory_limit: usize,
    dtypes: Vec<DType>,
}

impl Area {
    fn new(builder: &KernelBuilder<'_>) -> Result<Area> {
        let (container, name) = builder.resource_name();
        let bound = |name: &str| -> Result<usize> {
            Ok(match builder.attrs().int(name)? {
                0 => usize::MAX,
                bound => usize::try_from(bound).unwrap_or(usize::MAX),
            })
        };
        Ok(Area {
            container,
            name,
            capacity: bound("capacity")?,
            memory_limit: bound("memory_limit")?,
            dtypes: builder.attrs().dtypes("dtypes")?,
        })
    }

    fn find(&self, context: &OpContext<'_>) -> Result<Arc<StagingMap>> {
        context.resources().lookup_or_create(&self.container, &self.name, || {
            Ok(StagingMap {
                capacity: self.capacity,
                memory_limit: self.memory_limit,
                components: self.dtypes.len(),
                monitor: Monitor::new(Staged::default()),
            })
        })
    }
}

fn key_argument(context: &OpContext<'_>) -> Result<i64> {
    let key = context.input(0)?;
    match key.as_slice::<i64>()? {
        [] => Err(Status::invalid_argument("key must not be empty")),
        [key] => Ok(*key),
        _ => Err(Status::invalid_argument(format!(
            "key must be an int64 scalar, got tensor with shape: {}",
            key.shape()
        ))),
    }
}

fn indices_argument(context: &OpContext<'_>, input: usize, key: i64, components: usize) -> Result<Vec<usize>> {
    let indices = context.input(input)?.as_slice::<i32>()?;
    if indices.is_empty() {
        return Err(Status::invalid_argument("Indices are empty"));
    }
    if indices.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(Status::invalid_argument("Indices are not strictly ordered"));
    }
    let checked = |&index: &i32| match usize::try_from(index) {
        Ok(index) if index < components => Ok(index),
        _ => {
            Err(Status::invalid_argument(format!("Index '{index}' for key '{key}' was out of bounds '{components}'.")))
        }
    };
    indices.iter().map(checked).collect()
}

struct StageOp(Area);

impl StageOp {
    fn prepare(&self, context: &mut OpContext<'_>) -> Result<(Arc<StagingMap>, i64, Vec<usize>, Vec<Tensor>)> {
        let map = self.0.find(context)?;
        let key = key_argument(context)?;
        let indices = indices_argument(context, 1, key, map.components)?;
        let tensors = (2..context.num_inputs()).map(|index| context.take_input(index)).collect::<Result<Vec<_>>>()?;
        if tensors.len() != indices.len() {
            return Err(Status::invalid_argument(format!(
                "{} values were given for {} indices",
                tensors.len(),
                indices.len()
            )));
        }
        for (&index, tensor) in indices.iter().zip(&tensors) {
            if self.0.dtypes.get(index).is_some_and(|dtype| *dtype != tensor.dtype()) {
                return Err(Status::invalid_argument(format!(
                    "Component {index} is {}, but the staging area holds {}",
                    tensor.dtype(),
                    self.0.dtypes[index]
                )));
            }
        }
        Ok((map, key, indices, tensors))
    }
}

impl AsyncKernel for StageOp {
    fn compute(&self, mut context: AsyncContext) {
        let (map, key, indices, tensors) = match self.prepare(&mut context.op()) {
            Ok(prepared) => prepared,
            Err(status) => return context.finish(Err(status)),
        };
        let bytes: usize = tensors.iter().map(Tensor::num_bytes).sum();
        let (capacity, memory_limit, components) = (map.capacity, map.memory_limit, map.components);
        if bytes > memory_limit {
            return context.finish(Err(too_large(bytes, memory_limit)));
        }
        let mut tensors = Some(tensors);
        map.monitor.submit(context, move |staged| {
            // Further parts of a tuple need no capacity, or the tuple might never be completed.
            let full = indices.len() == components && staged.complete.len() >= capacity;
            if full || staged.bytes + bytes > memory_limit {
                return None;
            }
            Some(staged.put(key, &indices, tensors.take()?, components).map(|()| Vec::new()))
        });
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Take {
    Peek,
    ByKey,
    First,
}

struct TakeOp {
    area: Area,
    take: Take,
}

impl TakeOp {
    fn create(builder: &KernelBuilder<'_>, take: Take) -> Result<BoxedKernel> {
        BoxedKernel::new_async(TakeOp { area: Area::new(builder)?, take })
    }

    fn prepare(&self, context: &OpContext<'_>) -> Result<(Arc<StagingMap>, i64, Vec<usize>)> {
        let map = self.area.find(context)?;
        let (key, input) = if self.take == Take::First { (0, 0) } else { (key_argument(context)?, 1) };
        let indices = indices_argument(context, input, key, map.components)?;
        if indices.len() != self.area.dtypes.len() {
            return Err(Status::invalid_argument(format!(
                "output/indices size mismatch: {} vs. {}",
                self.area.dtypes.len(),
                indices.len()
            )));
        }
        Ok((map, key, indices))
    }
}

impl AsyncKernel for TakeOp {
    fn compute(&self, mut context: AsyncContext) {
        let prepared = self.prepare(&context.op());
        let (map, key, indices) = match prepared {
            Ok(prepared) => prepared,
            Err(status) => return context.finish(Err(status)),
        };
        let take = self.take;
        map.monitor.submit(context, move |staged| {
            if take != Take::First {
                return staged.take(key, &indices, take == Take::ByKey);
            }
            let key = *staged.complete.first_key_value()?.0;
            let taken = staged.take(key, &indices, true)?;
            Some(taken.map(|tensors| std::iter::once(Tensor::scalar(key)).chain(tensors).collect()))
        });
    }
}

struct SizeOp {
    area: Area,
    incomplete: bool,
}

impl SizeOp {
    fn create(builder: &KernelBuilder<'_>, incomplete: bool) -> Result<BoxedKernel> {
        BoxedKernel::new(SizeOp { area: Area::new(builder)?, incomplete })
    }
}

impl Kernel for SizeOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let map = self.area.find(context)?;
        let len =
            map.monitor.look(|staged| if self.incomplete { staged.incomplete.len() } else { staged.complete.len() });
        context.set_output(0, Tensor::scalar(i32::try_from(len).unwrap_or(i32::MAX)));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct ClearOp(Area);

impl Kernel for ClearOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let staged = self.0.find(context)?.monitor.change(std::mem::take);
        drop(staged);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestSession, finished, waits};
    use graph::{Operation, Output};

    struct Map {
        session: TestSession,
        key: Output,
        indices: Output,
        value: Output,
    }

    const DTYPES: &[DType] = &[DType::Int32, DType::Int32];

    impl Map {
        fn new() -> Map {
            let session = TestSession::new();
            let (key, indices) = (session.placeholder(DType::Int64), session.placeholder(DType::Int32));
            Map { key, indices, value: session.placeholder(DType::Int32), session }
        }

        fn op(&self, op: &str, values: usize) -> Operation {
            let mut builder = self.session.graph.op(op).attr("dtypes", DTYPES).attr("shared_name", "map");
            builder = builder.attr("capacity", 1i64);
            if !op.ends_with("NoKey") && !op.ends_with("Size") {
                builder = builder.input(&self.key);
            }
            if !op.ends_with("Size") {
                builder = builder.input(&self.indices);
            }
            for _ in 0..values {
                builder = builder.input(&self.value);
            }
            builder.build()
        }

        fn feeds(&self, key: i64, indices: &[i32], value: i32) -> [(&Output, Tensor); 3] {
            [
                (&self.key, Tensor::scalar(key)),
                (&self.indices, Tensor::vector(indices)),
                (&self.value, Tensor::scalar(value)),
            ]
        }
    }

    #[test]
    fn tuples_are_completed_and_taken_by_key() {
        for prefix in ["", "Ordered"] {
            let map = Map::new();
            let name = |op: &str| format!("{prefix}{op}");
            let part = map.op(&name("MapStage"), 1);
            let take = map.op(&name("MapUnstage"), 0);
            let waiting = map.session.start(&take, &map.feeds(7, &[0, 1], 0)).unwrap();
            map.session.run(&part, &map.feeds(7, &[1], 20)).unwrap();
            assert!(waits(&waiting));
            let incomplete = map.op(&name("MapIncompleteSize"), 0).output(0);
            assert_eq!(map.session.fetch(&incomplete, &[]).unwrap().to_scalar::<i32>().unwrap(), 1);
            let again = map.session.run(&part, &map.feeds(7, &[1], 20)).unwrap_err();
            assert!(again.message().contains("was already initialized"), "{again}");
            map.session.run(&part, &map.feeds(7, &[0], 10)).unwrap();
            let taken = finished(&waiting).unwrap();
            assert_eq!(taken[0].to_scalar::<i32>().unwrap(), 10);
            assert_eq!(taken[1].to_scalar::<i32>().unwrap(), 20);
        }
    }

    #[test]
    fn a_full_area_waits_and_the_first_key_is_taken_without_one() {
        let map = Map::new();
        let whole = map.op("MapStage", 2);
        map.session.run(&whole, &map.feeds(3, &[0, 1], 30)).unwrap();
        let full = map.session.start(&whole, &map.feeds(4, &[0, 1], 40)).unwrap();
        assert!(waits(&full));
        let peek = map.op("MapPeek", 0);
        let peeked = map.session.run(&peek, &map.feeds(3, &[0, 1], 0)).unwrap();
        assert_eq!(peeked[0].to_scalar::<i32>().unwrap(), 30);
        let first = map.op("MapUnstageNoKey", 0);
        let taken = map.session.run(&first, &[(&map.indices, Tensor::vector(&[0i32, 1]))]).unwrap();
        assert_eq!((taken[0].to_scalar::<i64>().unwrap(), taken[1].to_scalar::<i32>().unwrap()), (3, 30));
        finished(&full).unwrap();
        let size = map.op("MapSize", 0).output(0);
        assert_eq!(map.session.fetch(&size, &[]).unwrap().to_scalar::<i32>().unwrap(), 1);
        let message =
            |indices: &[i32]| map.session.run(&whole, &map.feeds(5, indices, 0)).unwrap_err().message().to_owned();
        assert_eq!(message(&[1, 0]), "Indices are not strictly ordered");
        assert_eq!(message(&[0, 2]), "Index '2' for key '5' was out of bounds '2'.");
    }
}
