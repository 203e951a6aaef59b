//! Graphs that are no graphs, and tensors that are no tensors: each is refused with TensorFlow's code and a message that
//! says what and where; random damage to good ones never ends the process.

use ferroflow::session::ClientSession;
use ferroflow::session::{RunOptions, SessionBackend};
use ferroflow::{Code, DType, Graph, Tensor, ops};
use graph::NodeGraph;
use proptest::prelude::*;
use prost::Message;
use proto::attr_value::Value;
use proto::tensor_shape_proto::Dim;
use proto::{AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NodeDef, TensorProto, TensorShapeProto};
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
    node(name, "Const", &[], &[("dtype", Value::Type(tensor.dtype)), ("value", Value::Tensor(tensor.into()))])
}

fn scalar(name: &str) -> NodeDef {
    constant(name, TensorProto { dtype: proto::DataType::DtFloat as i32, float_val: vec![1.5], ..Default::default() })
}

fn new_session() -> ClientSession {
    ClientSession::local(ops::registry(), proto::ConfigProto::default()).unwrap()
}

/// Imports a graph and, if that works, runs it.
fn outcome(def: &GraphDef, fetch: &str) -> tensor::Result<Vec<Tensor>> {
    let session = new_session();
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
    check(
        vec![scalar("x"), node("a", "Neg", &["x:3"], &[("T", float())])],
        "a:0",
        Code::InvalidArgument,
        &["Node 'a'", "invalid output 3 of source node x"],
    );
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

/// A function of one number that does nothing but run `node`, of which `output` is the result.
fn function(name: &str, node: NodeDef, output: &str) -> FunctionDef {
    let arg = |name: &str| proto::op_def::ArgDef {
        name: name.to_owned(),
        r#type: proto::DataType::DtFloat as i32,
        ..Default::default()
    };
    let signature = proto::OpDef {
        name: name.to_owned(),
        input_arg: vec![arg("a")],
        output_arg: vec![arg("r")],
        ..Default::default()
    };
    let ret = [("r".to_owned(), format!("{}:{output}:0", node.name))].into();
    FunctionDef { signature: Some(signature), node_def: vec![node], ret, ..Default::default() }
}

#[test]
fn a_function_that_calls_itself() {
    let func = |name: &str| Value::Func(proto::NameAttrList { name: name.to_owned(), ..Default::default() }.into());
    let types = || Value::List(proto::attr_value::ListValue { r#type: vec![1], ..Default::default() }.into());
    let call = |name: &str, op: &str, input: &str, callee: &str| {
        let attrs = [("Tin", types()), ("Tout", types()), ("f", func(callee))];
        node(name, op, &[input], if op == callee { &[] } else { &attrs })
    };
    let direct = function("direct", call("again", "direct", "a", "direct"), "r");
    let indirect = function("indirect", call("again", "StatefulPartitionedCall", "a", "other"), "output");
    let other = function("other", call("back", "PartitionedCall", "a", "indirect"), "output");
    let library = Some(FunctionDefLibrary { function: vec![direct, indirect, other], ..Default::default() });
    let gradient =
        [("Tin", Value::List(proto::attr_value::ListValue { r#type: vec![1, 1], ..Default::default() }.into()))];
    let gradient_of = |callee: &str| [gradient[0].clone(), ("Tout", types()), ("f", func(callee))];
    for (y, names) in [
        (call("y", "direct", "x", "direct"), &["'direct'", "again"][..]),
        (call("y", "PartitionedCall", "x", "direct"), &["'direct'", "again"]),
        (call("y", "PartitionedCall", "x", "indirect"), &["does it call itself without end?"]),
        (node("y", "SymbolicGradient", &["x", "x"], &gradient_of("direct")), &["call itself"]),
    ] {
        let def = GraphDef { node: vec![scalar("x"), y], library: library.clone(), ..Default::default() };
        check_def(&def, "y:0", Code::FailedPrecondition, names);
    }
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

/// Ops of random graphs: what passes on, what makes frames and dead values, what calls functions, what nobody knows.
const OPS: [&str; 16] = [
    "NoOp",
    "Const",
    "Placeholder",
    "Neg",
    "Add",
    "AddN",
    "Identity",
    "Switch",
    "Merge",
    "Enter",
    "Exit",
    "NextIteration",
    "LoopCond",
    "PartitionedCall",
    "f",
    "Nonsense",
];

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
            let runs = RunOptions::new().timeout(std::time::Duration::from_millis(100));
            let session = new_session();
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
        let _ = NodeGraph::from_graph_def(&def, ops::registry());
        let session = new_session();
        let _ = session.extend(&def);
    }

    #[test]
    fn random_graphs_are_refused_or_run(
        nodes in prop::collection::vec((0usize..OPS.len(), prop::collection::vec((0usize..8, 0u32..3, any::<bool>()), 0..4)), 1..8),
        dtype in 0i32..25,
        number in any::<i64>(),
        fetch in any::<prop::sample::Index>(),
    ) {
        let input = |&(node, port, is_control): &(usize, u32, bool)| match (is_control, port) {
            (true, _) => format!("^n{node}"),
            (false, 0) => format!("n{node}"),
            (false, port) => format!("n{node}:{port}"),
        };
        let values = [
            Value::Type(dtype),
            Value::I(number),
            Value::S(b"frame"[..].to_owned().into()),
            Value::Shape(shape(&[number]).unwrap_or_default()),
            Value::Func(proto::NameAttrList { name: "f".to_owned(), ..Default::default() }.into()),
        ];
        let build = |(index, (op, inputs)): (usize, &(usize, Vec<(usize, u32, bool)>))| NodeDef {
            name: format!("n{index}"),
            op: OPS[*op].to_owned(),
            input: inputs.iter().map(input).collect(),
            attr: ["T", "N", "frame_name", "shape", "f"].into_iter().map(str::to_owned).zip(values.iter().cloned().map(attr)).collect(),
            ..Default::default()
        };
        let node: Vec<NodeDef> = nodes.iter().enumerate().map(build).collect();
        // The same nodes are the body of a function, which some of them call.
        let function = FunctionDef {
            signature: Some(proto::OpDef { name: "f".to_owned(), ..Default::default() }),
            node_def: node.clone(),
            ..Default::default()
        };
        let library = Some(FunctionDefLibrary { function: vec![function], ..Default::default() });
        let fetch = format!("n{}:0", fetch.index(node.len()));
        let def = GraphDef { node, library, ..Default::default() };
        let session = new_session();
        if session.extend(&def).is_ok() {
            let runs = RunOptions::new().timeout(std::time::Duration::from_millis(100));
            let outcome = session.run(&runs, &[], &[&fetch], &[]);
            prop_assert!(!outcome.is_err_and(|status| status.code() == Code::Internal), "{def:?}");
        }
    }

    #[test]
    fn mutated_tensors_are_refused_or_read(
        number in 1i32..26,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        inline in any::<bool>(),
    ) {
        let Ok(dtype) = DType::from_i32(number) else { return Ok(()) };
        let Ok(tensor) = Tensor::zeros(dtype, tensor::Shape::new(&[2, 3]).unwrap()) else { return Ok(()) };
        let proto = if inline { tensor::tensor_to_proto_inline(&tensor) } else { tensor::tensor_to_proto(&tensor) };
        let mut bytes = proto.unwrap().encode_to_vec();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(proto) = TensorProto::decode(bytes.as_slice())
            && let Ok(tensor) = tensor::tensor_from_proto(&proto)
        {
            // What was read is a whole tensor: it can be written and read again.
            let again = tensor::tensor_from_proto(&tensor::tensor_to_proto(&tensor).unwrap()).unwrap();
            prop_assert_eq!(again.shape(), tensor.shape());
        }
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
