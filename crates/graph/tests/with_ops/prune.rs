//! Pruning: a text graph in, the expected text out.

use expect_test::{Expect, expect};
use graph::NodeGraph;
use graph::passes::{RunSpec, prune};
use ops::registry as ops;
use tensor::{DType, Shape};

const GRAPH: &str = "
x = Placeholder() {dtype=float}
c = Const() {dtype=float, value=float[](2)}
y = AddV2(x, c, ^x)
init = NoOp(^x)
z = Mul(y, c, ^init)
axis = Const() {dtype=int32, value=int32[](0)}
s = Split(axis, z) {num_split=2}
t = AddN(s, s:1)
unused = Neg(z)
v = VariableV2() {dtype=float, shape=[]}
assign = Assign(v, c)
";

fn graph() -> NodeGraph {
    NodeGraph::from_text(GRAPH, ops()).unwrap_or_else(|status| panic!("{status}"))
}

fn check(feeds: &[&str], fetches: &[&str], targets: &[&str], expected: Expect) {
    let graph = graph();
    let result = RunSpec::resolve(&graph, feeds, fetches, targets).and_then(|spec| prune(&graph, &spec, ops()));
    match result {
        Ok(graph) => {
            graph.topological_order().unwrap();
            for (_, node) in graph.iter() {
                graph.check_inputs(node).unwrap();
            }
            expected.assert_eq(&graph.to_text());
        }
        Err(status) => expected.assert_eq(&status.to_string()),
    }
}

#[test]
fn keeps_what_the_fetch_needs_and_feeds_the_placeholder_also_along_control_edges() {
    check(
        &["x"],
        &["z:0"],
        &[],
        expect![[r#"
        _arg_x_0_0 = _Arg() {T=float, index=0}
        c = Const() {dtype=float, value=float[](2.0)}
        y = AddV2(_arg_x_0_0, c, ^_arg_x_0_0)
        init = NoOp(^_arg_x_0_0)
        z = Mul(y, c, ^init)
        _retval_z_0_0 = _Retval(z) {index=0}
    "#]],
    );
}

#[test]
fn a_fed_tensor_cuts_what_makes_it_but_not_its_other_outputs() {
    check(
        &["s:1"],
        &["t"],
        &[],
        expect![[r#"
        _arg_s_1_0 = _Arg() {T=float, index=0}
        x = Placeholder() {dtype=float}
        c = Const() {dtype=float, value=float[](2.0)}
        y = AddV2(x, c, ^x)
        init = NoOp(^x)
        z = Mul(y, c, ^init)
        axis = Const() {dtype=int32, value=int32[](0)}
        s = Split(axis, z) {num_split=2}
        t = AddN(s, _arg_s_1_0)
        _retval_t_0_0 = _Retval(t) {index=0}
    "#]],
    );
    check(
        &["s", "s:1"],
        &["t"],
        &[],
        expect![[r#"
        _arg_s_0_0 = _Arg() {T=float, index=0}
        _arg_s_1_1 = _Arg() {T=float, index=1}
        t = AddN(_arg_s_0_0, _arg_s_1_1)
        _retval_t_0_0 = _Retval(t) {index=0}
    "#]],
    );
}

#[test]
fn targets_run_without_being_fetched() {
    check(
        &["x:0"],
        &[],
        &["init", "init"],
        expect![[r#"
        _arg_x_0_0 = _Arg() {T=float, index=0}
        init = NoOp(^_arg_x_0_0)
    "#]],
    );
}

#[test]
fn a_tensor_may_be_fed_and_fetched_and_a_feed_may_be_idle() {
    check(
        &["x", "z"],
        &["z", "z:0"],
        &[],
        expect![[r#"
        _arg_z_0_1 = _Arg() {T=float, index=1}
        _retval_z_0_0 = _Retval(_arg_z_0_1) {index=0}
        _retval_z_0_1 = _Retval(_arg_z_0_1) {index=1}
    "#]],
    );
}

#[test]
fn feeds_have_to_fit_their_placeholders() {
    let text = "x = Placeholder() {dtype=float, shape=[?,2]}
old = Placeholder() {dtype=float, shape=[]}
y = Neg(x)";
    let graph = NodeGraph::from_text(text, ops()).unwrap_or_else(|status| panic!("{status}"));
    let spec = RunSpec::resolve(&graph, &["x:0", "old", "y"][..], &["y"], &[]).unwrap();
    let slots = spec.feed_slots(&graph).unwrap();
    let matrix = Shape::new(&[3, 2]).unwrap();
    slots[0].check(DType::Float, &matrix).unwrap();
    slots[1].check(DType::Float, &matrix).unwrap();
    slots[2].check(DType::Float, &Shape::vector(7)).unwrap();
    let wrong_type = slots[0].check(DType::Int32, &matrix).unwrap_err();
    assert_eq!(wrong_type.message(), "Tensor x:0 was fed a value of type int32, but it is of type float");
    let wrong_shape = slots[0].check(DType::Float, &Shape::vector(2)).unwrap_err();
    assert_eq!(wrong_shape.message(), "Cannot feed value of shape [2] for Tensor x:0, which has shape [?,2]");
}

#[test]
fn what_is_not_there_is_named() {
    check(&[], &["w:0"], &[], expect!["NOT_FOUND: FetchOutputs node w:0: not found"]);
    check(&["w:0"], &["z"], &[], expect!["NOT_FOUND: FeedInputs: unable to find feed output w:0"]);
    check(&["x:1"], &["z"], &[], expect!["INVALID_ARGUMENT: FeedInputs: x:1 should have output index < 1"]);
    check(&[], &["z:1"], &[], expect!["INVALID_ARGUMENT: FetchOutputs z:1: output index too large, must be < 1"]);
    check(
        &[],
        &["init"],
        &[],
        expect![
            "INVALID_ARGUMENT: Tried to fetch data for 'init', which produces no output.  To run to a node but not fetch any data, pass 'init' as an argument to the 'target_node_names' argument of the Session::Run API."
        ],
    );
    check(&[], &[], &["u", "w"], expect!["NOT_FOUND: PruneForTargets: Some target nodes not found: u w "]);
    check(&["x", "x:0"], &["z"], &[], expect![[r#"INVALID_ARGUMENT: Endpoint "x:0" fed more than once."#]]);
    check(&[], &[], &[], expect!["INVALID_ARGUMENT: Must specify at least one target to fetch or execute."]);
    check(
        &["v"],
        &["assign"],
        &[],
        expect![
            "INVALID_ARGUMENT: Input 0 of node assign was passed float from _arg_v_0_0:0 incompatible with expected float_ref."
        ],
    );
    check(&["x:y"], &["z"], &[], expect!["NOT_FOUND: FeedInputs: unable to find feed output x:y"]);
}
