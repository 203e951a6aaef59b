//! A task that was stopped with a signal: nothing fails, a line names it, and the step ends once it goes on.

#[allow(dead_code, reason = "each test file uses a part")]
#[path = "common/child.rs"]
mod child;
#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use child::{ChildTask, PEER_TIMES, name_of};
use cluster::{MasterInterface, RemoteMaster, RunStepCall, Server, ServerConfig, Transport};
use common::{Watchdog, free_ports, graph_def, spec};
use proto::CreateSessionRequest;
use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tokio::runtime::Runtime;

const GRAPH: &str = r#"
    a = Const() {dtype=float, value=float[](3)} @/job:ps/task:0
    b = Neg(a) @/job:worker/task:1
"#;

const LINE_TIMEOUT: Duration = Duration::from_secs(120);

/// Hands on each line of the log.
#[derive(Clone)]
struct Lines(Sender<String>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let _ = self.0.send(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn child_task() {
    child::serve_if_child();
}

#[test]
fn a_stopped_task_is_named_in_the_log_and_waited_for() {
    let _watchdog = Watchdog::start();
    let (sender, lines) = channel();
    let writer = Lines(sender);
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    for transport in [Transport::Tcp, Transport::Grpc] {
        let runtime = Runtime::new().unwrap();
        let ports = free_ports();
        let [ps, first, second] = ports.map(|port| format!("127.0.0.1:{port}"));
        let workers = [first.clone(), second];
        let mut stopped = ChildTask::start(&[], std::slice::from_ref(&ps), &workers, "worker", 1, name_of(transport));
        stopped.begin();
        let start = |job: &str| {
            let mut config = ServerConfig::new(spec(ports), job, 0).unwrap();
            config.transport = transport;
            config.peer_times = PEER_TIMES;
            Server::start(config, ops::registry(), runtime.handle().clone()).unwrap()
        };
        let _servers = [start("ps"), start("worker")];
        let master = RemoteMaster::new(&first, runtime.handle().clone()).unwrap();
        let request = CreateSessionRequest { graph_def: Some(graph_def(GRAPH)), ..Default::default() };
        let session_handle = runtime.block_on(master.create_session(request)).unwrap().session_handle;
        let call = RunStepCall { session_handle, fetches: vec!["b:0".to_owned()], ..Default::default() };
        let fetch = |reply: cluster::RunStepReply| reply.tensors[0].1.to_scalar::<f32>().unwrap();
        assert_eq!(fetch(runtime.block_on(master.run_step(call.clone())).unwrap()), -3.0);
        stopped.signal("STOP");
        let waiting = runtime.spawn(master.run_step(call));
        loop {
            let line = lines.recv_timeout(LINE_TIMEOUT).expect("no line names the stopped task");
            if line.contains("answered nothing") && line.contains("/job:worker/replica:0/task:1") {
                break;
            }
        }
        stopped.signal("CONT");
        assert_eq!(fetch(runtime.block_on(waiting).unwrap().unwrap()), -3.0, "{transport:?}");
    }
}
