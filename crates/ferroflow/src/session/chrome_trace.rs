//! [`chrome_trace`]: the trace of a step, for the viewers of Chrome and Perfetto.

use super::RunMetadata;
use std::fmt::Write;

/// Returns a step's trace as JSON for `chrome://tracing` and Perfetto: a process for each device, with as many rows as ops ran at
/// once.
///
/// ```
/// use ferroflow::session::chrome_trace;
/// use ferroflow::{Graph, RunOptions, Session, Tensor};
///
/// let g = Graph::new();
/// let sum = g.constant_tensor(&Tensor::scalar(1f32)) + 2.0;
/// let options = RunOptions::new().full_trace(true);
/// let (_, metadata) = Session::new(&g)?.runner().fetch(&sum).options(options).run_with_metadata()?;
/// assert!(chrome_trace(&metadata.unwrap_or_default()).starts_with("{\"traceEvents\": ["));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub fn chrome_trace(metadata: &RunMetadata) -> String {
    let mut events: Vec<String> = Vec::new();
    let devices = metadata.0.step_stats.iter().flat_map(|stats| &stats.dev_stats);
    for (process, device) in devices.enumerate() {
        events.push(format!(
            "{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {process}, \"args\": {{\"name\": {}}}}}",
            quoted(&device.device)
        ));
        let mut nodes: Vec<_> = device.node_stats.iter().collect();
        nodes.sort_by_key(|node| node.all_start_micros);
        // The time at which each row is free again.
        let mut rows: Vec<i64> = Vec::new();
        for node in nodes {
            let start = node.all_start_micros;
            // An event shorter than a microsecond would be invisible.
            let duration = node.all_end_rel_micros.max(1);
            let row = rows.iter().position(|&free| free <= start).unwrap_or_else(|| {
                rows.push(0);
                rows.len() - 1
            });
            rows[row] = start.saturating_add(duration);
            let (op, inputs) = op_and_inputs(&node.timeline_label);
            let bytes: i64 = node.memory.iter().map(|memory| memory.total_bytes).sum();
            events.push(format!(
                "{{\"name\": {}, \"cat\": \"Op\", \"ph\": \"X\", \"pid\": {process}, \"tid\": {row}, \"ts\": {start}, \
                 \"dur\": {duration}, \"args\": {{\"name\": {}, \"inputs\": {}, \"bytes\": {bytes}}}}}",
                quoted(op),
                quoted(&node.node_name),
                quoted(inputs)
            ));
        }
    }
    format!("{{\"traceEvents\": [\n{}\n]}}\n", events.join(",\n"))
}

/// Parses a label such as `node = Op(input, input)`; a label of another form, such as a transfer's, is used as it is.
fn op_and_inputs(label: &str) -> (&str, &str) {
    let parts = label.split_once(" = ").and_then(|(_, call)| call.strip_suffix(')')?.split_once('('));
    parts.unwrap_or((label, ""))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::{DeviceStepStats, NodeExecStats, StepStats};

    #[test]
    fn ops_that_overlap_have_rows_of_their_own() {
        let node = |name: &str, start: i64, duration: i64| NodeExecStats {
            node_name: name.to_owned(),
            timeline_label: format!("{name} = Mul(x, \"y\")"),
            all_start_micros: start,
            all_end_rel_micros: duration,
            ..Default::default()
        };
        let node_stats = vec![node("b", 15, 10), node("a", 10, 10), node("c", 20, 0)];
        let dev_stats = vec![DeviceStepStats { device: "/device:CPU:0".to_owned(), node_stats, ..Default::default() }];
        let step_stats = Some(StepStats { dev_stats });
        let metadata = RunMetadata::from(proto::RunMetadata { step_stats, ..Default::default() });
        let event = |name: &str, row: usize, start: i64, duration: i64| {
            format!(
                "{{\"name\": \"Mul\", \"cat\": \"Op\", \"ph\": \"X\", \"pid\": 0, \"tid\": {row}, \"ts\": {start}, \
                 \"dur\": {duration}, \"args\": {{\"name\": \"{name}\", \"inputs\": \"x, \\\"y\\\"\", \"bytes\": 0}}}}"
            )
        };
        let expected = [
            "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": 0, \"args\": {\"name\": \"/device:CPU:0\"}}"
                .to_owned(),
            event("a", 0, 10, 10),
            event("b", 1, 15, 10),
            event("c", 0, 20, 1),
        ];
        assert_eq!(chrome_trace(&metadata), format!("{{\"traceEvents\": [\n{}\n]}}\n", expected.join(",\n")));
        assert_eq!(chrome_trace(&RunMetadata::default()), "{\"traceEvents\": [\n\n]}\n");
    }
}
