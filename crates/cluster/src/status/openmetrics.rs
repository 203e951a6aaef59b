//! The metrics of a task as OpenMetrics text, for Prometheus and similar scrapers.
//!
//! Names and units follow Prometheus' conventions. Labels whose values clients choose are bounded: only the largest sessions,
//! variables and queues have rows, and totals count all of them.

use super::{Readiness, Sources, process};
use crate::clock::{elapsed, now};
use crate::metrics::{STEP_TIME_BOUNDS, StepTimesSummary, TaskMetrics};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Weak;
use tensor::{Code, memory_state};

/// The most rows of a metric with labels that clients choose.
const ROWS_MAX: usize = 50;

/// The most rows of a metric with a row per task.
const PEERS_MAX: usize = 1_000;

/// The most characters of a name.
const LABEL_CHARS_MAX: usize = 128;

/// Returns the metrics.
pub(super) fn text(sources: &Sources, readiness: &Readiness) -> String {
    let metrics = sources.workers.metrics();
    let mut page = Page(String::with_capacity(16 << 10));
    page.family("ferroflow_build", "info", "", "The version of the program.");
    page.row("ferroflow_build_info", &[("version", env!("CARGO_PKG_VERSION")), ("task", &sources.task)], 1);
    page.histogram(
        "ferroflow_step_duration_seconds",
        "Steps that this task's master ran for clients.",
        &metrics.steps.summary(),
    );
    page.errors("ferroflow_step_errors", "Steps that failed, by the code of their error.", metrics.step_errors());
    page.histogram(
        "ferroflow_partition_duration_seconds",
        "Partitions of steps that this task's worker ran.",
        &metrics.partitions.summary(),
    );
    page.errors(
        "ferroflow_partition_errors",
        "Partitions that failed, by the code of their error.",
        metrics.partition_errors(),
    );
    peers(&mut page, metrics, readiness);
    sessions(&mut page, sources);
    worker(&mut page, sources);
    memory(&mut page);
    checkpoints(&mut page);
    let usage = process::usage();
    page.single("process_cpu_seconds", "counter", "seconds", "Processor time of the process.", usage.cpu_seconds);
    page.single("process_resident_memory_bytes", "gauge", "bytes", "Memory of the process.", usage.resident_bytes);
    let started = metrics.started_micros() as f64 / 1e6;
    page.single("process_start_time_seconds", "gauge", "seconds", "When the task began, since the epoch.", started);
    page.0.push_str("# EOF\n");
    page.0
}

fn peers(page: &mut Page, metrics: &TaskMetrics, readiness: &Readiness) {
    page.family("ferroflow_peer_up", "gauge", "", "Whether another task of the cluster answers.");
    let up = readiness.reached.iter().map(|task| (task, 1));
    let down = readiness.waits_for.iter().map(|(task, _)| (task, 0));
    for (task, is_up) in up.chain(down).take(PEERS_MAX) {
        page.row("ferroflow_peer_up", &[("peer", task)], is_up);
    }
    let traffic = || metrics.peers().iter().filter(|peer| (peer.total_sent().1, peer.total_received().1) != (0, 0));
    for (family, unit, help, is_bytes) in [
        ("ferroflow_transfer_bytes", "bytes", "Bytes of tensors that went to and came from other tasks.", true),
        ("ferroflow_transfers", "", "Tensors that went to and came from other tasks.", false),
    ] {
        page.family(family, "counter", unit, help);
        for peer in traffic().take(PEERS_MAX) {
            for (direction, (bytes, tensors)) in [("sent", peer.total_sent()), ("received", peer.total_received())] {
                let value = if is_bytes { bytes } else { tensors };
                page.row(&format!("{family}_total"), &[("peer", &peer.task), ("direction", direction)], value);
            }
        }
    }
    page.family(
        "ferroflow_wait_seconds",
        "gauge",
        "seconds",
        "For how long sessions have waited for a task to be there.",
    );
    let mut waits: BTreeMap<String, f64> = BTreeMap::new();
    for wait in metrics.waits() {
        let longest = waits.entry(wait.task).or_default();
        *longest = longest.max(elapsed(wait.since).as_secs_f64());
    }
    for (task, seconds) in waits.into_iter().take(PEERS_MAX) {
        page.row("ferroflow_wait_seconds", &[("peer", &task)], seconds);
    }
}

fn sessions(page: &mut Page, sources: &Sources) {
    let mut sessions = sources.master.survey();
    page.single("ferroflow_sessions", "gauge", "", "Sessions that clients have open here.", sessions.len());
    sessions.sort_by_key(|session| Reverse(session.memory_bytes));
    sessions.truncate(ROWS_MAX);
    sessions.sort_by_key(|session| session.number);
    page.family("ferroflow_session_memory_bytes", "gauge", "bytes", "Memory of the largest sessions.");
    for session in &sessions {
        page.row("ferroflow_session_memory_bytes", &[("session", &session.number.to_string())], session.memory_bytes);
    }
    page.family("ferroflow_session_steps", "counter", "", "Steps of the largest sessions.");
    for session in &sessions {
        page.row("ferroflow_session_steps_total", &[("session", &session.number.to_string())], session.steps);
    }
    page.family("ferroflow_session_loss", "gauge", "", "The last loss that a session fetched, known by its name.");
    for session in &sessions {
        if let Some(loss) = session.loss {
            page.row("ferroflow_session_loss", &[("session", &session.number.to_string())], loss);
        }
    }
    page.family("ferroflow_session_global_step", "gauge", "", "The last global step that a session fetched.");
    for session in &sessions {
        if let Some(step) = session.global_step {
            page.row("ferroflow_session_global_step", &[("session", &session.number.to_string())], step);
        }
    }
    if let Some(services) = sources.services.get().and_then(Weak::upgrade) {
        let help = "Calls that are ready and wait for their turn.";
        page.single("ferroflow_calls_waiting", "gauge", "", help, services.turns.num_waiting());
    }
}

fn worker(page: &mut Page, sources: &Sources) {
    let Some(worker) = sources.worker.upgrade() else { return };
    let survey = worker.survey();
    page.single(
        "ferroflow_worker_sessions",
        "gauge",
        "",
        "Sessions that masters have open on this worker.",
        survey.num_sessions,
    );
    page.single(
        "ferroflow_rendezvous_steps",
        "gauge",
        "",
        "Steps that have a rendezvous on this worker.",
        survey.num_steps,
    );
    let help = "Requests of other tasks that wait for tensors.";
    page.single("ferroflow_rendezvous_waiting_requests", "gauge", "", help, survey.num_waiting_requests);
    let mut variables: Vec<(&str, usize, u64)> = Vec::new();
    let mut queues: Vec<(&str, usize)> = Vec::new();
    for (name, holdings) in &survey.holdings {
        if let Some(bytes) = holdings.variable_bytes {
            variables.push((name, bytes, holdings.uses));
        }
        if let Some(elements) = holdings.queue_elements {
            queues.push((name, elements));
        }
    }
    let total: usize = variables.iter().map(|(_, bytes, _)| bytes).sum();
    page.single("ferroflow_variables", "gauge", "", "Variables on this task.", variables.len());
    page.single("ferroflow_variables_bytes", "gauge", "bytes", "What all variables hold.", total);
    variables.sort_by_key(|&(name, bytes, _)| (Reverse(bytes), name));
    variables.truncate(ROWS_MAX);
    page.family("ferroflow_variable_bytes", "gauge", "bytes", "What the largest variables hold.");
    for (name, bytes, _) in &variables {
        page.row("ferroflow_variable_bytes", &[("variable", name)], bytes);
    }
    page.family("ferroflow_variable_uses", "counter", "", "Reads and writes of the largest variables.");
    for (name, _, uses) in &variables {
        page.row("ferroflow_variable_uses_total", &[("variable", name)], uses);
    }
    queues.sort_by_key(|&(name, elements)| (Reverse(elements), name));
    queues.truncate(ROWS_MAX);
    page.family("ferroflow_queue_elements", "gauge", "", "Elements in the longest queues.");
    for (name, elements) in queues {
        page.row("ferroflow_queue_elements", &[("queue", name)], elements);
    }
}

fn memory(page: &mut Page) {
    let state = memory_state();
    let help = "Memory of tensors and graphs.";
    page.single("ferroflow_memory_used_bytes", "gauge", "bytes", help, state.process.used_bytes);
    let help = "The most that tensors and graphs may take.";
    page.single("ferroflow_memory_limit_bytes", "gauge", "bytes", help, state.process.limit_bytes);
    let help = "Memory that is kept for the next steps.";
    page.single("ferroflow_memory_spare_bytes", "gauge", "bytes", help, state.spare_bytes);
}

fn checkpoints(page: &mut Page) {
    let saves = kernel::saves();
    page.single(
        "ferroflow_checkpoints",
        "counter",
        "",
        "Checkpoints and parts of them that this process wrote.",
        saves.count,
    );
    let help = "How long writing them took in all.";
    page.single("ferroflow_checkpoint_write_seconds", "counter", "seconds", help, saves.total.as_secs_f64());
    let Some(last) = saves.last.last() else { return };
    let age = now().saturating_duration_since(last.ended).as_secs_f64();
    page.single("ferroflow_checkpoint_age_seconds", "gauge", "seconds", "How old the last checkpoint is.", age);
    let help = "How long writing the last checkpoint took.";
    page.single("ferroflow_checkpoint_duration_seconds", "gauge", "seconds", help, last.took.as_secs_f64());
    let bytes = saves.last.iter().rev().map(|save| save.bytes).find(|&bytes| bytes > 0).unwrap_or(0);
    page.single(
        "ferroflow_checkpoint_bytes",
        "gauge",
        "bytes",
        "Bytes of tensors in the last checkpoint or part.",
        bytes,
    );
}

/// The text written so far.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {help}");
    }

    fn row(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if index == 0 { '{' } else { ',' });
            push_escaped(&mut self.0, text);
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    fn single(&mut self, name: &str, kind: &str, unit: &str, help: &str, value: impl Display) {
        self.family(name, kind, unit, help);
        let suffix = if kind == "counter" { "_total" } else { "" };
        self.row(&format!("{name}{suffix}"), &[], value);
    }

    fn errors(&mut self, name: &str, help: &str, counts: Vec<(Code, u64)>) {
        self.family(name, "counter", "", help);
        for (code, count) in counts {
            self.row(&format!("{name}_total"), &[("code", code.name())], count);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, summary: &StepTimesSummary) {
        self.family(name, "histogram", "seconds", help);
        let mut count = 0;
        for (bound, bucket) in STEP_TIME_BOUNDS.iter().zip(&summary.buckets) {
            count += bucket;
            // With a decimal point, as in the canonical form of floats.
            self.row(&format!("{name}_bucket"), &[("le", &format!("{bound:?}"))], count);
        }
        self.row(&format!("{name}_bucket"), &[("le", "+Inf")], summary.count());
        self.row(&format!("{name}_sum"), &[], summary.sum_micros as f64 / 1e6);
        self.row(&format!("{name}_count"), &[], summary.count());
    }
}

/// Appends a label's value, which clients may have chosen entirely.
fn push_escaped(text: &mut String, value: &str) {
    for character in value.chars().take(LABEL_CHARS_MAX) {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other if other.is_control() => text.push('\u{fffd}'),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_cut() {
        let mut page = Page(String::new());
        page.row("m", &[("name", "a\"b\\c\nd\u{7}"), ("more", &"x".repeat(1000))], 1);
        assert_eq!(
            page.0,
            format!("m{{name=\"a\\\"b\\\\c\\nd\u{fffd}\",more=\"{}\"}} 1\n", "x".repeat(LABEL_CHARS_MAX))
        );
    }

    #[test]
    fn the_buckets_of_a_histogram_add_up() {
        let mut page = Page(String::new());
        let mut summary = StepTimesSummary { sum_micros: 1_500_000, ..StepTimesSummary::default() };
        (summary.buckets[0], summary.buckets[3], summary.buckets[STEP_TIME_BOUNDS.len()]) = (1, 2, 4);
        page.histogram("t_seconds", "Times.", &summary);
        assert!(page.0.contains("t_seconds_bucket{le=\"0.0001\"} 1\n"), "{}", page.0);
        assert!(page.0.contains("t_seconds_bucket{le=\"60.0\"} 3\n"), "{}", page.0);
        assert!(
            page.0.ends_with("t_seconds_bucket{le=\"+Inf\"} 7\nt_seconds_sum 1.5\nt_seconds_count 7\n"),
            "{}",
            page.0
        );
    }
}
