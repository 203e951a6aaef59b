//! Encoding and decoding of the messages that carry tensors, without the message codec.

use super::body::Message;
use super::split::TensorPath;
use super::wire::{EncodedTensor, Reader, Segments, Writer, read_tensor};
use crate::interface::{
    ReceivedTensor, RecvTensorCall, RunCallableCall, RunCallableReply, RunGraphCall, RunGraphReply, RunStepCall,
    RunStepReply,
};
use bytes::Bytes;
use proto::{CostGraphDef, ExecutorOpts, RunMetadata};
use std::sync::Arc;
use tensor::{Code, Result, Status, Tensor};

/// The field numbers of tensors in the messages.
pub(crate) const RUN_STEP_REQUEST: TensorPath = &[2, 2];
pub(crate) const RUN_STEP_RESPONSE: TensorPath = &[1, 2];
pub(crate) const RUN_CALLABLE_REQUEST: TensorPath = &[3];
pub(crate) const RUN_CALLABLE_RESPONSE: TensorPath = &[1];
pub(crate) const RUN_GRAPH_REQUEST: TensorPath = &[3, 2];
pub(crate) const RUN_GRAPH_RESPONSE: TensorPath = &[1, 2];
pub(crate) const RECV_TENSOR_RESPONSE: TensorPath = &[1];

/// A call, and whether its errors are wanted in the answer's body, where they may be longer.
pub(crate) struct WithErrors<T> {
    pub call: T,
    pub store_errors_in_response_body: bool,
}

/// Reads a `RunStepRequest`.
pub(crate) fn read_run_step(mut message: Message) -> Result<WithErrors<RunStepCall>> {
    let bytes = message.bytes().clone();
    let mut call = RunStepCall::default();
    let mut store_errors_in_response_body = false;
    let mut reader = Reader::new(&bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => call.session_handle = field.text()?.to_owned(),
            2 => {
                let (name, tensor) = read_named_tensor(field.bytes()?, &mut message)?;
                call.feeds.push((name.to_owned(), tensor));
            }
            3 => call.fetches.push(field.text()?.to_owned()),
            4 => call.targets.push(field.text()?.to_owned()),
            5 => call.options = Some(field.message()?),
            6 => call.partial_run_handle = field.text()?.to_owned(),
            7 => store_errors_in_response_body = field.varint()? != 0,
            _ => {}
        }
    }
    Ok(WithErrors { call, store_errors_in_response_body })
}

/// Writes a `RunStepRequest`, which requests errors in the body.
pub(crate) fn write_run_step(call: &RunStepCall, request_id: i64) -> Result<Segments> {
    let feeds = encode(call.feeds.iter().map(|(_, tensor)| tensor))?;
    let mut writer = Writer::new(256);
    writer.bytes(1, call.session_handle.as_bytes());
    for ((name, _), tensor) in call.feeds.iter().zip(&feeds) {
        writer.named_tensor(2, name, tensor);
    }
    for fetch in &call.fetches {
        writer.element(3, fetch.as_bytes());
    }
    for target in &call.targets {
        writer.element(4, target.as_bytes());
    }
    if let Some(options) = &call.options {
        writer.message(5, options);
    }
    writer.bytes(6, call.partial_run_handle.as_bytes());
    writer.varint(7, 1);
    writer.varint(8, request_id as u64);
    writer.finish(|| largest("the feeds of a step", call.feeds.iter().map(|(name, tensor)| (name.as_str(), tensor))))
}

/// Reads a `RunStepResponse`.
pub(crate) fn read_run_step_reply(mut message: Message) -> Result<RunStepReply> {
    let bytes = message.bytes().clone();
    let mut reply = RunStepReply::default();
    let mut error = BodyError::default();
    let mut reader = Reader::new(&bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => {
                let (name, tensor) = read_named_tensor(field.bytes()?, &mut message)?;
                reply.tensors.push((name.to_owned(), tensor));
            }
            2 => reply.metadata = Some(field.message()?),
            3 => error.code = field.varint()? as i32,
            4 => error.message = field.text()?.to_owned(),
            _ => {}
        }
    }
    error.check()?;
    Ok(reply)
}

/// Writes a `RunStepResponse`; an error that the caller wants in the body is put there.
pub(crate) fn write_run_step_reply(reply: Result<RunStepReply>, errors_in_body: bool) -> Result<Segments> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(status) if errors_in_body => {
            let mut writer = Writer::new(status.message().len() + 32);
            writer.message(2, &RunMetadata::default());
            writer.varint(3, status.code() as u64);
            writer.bytes(4, status.message().as_bytes());
            return writer.finish(|| "an error message".to_owned());
        }
        Err(status) => return Err(status),
    };
    let tensors = encode(reply.tensors.iter().map(|(_, tensor)| tensor))?;
    let mut writer = Writer::new(256);
    for ((name, _), tensor) in reply.tensors.iter().zip(&tensors) {
        writer.named_tensor(1, name, tensor);
    }
    if let Some(metadata) = &reply.metadata {
        writer.message(2, metadata);
    }
    writer
        .finish(|| largest("the fetches of a step", reply.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))))
}

/// Reads a `RunCallableRequest`.
pub(crate) fn read_run_callable(mut message: Message) -> Result<RunCallableCall> {
    let bytes = message.bytes().clone();
    let mut call = RunCallableCall::default();
    let mut reader = Reader::new(&bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => call.session_handle = field.text()?.to_owned(),
            2 => call.handle = field.varint()? as i64,
            3 => call.feeds.push(read_tensor(field.bytes()?, message.next_content())?),
            _ => {}
        }
    }
    Ok(call)
}

/// Writes a `RunCallableRequest`.
pub(crate) fn write_run_callable(call: &RunCallableCall, request_id: i64) -> Result<Segments> {
    let mut writer = Writer::new(128);
    writer.bytes(1, call.session_handle.as_bytes());
    writer.varint(2, call.handle as u64);
    for tensor in &encode(&call.feeds)? {
        writer.tensor(3, tensor);
    }
    writer.varint(4, request_id as u64);
    writer.finish(|| largest("the feeds of a callable", call.feeds.iter().map(|tensor| ("", tensor))))
}

/// Reads a `RunCallableResponse`.
pub(crate) fn read_run_callable_reply(mut message: Message) -> Result<RunCallableReply> {
    let bytes = message.bytes().clone();
    let mut reply = RunCallableReply::default();
    let mut reader = Reader::new(&bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => reply.fetches.push(read_tensor(field.bytes()?, message.next_content())?),
            2 => reply.metadata = field.message()?,
            _ => {}
        }
    }
    Ok(reply)
}

/// Writes a `RunCallableResponse`.
pub(crate) fn write_run_callable_reply(reply: &RunCallableReply) -> Result<Segments> {
    let mut writer = Writer::new(128);
    for tensor in &encode(&reply.fetches)? {
        writer.tensor(1, tensor);
    }
    writer.message(2, &reply.metadata);
    writer.finish(|| largest("the fetches of a callable", reply.fetches.iter().map(|tensor| ("", tensor))))
}

/// Reads a `RunGraphRequest`.
pub(crate) fn read_run_graph(mut message: Message) -> Result<WithErrors<RunGraphCall>> {
    let bytes = message.bytes().clone();
    let mut graph_handle: &str = "";
    let mut session_handle: &str = "";
    let mut receives: Vec<Arc<str>> = Vec::new();
    let mut store_errors_in_response_body = false;
    let mut call = RunGraphCall {
        session_handle: EMPTY.with(Arc::clone),
        create_worker_session_called: false,
        graph_handle: EMPTY.with(Arc::clone),
        step_id: 0,
        sends: Vec::new(),
        receives: Arc::new([]),
        options: ExecutorOpts::default(),
        is_partial: false,
        is_last_partial_run: false,
        cleans_itself: false,
    };
    let mut reader = Reader::new(&bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => graph_handle = field.text()?,
            2 => call.step_id = field.varint()? as i64,
            3 => {
                let (name, tensor) = read_named_tensor(field.bytes()?, &mut message)?;
                call.sends.push((name.into(), tensor));
            }
            4 => receives.push(field.text()?.into()),
            5 => call.options = field.message()?,
            6 => call.is_partial = field.varint()? != 0,
            7 => call.is_last_partial_run = field.varint()? != 0,
            8 => session_handle = field.text()?,
            9 => store_errors_in_response_body = field.varint()? != 0,
            10 => call.create_worker_session_called = field.varint()? != 0,
            _ => {}
        }
    }
    call.graph_handle = graph_handle.into();
    call.session_handle = session_handle.into();
    if !receives.is_empty() {
        call.receives = receives.into();
    }
    Ok(WithErrors { call, store_errors_in_response_body })
}

thread_local! {
    static EMPTY: Arc<str> = Arc::from("");
}

/// Writes a `RunGraphRequest`, which requests errors in the body.
pub(crate) fn write_run_graph(call: &RunGraphCall, request_id: i64) -> Result<Segments> {
    let sends = encode(call.sends.iter().map(|(_, tensor)| tensor))?;
    let mut writer = Writer::new(192);
    writer.bytes(1, call.graph_handle.as_bytes());
    writer.varint(2, call.step_id as u64);
    for ((key, _), tensor) in call.sends.iter().zip(&sends) {
        writer.named_tensor(3, key, tensor);
    }
    for key in call.receives.iter() {
        writer.element(4, key.as_bytes());
    }
    if call.options != ExecutorOpts::default() {
        writer.message(5, &call.options);
    }
    writer.varint(6, u64::from(call.is_partial));
    writer.varint(7, u64::from(call.is_last_partial_run));
    writer.bytes(8, call.session_handle.as_bytes());
    writer.varint(9, 1);
    writer.varint(10, u64::from(call.create_worker_session_called));
    writer.varint(11, request_id as u64);
    writer.finish(|| largest("the feeds of a partition", call.sends.iter().map(|(key, tensor)| (&**key, tensor))))
}

/// Reads a `RunGraphResponse`; the tensors are returned in the order of the requested keys.
pub(crate) fn read_run_graph_reply(mut message: Message, keys: &[Arc<str>]) -> Result<RunGraphReply> {
    let bytes = message.bytes().clone();
    let mut reply = RunGraphReply::default();
    let mut received: Vec<Option<Tensor>> = vec![None; keys.len()];
    let mut error = BodyError::default();
    let mut position = 0;
    let mut reader = Reader::new(&bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => {
                let (name, tensor) = read_named_tensor(field.bytes()?, &mut message)?;
                // Our tasks send them in order; others may not.
                let found = match keys.get(position) {
                    Some(key) if **key == *name => Some(position),
                    _ => keys.iter().position(|key| **key == *name),
                };
                position += 1;
                if let Some(slot) = found.and_then(|index| received.get_mut(index)) {
                    *slot = Some(tensor);
                }
            }
            2 => reply.step_stats = Some(field.message()?),
            4 => reply.partition_graphs.push(field.message()?),
            5 => error.code = field.varint()? as i32,
            6 => error.message = field.text()?.to_owned(),
            _ => {}
        }
    }
    error.check()?;
    for (tensor, key) in received.into_iter().zip(keys) {
        let missing = || Status::internal(format!("a worker did not return the tensor of key {key}"));
        reply.received.push(tensor.ok_or_else(missing)?);
    }
    Ok(reply)
}

/// Writes a `RunGraphResponse`; an error that the caller wants in the body is put there, unless it is derived, which only the
/// trailer can express.
pub(crate) fn write_run_graph_reply(
    reply: Result<RunGraphReply>,
    keys: &[Arc<str>],
    errors_in_body: bool,
    is_partial: bool,
) -> Result<Segments> {
    let reply = match reply {
        Ok(reply) => reply,
        Err(status) if errors_in_body && !status.is_derived() => {
            let mut writer = Writer::new(status.message().len() + 32);
            writer.varint(5, status.code() as u64);
            writer.bytes(6, status.message().as_bytes());
            return writer.finish(|| "an error message".to_owned());
        }
        Err(status) => return Err(status),
    };
    let tensors = encode(&reply.received)?;
    let mut writer = Writer::new(64);
    for (key, tensor) in keys.iter().zip(&tensors) {
        writer.named_tensor(1, key, tensor);
    }
    if let Some(step_stats) = &reply.step_stats {
        writer.message(2, step_stats);
    }
    if !is_partial {
        writer.message(3, &CostGraphDef::default());
    }
    for graph in &reply.partition_graphs {
        writer.message(4, graph);
    }
    writer.finish(|| largest("the results of a partition", keys.iter().map(|key| &**key).zip(&reply.received)))
}

/// Reads a `RecvTensorRequest`.
pub(crate) fn read_recv_tensor(bytes: &Bytes) -> Result<RecvTensorCall> {
    let mut key: &str = "";
    let mut step_id = 0;
    let mut request_id = 0;
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => step_id = field.varint()? as i64,
            2 => key = field.text()?,
            7 => request_id = field.varint()? as i64,
            _ => {}
        }
    }
    Ok(RecvTensorCall { step_id, key: key.into(), request_id })
}

/// Writes a `RecvTensorRequest`.
pub(crate) fn write_recv_tensor(call: &RecvTensorCall) -> Result<Segments> {
    let mut writer = Writer::new(call.key.len() + 32);
    writer.varint(1, call.step_id as u64);
    writer.bytes(2, call.key.as_bytes());
    writer.varint(7, call.request_id as u64);
    writer.finish(|| "a rendezvous key".to_owned())
}

/// Reads a `RecvTensorResponse`.
pub(crate) fn read_recv_tensor_reply(mut message: Message) -> Result<ReceivedTensor> {
    let bytes = message.bytes().clone();
    let mut tensor = None;
    let mut is_dead = false;
    let mut send_start_micros = 0;
    let mut require_ack = false;
    let mut reader = Reader::new(&bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => tensor = Some(read_tensor(field.bytes()?, message.next_content())?),
            2 => is_dead = field.varint()? != 0,
            3 => send_start_micros = field.varint()? as i64,
            5 => require_ack = field.varint()? != 0,
            _ => {}
        }
    }
    let tensor = match tensor {
        Some(tensor) => tensor,
        // A dead tensor may have no content at all.
        None if is_dead => Tensor::vector::<f32>(&[]),
        None => return Err(Status::internal("a tensor was asked for, and the answer holds none")),
    };
    Ok(ReceivedTensor { tensor, is_dead, send_start_micros, require_ack })
}

/// Writes a `RecvTensorResponse`.
pub(crate) fn write_recv_tensor_reply(reply: &ReceivedTensor, key: &str) -> Result<Segments> {
    let tensor = EncodedTensor::new(&reply.tensor)?;
    let mut writer = Writer::new(64);
    writer.varint(2, u64::from(reply.is_dead));
    writer.varint(3, reply.send_start_micros as u64);
    writer.tensor(1, &tensor);
    writer.finish(|| largest("the tensor of a transfer", [(key, &reply.tensor)].into_iter()))
}

fn read_named_tensor<'a>(bytes: &'a [u8], message: &mut Message) -> Result<(&'a str, Tensor)> {
    let mut name: &str = "";
    let mut tensor = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => name = field.text()?,
            2 => tensor = Some(read_tensor(field.bytes()?, message.next_content())),
            _ => {}
        }
    }
    let missing = || Err(Status::invalid_argument(format!("the tensor '{name}' came without a value")));
    let tensor = tensor.unwrap_or_else(missing).map_err(|status| status.context(format!("tensor '{name}'")))?;
    Ok((name, tensor))
}

fn encode<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<smallvec::SmallVec<[EncodedTensor; 4]>> {
    tensors.into_iter().map(EncodedTensor::new).collect()
}

/// Names the largest of several tensors, for the error about a message that is too large.
fn largest<'a>(what: &str, tensors: impl Iterator<Item = (&'a str, &'a Tensor)>) -> String {
    match tensors.max_by_key(|(_, tensor)| tensor.num_bytes()) {
        Some((name, tensor)) => format!(
            "{what} (the largest is '{name}', {} {} of {} bytes)",
            tensor.dtype(),
            tensor.shape(),
            tensor.num_bytes()
        ),
        None => what.to_owned(),
    }
}

/// An error from the body of an answer.
#[derive(Default)]
struct BodyError {
    code: i32,
    message: String,
}

impl BodyError {
    fn check(self) -> Result<()> {
        if self.code == 0 { Ok(()) } else { Err(Status::new(Code::from_i32(self.code), self.message)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::{DType, Shape};

    /// Returns a tensor of 2 GiB whose memory is never touched.
    fn huge() -> Tensor {
        Tensor::zeros(DType::UInt8, Shape::new(&[2, 1 << 30]).unwrap()).unwrap()
    }

    #[test]
    fn what_is_too_large_is_named_with_its_size() {
        let check = |result: Result<Segments>, name: &str| {
            let status = result.err().unwrap();
            assert_eq!(status.code(), Code::InvalidArgument);
            for part in [name, "[2,1073741824] of 2147483648 bytes", "2 GiB"] {
                assert!(status.message().contains(part), "{part}: {status}");
            }
        };
        let tensors = vec![("small:0".to_owned(), Tensor::scalar(1f32)), ("huge:0".to_owned(), huge())];
        check(write_run_step_reply(Ok(RunStepReply { tensors, metadata: None }), true), "'huge:0'");
        let received = ReceivedTensor { tensor: huge(), is_dead: false, send_start_micros: 0, require_ack: false };
        check(write_recv_tensor_reply(&received, "a;1;b;weights;0:0"), "weights");
    }
}
