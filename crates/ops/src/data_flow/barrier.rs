//! Barriers, which assemble tuples from components by key: Barrier and the ops on it.
//!
//! Complete tuples are queued in the order in which their keys first arrived.

use super::queue::{DequeueMode, Queue, QueueKind, QueueOptions, Tuple};
use super::resource_op::ResourceOp;
use foldhash::{HashMap, HashMapExt};
use graph::{Graph, Operation, Output};
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef,
    OpFlags, Resource, ShapeContext, shape,
};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Status, StringElement, Tensor};

const HANDLE: &str = "handle: Ref(string)";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Barrier",
            inputs: &[],
            outputs: &[HANDLE],
            attrs: &[
                "component_types: list(type) >= 1",
                "shapes: list(shape) >= 0 = []",
                "capacity: int = -1",
                "container: string = ''",
                "shared_name: string = ''",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            c.set_output(0, PartialShape::from_dims(&[2]));
            Ok(())
        },
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(create_barrier)],
    },
    Op {
        def: OpDef {
            name: "BarrierInsertMany",
            inputs: &[HANDLE, "keys: string", "values: T"],
            outputs: &[],
            attrs: &["T: type", "component_index: int"],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(InsertMany { component: builder.attrs().int("component_index")? })
        })],
    },
    Op {
        def: OpDef {
            name: "BarrierTakeMany",
            inputs: &[HANDLE, "num_elements: int32"],
            outputs: &["indices: int64", "keys: string", "values: component_types"],
            attrs: &[
                "component_types: list(type) >= 1",
                "allow_small_batch: bool = false",
                "wait_for_incomplete: bool = false",
                "timeout_ms: int = -1",
            ],
            flags: OpFlags::NONE,
        },
        shape: take_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(TakeMany::create)],
    },
    Op {
        def: OpDef {
            name: "BarrierClose",
            inputs: &[HANDLE],
            outputs: &[],
            attrs: &["cancel_pending_enqueues: bool = false"],
            flags: OpFlags::NONE,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(Close { cancel: builder.attrs().bool("cancel_pending_enqueues")? })
        })],
    },
    Op {
        def: OpDef {
            name: "BarrierReadySize",
            inputs: &[HANDLE],
            outputs: &["size: int32"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Size { ready: true }))],
    },
    Op {
        def: OpDef {
            name: "BarrierIncompleteSize",
            inputs: &[HANDLE],
            outputs: &["size: int32"],
            attrs: &[],
            flags: OpFlags::NONE,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Size { ready: false }))],
    },
];

/// Returns a barrier for tuples of these components.
#[track_caller]
pub fn barrier(graph: &Graph, dtypes: &[DType], shapes: &[PartialShape], shared_name: &str) -> Output {
    let op = graph.op("Barrier").attr("component_types", dtypes).attr("shapes", shapes);
    op.attr("shared_name", shared_name).output()
}

/// Adds one component to the tuples of some keys.
#[track_caller]
pub fn barrier_insert_many(barrier: &Output, keys: &Output, values: &Output, component_index: i64) -> Operation {
    let op = barrier.graph().op("BarrierInsertMany").input(barrier).input(keys).input(values);
    op.attr("component_index", component_index).build()
}

/// Takes complete tuples: the arrival indices of their keys, the keys, and a batch of each component.
#[track_caller]
pub fn barrier_take_many(
    barrier: &Output,
    num_elements: &Output,
    dtypes: &[DType],
    allow_small_batch: bool,
) -> Vec<Output> {
    let op = barrier.graph().op("BarrierTakeMany").input(barrier).input(num_elements);
    op.attr("component_types", dtypes).attr("allow_small_batch", allow_small_batch).outputs()
}

/// Closes a barrier: it accepts no new keys, and with `cancel_pending_enqueues` nothing at all.
#[track_caller]
pub fn barrier_close(barrier: &Output, cancel_pending_enqueues: bool) -> Operation {
    let op = barrier.graph().op("BarrierClose").input(barrier);
    op.attr("cancel_pending_enqueues", cancel_pending_enqueues).build()
}

fn take_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    c.set_output(0, PartialShape::new(&[None]));
    c.set_output(1, PartialShape::new(&[None]));
    Ok(())
}

struct Barrier {
    name: String,
    dtypes: Vec<DType>,
    shapes: Vec<PartialShape>,
    state: Mutex<State>,
    /// Complete tuples: the key's arrival index, the key, the components.
    ready: Arc<Queue>,
}

struct State {
    closed: bool,
    cancelled: bool,
    next_index: i64,
    incomplete: HashMap<StringElement, Incomplete>,
}

struct Incomplete {
    index: i64,
    components: Vec<Option<Tensor>>,
}

impl Resource for Barrier {
    fn type_name(&self) -> &'static str {
        "N10tensorflow7barrier7BarrierE"
    }

    fn describe(&self) -> String {
        format!("barrier with {} complete elements", self.ready.len())
    }
}

impl Barrier {
    fn new(name: &str, dtypes: Vec<DType>, shapes: Vec<PartialShape>) -> Barrier {
        let mut queue_dtypes = vec![DType::Int64, DType::String];
        queue_dtypes.extend(&dtypes);
        let mut queue_shapes = vec![PartialShape::scalar(), PartialShape::scalar()];
        queue_shapes.extend(shapes.iter().cloned());
        let options = QueueOptions {
            kind: QueueKind::Priority,
            capacity: usize::MAX,
            dtypes: queue_dtypes,
            shapes: queue_shapes,
        };
        let state = State { closed: false, cancelled: false, next_index: i64::MIN, incomplete: HashMap::new() };
        let ready = Arc::new(Queue::new(&format!("{name}_queue"), options));
        Barrier { name: name.to_owned(), dtypes, shapes, state: Mutex::new(state), ready }
    }

    fn insert(&self, keys: &[StringElement], component: usize, values: &Tensor) -> Result<()> {
        let mut outcome = Ok(());
        let (complete, closes) = {
            let mut state = self.state.lock();
            if state.closed && (state.cancelled || (!keys.is_empty() && state.incomplete.is_empty())) {
                return Err(Status::cancelled(format!(
                    "Barrier {} is closed.  Pending enqueues cancelled: {}.  Number of new insertions: {}.  Number of \
                     incomplete keys: {}.",
                    self.name,
                    u8::from(state.cancelled),
                    keys.len(),
                    state.incomplete.len()
                )));
            }
            let mut complete = Vec::new();
            let first = state.next_index;
            for (position, key) in keys.iter().enumerate() {
                match self.insert_one(&mut state, key, component, values, position, first) {
                    Ok(tuple) => complete.extend(tuple),
                    Err(status) => {
                        // Tuples that are already complete remain.
                        outcome = Err(status);
                        break;
                    }
                }
            }
            (complete, state.closed && state.incomplete.is_empty())
        };
        self.ready.insert(complete)?;
        if closes {
            self.ready.close_now();
        }
        outcome
    }

    /// Adds a component to one key, and returns its tuple if that was the last.
    fn insert_one(
        &self,
        state: &mut State,
        key: &StringElement,
        component: usize,
        values: &Tensor,
        position: usize,
        index: i64,
    ) -> Result<Option<Tuple>> {
        let text = || String::from_utf8_lossy(key);
        if state.closed && !state.incomplete.contains_key(key) {
            return Err(Status::cancelled(format!(
                "Barrier {} is closed, but attempted to insert a brand new key: {}.  Pending enqueues cancelled: {}.  \
                 Insertion index: {position}.  Number of incomplete keys: {}.",
                self.name,
                text(),
                u8::from(state.cancelled),
                state.incomplete.len()
            )));
        }
        let row = values.slice_rows(position, position + 1)?;
        let shape = row.shape().slice(1, row.shape().rank());
        // A row must not keep the whole batch in memory while it waits for its other components.
        let row = row.into_shape(shape)?.deep_copy()?;
        if !self.shapes[component].is_compatible_with(row.shape()) {
            return Err(Status::invalid_argument(format!(
                "Shape mismatch in tuple component {}. Expected {}, got {}",
                component + 2,
                self.shapes[component],
                row.shape()
            )));
        }
        if !state.incomplete.contains_key(key) {
            // All keys of a batch have the same arrival index.
            state.next_index = index + 1;
        }
        let entry = state.incomplete.entry(key.clone());
        let entry = entry.or_insert_with(|| Incomplete { index, components: vec![None; self.dtypes.len()] });
        if entry.components[component].is_some() {
            return Err(Status::invalid_argument(format!(
                "Key {} already has a value for component {component} in barrier {}",
                text(),
                self.name
            )));
        }
        entry.components[component] = Some(row);
        if entry.components.iter().any(Option::is_none) {
            return Ok(None);
        }
        let Some(entry) = state.incomplete.remove(key) else { return Ok(None) };
        let mut tuple: Tuple = smallvec::smallvec![Tensor::scalar(entry.index), Tensor::string(key.clone())];
        tuple.extend(entry.components.into_iter().flatten());
        Ok(Some(tuple))
    }

    fn close(&self, cancel: bool) -> Result<()> {
        let closes = {
            let mut state = self.state.lock();
            if state.closed && (state.cancelled || !cancel) {
                return Err(Status::cancelled(format!("Barrier '{}' is already closed.", self.name)));
            }
            state.closed = true;
            state.cancelled = cancel;
            if cancel {
                state.incomplete.clear();
            }
            state.incomplete.is_empty()
        };
        if closes {
            self.ready.close_now();
        }
        Ok(())
    }

    /// Returns the number of elements that can be taken when this many are requested.
    fn deliverable(&self, requested: usize, allow_small_batch: bool) -> Result<usize> {
        let state = self.state.lock();
        if !state.closed {
            return Ok(requested);
        }
        let ready = self.ready.len();
        let (available, deliver) = match allow_small_batch {
            true => (ready, requested.min(ready)),
            false => (ready + state.incomplete.len(), requested),
        };
        if available < deliver.max(1) {
            return Err(Status::out_of_range(format!(
                "Barrier '{}' is closed and has insufficient elements (requested {deliver}, total size {available})",
                self.name
            )));
        }
        Ok(deliver)
    }
}

fn create_barrier(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    let attrs = builder.attrs();
    let (dtypes, shapes) = (attrs.dtypes("component_types")?, attrs.shapes("shapes")?);
    if dtypes.len() != shapes.len() {
        return Err(Status::invalid_argument("All of the component shapes must be specified"));
    }
    if attrs.int("capacity")? != -1 {
        return Err(Status::invalid_argument(
            "Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue to enforce a limited \
             capacity.",
        ));
    }
    let wanted = (dtypes.clone(), shapes.clone());
    ResourceOp::boxed(
        builder,
        move |name| Ok(Barrier::new(name, dtypes.clone(), shapes.clone())),
        move |barrier: &Barrier, name| {
            if (&barrier.dtypes, &barrier.shapes) == (&wanted.0, &wanted.1) {
                return Ok(());
            }
            Err(Status::invalid_argument(format!("Shared barrier '{name}' has other component types or shapes")))
        },
    )
}

struct InsertMany {
    component: i64,
}

impl Kernel for InsertMany {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let barrier = context.resource::<Barrier>(0)?;
        let (keys, values) = (context.input(1)?, context.input(2)?);
        let component = usize::try_from(self.component).ok().filter(|&index| index < barrier.dtypes.len());
        let component = component.ok_or_else(|| {
            Status::invalid_argument(format!(
                "The component ID is out of range {} > num_components (= {})",
                self.component,
                barrier.dtypes.len()
            ))
        })?;
        if values.dtype() != barrier.dtypes[component] {
            return Err(Status::invalid_argument(format!(
                "Expected component {component} to be {}, but got {}",
                barrier.dtypes[component],
                values.dtype()
            )));
        }
        if !keys.shape().is_vector() || values.dims().first() != keys.dims().first() {
            return Err(Status::invalid_argument(format!(
                "keys must be a vector with one element for each of the values' rows: {} and {}",
                keys.shape(),
                values.shape()
            )));
        }
        if keys.num_elements() > 0 && values.num_elements() == 0 {
            return Err(Status::invalid_argument(format!(
                "Tensors with no elements are not supported {}: received shape {}",
                barrier.name,
                values.shape()
            )));
        }
        barrier.insert(keys.strings()?, component, values)
    }
}

struct TakeMany {
    allow_small_batch: bool,
    dtypes: Vec<DType>,
}

impl TakeMany {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        if attrs.int("timeout_ms")? != -1 {
            return Err(Status::invalid_argument("Timeout not supported yet."));
        }
        let allow_small_batch = attrs.bool("allow_small_batch")?;
        BoxedKernel::new_async(TakeMany { allow_small_batch, dtypes: attrs.dtypes("component_types")? })
    }

    fn prepare(&self, context: &OpContext<'_>) -> Result<(Arc<Queue>, usize)> {
        let barrier = context.resource::<Barrier>(0)?;
        if barrier.dtypes != self.dtypes {
            return Err(Status::invalid_argument("the barrier's components have other types than the op's outputs"));
        }
        let requested = context.scalar::<i32>(1, "num_elements")?;
        let requested = usize::try_from(requested)
            .map_err(|_| Status::invalid_argument(format!("BarrierTakeMany requested {requested} < 0 elements")))?;
        Ok((barrier.ready.clone(), barrier.deliverable(requested, self.allow_small_batch)?))
    }
}

impl AsyncKernel for TakeMany {
    fn compute(&self, mut context: AsyncContext) {
        let prepared = self.prepare(&context.op());
        match prepared {
            Ok((ready, count)) => {
                let mode = if self.allow_small_batch { DequeueMode::UpTo } else { DequeueMode::Many };
                ready.dequeue(context, mode, count);
            }
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct Close {
    cancel: bool,
}

impl Kernel for Close {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.resource::<Barrier>(0)?.close(self.cancel)
    }
}

struct Size {
    ready: bool,
}

impl Kernel for Size {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let barrier = context.resource::<Barrier>(0)?;
        let len = if self.ready { barrier.ready.len() } else { barrier.state.lock().incomplete.len() };
        context.set_output(0, Tensor::scalar(i32::try_from(len).unwrap_or(i32::MAX)));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestSession, finished, waits};
    use tensor::{Code, Shape};

    struct Fixture {
        session: TestSession,
        barrier: Output,
        keys: Output,
        values: Output,
        count: Output,
    }

    impl Fixture {
        fn new() -> Fixture {
            let session = TestSession::new();
            let shapes = [PartialShape::scalar(), PartialShape::scalar()];
            let barrier = barrier(&session.graph, &[DType::Float, DType::Float], &shapes, "");
            let (keys, values) = (session.placeholder(DType::String), session.placeholder(DType::Float));
            Fixture { barrier, keys, values, count: session.placeholder(DType::Int32), session }
        }

        fn insert(&self, component: i64, keys: &[&'static str], values: &[f32]) -> Result<()> {
            let op = barrier_insert_many(&self.barrier, &self.keys, &self.values, component);
            let keys = keys.iter().map(|key| bytes::Bytes::from(*key)).collect::<Vec<_>>();
            let keys = Tensor::from_strings(Shape::vector(keys.len()), keys)?;
            self.session.run(&op, &[(&self.keys, keys), (&self.values, Tensor::vector(values))]).map(|_| ())
        }

        fn take(&self, small: bool) -> Operation {
            barrier_take_many(&self.barrier, &self.count, &[DType::Float, DType::Float], small)[0].op.clone()
        }
    }

    #[test]
    fn tuples_come_out_when_they_are_complete() {
        let fixture = Fixture::new();
        let take = fixture.take(false);
        let waiting = fixture.session.start(&take, &[(&fixture.count, Tensor::scalar(2i32))]).unwrap();
        fixture.insert(0, &["a", "b", "c"], &[1.0, 2.0, 3.0]).unwrap();
        fixture.insert(1, &["c"], &[30.0]).unwrap();
        assert!(waits(&waiting));
        let again = fixture.insert(0, &["a"], &[1.0]).unwrap_err();
        assert!(again.message().starts_with("Key a already has a value for component 0"), "{again}");
        fixture.insert(1, &["b", "a"], &[20.0, 10.0]).unwrap();
        let taken = finished(&waiting).unwrap();
        assert_eq!(taken[0].as_slice::<i64>().unwrap(), &[i64::MIN, i64::MIN]);
        assert_eq!(taken[1].strings().unwrap()[0], "c");
        assert_eq!(taken[2].as_slice::<f32>().unwrap()[0], 3.0);
        assert_eq!(taken[3].as_slice::<f32>().unwrap()[0], 30.0);
        let size = fixture.session.graph.op("BarrierReadySize").input(&fixture.barrier).output();
        assert_eq!(fixture.session.fetch(&size, &[]).unwrap().to_scalar::<i32>().unwrap(), 1);
    }

    #[test]
    fn a_closed_barrier_takes_no_new_keys() {
        let fixture = Fixture::new();
        fixture.insert(0, &["a", "b"], &[1.0, 2.0]).unwrap();
        fixture.insert(1, &["a"], &[10.0]).unwrap();
        fixture.session.run(&barrier_close(&fixture.barrier, false), &[]).unwrap();
        let status = fixture.insert(0, &["c"], &[1.0]).unwrap_err();
        assert_eq!(status.code(), Code::Cancelled);
        let take = fixture.take(false);
        let waiting = fixture.session.start(&take, &[(&fixture.count, Tensor::scalar(2i32))]).unwrap();
        assert!(waits(&waiting), "the second may still be completed");
        fixture.insert(1, &["b"], &[20.0]).unwrap();
        assert_eq!(finished(&waiting).unwrap()[2].as_slice::<f32>().unwrap(), &[1.0, 2.0]);
        let empty = fixture.session.run(&fixture.take(true), &[(&fixture.count, Tensor::scalar(1i32))]).unwrap_err();
        assert_eq!(empty.code(), Code::OutOfRange);
        assert!(empty.message().ends_with("insufficient elements (requested 0, total size 0)"), "{empty}");
        let again = fixture.session.run(&barrier_close(&fixture.barrier, false), &[]).unwrap_err();
        assert!(again.message().ends_with("is already closed."), "{again}");
    }
}
