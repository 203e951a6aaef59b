//! Tasks that are missing, that stop, and that come back, and requests that make no sense.

#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use cluster::{RemoteMaster, Server, ServerConfig, Transport};
use common::{Kind, TestCluster, Watchdog, free_ports, graph_def, spec};
use graph::IntoAttr;
use proto::{ConfigProto, CreateSessionRequest};
use std::sync::Arc;
use tensor::{Code, DType, Tensor};
use tokio::runtime::Runtime;

const GRAPH: &str = r#"
    x = Placeholder() {dtype=float} @/job:worker/task:0
    v = VariableV2() {dtype=float, shape=[]} @/job:ps/task:0
    init = Assign(v, x) @/job:ps/task:0
    sum = AddV2(v, x) @/job:worker/task:0
    queue = FIFOQueueV2() {component_types=[float], shared_name="queue"} @/job:ps/task:0
    take = QueueDequeueV2(queue) {component_types=[float]} @/job:ps/task:0
    taken = Neg(take) @/job:worker/task:0
    alone = Neg(x) @/job:worker/task:0
"#;

fn start(runtime: &Runtime, ports: [u16; 3], job: &str, index: u32) -> Server {
    start_with(Transport::Auto, runtime, ports, job, index)
}

fn start_with(transport: Transport, runtime: &Runtime, ports: [u16; 3], job: &str, index: u32) -> Server {
    let config = ServerConfig { transport, ..ServerConfig::new(spec(ports), job, index).unwrap() };
    Server::start(config, ops::registry(), runtime.handle().clone()).unwrap()
}

fn client(runtime: &Runtime, server: &Server) -> Arc<RemoteMaster> {
    Arc::new(RemoteMaster::new(server.address(), runtime.handle().clone()).unwrap())
}

#[test]
fn a_task_that_nobody_needs_is_not_waited_for() {
    let _watchdog = Watchdog::start();
    let runtime = Runtime::new().unwrap();
    let worker = start(&runtime, free_ports(), "worker", 0);
    let master = client(&runtime, &worker);
    runtime.block_on(async {
        use cluster::MasterInterface;
        let alone = graph_def("a = Const() {dtype=float, value=float[](3)} @/job:worker/task:0");
        let request = CreateSessionRequest { graph_def: Some(alone), ..Default::default() };
        let handle = master.create_session(request).await.unwrap().session_handle;
        let call =
            cluster::RunStepCall { session_handle: handle, fetches: vec!["a:0".to_owned()], ..Default::default() };
        assert_eq!(master.run_step(call).await.unwrap().tensors[0].1.to_scalar::<f32>().unwrap(), 3.0);
    });
}

#[test]
fn a_task_that_is_needed_is_waited_for_until_the_time_is_over() {
    let _watchdog = Watchdog::start();
    let runtime = Runtime::new().unwrap();
    let ports = free_ports();
    let worker = start(&runtime, ports, "worker", 0);
    let master = client(&runtime, &worker);
    use cluster::MasterInterface;
    let request = |operation_timeout_in_ms: i64| CreateSessionRequest {
        graph_def: Some(graph_def(GRAPH)),
        config: Some(ConfigProto { operation_timeout_in_ms, ..Default::default() }),
        ..Default::default()
    };
    let status = runtime.block_on(master.create_session(request(200))).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(status.message().contains("/job:ps/replica:0/task:0 at 127.0.0.1"), "{status}");
    // Without a limit the session is there as soon as the task is.
    let waiting = runtime.spawn(master.create_session(request(0)));
    let _ps = start(&runtime, ports, "ps", 0);
    runtime.block_on(waiting).unwrap().unwrap();
}

#[test]
fn a_ps_that_stops_ends_the_steps_that_use_it_and_one_that_comes_back_is_another() {
    for transport in [Transport::Grpc, Transport::Tcp, Transport::Unix, Transport::SharedMemory] {
        check_that_a_ps_may_stop_and_come_back(transport);
    }
}

fn check_that_a_ps_may_stop_and_come_back(transport: Transport) {
    let _watchdog = Watchdog::start();
    let runtime = Runtime::new().unwrap();
    let ports = free_ports();
    let worker = start_with(transport, &runtime, ports, "worker", 0);
    let ps = start_with(transport, &runtime, ports, "ps", 0);
    let master = client(&runtime, &worker);
    use cluster::MasterInterface;
    let open = || {
        let request = CreateSessionRequest { graph_def: Some(graph_def(GRAPH)), ..Default::default() };
        runtime.block_on(master.create_session(request)).unwrap().session_handle
    };
    let handle = open();
    let run = |handle: &str, feeds: &[(&str, f32)], fetches: &[&str], targets: &[&str]| {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let call = cluster::RunStepCall {
            session_handle: handle.to_owned(),
            feeds: feeds.iter().map(|(name, value)| ((*name).to_owned(), Tensor::scalar(*value))).collect(),
            fetches: own(fetches),
            targets: own(targets),
            ..Default::default()
        };
        master.run_step(call)
    };
    runtime.block_on(run(&handle, &[("x:0", 1.0)], &[], &["init"])).unwrap();
    let waiting = runtime.spawn(run(&handle, &[], &["taken:0"], &[]));
    runtime.block_on(ps.stop());
    let status = runtime.block_on(waiting).unwrap().unwrap_err();
    assert!(matches!(status.code(), Code::Unavailable | Code::Cancelled), "{status}");
    drop(ps);
    let status = runtime.block_on(run(&handle, &[("x:0", 1.0)], &["sum:0"], &[])).unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("/job:ps/replica:0/task:0"), "{status}");
    // What doesn't need the ps goes on.
    runtime.block_on(run(&handle, &[("x:0", 1.0)], &["alone:0"], &[])).unwrap();
    let _ps = start_with(transport, &runtime, ports, "ps", 0);
    let status = runtime.block_on(run(&handle, &[("x:0", 1.0)], &["sum:0"], &[])).unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status}");
    let handle = open();
    runtime.block_on(run(&handle, &[("x:0", 1.0)], &[], &["init"])).unwrap();
    assert_eq!(
        runtime.block_on(run(&handle, &[("x:0", 1.0)], &["sum:0"], &[])).unwrap().tensors[0].1.to_scalar::<f32>(),
        Ok(2.0)
    );
}

#[test]
fn a_stopped_server_frees_its_port_and_says_that_it_has_stopped() {
    let _watchdog = Watchdog::start();
    let runtime = Runtime::new().unwrap();
    let ports = free_ports();
    let server = start(&runtime, ports, "worker", 0);
    let config = ServerConfig::new(spec(ports), "worker", 0).unwrap();
    let taken = Server::start(config, ops::registry(), runtime.handle().clone());
    assert!(taken.err().unwrap().message().contains("is in use"));
    runtime.block_on(async {
        server.stop().await;
        server.join().await;
    });
    start(&runtime, ports, "worker", 0);
}

#[test]
fn several_devices_of_one_task_exchange_tensors() {
    let _watchdog = Watchdog::start();
    let runtime = Runtime::new().unwrap();
    let mut config = ServerConfig::local(0).unwrap();
    config.set_device_count(3).unwrap();
    let server = Server::start(config, ops::registry(), runtime.handle().clone()).unwrap();
    let master = client(&runtime, &server);
    use cluster::MasterInterface;
    let text = r#"
        x = Placeholder() {dtype=float} @/device:CPU:0
        a = Neg(x) @/device:CPU:1
        b = Mul(a, x) @/device:CPU:2
        c = AddV2(b, a) @/device:CPU:0
    "#;
    runtime.block_on(async {
        let request = CreateSessionRequest { graph_def: Some(graph_def(text)), ..Default::default() };
        let session_handle = master.create_session(request).await.unwrap().session_handle;
        let call = cluster::RunStepCall {
            session_handle,
            feeds: vec![("x:0".to_owned(), Tensor::scalar(3f32))],
            fetches: vec!["c:0".to_owned(), "a:0".to_owned()],
            ..Default::default()
        };
        let reply = master.run_step(call).await.unwrap();
        assert_eq!(reply.tensors[0].1.to_scalar::<f32>().unwrap(), -12.0);
        assert_eq!(reply.tensors[1].1.to_scalar::<f32>().unwrap(), -3.0);
    });
}

#[test]
fn a_session_can_bring_its_own_cluster() {
    let _watchdog = Watchdog::start();
    let runtime = Runtime::new().unwrap();
    // Each is a cluster of one; only the session knows them as tasks of one cluster.
    let servers: Vec<Server> = (0..3)
        .map(|_| Server::start(ServerConfig::local(0).unwrap(), ops::registry(), runtime.handle().clone()).unwrap())
        .collect();
    let addresses: Vec<&str> = servers.iter().map(Server::address).collect();
    let cluster = cluster::ClusterSpec::new().with_job("ps", &addresses[..1]).unwrap();
    let cluster = cluster.with_job("worker", &addresses[1..]).unwrap();
    let master = client(&runtime, &servers[1]);
    use cluster::MasterInterface;
    let request = |target: &str| CreateSessionRequest {
        graph_def: Some(graph_def(GRAPH)),
        config: Some(ConfigProto { cluster_def: Some(cluster.to_proto()), ..Default::default() }),
        target: format!("grpc://{target}"),
    };
    runtime.block_on(async {
        let session_handle = master.create_session(request(addresses[1])).await.unwrap().session_handle;
        let call = |fetches: &[&str], targets: &[&str]| cluster::RunStepCall {
            session_handle: session_handle.clone(),
            feeds: vec![("x:0".to_owned(), Tensor::scalar(3f32))],
            fetches: fetches.iter().map(|&name| name.to_owned()).collect(),
            targets: targets.iter().map(|&name| name.to_owned()).collect(),
            ..Default::default()
        };
        master.run_step(call(&[], &["init"])).await.unwrap();
        let reply = master.run_step(call(&["sum:0"], &[])).await.unwrap();
        assert_eq!(reply.tensors[0].1.to_scalar::<f32>().unwrap(), 6.0);
        let devices = master.list_devices(session_handle).await.unwrap().local_device;
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names[0], "/job:ps/replica:0/task:0/device:CPU:0");
        assert_eq!(names.len(), 3);
    });
}

#[test]
fn a_graph_with_unknown_ops_lists_all_of_them() {
    let cluster = TestCluster::start(Kind::Grpc);
    let mut def = graph_def("a = Const() {dtype=float, value=float[](3)}\n b = Neg(a)\n c = Neg(b)");
    def.node[1].op = "NoSuchOp".to_owned();
    def.node[2].op = "NorThis".to_owned();
    let request = CreateSessionRequest { graph_def: Some(def), ..Default::default() };
    let status = cluster.runtime.block_on(cluster.master("worker", 0).create_session(request)).unwrap_err();
    assert!(status.message().contains("'NoSuchOp' (node b)") && status.message().contains("'NorThis' (node c)"));
}

/// A function that calls another one, or itself, by its name.
fn calling(name: &str, callee: &str) -> proto::FunctionDef {
    let arg = |name: &str| proto::op_def::ArgDef {
        name: name.to_owned(),
        r#type: proto::DataType::DtFloat as i32,
        ..Default::default()
    };
    let signature = proto::OpDef {
        name: name.to_owned(),
        input_arg: vec![arg("x")],
        output_arg: vec![arg("y")],
        ..Default::default()
    };
    let call = proto::NodeDef {
        name: "call".to_owned(),
        op: callee.to_owned(),
        input: vec!["x".to_owned()],
        attr: match callee {
            "Neg" => [("T".to_owned(), DType::Float.into_attr())].into(),
            _ => Default::default(),
        },
        ..Default::default()
    };
    proto::FunctionDef {
        signature: Some(signature),
        node_def: vec![call],
        ret: [("y".to_owned(), "call:y:0".to_owned())].into(),
        ..Default::default()
    }
}

#[test]
fn functions_are_called_by_name_and_one_that_calls_itself_without_end_is_an_error() {
    for kind in [Kind::Embedded, Kind::Grpc] {
        let cluster = TestCluster::start(kind);
        let mut def = graph_def(
            "x = Placeholder() {dtype=float} @/job:ps/task:0\n a = Neg(x) @/job:worker/task:1\n b = Neg(x) @/job:worker/task:1",
        );
        def.library = Some(proto::FunctionDefLibrary {
            function: vec![calling("outer", "negative"), calling("negative", "Neg"), calling("endless", "endless")],
            ..Default::default()
        });
        for (node, op) in [(1, "outer"), (2, "endless")] {
            def.node[node].op = op.to_owned();
            def.node[node].attr.clear();
        }
        let master = cluster.master("worker", 0);
        let request = CreateSessionRequest { graph_def: Some(def), ..Default::default() };
        let session_handle = cluster.runtime.block_on(master.create_session(request)).unwrap().session_handle;
        let run = |fetch: &str| {
            let call = cluster::RunStepCall {
                session_handle: session_handle.clone(),
                feeds: vec![("x:0".to_owned(), Tensor::scalar(3f32))],
                fetches: vec![fetch.to_owned()],
                ..Default::default()
            };
            cluster.runtime.block_on(master.run_step(call)).map(|reply| reply.tensors[0].1.to_scalar::<f32>().unwrap())
        };
        assert_eq!(run("a:0").unwrap(), -3.0);
        for _ in 0..3 {
            let status = run("b:0").unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
            assert!(status.message().contains("'endless'"), "{status}");
        }
        assert_eq!(run("a:0").unwrap(), -3.0);
    }
}

#[test]
fn requests_that_make_no_sense_get_errors() {
    let cluster = TestCluster::start(Kind::Grpc);
    let session = cluster.session(GRAPH);
    let bad_config = ConfigProto { device_filters: vec!["/no:such".to_owned()], ..Default::default() };
    assert!(cluster.session_with(GRAPH, bad_config).is_err());
    let mut call = session.call(&[], &["sum:0"], &[]);
    call.partial_run_handle = "99".to_owned();
    assert_eq!(session.make(call).unwrap_err().code(), Code::InvalidArgument);
    // A feed of the wrong type is refused where it is used.
    assert!(session.run(&[("x:0", Tensor::scalar(1i32))], &["alone:0"]).is_err());
    assert_eq!(session.float(&[("x:0", Tensor::scalar(1f32))], "alone:0").unwrap(), -1.0);
}
