//! Feeds and fetches in the graphs that cross the wire.
//!
//! Within a process, a feed is an `_Arg` node of its partition, and a fetch is a `_Retval` node; the attributes of the transfer from or
//! to the client determine their keys. In TensorFlow's protocol they are a `_Recv` and a `_Send`.

use proto::attr_value::Value;
use proto::{AttrValue, GraphDef, NodeDef};

/// Converts the arguments and results of an outgoing graph to receives and sends.
pub(super) fn with_transfers(mut def: GraphDef) -> GraphDef {
    for node in def.node.iter_mut().filter(|node| is_with_client(node)) {
        let is_feed = match node.op.as_str() {
            "_Arg" => true,
            "_Retval" => false,
            _ => continue,
        };
        node.attr.remove("index");
        node.attr.remove("_output_shapes");
        if is_feed && let Some(dtype) = node.attr.remove("T") {
            node.attr.insert("tensor_type".to_owned(), dtype);
        }
        node.op = if is_feed { "_Recv" } else { "_Send" }.to_owned();
    }
    def
}

/// Converts the receives from the client and the sends to it in an incoming graph to arguments and results, which the worker numbers.
pub(super) fn with_arguments(mut def: GraphDef) -> GraphDef {
    for node in def.node.iter_mut().filter(|node| is_with_client(node)) {
        let is_feed = match node.op.as_str() {
            "_Recv" | "_HostRecv" => true,
            "_Send" | "_HostSend" => false,
            _ => continue,
        };
        node.attr.insert("index".to_owned(), AttrValue { value: Some(Value::I(0)) });
        if is_feed && let Some(dtype) = node.attr.remove("tensor_type") {
            node.attr.insert("T".to_owned(), dtype);
        }
        node.op = if is_feed { "_Arg" } else { "_Retval" }.to_owned();
    }
    def
}

fn is_with_client(node: &NodeDef) -> bool {
    node.attr.get("client_terminated").is_some_and(|attr| attr.value == Some(Value::B(true)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::NodeGraph;

    const IN_A_PROCESS: &str = "\
x = _Arg() {T=float, index=3, client_terminated=true, recv_device=\"d\", send_device=\"d\", send_device_incarnation=1, tensor_name=\"x:0\"}
between = _Recv() {recv_device=\"d\", send_device=\"e\", send_device_incarnation=1, tensor_name=\"e\", tensor_type=float}
y = AddV2(x, between) {T=float}
out = _Retval(y) {T=float, index=2, client_terminated=true, recv_device=\"d\", send_device=\"d\", send_device_incarnation=1, tensor_name=\"y:0\"}
inner = _Arg() {T=float, index=0}
";

    #[test]
    fn only_what_the_client_feeds_and_fetches_changes_and_it_changes_back() {
        let graph = NodeGraph::from_text(IN_A_PROCESS, ops::registry()).unwrap_or_else(|status| panic!("{status}"));
        let def = with_transfers(graph.to_graph_def());
        let ops: Vec<&str> = def.node.iter().map(|node| node.op.as_str()).collect();
        assert_eq!(ops, ["_Recv", "_Recv", "AddV2", "_Send", "_Arg"]);
        let names = |node: &NodeDef| node.attr.keys().cloned().collect::<Vec<_>>().join(" ");
        let of_a_transfer = "client_terminated recv_device send_device send_device_incarnation tensor_name";
        assert_eq!(names(&def.node[0]), format!("{of_a_transfer} tensor_type"));
        assert_eq!(names(&def.node[3]), format!("T {of_a_transfer}"));
        NodeGraph::from_graph_def(&def, ops::registry()).unwrap();

        let def = with_arguments(def);
        let expected = IN_A_PROCESS.replace("index=3", "index=0").replace("index=2", "index=0");
        let expected = NodeGraph::from_text(&expected, ops::registry()).unwrap();
        assert_eq!(NodeGraph::from_graph_def(&def, ops::registry()).unwrap().to_text(), expected.to_text());
    }
}
