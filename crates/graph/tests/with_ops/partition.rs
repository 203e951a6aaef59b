//! Partitioning: a text graph in, the expected parts out.

use expect_test::{Expect, expect};
use graph::passes::{PartitionOptions, by_device, by_task, partition};
use graph::{Node, NodeGraph};
use ops::registry as ops;
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::Result;

fn run(text: &str, location: &dyn Fn(&str) -> String, control_flow_added: bool) -> Result<BTreeMap<String, NodeGraph>> {
    let graph = NodeGraph::from_text(text, ops()).unwrap_or_else(|status| panic!("{status}"));
    let incarnation = |device: &str| device.bytes().map(u64::from).sum();
    partition(&graph, ops(), &PartitionOptions { location, incarnation: &incarnation, control_flow_added })
}

/// Returns whether a node is the `Merge` of a control loop.
fn is_control_loop(node: &Node) -> bool {
    node.name.starts_with("_cloop") && node.op() == "Merge"
}

fn show(parts: &BTreeMap<String, NodeGraph>) -> String {
    let mut text = String::new();
    for (location, graph) in parts {
        graph.topological_order().unwrap();
        for (_, node) in graph.iter() {
            graph.check_inputs(node).unwrap();
        }
        text.push_str(&format!("# {location}\n{}", graph.to_text()));
    }
    text
}

fn check(text: &str, expected: Expect) {
    match run(text, &by_device, false) {
        Ok(parts) => expected.assert_eq(&show(&parts)),
        Err(status) => expected.assert_eq(&status.to_string()),
    }
}

#[test]
fn a_tensor_is_sent_once_to_each_device() {
    check(
        "a = Placeholder() {dtype=float} @/job:a
b1 = Neg(a) @/job:b
b2 = AddV2(a, b1) @/job:b
c1 = Neg(a) @/job:c
back = AddV2(b2, c1) @/job:a",
        expect![[r##"
            # /job:a
            a = Placeholder() {dtype=float} @/job:a
            back = AddV2(b2_S5, c1_S7) @/job:a
            a_S0 = _Send(a) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_a"} @/job:a
            a_S2 = _Send(a) {recv_device="/job:c", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_1_a"} @/job:a
            b2_S5 = _Recv() {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_2_b2", tensor_type=float} @/job:a
            c1_S7 = _Recv() {recv_device="/job:a", send_device="/job:c", send_device_incarnation=519, tensor_name="edge_3_c1", tensor_type=float} @/job:a
            # /job:b
            b1 = Neg(a_S1) @/job:b
            b2 = AddV2(a_S1, b1) @/job:b
            a_S1 = _Recv() {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_a", tensor_type=float} @/job:b
            b2_S4 = _Send(b2) {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_2_b2"} @/job:b
            # /job:c
            c1 = Neg(a_S3) @/job:c
            a_S3 = _Recv() {recv_device="/job:c", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_1_a", tensor_type=float} @/job:c
            c1_S6 = _Send(c1) {recv_device="/job:a", send_device="/job:c", send_device_incarnation=519, tensor_name="edge_3_c1"} @/job:c
        "##]],
    );
}

#[test]
fn control_edges_are_empty_tensors() {
    check(
        "a = NoOp() @/job:a
b1 = NoOp(^a) @/job:b
b2 = NoOp(^a, ^b1) @/job:b",
        expect![[r##"
            # /job:a
            a = NoOp() @/job:a
            a_S0 = Const(^a) {dtype=float, value=float[0]()} @/job:a
            a_S1 = _Send(a_S0) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_a"} @/job:a
            # /job:b
            b1 = NoOp(^a_S3) @/job:b
            b2 = NoOp(^a_S3, ^b1) @/job:b
            a_S2 = _Recv() {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_a", tensor_type=float} @/job:b
            a_S3 = Identity(a_S2) @/job:b
        "##]],
    );
}

#[test]
fn variables_are_read_when_their_reader_is_due_and_references_stay() {
    check(
        "v = VariableV2() {dtype=float, shape=[]} @/job:ps
x = Placeholder() {dtype=float} @/job:w
init = NoOp() @/job:w
y = Mul(x, v, ^init) @/job:w",
        expect![[r##"
            # /job:ps
            v = VariableV2() {dtype=float, shape=[]} @/job:ps
            v_S0 = _Send(v) {recv_device="/job:w", send_device="/job:ps", send_device_incarnation=647, tensor_name="edge_0_v"} @/job:ps
            # /job:w
            x = Placeholder() {dtype=float} @/job:w
            init = NoOp() @/job:w
            y = Mul(x, v_S1, ^init) @/job:w
            v_S1 = _Recv(^x, ^init) {recv_device="/job:w", send_device="/job:ps", send_device_incarnation=647, tensor_name="edge_0_v", tensor_type=float} @/job:w
        "##]],
    );
    check(
        "v = VariableV2() {dtype=float, shape=[]} @/job:ps
x = Placeholder() {dtype=float} @/job:w
a = Assign(v, x) @/job:w",
        expect![
            "INVALID_ARGUMENT: Node 'a' on /job:w takes a reference to 'v:0', which is on /job:ps: a reference can't leave its device"
        ],
    );
}

const LOOP: &str = "zero = Const() {dtype=float, value=float[](0)} @/job:a
enter = Enter(zero) {frame_name=\"f\", parallel_iterations=4} @/job:a
limit = Const() {dtype=float, value=float[](9)} @/job:a
limit_in = Enter(limit) {frame_name=\"f\", is_constant=true, parallel_iterations=4} @/job:a
merge = Merge(enter, next) @/job:a
less = Less(merge, limit_in) @/job:a
cond = LoopCond(less) @/job:a
switch = Switch(merge, cond) @/job:b
body = Neg(switch:1) @/job:b
next = NextIteration(body) @/job:b
exit = Exit(switch) @/job:b
result = Neg(exit) @/job:b";

#[test]
fn a_loop_across_devices_has_dummies_where_it_is_not_decided() {
    check(
        LOOP,
        expect![[r##"
        # /job:a
        zero = Const() {dtype=float, value=float[](0.0)} @/job:a
        enter = Enter(zero) {frame_name="f", parallel_iterations=4} @/job:a
        limit = Const() {dtype=float, value=float[](9.0)} @/job:a
        limit_in = Enter(limit) {frame_name="f", is_constant=true, parallel_iterations=4} @/job:a
        merge = Merge(enter, next) @/job:a
        less = Less(merge, limit_in) @/job:a
        cond = LoopCond(less) @/job:a
        switch = Switch(merge, cond) @/job:a
        next = NextIteration(body_S3) @/job:a
        exit = Exit(switch) @/job:a
        _cloopnext_S5 = Enter(_cloopnext_S9) {frame_name="f", parallel_iterations=4} @/job:a
        _cloopnext_S6 = Merge(_cloopnext_S5, _cloopnext_S8) @/job:a
        _cloopnext_S7 = Switch(_cloopnext_S6, cond) @/job:a
        _cloopnext_S8 = NextIteration(_cloopnext_S7:1) @/job:a
        _cloopnext_S9 = Const() {dtype=float, value=float[0]()} @/job:a
        switch_S0 = _Send(switch:1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_switch"} @/job:a
        body_S3 = _Recv(^_cloopnext_S6) {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_1_body", tensor_type=float} @/job:a
        exit_S4 = _Send(exit) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_2_exit"} @/job:a
        cond_S6 = _Send(cond) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_3_cond"} @/job:a
        # /job:b
        body = Neg(switch_S1) @/job:b
        result = Neg(exit_S5) @/job:b
        _cloopbody_S0 = Enter(_cloopbody_S4) {frame_name="f", parallel_iterations=4} @/job:b
        _cloopbody_S1 = Merge(_cloopbody_S0, _cloopbody_S3) @/job:b
        _cloopbody_S2 = Switch(_cloopbody_S1, cond_S7) @/job:b
        _cloopbody_S3 = NextIteration(_cloopbody_S2:1) @/job:b
        _cloopbody_S4 = Const() {dtype=float, value=float[0]()} @/job:b
        switch_S1 = _Recv(^_cloopbody_S1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_switch", tensor_type=float} @/job:b
        body_S2 = _Send(body) {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_1_body"} @/job:b
        exit_S5 = _Recv() {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_2_exit", tensor_type=float} @/job:b
        cond_S7 = _Recv(^_cloopbody_S1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_3_cond", tensor_type=bool} @/job:b
    "##]],
    );
}

#[test]
fn loops_inside_loops() {
    check(
        "zero = Const() {dtype=float, value=float[](0)} @/job:a
outer = Enter(zero) {frame_name=\"outer\"} @/job:a
outer_merge = Merge(outer, outer_next) @/job:a
outer_less = Less(outer_merge, outer_merge) @/job:a
outer_cond = LoopCond(outer_less) @/job:a
outer_switch = Switch(outer_merge, outer_cond) @/job:a
inner = Enter(outer_switch:1) {frame_name=\"inner\"} @/job:a
inner_merge = Merge(inner, inner_next) @/job:a
inner_less = Less(inner_merge, inner_merge) @/job:a
inner_cond = LoopCond(inner_less) @/job:a
inner_switch = Switch(inner_merge, inner_cond) @/job:a
remote = Neg(inner_switch:1) @/job:b
local = Neg(remote) @/job:a
inner_next = NextIteration(local) @/job:a
inner_exit = Exit(inner_switch) @/job:a
outer_next = NextIteration(inner_exit) @/job:a
outer_exit = Exit(outer_switch) @/job:a",
        expect![[r##"
            # /job:a
            zero = Const() {dtype=float, value=float[](0.0)} @/job:a
            outer = Enter(zero) {frame_name="outer"} @/job:a
            outer_merge = Merge(outer, outer_next) @/job:a
            outer_less = Less(outer_merge, outer_merge) @/job:a
            outer_cond = LoopCond(outer_less) @/job:a
            outer_switch = Switch(outer_merge, outer_cond) @/job:a
            inner = Enter(outer_switch:1) {frame_name="inner"} @/job:a
            inner_merge = Merge(inner, inner_next) @/job:a
            inner_less = Less(inner_merge, inner_merge) @/job:a
            inner_cond = LoopCond(inner_less) @/job:a
            inner_switch = Switch(inner_merge, inner_cond) @/job:a
            local = Neg(remote_S3) @/job:a
            inner_next = NextIteration(local) @/job:a
            inner_exit = Exit(inner_switch) @/job:a
            outer_next = NextIteration(inner_exit) @/job:a
            outer_exit = Exit(outer_switch) @/job:a
            _clooplocal_S9 = Enter(_clooplocal_S14) {frame_name="inner"} @/job:a
            _clooplocal_S10 = Merge(_clooplocal_S9, _clooplocal_S12) @/job:a
            _clooplocal_S11 = Switch(_clooplocal_S10, inner_cond) @/job:a
            _clooplocal_S12 = NextIteration(_clooplocal_S11:1) @/job:a
            _clooplocal_S13 = Enter(_clooplocal_S17) {frame_name="outer"} @/job:a
            _clooplocal_S14 = Merge(_clooplocal_S13, _clooplocal_S16) @/job:a
            _clooplocal_S15 = Switch(_clooplocal_S14, outer_cond) @/job:a
            _clooplocal_S16 = NextIteration(_clooplocal_S15:1) @/job:a
            _clooplocal_S17 = Const() {dtype=float, value=float[0]()} @/job:a
            inner_switch_S0 = _Send(inner_switch:1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_inner_switch"} @/job:a
            remote_S3 = _Recv(^_clooplocal_S10) {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_1_remote", tensor_type=float} @/job:a
            inner_cond_S4 = _Send(inner_cond) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_2_inner_cond"} @/job:a
            outer_cond_S6 = _Send(outer_cond) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_3_outer_cond"} @/job:a
            # /job:b
            remote = Neg(inner_switch_S1) @/job:b
            _cloopremote_S0 = Enter(_cloopremote_S5) {frame_name="inner"} @/job:b
            _cloopremote_S1 = Merge(_cloopremote_S0, _cloopremote_S3) @/job:b
            _cloopremote_S2 = Switch(_cloopremote_S1, inner_cond_S5) @/job:b
            _cloopremote_S3 = NextIteration(_cloopremote_S2:1) @/job:b
            _cloopremote_S4 = Enter(_cloopremote_S8) {frame_name="outer"} @/job:b
            _cloopremote_S5 = Merge(_cloopremote_S4, _cloopremote_S7) @/job:b
            _cloopremote_S6 = Switch(_cloopremote_S5, outer_cond_S7) @/job:b
            _cloopremote_S7 = NextIteration(_cloopremote_S6:1) @/job:b
            _cloopremote_S8 = Const() {dtype=float, value=float[0]()} @/job:b
            inner_switch_S1 = _Recv(^_cloopremote_S1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_0_inner_switch", tensor_type=float} @/job:b
            remote_S2 = _Send(remote) {recv_device="/job:a", send_device="/job:b", send_device_incarnation=518, tensor_name="edge_1_remote"} @/job:b
            inner_cond_S5 = _Recv(^_cloopremote_S1) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_2_inner_cond", tensor_type=bool} @/job:b
            outer_cond_S7 = _Recv(^_cloopremote_S5) {recv_device="/job:b", send_device="/job:a", send_device_incarnation=517, tensor_name="edge_3_outer_cond", tensor_type=bool} @/job:b
        "##]],
    );
}

#[test]
fn parts_of_a_task_can_be_cut_again() {
    let text = LOOP.replace("@/job:a", "@/job:w/task:0/device:CPU:0").replace("@/job:b", "@/job:w/task:0/device:CPU:1");
    let whole = run(&text, &by_task, false).unwrap();
    let task = &whole["/job:w/task:0"];
    assert!(!task.iter().any(|(_, node)| node.op() == "_Send"));
    let parts = run(&task.to_text(), &by_device, true).unwrap();
    let at_once = run(&text, &by_device, false).unwrap();
    // Every receive inside the loop waits for its iteration, as it does if the graph is partitioned in one go.
    let gated = |graph: &NodeGraph| {
        let recvs = graph.iter().filter(|(_, node)| node.op() == "_Recv");
        let count_gates =
            |node: &Node| node.control_inputs.iter().filter(|&&id| is_control_loop(graph.node(id))).count();
        let mut gates: Vec<usize> = recvs.map(|(_, node)| count_gates(node)).collect();
        gates.sort_unstable();
        gates
    };
    assert_eq!(gated(&parts["/job:w/task:0/device:CPU:0"]), [1]);
    assert_eq!(gated(&parts["/job:w/task:0/device:CPU:1"]), [0, 1, 1]);
    for (device, part) in &parts {
        assert_eq!(gated(part), gated(&at_once[device]));
    }
    assert_eq!(parts.len(), 2);
}

#[test]
fn a_receive_of_the_first_cut_keeps_its_iteration_in_the_second() {
    let text = LOOP.replace("@/job:a", "@/job:w/task:0/device:CPU:1").replace("@/job:b", "@/job:w/task:1/device:CPU:0");
    let text = format!("{text}\nbeside = NoOp() @/job:w/task:1/device:CPU:1");
    let tasks = run(&text, &by_task, false).unwrap();
    let task = &tasks["/job:w/task:1"];
    let parts = run(&task.to_text(), &by_device, true).unwrap();
    let gated = |graph: &NodeGraph| {
        let recvs = graph.iter().filter(|(_, node)| node.op() == "_Recv");
        let is_gated = |node: &Node| node.control_inputs.iter().any(|&id| is_control_loop(graph.node(id)));
        recvs.filter(|(_, node)| is_gated(node)).map(|(_, node)| node.name.clone()).collect::<Vec<_>>()
    };
    // The value and the condition; the result of the loop is received outside of it.
    assert_eq!(gated(task).len(), 2);
    assert_eq!(gated(&parts["/job:w/task:1/device:CPU:0"]), gated(task));
}

#[test]
fn mistakes() {
    check("a = NoOp()", expect!["INTERNAL: node 'a' has no device"]);
    let without_condition = LOOP.replace("cond = LoopCond(less)", "cond = Identity(less)");
    check(&without_condition, expect!["INVALID_ARGUMENT: A cross-device loop must have a pivot predicate: f"]);
    check(
        "zero = Const() {dtype=float, value=float[](0)} @/job:a
enter = Enter(zero) {frame_name=\"f\"} @/job:a
mixed = AddV2(enter, zero) @/job:b",
        expect![
            "INVALID_ARGUMENT: {{node mixed}} has inputs from different frames. The input {{node zero}} is in frame ''. The input {{node enter}} is in frame 'f'."
        ],
    );
}

#[test]
fn a_part_has_only_the_functions_that_it_calls() {
    use proto::{FunctionDef, FunctionDefLibrary, OpDef};
    let function = |name: &str, calls: &str| FunctionDef {
        signature: Some(OpDef { name: name.to_owned(), ..Default::default() }),
        node_def: vec![proto::NodeDef { name: "n".into(), op: calls.to_owned(), ..Default::default() }],
        ..Default::default()
    };
    let library = FunctionDefLibrary {
        function: vec![function("body", "helper"), function("helper", "NoOp"), function("idle", "NoOp")],
        ..Default::default()
    };
    let text = "call = PartitionedCall() {Tin=[], Tout=[], f=&body} @/job:a\nother = NoOp() @/job:b";
    let mut graph = NodeGraph::from_text(text, ops()).unwrap();
    graph.library = Arc::new(graph.library.extended(&library).unwrap());
    let options = PartitionOptions { location: &by_device, incarnation: &|_| 1, control_flow_added: false };
    let parts = partition(&graph, ops(), &options).unwrap();
    assert_eq!(parts["/job:a"].library.names(), ["body", "helper"]);
    assert!(parts["/job:b"].library.is_empty());
}
