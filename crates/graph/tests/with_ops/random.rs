//! Runs the importer and the passes on random and mutated GraphDefs: nothing panics, and accepted graphs keep the passes'
//! invariants.

use graph::attr::AttrMap;
use graph::passes::*;
use graph::{DeviceName, NodeGraph, import_graph_def};
use ops::registry as ops;
use proptest::prelude::*;
use proto::{AttrValue, GraphDef, NodeDef, attr_value};
use std::collections::BTreeMap;
use tensor::{DType, PartialShape, Shape, Tensor};

const DEVICES: &[&str] = &[
    "",
    "/job:ps",
    "/job:ps/task:1",
    "/job:worker/task:0",
    "/job:worker/task:1/cpu:0",
    "/gpu:0",
    "/job:worker/replica:0/task:0/device:CPU:0",
    "/job:nowhere",
    "//",
    "/task:x",
];

/// A few numbers from which both sensible and senseless NodeDefs are generated.
#[derive(Clone, Debug)]
struct Seed {
    op: usize,
    inputs: Vec<(usize, u32)>,
    controls: Vec<usize>,
    device: usize,
    group: usize,
}

fn seed() -> impl Strategy<Value = Seed> {
    let input = (0usize..1000, prop_oneof![6 => Just(0u32), 2 => Just(1u32), 1 => 2u32..5]);
    let inputs = prop::collection::vec(input, 0..4);
    let controls = prop::collection::vec(0usize..1000, 0..3);
    (0usize..1000, inputs, controls, 0usize..1000, 0usize..12).prop_map(|(op, inputs, controls, device, group)| Seed {
        op,
        inputs,
        controls,
        device,
        group,
    })
}

/// Generates nodes that mostly fit together: inputs are earlier nodes, types are float, and loops close.
fn sensible(seeds: &[Seed]) -> GraphDef {
    const OPS: &[&str] = &[
        "Placeholder",
        "VariableV2",
        "Const",
        "Neg",
        "AddV2",
        "AddN",
        "Identity",
        "Assign",
        "Split",
        "NoOp",
        "Loop",
        "Switch",
        "Shape",
    ];
    let mut nodes: Vec<NodeDef> = Vec::new();
    // The outputs that later nodes can use: floats, variables and booleans.
    let mut floats: Vec<String> = Vec::new();
    let mut variables: Vec<String> = Vec::new();
    for (index, seed) in seeds.iter().enumerate() {
        let name = format!("n{index}");
        let pick = |list: &[String], place: usize| {
            let (choice, _) = seed.inputs.get(place).copied().unwrap_or((place, 0));
            (!list.is_empty()).then(|| list[choice % list.len()].clone())
        };
        let mut node = NodeDef { name: name.clone(), ..Default::default() };
        let mut attrs = AttrMap::default();
        let mut op = OPS[seed.op % OPS.len()];
        match op {
            "Placeholder" => attrs.set("dtype", DType::Float),
            "VariableV2" => {
                attrs.set("dtype", DType::Float);
                attrs.set("shape", Shape::scalar());
                variables.push(name.clone());
            }
            "Const" => {
                attrs.set("dtype", DType::Float);
                attrs.set("value", tensor::tensor_to_proto(&Tensor::scalar(index as f32)).unwrap());
            }
            "NoOp" => {}
            "Assign" => match (pick(&variables, 0), pick(&floats, 1)) {
                (Some(variable), Some(value)) => {
                    attrs.set("T", DType::Float);
                    node.input = vec![variable, value];
                }
                _ => op = "NoOp",
            },
            "Loop" => match pick(&floats, 0) {
                Some(start) => {
                    add_loop(&mut nodes, &name, start, DEVICES[seed.device % 6], DEVICES[seed.group % 6]);
                    floats.push(format!("{name}/exit"));
                    continue;
                }
                None => op = "NoOp",
            },
            "Split" => match pick(&floats, 0) {
                Some(value) => {
                    let mut axis =
                        NodeDef { name: format!("{name}/axis"), op: "Const".to_owned(), ..Default::default() };
                    let mut axis_attrs = AttrMap::default();
                    axis_attrs.set("dtype", DType::Int32);
                    axis_attrs.set("value", tensor::tensor_to_proto(&Tensor::scalar(0i32)).unwrap());
                    axis.attr = axis_attrs.to_def();
                    node.input = vec![axis.name.clone(), value];
                    nodes.push(axis);
                    attrs.set("T", DType::Float);
                    attrs.set("num_split", 2i64);
                    floats.push(format!("{name}:1"));
                }
                None => op = "NoOp",
            },
            _ => {
                let count = match op {
                    "AddV2" => 2,
                    "AddN" => 1 + seed.inputs.len(),
                    _ => 1,
                };
                let inputs: Option<Vec<String>> = (0..count).map(|place| pick(&floats, place)).collect();
                match inputs {
                    Some(inputs) if op != "Switch" => {
                        attrs.set("T", DType::Float);
                        if op == "AddN" {
                            attrs.set("N", count as i64);
                        }
                        node.input = inputs;
                    }
                    _ => op = "NoOp",
                }
            }
        }
        if matches!(
            op,
            "Placeholder" | "Const" | "Neg" | "AddV2" | "AddN" | "Identity" | "VariableV2" | "Assign" | "Split"
        ) {
            floats.push(name.clone());
        }
        for &control in &seed.controls {
            if !nodes.is_empty() && op != "Const" {
                let source = nodes[control % nodes.len()].name.clone();
                // Nodes outside of a loop must not use those inside.
                if !source.contains("/in_") {
                    node.input.push(format!("^{source}"));
                }
            }
        }
        node.op = op.to_owned();
        node.device = DEVICES[seed.device % 6].to_owned();
        if seed.group < 3 {
            attrs.set("_class", [format!("loc:@n{}", seed.group)].as_slice());
        }
        node.attr = attrs.to_def();
        nodes.push(node);
    }
    GraphDef { node: nodes, ..Default::default() }
}

fn add_loop(nodes: &mut Vec<NodeDef>, name: &str, start: String, device: &str, other: &str) {
    let mut add = |part: &str, op: &str, inputs: &[String], device: &str, extra: &[(&str, AttrValue)]| {
        let mut attrs = AttrMap::default();
        if !matches!(op, "LoopCond") {
            attrs.set("T", DType::Float);
        }
        for (attr, value) in extra {
            attrs.insert(*attr, value.clone());
        }
        let full = format!("{name}/{part}");
        let (input, device) = (inputs.to_vec(), device.to_owned());
        nodes.push(NodeDef {
            name: full.clone(),
            op: op.to_owned(),
            input,
            device,
            attr: attrs.to_def(),
            ..Default::default()
        });
        full
    };
    let frame = AttrValue { value: Some(attr_value::Value::S(name.to_owned().into())) };
    let two = AttrValue { value: Some(attr_value::Value::I(2)) };
    let enter = add("in_enter", "Enter", &[start], device, &[("frame_name", frame)]);
    let merge = add("in_merge", "Merge", &[enter, format!("{name}/in_next")], device, &[("N", two)]);
    let less = add("in_less", "Less", &[merge.clone(), merge.clone()], device, &[]);
    let cond = add("in_cond", "LoopCond", &[less], device, &[]);
    let switch = add("in_switch", "Switch", &[merge, cond], device, &[]);
    let body = add("in_body", "Neg", &[format!("{switch}:1")], other, &[]);
    let local = add("in_local", "Neg", &[body], device, &[]);
    add("in_next", "NextIteration", &[local], device, &[]);
    add("exit", "Exit", &[switch], device, &[]);
}

/// Generates arbitrary nodes.
fn senseless(seeds: &[Seed]) -> GraphDef {
    const OPS: &[&str] =
        &["Merge", "Switch", "Enter", "Exit", "NextIteration", "LoopCond", "AddN", "Nonsense", "", "Split"];
    let node = |(index, seed): (usize, &Seed)| {
        let mut attrs = AttrMap::default();
        if seed.group & 1 == 0 {
            attrs.set("T", DType::ALL[seed.op % DType::ALL.len()]);
        }
        if seed.group & 2 == 0 {
            attrs.set("N", seed.op as i64 - 500);
            attrs.set("num_split", i64::MAX - seed.op as i64);
        }
        if seed.group & 4 == 0 {
            attrs.set("frame_name", "f");
            attrs.set("shape", PartialShape::from_dims(&[-1, i64::MAX]));
        }
        let mut input: Vec<String> = Vec::new();
        for (source, port) in &seed.inputs {
            input.push(match source % 7 {
                0 => String::new(),
                1 => format!("n{}:{}", source % seeds.len().max(1), u64::from(*port) << 40),
                2 => ":".to_owned(),
                _ => format!("n{}:{port}", source % seeds.len().max(1)),
            });
        }
        input.extend(seed.controls.iter().map(|source| format!("^n{}", source % (seeds.len() + 1))));
        NodeDef {
            name: if seed.op % 50 == 0 { "\u{e9} x".to_owned() } else { format!("n{index}") },
            op: OPS[seed.op % OPS.len()].to_owned(),
            input,
            device: DEVICES[seed.device % DEVICES.len()].to_owned(),
            attr: attrs.to_def(),
            ..Default::default()
        }
    };
    GraphDef { node: seeds.iter().enumerate().map(node).collect(), ..Default::default() }
}

/// Applies random changes to a GraphDef.
fn mutate(def: &mut GraphDef, mutations: &[(usize, usize, usize)]) {
    for &(kind, a, b) in mutations {
        if def.node.is_empty() {
            return;
        }
        let (a, b) = (a % def.node.len(), b % def.node.len());
        let other = def.node[b].clone();
        let node = &mut def.node[a];
        match kind % 10 {
            0 => node.op = other.op,
            1 => node.input = other.input,
            2 => node.attr = other.attr,
            3 => node.name = other.name,
            4 => node.input.push(other.name),
            5 => node.input.push(format!("^{}", other.name)),
            6 => drop(node.input.pop()),
            7 => drop(node.attr.pop_first()),
            8 => drop(def.node.remove(a)),
            _ => node.device = DEVICES[b % DEVICES.len()].to_owned(),
        }
    }
}

fn cluster() -> Vec<DeviceName> {
    let mut devices: Vec<DeviceName> = Vec::new();
    for (job, task) in [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)] {
        devices.push(DeviceName::cpu(job, task, 0));
    }
    devices
}

/// Runs the passes on a GraphDef, and returns how many succeeded.
fn run(def: &GraphDef, soft: bool, feeds: &[usize], fetches: &[usize]) -> usize {
    let mut graph = NodeGraph::default();
    if import_graph_def(&mut graph, def, ops()).is_err() {
        assert!(graph.is_empty(), "an import that fails leaves no trace");
        return 0;
    }
    let again = NodeGraph::from_graph_def(&graph.to_graph_def(), ops()).unwrap();
    assert_eq!(again.to_graph_def(), graph.to_graph_def());
    graph.to_dot();
    let options =
        PlacementOptions { allow_soft_placement: soft, default_device: Some(DeviceName::cpu("worker", 0, 0)) };
    if place(&mut graph, &cluster(), &options, &|_, kind| kind == "CPU").is_err() {
        return 1;
    }
    for (_, node) in graph.iter() {
        assert!(DeviceName::parse(&node.device).unwrap().is_full());
    }
    let ids: Vec<_> = graph.ids().collect();
    let names = |places: &[usize]| -> Vec<String> {
        let chosen = places.iter().filter(|_| !ids.is_empty()).map(|place| ids[place % ids.len()]);
        chosen.map(|id| graph.node(id).name.clone()).collect()
    };
    let (mut feeds, fetches) = (names(feeds), names(fetches));
    feeds.sort();
    feeds.dedup();
    let (with_output, without): (Vec<String>, Vec<String>) = fetches
        .into_iter()
        .partition(|name| graph.find(name).is_some_and(|id| !graph.node(id).output_types.is_empty()));
    let Ok(spec) = RunSpec::resolve(&graph, &feeds, &with_output, &without) else { return 2 };
    let Ok(mut pruned) = prune(&graph, &spec, ops()) else { return 2 };
    pruned.topological_order().unwrap();
    optimize_and_check(&mut pruned);
    settle_terminals(&mut pruned, &spec, &|_| 7).unwrap();
    let options = PartitionOptions { location: &by_device, incarnation: &|_| 7, control_flow_added: false };
    let Ok(parts) = partition(&pruned, ops(), &options) else { return 3 };
    check_parts(&parts);
    let options = PartitionOptions { location: &by_task, incarnation: &|_| 7, control_flow_added: false };
    check_parts(&partition(&pruned, ops(), &options).unwrap());
    4
}

/// Checks that optimization keeps the results and the frames of nodes.
fn optimize_and_check(graph: &mut NodeGraph) {
    let results = |graph: &NodeGraph| graph.iter().filter(|(_, node)| node.op() == "_Retval").count();
    let before = (results(graph), graph::control_flow::FrameTable::new(graph).is_ok());
    let give_up = |_: &NodeGraph, _: &[graph::Edge]| Err(tensor::Status::unimplemented("no kernels here"));
    let options = OptimizeOptions {
        switches: graph::passes::OptimizeSwitches::ALL,
        evaluate: Some(&give_up),
        has_kernel: &|_| true,
        may_fuse: &|_, _| true,
        constant_bytes_max: CONSTANT_BYTES_MAX,
    };
    optimize(graph, ops(), &options).unwrap();
    graph.topological_order().unwrap();
    for (_, node) in graph.iter() {
        graph.check_inputs(node).unwrap();
    }
    assert_eq!((results(graph), graph::control_flow::FrameTable::new(graph).is_ok()), before);
}

/// Checks that every part is valid, and that every tensor sent between parts is received once.
fn check_parts(parts: &BTreeMap<String, NodeGraph>) {
    let mut transfers: BTreeMap<(String, String, String), (usize, usize)> = BTreeMap::new();
    for part in parts.values() {
        let again = NodeGraph::from_graph_def(&part.to_graph_def(), ops()).unwrap_or_else(|status| panic!("{status}"));
        assert_eq!(again.len(), part.len());
        for (_, node) in part.iter().filter(|(_, node)| matches!(node.op(), "_Send" | "_Recv")) {
            let text = |name: &str| node.attrs.string(name).unwrap();
            let key = (text("send_device"), text("recv_device"), text("tensor_name"));
            let (sent, received) = transfers.entry(key).or_default();
            if node.op() == "_Send" {
                *sent += 1;
            } else {
                *received += 1;
            }
        }
    }
    for (key, counts) in transfers {
        assert_eq!(counts, (1, 1), "{key:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sensible_graphs(
        seeds in prop::collection::vec(seed(), 1..14),
        soft: bool,
        feeds in prop::collection::vec(0usize..100, 0..3),
        fetches in prop::collection::vec(0usize..100, 1..4),
    ) {
        run(&sensible(&seeds), soft, &feeds, &fetches);
    }

    #[test]
    fn mutated_graphs(
        seeds in prop::collection::vec(seed(), 1..14),
        mutations in prop::collection::vec((0usize..100, 0usize..100, 0usize..100), 1..5),
        soft: bool,
        fetches in prop::collection::vec(0usize..100, 1..4),
    ) {
        let mut def = sensible(&seeds);
        mutate(&mut def, &mutations);
        run(&def, soft, &[], &fetches);
    }

    #[test]
    fn senseless_graphs(seeds in prop::collection::vec(seed(), 0..10), soft: bool) {
        run(&senseless(&seeds), soft, &[0], &[1, 2]);
    }
}

#[test]
fn sensible_graphs_are_sensible() {
    // Makes sure that the tests above do not only test the importer's errors.
    let seed = |op: usize, device: usize| Seed { op, inputs: vec![(0, 0), (1, 0)], controls: vec![], device, group: 5 };
    let seeds: Vec<Seed> = (0..13).map(|index| seed(index, index)).collect();
    assert_eq!(run(&sensible(&seeds), true, &[0], &[5, 8, 20]), 4);
}
