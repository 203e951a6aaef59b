//! What the nodes of a graph cost a server. The only test of its process, since the allocator counts what all of them take.

use cap::Cap;
use cluster::{RunStepCall, Server};
use graph::IntoAttr;
use proto::optimizer_options::Level;
use proto::{AttrValue, ConfigProto, CreateSessionRequest, GraphDef, GraphOptions, NodeDef, OptimizerOptions};
use std::alloc::System;
use tensor::{DType, Shape, Tensor, memory_state, tensor_to_proto};
use tokio::runtime::Runtime;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const NODES: usize = 100_000;

/// What a small node may cost all told.
const NODE_BYTES_MAX: usize = 2 << 10;

fn node(name: String, op: &str, input: Vec<String>, attrs: &[(&str, AttrValue)]) -> NodeDef {
    let attr = attrs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    NodeDef { name, op: op.to_owned(), input, attr, ..Default::default() }
}

/// A placeholder, and as many times as there is room for: a constant, a sum, its copy, and a node that waits for it.
fn graph_of_small_nodes() -> GraphDef {
    let float = ("T", DType::Float.into_attr());
    let value = tensor_to_proto(&Tensor::scalar(1f32)).unwrap();
    let shape = ("shape", Shape::scalar().into_attr());
    let mut nodes =
        vec![node("model/in".to_owned(), "Placeholder", vec![], &[("dtype", DType::Float.into_attr()), shape])];
    let mut last = "model/in".to_owned();
    for index in 0..NODES / 4 {
        let name = |part: &str| format!("model/layer_{index}/{part}");
        let constant = [("dtype", DType::Float.into_attr()), ("value", value.clone().into_attr())];
        nodes.push(node(name("const"), "Const", vec![], &constant));
        nodes.push(node(name("add"), "AddV2", vec![last, name("const")], std::slice::from_ref(&float)));
        nodes.push(node(name("copy"), "Identity", vec![name("add")], std::slice::from_ref(&float)));
        nodes.push(node(name("done"), "NoOp", vec![format!("^{}", name("copy"))], &[]));
        last = name("copy");
    }
    let done = (0..NODES / 4).map(|index| format!("^model/layer_{index}/done")).collect();
    nodes.push(node("all".to_owned(), "NoOp", done, &[]));
    GraphDef { node: nodes, ..Default::default() }
}

#[test]
fn a_small_node_costs_a_server_two_kilobytes_at_most() {
    let runtime = Runtime::new().unwrap();
    let server = Server::create_local_server(ops::registry(), runtime.handle().clone()).unwrap();
    let master = server.master();
    // As it is, so that every node is there in the end.
    let off = OptimizerOptions { opt_level: Level::L0 as i32, ..Default::default() };
    let graph_options = Some(GraphOptions { optimizer_options: Some(off), ..Default::default() });
    let config = Some(ConfigProto { graph_options, ..Default::default() });
    let before = ALLOCATOR.allocated();
    let charged_before = memory_state().process.used_bytes;
    let check = |when: &str| {
        let per_node = ALLOCATOR.allocated().saturating_sub(before) / NODES;
        println!("{when}: {per_node} bytes a node");
        assert!(per_node <= NODE_BYTES_MAX, "{when}, a node costs {per_node} bytes");
        per_node * NODES
    };
    let request = CreateSessionRequest { graph_def: Some(graph_of_small_nodes()), config, ..Default::default() };
    let session_handle = runtime.block_on(master.create_session(request)).unwrap().session_handle;
    check("after the session is created");
    let call = RunStepCall {
        session_handle: session_handle.clone(),
        feeds: vec![("model/in:0".to_owned(), Tensor::scalar(0f32))],
        fetches: vec![format!("model/layer_{}/copy:0", NODES / 4 - 1)],
        targets: vec!["all".to_owned()],
        ..Default::default()
    };
    let reply = runtime.block_on(master.run_step(call)).unwrap();
    assert_eq!(reply.tensors[0].1.to_scalar::<f32>().unwrap(), (NODES / 4) as f32);
    drop(reply);
    let held = check("after the first step");
    let charged = memory_state().process.used_bytes - charged_before;
    assert!(charged >= held / 2 && charged <= held * 2, "{charged} bytes are charged for {held}");
    runtime.block_on(master.close_session(session_handle)).unwrap();
    assert_eq!(memory_state().process.used_bytes, charged_before);
    let left = ALLOCATOR.allocated().saturating_sub(before);
    assert!(left < NODES * 16, "{left} bytes are left of a session that is over");
}
