//! [`CallbackHub`]: calls functions in a client's process, such as Python functions.
//!
//! A client attends with an unguessable id, over a connection that it opens itself, and polls for calls. An op whose token names
//! that id gets its results when the client answers. If the client disconnects, the calls that it has not answered fail, and a
//! step that is cancelled does not wait for its call.

use crate::{CancellationToken, Step};
use foldhash::HashMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tensor::{Result, Status, Tensor};

/// The most clients that may attend, or be waited for, at the same time.
const CLIENTS_MAX: usize = 1024;

/// The most calls that may wait for one client to poll.
const WAITING_MAX: usize = 4096;

/// The most outstanding polls of one client.
const ASKING_MAX: usize = 256;

/// The most bytes of arguments that may be with one client. A larger call is sent alone.
const BYTES_MAX: usize = 256 << 20;

/// How long a call waits for its client to attend.
const ATTENDANCE_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of disconnected clients that are remembered.
const GONE_KEPT: usize = 256;

/// The longest description that a client may give of itself.
const DESCRIPTION_CHARS_MAX: usize = 200;

/// Separates the parts of a token: the function's name, and the id of its client.
const SEPARATOR: char = '@';

/// Receives a call's results.
pub type CallbackDone = Box<dyn FnOnce(Result<Vec<Tensor>>) + Send>;

/// A call for a client to run.
pub struct Callback {
    /// Identifies the call in the answer.
    pub id: u64,
    /// Names the function.
    pub token: String,
    /// The arguments.
    pub args: Vec<Tensor>,
}

type Deliver = Box<dyn FnOnce(Callback) + Send>;

/// The clients that serve functions to this process, and their calls.
#[derive(Default)]
pub struct CallbackHub {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    clients: HashMap<String, Client>,
    calls: HashMap<u64, OpenCall>,
    gone: VecDeque<(String, String)>,
    next_id: u64,
}

#[derive(Default)]
struct Client {
    /// The client's description of itself; `None` until it attends.
    description: Option<String>,
    waiting: VecDeque<Callback>,
    asking: VecDeque<(u64, Deliver)>,
    /// The bytes of arguments that are with the client.
    bytes: usize,
    /// The number of calls that are with the client.
    delivered: usize,
}

struct OpenCall {
    client: String,
    bytes: usize,
    is_delivered: bool,
    done: CallbackDone,
    step: Arc<Step>,
    cancellation: Option<CancellationToken>,
}

impl CallbackHub {
    /// Returns the hub of this process. One serves all servers, since clients' ids are unique.
    pub fn of_process() -> &'static Arc<CallbackHub> {
        static HUB: LazyLock<Arc<CallbackHub>> = LazyLock::new(Arc::default);
        &HUB
    }

    /// Returns the function's name in a token.
    pub fn name_of(token: &str) -> &str {
        token.split(SEPARATOR).next().unwrap_or(token)
    }

    /// Calls a function of a client. `done` receives the results, or the error, such as that the step was cancelled.
    pub fn call(self: &Arc<Self>, token: &str, args: Vec<Tensor>, step: &Arc<Step>, done: CallbackDone) {
        // `done` may call again when it receives an error, so it must not run under the lock.
        let added = self.state.lock().add(token, args, step, done);
        let (id, attends) = match added {
            Ok(added) => added,
            Err((status, done)) => return done(Err(status)),
        };
        let hub = Arc::downgrade(self);
        let registered = step.cancellation.register(move |status| {
            if let Some(hub) = hub.upgrade() {
                hub.end(id, Err(status));
            }
        });
        match registered {
            Err(status) => return self.end(id, Err(status)),
            Ok(token) => {
                let mut state = self.state.lock();
                match state.calls.get_mut(&id) {
                    Some(call) => call.cancellation = Some(token),
                    None => {
                        drop(state);
                        step.cancellation.deregister(token);
                    }
                }
            }
        }
        if !attends {
            let hub = Arc::downgrade(self);
            step.runner.spawn_after(
                ATTENDANCE_TIMEOUT,
                Box::new(move || {
                    if let Some(hub) = hub.upgrade() {
                        hub.give_up(id);
                    }
                }),
            );
            return;
        }
        self.pump(client_of(token).unwrap_or_default());
    }

    /// Makes a client attend until the returned guard is dropped.
    pub fn attend(self: &Arc<Self>, client: &str, description: &str) -> Result<Attendance> {
        if client.len() != 32 || !client.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Status::invalid_argument("a client's id is 32 hexadecimal digits"));
        }
        let description: String = description.chars().filter(|c| !c.is_control()).take(DESCRIPTION_CHARS_MAX).collect();
        {
            let mut state = self.state.lock();
            let entry = state.client(client)?;
            if entry.description.is_some() {
                return Err(Status::already_exists("a client with this id attends already"));
            }
            entry.description = Some(description);
        }
        self.pump(client);
        Ok(Attendance { hub: self.clone(), client: client.to_owned() })
    }

    /// Polls for a call on behalf of an attending client. Delivers at most one call, and none after the returned guard is dropped.
    pub fn ask(self: &Arc<Self>, client: &str, deliver: impl FnOnce(Callback) + Send + 'static) -> Result<Asking> {
        let id = {
            let mut state = self.state.lock();
            let id = state.next_id;
            state.next_id += 1;
            let attending = state.clients.get_mut(client).filter(|client| client.description.is_some());
            let entry = attending.ok_or_else(|| Status::failed_precondition("this client does not attend"))?;
            if entry.asking.len() >= ASKING_MAX {
                return Err(Status::resource_exhausted(format!(
                    "a client asks for more than {ASKING_MAX} calls at once"
                )));
            }
            entry.asking.push_back((id, Box::new(deliver)));
            id
        };
        self.pump(client);
        Ok(Asking { hub: self.clone(), client: client.to_owned(), id })
    }

    /// Handles a client's answer to a call. Ignores answers that nobody waits for any more.
    pub fn answer(&self, client: &str, id: u64, result: Result<Vec<Tensor>>) {
        let is_its_own =
            self.state.lock().calls.get(&id).is_some_and(|call| call.client == client && call.is_delivered);
        if is_its_own {
            self.end(id, result);
        }
    }

    /// Ends a call, and delivers the next ones.
    fn end(&self, id: u64, result: Result<Vec<Tensor>>) {
        let Some(call) = self.state.lock().remove(id) else { return };
        if let Some(token) = call.cancellation {
            call.step.cancellation.deregister(token);
        }
        self.pump(&call.client);
        (call.done)(result);
    }

    /// Fails a call whose client has not attended in time.
    fn give_up(&self, id: u64) {
        let token = {
            let state = self.state.lock();
            let Some(call) = state.calls.get(&id) else { return };
            let Some(client) = state.clients.get(&call.client) else { return };
            if client.description.is_some() {
                return;
            }
            client.waiting.iter().find(|call| call.id == id).map(|call| call.token.clone()).unwrap_or_default()
        };
        self.end(id, Err(not_served(&token)));
    }

    /// Delivers waiting calls to the client's polls.
    fn pump(&self, client: &str) {
        loop {
            let (deliver, call) = {
                let mut state = self.state.lock();
                let State { clients, calls, .. } = &mut *state;
                let Some(entry) = clients.get_mut(client) else { return };
                let Some(call) = entry.waiting.front() else { return };
                let bytes = calls.get(&call.id).map_or(0, |call| call.bytes);
                let fits = entry.delivered == 0 || entry.bytes.saturating_add(bytes) <= BYTES_MAX;
                if entry.description.is_none() || entry.asking.is_empty() || !fits {
                    return;
                }
                let (Some(call), Some((_, deliver))) = (entry.waiting.pop_front(), entry.asking.pop_front()) else {
                    return;
                };
                entry.bytes = entry.bytes.saturating_add(bytes);
                entry.delivered += 1;
                if let Some(call) = calls.get_mut(&call.id) {
                    call.is_delivered = true;
                }
                (deliver, call)
            };
            deliver(call);
        }
    }

    /// Fails the calls that a disconnected client has not answered.
    fn leave(&self, client: &str) {
        let (failed, description) = {
            let mut state = self.state.lock();
            let description = state.clients.get(client).and_then(|entry| entry.description.clone()).unwrap_or_default();
            let ids: Vec<u64> =
                state.calls.iter().filter(|(_, call)| call.client == client).map(|(id, _)| *id).collect();
            let failed: Vec<OpenCall> = ids.into_iter().filter_map(|id| state.remove(id)).collect();
            state.clients.remove(client);
            state.gone.push_back((client.to_owned(), description.clone()));
            if state.gone.len() > GONE_KEPT {
                state.gone.pop_front();
            }
            (failed, description)
        };
        for call in failed {
            if let Some(token) = call.cancellation {
                call.step.cancellation.deregister(token);
            }
            (call.done)(Err(gone(&description)));
        }
    }
}

impl State {
    /// Adds a call, and returns its id and whether its client attends.
    fn add(
        &mut self,
        token: &str,
        args: Vec<Tensor>,
        step: &Arc<Step>,
        done: CallbackDone,
    ) -> Result<(u64, bool), (Status, CallbackDone)> {
        let id = self.next_id;
        let bytes = args.iter().map(Tensor::num_bytes).fold(0, usize::saturating_add);
        let (client, attends) = match self.enqueue(token, Callback { id, token: token.to_owned(), args }) {
            Ok(queued) => queued,
            Err(status) => return Err((status, done)),
        };
        self.next_id += 1;
        let call = OpenCall { client, bytes, is_delivered: false, done, step: step.clone(), cancellation: None };
        self.calls.insert(id, call);
        Ok((id, attends))
    }

    fn enqueue(&mut self, token: &str, call: Callback) -> Result<(String, bool)> {
        let client = client_of(token).ok_or_else(|| not_served(token))?;
        if let Some((_, description)) = self.gone.iter().find(|(id, _)| id == client) {
            return Err(gone(description));
        }
        let entry = self.client(client)?;
        if entry.waiting.len() >= WAITING_MAX {
            return Err(Status::resource_exhausted(format!("more than {WAITING_MAX} calls wait for a client")));
        }
        entry.waiting.push_back(call);
        Ok((client.to_owned(), entry.description.is_some()))
    }

    /// Returns the entry of a client, which may not attend yet.
    fn client(&mut self, id: &str) -> Result<&mut Client> {
        if !self.clients.contains_key(id) && self.clients.len() >= CLIENTS_MAX {
            return Err(Status::resource_exhausted(format!(
                "this server takes functions of {CLIENTS_MAX} clients at most"
            )));
        }
        Ok(self.clients.entry(id.to_owned()).or_default())
    }

    /// Removes a call, whether it waits or is with its client.
    fn remove(&mut self, id: u64) -> Option<OpenCall> {
        let call = self.calls.remove(&id)?;
        if let Some(client) = self.clients.get_mut(&call.client) {
            if call.is_delivered {
                client.bytes = client.bytes.saturating_sub(call.bytes);
                client.delivered = client.delivered.saturating_sub(1);
            } else {
                client.waiting.retain(|call| call.id != id);
            }
            if client.description.is_none() && client.waiting.is_empty() {
                self.clients.remove(&call.client);
            }
        }
        Some(call)
    }
}

/// A guard: the client attends until it is dropped.
pub struct Attendance {
    hub: Arc<CallbackHub>,
    client: String,
}

impl Drop for Attendance {
    fn drop(&mut self) {
        self.hub.leave(&self.client);
    }
}

/// A guard: the client polls for a call until it is dropped.
pub struct Asking {
    hub: Arc<CallbackHub>,
    client: String,
    id: u64,
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(client) = self.hub.state.lock().clients.get_mut(&self.client) {
            client.asking.retain(|(id, _)| *id != self.id);
        }
    }
}

fn client_of(token: &str) -> Option<&str> {
    token.split_once(SEPARATOR).map(|(_, client)| client)
}

fn not_served(token: &str) -> Status {
    Status::failed_precondition(format!(
        "{} calls a function of the client's Python program, which does not serve it: run the program with `python -m ferroflow`, \
         and place the op on the task that its session is connected to",
        CallbackHub::name_of(token)
    ))
}

fn gone(description: &str) -> Status {
    Status::unavailable(format!("the client that serves this function has disconnected: {description}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cancellation;
    use std::sync::mpsc::{Receiver, channel};
    use tensor::Code;

    const CLIENT: &str = "0123456789abcdef0123456789abcdef";

    fn call(hub: &Arc<CallbackHub>, token: &str, args: Vec<Tensor>, step: &Arc<Step>) -> Receiver<Result<Vec<Tensor>>> {
        let (sender, receiver) = channel();
        hub.call(token, args, step, Box::new(move |result| drop(sender.send(result))));
        receiver
    }

    fn token() -> String {
        format!("pyfunc_0@{CLIENT}")
    }

    #[test]
    fn a_call_goes_to_its_client_and_back() {
        let (hub, step) = (Arc::new(CallbackHub::default()), Arc::new(Step::detached()));
        let _attendance = hub.attend(CLIENT, "a test").unwrap();
        assert_eq!(hub.attend(CLIENT, "another").err().unwrap().code(), Code::AlreadyExists);
        let result = call(&hub, &token(), vec![Tensor::scalar(2f32)], &step);
        let (sender, asked) = channel();
        let _asking = hub.ask(CLIENT, move |call| drop(sender.send(call))).unwrap();
        let asked = asked.try_recv().unwrap();
        assert_eq!((asked.token, asked.args.len()), (token(), 1));
        // Only the client that has the call can answer it.
        hub.answer("somebody else", asked.id, Ok(vec![]));
        assert!(result.try_recv().is_err());
        hub.answer(CLIENT, asked.id, Ok(vec![Tensor::scalar(3f32)]));
        assert_eq!(result.try_recv().unwrap().unwrap()[0].to_scalar::<f32>().unwrap(), 3.0);
        assert!(hub.state.lock().calls.is_empty());
    }

    #[test]
    fn a_client_that_leaves_fails_its_calls_and_later_ones() {
        let (hub, step) = (Arc::new(CallbackHub::default()), Arc::new(Step::detached()));
        let attendance = hub.attend(CLIENT, "train.py\n(pid 7)").unwrap();
        let (sender, asked) = channel();
        let _asking = hub.ask(CLIENT, move |call| drop(sender.send(call))).unwrap();
        let delivered = call(&hub, &token(), vec![], &step);
        let waiting = call(&hub, &token(), vec![], &step);
        assert!(asked.try_recv().is_ok());
        drop(attendance);
        for result in [delivered, waiting, call(&hub, &token(), vec![], &step)] {
            let status = result.try_recv().unwrap().unwrap_err();
            assert_eq!(status.code(), Code::Unavailable);
            assert!(status.message().ends_with("disconnected: train.py(pid 7)"), "{status}");
        }
        assert!(hub.state.lock().clients.is_empty());
    }

    #[test]
    fn a_cancelled_step_does_not_wait_for_its_call() {
        let hub = Arc::new(CallbackHub::default());
        let _attendance = hub.attend(CLIENT, "a test").unwrap();
        let step = Arc::new(Step { cancellation: Cancellation::new(), ..Step::detached() });
        let result = call(&hub, &token(), vec![], &step);
        step.cancellation.cancel(Status::cancelled("enough"));
        assert_eq!(result.try_recv().unwrap().unwrap_err().code(), Code::Cancelled);
        assert!(hub.state.lock().clients[CLIENT].waiting.is_empty());
        assert_eq!(call(&hub, &token(), vec![], &step).try_recv().unwrap().unwrap_err().code(), Code::Cancelled);
    }

    #[test]
    fn a_function_without_a_client_is_an_error_that_says_what_to_do() {
        let (hub, step) = (Arc::new(CallbackHub::default()), Arc::new(Step::detached()));
        let status = call(&hub, "pyfunc_3", vec![], &step).try_recv().unwrap().unwrap_err();
        assert!(status.message().starts_with("pyfunc_3 calls a function of the client's Python program"), "{status}");
        assert!(hub.attend("no id", "").is_err());
        assert!(hub.ask(CLIENT, |_| {}).is_err());
    }

    #[test]
    fn arguments_beyond_the_bound_wait_for_an_answer() {
        let (hub, step) = (Arc::new(CallbackHub::default()), Arc::new(Step::detached()));
        let _attendance = hub.attend(CLIENT, "a test").unwrap();
        let large = Tensor::new(tensor::DType::UInt8, tensor::Shape::vector(BYTES_MAX / 2 + 1)).unwrap();
        let (sender, asked) = channel();
        let mut asking = Vec::new();
        for _ in 0..2 {
            let sender = sender.clone();
            asking.push(hub.ask(CLIENT, move |call| sender.send(call.id).unwrap_or_default()).unwrap());
        }
        let results: Vec<_> = (0..2).map(|_| call(&hub, &token(), vec![large.clone()], &step)).collect();
        let first = asked.try_recv().unwrap();
        assert!(asked.try_recv().is_err());
        hub.answer(CLIENT, first, Ok(vec![]));
        assert!(results[0].try_recv().is_ok());
        assert!(asked.try_recv().is_ok());
    }
}
