//! The calls by which a client's process serves its own functions, such as Python functions. The client opens the connection and
//! makes the calls, so a server never connects to a client.
//!
//! `Attend` lasts as long as the client. `Exchange` sends the result of a call and waits for the next one.
//! Both use the messages of `RunStep`, since they carry named tensors:
//!
//! | field | of a request | of a response |
//! |---|---|---|
//! | `session_handle` | the client's id, which it has drawn at random | |
//! | `partial_run_handle` | which call this is the result of | |
//! | `feed`, `tensor` | what the function returned | `call`: id and token as strings; then the arguments |
//! | `target` | the number of an error's code | |
//! | `fetch` | the error's message; in `Attend`, who the client is | |

use crate::client::caller;
use crate::interface::{RunStepCall, RunStepReply};
use kernel::{Callback, CallbackHub};
use tensor::{Code, Result, Shape, Status, Tensor};
use tokio::sync::{oneshot, watch};
use tracing::{debug, info};

/// The path of `Attend`.
pub(super) const ATTEND: &str = "/ferroflow.CallbackService/Attend";
/// The path of `Exchange`.
pub(super) const EXCHANGE: &str = "/ferroflow.CallbackService/Exchange";

/// The longest error message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Registers a client's functions until the client or the server ends.
pub(super) async fn attend(call: RunStepCall, stopping: watch::Receiver<bool>) -> Result<RunStepReply> {
    let description = call.fetches.first().map_or("a client without a name", String::as_str);
    let description = format!("{description}, {}", caller().client);
    let attendance = CallbackHub::of_process().attend(&call.session_handle, &description)?;
    info!("{description} serves functions of its program");
    let attending = Attending { description, _attendance: attendance };
    stopped(stopping).await;
    drop(attending);
    Ok(RunStepReply::default())
}

/// Takes a result, and returns the next call.
pub(super) async fn exchange(mut call: RunStepCall, stopping: watch::Receiver<bool>) -> Result<RunStepReply> {
    let hub = CallbackHub::of_process();
    let client = std::mem::take(&mut call.session_handle);
    if !call.partial_run_handle.is_empty() {
        let id = call.partial_run_handle.parse().map_err(|_| Status::invalid_argument("a call's id is a number"))?;
        hub.answer(&client, id, result_of(call)?);
    }
    let (sender, next) = oneshot::channel();
    let asking = hub.ask(&client, move |call| drop(sender.send(call)))?;
    let next = tokio::select! {
        next = next => next.map_err(|_| Status::unavailable("this client no longer attends"))?,
        () = stopped(stopping) => return Err(Status::unavailable("the server stops")),
    };
    drop(asking);
    reply(next)
}

/// Returns the client's result of a call.
fn result_of(call: RunStepCall) -> Result<Result<Vec<Tensor>>> {
    let Some(code) = call.targets.first() else {
        return Ok(Ok(call.feeds.into_iter().map(|(_, tensor)| tensor).collect()));
    };
    let code: i32 = code.parse().map_err(|_| Status::invalid_argument("an error's code is a number"))?;
    let mut message = call.fetches.into_iter().next().unwrap_or_default();
    let end = (0..=MESSAGE_BYTES_MAX.min(message.len())).rev().find(|&at| message.is_char_boundary(at)).unwrap_or(0);
    message.truncate(end);
    Ok(Err(Status::new(Code::from_i32(code), message)))
}

fn reply(call: Callback) -> Result<RunStepReply> {
    let which = vec![call.id.to_string().into(), call.token.into()];
    let which = Tensor::from_strings(Shape::vector(2), which)?;
    let args = call.args.into_iter().enumerate().map(|(index, tensor)| (index.to_string(), tensor));
    Ok(RunStepReply { tensors: std::iter::once(("call".to_owned(), which)).chain(args).collect(), metadata: None })
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // Without the sender, the server is shutting down.
    let _ = stopping.wait_for(|&is_stopping| is_stopping).await;
}

/// Reports when a client has disconnected.
struct Attending {
    description: String,
    _attendance: kernel::Attendance,
}

impl Drop for Attending {
    fn drop(&mut self) {
        debug!("{} no longer serves functions", self.description);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_are_told_apart() {
        let call = RunStepCall { feeds: vec![("0".into(), Tensor::scalar(1f32))], ..Default::default() };
        assert_eq!(result_of(call).unwrap().unwrap().len(), 1);
        let failed = |code: &str, message: &str| {
            result_of(RunStepCall { targets: vec![code.into()], fetches: vec![message.into()], ..Default::default() })
        };
        assert_eq!(failed("11", "StopIteration: ").unwrap().unwrap_err(), Status::out_of_range("StopIteration: "));
        let long = failed("3", &"é".repeat(MESSAGE_BYTES_MAX)).unwrap().unwrap_err();
        assert!(long.message().len() <= MESSAGE_BYTES_MAX);
        assert!(failed("three", "").is_err());
    }

    #[tokio::test]
    async fn a_stopping_server_waits_for_no_client() {
        let stopping = watch::Sender::new(false);
        let call = RunStepCall { session_handle: "ab".repeat(16), ..Default::default() };
        let attending = tokio::spawn(attend(call.clone(), stopping.subscribe()));
        // Refused until the other call has begun.
        let asking = loop {
            match exchange(call.clone(), watch::Sender::new(true).subscribe()).await.unwrap_err().code() {
                Code::FailedPrecondition => tokio::task::yield_now().await,
                _ => break tokio::spawn(exchange(call.clone(), stopping.subscribe())),
            }
        };
        stopping.send_replace(true);
        assert!(attending.await.unwrap().is_ok());
        assert!(asking.await.unwrap().is_err());
    }
}
