//! Graphs in the DOT language.

use expect_test::expect;
use graph::NodeGraph;
use ops::registry as ops;

#[test]
fn devices_and_kinds_of_edges() {
    let text = "v = VariableV2() {dtype=float, shape=[]} @/job:ps
c = Const() {dtype=float, value=float[](1)}
a = Assign(v, c) @/job:ps
s = Split(axis, c) {num_split=2}
axis = Const() {dtype=int32, value=int32[](0)}
i = Identity(s:1, ^a)";
    let graph = NodeGraph::from_text(text, ops()).unwrap_or_else(|status| panic!("{status}"));
    expect![[r#"
        digraph {
          rankdir=TB;
          node [shape=box, fontname="sans-serif"];
          subgraph cluster_0 {
            label="/job:ps";
            n0 [label="v\nVariableV2"];
            n2 [label="a\nAssign"];
          }
            n1 [label="c\nConst"];
            n3 [label="s\nSplit"];
            n4 [label="axis\nConst"];
            n5 [label="i\nIdentity"];
          n0 -> n2 [style=bold];
          n1 -> n2;
          n4 -> n3;
          n1 -> n3;
          n3 -> n5 [taillabel="1"];
          n2 -> n5 [style=dashed];
        }
    "#]]
    .assert_eq(&graph.to_dot());
}
