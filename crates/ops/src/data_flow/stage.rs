//! Staging areas, small queues on a device: Stage, Unstage, StagePeek, StageSize, StageClear.

use super::monitor::Monitor;
use graph::{Graph, Operation, Output};
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef,
    OpFlags, Resource, ShapeFn, shape,
};
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{DType, Result, Status, Tensor};

const CAPACITY: &str = "capacity: int >= 0 = 0";
const MEMORY_LIMIT: &str = "memory_limit: int >= 0 = 0";
const CONTAINER: &str = "container: string = ''";
const SHARED_NAME: &str = "shared_name: string = ''";
const TYPED: &[&str] = &[CAPACITY, MEMORY_LIMIT, "dtypes: list(type) >= 1", CONTAINER, SHARED_NAME];
const UNTYPED: &[&str] = &[CAPACITY, MEMORY_LIMIT, "dtypes: list(type)", CONTAINER, SHARED_NAME];

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    op("Stage", &["values: dtypes"], &[], TYPED, shape::unknown, STAGE),
    op("Unstage", &[], &["values: dtypes"], TYPED, shape::unknown, UNSTAGE),
    op("StagePeek", &["index: int32"], &["values: dtypes"], TYPED, shape::unknown, PEEK),
    op("StageSize", &[], &["size: int32"], UNTYPED, shape::scalar, SIZE),
    op("StageClear", &[], &[], UNTYPED, shape::unknown, CLEAR),
];

const STAGE: &[KernelDef] = &[KernelDef::any(|builder| Area::kernel(builder, StageOp))];
const UNSTAGE: &[KernelDef] = &[KernelDef::any(|builder| Area::kernel(builder, UnstageOp))];
const PEEK: &[KernelDef] = &[KernelDef::any(|builder| Area::kernel(builder, PeekOp))];
const SIZE: &[KernelDef] = &[KernelDef::any(|builder| BoxedKernel::new(SizeOp(Area::new(builder)?)))];
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

/// Puts tensors into a staging area, once there is room; a capacity of 0 means no bound.
#[track_caller]
pub fn stage(values: &[Output], shared_name: &str, capacity: i64) -> Operation {
    let op = values[0].graph().op("Stage").inputs(values).attr("shared_name", shared_name);
    op.attr("capacity", capacity).build()
}

/// Takes the oldest tensors of a staging area, once there are some.
#[track_caller]
pub fn unstage(graph: &Graph, dtypes: &[DType], shared_name: &str, capacity: i64) -> Vec<Output> {
    let op = graph.op("Unstage").attr("dtypes", dtypes).attr("shared_name", shared_name);
    op.attr("capacity", capacity).outputs()
}

/// A staging area among a device's resources.
struct StagingArea {
    capacity: usize,
    memory_limit: usize,
    monitor: Arc<Monitor<Staged>>,
}

#[derive(Default)]
struct Staged {
    tuples: VecDeque<Vec<Tensor>>,
    bytes: usize,
}

impl Resource for StagingArea {
    fn type_name(&self) -> &'static str {
        "N10tensorflow6BufferE"
    }

    fn describe(&self) -> String {
        format!("staging area of {} elements", self.monitor.look(|staged| staged.tuples.len()))
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

    fn kernel<W: Work>(builder: &KernelBuilder<'_>, work: W) -> Result<BoxedKernel> {
        BoxedKernel::new_async(StagingOp { area: Area::new(builder)?, work })
    }

    fn find(&self, context: &OpContext<'_>) -> Result<Arc<StagingArea>> {
        context.resources().lookup_or_create(&self.container, &self.name, || {
            let monitor = Monitor::new(Staged::default());
            Ok(StagingArea { capacity: self.capacity, memory_limit: self.memory_limit, monitor })
        })
    }
}

/// The operation of a staging op that may wait.
trait Work: Send + Sync + 'static {
    fn start(&self, area: &Area, staging: Arc<StagingArea>, context: AsyncContext);
}

struct StagingOp<W> {
    area: Area,
    work: W,
}

impl<W: Work> AsyncKernel for StagingOp<W> {
    fn compute(&self, mut context: AsyncContext) {
        let staging = self.area.find(&context.op());
        match staging {
            Ok(staging) => self.work.start(&self.area, staging, context),
            Err(status) => context.finish(Err(status)),
        }
    }
}

struct StageOp;

impl Work for StageOp {
    fn start(&self, _: &Area, staging: Arc<StagingArea>, mut context: AsyncContext) {
        let mut op = context.op();
        let tuple = (0..op.num_inputs()).map(|index| op.take_input(index)).collect::<Result<Vec<Tensor>>>();
        let tuple = match tuple {
            Ok(tuple) => tuple,
            Err(status) => return context.finish(Err(status)),
        };
        let bytes: usize = tuple.iter().map(Tensor::num_bytes).sum();
        let (capacity, memory_limit) = (staging.capacity, staging.memory_limit);
        if bytes > memory_limit {
            return context.finish(Err(too_large(bytes, memory_limit)));
        }
        let mut tuple = Some(tuple);
        staging.monitor.submit(context, move |staged| {
            if staged.tuples.len() >= capacity || staged.bytes + bytes > memory_limit {
                return None;
            }
            staged.tuples.extend(tuple.take());
            staged.bytes += bytes;
            Some(Ok(Vec::new()))
        });
    }
}

/// Returns the error for tensors that will never fit.
pub(super) fn too_large(bytes: usize, memory_limit: usize) -> Status {
    Status::resource_exhausted(format!(
        "Attempted to insert tensors with combined size of '{bytes}' bytes into Staging Area with a memory limit of \
         '{memory_limit}'."
    ))
}

struct UnstageOp;

impl Work for UnstageOp {
    fn start(&self, area: &Area, staging: Arc<StagingArea>, context: AsyncContext) {
        let dtypes = area.dtypes.clone();
        staging.monitor.submit(context, move |staged| {
            let tuple = staged.tuples.pop_front()?;
            staged.bytes -= tuple.iter().map(Tensor::num_bytes).sum::<usize>();
            Some(checked(tuple, &dtypes))
        });
    }
}

struct PeekOp;

impl Work for PeekOp {
    fn start(&self, area: &Area, staging: Arc<StagingArea>, mut context: AsyncContext) {
        let index = context.op().scalar::<i32>(0, "index");
        let index = index.and_then(|index| {
            usize::try_from(index)
                .map_err(|_| Status::invalid_argument(format!("index must not be negative, got {index}")))
        });
        let index = match index {
            Ok(index) => index,
            Err(status) => return context.finish(Err(status)),
        };
        let dtypes = area.dtypes.clone();
        staging.monitor.submit(context, move |staged| Some(checked(staged.tuples.get(index)?.clone(), &dtypes)));
    }
}

/// Checks that staged tensors have the types that a node expects.
fn checked(tuple: Vec<Tensor>, dtypes: &[DType]) -> Result<Vec<Tensor>> {
    if tuple.iter().map(Tensor::dtype).eq(dtypes.iter().copied()) {
        return Ok(tuple);
    }
    let types = |types: &mut dyn Iterator<Item = DType>| types.map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
    Err(Status::invalid_argument(format!(
        "Mismatch stage/unstage: {} vs. {}",
        types(&mut tuple.iter().map(Tensor::dtype)),
        types(&mut dtypes.iter().copied())
    )))
}

struct SizeOp(Area);

impl Kernel for SizeOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let len = self.0.find(context)?.monitor.look(|staged| staged.tuples.len());
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
    use tensor::Code;

    #[test]
    fn staging_and_unstaging_wait_for_each_other() {
        let session = TestSession::new();
        let value = session.placeholder(DType::Int32);
        let put = stage(std::slice::from_ref(&value), "area", 1);
        let take = unstage(&session.graph, &[DType::Int32], "area", 1).remove(0);
        let feed = |number: i32| [(&value, Tensor::scalar(number))];
        let waiting = session.start(&take.op, &[]).unwrap();
        assert!(waits(&waiting));
        session.run(&put, &feed(1)).unwrap();
        assert_eq!(finished(&waiting).unwrap()[0].to_scalar::<i32>().unwrap(), 1);
        session.run(&put, &feed(2)).unwrap();
        let full = session.start(&put, &feed(3)).unwrap();
        assert!(waits(&full), "the area holds one");
        let index = session.placeholder(DType::Int32);
        let peek = session.graph.op("StagePeek").input(&index).attr("dtypes", &[DType::Int32][..]);
        let peek = peek.attr("shared_name", "area").output();
        let peeked = session.fetch(&peek, &[(&index, Tensor::scalar(0i32))]).unwrap();
        assert_eq!(peeked.to_scalar::<i32>().unwrap(), 2);
        assert_eq!(session.fetch(&take, &[]).unwrap().to_scalar::<i32>().unwrap(), 2);
        finished(&full).unwrap();
        let named = |op: &str| session.graph.op(op).attr("dtypes", &[DType::Int32][..]).attr("shared_name", "area");
        let size = named("StageSize").output();
        assert_eq!(session.fetch(&size, &[]).unwrap().to_scalar::<i32>().unwrap(), 1);
        session.run(&named("StageClear").build(), &[]).unwrap();
        assert_eq!(session.fetch(&size, &[]).unwrap().to_scalar::<i32>().unwrap(), 0);
    }

    #[test]
    fn what_never_fits_is_an_error_and_waiting_can_be_cancelled() {
        let session = TestSession::new();
        let value = session.placeholder(DType::Int32);
        let put =
            session.graph.op("Stage").input(&value).attr("memory_limit", 4i64).attr("shared_name", "small").build();
        let status = session.run(&put, &[(&value, Tensor::vector(&[1i32, 2]))]).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        session.run(&put, &[(&value, Tensor::scalar(1i32))]).unwrap();
        let other = session.another_step();
        let waiting = other.start(&put, &[(&value, Tensor::scalar(2i32))]).unwrap();
        assert!(waits(&waiting));
        other.step.cancellation.cancel(Status::cancelled("stop"));
        assert_eq!(finished(&waiting).unwrap_err().code(), Code::Cancelled);
    }
}
