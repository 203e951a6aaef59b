//! Transfers between devices and tasks: a Send passes a tensor to the step's rendezvous, a Recv waits for it there.

use kernel::{
    AsyncContext, AsyncKernel, BoxedKernel, CancellationToken, Cost, Gradient, Kernel, KernelDef, Op, OpContext, OpDef,
    OpFlags, Transfer, Value, shape,
};
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::{DType, Result, Shape, Status, Tensor};

/// The ops of this file. On our devices all memory is host memory, so the two kinds are the same.
pub(super) const OPS: &[Op] = &[send("_Send"), send("_HostSend"), recv("_Recv"), recv("_HostRecv")];

const fn send(name: &'static str) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &["tensor: T"],
            outputs: &[],
            attrs: &[
                "T: type",
                "tensor_name: string",
                "send_device: string",
                "send_device_incarnation: int",
                "recv_device: string",
                "client_terminated: bool = false",
            ],
            flags: OpFlags::STATEFUL,
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: const { &[KernelDef::any(|builder| BoxedKernel::new(Send { transfer: Transfer::new(builder.attrs())? }))] },
    }
}

const fn recv(name: &'static str) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &[],
            outputs: &["tensor: tensor_type"],
            attrs: &[
                "tensor_type: type",
                "tensor_name: string",
                "send_device: string",
                "send_device_incarnation: int",
                "recv_device: string",
                "client_terminated: bool = false",
            ],
            flags: OpFlags::STATEFUL.union(OpFlags::DISTRIBUTED_COMMUNICATION),
        },
        shape: shape::unknown,
        gradient: Gradient::Unsupported,
        kernels: const {
            &[KernelDef::any(|builder| {
                BoxedKernel::new_async(Recv {
                    transfer: Transfer::new(builder.attrs())?,
                    dtype: builder.output_dtype(0),
                })
            })]
        },
    }
}

struct Send {
    transfer: Transfer,
}

impl Kernel for Send {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let is_dead = context.input_is_dead() || matches!(context.value(0), Value::None);
        let tensor = if is_dead { Tensor::new(DType::Float, Shape::vector(0))? } else { context.take_input(0)? };
        self.transfer.with_key(context.frame(), |key| context.step().rendezvous.send(key, tensor, is_dead))
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct Recv {
    transfer: Transfer,
    dtype: DType,
}

impl AsyncKernel for Recv {
    fn compute(&self, mut context: AsyncContext) {
        let at = context.op().frame();
        let step = context.step().clone();
        let waiting = Arc::new(Waiting { state: Mutex::new(WaitingState { context: Some(context), token: None }) });
        let dtype = self.dtype;
        let on_arrival = {
            let (waiting, step) = (waiting.clone(), step.clone());
            move |arrived: Result<(Tensor, bool)>| {
                let Some((context, token)) = waiting.take() else { return };
                if let Some(token) = token {
                    step.cancellation.deregister(token);
                }
                context.finish_with(|context| accept(context, arrived, dtype));
            }
        };
        self.transfer.with_key(at, |key| step.rendezvous.receive(key, Box::new(on_arrival)));
        if waiting.is_over() {
            return;
        }
        let on_cancel = {
            let waiting = waiting.clone();
            move |status: Status| {
                if let Some((context, _)) = waiting.take() {
                    context.finish(Err(status));
                }
            }
        };
        match step.cancellation.register(on_cancel) {
            Ok(token) => {
                if !waiting.keep_token(token) {
                    step.cancellation.deregister(token);
                }
            }
            Err(status) => {
                if let Some((context, _)) = waiting.take() {
                    context.finish(Err(status));
                }
            }
        }
    }
}

/// A Recv that waits; the arrival or a cancellation, whichever takes the context, ends it.
struct Waiting {
    state: Mutex<WaitingState>,
}

struct WaitingState {
    context: Option<AsyncContext>,
    token: Option<CancellationToken>,
}

impl Waiting {
    fn take(&self) -> Option<(AsyncContext, Option<CancellationToken>)> {
        let mut state = self.state.lock();
        let context = state.context.take()?;
        Some((context, state.token.take()))
    }

    fn is_over(&self) -> bool {
        self.state.lock().context.is_none()
    }

    /// Stores the token for the arrival; returns whether the wait continues.
    fn keep_token(&self, token: CancellationToken) -> bool {
        let mut state = self.state.lock();
        if state.context.is_none() {
            return false;
        }
        state.token = Some(token);
        true
    }
}

fn accept(context: &mut OpContext<'_>, arrived: Result<(Tensor, bool)>, expected: DType) -> Result<()> {
    let (tensor, is_dead) = arrived?;
    if is_dead {
        // The output stays empty, which makes it dead.
        return Ok(());
    }
    if tensor.dtype() != expected {
        return Err(Status::invalid_argument(format!(
            "received a tensor of type {} where {expected} was expected",
            tensor.dtype()
        )));
    }
    context.set_output(0, tensor);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use graph::{AttrMap, Edge, Node};
    use kernel::{Completion, FrameAndIteration, Outputs, RendezvousKey, Step, Values};
    use std::sync::mpsc;
    use tensor::Code;

    const DEVICE: &str = "/job:w/replica:0/task:0/device:CPU:0";

    fn node(op: &str, dtype_attr: &str) -> Node {
        let mut attrs = AttrMap::default();
        attrs.set(dtype_attr, DType::Float);
        attrs.set("tensor_name", "edge_1_x");
        attrs.set("send_device", DEVICE);
        attrs.set("send_device_incarnation", -1i64);
        attrs.set("recv_device", DEVICE);
        let schema = graph::OpLookup::op(registry(), op).unwrap().schema.clone();
        let mut node = Node::new("n".to_owned(), schema, DEVICE.to_owned(), attrs).unwrap();
        if op.ends_with("Send") {
            node.inputs.push(Edge { node: graph::NodeId(0), port: 0 });
        }
        node
    }

    struct Report(mpsc::Sender<Result<Outputs>>);

    impl Completion for Report {
        fn complete(self: Box<Self>, result: Result<Outputs>) {
            self.0.send(result).unwrap();
        }
    }

    fn start_recv(step: &Arc<Step>, at: FrameAndIteration) -> mpsc::Receiver<Result<Outputs>> {
        let BoxedKernel::Async(kernel) = registry().create_kernel(&node("_Recv", "tensor_type"), DEVICE).unwrap()
        else {
            panic!("a receive waits")
        };
        let (sender, receiver) = mpsc::channel();
        let outputs: Outputs = std::iter::once(Value::None).collect();
        let report = Box::new(Report(sender));
        kernel.compute(AsyncContext::new(Values::new(), outputs, step.clone(), "n".into(), at, false, report));
        receiver
    }

    fn run_send(step: &Arc<Step>, at: FrameAndIteration, value: Value, is_dead: bool) {
        let BoxedKernel::Sync(kernel) = registry().create_kernel(&node("_Send", "T"), DEVICE).unwrap() else {
            panic!("a send doesn't wait")
        };
        let mut inputs: Values = std::iter::once(value).collect();
        let mut outputs = Outputs::new();
        kernel.compute(&mut OpContext::new(&mut inputs, &mut outputs, step, "n", at, is_dead)).unwrap();
    }

    fn value_of(result: Result<Outputs>) -> Option<f32> {
        match &result.unwrap()[0] {
            Value::Tensor(tensor) => Some(tensor.to_scalar::<f32>().unwrap()),
            _ => None,
        }
    }

    #[test]
    fn a_tensor_goes_from_send_to_recv_of_the_same_frame_and_iteration() {
        let step = Arc::new(Step::detached());
        let inner = FrameAndIteration { frame: 7, iteration: 2 };
        let outer = start_recv(&step, FrameAndIteration::default());
        let in_loop = start_recv(&step, inner);
        run_send(&step, inner, Value::Tensor(Tensor::scalar(2f32)), false);
        assert_eq!(value_of(in_loop.try_recv().unwrap()), Some(2.0));
        assert!(outer.try_recv().is_err());
        run_send(&step, FrameAndIteration::default(), Value::Tensor(Tensor::scalar(1f32)), false);
        assert_eq!(value_of(outer.try_recv().unwrap()), Some(1.0));
    }

    #[test]
    fn a_dead_input_arrives_dead() {
        let step = Arc::new(Step::detached());
        run_send(&step, FrameAndIteration::default(), Value::None, true);
        let received = start_recv(&step, FrameAndIteration::default());
        assert_eq!(value_of(received.try_recv().unwrap()), None);
    }

    #[test]
    fn the_key_is_the_one_of_the_wire() {
        let step = Arc::new(Step::detached());
        let key = RendezvousKey::parse(&format!("{DEVICE};ffffffffffffffff;{DEVICE};edge_1_x;0:0")).unwrap();
        step.rendezvous.send(&key, Tensor::scalar(3f32), false).unwrap();
        let received = start_recv(&step, FrameAndIteration::default());
        assert_eq!(value_of(received.try_recv().unwrap()), Some(3.0));
    }

    #[test]
    fn a_cancelled_step_ends_the_wait_whether_before_or_after() {
        let step = Arc::new(Step::detached());
        let waiting = start_recv(&step, FrameAndIteration::default());
        assert!(waiting.try_recv().is_err());
        step.cancellation.cancel(Status::cancelled("stop"));
        assert_eq!(waiting.try_recv().unwrap().err().map(|status| status.code()), Some(Code::Cancelled));
        let late = start_recv(&step, FrameAndIteration { frame: 1, iteration: 0 });
        assert_eq!(late.try_recv().unwrap().err().map(|status| status.code()), Some(Code::Cancelled));
        // A later arrival finds no receiver, and nothing is notified twice.
        run_send(&step, FrameAndIteration::default(), Value::Tensor(Tensor::scalar(1f32)), false);
        assert!(waiting.try_recv().is_err());
    }

    #[test]
    fn a_tensor_of_another_type_is_refused() {
        let step = Arc::new(Step::detached());
        run_send(&step, FrameAndIteration::default(), Value::Tensor(Tensor::scalar(1i32)), false);
        let received = start_recv(&step, FrameAndIteration::default());
        assert_eq!(received.try_recv().unwrap().err().map(|status| status.code()), Some(Code::InvalidArgument));
    }

    #[test]
    fn separators_in_names_are_refused() {
        let mut bad = node("_Recv", "tensor_type");
        bad.attrs.set("send_device", "a;b;c;d;e");
        assert!(registry().create_kernel(&bad, DEVICE).is_err());
    }
}
