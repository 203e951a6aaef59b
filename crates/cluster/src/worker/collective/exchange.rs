//! [`Exchange`]: provides the parts of one collective op to other members and receives theirs: directly within the task, as
//! tensors from Ferroflow tasks, and through `RecvBuf` from TensorFlow's tasks.

use super::group::{Group, Member};
use crate::device::is_ours;
use crate::interface::RecvTensorCall;
use crate::random::RandomIds;
use crate::worker::step_state::{StepState, Transfers};
use kernel::{CollectiveCall, RendezvousKey, Step};
use prost::Message;
use std::sync::Arc;
use tensor::{Buffer, Code, DType, Result, Shape, Status, Tensor, copy_bytes};
use tokio::sync::oneshot;

/// The prefix of the edge name in a rendezvous key that requests a part. No tensor's name begins like this.
const BUFFER_EDGE: &str = "^collective ";

/// Notified when a part was taken.
pub(super) type Taken = oneshot::Receiver<Result<()>>;

/// One member's connection to the others in a collective op.
pub(super) struct Exchange {
    transfers: Arc<dyn Transfers>,
    ids: Arc<RandomIds>,
    state: Arc<StepState>,
    /// The step.
    pub step: Arc<Step>,
    /// The members.
    pub group: Arc<Group>,
    /// Which member this is.
    pub own: usize,
    dtype: DType,
    node_name: String,
    /// The prefix of the keys of all parts.
    execution: String,
}

/// Returns the key of the part that a rendezvous key requests.
pub(super) fn buffer_of(key: &RendezvousKey) -> Option<&str> {
    key.edge_name().strip_prefix(BUFFER_EDGE)
}

impl Exchange {
    /// Returns the exchange of a group's member in a step.
    pub fn new(
        transfers: &Arc<dyn Transfers>,
        ids: &Arc<RandomIds>,
        state: Arc<StepState>,
        group: Arc<Group>,
        own: usize,
        call: &CollectiveCall,
    ) -> Exchange {
        let (key, frame) = (group.key, call.frame);
        Exchange {
            transfers: transfers.clone(),
            ids: ids.clone(),
            state,
            step: call.step.clone(),
            group,
            own,
            dtype: call.dtype,
            node_name: call.node_name.clone(),
            execution: format!("{key}:{}:{}:{}", call.instance_key, frame.frame, frame.iteration),
        }
    }

    /// Returns the key of a part whose name consists of numbers.
    pub fn key(&self, numbers: [usize; 3]) -> String {
        let [first, second, third] = numbers;
        format!("{}:{first}:{second}:{third}", self.execution)
    }

    /// Returns the key of a part that one member provides to another in an all-to-all exchange.
    pub fn pair_key(&self, from: usize, to: usize) -> String {
        format!("{}{from}{to}", self.execution)
    }

    /// Provides a part to another member.
    pub fn post(&self, key: &str, part: Tensor) -> Result<Taken> {
        self.state.buffers.provide(key, part)
    }

    /// Waits until parts were taken. The step must not end before that.
    pub async fn taken(&self, parts: Vec<Taken>) -> Result<()> {
        for part in parts {
            part.await.unwrap_or_else(|_| Err(over()))?;
        }
        Ok(())
    }

    /// Receives a part of this many elements from another member.
    pub async fn receive(&self, from: usize, key: &str, num_elements: usize) -> Result<Tensor> {
        let member = &self.group.members[from];
        let received = if member.task == self.transfers.task() {
            self.state.buffers.consume(key)?.await.unwrap_or_else(|_| Err(over()))
        } else if is_ours(&member.attributes) {
            self.receive_tensor(member, key).await
        } else {
            self.receive_buffer(member, key, num_elements).await
        };
        let tensor = received.map_err(|status| match status.code() {
            Code::Unavailable => {
                status.context(format!("{} waits in '{}' for {}", self.transfers.task(), self.node_name, member.task))
            }
            // A restarted member knows nothing of its predecessor. For the others, that member is lost.
            Code::FailedPrecondition if member.task != self.transfers.task() => Status::unavailable(format!(
                "{} waits in '{}' for {}: {}",
                self.transfers.task(),
                self.node_name,
                member.task,
                status.message()
            )),
            // The member has ended its step for another reason.
            Code::Cancelled if member.task != self.transfers.task() => Status::aborted(format!(
                "{} waits in '{}' for {}, which has given up the step: {}",
                self.transfers.task(),
                self.node_name,
                member.task,
                status.message()
            ))
            .derived(),
            _ => status,
        })?;
        if tensor.dtype() != self.dtype || tensor.num_elements() != num_elements {
            return Err(Status::internal(format!(
                "{} gave {} elements of type {} in '{}', where {num_elements} of type {} were expected",
                member.task,
                tensor.num_elements(),
                tensor.dtype(),
                self.node_name,
                self.dtype
            )));
        }
        tensor.into_shape(Shape::vector(num_elements))
    }

    async fn receive_tensor(&self, member: &Member, key: &str) -> Result<Tensor> {
        let (source, incarnation) = (&member.attributes.name, member.attributes.incarnation);
        let edge = format!("{BUFFER_EDGE}{key}");
        let key = RendezvousKey::new(source, incarnation, &self.step.device, &edge, 0, 0);
        let call =
            RecvTensorCall { step_id: self.step.id, key: key.shared().clone(), request_id: self.ids.next_request_id() };
        self.transfers.worker(&member.task)?.recv_part(call, &member.attributes).await
    }

    async fn receive_buffer(&self, member: &Member, key: &str, num_elements: usize) -> Result<Tensor> {
        let shape = Shape::vector(num_elements);
        let num_bytes = shape.num_bytes(self.dtype.size())?;
        let own = &self.group.members[self.own];
        let request = proto::RecvBufRequest {
            step_id: self.step.id,
            buf_rendezvous_key: key.to_owned(),
            num_bytes: num_bytes as i64,
            client_locality: own.attributes.locality.clone(),
            server_locality: member.attributes.locality.clone(),
            src_device: member.attributes.name.clone(),
            dst_device: self.step.device.to_string(),
            request_id: self.ids.next_request_id(),
            src_incarnation: member.attributes.incarnation,
            ..Default::default()
        };
        let response = self.transfers.worker(&member.task)?.recv_buf(request).await?;
        let packed = response.transport_options.unwrap_or_default();
        let extra = proto::RecvBufRespExtra::decode(packed.value)
            .map_err(|error| Status::internal(format!("{} sent a buffer that can't be read: {error}", member.task)))?;
        let received: usize = extra.tensor_content.iter().map(|piece| piece.len()).sum();
        if received != num_bytes {
            return Err(Status::internal(format!(
                "RecvBufResponse returned {received} bytes where to_tensor expected {num_bytes}"
            )));
        }
        let _scope = self.step.session.account().enter();
        let pieces: Vec<&[u8]> = extra.tensor_content.iter().map(|piece| &piece[..]).collect();
        joined(self.dtype, shape, &pieces)
    }

    /// Concatenates consecutive parts to a tensor.
    pub fn put_together(&self, shape: &Shape, parts: &[Tensor]) -> Result<Tensor> {
        let _scope = self.step.session.account().enter();
        let pieces: Vec<&[u8]> = parts.iter().filter_map(|part| part.buffer().map(Buffer::bytes)).collect();
        joined(self.dtype, shape.clone(), &pieces)
    }

    /// Runs a computation; a long one runs on the compute threads.
    pub async fn compute(
        &self,
        bytes: usize,
        work: impl FnOnce(&Arc<Step>) -> Result<Tensor> + Send + 'static,
    ) -> Result<Tensor> {
        let step = self.step.clone();
        let work = move || {
            let _scope = step.session.account().enter();
            work(&step)
        };
        if bytes <= INLINE_BYTES_MAX {
            return work();
        }
        let (done, result) = oneshot::channel();
        self.step.runner.spawn(Box::new(move || drop(done.send(work()))));
        result.await.unwrap_or_else(|_| Err(Status::internal("a reduction ended without a result")))
    }
}

/// The most bytes that are reduced on the receiving thread.
const INLINE_BYTES_MAX: usize = 256 << 10;

fn joined(dtype: DType, shape: Shape, pieces: &[&[u8]]) -> Result<Tensor> {
    let mut buffer = Buffer::new(shape.num_bytes(dtype.size())?)?;
    let mut rest = buffer.bytes_mut().unwrap_or_default();
    for piece in pieces {
        let (to, after) = rest
            .split_at_mut_checked(piece.len())
            .ok_or_else(|| Status::internal("the parts of a tensor are larger than the tensor"))?;
        copy_bytes(to, piece);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(Status::internal("the parts of a tensor are smaller than the tensor"));
    }
    Tensor::from_buffer(dtype, shape, buffer)
}

fn over() -> Status {
    Status::cancelled("the step is over").derived()
}
