//! Shape inference over whole graphs: a text graph in, the shapes out.

use expect_test::{Expect, expect};
use graph::shape::infer_shapes;
use graph::{Edge, NodeGraph};
use ops::registry as ops;
use tensor::PartialShape;

fn check(text: &str, expected: Expect) {
    let graph = NodeGraph::from_text(text, ops()).unwrap_or_else(|status| panic!("{status}"));
    let (shapes, errors) = infer_shapes(&graph, ops()).unwrap();
    let mut shown = String::new();
    for (id, node) in graph.iter() {
        let list: Vec<String> = shapes.output_shapes(id).iter().map(PartialShape::to_string).collect();
        shown.push_str(&format!("{} {}\n", node.name, list.join(" ")));
    }
    for (id, status) in errors {
        shown.push_str(&format!("! {} {}\n", graph.node(id).name, status.message()));
    }
    expected.assert_eq(&shown);
}

#[test]
fn shapes_follow_from_inputs_and_from_constants() {
    check(
        "x = Placeholder() {dtype=float, shape=[?,4]}
w = Const() {dtype=float, value=float[4,2](1, 2, 3, 4, 5, 6, 7, 8)}
y = MatMul(x, w)
shape = Shape(y)
back = Reshape(y, shape)
told = Placeholder() {dtype=float, _output_shapes=[[7,?]]}
bad = AddV2(w, x)",
        expect![[r#"
            x [?,4]
            w [4,2]
            y [?,2]
            shape [2]
            back [?,2]
            told [7,?]
            bad <unknown>
            ! bad Dimensions must be equal, but are 2 and 4 for shapes [4,2] and [?,4]
        "#]],
    );
}

#[test]
fn values_that_are_used_again_and_again_are_given_up() {
    let mut text = "x0 = Const() {dtype=int32, value=int32[1](1)}\n".to_owned();
    for index in 1..=60 {
        text.push_str(&format!("x{index} = AddV2(x{0}, x{0})\n", index - 1));
    }
    text.push_str("value = Placeholder() {dtype=float}\nreshaped = Reshape(value, x60)\nsmall = Reshape(value, x8)");
    let graph = NodeGraph::from_text(&text, ops()).unwrap_or_else(|status| panic!("{status}"));
    let (shapes, errors) = infer_shapes(&graph, ops()).unwrap();
    let shape = |name: &str| shapes.shape(Edge { node: graph.find(name).unwrap(), port: 0 }).to_string();
    assert_eq!((shape("reshaped").as_str(), shape("small").as_str()), ("[?]", "[256]"));
    assert!(errors.is_empty());
}

fn loop_with_body(body: &str) -> String {
    format!(
        "x = Placeholder() {{dtype=float, shape=[3,4]}}
flag = Placeholder() {{dtype=bool, shape=[]}}
enter = Enter(x) {{frame_name=\"f\"}}
go = Enter(flag) {{frame_name=\"f\", is_constant=true}}
merge = Merge(enter, next)
cond = LoopCond(go)
switch = Switch(merge, cond)
{body}
next = NextIteration(body)
exit = Exit(switch)"
    )
}

#[test]
fn a_loop_keeps_what_every_iteration_keeps() {
    check(
        &loop_with_body("body = Neg(switch:1)"),
        expect![[r#"
        x [3,4]
        flag []
        enter [3,4]
        go []
        merge [3,4] []
        cond []
        switch [3,4] [3,4]
        body [3,4]
        next [3,4]
        exit [3,4]
    "#]],
    );
}

#[test]
fn a_loop_forgets_what_changes() {
    let grows = "w = Placeholder(^switch) {dtype=float, shape=[4,5]}\nbody = MatMul(switch:1, w)";
    check(
        &loop_with_body(grows),
        expect![[r#"
        x [3,4]
        flag []
        enter [3,4]
        go []
        merge [3,?] []
        cond []
        switch [3,?] [3,?]
        w [4,5]
        body [3,5]
        next [3,5]
        exit [3,?]
    "#]],
    );
    let unknown = "body = Reshape(switch:1, target)\ntarget = Placeholder(^switch) {dtype=int32}";
    check(
        &loop_with_body(unknown),
        expect![[r#"
        x [3,4]
        flag []
        enter [3,4]
        go []
        merge <unknown> []
        cond []
        switch <unknown> <unknown>
        body <unknown>
        target <unknown>
        next <unknown>
        exit <unknown>
    "#]],
    );
}
