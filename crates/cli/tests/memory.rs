//! `ferroflow server --memory_limit`: what doesn't fit is refused, the server lives on, and SIGUSR1 tells what is in use.

use cluster::{MasterInterface, RemoteMaster, RunStepCall};
use proto::{CreateSessionRequest, ResetRequest};
use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, Command, Stdio};
use tensor::{Code, Result, Tensor};
use tokio::runtime::Runtime;

/// A server that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn line_with<R: Read>(lines: &mut Lines<BufReader<R>>, part: &str) -> String {
    lines.map_while(std::result::Result::ok).find(|line| line.contains(part)).unwrap_or_else(|| panic!("no '{part}'"))
}

#[test]
fn a_server_of_512_megabytes_is_asked_for_400_three_times() {
    let mut server = Process(
        Command::new(env!("CARGO_BIN_EXE_ferroflow"))
            .args(["server", "--port=0", "--memory_limit=512M"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut output = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let mut errors = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let ready = line_with(&mut output, "ready");
    let address = ready.split(" at ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let runtime = Runtime::new().unwrap();
    let master = RemoteMaster::new(&address, runtime.handle().clone()).unwrap();
    let names = ["first", "second", "third"];
    let nodes = names.map(|name| {
        format!(
            "{name} = VarHandleOp() {{dtype=float, shape=[104857600], shared_name=\"{name}\"}}
             {name}_value = Fill(dims, one) {{index_type=int64}}
             {name}_set = AssignVariableOp({name}, {name}_value) {{dtype=float}}\n"
        )
    });
    let text = format!(
        "dims = Placeholder() {{dtype=int64, shape=[1]}}
         one = Const() {{dtype=float, value=float[](1)}}\n{}",
        nodes.concat()
    );
    let graph_def = Some(graph::NodeGraph::from_text(&text, ops::registry()).unwrap().to_graph_def());
    let request = CreateSessionRequest { graph_def, ..Default::default() };
    let set = |session: &str, name: &str| -> Result<()> {
        let call = RunStepCall {
            session_handle: session.to_owned(),
            feeds: vec![("dims:0".to_owned(), Tensor::vector(&[104_857_600i64]))],
            targets: vec![format!("{name}_set")],
            ..Default::default()
        };
        runtime.block_on(master.run_step(call)).map(drop)
    };
    let open = || runtime.block_on(master.create_session(request.clone())).unwrap().session_handle;
    let session = open();
    set(&session, "first").unwrap();
    for name in ["second", "third"] {
        let status = set(&session, name).unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        let value = format!("{name}_value");
        for part in ["shape[104857600] and type float", "at most 536870912 bytes", &value] {
            assert!(status.message().contains(part), "{part}: {status}");
        }
    }
    let mut used = || {
        let pid = rustix::process::Pid::from_child(&server.0);
        rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
        let line = line_with(&mut errors, "memory: ");
        let words: Vec<&str> = line.split("memory: ").nth(1).unwrap().split(' ').collect();
        assert_eq!(words[1..7], ["bytes", "in", "use", "of", "at", "most"], "{line}");
        assert!(words[7].starts_with("536870912"), "{line}");
        words[0].parse::<usize>().unwrap()
    };
    assert!((400 << 20..512 << 20).contains(&used()));
    // A variable outlives its session, and goes with its container.
    runtime.block_on(master.close_session(session)).unwrap();
    assert!(used() >= 400 << 20);
    runtime.block_on(master.reset(ResetRequest::default())).unwrap();
    assert!(used() < 1 << 20);
    let session = open();
    set(&session, "third").unwrap();
}
