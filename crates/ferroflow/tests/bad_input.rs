//! Graphs that are no graphs, and tensors that are no tensors: each is refused with TensorFlow's code and a message that
//! says what and where; random damage to good ones never ends the process.

use ferroflow::session::DirectSession;
use ferroflow::session::{RunOptions, SessionBackend};
use ferroflow::{Code, DType, Graph, Tensor, ops};
use graph::Graph as RawGraph;
use proptest::prelude::*;
use prost::Message;
use proto::attr_value::Value;
use proto::tensor_shape_proto::Dim;
use proto::{AttrValue, GraphDef, NodeDef, TensorProto, TensorShapeProto};
use std::sync::Arc;

fn attr(value: Value) -> AttrValue {
    AttrValue { value: Some(value) }
}

fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, Value)]) -> NodeDef {
    NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input: inputs.iter().map(|input| (*input).to_owned()).collect(),
        attr: attrs.iter().map(|(name, value)| ((*name).to_owned(), attr(value.clone()))).collect(),
        ..Default::default()
    }
}

fn float() -> Value {
    Value::Type(proto::DataType::DtFloat as i32)
}

fn constant(name: &str, tensor: TensorProto) -> NodeDef {
    node(name, "Const", &[], &[("dtype", Value::Type(tensor.dtype)), ("value", Value::Tensor(tensor))])
}

fn scalar(name: &str) -> NodeDef {
    constant(name, TensorProto { dtype: proto::DataType::DtFloat as i32, float_val: vec![1.5], ..Default::default() })
}

/// Imports a graph and, if that works, runs it.
fn outcome(def: &GraphDef, fetch: &str) -> tensor::Result<Vec<Tensor>> {
    let session = DirectSession::new(ops::registry());
    session.extend(def)?;
    session.run(&RunOptions::default(), &[], &[fetch], &[]).map(|(values, _)| values)
}

#[track_caller]
fn check(nodes: Vec<NodeDef>, fetch: &str, code: Code, words: &[&str]) {
    check_def(&GraphDef { node: nodes, ..Default::default() }, fetch, code, words);
}

#[track_caller]
fn check_def(def: &GraphDef, fetch: &str, code: Code, words: &[&str]) {
    let status = outcome(def, fetch).unwrap_err();
    assert_eq!(status.code(), code, "{status}");
    for word in words {
        assert!(status.message().contains(word), "'{word}' is not in: {status}");
    }
}

#[test]
fn a_cycle_that_is_no_loop() {
    let nodes = vec![node("a", "Neg", &["b"], &[("T", float())]), node("b", "Neg", &["a"], &[("T", float())])];
    check(nodes, "a:0", Code::InvalidArgument, &["cycle"]);
}

#[test]
fn a_node_that_is_not_there() {
    check(vec![node("a", "Neg", &["absent"], &[("T", float())])], "a:0", Code::InvalidArgument, &["absent", "a"]);
    check(vec![scalar("x"), node("a", "Neg", &["x:3"], &[("T", float())])], "a:0", Code::InvalidArgument, &["a"]);
    check(vec![node("a", "NoOp", &["^absent"], &[])], "a:0", Code::InvalidArgument, &["absent"]);
}

#[test]
fn a_type_that_does_not_fit() {
    let int = Value::Type(proto::DataType::DtInt32 as i32);
    check(vec![scalar("x"), node("a", "Neg", &["x"], &[("T", int)])], "a:0", Code::InvalidArgument, &["a"]);
    let string = Value::Type(proto::DataType::DtString as i32);
    check(vec![node("a", "Neg", &["a"], &[("T", string)])], "a:0", Code::InvalidArgument, &["a"]);
}

#[test]
fn an_op_that_nobody_knows() {
    check(vec![node("strange", "Nonsense", &[], &[])], "strange:0", Code::NotFound, &["Nonsense", "strange"]);
}

#[test]
fn an_attribute_that_is_missing_or_of_another_kind() {
    check(vec![node("x", "Placeholder", &[], &[])], "x:0", Code::InvalidArgument, &["dtype", "x"]);
    check(vec![node("x", "Placeholder", &[], &[("dtype", Value::I(3))])], "x:0", Code::InvalidArgument, &["dtype"]);
}

#[test]
fn a_name_that_occurs_twice() {
    check(vec![scalar("x"), scalar("x")], "x:0", Code::InvalidArgument, &["x"]);
    check(vec![scalar("")], "x:0", Code::InvalidArgument, &[]);
    check(vec![scalar("no spaces")], "x:0", Code::InvalidArgument, &["no spaces"]);
}

fn shape(dims: &[i64]) -> Option<TensorShapeProto> {
    let dim = dims.iter().map(|&size| Dim { size, ..Default::default() }).collect();
    Some(TensorShapeProto { dim, ..Default::default() })
}

#[test]
fn tensors_that_are_none() {
    let float = proto::DataType::DtFloat as i32;
    let cases = [
        TensorProto {
            dtype: float,
            tensor_shape: shape(&[3]),
            tensor_content: vec![0; 8].into(),
            ..Default::default()
        },
        TensorProto { dtype: float, tensor_shape: shape(&[-2]), float_val: vec![1.0], ..Default::default() },
        TensorProto { dtype: float, tensor_shape: shape(&[1 << 40, 1 << 40]), ..Default::default() },
        TensorProto { dtype: 0, tensor_shape: shape(&[1]), ..Default::default() },
        TensorProto { dtype: 9999, tensor_shape: shape(&[1]), ..Default::default() },
        TensorProto { dtype: float + 100, tensor_shape: shape(&[1]), float_val: vec![1.0], ..Default::default() },
    ];
    for tensor in cases {
        let mut def = constant("broken", tensor.clone());
        def.attr.insert("dtype".to_owned(), attr(Value::Type(float)));
        let def = GraphDef { node: vec![def], ..Default::default() };
        let status = outcome(&def, "broken:0").unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{tensor:?}: {status}");
        let status = tensor::tensor_from_proto(&tensor).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{tensor:?}: {status}");
    }
}

/// A graph with a bit of everything: constants, a conditional, a loop, a variable.
fn good_graph() -> GraphDef {
    let g = Graph::new();
    let x = ops::array::placeholder(&g, DType::Float, &ferroflow::PartialShape::from_dims(&[2]));
    let three = g.constant_tensor(&Tensor::scalar(3i32));
    let looped = g.while_loop(
        &[g.constant_tensor(&Tensor::scalar(0i32)), &x * 2.0],
        |g, vars| g.op("Less").input(&vars[0]).input(&three).output(),
        |_, vars| vec![&vars[0] + 1, &vars[1] * &x],
    );
    let yes = g.constant_tensor(&Tensor::scalar(true));
    g.cond(&yes, |_| vec![&looped[1] + 1.0], |_| vec![&x - 1.0]);
    g.op("VariableV2").attr("dtype", DType::Float).attr("shape", ferroflow::PartialShape::from_dims(&[2])).build();
    g.to_graph_def()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_graphs_are_refused_or_run(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        fetch in any::<prop::sample::Index>(),
    ) {
        let good = good_graph();
        let mut bytes = good.encode_to_vec();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(def) = GraphDef::decode(bytes.as_slice()) {
            let name = good.node[fetch.index(good.node.len())].name.clone();
            let runs = RunOptions { timeout: Some(std::time::Duration::from_millis(100)), ..RunOptions::default() };
            let session = DirectSession::new(ops::registry());
            if session.extend(&def).is_ok() {
                let feed = Tensor::vector(&[1f32, 2.0]);
                // Any outcome is fine, also that a loop without end is stopped; that there is one is the point.
                let _ = session.run(&runs, &[("Placeholder:0", feed)], &[&format!("{name}:0")], &[]);
            }
        }
    }

    #[test]
    fn mutated_nodes_are_refused_or_imported(
        mutations in prop::collection::vec((any::<prop::sample::Index>(), 0usize..6, any::<prop::sample::Index>()), 1..5),
    ) {
        let mut def = good_graph();
        for (which, kind, other) in mutations {
            let count = def.node.len();
            let other_node = def.node[other.index(count)].clone();
            let node = &mut def.node[which.index(count)];
            match kind {
                0 => node.op = other_node.op,
                1 => node.name = other_node.name,
                2 => node.input.push(other_node.name),
                3 => drop(node.input.pop()),
                4 => node.attr = other_node.attr,
                _ => node.attr.clear(),
            }
        }
        let _ = RawGraph::from_graph_def(&def, ops::registry());
        let session = DirectSession::new(ops::registry());
        let _ = session.extend(&def);
    }

    #[test]
    fn random_tensors_are_refused_or_read(
        dtype in -1i32..150,
        dims in prop::collection::vec(prop_oneof![-2i64..5, Just(i64::MAX), Just(1 << 62)], 0..4),
        content in prop::collection::vec(any::<u8>(), 0..40),
        floats in prop::collection::vec(any::<f32>(), 0..4),
        ints in prop::collection::vec(any::<i32>(), 0..4),
    ) {
        let proto = TensorProto {
            dtype,
            tensor_shape: shape(&dims),
            tensor_content: content.into(),
            float_val: floats,
            int_val: ints,
            ..Default::default()
        };
        if let Ok(tensor) = tensor::tensor_from_proto(&proto) {
            prop_assert_eq!(tensor.shape().dims(), dims.as_slice());
        }
        let def = Arc::new(GraphDef { node: vec![constant("x", proto)], ..Default::default() });
        let _ = outcome(&def, "x:0");
    }
}
