//! Mutual TLS: who gets in with which certificate and may make which call, that streams are encrypted, and that certificates are
//! replaced while steps run.

#[path = "common/authority.rs"]
mod authority;
#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use authority::Authority;
use bytes::Bytes;
use cluster::{ClusterSpec, MasterInterface, RemoteMaster, RunStepCall, Server, ServerConfig, TlsFiles, Transport};
use common::{Watchdog, graph_def};
use proto::CreateSessionRequest;
use proto::service::{master, worker};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tensor::{Code, Result, Tensor};
use time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const GRAPH: &str = r#"
    x = Placeholder() {dtype=float} @/job:ps/task:0
    y = Neg(x) @/job:ps/task:0
    z = Neg(y) @/job:worker/task:0
    back = Neg(z) @/job:ps/task:0
"#;

/// A ps and a worker in this process, whose tensors go over TCP.
struct Tasks {
    runtime: Runtime,
    authority: Authority,
    ps: Server,
    worker: Server,
}

fn uri(path: &str) -> String {
    format!("spiffe://c/{path}")
}

fn free_addresses() -> [String; 2] {
    cluster::unused_addresses(2).unwrap().try_into().unwrap()
}

impl Tasks {
    fn start() -> Tasks {
        Tasks::start_with(["job/ps/task/0", "job/worker/task/0"], |_| {})
    }

    /// Starts the tasks with certificates for these paths.
    fn start_with(paths: [&str; 2], change: impl Fn(&mut ServerConfig)) -> Tasks {
        let (runtime, authority) = (Runtime::new().unwrap(), Authority::new());
        let [ps, worker] = free_addresses();
        let spec = ClusterSpec::new().with_job("ps", &[ps]).unwrap().with_job("worker", &[worker]).unwrap();
        let [ps, worker] = [("ps", paths[0]), ("worker", paths[1])].map(|(job, path)| {
            authority.issue(&format!("{job}-0"), &uri(path));
            let at = |ending: &str| authority.dir.path().join(format!("{{job}}-{{task}}.{ending}"));
            let files = TlsFiles::new(at("pem"), at("key"), authority.dir.path().join("ca.pem"));
            let mut config = ServerConfig::new(spec.clone(), job, 0).unwrap().transport(Transport::Tcp).tls(files);
            config.peer_times.connect = std::time::Duration::from_secs(60);
            change(&mut config);
            Server::start(config, ops::registry(), runtime.handle().clone()).unwrap()
        });
        Tasks { runtime, authority, ps, worker }
    }

    /// Opens a session on the worker; returns a function that makes one step of it.
    fn session(&self, files: TlsFiles) -> Result<impl Fn(f32) -> Result<f32>> {
        let handle = self.runtime.handle().clone();
        let master = RemoteMaster::with_tls(self.worker.address(), handle.clone(), files)?;
        let request = CreateSessionRequest { graph_def: Some(graph_def(GRAPH)), ..Default::default() };
        let session_handle = handle.block_on(master.create_session(request))?.session_handle;
        Ok(move |x: f32| {
            let call = RunStepCall {
                session_handle: session_handle.clone(),
                feeds: vec![("x:0".to_owned(), Tensor::scalar(x))],
                fetches: vec!["back:0".to_owned()],
                ..Default::default()
            };
            handle.block_on(master.run_step(call))?.tensors[0].1.to_scalar::<f32>()
        })
    }
}

/// Does a handshake; the certificate is left out where there is none.
async fn handshake(
    server: &Server,
    ca: &TlsFiles,
    own: Option<&TlsFiles>,
    protocol: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&ca.ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap().with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let chain = vec![CertificateDer::from_pem_file(&files.cert).unwrap()];
            builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(&files.key).unwrap()).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let stream = TcpStream::connect(server.bound()[0]).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await
}

/// Makes a call with an empty message, and returns the code that it gets.
async fn call<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    path: &str,
) -> std::result::Result<i32, String> {
    let text = |error: h2::Error| error.to_string();
    let (mut client, connection) = h2::client::handshake(stream).await.map_err(text)?;
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://localhost{path}")).header("content-type", "application/grpc");
    let (response, mut body) = client.send_request(request.body(()).unwrap(), false).map_err(text)?;
    // A refusal may have come already, and with it the end of the stream; the answer says which.
    let _ = body.send_data(Bytes::from_static(&[0; 5]), true);
    let (head, mut body) = response.await.map_err(text)?.into_parts();
    let code =
        |headers: &http::HeaderMap| headers.get("grpc-status").map(|code| code.to_str().unwrap().parse().unwrap());
    if let Some(code) = code(&head.headers) {
        return Ok(code);
    }
    while let Some(data) = body.data().await {
        data.map_err(text)?;
    }
    Ok(code(&body.trailers().await.map_err(text)?.unwrap()).unwrap())
}

#[test]
fn every_call_of_every_certificate() {
    let _watchdog = Watchdog::start();
    let tasks = Tasks::start_with(["job/ps/task/0", "job/worker/task/0"], |config| {
        config.audit_log = Some(config.tls.as_ref().unwrap().ca.with_file_name("audit.json"));
    });
    let issue = |name: &str, path: &str| tasks.authority.issue(name, &uri(path));
    let good = issue("good", "client/ann");
    let roles = [
        ("client", good.clone()),
        ("task", issue("task", "job/worker/task/7")),
        ("admin", issue("admin", "admin/root")),
        // Without a URI, the address of both tasks says it.
        ("task", tasks.authority.issue("unnamed", "")),
    ];
    let foreign = Authority::new();
    let stranger = foreign.issue("stranger", &uri("admin/root"));
    let closed = [
        ("expired", Some(tasks.authority.issue_for("expired", &uri("admin/root"), -Duration::hours(1)))),
        ("of another authority", Some(TlsFiles { ca: good.ca.clone(), ..stranger })),
        ("none", None),
    ];
    let elsewhere = tasks.authority.issue("elsewhere", "spiffe://other/admin/root");
    tasks.runtime.block_on(async {
        for path in master::ALL.iter().chain(worker::ALL).chain(&["/ferroflow.StreamService/Confirm"]) {
            for (role, files) in &roles {
                let stream = handshake(&tasks.ps, &good, Some(files), "h2").await.unwrap();
                let code = call(stream, path).await.unwrap();
                let of_masters = master::ALL.contains(path) || *path == worker::GET_STATUS;
                let may = match *role {
                    "admin" => true,
                    "task" => *path != master::RESET,
                    _ => of_masters && *path != master::RESET,
                };
                let is_refused = code == Code::PermissionDenied as i32;
                // That one is refused for the secret that it doesn't have.
                assert!(is_refused != may || path.ends_with("Confirm"), "{role} {path}: {code}");
            }
            let stream = TcpStream::connect(tasks.ps.bound()[0]).await.unwrap();
            assert_eq!(call(stream, path).await, Ok(Code::Unauthenticated as i32), "plain {path}");
        }
        for (what, files) in &closed {
            let failed = match handshake(&tasks.ps, &good, files.as_ref(), "h2").await {
                Ok(stream) => call(stream, master::LIST_DEVICES).await.unwrap_err(),
                Err(error) => error.to_string(),
            };
            assert!(failed.contains("alert"), "{what}: {failed}");
        }
        let stream = handshake(&tasks.ps, &good, Some(&elsewhere), "h2").await.unwrap();
        assert_eq!(call(stream, master::LIST_DEVICES).await, Ok(Code::PermissionDenied as i32));
    });
    let audited = std::fs::read_to_string(tasks.authority.dir.path().join("audit.json")).unwrap();
    let lines: Vec<serde_json::Value> = audited.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has = |event: &str, who: &str, call: &str, code: &str| {
        lines
            .iter()
            .any(|line| line["event"] == event && line["who"] == who && line["call"] == call && line["code"] == code)
    };
    assert!(has("session", "client ann (a client)", master::CREATE_SESSION, "OK"), "{audited}");
    assert!(has("reset", "admin root (an admin)", master::RESET, "OK"), "{audited}");
    assert!(has("refusal", "client ann (a client)", master::RESET, "PERMISSION_DENIED"), "{audited}");
    assert!(has("refusal", "", "", "UNAUTHENTICATED"), "{audited}");
    // What a program is told.
    let expired = closed[0].1.clone().unwrap();
    let status = tasks.session(expired).err().unwrap();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    assert!(status.message().contains("does not take the certificate"), "{status}");
    let other = Authority::new();
    let status = tasks.session(other.issue("x", &uri("client/x"))).err().unwrap();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
}

#[test]
fn plain_connections_of_this_machine_where_they_are_allowed() {
    let _watchdog = Watchdog::start();
    let tasks = Tasks::start_with(["job/ps/task/0", "job/worker/task/0"], |config| config.allows_plain_loopback = true);
    let plain = RemoteMaster::new(tasks.ps.address(), tasks.runtime.handle().clone()).unwrap();
    tasks.runtime.block_on(plain.list_devices(String::new())).unwrap();
}

#[test]
fn a_task_with_the_certificate_of_another_is_not_talked_to() {
    let _watchdog = Watchdog::start();
    let tasks = Tasks::start_with(["job/ps/task/1", "job/worker/task/0"], |_| {});
    let client = tasks.authority.issue("client", &uri("client/ann"));
    let status = tasks.session(client).err().unwrap();
    assert!(status.message().contains("its certificate is that of /job:ps/replica:0/task:1"), "{status}");
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
}

#[test]
fn a_session_is_its_owners() {
    let _watchdog = Watchdog::start();
    let tasks = Tasks::start();
    let master = |name: &str, path: &str| {
        let files = tasks.authority.issue(name, &uri(path));
        RemoteMaster::with_tls(tasks.worker.address(), tasks.runtime.handle().clone(), files).unwrap()
    };
    let (ann, bob, admin) = (master("ann", "client/ann"), master("bob", "client/bob"), master("root", "admin/root"));
    let ann_again = master("ann2", "client/ann");
    tasks.runtime.block_on(async {
        let request = CreateSessionRequest { graph_def: Some(graph_def(GRAPH)), ..Default::default() };
        let handle = ann.create_session(request).await.unwrap().session_handle;
        let call = || RunStepCall {
            session_handle: handle.clone(),
            feeds: vec![("x:0".to_owned(), Tensor::scalar(1f32))],
            fetches: vec!["back:0".to_owned()],
            ..Default::default()
        };
        assert_eq!(bob.run_step(call()).await.err().unwrap().code(), Code::Aborted);
        assert_eq!(bob.close_session(handle.clone()).await.unwrap_err().code(), Code::Aborted);
        ann_again.run_step(call()).await.unwrap();
        admin.run_step(call()).await.unwrap();
        ann.close_session(handle.clone()).await.unwrap();
    });
}

/// Says over a stream that this is worker 0; returns the kind of the frame that comes back.
async fn greet(server: &Server, files: &TlsFiles) -> std::io::Result<u8> {
    let mut stream = handshake(server, files, Some(files), "ferroflow-stream").await?;
    let task = b"/job:worker/replica:0/task:0";
    let mut fields = Vec::new();
    for number in [0u64, 0, 1, 7] {
        fields.extend(number.to_le_bytes());
    }
    for text in [&task[..], b"", b"secret"] {
        fields.extend((text.len() as u32).to_le_bytes());
        fields.extend(text);
    }
    let mut bytes = b"FERROFL2".to_vec();
    bytes.extend(1u64.to_le_bytes());
    bytes.extend((fields.len() as u64).to_le_bytes());
    bytes.extend(5u64.to_le_bytes());
    bytes.extend(fields);
    stream.write_all(&bytes).await?;
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).await?;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(
        String::from_utf8_lossy(&rest).contains("its certificate is that of"),
        "{}",
        String::from_utf8_lossy(&rest)
    );
    Ok(answer[8])
}

#[test]
fn a_stream_is_opened_by_the_task_that_it_says() {
    const ERROR: u8 = 4;
    let _watchdog = Watchdog::start();
    let tasks = Tasks::start();
    let liar = tasks.authority.issue("liar", &uri("job/worker/task/1"));
    let client = tasks.authority.issue("client", &uri("client/ann"));
    for files in [liar, client] {
        assert_eq!(tasks.runtime.block_on(greet(&tasks.ps, &files)).unwrap(), ERROR);
    }
}

#[test]
fn large_tensors_go_over_streams() {
    let _watchdog = Watchdog::start();
    let tasks = Tasks::start();
    let client = tasks.authority.issue("client", &uri("client/ann"));
    let master = RemoteMaster::with_tls(tasks.worker.address(), tasks.runtime.handle().clone(), client).unwrap();
    let request = CreateSessionRequest { graph_def: Some(graph_def(GRAPH)), ..Default::default() };
    let session_handle = tasks.runtime.block_on(master.create_session(request)).unwrap().session_handle;
    for len in [1usize, 5_000, 70_000, 3_000_001] {
        let values: Vec<f32> = (0..len).map(|at| at as f32).collect();
        let call = RunStepCall {
            session_handle: session_handle.clone(),
            feeds: vec![("x:0".to_owned(), Tensor::vector(&values))],
            fetches: vec!["back:0".to_owned()],
            ..Default::default()
        };
        let reply = tasks.runtime.block_on(master.run_step(call)).unwrap();
        let negated: Vec<f32> = values.iter().map(|value| -value).collect();
        assert!(reply.tensors[0].1.as_slice::<f32>().unwrap() == negated, "{len} values");
    }
}

/// The certificate that a server shows now.
fn shown(tasks: &Tasks, client: &TlsFiles) -> Vec<u8> {
    let stream = tasks.runtime.block_on(handshake(&tasks.ps, client, Some(client), "h2")).unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn certificates_are_replaced_while_steps_run() {
    let _watchdog = Watchdog::start();
    let tasks = Tasks::start();
    let client = tasks.authority.issue("client", &uri("client/ann"));
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    let step = tasks.session(client.clone()).unwrap();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(step(3.0).unwrap(), -3.0);
                steps.fetch_add(1, Ordering::Relaxed);
            }
        });
        let some_steps = || {
            let enough = steps.load(Ordering::Relaxed) + 20;
            while steps.load(Ordering::Relaxed) < enough && !load.is_finished() {
                std::thread::yield_now();
            }
        };
        some_steps();
        let first = shown(&tasks, &client);
        // Of two files, one is there before the other.
        let key = std::fs::read_to_string(tasks.authority.dir.path().join("ps-0.key")).unwrap();
        tasks.authority.issue("ps-0", &uri("job/ps/task/0"));
        let new_key = std::fs::read_to_string(tasks.authority.dir.path().join("ps-0.key")).unwrap();
        authority::replace(&tasks.authority.dir.path().join("ps-0.key"), &key);
        assert_eq!(shown(&tasks, &client), first, "with half of the files everything is as before");
        some_steps();
        authority::replace(&tasks.authority.dir.path().join("ps-0.key"), &new_key);
        assert_ne!(shown(&tasks, &client), first);
        tasks.authority.issue("worker-0", &uri("job/worker/task/0"));
        // A session of its own has connections of its own.
        let renewed = tasks.authority.issue("client", &uri("client/ann"));
        assert_eq!(tasks.session(renewed).unwrap()(5.0).unwrap(), -5.0);
        some_steps();
        stop.store(true, Ordering::Relaxed);
        load.join().expect("no step was lost");
    });
}

#[test]
fn files_that_can_not_be_used_are_named() {
    let authority = Authority::new();
    let (one, two) = (authority.issue("one", &uri("client/a")), authority.issue("two", &uri("client/b")));
    let runtime = Runtime::new().unwrap();
    let why = |files: TlsFiles| {
        let config = ServerConfig::local(0).unwrap().tls(files);
        Server::start(config, ops::registry(), runtime.handle().clone()).err().unwrap().message().to_owned()
    };
    let mixed = why(TlsFiles { key: two.key, ..one.clone() });
    assert!(mixed.contains("one.pem") && mixed.contains("two.key"), "{mixed}");
    let missing = why(TlsFiles { ca: "/no/such/file".into(), ..one.clone() });
    assert!(missing.contains("/no/such/file"), "{missing}");
    let no_key = why(TlsFiles { key: one.cert.clone(), ..one.clone() });
    assert!(no_key.contains("no private key"), "{no_key}");
    authority::replace(&one.ca, "nothing");
    assert!(why(one).contains("ca.pem has no certificate"));
}
