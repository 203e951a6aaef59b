//! What the passes make of a graph computes what the graph computes: random graphs with branches and loops are run as they
//! are, optimized, and cut into parts that send each other their tensors.

use executor::Executor;
use graph::NodeGraph;
use graph::passes::{
    OptimizeSwitches, PartitionOptions, RunSpec, by_device, by_task, partition, prune, settle_terminals,
};
use kernel::{CallFrame, LocalRendezvous, SessionKernels, Step};
use ops::registry;
use proptest::prelude::*;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tensor::{Result, Status, Tensor};

const DEVICES: [&str; 3] = [
    "/job:w/replica:0/task:0/device:CPU:0",
    "/job:w/replica:0/task:0/device:CPU:1",
    "/job:w/replica:0/task:1/device:CPU:0",
];

/// Ends a step that hangs; no step comes near it.
const WATCHDOG: Duration = Duration::from_secs(120);

const INCARNATION: u64 = 0xdead_beef;

/// A graph as text, with the names of what may be fetched.
#[derive(Default)]
struct Program {
    lines: Vec<String>,
    values: Vec<String>,
}

impl Program {
    fn add(&mut self, line: String, device: usize) -> String {
        let name = line.split(' ').next().unwrap().to_owned();
        self.lines.push(format!("{line} @{}", DEVICES[device % DEVICES.len()]));
        name
    }

    /// Adds a node that computes something from values, which `pick` chooses.
    fn step(&mut self, index: usize, seed: &Seed) {
        let pick = |place: usize| self.values[seed.picks[place] % self.values.len()].clone();
        let (a, b, device) = (pick(0), pick(1), seed.devices[0]);
        let name = format!("n{index}");
        let line = match seed.kind % 9 {
            0 => format!("{name} = Const() {{dtype=float, value=float[]({}.5)}}", seed.picks[0] % 7),
            1 => format!("{name} = Neg({a})"),
            2 => format!("{name} = Identity({a})"),
            3 => format!("{name} = Mul({a}, {b})"),
            4 => format!("{name} = AddN({a}, {b}, {a})"),
            5 => format!("{name} = Identity({a}, ^{b})"),
            6 => return self.add_condition(&name, &a, &b, seed),
            7 => return self.add_loop(&name, &a, seed),
            _ => format!("{name} = AddV2({a}, {b})"),
        };
        let name = self.add(line, device);
        self.values.push(name);
    }

    /// `if a < b { -a } else { a + 1 }`.
    fn add_condition(&mut self, name: &str, a: &str, b: &str, seed: &Seed) {
        let device = |place: usize| seed.devices[place % seed.devices.len()];
        self.add(format!("{name}/less = Less({a}, {b})"), device(0));
        self.add(format!("{name}/switch = Switch({a}, {name}/less)"), device(1));
        self.add(format!("{name}/pivot = Identity({name}/switch)"), device(2));
        self.add(format!("{name}/one = Const(^{name}/pivot) {{dtype=float, value=float[](1)}}"), device(3));
        self.add(format!("{name}/double = AddV2({name}/one, {name}/one)"), device(0));
        self.add(format!("{name}/then = Neg({name}/switch:1)"), device(2));
        self.add(format!("{name}/else = AddV2({name}/pivot, {name}/double)"), device(3));
        let merged = self.add(format!("{name}/merge = Merge({name}/then, {name}/else)"), device(1));
        self.values.push(merged);
    }

    /// `while i < 3 { x = x / 2 + y; i += 1 }`, with another loop inside when the seed says so.
    fn add_loop(&mut self, name: &str, start: &str, seed: &Seed) {
        let device = |place: usize| seed.devices[place % seed.devices.len()];
        let parallel = 1 + seed.picks[2] % 4;
        let frame = format!("frame_name=\"{name}\", parallel_iterations={parallel}");
        let limit = seed.picks[1] % 4;
        for (part, value) in [("zero", "0".to_owned()), ("step", "1".to_owned()), ("limit", limit.to_string())] {
            self.add(format!("{name}/{part} = Const() {{dtype=float, value=float[]({value})}}"), device(0));
        }
        self.add(format!("{name}/i = Enter({name}/zero) {{{frame}}}"), device(0));
        self.add(format!("{name}/x = Enter({start}) {{{frame}}}"), device(1));
        self.add(format!("{name}/limit_in = Enter({name}/limit) {{{frame}, is_constant=true}}"), device(0));
        self.add(format!("{name}/step_in = Enter({name}/step) {{{frame}, is_constant=true}}"), device(2));
        self.add(format!("{name}/outer = Enter({start}) {{{frame}, is_constant=true}}"), device(3));
        self.add(format!("{name}/merge_i = Merge({name}/i, {name}/next_i)"), device(0));
        self.add(format!("{name}/merge_x = Merge({name}/x, {name}/next_x)"), device(1));
        self.add(format!("{name}/less = Less({name}/merge_i, {name}/limit_in)"), device(2));
        self.add(format!("{name}/cond = LoopCond({name}/less)"), device(2));
        self.add(format!("{name}/switch_i = Switch({name}/merge_i, {name}/cond)"), device(0));
        self.add(format!("{name}/switch_x = Switch({name}/merge_x, {name}/cond)"), device(1));
        self.add(format!("{name}/body_i = AddV2({name}/switch_i:1, {name}/step_in)"), device(3));
        self.add(format!("{name}/pivot = Identity({name}/switch_i:1)"), device(1));
        self.add(format!("{name}/half = Const(^{name}/pivot) {{dtype=float, value=float[](0.5)}}"), device(0));
        self.add(format!("{name}/smaller = Mul({name}/switch_x:1, {name}/half)"), device(3));
        self.add(format!("{name}/body_x = AddV2({name}/smaller, {name}/outer)"), device(2));
        self.add(format!("{name}/next_i = NextIteration({name}/body_i)"), device(3));
        let mut body = format!("{name}/body_x");
        if !name.contains('/') && seed.picks[3].is_multiple_of(2) {
            let inner = format!("{name}/inner");
            let turned = Seed { devices: [device(1), device(2), device(3), device(0)], ..seed.clone() };
            body = self.inner_loop(&inner, &body, &format!("{name}/pivot"), &turned);
        }
        self.add(format!("{name}/next_x = NextIteration({body})"), device(2));
        let exit = self.add(format!("{name}/exit = Exit({name}/switch_x)"), device(1));
        self.values.push(exit);
    }

    /// A loop inside a loop: `while x < 10 { x += x + 1 }`, on a value of the outer one.
    fn inner_loop(&mut self, name: &str, start: &str, pivot: &str, seed: &Seed) -> String {
        let device = |place: usize| seed.devices[place % seed.devices.len()];
        let frame = format!("frame_name=\"{name}\"");
        self.add(format!("{name}/ten = Const(^{pivot}) {{dtype=float, value=float[](10)}}"), device(0));
        self.add(format!("{name}/ten_in = Enter({name}/ten) {{{frame}, is_constant=true}}"), device(0));
        self.add(format!("{name}/one = Const(^{pivot}) {{dtype=float, value=float[](1)}}"), device(1));
        self.add(format!("{name}/one_in = Enter({name}/one) {{{frame}, is_constant=true}}"), device(1));
        self.add(format!("{name}/square = Mul({start}, {start})"), device(2));
        self.add(format!("{name}/x = Enter({name}/square) {{{frame}}}"), device(2));
        self.add(format!("{name}/merge = Merge({name}/x, {name}/next)"), device(3));
        self.add(format!("{name}/less = Less({name}/merge, {name}/ten_in)"), device(0));
        self.add(format!("{name}/cond = LoopCond({name}/less)"), device(1));
        self.add(format!("{name}/switch = Switch({name}/merge, {name}/cond)"), device(2));
        self.add(format!("{name}/more = AddN({name}/switch:1, {name}/switch:1, {name}/one_in)"), device(3));
        self.add(format!("{name}/next = NextIteration({name}/more)"), device(0));
        self.add(format!("{name}/exit = Exit({name}/switch)"), device(1))
    }
}

#[derive(Clone, Debug)]
struct Seed {
    kind: usize,
    picks: [usize; 4],
    devices: [usize; 4],
}

fn seed() -> impl Strategy<Value = Seed> {
    let numbers = || prop::array::uniform4(0usize..100);
    (0usize..100, numbers(), numbers()).prop_map(|(kind, picks, devices)| Seed { kind, picks, devices })
}

fn program(seeds: &[Seed]) -> Program {
    let mut program = Program::default();
    for name in ["x", "y"] {
        let name = program.add(format!("{name} = Placeholder() {{dtype=float}}"), seeds.len());
        program.values.push(name);
    }
    for (index, seed) in seeds.iter().enumerate() {
        program.step(index, seed);
    }
    program
}

fn wait(runs: Vec<(Arc<Executor>, Arc<Step>)>) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    let count = runs.len();
    for (executor, step) in runs {
        let sender = sender.clone();
        let rendezvous = step.rendezvous.clone();
        executor.run(step, move |result| {
            // As in a cluster: a part that fails takes the others with it.
            if let Err(status) = &result {
                rendezvous.abort(status.clone().derived());
            }
            sender.send(result).unwrap();
        });
    }
    let results: Vec<Result<()>> = (0..count).map(|_| receiver.recv_timeout(WATCHDOG).expect("a part hangs")).collect();
    results.into_iter().collect()
}

fn step(rendezvous: &Arc<LocalRendezvous>, device: &str, frame: CallFrame) -> Arc<Step> {
    let runner = executor::default_runner();
    Arc::new(Step { device: device.into(), rendezvous: rendezvous.clone(), frame, runner, ..Step::detached() })
}

/// Runs a pruned graph in one piece.
fn run_whole(graph: &NodeGraph, feeds: &[Tensor], num_fetches: usize) -> Result<Vec<Tensor>> {
    let executor = Executor::new(graph, registry(), &SessionKernels::new(), DEVICES[0])?;
    let frame = CallFrame::new(feeds.iter().cloned().map(Some).collect(), num_fetches);
    let step = step(&Arc::new(LocalRendezvous::new()), DEVICES[0], frame);
    wait(vec![(executor, step.clone())])?;
    let missing = || Status::internal("a result is missing");
    step.frame.take_results().into_iter().map(|result| result.ok_or_else(missing)).collect()
}

/// Cuts a pruned graph by task, and each part by device, and runs the parts.
fn run_parts(graph: &NodeGraph, spec: &RunSpec, feeds: &[Tensor]) -> Result<Vec<Tensor>> {
    let incarnation = |_: &str| INCARNATION;
    let mut graph = graph.clone();
    settle_terminals(&mut graph, spec, &incarnation)?;
    let options = PartitionOptions { location: &by_task, incarnation: &incarnation, control_flow_added: false };
    let rendezvous = Arc::new(LocalRendezvous::new());
    let mut runs = Vec::new();
    for (_, task) in partition(&graph, registry(), &options)? {
        // A task gets its part as a message.
        let task = NodeGraph::from_graph_def(&task.to_graph_def(), registry())?;
        let options = PartitionOptions { location: &by_device, incarnation: &incarnation, control_flow_added: true };
        for (device, part) in partition(&task, registry(), &options)? {
            let executor = Executor::new(&part, registry(), &SessionKernels::new(), &device)?;
            let frame = CallFrame::new(feeds.iter().cloned().map(Some).collect(), spec.fetches.len());
            runs.push((executor, step(&rendezvous, &device, frame)));
        }
    }
    let frames: Vec<Arc<Step>> = runs.iter().map(|(_, step)| step.clone()).collect();
    wait(runs)?;
    let mut results: Vec<Option<Tensor>> = vec![None; spec.fetches.len()];
    for step in frames {
        for (index, result) in step.frame.take_results().into_iter().enumerate() {
            results[index] = result.or(results[index].take());
        }
    }
    for (fetch, feed) in spec.fed_fetches() {
        results[fetch] = Some(feeds[feed].clone());
    }
    let missing = || Status::internal("a fetch didn't arrive");
    results.into_iter().map(|result| result.ok_or_else(missing)).collect()
}

fn numbers(results: Result<Vec<Tensor>>) -> Vec<u32> {
    let results = results.unwrap_or_else(|status| panic!("{status}"));
    results.iter().map(|result| result.to_scalar::<f32>().unwrap().to_bits()).collect()
}

fn check(program: &Program, fetches: &[usize]) {
    let graph = NodeGraph::from_text(&program.lines.join("\n"), registry())
        .unwrap_or_else(|status| panic!("{status}\n{}", program.lines.join("\n")));
    let mut fetches: Vec<String> =
        fetches.iter().map(|fetch| program.values[fetch % program.values.len()].clone()).collect();
    fetches.sort();
    fetches.dedup();
    let spec = RunSpec::resolve(&graph, &["x".to_owned(), "y".to_owned()], &fetches, &[]).unwrap();
    let feeds = [Tensor::scalar(1.25f32), Tensor::scalar(-0.75f32)];
    let mut pruned = prune(&graph, &spec, registry()).unwrap();
    let expected = numbers(run_whole(&pruned, &feeds, fetches.len()));
    assert_eq!(numbers(run_parts(&pruned, &spec, &feeds)), expected, "in parts:\n{}", pruned.to_text());
    kernel::optimize(&mut pruned, registry(), OptimizeSwitches::ALL, &|_, _| true).unwrap();
    assert_eq!(numbers(run_whole(&pruned, &feeds, fetches.len())), expected, "optimized:\n{}", pruned.to_text());
    assert_eq!(numbers(run_parts(&pruned, &spec, &feeds)), expected, "optimized, in parts:\n{}", pruned.to_text());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parts_and_optimized_graphs_compute_the_same(
        seeds in prop::collection::vec(seed(), 1..10),
        fetches in prop::collection::vec(0usize..100, 1..4),
    ) {
        check(&program(&seeds), &fetches);
    }
}

#[test]
fn loops_inside_loops_on_three_devices() {
    for turn in 0..12 {
        let devices = [turn % 3, (turn / 3) % 3, 1, 2];
        let seeds = [Seed { kind: 7, picks: [0, 3, turn, 0], devices }, Seed { kind: 6, picks: [2, 1, 0, 0], devices }];
        check(&program(&seeds), &[2, 3]);
    }
}

/// A constant would have to be sent to the device, which makes the tensor itself as fast.
#[test]
fn a_large_tensor_of_one_number_stays_a_fill() {
    let ops_after = |dims: &str| {
        let text = format!(
            "x = Placeholder() {{dtype=float}}
dims = Const() {{dtype=int32, value=int32[2]({dims})}}
one = Const() {{dtype=float, value=float[](1)}}
filled = Fill(dims, one)
half = Mul(filled, one)
y = Mul(half, x)"
        );
        let graph = NodeGraph::from_text(&text, registry()).unwrap();
        let spec = RunSpec::resolve(&graph, &["x".to_owned()], &["y".to_owned()], &[]).unwrap();
        let mut pruned = prune(&graph, &spec, registry()).unwrap();
        kernel::optimize(&mut pruned, registry(), OptimizeSwitches::ALL, &|_, _| true).unwrap();
        let has = |op: &str| pruned.iter().any(|(_, node)| node.op() == op);
        let largest = pruned.iter().filter_map(|(_, node)| Some(node.attrs.tensor("value").ok()?.num_bytes())).max();
        (has("Fill"), largest.unwrap())
    };
    assert_eq!(ops_after("10, 20"), (false, 800));
    assert_eq!(ops_after("1000, 200"), (true, 8));
}
