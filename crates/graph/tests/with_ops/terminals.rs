//! Feeds and fetches with their devices and keys: a text graph in, the expected text out.

use expect_test::expect;
use graph::NodeGraph;
use graph::passes::{RunSpec, prune, settle_terminals};
use ops::registry as ops;

#[test]
fn feeds_and_fetches_are_where_they_are_used_and_made() {
    let text = "
x = Placeholder() {dtype=float} @/job:w/task:0
both = Placeholder() {dtype=float} @/job:w/task:0
idle = Placeholder() {dtype=float} @/job:w/task:0
v = VariableV2() {dtype=float, shape=[]} @/job:ps
y = AddV2(x, both) @/job:w/task:1
z = Mul(y, both) @/job:ps
";
    let mut graph = NodeGraph::from_text(text, ops()).unwrap_or_else(|status| panic!("{status}"));
    let fetches = ["z:0", "z", "v", "z:0", "both:0", "idle"];
    let spec = RunSpec::resolve(&graph, &["x", "both:0", "idle"][..], &fetches, &[]).unwrap();
    assert_eq!(spec.fed_fetches(), [(4, 1), (5, 2)]);
    graph = prune(&graph, &spec, ops()).unwrap();
    settle_terminals(&mut graph, &spec, &|device| device.len() as u64).unwrap();
    graph.topological_order().unwrap();
    expect![[r#"
        _arg_x_0_0 = _Arg() {T=float, client_terminated=true, index=0, recv_device="/job:w/task:1", send_device="/job:w/task:1", send_device_incarnation=13, tensor_name="x"} @/job:w/task:1
        _arg_both_0_1 = _Arg() {T=float, client_terminated=true, index=1, recv_device="/job:w/task:0", send_device="/job:w/task:0", send_device_incarnation=13, tensor_name="both:0"} @/job:w/task:0
        v = VariableV2() {dtype=float, shape=[]} @/job:ps
        y = AddV2(_arg_x_0_0, _arg_both_0_1) @/job:w/task:1
        z = Mul(y, _arg_both_0_1) @/job:ps
        _retval_z_0_0 = _Retval(z) {client_terminated=true, index=0, recv_device="/job:ps", send_device="/job:ps", send_device_incarnation=7, tensor_name="z:0"} @/job:ps
        _retval_z_0_1 = _Retval(z) {client_terminated=true, index=1, recv_device="/job:ps", send_device="/job:ps", send_device_incarnation=7, tensor_name="z"} @/job:ps
        _retval_v_0_2 = _Retval(v) {client_terminated=true, index=2, recv_device="/job:ps", send_device="/job:ps", send_device_incarnation=7, tensor_name="v"} @/job:ps
    "#]].assert_eq(&graph.to_text());
}
