//! Rust functions for the ops of a graph: threads serve their calls as long as the graph exists.

use cluster::RandomIds;
use graph::{Graph, Output};
use kernel::{Attendance, Callback, CallbackHub};
use parking_lot::Mutex;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tensor::{DType, Result, Status, Tensor};

/// Answers a call.
pub(super) type Function = Box<dyn FnMut(&Callback) -> Result<Vec<Tensor>> + Send>;

/// The threads that serve the calls of a graph's ops; they end with the graph.
#[derive(Default)]
struct Servers(Mutex<Vec<Server>>);

/// Ends a serving thread when it is dropped.
struct Server(Sender<Message>);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.send(Message::Stop);
    }
}

enum Message {
    Call(Callback),
    Stop,
}

/// Starts a thread for each function; any of them may get a call. Returns the id under which ops find them.
pub(super) fn serve(graph: &Graph, description: &str, functions: Vec<Function>) -> Result<String> {
    let ids = RandomIds::from_system();
    let client = format!("{:016x}{:016x}", ids.next(), ids.next());
    let attendance = Arc::new(CallbackHub::of_process().attend(&client, description)?);
    for function in functions {
        let (calls, incoming) = channel();
        let (client, sender, attendance) = (client.clone(), calls.clone(), attendance.clone());
        let serve = move || answer_calls(&client, function, &sender, &incoming, &attendance);
        let spawned = std::thread::Builder::new().name("dataset elements".to_owned()).spawn(serve);
        spawned.map_err(|error| {
            Status::resource_exhausted(format!("can't start a thread for a dataset's elements: {error}"))
        })?;
        graph.extension::<Servers>().0.lock().push(Server(calls));
    }
    Ok(client)
}

/// Adds an op that calls a function under `name`.
pub(super) fn call(graph: &Graph, client: &str, name: &str, args: &[Output], types: &[DType]) -> Vec<Output> {
    let inputs: Vec<DType> = args.iter().map(Output::dtype).collect();
    let op = graph.op("PyFunc").inputs(args).attr("token", format!("{name}@{client}"));
    op.attr("Tin", &inputs[..]).attr("Tout", types).outputs()
}

/// Serves calls until the graph is dropped. The client stays registered as long as one of its threads runs.
fn answer_calls(
    client: &str,
    mut function: Function,
    calls: &Sender<Message>,
    incoming: &Receiver<Message>,
    _attendance: &Attendance,
) {
    let hub = CallbackHub::of_process();
    loop {
        let calls = calls.clone();
        let Ok(_asking) = hub.ask(client, move |call| drop(calls.send(Message::Call(call)))) else { return };
        let Ok(Message::Call(call)) = incoming.recv() else { return };
        // The caller waits for an answer, even if the function panics.
        let answer = catch_unwind(AssertUnwindSafe(|| function(&call)));
        hub.answer(client, call.id, answer.unwrap_or_else(|panic| Err(panicked(&*panic))));
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Status {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Status::unknown(format!("the function of a dataset panicked: {}", text.unwrap_or("without a word")))
}
