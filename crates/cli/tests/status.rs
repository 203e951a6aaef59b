//! `--http_port`: what it tells, whom it refuses, and what it takes from whom it serves.

use cluster::{MasterInterface, RemoteMaster, RunStepCall};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use tensor::Tensor;
use tokio::runtime::Runtime;

/// A server that ends with the test.
struct Process {
    child: Child,
    /// Where the cluster finds it.
    address: String,
    /// Where people find it.
    http: String,
    errors: Lines<BufReader<ChildStderr>>,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line_with<R: Read>(lines: &mut Lines<BufReader<R>>, part: &str) -> String {
    lines.map_while(Result::ok).find(|line| line.contains(part)).unwrap_or_else(|| panic!("no '{part}'"))
}

fn start(arguments: &[&str]) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroflow"));
    command.args(["server", "--http_port=0"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = line_with(&mut errors, "http://");
    let http = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let ready = line_with(&mut output, "ready");
    let address = ready.split(" at ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    Process { child, address, http, errors }
}

impl Process {
    /// Sends a request and returns the whole answer.
    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        let host = &self.http;
        // What refuses a request may do so before it has read all of it.
        let _ = write!(stream, "{}", request.replace("HOST", host));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n"))
    }
}

#[test]
fn a_task_tells_how_it_is() {
    let server = start(&["--port=0"]);
    assert!(server.get("/healthz").starts_with("HTTP/1.1 200 "));
    let ready = server.get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 200 ") && ready.ends_with("ready\n"), "{ready}");
    let runtime = Runtime::new().unwrap();
    let master = RemoteMaster::new(&server.address, runtime.handle().clone()).unwrap();
    let text = "v = VarHandleOp() {dtype=float, shape=[256], shared_name=\"weights\"}
                value = Placeholder() {dtype=float, shape=[256]}
                set = AssignVariableOp(v, value) {dtype=float}
                loss = Const() {dtype=float, value=float[](0.25)}
                missing = VarHandleOp() {dtype=float, shape=[1]}
                read = ReadVariableOp(missing) {dtype=float}";
    let graph_def = Some(graph::NodeGraph::from_text(text, ops::registry()).unwrap().to_graph_def());
    let request = proto::CreateSessionRequest { graph_def, ..Default::default() };
    let session_handle = runtime.block_on(master.create_session(request)).unwrap().session_handle;
    let step = RunStepCall {
        session_handle: session_handle.clone(),
        feeds: vec![("value:0".to_owned(), Tensor::vector(&[1f32; 256]))],
        fetches: vec!["loss:0".to_owned()],
        targets: vec!["set".to_owned()],
        ..Default::default()
    };
    runtime.block_on(master.run_step(step.clone())).unwrap();
    let failing = RunStepCall { fetches: vec!["read:0".to_owned()], targets: vec![], feeds: vec![], ..step };
    runtime.block_on(master.run_step(failing)).unwrap_err();
    let metrics = server.get("/metrics");
    assert!(metrics.contains("\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
    for line in [
        "ferroflow_step_duration_seconds_count 2",
        "ferroflow_partition_duration_seconds_bucket{le=\"+Inf\"} 2",
        "ferroflow_step_errors_total{code=\"FAILED_PRECONDITION\"} 1",
        "ferroflow_sessions 1",
        "ferroflow_session_loss{session=\"1\"} 0.25",
        "ferroflow_variable_bytes{variable=\"weights\"} 1024",
        "ferroflow_variables_bytes 1024",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no '{line}' in:\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"));
    assert!(!metrics.contains(&session_handle), "a handle is a secret");
}

#[test]
fn a_task_that_waits_for_another_is_not_ready_and_names_it() {
    let gone = &cluster::unused_addresses(1).unwrap()[0];
    let worker_hosts = format!("--worker_hosts=127.0.0.1:0,{gone}");
    let server = start(&[&worker_hosts, "--job_name=worker", "--task_index=0"]);
    assert!(server.get("/healthz").starts_with("HTTP/1.1 200 "));
    let ready = server.get("/readyz");
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    assert!(ready.contains("/job:worker/replica:0/task:0 waits for /job:worker/replica:0/task:1: "), "{ready}");
    let metrics = server.get("/metrics");
    assert!(metrics.contains("ferroflow_peer_up{peer=\"/job:worker/replica:0/task:1\"} 0\n"), "{metrics}");
}

#[test]
fn requests_of_other_sites_and_those_that_are_too_much_are_refused() {
    let server = start(&["--port=0"]);
    let answers = [
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", "HTTP/1.1 403 "),
        (
            "GET /metrics HTTP/1.1\r\nHost: HOST\r\nOrigin: http://evil.example\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 403 ",
        ),
        (
            "GET /metrics HTTP/1.1\r\nHost: HOST\r\nSec-Fetch-Site: cross-site\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 403 ",
        ),
        ("POST /metrics HTTP/1.1\r\nHost: HOST\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "HTTP/1.1 405 "),
        ("GET /../etc/passwd HTTP/1.1\r\nHost: HOST\r\nConnection: close\r\n\r\n", "HTTP/1.1 404 "),
        ("no request at all\r\n\r\n", "HTTP/1.1 400 "),
    ];
    for (request, expected) in answers {
        let answer = server.ask(request);
        assert!(answer.starts_with(expected), "{request}: {answer}");
    }
    let long = format!("GET / HTTP/1.1\r\nHost: HOST\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!(!server.ask(&long).starts_with("HTTP/1.1 200 "));
    let many = format!("GET / HTTP/1.1\r\nHost: HOST\r\n{}\r\n", "X: y\r\n".repeat(1000));
    assert!(!server.ask(&many).starts_with("HTTP/1.1 200 "));
    // It is still there.
    assert!(server.get("/healthz").starts_with("HTTP/1.1 200 "));
}

#[test]
fn nothing_is_served_unless_it_is_asked_for() {
    let help = Command::new(env!("CARGO_BIN_EXE_ferroflow")).args(["server", "--http_host=0.0.0.0"]).output().unwrap();
    assert_eq!(help.status.code(), Some(2), "an address alone opens no port");
    assert!(String::from_utf8_lossy(&help.stderr).contains("--http_port"));
}

/// Runs the program and returns whether it went well, and what it printed.
fn run(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ferroflow")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn the_page_may_load_nothing_else_and_is_told_how_the_cluster_is() {
    let server = start(&["--port=0"]);
    let page = server.get("/");
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("<title>Ferroflow</title>"), "{page}");
    assert!(
        page.contains("\r\ncontent-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; "),
        "{page}"
    );
    for file in ["/page.js", "/page.css"] {
        assert!(server.get(file).starts_with("HTTP/1.1 200 "), "{file}");
    }
    let state = server.get("/state");
    let state: serde_json::Value = serde_json::from_str(state.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(state["num_tasks"], 1);
    assert_eq!(state["tasks"][0]["task"], "/job:localhost/replica:0/task:0");
    assert!(state["tasks"][0]["lines"].as_array().is_some_and(|lines| !lines.is_empty()), "{state}");
    // An open page is told at once, and again.
    let mut stream = TcpStream::connect(&server.http).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", server.http).unwrap();
    let events = BufReader::new(stream).lines().map_while(Result::ok).filter(|line| line.starts_with("data: {"));
    assert_eq!(events.take(2).count(), 2);
    assert!(
        server.get("/graph?task=%2Fjob%3Alocalhost%2Freplica%3A0%2Ftask%3A0&session=9").starts_with("HTTP/1.1 404 ")
    );
}

#[test]
fn steps_are_recorded_when_somebody_asks() {
    let server = start(&["--port=0"]);
    let runtime = Runtime::new().unwrap();
    let master = RemoteMaster::new(&server.address, runtime.handle().clone()).unwrap();
    let text = "one = Const() {dtype=float, value=float[](1)}
                x = Placeholder() {dtype=float, shape=[]}
                twice = Add(one, x)";
    let graph_def = Some(graph::NodeGraph::from_text(text, ops::registry()).unwrap().to_graph_def());
    let request = proto::CreateSessionRequest { graph_def, ..Default::default() };
    let session_handle = runtime.block_on(master.create_session(request)).unwrap().session_handle;
    let feeds = vec![("x:0".to_owned(), Tensor::scalar(1f32))];
    let step = RunStepCall { session_handle, feeds, fetches: vec!["twice:0".to_owned()], ..Default::default() };
    let trace = std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.get("/trace?steps=2"));
        while !asked.is_finished() {
            runtime.block_on(master.run_step(step.clone())).unwrap();
        }
        asked.join().unwrap()
    });
    let trace: serde_json::Value = serde_json::from_str(trace.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let added = events.iter().filter(|event| event["name"] == "twice" && event["ph"] == "X");
    assert_eq!(added.count(), 2, "{trace}");
    assert!(events.iter().any(|event| event["cat"] == "transfer" && event["name"] == "part"), "{trace}");
    let graph = server.get("/graph?task=%2Fjob%3Alocalhost%2Freplica%3A0%2Ftask%3A0&session=1");
    let twice = "[\"twice\",\"Add\",\"/job:localhost/replica:0/task:0/device:CPU:0\",[0,1],[\"float []\"]]";
    assert!(graph.contains(twice), "{graph}");
}

#[test]
fn commands_show_and_stop_a_cluster() {
    let gone = &cluster::unused_addresses(1).unwrap()[0];
    let worker_hosts = format!("--worker_hosts=127.0.0.1:0,{gone}");
    let mut server = start(&[&worker_hosts, "--job_name=worker", "--task_index=0", "--log_format=json"]);
    let (is_well, shown) = run(&["status", &server.address]);
    assert!(is_well && shown.contains("worker 0  ok "), "{shown}");
    assert!(shown.contains("worker 1 does not answer: "), "{shown}");
    let (is_well, json) = run(&["status", "--json", &format!("worker|{gone};{}", server.address)]);
    let state: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(is_well && state["tasks"][0]["version"] == env!("CARGO_PKG_VERSION"), "{json}");
    let (is_well, told) = run(&["status", &gone.to_string()]);
    assert!(!is_well && told.contains("no task answers"), "{told}");
    let (is_well, told) = run(&["stop", &server.address]);
    assert!(!is_well && told.contains("the whole cluster is needed"), "{told}");
    let (is_well, told) = run(&["stop", &format!("worker|{};{gone}", server.address)]);
    assert!(is_well && told.contains("/job:worker/task:0 has stopped"), "{told}");
    assert!(server.child.wait().unwrap().success());
    // Each line was an object.
    let lines: Vec<String> = server.errors.by_ref().map_while(Result::ok).collect();
    let stopping = lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert!(
        stopping.into_iter().any(|line| line["message"].as_str().is_some_and(|text| text.contains("ferroflow stop")))
    );
}
