//! Who is served, how much of a server one client may take, and what a client can learn about others.

#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use bytes::Bytes;
use cluster::{ClusterSpec, MasterInterface, PeerPolicy, RemoteMaster, Server, ServerConfig};
use common::{Kind, TestCluster, Watchdog};
use proto::{ConfigProto, CreateSessionRequest};
use std::sync::Arc;
use tensor::{Code, Status, Tensor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

const NOBODY: u32 = 65534;

fn start(runtime: &Runtime, change: impl FnOnce(&mut ServerConfig)) -> Server {
    let mut config = ServerConfig::local(0).unwrap();
    change(&mut config);
    Server::start(config, ops::registry(), runtime.handle().clone()).unwrap()
}

/// Connects with a socket that belongs to another user; `None` where only root could make one.
async fn connect_as(user: u32, server: &Server) -> Option<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    if let Err(error) = rustix::fs::fchown(&socket, Some(rustix::fs::Uid::from_raw(user)), None) {
        eprintln!("skipped: only root can give a socket to another user ({error})");
        return None;
    }
    let address = server.bound().iter().find(|address| address.is_ipv4()).unwrap();
    Some(socket.connect(*address).await.unwrap())
}

/// Makes a call as gRPC does, and returns the status that it gets.
async fn call(stream: TcpStream, path: &str) -> Result<i32, h2::Error> {
    let (mut client, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://localhost{path}")).header("content-type", "application/grpc");
    let (response, mut body) = client.send_request(request.body(()).unwrap(), false)?;
    body.send_data(Bytes::from_static(&[0; 5]), true)?;
    let response = response.await?;
    let (head, mut body) = response.into_parts();
    let code =
        |headers: &http::HeaderMap| headers.get("grpc-status").map(|code| code.to_str().unwrap().parse().unwrap());
    if let Some(code) = code(&head.headers) {
        let message = head.headers.get("grpc-message").map_or("", |message| message.to_str().unwrap());
        assert!(code != Code::PermissionDenied as i32 || message.contains("--allow_users="), "{message}");
        return Ok(code);
    }
    while let Some(data) = body.data().await {
        data?;
    }
    Ok(code(&body.trailers().await?.unwrap()).unwrap())
}

#[test]
fn other_users_of_the_machine_are_told_that_they_are_not_served() {
    let _watchdog = Watchdog::start();
    let runtime = Runtime::new().unwrap();
    let server = start(&runtime, |_| {});
    let told = start(&runtime, |config| {
        config.allowed_users = PeerPolicy::own_user().allow_users(&[NOBODY.to_string()]).unwrap();
    });
    runtime.block_on(async {
        let status = "/tensorflow.WorkerService/GetStatus";
        let Some(stream) = connect_as(NOBODY, &server).await else { return };
        assert_eq!(call(stream, status).await.unwrap(), Code::PermissionDenied as i32);
        let stream = connect_as(NOBODY, &told).await.unwrap();
        assert_eq!(call(stream, status).await.unwrap(), 0);
        let stream = connect_as(NOBODY + 1, &told).await.unwrap();
        assert_eq!(call(stream, status).await.unwrap(), Code::PermissionDenied as i32);
        // Nor as a task: what is not HTTP/2 is closed.
        let mut stream = connect_as(NOBODY, &server).await.unwrap();
        stream.write_all(&[b'F'; 64]).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        let own = RemoteMaster::new(server.address(), runtime.handle().clone()).unwrap();
        own.list_devices(String::new()).await.unwrap();
    });
}

fn create(runtime: &Runtime, master: &dyn MasterInterface, config: ConfigProto) -> Result<String, Status> {
    let request = CreateSessionRequest { config: Some(config), ..Default::default() };
    runtime.block_on(master.create_session(request)).map(|response| response.session_handle)
}

#[test]
fn one_client_leaves_sessions_to_others() {
    let _watchdog = Watchdog::start();
    let runtime = Runtime::new().unwrap();
    let server = start(&runtime, |config| config.max_sessions = Some(16));
    let greedy = RemoteMaster::new(server.address(), runtime.handle().clone()).unwrap();
    // Another connection makes no other client of it.
    let again = RemoteMaster::new(server.address(), runtime.handle().clone()).unwrap();
    let mut handles = Vec::new();
    let refused = loop {
        let master = if handles.len() % 2 == 0 { &greedy } else { &again };
        match create(&runtime, master, ConfigProto::default()) {
            Ok(handle) => handles.push(handle),
            Err(status) => break status,
        }
    };
    assert_eq!((refused.code(), handles.len()), (Code::ResourceExhausted, 14), "{refused}");
    assert!(refused.message().contains("others need some of the 16"), "{refused}");
    let other = server.master();
    let others = create(&runtime, &*other, ConfigProto::default()).expect("a place is left for another client");
    runtime.block_on(other.close_session(others)).unwrap();
    runtime.block_on(again.close_session(handles.pop().unwrap())).unwrap();
    create(&runtime, &greedy, ConfigProto::default()).expect("what was closed can be opened again");
}

#[test]
fn sessions_under_construction_count() {
    let _watchdog = Watchdog::start();
    let runtime = Runtime::new().unwrap();
    // Nobody is at the address of the ps, so sessions that need it wait.
    let [port, nobody] = common::free_ports();
    let cluster = ClusterSpec::new()
        .with_job("worker", &[format!("127.0.0.1:{port}")])
        .and_then(|cluster| cluster.with_job("ps", &[format!("127.0.0.1:{nobody}")]))
        .unwrap();
    let mut config = ServerConfig::new(cluster, "worker", 0).unwrap();
    config.max_sessions = Some(8);
    let server = Server::start(config, ops::registry(), runtime.handle().clone()).unwrap();
    let master = Arc::new(RemoteMaster::new(server.address(), runtime.handle().clone()).unwrap());
    let waiting = || {
        let graph_def = common::graph_def("x = Placeholder() {dtype=float} @/job:ps/task:0");
        let request = CreateSessionRequest { graph_def: Some(graph_def), ..Default::default() };
        runtime.spawn(master.create_session(request))
    };
    let mut calls: Vec<_> = (0..7).map(|_| waiting()).collect();
    // Whichever comes last is refused while the others wait.
    calls.push(waiting());
    let refused = runtime.block_on(async {
        let (ended, _, _) = futures_util::future::select_all(&mut calls).await;
        ended.unwrap().unwrap_err()
    });
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let still_waiting = calls.iter().filter(|call| !call.is_finished()).count();
    assert_eq!(still_waiting, 7);
    // A client that goes away gives the places back; so does its session.
    calls.iter().for_each(|call| call.abort());
    loop {
        match create(&runtime, &*master, ConfigProto::default()) {
            Ok(_) => break,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
        }
        std::thread::yield_now();
    }
}

/// A master is what its task says, not what somebody says of it.
#[test]
fn sessions_of_a_master_are_not_ended_by_a_claim() {
    let cluster = TestCluster::start(Kind::Grpc);
    let session = cluster.session("x = Placeholder() {dtype=float} @/job:ps/task:0\n y = Neg(x) @/job:ps/task:0");
    let run = || session.run(&[("x:0", Tensor::scalar(2f32))], &["y:0"]);
    run().unwrap();
    let ps = cluster.servers.iter().find(|server| server.task().contains("ps")).unwrap();
    let claim = proto::CreateWorkerSessionRequest {
        session_handle: "mine".to_owned(),
        master_task: "/job:worker/replica:0/task:0".to_owned(),
        master_incarnation: 12345,
        ..Default::default()
    };
    cluster.runtime.block_on(async {
        let (mut client, connection) = {
            let stream = TcpStream::connect(*ps.bound().first().unwrap()).await.unwrap();
            h2::client::handshake(stream).await.unwrap()
        };
        tokio::spawn(connection);
        // The second is answered after the first has had its effect.
        for _ in 0..2 {
            let message = proto::Message::encode_to_vec(&claim);
            let mut bytes = vec![0];
            bytes.extend((message.len() as u32).to_be_bytes());
            bytes.extend(message);
            let path = "http://localhost/tensorflow.WorkerService/CreateWorkerSession";
            let request = http::Request::post(path).header("content-type", "application/grpc").body(()).unwrap();
            let (response, mut body) = client.send_request(request, false).unwrap();
            body.send_data(Bytes::from(bytes), true).unwrap();
            let (head, mut body) = response.await.unwrap().into_parts();
            assert!(head.headers.get("grpc-status").is_none(), "{:?}", head.headers);
            while let Some(data) = body.data().await {
                data.unwrap();
            }
        }
    });
    for _ in 0..20 {
        run().expect("the session of the master that was named goes on");
    }
}

/// Two masters that know each other's incarnations can't tell each other's handles.
#[test]
fn handles_are_long_and_differ_from_what_is_published() {
    let _watchdog = Watchdog::start();
    let runtime = Runtime::new().unwrap();
    let server = start(&runtime, |_| {});
    let master = RemoteMaster::new(server.address(), runtime.handle().clone()).unwrap();
    let handle = create(&runtime, &master, ConfigProto::default()).unwrap();
    assert_eq!(handle.len(), 32, "128 bits");
    let shown = format!("{:?}", runtime.block_on(master.list_devices(handle.clone())).unwrap());
    assert!(!shown.contains(&handle));
    for device in runtime.block_on(master.list_devices(String::new())).unwrap().local_device {
        assert!(!handle.contains(&format!("{:016x}", device.incarnation)));
    }
}
