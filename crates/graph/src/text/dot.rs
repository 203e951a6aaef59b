//! Graphs as DOT, for Graphviz.

use crate::NodeGraph;
use foldhash::{HashMap, HashMapExt};
use std::fmt::Write;

impl NodeGraph {
    /// Returns the graph in the DOT language: devices are boxes around their nodes, control edges are dashed, reference edges are
    /// bold, and edges are labelled with the index of the output unless it is 0.
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph {\n  rankdir=TB;\n  node [shape=box, fontname=\"sans-serif\"];\n");
        let mut devices: Vec<&str> = Vec::new();
        let mut number_of: HashMap<&str, usize> = HashMap::new();
        for (_, node) in self.iter() {
            number_of.entry(node.device.as_str()).or_insert_with(|| {
                devices.push(&node.device);
                devices.len() - 1
            });
        }
        for (number, device) in devices.iter().enumerate() {
            let is_cluster = !device.is_empty();
            if is_cluster {
                let _ = writeln!(text, "  subgraph cluster_{number} {{\n    label={};", quoted(device));
            }
            for (id, node) in self.iter().filter(|(_, node)| number_of[node.device.as_str()] == number) {
                let label = format!("{}\n{}", node.name, node.op());
                let _ = writeln!(text, "    n{} [label={}];", id.0, quoted(&label));
            }
            if is_cluster {
                text.push_str("  }\n");
            }
        }
        for (id, node) in self.iter() {
            for (index, edge) in node.inputs.iter().enumerate() {
                let mut style: Vec<String> = Vec::new();
                if edge.port != 0 {
                    style.push(format!("taillabel=\"{}\"", edge.port));
                }
                if node.input_types.get(index).is_some_and(|slot| slot.is_ref) {
                    style.push("style=bold".to_owned());
                }
                let style = if style.is_empty() { String::new() } else { format!(" [{}]", style.join(", ")) };
                let _ = writeln!(text, "  n{} -> n{}{style};", edge.node.0, id.0);
            }
            for control in &node.control_inputs {
                let _ = writeln!(text, "  n{} -> n{} [style=dashed];", control.0, id.0);
            }
        }
        text.push_str("}\n");
        text
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
