//! [`MultiDeviceIterator`]: one iterator whose elements go to several devices in turn, as `tf.distribute` distributes a task's
//! batches among its replicas. Each device requests the elements of its own shard.

use super::base::{Dataset, DatasetIterator, Element, Nesting, dataset_of};
use super::iterator::{HasSignature, Signature, check_element};
use super::iterator_ops::{FromStringHandle, ToStringHandle, end_of_sequence, next_shape, set_components};
use super::task::{cancelled_status, start};
use crate::data_flow::ResourceOp;
use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, CancellationToken, Gradient, Kernel, KernelDef, Op, OpContext, OpDef,
    OpFlags, Resource, shape,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tensor::{Result, Status, Tensor};

/// The most devices of an iterator.
const SHARDS_MAX: usize = 1 << 12;

const TYPES: &str = "output_types: list(type) >= 1";
const SHAPES: &str = "output_shapes: list(shape) >= 1";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "MultiDeviceIterator",
            inputs: &[],
            outputs: &["handle: resource"],
            attrs: &["devices: list(string) >= 1", "shared_name: string", "container: string", TYPES, SHAPES],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|builder| {
            let signature = Signature::new(builder)?;
            let shards = builder.attrs().strings("devices")?.len();
            if shards > SHARDS_MAX {
                return Err(Status::invalid_argument(format!("{shards} devices are more than {SHARDS_MAX}")));
            }
            ResourceOp::boxed(builder, move |_| Ok(MultiDeviceIterator::new(signature.clone(), shards)), |_, _| Ok(()))
        })],
    },
    Op {
        def: OpDef {
            name: "MultiDeviceIteratorInit",
            inputs: &["dataset: variant", "multi_device_iterator: resource", "max_buffer_size: int64"],
            outputs: &["incarnation_id: int64"],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(Init))],
    },
    Op {
        def: OpDef {
            name: "MultiDeviceIteratorGetNextFromShard",
            inputs: &["multi_device_iterator: resource", "shard_num: int32", "incarnation_id: int64"],
            outputs: &["components: output_types"],
            attrs: &[TYPES, SHAPES],
            flags: OpFlags::STATEFUL,
        },
        shape: next_shape,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new_async(GetNextFromShard))],
    },
    Op {
        def: OpDef {
            name: "MultiDeviceIteratorToStringHandle",
            inputs: &["multi_device_iterator: resource"],
            outputs: &["string_handle: string"],
            attrs: &[],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(|_| BoxedKernel::new(ToStringHandle::<MultiDeviceIterator>::default()))],
    },
    Op {
        def: OpDef {
            name: "MultiDeviceIteratorFromStringHandle",
            inputs: &["string_handle: string"],
            outputs: &["multi_device_iterator: resource"],
            attrs: &["output_types: list(type) >= 0 = []", "output_shapes: list(shape) >= 0 = []"],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::scalar,
        gradient: Gradient::Unsupported,
        kernels: &[KernelDef::any(FromStringHandle::<MultiDeviceIterator>::create)],
    },
];

/// An iterator whose elements go to shards in turns.
struct MultiDeviceIterator {
    signature: Signature,
    state: Mutex<State>,
}

struct State {
    /// Counts the datasets that it was given, so that requests for elements of an earlier one are refused.
    incarnation: i64,
    /// `None` before a dataset is set, and while an element is being computed.
    iterator: Option<Box<dyn DatasetIterator>>,
    is_over: bool,
    /// The elements that their shards have not requested yet.
    shards: Vec<VecDeque<Result<Element>>>,
    /// The shard of the next element.
    next_shard: usize,
    /// The most elements buffered for a shard. If a shard has this many, the others wait for it.
    buffer_max: usize,
    line: VecDeque<Request>,
    next_id: u64,
    /// Whether an element is being computed for the requests in line.
    is_busy: bool,
}

/// A waiting request for an element of a shard.
struct Request {
    id: u64,
    shard: usize,
    context: AsyncContext,
    /// Removes it from the line when its step is cancelled.
    token: Option<CancellationToken>,
}

impl Request {
    fn finish(self, element: Result<Element>) {
        if let Some(token) = self.token {
            self.context.step().cancellation.deregister(token);
        }
        self.context.finish_with(|context| set_components(context, element?));
    }
}

impl MultiDeviceIterator {
    fn new(signature: Signature, shards: usize) -> MultiDeviceIterator {
        let state = State {
            incarnation: 0,
            iterator: None,
            is_over: false,
            shards: (0..shards).map(|_| VecDeque::new()).collect(),
            next_shard: 0,
            buffer_max: 1,
            line: VecDeque::new(),
            next_id: 0,
            is_busy: false,
        };
        MultiDeviceIterator { signature, state: Mutex::new(state) }
    }

    /// Starts at the first element of a dataset; returns the number by which its elements are requested.
    fn restart(&self, dataset: &dyn Dataset, buffer_max: usize) -> Result<i64> {
        let iterator = dataset.iterator(Nesting::outermost())?;
        let mut state = self.state.lock();
        state.incarnation += 1;
        let incarnation = state.incarnation;
        let buffered: Vec<_> = state.shards.iter_mut().map(std::mem::take).collect();
        let before = (state.iterator.replace(iterator), buffered, std::mem::take(&mut state.line));
        state.is_over = false;
        state.next_shard = 0;
        state.buffer_max = buffer_max;
        // A concurrent request uses the previous iterator, and drops it.
        state.is_busy = false;
        drop(state);
        let (iterator, buffered, line) = before;
        drop((iterator, buffered));
        line.into_iter().for_each(|request| request.finish(Err(invalid_incarnation())));
        Ok(incarnation)
    }

    /// Requests the next element of a shard.
    fn request(self: &Arc<Self>, context: AsyncContext, shard: usize, incarnation: i64) {
        let cancellation = context.step().cancellation.clone();
        let queued = {
            let mut state = self.state.lock();
            match state.check(shard, incarnation) {
                Ok(()) => {
                    let id = state.next_id;
                    state.next_id += 1;
                    state.line.push_back(Request { id, shard, context, token: None });
                    Ok((id, !std::mem::replace(&mut state.is_busy, true)))
                }
                Err(status) => Err((context, status)),
            }
        };
        let (id, is_first) = match queued {
            Ok(queued) => queued,
            Err((context, status)) => return context.finish(Err(status)),
        };
        let iterator = Arc::downgrade(self);
        let registered = cancellation.register(move |_| {
            if let Some(iterator) = iterator.upgrade() {
                iterator.cancel(id);
            }
        });
        match registered {
            Err(_) => self.cancel(id),
            Ok(token) => {
                let mut state = self.state.lock();
                match state.line.iter_mut().find(|request| request.id == id) {
                    Some(request) => request.token = Some(token),
                    None => {
                        drop(state);
                        cancellation.deregister(token);
                    }
                }
            }
        }
        if is_first {
            start(self.clone().serve(incarnation));
        }
    }

    /// Ends a waiting request.
    fn cancel(&self, id: u64) {
        let request = {
            let mut state = self.state.lock();
            let position = state.line.iter().position(|request| request.id == id);
            position.and_then(|position| state.line.remove(position))
        };
        if let Some(request) = request {
            request.context.finish(Err(cancelled_status()));
        }
    }

    /// Serves the requests in line, until all remaining ones wait for a shard whose buffer is full.
    async fn serve(self: Arc<Self>, incarnation: i64) {
        loop {
            let (served, asked) = {
                let mut state = self.state.lock();
                if state.incarnation != incarnation {
                    return;
                }
                let served = state.take_served();
                let asked = state.next_to_ask();
                state.is_busy = asked.is_some();
                (served, asked)
            };
            let Some((step, mut iterator)) = asked else {
                return served.into_iter().for_each(|(request, element)| request.finish(element));
            };
            for (request, element) in served {
                // The receiver of this element may be busy with it for a while.
                step.runner.spawn(Box::new(move || request.finish(element)));
            }
            let next = iterator.next(&step).await;
            let next = next.and_then(|element| {
                if let Some(parts) = &element {
                    check_element(&self.signature, parts)?;
                }
                Ok(element)
            });
            let mut state = self.state.lock();
            if state.incarnation != incarnation {
                drop(state);
                return drop(iterator);
            }
            state.iterator = Some(iterator);
            match next {
                Ok(None) => state.is_over = true,
                Ok(Some(element)) => state.give(Ok(element)),
                // The requester has been notified; no other step is affected.
                Err(_) if step.cancellation.is_cancelled() => {}
                Err(status) => state.give(Err(status)),
            }
        }
    }
}

impl State {
    fn check(&self, shard: usize, incarnation: i64) -> Result<()> {
        if self.incarnation == 0 {
            return Err(Status::failed_precondition(
                "GetNextFromShard() failed because the iterator has not been initialized. Ensure that you have run the \
                 initializer operation for this iterator before getting the next element.",
            ));
        }
        if incarnation != self.incarnation {
            return Err(invalid_incarnation());
        }
        if shard >= self.shards.len() {
            let count = self.shards.len();
            return Err(Status::invalid_argument(format!("shard {shard} is none of the {count} of this iterator")));
        }
        Ok(())
    }

    fn give(&mut self, element: Result<Element>) {
        let shard = self.next_shard;
        self.shards[shard].push_back(element);
        self.next_shard = (shard + 1) % self.shards.len();
    }

    /// Removes the requests whose elements are available, or never will be.
    fn take_served(&mut self) -> Vec<(Request, Result<Element>)> {
        let mut served = Vec::new();
        let mut waiting = VecDeque::new();
        for request in std::mem::take(&mut self.line) {
            match self.shards[request.shard].pop_front() {
                Some(element) => served.push((request, element)),
                None if self.is_over => served.push((request, Err(end_of_sequence()))),
                None => waiting.push_back(request),
            }
        }
        self.line = waiting;
        served
    }

    /// Takes the iterator to compute an element for the first request in line, unless the buffer of the element's shard is full.
    fn next_to_ask(&mut self) -> Option<(Arc<kernel::Step>, Box<dyn DatasetIterator>)> {
        let first = self.line.iter().find(|request| !request.context.step().cancellation.is_cancelled())?;
        if self.shards[self.next_shard].len() >= self.buffer_max {
            return None;
        }
        let step = first.context.step().clone();
        Some((step, self.iterator.take()?))
    }
}

fn invalid_incarnation() -> Status {
    Status::invalid_argument("Invalid incarnation id")
}

impl HasSignature for MultiDeviceIterator {
    fn signature(&self) -> &Signature {
        &self.signature
    }
}

impl Resource for MultiDeviceIterator {
    fn type_name(&self) -> &'static str {
        "N10tensorflow4data12_GLOBAL__N_119MultiDeviceIteratorE"
    }

    fn describe(&self) -> String {
        format!("iterator for {} devices", self.state.lock().shards.len())
    }
}

struct Init;

impl Kernel for Init {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let dataset = dataset_of(context.input(0)?)?;
        let buffer_max = context.input(2)?.to_scalar::<i64>()?;
        let buffer_max = usize::try_from(buffer_max).ok().filter(|&max| max > 0).ok_or_else(|| {
            Status::invalid_argument(format!("max_buffer_size must be positive, and is {buffer_max}"))
        })?;
        let incarnation = context.resource::<MultiDeviceIterator>(1)?.restart(&*dataset, buffer_max)?;
        context.set_output(0, Tensor::scalar(incarnation));
        Ok(())
    }
}

struct GetNextFromShard;

impl AsyncKernel for GetNextFromShard {
    fn compute(&self, mut context: AsyncContext) {
        let asked = (|| {
            let op = context.op();
            let shard = op.input(1)?.to_scalar::<i32>()?;
            let shard = usize::try_from(shard)
                .map_err(|_| Status::invalid_argument(format!("shard {shard} is none of this iterator")))?;
            Ok((op.resource::<MultiDeviceIterator>(0)?, shard, op.input(2)?.to_scalar::<i64>()?))
        })();
        match asked {
            Ok((iterator, shard, incarnation)) => iterator.request(context, shard, incarnation),
            Err(status) => context.finish(Err(status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::iterator_ops::tests::session;
    use super::*;
    use crate::testing::{TestSession, finished, waits};
    use graph::Output;
    use tensor::{Code, DType, PartialShape};

    /// An iterator over the first numbers, for two devices.
    struct Shards {
        session: TestSession,
        init: Output,
        next: Output,
        shard: Output,
        incarnation: Output,
    }

    impl Shards {
        fn new(dataset: impl FnOnce(&TestSession) -> Output) -> Shards {
            let session = session();
            let (dtypes, shapes) = ([DType::Int64], [PartialShape::scalar()]);
            let handle = session.graph.op("MultiDeviceIterator").attr("devices", &["a".to_owned(), "b".to_owned()][..]);
            let handle = handle.attr("shared_name", "").attr("container", "");
            let handle = handle.attr("output_types", &dtypes[..]).attr("output_shapes", &shapes[..]).output();
            let init = session.graph.op("MultiDeviceIteratorInit").input(&dataset(&session)).input(&handle);
            let init = init.input(&session.number(2)).output();
            let (shard, incarnation) = (session.placeholder(DType::Int32), session.placeholder(DType::Int64));
            // By its name, as functions get it.
            let text = session.graph.op("MultiDeviceIteratorToStringHandle").input(&handle).output();
            let same = session.graph.op("MultiDeviceIteratorFromStringHandle").input(&text).output();
            let next = session.graph.op("MultiDeviceIteratorGetNextFromShard").input(&same).input(&shard);
            let next = next.input(&incarnation).attr("output_types", &dtypes[..]);
            let next = next.attr("output_shapes", &shapes[..]).output();
            Shards { session, init, next, shard, incarnation }
        }

        fn start_anew(&self) -> i64 {
            self.session.fetch(&self.init, &[]).unwrap().to_scalar().unwrap()
        }

        fn feeds(&self, shard: i32, incarnation: i64) -> [(&Output, Tensor); 2] {
            [(&self.shard, Tensor::scalar(shard)), (&self.incarnation, Tensor::scalar(incarnation))]
        }

        fn next(&self, shard: i32, incarnation: i64) -> Result<i64> {
            self.session.fetch(&self.next, &self.feeds(shard, incarnation))?.to_scalar()
        }
    }

    #[test]
    fn elements_go_to_the_shards_in_turns() {
        let shards = Shards::new(|session| session.range(5));
        assert_eq!(shards.next(0, 0).unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!((shards.start_anew(), shards.start_anew()), (1, 2));
        let taken: Vec<i64> = [0, 1, 1, 0, 0].map(|shard| shards.next(shard, 2).unwrap()).to_vec();
        assert_eq!(taken, [0, 1, 3, 2, 4]);
        for shard in [0, 1] {
            assert_eq!(shards.next(shard, 2).unwrap_err().code(), Code::OutOfRange);
        }
        for (shard, incarnation, message) in [(0, 1, "Invalid incarnation id"), (2, 2, "shard 2"), (-1, 2, "shard -1")]
        {
            let status = shards.next(shard, incarnation).unwrap_err();
            assert!(status.code() == Code::InvalidArgument && status.message().contains(message), "{status}");
        }
        assert_eq!(shards.start_anew(), 3);
        assert_eq!(shards.next(1, 3).unwrap(), 1);
    }

    #[test]
    fn a_shard_waits_for_another_that_has_too_many_elements() {
        let shards = Shards::new(|session| session.range(100));
        shards.start_anew();
        assert_eq!([0; 3].map(|shard| shards.next(shard, 1).unwrap()), [0, 2, 4], "two wait for the other");
        let another = shards.session.another_step();
        let waiting = another.start(&shards.next.op, &shards.feeds(0, 1)).unwrap();
        assert!(waits(&waiting), "the next one would be the third");
        let cancelled = shards.session.another_step();
        let given_up = cancelled.start(&shards.next.op, &shards.feeds(0, 1)).unwrap();
        cancelled.step.cancellation.cancel(Status::cancelled("enough"));
        assert_eq!(finished(&given_up).unwrap_err().code(), Code::Cancelled);
        assert_eq!(shards.next(1, 1).unwrap(), 1);
        assert_eq!(finished(&waiting).unwrap()[0].to_scalar::<i64>().unwrap(), 6);
        // A request that waits when the iterator restarts would wait forever.
        let waiting = another.start(&shards.next.op, &shards.feeds(0, 1)).unwrap();
        assert!(waits(&waiting));
        shards.start_anew();
        assert_eq!(finished(&waiting).unwrap_err().message(), "Invalid incarnation id");
    }

    #[test]
    fn an_error_is_one_elements_own() {
        let shards =
            Shards::new(|session| session.with_function("MapDataset", &session.range(5), "f", "fail_on_two", &[]));
        shards.start_anew();
        assert_eq!((shards.next(1, 1).unwrap(), shards.next(1, 1).unwrap()), (1, 3));
        assert_eq!(shards.next(0, 1).unwrap(), 0);
        assert_eq!(shards.next(0, 1).unwrap_err().message(), "two");
        assert_eq!(shards.next(0, 1).unwrap(), 4);
    }
}
