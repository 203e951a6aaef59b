//! Placement: a text graph in, the devices or the error out.

use expect_test::{Expect, expect};
use graph::passes::{Placement, PlacementOptions, place, placement_log};
use graph::{DeviceName, Node, NodeGraph};
use ops::registry as ops;
use tensor::Result;

fn cluster() -> Vec<DeviceName> {
    vec![
        DeviceName::cpu("ps", 0, 0),
        DeviceName::cpu("ps", 1, 0),
        DeviceName::cpu("worker", 0, 0),
        DeviceName::cpu("worker", 1, 0),
        DeviceName::cpu("worker", 1, 1),
    ]
}

fn run(soft: bool, text: &str) -> Result<(NodeGraph, Placement)> {
    let mut graph = NodeGraph::from_text(text, ops()).unwrap_or_else(|status| panic!("{status}"));
    let default_device = Some(DeviceName::cpu("worker", 1, 0));
    let options = PlacementOptions { allow_soft_placement: soft, default_device };
    let placement = place(&mut graph, &cluster(), &options, &|node, kind| kind == "CPU" && node.op() != "Tanh")?;
    Ok((graph, placement))
}

fn check(soft: bool, text: &str, expected: Expect) {
    let shown = match run(soft, text) {
        Ok((graph, placement)) => {
            let short = |node: &Node| node.device.replace("/replica:0", "").replace("/device:CPU", "/cpu");
            let lines = graph.iter().map(|(_, node)| format!("{} {}\n", node.name, short(node)));
            let notes = placement.notes.iter().map(|note| format!("{note}\n"));
            lines.chain(notes).collect()
        }
        Err(status) => status.to_string(),
    };
    expected.assert_eq(&shown);
}

#[test]
fn whole_partial_and_open_requests() {
    check(
        false,
        "whole = VariableV2() {dtype=float, shape=[]} @/job:ps/replica:0/task:1/device:CPU:0
job = VariableV2() {dtype=float, shape=[]} @/job:ps
own_job = VariableV2() {dtype=float, shape=[]} @/job:worker
number = VariableV2() {dtype=float, shape=[]} @/device:CPU:1
open = VariableV2() {dtype=float, shape=[]}
old_spelling = NoOp() @/job:worker/task:0/cpu:0",
        expect![[r#"
            whole /job:ps/task:1/cpu:0
            job /job:ps/task:0/cpu:0
            own_job /job:worker/task:1/cpu:0
            number /job:worker/task:1/cpu:1
            open /job:worker/task:1/cpu:0
            old_spelling /job:worker/task:0/cpu:0
        "#]],
    );
}

#[test]
fn accelerators_come_first_and_the_devices_of_xla_last() {
    let typed = |kind: &str| DeviceName::parse(&format!("/job:ps/replica:0/task:0/device:{kind}:0")).unwrap();
    let devices = [typed("XLA_GPU"), typed("XLA_CPU"), typed("CPU"), typed("GPU")];
    let text = "open = NoOp() @/job:ps
no_gpu = VariableV2() {dtype=float, shape=[]} @/job:ps
asked = NoOp() @/job:ps/device:XLA_CPU:0";
    let mut graph = NodeGraph::from_text(text, ops()).unwrap();
    let options = PlacementOptions { allow_soft_placement: false, default_device: None };
    place(&mut graph, &devices, &options, &|node, kind| kind != "GPU" || node.op() == "NoOp").unwrap();
    let device_of = |name: &str| graph.iter().find(|(_, node)| node.name == name).unwrap().1.device.clone();
    assert_eq!(device_of("open"), typed("GPU").to_string());
    assert_eq!(device_of("no_gpu"), typed("CPU").to_string());
    assert_eq!(device_of("asked"), typed("XLA_CPU").to_string());
}

#[test]
fn references_and_handles_stay_with_their_variable() {
    check(
        false,
        "v = VariableV2() {dtype=float, shape=[]} @/job:ps/task:1
one = Const() {dtype=float, value=float[](1)}
assign = Assign(v, one) @/job:worker/task:0
add = AssignAdd(assign, one)
read = Identity(v) @/job:worker/task:0
h = VarHandleOp() {dtype=float, shape=[]} @/job:ps/task:0
write = AssignVariableOp(h, one)
value = ReadVariableOp(h) {dtype=float}",
        expect![[r#"
            v /job:ps/task:1/cpu:0
            one /job:worker/task:1/cpu:0
            assign /job:ps/task:1/cpu:0
            add /job:ps/task:1/cpu:0
            read /job:worker/task:0/cpu:0
            h /job:ps/task:0/cpu:0
            write /job:ps/task:0/cpu:0
            value /job:ps/task:0/cpu:0
            Ignoring device specification /job:worker/task:0 for node 'assign' because the input edge from 'v' is a reference connection and already has a device field set to /job:ps/task:1
        "#]],
    );
}

#[test]
fn colocation_groups_stay_together() {
    check(
        false,
        "early = NoOp() {_class=[\"loc:@late\"]}
other = NoOp() {_class=[\"loc:@group\"]} @/job:ps
late = VariableV2() {dtype=float, shape=[]} @/job:ps/task:1
member = NoOp() {_class=[\"loc:@group\", \"loc:@late\"]}",
        expect![[r#"
            early /job:ps/task:1/cpu:0
            other /job:ps/task:1/cpu:0
            late /job:ps/task:1/cpu:0
            member /job:ps/task:1/cpu:0
        "#]],
    );
}

#[test]
fn contradictions_are_errors_unless_placement_is_soft() {
    let text = "a = NoOp() {_class=[\"loc:@g\"]} @/job:ps/task:0
b = NoOp() {_class=[\"loc:@g\"]} @/job:worker";
    check(
        false,
        text,
        expect![
            "INVALID_ARGUMENT: Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}}: Cannot merge devices with incompatible jobs: '/job:worker' and '/job:ps/task:0'"
        ],
    );
    check(
        true,
        text,
        expect![[r#"
        a /job:ps/task:0/cpu:0
        b /job:worker/task:1/cpu:0
        Ignoring request to colocate node 'b' with nodes in colocation group 'g' because soft placement is on and an attempt at doing so resulted in the following error: Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}}: Cannot merge devices with incompatible jobs: '/job:worker' and '/job:ps/task:0'
    "#]],
    );
    let resources = "v = VarHandleOp() {dtype=float, shape=[], _class=[\"loc:@w\"]} @/job:ps/task:0
w = VarHandleOp() {dtype=float, shape=[]} @/job:ps/task:1";
    check(
        false,
        resources,
        expect![
            "INVALID_ARGUMENT: Cannot colocate nodes {{colocation_node w}} and {{colocation_node v}}: Cannot merge devices with incompatible tasks: '/job:ps/task:1' and '/job:ps/task:0'"
        ],
    );
}

#[test]
fn a_fetch_is_blamed_on_what_is_fetched() {
    check(
        false,
        "x = Placeholder() {dtype=float} @/job:foo\nr = _Retval(x) {index=0} @/job:foo",
        expect![[r#"
        INVALID_ARGUMENT: Cannot assign a device for operation x: {{node x}} was explicitly assigned to /job:foo but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:ps/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:1 ]. Make sure the device specification refers to a valid device. The nearest match is '/job:worker/replica:0/task:1/device:CPU:0'.
        	 [[{{node x}}]]"#]],
    );
}

#[test]
fn devices_that_are_not_there() {
    check(
        false,
        "x = Neg(y) @/job:foo/task:0\ny = Placeholder() {dtype=float}",
        expect![[r#"
        INVALID_ARGUMENT: Cannot assign a device for operation x: {{node x}} was explicitly assigned to /job:foo/task:0 but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:ps/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:1 ]. Make sure the device specification refers to a valid device. The nearest match is '/job:worker/replica:0/task:1/device:CPU:0'.
        	 [[{{node x}}]]"#]],
    );
    check(
        false,
        "x = NoOp() @/job:worker/task:7",
        expect![[r#"
        INVALID_ARGUMENT: Cannot assign a device for operation x: {{node x}} was explicitly assigned to /job:worker/task:7 but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:ps/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:1 ]. Make sure the device specification refers to a valid device. The nearest match is '/job:worker/replica:0/task:1/device:CPU:0'.
        	 [[{{node x}}]]"#]],
    );
    check(
        true,
        "x = NoOp() @/job:worker/task:7",
        expect![[r#"
        INVALID_ARGUMENT: Cannot assign a device for operation x: {{node x}} was explicitly assigned to /job:worker/task:7 but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:ps/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:1 ]. Make sure the device specification refers to a valid device. The nearest match is '/job:worker/replica:0/task:1/device:CPU:0'.
        	 [[{{node x}}]]"#]],
    );
    check(
        false,
        "x = NoOp() @/job:worker/task:0/gpu:0",
        expect![[r#"
        INVALID_ARGUMENT: Cannot assign a device for operation x: {{node x}} was explicitly assigned to /job:worker/task:0/gpu:0 but available devices are [ /job:ps/replica:0/task:0/device:CPU:0, /job:ps/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:1 ]. Make sure the device specification refers to a valid device. The nearest match is '/job:worker/replica:0/task:0/device:CPU:0'.
        	 [[{{node x}}]]"#]],
    );
    check(
        true,
        "x = NoOp() @/job:worker/task:0/gpu:0",
        expect![[r#"
        x /job:worker/task:0/cpu:0
    "#]],
    );
    check(
        true,
        "v = VarHandleOp() {dtype=float, shape=[]} @/gpu:0\nr = ReadVariableOp(v) {dtype=float}",
        expect![[r#"
            v /job:worker/task:1/cpu:0
            r /job:worker/task:1/cpu:0
        "#]],
    );
    check(
        false,
        "x = NoOp() @/job:worker/taks:0",
        expect!["INVALID_ARGUMENT: Malformed device specification '/job:worker/taks:0' in node: {{node x}}"],
    );
    check(
        false,
        "x = Tanh(y)\ny = Placeholder() {dtype=float}",
        expect![[r#"
        INVALID_ARGUMENT: No OpKernel was registered to support Op 'Tanh' used by {{node x}} with these attrs: [T=float]
        Registered devices: [CPU]"#]],
    );
}

#[test]
fn generators_go_to_their_consumers_and_metadata_to_its_input() {
    check(
        false,
        "c = Const() {dtype=float, value=float[](1)}
x = Placeholder() {dtype=float}
y = AddV2(x, c) @/job:ps/task:0
z = Neg(y) @/job:worker/task:0
shared = Const() {dtype=float, value=float[](1)}
p = Neg(shared) @/job:ps/task:0
q = Neg(shared) @/job:worker/task:0
shape = Shape(y)
pinned = Shape(y) @/job:worker/task:0",
        expect![[r#"
            c /job:ps/task:0/cpu:0
            x /job:ps/task:0/cpu:0
            y /job:ps/task:0/cpu:0
            z /job:worker/task:0/cpu:0
            shared /job:worker/task:1/cpu:0
            p /job:ps/task:0/cpu:0
            q /job:worker/task:0/cpu:0
            shape /job:ps/task:0/cpu:0
            pinned /job:worker/task:0/cpu:0
        "#]],
    );
}

#[test]
fn the_log_has_a_line_for_each_node() {
    let (graph, _) = run(false, "a = NoOp() @/job:ps/task:0").unwrap();
    assert_eq!(placement_log(&graph), ["a: (NoOp): /job:ps/replica:0/task:0/device:CPU:0"]);
    let mut empty = NodeGraph::default();
    let status = place(&mut empty, &[], &PlacementOptions::default(), &|_, _| true).unwrap_err();
    assert_eq!(status.code(), tensor::Code::FailedPrecondition);
}
