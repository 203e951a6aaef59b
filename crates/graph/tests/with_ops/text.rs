//! The text form of graphs survives a round trip, and errors name the line.

use graph::NodeGraph;
use ops::registry as ops;

fn check(text: &str) {
    let graph = NodeGraph::from_text(text, ops()).unwrap_or_else(|status| panic!("{status}"));
    assert_eq!(graph.to_text().trim_end(), text.trim());
}

#[test]
fn what_is_written_can_be_read() {
    check(
        r#"
c = Const() {dtype=float, value=float[2](1.0, -2.5)} @/job:ps/task:0
s = Const() {dtype=string, value=string[]("a\"\n\xff")}
x = Placeholder() {dtype=float, shape=[?,2]}
unknown = Placeholder() {_class=["loc:@x"], dtype=int32}
sum = AddN(c, c, x, ^s)
split = Split(unknown, x) {num_split=2}
y = MatMul(split:1, split) {transpose_b=true}
call = PartitionedCall(y, c) {Tout=[float, int32], f=&body{N=3, T=float}}
"#,
    );
}

#[test]
fn nodes_may_be_used_before_they_are_defined() {
    check(
        "start = Const() {dtype=int32, value=int32[](0)}
enter = Enter(start) {frame_name=\"loop\"}
merge = Merge(enter, next)
next = NextIteration(merge)",
    );
}

#[test]
fn mistakes_are_found_with_their_line() {
    let message = |text: &str| match NodeGraph::from_text(text, ops()) {
        Ok(graph) => panic!("{}", graph.to_text()),
        Err(status) => status.message().to_owned(),
    };
    assert!(message("a = Nonsense()").contains("Nonsense"));
    assert!(message("a = NoOp()\nb = Identity(c)").contains("'c'"));
    assert!(message("a = NoOp(").contains("line 1"));
    assert!(message("x = NoOp()\na = Const() {dtype=flaot, value=float[](1)}").contains("line 2"));
}
