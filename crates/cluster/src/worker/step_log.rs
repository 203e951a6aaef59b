//! The trace of a step: [`NodeTrace`] records the times of nodes, and [`StepLog`] the arrival of tensors.

use crate::clock::system_time;
use crate::interface::ReceivedTensor;
use foldhash::{HashMap, HashMapExt};
use graph::NodeGraph;
use kernel::{RendezvousKey, Trace};
use parking_lot::Mutex;
use proto::{DeviceStepStats, NodeExecStats, NodeOutput, StepStats, TensorDescription};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::UNIX_EPOCH;

/// The most steps whose transfers are kept until they are requested.
const LOGGED_STEPS_MAX: usize = 256;

/// The most transfers of one step.
const LOGGED_TRANSFERS_MAX: usize = 1 << 16;

/// Returns the microseconds since the epoch.
pub(crate) fn now_micros() -> i64 {
    system_time().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64)
}

/// Records the times of nodes of one partition on one device.
pub(crate) struct NodeTrace {
    device: Arc<str>,
    graph: Arc<NodeGraph>,
    records: Mutex<Vec<NodeExecStats>>,
}

impl NodeTrace {
    /// Returns a trace for a device; the graph has the inputs of nodes.
    pub fn new(device: Arc<str>, graph: Arc<NodeGraph>) -> NodeTrace {
        NodeTrace { device, graph, records: Mutex::new(Vec::new()) }
    }

    /// Returns the trace.
    pub fn take(&self) -> DeviceStepStats {
        let mut node_stats = std::mem::take(&mut *self.records.lock());
        node_stats.sort_by_key(|node| node.all_start_nanos);
        DeviceStepStats { device: self.device.to_string(), node_stats, thread_names: BTreeMap::new() }
    }

    fn label(&self, node: &str, op: &str) -> String {
        let Some(found) = self.graph.find(node) else { return format!("{node} = {op}()") };
        let inputs: Vec<String> = self.graph.to_node_def(self.graph.node(found)).input;
        format!("{node} = {op}({})", inputs.join(", "))
    }
}

thread_local! {
    /// A small number for this thread, for display in traces.
    static THREAD_ID: u32 = {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

impl Trace for NodeTrace {
    fn record(&self, node: &str, op: &str, scheduled_ns: u64, started_ns: u64, ended_ns: u64, output_bytes: usize) {
        let relative = |ns: u64| ns.saturating_sub(started_ns) as i64;
        let allocation_description =
            Some(proto::AllocationDescription { requested_bytes: output_bytes as i64, ..Default::default() });
        let description = TensorDescription { allocation_description, ..Default::default() };
        let stats = NodeExecStats {
            node_name: node.to_owned(),
            all_start_micros: (started_ns / 1000) as i64,
            all_start_nanos: started_ns as i64,
            op_end_rel_micros: relative(ended_ns) / 1000,
            op_end_rel_nanos: relative(ended_ns),
            all_end_rel_micros: relative(ended_ns) / 1000,
            all_end_rel_nanos: relative(ended_ns),
            scheduled_micros: (scheduled_ns / 1000) as i64,
            scheduled_nanos: scheduled_ns as i64,
            thread_id: THREAD_ID.with(|id| *id),
            timeline_label: self.label(node, op),
            output: vec![NodeOutput { slot: 0, tensor_description: Some(description) }],
            ..Default::default()
        };
        self.records.lock().push(stats);
    }
}

/// Logs the arrival of tensors from other tasks, while it is on.
#[derive(Default)]
pub(crate) struct StepLog {
    is_enabled: AtomicBool,
    steps: Mutex<BTreeMap<i64, Vec<(String, NodeExecStats)>>>,
}

impl StepLog {
    /// Turns the log on or off.
    pub fn enable(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
    }

    /// Clears the log.
    pub fn clear(&self) {
        self.steps.lock().clear();
    }

    /// Returns the time when the log is on.
    pub fn start_transfer(&self) -> Option<i64> {
        self.is_enabled.load(Ordering::Relaxed).then(now_micros)
    }

    /// Logs a transfer that began at `started_micros`.
    pub fn finish_transfer(&self, step_id: i64, key: &RendezvousKey, started_micros: i64, received: &ReceivedTensor) {
        let ended_micros = now_micros();
        // The transfer itself begins when the sender has the tensor, not with the request.
        let sent_micros = received.send_start_micros.clamp(started_micros, ended_micros);
        let took_micros = (ended_micros - sent_micros).max(1);
        let bytes = received.tensor.num_bytes();
        let label = format!(
            "[{}] [{:.2}Mb/s] {} from {} to {}",
            size(bytes),
            bytes as f64 * 8.0 / took_micros as f64,
            key.edge_name(),
            key.source_device(),
            key.destination_device()
        );
        let stats = NodeExecStats {
            node_name: "RecvTensor".to_owned(),
            all_start_micros: sent_micros,
            all_start_nanos: sent_micros * 1000,
            op_end_rel_micros: took_micros,
            op_end_rel_nanos: took_micros * 1000,
            all_end_rel_micros: took_micros,
            all_end_rel_nanos: took_micros * 1000,
            scheduled_micros: started_micros,
            scheduled_nanos: started_micros * 1000,
            timeline_label: label,
            ..Default::default()
        };
        let mut steps = self.steps.lock();
        let transfers = steps.entry(step_id).or_default();
        if transfers.len() < LOGGED_TRANSFERS_MAX {
            transfers.push((key.destination_device().to_owned(), stats));
        }
        while steps.len() > LOGGED_STEPS_MAX {
            steps.pop_first();
        }
    }

    /// Takes the transfers of a step.
    pub fn take(&self, step_id: i64) -> StepStats {
        let transfers = self.steps.lock().remove(&step_id).unwrap_or_default();
        let mut by_device: HashMap<String, Vec<NodeExecStats>> = HashMap::new();
        for (device, stats) in transfers {
            by_device.entry(device).or_default().push(stats);
        }
        let dev_stats = by_device
            .into_iter()
            .map(|(device, node_stats)| DeviceStepStats { device, node_stats, thread_names: BTreeMap::new() })
            .collect();
        StepStats { dev_stats }
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes}B"),
        1024..1_048_576 => format!("{:.1}KB", bytes as f64 / 1024.0),
        _ => format!("{:.1}MB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::Tensor;

    #[test]
    fn transfers_are_kept_until_asked_for() {
        let log = StepLog::default();
        assert!(log.start_transfer().is_none());
        log.enable(true);
        let key = RendezvousKey::new("a", 1, "b", "edge", 0, 0);
        let received = ReceivedTensor {
            tensor: Tensor::vector(&[0f32; 512]),
            is_dead: false,
            send_start_micros: 0,
            require_ack: false,
        };
        for step in 0..2 * LOGGED_STEPS_MAX as i64 {
            log.finish_transfer(step, &key, log.start_transfer().unwrap(), &received);
        }
        assert_eq!(log.steps.lock().len(), LOGGED_STEPS_MAX);
        let stats = log.take(2 * LOGGED_STEPS_MAX as i64 - 1);
        assert_eq!(stats.dev_stats[0].device, "b");
        assert!(stats.dev_stats[0].node_stats[0].timeline_label.starts_with("[2.0KB]"));
        assert!(log.take(0).dev_stats.is_empty());
    }
}
