//! What clients can make a server allocate: it is refused before it is there, and comes back to the byte when they are gone.

use bytes::Bytes;
use cluster::{MasterInterface, RemoteMaster, RunStepCall, Server, memory_state};
use flate2::Compression;
use flate2::write::GzEncoder;
use graph::{IntoAttr, NodeGraph};
use parking_lot::{Mutex, MutexGuard};
use proto::{ConfigProto, CreateSessionRequest, GraphDef, NodeDef, TensorProto, TensorShapeProto};
use std::io::Write;
use std::sync::Arc;
use tensor::{Code, DType, Result, Status, Tensor};
use tokio::runtime::Runtime;

const PROCESS_LIMIT: usize = 256 << 20;
const SESSION_LIMIT: usize = 64 << 20;

/// The process has one account, so that only one test at a time can say what it holds.
static ONE_BY_ONE: Mutex<()> = Mutex::new(());

struct Client {
    runtime: Runtime,
    server: Server,
    master: Arc<dyn MasterInterface>,
    _alone: MutexGuard<'static, ()>,
}

impl Client {
    fn start() -> Client {
        let _alone = ONE_BY_ONE.lock();
        tensor::set_memory_limit(PROCESS_LIMIT);
        tensor::set_session_memory_limit(SESSION_LIMIT);
        let runtime = Runtime::new().unwrap();
        let server = Server::create_local_server(ops::registry(), runtime.handle().clone()).unwrap();
        let master = Arc::new(RemoteMaster::new(server.address(), runtime.handle().clone()).unwrap());
        Client { runtime, server, master, _alone }
    }

    fn session(&self, graph_def: GraphDef) -> Result<String> {
        // Its resources end with it.
        let config = Some(ConfigProto { isolate_session_state: true, ..Default::default() });
        let request = CreateSessionRequest { graph_def: Some(graph_def), config, ..Default::default() };
        self.runtime.block_on(self.master.create_session(request)).map(|response| response.session_handle)
    }

    fn text_session(&self, text: &str) -> String {
        self.session(NodeGraph::from_text(text, ops::registry()).unwrap().to_graph_def()).unwrap()
    }

    fn run(&self, session: &str, feeds: &[(&str, Tensor)], target: &str) -> Result<()> {
        let call = RunStepCall {
            session_handle: session.to_owned(),
            feeds: feeds.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect(),
            targets: vec![target.to_owned()],
            ..Default::default()
        };
        self.runtime.block_on(self.master.run_step(call)).map(drop)
    }

    fn close(&self, session: String) {
        self.runtime.block_on(self.master.close_session(session)).unwrap();
    }

    /// Sends a compressed request; returns the status of the answer.
    fn call_compressed(&self, path: &str, message: &[u8]) -> (i32, String) {
        let mut gzip = GzEncoder::new(vec![1, 0, 0, 0, 0], Compression::fast());
        gzip.write_all(message).unwrap();
        let mut body = gzip.finish().unwrap();
        let len = (body.len() - 5) as u32;
        body[1..5].copy_from_slice(&len.to_be_bytes());
        let address = self.server.address().to_owned();
        self.runtime.block_on(async move {
            let stream = tokio::net::TcpStream::connect(&address).await.unwrap();
            let (client, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            let request = http::Request::post(format!("http://{address}{path}"))
                .header("content-type", "application/grpc")
                .header("grpc-encoding", "gzip")
                .body(())
                .unwrap();
            let (answer, mut stream) = client.ready().await.unwrap().send_request(request, false).unwrap();
            stream.send_data(Bytes::from(body), true).unwrap();
            let headers = answer.await.unwrap().into_parts().0.headers;
            let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            (text("grpc-status").unwrap().parse().unwrap(), text("grpc-message").unwrap_or_default())
        })
    }
}

fn used() -> usize {
    memory_state().process.used_bytes
}

#[track_caller]
fn check_refused(result: Result<()>, parts: &[&str]) -> Status {
    let status = result.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    for part in parts {
        assert!(status.message().contains(part), "{part}: {status}");
    }
    status
}

/// Returns the bytes of a `CreateSessionRequest` whose graph has so many nodes without anything.
fn empty_nodes(count: usize) -> Vec<u8> {
    let mut message = vec![1 << 3 | 2];
    prost::encoding::encode_varint(2 * count as u64, &mut message);
    message.extend([1 << 3 | 2, 0].repeat(count));
    message
}

#[test]
fn a_few_kilobytes_that_unfold_to_millions_of_nodes_are_refused() {
    const RESOURCE_EXHAUSTED: i32 = Code::ResourceExhausted as i32;
    let client = Client::start();
    let before = used();
    let (code, message) = client.call_compressed(proto::service::master::CREATE_SESSION, &empty_nodes(30_000_000));
    assert_eq!(code, RESOURCE_EXHAUSTED, "{message}");
    assert!(message.contains("nodes"), "{message}");
    // Few enough to count, but not to decode.
    let (code, message) = client.call_compressed(proto::service::master::CREATE_SESSION, &empty_nodes(1_000_000));
    assert_eq!(code, RESOURCE_EXHAUSTED, "{message}");
    assert!(message.contains("CreateSessionRequest of 2000004 bytes"), "{message}");
    // Little of everything unfolds to more than a message can have.
    let (code, message) = client.call_compressed(proto::service::master::CREATE_SESSION, &vec![0; 200 << 20]);
    assert_eq!(code, RESOURCE_EXHAUSTED, "{message}");
    assert_eq!(used(), before);
    let session = client.text_session("a = NoOp()");
    client.run(&session, &[], "a").unwrap();
}

#[test]
fn constants_and_fills_that_no_account_holds_are_refused_with_their_node() {
    let client = Client::start();
    let before = used();
    let constant = |dtype: DType, size: i64| {
        let dim = proto::tensor_shape_proto::Dim { size, ..Default::default() };
        let tensor_shape = Some(TensorShapeProto { dim: vec![dim], ..Default::default() });
        let mut value = TensorProto { dtype: dtype as i32, tensor_shape, ..Default::default() };
        match dtype {
            DType::Float => value.float_val = vec![1.0],
            _ => value.string_val = vec![Bytes::new()],
        }
        let attr = [("dtype".to_owned(), dtype.into_attr()), ("value".to_owned(), value.into_attr())].into();
        let node = NodeDef { name: "enormous".to_owned(), op: "Const".to_owned(), attr, ..Default::default() };
        GraphDef { node: vec![node], ..Default::default() }
    };
    for (dtype, size) in [(DType::Float, 1 << 40), (DType::String, 1 << 30)] {
        let outcome = client.session(constant(dtype, size)).and_then(|session| {
            let outcome = client.run(&session, &[], "enormous");
            client.close(session);
            outcome
        });
        check_refused(outcome, &["enormous", &size.to_string()]);
    }
    let session = client.text_session(
        "dims = Placeholder() {dtype=int64, shape=[1]}
         one = Const() {dtype=float, value=float[](1)}
         filled = Fill(dims, one) {index_type=int64}",
    );
    let dims = |count: i64| [("dims:0", Tensor::vector(&[count]))];
    let refused = client.run(&session, &dims(1 << 40), "filled");
    check_refused(refused, &["OOM when allocating tensor with shape[1099511627776] and type float", "{{node filled}}"]);
    let refused = client.run(&session, &dims(20 << 20), "filled");
    check_refused(refused, &["{{node filled}}", "session ", "of at most 67108864 bytes"]);
    client.run(&session, &dims(10 << 20), "filled").unwrap();
    client.close(session);
    assert_eq!(used(), before);
}

#[test]
fn a_queue_and_a_loop_grow_until_they_are_refused_and_leave_nothing() {
    let client = Client::start();
    let before = used();
    let queue = "
        x = Placeholder() {dtype=float, shape=[262144]}
        queue = FIFOQueueV2() {component_types=[float]}
        put = QueueEnqueueV2(queue, x)
        empty = NoOp()";
    let (full, other) = (client.text_session(queue), client.text_session(queue));
    let megabyte = Tensor::vector(&vec![1f32; 1 << 18]);
    let mut count = 0;
    let status = loop {
        match client.run(&full, &[("x:0", megabyte.clone())], "put") {
            Ok(()) => count += 1,
            Err(status) => break status,
        }
        assert!(count <= 64, "the queue holds more than its session may");
    };
    assert!(count >= 48, "only {count} fit");
    check_refused(Err(status), &["x", "[262144]", "of at most 67108864 bytes"]);
    // One session that is full does not keep another from working, nor itself from what takes nothing.
    client.run(&other, &[("x:0", megabyte.clone())], "put").unwrap();
    client.run(&full, &[], "empty").unwrap();
    let sessions = memory_state().sessions;
    assert!(sessions.iter().any(|session| session.used_bytes >= count << 20), "{sessions:?}");
    client.close(full);
    client.close(other);

    let growing = client.text_session(
        "zero = Const() {dtype=int32, value=int32[](0)}
         limit = Const() {dtype=int32, value=int32[](100000000)}
         dims = Const() {dtype=int32, value=int32[1](262144)}
         array = TensorArrayV3(zero) {dtype=float, dynamic_size=true}
         i = Enter(zero) {frame_name=\"grow\"}
         flow = Enter(array:1) {frame_name=\"grow\"}
         handle = Enter(array) {frame_name=\"grow\", is_constant=true}
         size = Enter(dims) {frame_name=\"grow\", is_constant=true}
         last = Enter(limit) {frame_name=\"grow\", is_constant=true}
         i_now = Merge(i, i_next)
         flow_now = Merge(flow, flow_next)
         less = Less(i_now, last)
         go_on = LoopCond(less)
         i_switch = Switch(i_now, go_on)
         flow_switch = Switch(flow_now, go_on)
         i_in = Identity(i_switch:1)
         one = Const(^i_in) {dtype=int32, value=int32[](1)}
         value = RandomUniform(size, ^i_in) {dtype=float}
         write = TensorArrayWriteV3(handle, i_in, value, flow_switch:1)
         plus = AddV2(i_in, one)
         i_next = NextIteration(plus)
         flow_next = NextIteration(write)
         done = Exit(flow_switch)",
    );
    check_refused(client.run(&growing, &[], "done"), &["{{node value}}", "of at most 67108864 bytes"]);
    client.close(growing);
    drop(megabyte);
    assert_eq!(used(), before);
}

#[test]
fn attributes_that_stand_for_millions_of_inputs_and_outputs_are_refused() {
    let client = Client::start();
    let before = used();
    let mut def = NodeGraph::from_text(
        "axis = Const() {dtype=int32, value=int32[](0)}
         value = Placeholder() {dtype=float, shape=[4]}",
        ops::registry(),
    )
    .unwrap()
    .to_graph_def();
    let million = (1i64 << 20).into_attr();
    let node = |name: String, op: &str, count: &str, input: &[&str]| NodeDef {
        name,
        op: op.to_owned(),
        input: input.iter().map(|&input| input.to_owned()).collect(),
        attr: [("T".to_owned(), DType::Float.into_attr()), (count.to_owned(), million.clone())].into(),
        ..Default::default()
    };
    def.node.extend((0..100).map(|index| node(format!("split_{index}"), "Split", "num_split", &["axis", "value"])));
    check_refused(client.session(def.clone()).map(drop), &["'split_6", "inputs and outputs"]);
    def.node.truncate(2);
    def.node.push(node("pack".to_owned(), "Pack", "N", &["value"]));
    let status = client.session(def).unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("'pack': op Pack takes 1048576 inputs, but 1 were given"), "{status}");
    assert_eq!(used(), before);
}
