//! The state of a task at one moment, as JSON, for other tasks and for pages.
//!
//! Every list in it is bounded, and so is every name. Handles of sessions and ids of steps are secrets: sessions are numbered,
//! and steps are identified by a hash, which only those who know the id can match.

use super::{Sources, process};
use crate::clock::{elapsed, now};
use crate::metrics::StepTimesSummary;
use crate::recent_lines::recent_lines;
use crate::recorder::{Event, Kind};
use graph::shape::infer_shapes;
use graph::{NodeGraph, OpLookup, TypeSlot};
use kernel::Holdings;
use proto::StepStats;
use serde_json::{Map, Value, json};
use siphasher::sip::SipHasher24;
use std::cmp::Reverse;
use std::hash::Hasher;
use tensor::{PartialShape, memory_state};

/// The most rows of a list.
const SESSIONS_MAX: usize = 50;
const VARIABLES_MAX: usize = 30;
const WAITS_MAX: usize = 50;
const PEERS_MAX: usize = 256;
const LINES_MAX: usize = 40;
const EVENTS_MAX: usize = 400;

/// The number of events from which steps per second are computed.
const RATE_EVENTS: usize = 2_048;

/// Steps that ended longer ago don't count for the current rate.
const RATE_MICROS: u64 = 10_000_000;

/// The most nodes of a graph.
const NODES_MAX: usize = 5_000;

/// The most inputs of a node.
const INPUTS_MAX: usize = 64;

/// The most characters of a name.
const NAME_CHARS_MAX: usize = 200;

/// Returns the state of a task.
pub(super) fn state(sources: &Sources) -> Value {
    let metrics = sources.workers.metrics();
    let now = metrics.clock.now_micros();
    let usage = process::usage();
    let memory = memory_state();
    let events = metrics.recorder.last(RATE_EVENTS);
    let mut state = json!({
        "task": sources.task,
        "address": sources.workers.address(&sources.task),
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "now_micros": now,
        "uptime_seconds": metrics.uptime().as_secs_f64(),
        "cpu_seconds": usage.cpu_seconds,
        "resident_bytes": usage.resident_bytes,
        "memory_bytes": memory.process.used_bytes,
        "memory_limit_bytes": memory.process.limit_bytes,
        "steps": times(&metrics.steps.summary(), Kind::Step, &events, now),
        "partitions": times(&metrics.partitions.summary(), Kind::Partition, &events, now),
        "errors": errors(metrics.step_errors(), metrics.partition_errors()),
        "sessions": sessions(sources, now),
        "peers": peers(sources),
        "saves": saves(),
        "lines": lines(),
        "events": recorded(sources, &events),
    });
    if let (Some(worker), Some(fields)) = (sources.worker.upgrade(), state.as_object_mut()) {
        let survey = worker.survey();
        fields.insert("incarnation".to_owned(), format!("{:016x}", survey.incarnation).into());
        fields.insert("worker_sessions".to_owned(), survey.num_sessions.into());
        fields.insert("rendezvous_steps".to_owned(), survey.num_steps.into());
        fields.insert("waiting_requests".to_owned(), survey.num_waiting_requests.into());
        let waits = metrics.waits().into_iter().take(WAITS_MAX).map(|wait| {
            json!({"who": wait.who, "task": wait.task, "seconds": elapsed(wait.since).as_secs_f64(), "why": name(&wait.because)})
        });
        let step_waits = survey.waits.iter().take(WAITS_MAX).map(|wait| {
            let seconds = now.saturating_sub(wait.since_micros) as f64 / 1e6;
            json!({"who": "a step", "task": wait.task, "seconds": seconds, "why": format!("tensor {}", name(&wait.tensor))})
        });
        fields.insert("waits".to_owned(), waits.chain(step_waits).collect());
        resources(fields, &survey.holdings);
    }
    state
}

/// Returns the number of steps, their rate per second, and their duration.
fn times(summary: &StepTimesSummary, kind: Kind, events: &[Event], now: u64) -> Value {
    let mut recent: Vec<&Event> = events
        .iter()
        .filter(|event| event.kind == kind && event.code == 0 && end_of(event) + RATE_MICROS > now)
        .collect();
    recent.sort_by_key(|event| end_of(event));
    let rate = match recent.as_slice() {
        [first, .., last] => {
            let span = now.max(end_of(last)).saturating_sub(end_of(first)).max(1);
            (recent.len() - 1) as f64 * 1e6 / span as f64
        }
        _ => 0.0,
    };
    let mut took: Vec<u64> = recent.iter().map(|event| event.took_micros).collect();
    took.sort_unstable();
    let quantile = |share: f64| took.get(((took.len() as f64 - 1.0) * share).round().max(0.0) as usize).copied();
    json!({
        "count": summary.count(),
        "seconds": summary.sum_micros as f64 / 1e6,
        "per_second": rate,
        "median_micros": quantile(0.5),
        "p99_micros": quantile(0.99),
    })
}

fn end_of(event: &Event) -> u64 {
    event.start_micros.saturating_add(event.took_micros)
}

fn errors(steps: Vec<(tensor::Code, u64)>, partitions: Vec<(tensor::Code, u64)>) -> Value {
    let some = |counts: Vec<(tensor::Code, u64)>| -> Map<String, Value> {
        let failed = counts.into_iter().filter(|(_, count)| *count > 0);
        failed.map(|(code, count)| (code.name().to_owned(), count.into())).collect()
    };
    json!({"steps": some(steps), "partitions": some(partitions)})
}

fn sessions(sources: &Sources, now: u64) -> Value {
    let mut sessions = sources.master.survey();
    // The most used come first, however many are omitted.
    sessions.sort_by_key(|session| Reverse((session.last_step_micros, session.number)));
    let seconds = |micros: u64| now.saturating_sub(micros) as f64 / 1e6;
    sessions
        .iter()
        .take(SESSIONS_MAX)
        .map(|session| {
            json!({
                "number": session.number,
                "client": session.client,
                "age_seconds": seconds(session.opened_micros),
                "idle_seconds": (session.last_step_micros > 0).then(|| seconds(session.last_step_micros)),
                "steps": session.steps,
                "loss": session.loss,
                "global_step": session.global_step,
                "memory_bytes": session.memory_bytes,
                "nodes": session.num_nodes,
            })
        })
        .collect()
}

fn peers(sources: &Sources) -> Value {
    let peers = sources.workers.metrics().peers().iter().take(PEERS_MAX);
    peers
        .map(|peer| {
            let ((sent, sent_tensors), (received, received_tensors)) = (peer.total_sent(), peer.total_received());
            json!({
                "task": peer.task,
                "sent_bytes": sent,
                "sent_tensors": sent_tensors,
                "received_bytes": received,
                "received_tensors": received_tensors,
            })
        })
        .collect()
}

fn saves() -> Value {
    let saves = kernel::saves();
    let now = now();
    let last: Vec<Value> = saves
        .last
        .iter()
        .map(|save| {
            let age = now.saturating_duration_since(save.ended).as_secs_f64();
            json!({"prefix": save.prefix, "bytes": save.bytes, "took_seconds": save.took.as_secs_f64(), "age_seconds": age})
        })
        .collect();
    json!({"count": saves.count, "last": last})
}

fn lines() -> Value {
    let line = |line: crate::recent_lines::RecentLine| json!([line.at_micros, line.level, line.text]);
    recent_lines(LINES_MAX).into_iter().map(line).collect()
}

/// Returns the last events as arrays: kind, step, subject, start, duration, bytes, code.
fn recorded(sources: &Sources, events: &[Event]) -> Value {
    let peers = sources.workers.metrics().peers();
    let row = |event: &Event| {
        let subject = match event.kind {
            Kind::Step | Kind::Partition => Value::from(event.subject),
            Kind::Sent | Kind::Received => {
                peers.get(event.subject as usize).map_or(Value::Null, |peer| peer.task.as_str().into())
            }
        };
        let kind = match event.kind {
            Kind::Step => "step",
            Kind::Partition => "part",
            Kind::Sent => "sent",
            Kind::Received => "recv",
        };
        json!([
            kind,
            shown_step(event.step_id),
            subject,
            event.start_micros,
            event.took_micros,
            event.bytes,
            event.code
        ])
    };
    events.iter().skip(events.len().saturating_sub(EVENTS_MAX)).map(row).collect()
}

fn resources(fields: &mut Map<String, Value>, holdings: &[(String, Holdings)]) {
    let mut variables: Vec<(&String, usize, u64)> = Vec::new();
    let mut queues: Vec<(&String, usize)> = Vec::new();
    for (name, held) in holdings {
        variables.extend(held.variable_bytes.map(|bytes| (name, bytes, held.uses)));
        queues.extend(held.queue_elements.map(|elements| (name, elements)));
    }
    let (bytes, uses) = variables.iter().fold((0usize, 0u64), |(b, u), variable| (b + variable.1, u + variable.2));
    fields.insert("num_variables".to_owned(), variables.len().into());
    fields.insert("variable_bytes".to_owned(), bytes.into());
    fields.insert("variable_uses".to_owned(), uses.into());
    let row =
        |&(label, bytes, uses): &(&String, usize, u64)| json!({"name": name(label), "bytes": bytes, "uses": uses});
    variables.sort_by_key(|&(name, bytes, uses)| (Reverse(uses), Reverse(bytes), name));
    fields.insert("variables".to_owned(), variables.iter().take(VARIABLES_MAX).map(row).collect());
    queues.sort_by_key(|&(name, elements)| (Reverse(elements), name));
    let row = |(label, elements): &(&String, usize)| json!({"name": name(label), "elements": elements});
    fields.insert("queues".to_owned(), queues.iter().take(VARIABLES_MAX).map(row).collect());
}

/// Returns the nodes of a graph as arrays: name, op, device, the indices of the inputs, the shapes of the outputs. Shapes are
/// inferred again, unless the graph is shown only in part.
pub(super) fn nodes(graph: &NodeGraph, ops: &dyn OpLookup) -> Value {
    let inferred = if graph.len() <= NODES_MAX { infer_shapes(graph, ops).ok() } else { None };
    let shapes = inferred.map(|(shapes, _)| shapes).unwrap_or_default();
    let mut places = vec![None; graph.id_bound()];
    for (place, (id, _)) in graph.iter().take(NODES_MAX).enumerate() {
        places[id.index()] = Some(place);
    }
    let nodes = graph.iter().take(NODES_MAX).map(|(id, node)| {
        let data = node.inputs.iter().map(|edge| edge.node);
        let inputs = data.chain(node.control_inputs.iter().copied()).take(INPUTS_MAX);
        let inputs: Vec<usize> = inputs.filter_map(|id| places.get(id.index()).copied().flatten()).collect();
        let outputs = shapes.output_shapes(id);
        let outputs: Vec<String> =
            outputs.iter().zip(&node.output_types).take(INPUTS_MAX).map(|(shape, kind)| typed(*kind, shape)).collect();
        json!([name(&node.name), node.op(), name(&node.device), inputs, outputs])
    });
    json!({"total": graph.len(), "nodes": nodes.collect::<Vec<_>>()})
}

/// Returns a type and a shape for display: `float [?, 10]`.
fn typed(kind: TypeSlot, shape: &PartialShape) -> String {
    let kind = kind.dtype.name();
    match shape.dims() {
        None => format!("{kind} of any shape"),
        Some(dims) => {
            let dims: Vec<String> =
                dims.iter().map(|dim| dim.map_or_else(|| "?".to_owned(), |dim| dim.to_string())).collect();
            name(&format!("{kind} [{}]", dims.join(", "))).to_owned()
        }
    }
}

/// Returns the nodes of recorded steps as arrays: step, device, name, op, start and duration in microseconds, thread.
pub(super) fn recording(sources: &Sources, steps: &[(i64, StepStats)], began_micros: u64) -> Value {
    let mut rows = Vec::new();
    for (step_id, stats) in steps {
        let step = shown_step(*step_id);
        for device in &stats.dev_stats {
            for node in &device.node_stats {
                let label = node.timeline_label.split_once(" = ").map_or("", |(_, rest)| rest);
                let op = label.split('(').next().unwrap_or_default();
                rows.push(json!([
                    step,
                    device.device,
                    name(&node.node_name),
                    name(op),
                    node.all_start_nanos as f64 / 1e3,
                    node.all_end_rel_nanos as f64 / 1e3,
                    node.thread_id,
                ]));
            }
        }
    }
    let mut events = sources.workers.metrics().recorder.last(RATE_EVENTS);
    events.retain(|event| end_of(event) >= began_micros);
    json!({"steps": steps.len(), "nodes": rows, "events": recorded(sources, &events)})
}

/// Returns a step's id in a form that is safe to show: those who know the id can match it, and nobody else learns it.
fn shown_step(step_id: i64) -> u32 {
    let mut hasher = SipHasher24::new();
    hasher.write_i64(step_id);
    hasher.finish() as u32
}

/// Truncates a name that clients may have chosen.
fn name(text: &str) -> &str {
    text.char_indices().nth(NAME_CHARS_MAX).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::DType;

    #[test]
    fn steps_are_shown_by_a_hash_and_names_are_cut() {
        assert_eq!(shown_step(7), shown_step(7));
        assert_ne!(shown_step(7), shown_step(8));
        let long = "ä".repeat(2 * NAME_CHARS_MAX);
        assert_eq!(name(&long).chars().count(), NAME_CHARS_MAX);
        assert_eq!(name("short"), "short");
    }

    #[test]
    fn shapes_are_written_as_people_write_them() {
        let kind = TypeSlot { dtype: DType::Float, is_ref: true };
        assert_eq!(typed(kind, &PartialShape::unknown()), "float of any shape");
        assert_eq!(typed(kind, &PartialShape::new(&[None, Some(10)])), "float [?, 10]");
        assert_eq!(typed(kind, &PartialShape::new(&[])), "float []");
    }

    #[test]
    fn rates_are_those_of_the_last_seconds() {
        let step = |start_micros: u64, code: u32| Event {
            kind: Kind::Step,
            code,
            subject: 1,
            step_id: 1,
            start_micros,
            took_micros: 1_000,
            bytes: 0,
        };
        let mut events: Vec<Event> = (0..11).map(|number| step(100_000_000 + number * 100_000, 0)).collect();
        events.push(step(1, 0));
        events.push(step(100_000_000, 14));
        let told = times(&StepTimesSummary::default(), Kind::Step, &events, 101_001_000);
        assert_eq!(told["per_second"], 10.0);
        assert_eq!(told["median_micros"], 1_000);
        let none = times(&StepTimesSummary::default(), Kind::Partition, &events, 101_001_000);
        assert_eq!((none["per_second"].as_f64(), &none["median_micros"]), (Some(0.0), &Value::Null));
    }
}
