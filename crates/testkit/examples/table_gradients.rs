//! Adds our gradients to graphs of the real client, so that a test can compare them with the client's own:
//! `table_gradients DIRECTORY`.
//!
//! For each GraphDef `NAME.pb`, `NAME.request` lists cases with their outputs, the weights of these, and the sources. Writes
//! `NAME.added`, a GraphDef of the added nodes, and `NAME.answer`, with the gradients of each case or the error, and the ops
//! whose gradients were used.

use graph::builder::{Grad, Gradient, Graph, Operation, Output};
use prost::Message;
use proto::{GraphDef, NodeDef};
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use tensor::{Result, Status};

fn main() -> std::io::Result<()> {
    let directory = std::env::args().nth(1).expect("usage: table_gradients DIRECTORY");
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "pb") {
            add_gradients(&path)?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Case {
    name: String,
    outputs: Vec<(String, String)>,
    sources: Vec<String>,
}

fn add_gradients(path: &Path) -> std::io::Result<()> {
    let def = GraphDef::decode(std::fs::read(path)?.as_slice()).expect("the client wrote a GraphDef");
    let nodes: HashMap<&str, &NodeDef> = def.node.iter().map(|node| (node.name.as_str(), node)).collect();
    let mut added = GraphDef::default();
    let mut answer = String::new();
    for (index, case) in cases(&std::fs::read_to_string(path.with_extension("request"))?).iter().enumerate() {
        let _ = writeln!(answer, "case\t{}", case.name);
        let one = catch_unwind(AssertUnwindSafe(|| differentiate(&def, &nodes, case, index, &mut added)));
        match one.unwrap_or_else(|_| Err(Status::internal("a panic"))) {
            Ok(lines) => answer.push_str(&lines),
            Err(status) => {
                let _ = writeln!(answer, "error\t{}", status.to_string().replace('\n', " "));
            }
        }
    }
    std::fs::write(path.with_extension("added"), added.encode_to_vec())?;
    std::fs::write(path.with_extension("answer"), answer)
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        match (parts.as_slice(), cases.last_mut()) {
            (["case", name], _) => cases.push(Case { name: (*name).to_owned(), ..Case::default() }),
            (["y", output, weight], Some(case)) => case.outputs.push(((*output).to_owned(), (*weight).to_owned())),
            (["x", source], Some(case)) => case.sources.push((*source).to_owned()),
            _ => panic!("a request has the line {line:?}"),
        }
    }
    cases
}

/// Adds the gradients of one case to its part of the graph, and appends the added nodes to `added`.
fn differentiate(
    def: &GraphDef,
    nodes: &HashMap<&str, &NodeDef>,
    case: &Case,
    index: usize,
    added: &mut GraphDef,
) -> Result<String> {
    let wanted = case.outputs.iter().flat_map(|(output, weight)| [output, weight]).chain(&case.sources);
    let mut needed: HashSet<&str> = HashSet::new();
    let mut stack: Vec<&str> = wanted.map(|tensor| node_name(tensor)).collect();
    while let Some(name) = stack.pop() {
        if needed.insert(name) {
            stack.extend(nodes.get(name).into_iter().flat_map(|node| node.input.iter().map(|input| node_name(input))));
        }
    }
    let part = GraphDef {
        node: def.node.iter().filter(|node| needed.contains(node.name.as_str())).cloned().collect(),
        library: def.library.clone(),
        versions: def.versions.clone(),
        ..Default::default()
    };
    let graph = Graph::with_ops(ops::registry());
    graph.import(&part)?;
    let given: HashSet<String> = part.node.into_iter().map(|node| node.name).collect();
    let outputs = |names: &mut dyn Iterator<Item = &String>| -> Result<Vec<Output>> {
        names.map(|name| graph.output(name)).collect()
    };
    let ys = outputs(&mut case.outputs.iter().map(|(output, _)| output))?;
    let weights = outputs(&mut case.outputs.iter().map(|(_, weight)| weight))?;
    let xs = outputs(&mut case.sources.iter())?;
    let mut lines = String::new();
    for op in differentiated_ops(&graph, &ys, &xs) {
        let _ = writeln!(lines, "op\t{op}");
    }
    let weights: Vec<Option<Output>> = weights.into_iter().map(Some).collect();
    graph.name_scope(&format!("ours{index}"), |graph| -> Result<()> {
        for gradient in graph.gradients_with(&ys, &xs, &weights, &[])? {
            let name = match gradient {
                Some(Grad::Dense(output)) => output.name(),
                Some(Grad::Slices(slices)) => slices.to_dense().name(),
                None => String::new(),
            };
            let name = if name.is_empty() || name.contains(':') { name } else { format!("{name}:0") };
            let _ = writeln!(lines, "gradient\t{name}");
        }
        Ok(())
    })?;
    added.node.extend(graph.to_graph_def().node.into_iter().filter(|node| !given.contains(&node.name)));
    Ok(lines)
}

fn node_name(input: &str) -> &str {
    let name = input.strip_prefix('^').unwrap_or(input);
    name.split_once(':').map_or(name, |(name, _)| name)
}

/// Returns the ops with a gradient on paths from sources to outputs on which all ops have one.
fn differentiated_ops(graph: &Graph, ys: &[Output], xs: &[Output]) -> Vec<String> {
    let has_gradient = |op: &Operation| match graph.ops().op(&op.op_type()) {
        Some(info) => matches!(info.gradient, Gradient::Fn(_)),
        None => true,
    };
    let sources: HashSet<String> = xs.iter().map(|x| x.op.name()).collect();
    // Whether an op depends on a source; inputs come before their consumers.
    let mut leads: HashMap<String, bool> = HashMap::new();
    fn visit(
        op: &Operation,
        sources: &HashSet<String>,
        has_gradient: &dyn Fn(&Operation) -> bool,
        leads: &mut HashMap<String, bool>,
    ) -> bool {
        if let Some(&known) = leads.get(&op.name()) {
            return known;
        }
        leads.insert(op.name(), false);
        let from_inputs = has_gradient(op)
            && op.inputs().iter().map(|input| visit(&input.op, sources, has_gradient, leads)).fold(false, |a, b| a | b);
        let found = from_inputs || sources.contains(&op.name());
        leads.insert(op.name(), found);
        found
    }
    ys.iter().for_each(|y| {
        visit(&y.op, &sources, &has_gradient, &mut leads);
    });
    let ops = leads.iter().filter(|(name, leads)| **leads && !sources.contains(*name));
    let mut types: Vec<String> = ops.filter_map(|(name, _)| graph.operation(name)).map(|op| op.op_type()).collect();
    types.sort();
    types.dedup();
    types
}
