//! Ops on queues: creation, enqueues, dequeues, closing, and queries.
//!
//! Each op has two versions, which take the queue as a ref to two strings or as a resource.

use super::queue::{DequeueMode, Queue, QueueKind, QueueOptions, Tuple, dtype_list_text, shape_list_text};
use super::resource_op::ResourceOp;
use graph::{Graph, Operation, Output};
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef,
    OpFlags, ShapeContext, ShapeFn, shape,
};
use std::sync::Arc;
use tensor::{DType, DTypeAndShape, PartialShape, Result, Status, Tensor};

const STRINGS: &str = "handle: Ref(string)";
const RESOURCE: &str = "handle: resource";
const TYPES: &str = "component_types: list(type) >= 1";
const SHAPES: &str = "shapes: list(shape) >= 0 = []";
const CAPACITY: &str = "capacity: int = -1";
const CONTAINER: &str = "container: string = ''";
const SHARED_NAME: &str = "shared_name: string = ''";
const TIMEOUT: &str = "timeout_ms: int = -1";

const IN_ORDER: &[&str] = &[TYPES, SHAPES, CAPACITY, CONTAINER, SHARED_NAME];
const SHUFFLED: &[&str] =
    &[TYPES, SHAPES, CAPACITY, "min_after_dequeue: int = 0", "seed: int = 0", "seed2: int = 0", CONTAINER, SHARED_NAME];
const BY_PRIORITY: &[&str] =
    &["component_types: list(type) >= 0 = []", "shapes: list(shape) >= 0", CAPACITY, CONTAINER, SHARED_NAME];
const FROM_TYPES: &[&str] = &["Tcomponents: list(type) >= 1", TIMEOUT];
const TO_TYPES: &[&str] = &[TYPES, TIMEOUT];
const CLOSING: &[&str] = &["cancel_pending_enqueues: bool = false"];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    maker("FIFOQueue", &[STRINGS], IN_ORDER),
    maker("FIFOQueueV2", &[RESOURCE], IN_ORDER),
    maker("PaddingFIFOQueue", &[STRINGS], IN_ORDER),
    maker("PaddingFIFOQueueV2", &[RESOURCE], IN_ORDER),
    maker("RandomShuffleQueue", &[STRINGS], SHUFFLED),
    maker("RandomShuffleQueueV2", &[RESOURCE], SHUFFLED),
    maker("PriorityQueue", &[STRINGS], BY_PRIORITY),
    maker("PriorityQueueV2", &[RESOURCE], BY_PRIORITY),
    user("QueueEnqueue", &[STRINGS, "components: Tcomponents"], &[], FROM_TYPES, shape::unknown, ENQUEUE),
    user("QueueEnqueueV2", &[RESOURCE, "components: Tcomponents"], &[], FROM_TYPES, shape::unknown, ENQUEUE),
    user("QueueEnqueueMany", &[STRINGS, "components: Tcomponents"], &[], FROM_TYPES, shape::unknown, ENQUEUE_MANY),
    user("QueueEnqueueManyV2", &[RESOURCE, "components: Tcomponents"], &[], FROM_TYPES, shape::unknown, ENQUEUE_MANY),
    user("QueueDequeue", &[STRINGS], &["components: component_types"], TO_TYPES, dequeue_shape, DEQUEUE),
    user("QueueDequeueV2", &[RESOURCE], &["components: component_types"], TO_TYPES, dequeue_shape, DEQUEUE),
    user(
        "QueueDequeueMany",
        &[STRINGS, "n: int32"],
        &["components: component_types"],
        TO_TYPES,
        dequeue_many_shape,
        DEQUEUE_MANY,
    ),
    user(
        "QueueDequeueManyV2",
        &[RESOURCE, "n: int32"],
        &["components: component_types"],
        TO_TYPES,
        dequeue_many_shape,
        DEQUEUE_MANY,
    ),
    user(
        "QueueDequeueUpTo",
        &[STRINGS, "n: int32"],
        &["components: component_types"],
        TO_TYPES,
        dequeue_up_to_shape,
        DEQUEUE_UP_TO,
    ),
    user(
        "QueueDequeueUpToV2",
        &[RESOURCE, "n: int32"],
        &["components: component_types"],
        TO_TYPES,
        dequeue_up_to_shape,
        DEQUEUE_UP_TO,
    ),
    user("QueueClose", &[STRINGS], &[], CLOSING, shape::unknown, CLOSE),
    user("QueueCloseV2", &[RESOURCE], &[], CLOSING, shape::unknown, CLOSE),
    user("QueueSize", &[STRINGS], &["size: int32"], &[], shape::scalar, SIZE),
    user("QueueSizeV2", &[RESOURCE], &["size: int32"], &[], shape::scalar, SIZE),
    user("QueueIsClosed", &[STRINGS], &["is_closed: bool"], &[], shape::scalar, IS_CLOSED),
    user("QueueIsClosedV2", &[RESOURCE], &["is_closed: bool"], &[], shape::scalar, IS_CLOSED),
];

const MAKE: &[KernelDef] = &[KernelDef::any(create_queue)];
const ENQUEUE: &[KernelDef] = &[KernelDef::any(|builder| EnqueueOp::create(builder, false))];
const ENQUEUE_MANY: &[KernelDef] = &[KernelDef::any(|builder| EnqueueOp::create(builder, true))];
const DEQUEUE: &[KernelDef] = &[KernelDef::any(|builder| DequeueOp::create(builder, DequeueMode::One))];
const DEQUEUE_MANY: &[KernelDef] = &[KernelDef::any(|builder| DequeueOp::create(builder, DequeueMode::Many))];
const DEQUEUE_UP_TO: &[KernelDef] = &[KernelDef::any(|builder| DequeueOp::create(builder, DequeueMode::UpTo))];
const CLOSE: &[KernelDef] = &[KernelDef::any(|builder| {
    let cancel_pending_enqueues = builder.attrs().bool("cancel_pending_enqueues")?;
    BoxedKernel::new_async(CloseOp { cancel_pending_enqueues })
})];
const SIZE: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(SizeOp))];
const IS_CLOSED: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(IsClosedOp))];

const fn maker(name: &'static str, outputs: &'static [&'static str], attrs: &'static [&'static str]) -> Op {
    Op {
        def: OpDef { name, inputs: &[], outputs, attrs, flags: OpFlags::STATEFUL },
        shape: queue_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: MAKE,
    }
}

/// An op on a queue; those by resource are stateful, those by ref aren't.
const fn user(
    name: &'static str,
    inputs: &'static [&'static str],
    outputs: &'static [&'static str],
    attrs: &'static [&'static str],
    shape: ShapeFn,
    kernels: &'static [KernelDef],
) -> Op {
    let last = name.as_bytes()[name.len() - 1];
    let flags = if last == b'2' { OpFlags::STATEFUL } else { OpFlags::NONE };
    Op { def: OpDef { name, inputs, outputs, attrs, flags }, shape, gradient: Gradient::NotDifferentiable, kernels }
}

/// The configuration of a new queue. A negative `capacity` means no bound.
#[derive(Clone, Debug)]
pub struct QueueSpec<'a> {
    /// The most elements it may hold.
    pub capacity: i64,
    /// The types of an element's components.
    pub dtypes: &'a [DType],
    /// Their shapes; empty if they may be anything.
    pub shapes: &'a [PartialShape],
    /// The name under which other graphs find it; empty if they don't.
    pub shared_name: &'a str,
}

#[track_caller]
fn queue(graph: &Graph, op: &str, spec: &QueueSpec<'_>) -> graph::builder::OpBuilder {
    let op = graph.op(op).attr("component_types", spec.dtypes).attr("shapes", spec.shapes);
    op.attr("capacity", spec.capacity).attr("shared_name", spec.shared_name)
}

/// Returns a first-in, first-out queue.
#[track_caller]
pub fn fifo_queue(graph: &Graph, spec: &QueueSpec<'_>) -> Output {
    queue(graph, "FIFOQueueV2", spec).output()
}

/// Returns a queue like [`fifo_queue`]; elements of different sizes can be dequeued as a batch, padded with zeros.
#[track_caller]
pub fn padding_fifo_queue(graph: &Graph, spec: &QueueSpec<'_>) -> Output {
    queue(graph, "PaddingFIFOQueueV2", spec).output()
}

/// Returns a queue whose elements are dequeued at random.
#[track_caller]
pub fn random_shuffle_queue(graph: &Graph, spec: &QueueSpec<'_>, min_after_dequeue: i64, seed: Option<i64>) -> Output {
    let (seed, seed2) = graph.random_seeds(seed);
    let op = queue(graph, "RandomShuffleQueueV2", spec).attr("min_after_dequeue", min_after_dequeue);
    op.attr("seed", seed).attr("seed2", seed2).output()
}

/// Returns a queue whose elements are dequeued by an `int64` priority, their first component besides those of `spec`.
#[track_caller]
pub fn priority_queue(graph: &Graph, spec: &QueueSpec<'_>) -> Output {
    queue(graph, "PriorityQueueV2", spec).output()
}

/// Adds an element to a queue, once there is room.
#[track_caller]
pub fn queue_enqueue(queue: &Output, components: &[Output]) -> Operation {
    queue.graph().op("QueueEnqueueV2").input(queue).inputs(components).build()
}

/// Adds the rows of a batch to a queue, as there is room.
#[track_caller]
pub fn queue_enqueue_many(queue: &Output, components: &[Output]) -> Operation {
    queue.graph().op("QueueEnqueueManyV2").input(queue).inputs(components).build()
}

/// Takes an element from a queue, once there is one.
#[track_caller]
pub fn queue_dequeue(queue: &Output, dtypes: &[DType]) -> Vec<Output> {
    queue.graph().op("QueueDequeueV2").input(queue).attr("component_types", dtypes).outputs()
}

/// Takes `n` elements from a queue as a batch, once there are enough.
#[track_caller]
pub fn queue_dequeue_many(queue: &Output, n: &Output, dtypes: &[DType]) -> Vec<Output> {
    queue.graph().op("QueueDequeueManyV2").input(queue).input(n).attr("component_types", dtypes).outputs()
}

/// As [`queue_dequeue_many`], but a closed queue may return fewer.
#[track_caller]
pub fn queue_dequeue_up_to(queue: &Output, n: &Output, dtypes: &[DType]) -> Vec<Output> {
    queue.graph().op("QueueDequeueUpToV2").input(queue).input(n).attr("component_types", dtypes).outputs()
}

/// Closes a queue: further enqueues fail, and so do dequeues that would have to wait.
#[track_caller]
pub fn queue_close(queue: &Output, cancel_pending_enqueues: bool) -> Operation {
    queue.graph().op("QueueCloseV2").input(queue).attr("cancel_pending_enqueues", cancel_pending_enqueues).build()
}

/// Returns the number of elements in a queue.
#[track_caller]
pub fn queue_size(queue: &Output) -> Output {
    queue.graph().op("QueueSizeV2").input(queue).output()
}

/// Returns whether a queue was closed.
#[track_caller]
pub fn queue_is_closed(queue: &Output) -> Output {
    queue.graph().op("QueueIsClosedV2").input(queue).output()
}

fn queue_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    if c.output_types[0].dtype == DType::String {
        c.set_output(0, PartialShape::from_dims(&[2]));
        return Ok(());
    }
    c.set_output(0, PartialShape::scalar());
    let (mut dtypes, mut shapes) = (c.attrs.dtypes("component_types")?, c.attrs.shapes("shapes")?);
    if c.schema.name.starts_with("Priority") {
        dtypes.insert(0, DType::Int64);
        shapes.insert(0, PartialShape::scalar());
    }
    if dtypes.len() == shapes.len() {
        let components = dtypes.into_iter().zip(shapes);
        c.output_handles[0] = components.map(|(dtype, shape)| DTypeAndShape { dtype, shape }).collect();
    }
    Ok(())
}

fn dequeue_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    dequeued(c, None)
}

fn dequeue_many_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let rows = match c.constant(1) {
        Some(n) => Some(i64::from(n.to_scalar::<i32>()?)),
        None => None,
    };
    if let Some(n) = rows
        && n < 0
    {
        return Err(Status::invalid_argument(format!("Input 'n' must be >= 0, but is {n}")));
    }
    dequeued(c, Some(rows))
}

fn dequeue_up_to_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    dequeued(c, Some(None))
}

fn dequeued(c: &mut ShapeContext<'_>, rows: Option<Option<i64>>) -> Result<()> {
    let components = c.input_handles.first().cloned().unwrap_or_default();
    if components.len() == c.num_outputs() {
        for (index, component) in components.into_iter().enumerate() {
            c.set_output(
                index,
                match rows {
                    Some(rows) => PartialShape::new(&[rows]).concat(&component.shape),
                    None => component.shape,
                },
            );
        }
    }
    Ok(())
}

fn create_queue(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
    let attrs = builder.attrs();
    let op = builder.node.op();
    let kind = match op.trim_end_matches("V2") {
        "FIFOQueue" => QueueKind::Fifo,
        "PaddingFIFOQueue" => QueueKind::Padding,
        "PriorityQueue" => QueueKind::Priority,
        _ => {
            let min_after_dequeue = attrs.int("min_after_dequeue")?;
            let Ok(min_after_dequeue) = usize::try_from(min_after_dequeue) else {
                return Err(Status::invalid_argument(format!("min_after_dequeue {min_after_dequeue} must be >= 0")));
            };
            QueueKind::Shuffle { min_after_dequeue, seeds: (attrs.int("seed")?, attrs.int("seed2")?) }
        }
    };
    let capacity = usize::try_from(attrs.int("capacity")?).unwrap_or(i32::MAX as usize);
    if let QueueKind::Shuffle { min_after_dequeue, .. } = kind
        && min_after_dequeue >= capacity
    {
        return Err(Status::invalid_argument(format!(
            "min_after_dequeue {min_after_dequeue} must be < capacity {capacity}"
        )));
    }
    let (mut dtypes, mut shapes) = (attrs.dtypes("component_types")?, attrs.shapes("shapes")?);
    if (!shapes.is_empty() || kind == QueueKind::Padding) && shapes.len() != dtypes.len() {
        return Err(Status::invalid_argument(format!(
            "Different number of component types.  Types: {}, Shapes: {}",
            dtype_list_text(&dtypes),
            shape_list_text(&shapes)
        )));
    }
    for shape in &shapes {
        if kind != QueueKind::Padding && !shape.is_fully_defined() {
            return Err(Status::invalid_argument(format!("Shape {shape} is not fully defined")));
        }
    }
    if kind == QueueKind::Priority {
        if !dtypes.is_empty() || !shapes.is_empty() {
            shapes.insert(0, PartialShape::scalar());
        }
        dtypes.insert(0, DType::Int64);
    }
    let options = QueueOptions { kind, capacity, dtypes, shapes };
    let (op, wanted) = (op.to_owned(), options.clone());
    ResourceOp::boxed(
        builder,
        move |name| Ok(Queue::new(name, options.clone())),
        move |queue, name| matches_options(queue, &wanted, name, &op),
    )
}

/// Compares an existing queue with another node's configuration for the same name.
fn matches_options(queue: &Queue, wanted: &QueueOptions, name: &str, op: &str) -> Result<()> {
    let have = queue.options();
    let kind_name = queue.kind_name();
    let mismatch = |text: String| Err(Status::invalid_argument(text));
    if op.trim_end_matches("V2") != kind_name {
        return mismatch(format!("Expected {kind_name}, found {op}"));
    }
    if have.capacity != wanted.capacity {
        return mismatch(format!(
            "Shared queue '{name}' has capacity {} but requested capacity was {}",
            have.capacity, wanted.capacity
        ));
    }
    if have.dtypes != wanted.dtypes {
        return mismatch(format!(
            "Shared queue '{name}' has component types {} but requested component types were {}",
            dtype_list_text(&have.dtypes),
            dtype_list_text(&wanted.dtypes)
        ));
    }
    if have.shapes != wanted.shapes {
        return mismatch(format!(
            "Shared queue '{name}' has component shapes {} but requested component shapes were {}",
            shape_list_text(&have.shapes),
            shape_list_text(&wanted.shapes)
        ));
    }
    match (have.kind, wanted.kind) {
        (
            QueueKind::Shuffle { min_after_dequeue: have_min, seeds: have_seeds },
            QueueKind::Shuffle { min_after_dequeue: min, seeds },
        ) => {
            if have_min != min {
                return mismatch(format!(
                    "Shared queue '{name}' has min_after_dequeue {have_min} but requested min_after_dequeue was {min}."
                ));
            }
            // Unset seeds match any.
            if seeds != (0, 0) && have_seeds != seeds {
                return mismatch(format!(
                    "Shared queue '{name}' has random seeds ({}, {}) but requested seeds are ({}, {}).",
                    have_seeds.0, have_seeds.1, seeds.0, seeds.1
                ));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn check_timeout(builder: &KernelBuilder<'_>) -> Result<()> {
    match builder.attrs().int("timeout_ms")? {
        -1 => Ok(()),
        _ => Err(Status::invalid_argument("Timeout not supported yet.")),
    }
}

/// Compares the types of a node's components with those of the queue; the errors are TensorFlow's.
fn check_signature(queue: &Queue, inputs: &[DType], outputs: &[DType], components_are_inputs: bool) -> Result<()> {
    let have = if components_are_inputs { &inputs[1..] } else { outputs };
    let expected = &queue.options().dtypes;
    if have == expected.as_slice() {
        return Ok(());
    }
    let (mut expected_inputs, mut expected_outputs) = (inputs.to_vec(), outputs.to_vec());
    if components_are_inputs {
        expected_inputs.truncate(1);
        expected_inputs.extend(expected);
    } else {
        expected_outputs = expected.clone();
    }
    Err(Status::invalid_argument(format!(
        "Signature mismatch, have: {}->{} expected: {}->{}",
        dtype_list_text(inputs),
        dtype_list_text(outputs),
        dtype_list_text(&expected_inputs),
        dtype_list_text(&expected_outputs)
    )))
}

struct EnqueueOp {
    many: bool,
    inputs: Vec<DType>,
}

impl EnqueueOp {
    fn create(builder: &KernelBuilder<'_>, many: bool) -> Result<BoxedKernel> {
        check_timeout(builder)?;
        let inputs = builder.node.input_types.iter().map(|slot| slot.dtype).collect();
        BoxedKernel::new_async(EnqueueOp { many, inputs })
    }

    fn prepare(&self, context: &mut OpContext<'_>) -> Result<(Arc<Queue>, Tuple)> {
        let queue = context.resource::<Queue>(0)?;
        check_signature(&queue, &self.inputs, &[], true)?;
        let tuple = (1..context.num_inputs()).map(|index| context.take_input(index)).collect::<Result<Tuple>>()?;
        Ok((queue, tuple))
    }
}

impl AsyncKernel for EnqueueOp {
    fn compute(&self, mut context: AsyncContext) {
        match self.prepare(&mut context.op()) {
            Ok((queue, batch)) if self.many => queue.enqueue_many(context, batch),
            Ok((queue, tuple)) => queue.enqueue(context, tuple),
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct DequeueOp {
    mode: DequeueMode,
    inputs: Vec<DType>,
    outputs: Vec<DType>,
}

impl DequeueOp {
    fn create(builder: &KernelBuilder<'_>, mode: DequeueMode) -> Result<BoxedKernel> {
        check_timeout(builder)?;
        let inputs = builder.node.input_types.iter().map(|slot| slot.dtype).collect();
        BoxedKernel::new_async(DequeueOp { mode, inputs, outputs: builder.output_dtypes() })
    }

    fn prepare(&self, context: &OpContext<'_>) -> Result<(Arc<Queue>, usize)> {
        let queue = context.resource::<Queue>(0)?;
        check_signature(&queue, &self.inputs, &self.outputs, false)?;
        if self.mode == DequeueMode::One {
            return Ok((queue, 1));
        }
        let count = context.scalar::<i32>(1, "n")?;
        let count = usize::try_from(count).map_err(|_| {
            let op = if self.mode == DequeueMode::Many { "DequeueManyOp" } else { "DequeueUpToOp" };
            Status::invalid_argument(format!("{op} requested {count} < 0 elements"))
        })?;
        Ok((queue, count))
    }
}

impl AsyncKernel for DequeueOp {
    fn compute(&self, mut context: AsyncContext) {
        let prepared = self.prepare(&context.op());
        match prepared {
            Ok((queue, count)) => queue.dequeue(context, self.mode, count),
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct CloseOp {
    cancel_pending_enqueues: bool,
}

impl AsyncKernel for CloseOp {
    fn compute(&self, mut context: AsyncContext) {
        let queue = context.op().resource::<Queue>(0);
        match queue {
            Ok(queue) => queue.close(context, self.cancel_pending_enqueues),
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct SizeOp;

impl Kernel for SizeOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let len = context.resource::<Queue>(0)?.len();
        context.set_output(0, Tensor::scalar(i32::try_from(len).unwrap_or(i32::MAX)));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct IsClosedOp;

impl Kernel for IsClosedOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let closed = context.resource::<Queue>(0)?.is_closed();
        context.set_output(0, Tensor::scalar(closed));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests;
