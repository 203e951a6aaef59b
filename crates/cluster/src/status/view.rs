//! The whole cluster as one task sees it: all tasks are asked for their state at once, with a short timeout.

use super::{Sources, snapshot};
use crate::clock::timeout;
use crate::interface::WorkerInterface;
use crate::task_question::{TaskQuestion, TaskTopic};
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tensor::{Code, Result, Status};

/// The most tasks that are asked; in a larger cluster the others are only counted.
const TASKS_MAX: usize = 256;

/// How long a task may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a task that records steps may take to answer.
const RECORD_TIMEOUT: Duration = Duration::from_secs(8);

/// The largest answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const RECORD_BYTES_MAX: usize = 32 << 20;

/// Returns the state of all tasks.
pub(super) async fn cluster(sources: &Sources) -> Value {
    let names = sources.workers.tasks();
    let states = names.iter().take(TASKS_MAX).map(|task| state_of(sources, task));
    json!({
        "seen_by": sources.task,
        "num_tasks": names.len(),
        "tasks": join_all(states).await,
    })
}

async fn state_of(sources: &Sources, task: &str) -> Value {
    if task == sources.task {
        return snapshot::state(sources);
    }
    let question = TaskQuestion::new(TaskTopic::State, 0);
    let failed = match ask(sources, task, question, ANSWER_TIMEOUT, ANSWER_BYTES_MAX).await {
        Ok(Value::Object(mut state)) => {
            // Whatever the answer says, it is shown as that of the task that was asked.
            state.insert("task".to_owned(), task.into());
            return Value::Object(state);
        }
        Ok(_) => Status::internal("the answer is not what a task says of itself"),
        Err(status) => status,
    };
    let address = sources.workers.address(task);
    // TensorFlow's servers don't have this call.
    if failed.code() == Code::Unimplemented {
        return json!({"task": task, "address": address, "is_foreign": true});
    }
    json!({"task": task, "address": address, "error": failed.message()})
}

/// Asks a task, which may be this one.
pub(super) async fn ask(
    sources: &Sources,
    task: &str,
    question: TaskQuestion,
    limit: Duration,
    bytes_max: usize,
) -> Result<Value> {
    let worker: Arc<dyn WorkerInterface> = sources.workers.get(task)?;
    let answer = timeout(limit, worker.ask(question)).await;
    let answer = answer.map_err(|_| Status::deadline_exceeded(format!("no answer within {} s", limit.as_secs())))??;
    if answer.json.len() > bytes_max {
        return Err(Status::resource_exhausted(format!("an answer of {} bytes is too long", answer.json.len())));
    }
    serde_json::from_str(&answer.json).map_err(|error| Status::internal(format!("an answer is no JSON: {error}")))
}

/// Records the next steps on all tasks; returns them as a trace for Chrome and Perfetto.
pub(super) async fn trace(sources: &Sources, steps: u64) -> Value {
    let names = sources.workers.tasks();
    let recordings = names
        .iter()
        .take(TASKS_MAX)
        .map(|task| ask(sources, task, TaskQuestion::new(TaskTopic::Record, steps), RECORD_TIMEOUT, RECORD_BYTES_MAX));
    let recordings = join_all(recordings).await;
    let mut events = Vec::new();
    for (pid, (task, recording)) in names.iter().zip(recordings).enumerate() {
        let label = match &recording {
            Ok(_) => task.clone(),
            Err(status) => format!("{task}: {}", status.message()),
        };
        events.push(json!({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": label}}));
        let Ok(recording) = recording else { continue };
        for node in rows(&recording, "nodes") {
            let [step, device, name, op, start, took, thread] = fields(node);
            events.push(json!({
                "ph": "X", "pid": pid, "tid": thread, "name": name, "cat": op, "ts": start, "dur": took,
                "args": {"device": device, "op": op, "step": step},
            }));
        }
        for event in rows(&recording, "events") {
            let [kind, step, subject, start, took, bytes, code] = fields(event);
            events.push(json!({
                "ph": "X", "pid": pid, "tid": 0, "name": kind, "cat": "transfer", "ts": start, "dur": took,
                "args": {"step": step, "peer or session": subject, "bytes": bytes, "code": code},
            }));
        }
    }
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

fn rows<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// Returns the fields of a row; missing ones are null.
fn fields<const N: usize>(row: &Value) -> [&Value; N] {
    std::array::from_fn(|index| row.get(index).unwrap_or(&Value::Null))
}
