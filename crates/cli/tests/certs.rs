//! `ferroflow certs` and what its certificates are for: a cluster with mutual TLS, and a proxy before it.

mod common;

use common::Process;
use ferroflow::distributed::TlsFiles;
use ferroflow::prelude::*;
use ferroflow::{Code, SessionConfig};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn certs(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ferroflow")).arg("certs").args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn wrong_flags_and_files_that_are_there() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("certs");
    let path = dir.to_str().unwrap();
    let (succeeded, said) = certs(&["issue", path, "--client=ann"]);
    assert!(!succeeded && said.contains("ferroflow certs init"), "{said}");
    assert!(certs(&["init", path, "--cluster=mnist"]).0);
    let key = dir.join("ca.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let before = text(&key);
    let (succeeded, said) = certs(&["init", path]);
    assert!(!succeeded && said.contains("exists already"), "{said}");
    assert_eq!(text(&key), before);
    for (wrong, why) in [
        (vec!["issue", path], "no certificate to issue"),
        (vec!["issue", path, "--client=../ann"], "a name has"),
        (vec!["issue", path, "--ps_hosts=nohost"], "task 0 of job 'ps'"),
        (vec!["issue", path, "--ps_hosts=a:1", "--cluster_spec=ps|a:1"], "cannot be used with"),
        (vec!["issue", path, "--client=ann", "--days=0"], "--days"),
        (vec!["init", path, "--cluster=a/b"], "a name has"),
    ] {
        let (succeeded, said) = certs(&wrong);
        assert!(!succeeded && said.contains(why), "{wrong:?}: {said}");
    }
    assert!(certs(&["issue", path, "--client=ann"]).0);
    let first = text(&dir.join("client-ann.pem"));
    let (succeeded, said) = certs(&["issue", path, "--client=ann"]);
    assert!(!succeeded && said.contains("client-ann.key exists already"), "{said}");
    assert_eq!(text(&dir.join("client-ann.pem")), first);
    assert!(certs(&["issue", path, "--client=ann", "--renew"]).0);
    assert_ne!(text(&dir.join("client-ann.pem")), first);
}

#[test]
fn two_commands_give_a_cluster_with_mutual_tls() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().to_str().unwrap();
    let [ps, worker] = cluster::unused_addresses(2).unwrap().try_into().unwrap();
    let (ps_hosts, worker_hosts) = (format!("--ps_hosts={ps}"), format!("--worker_hosts={worker}"));
    assert!(certs(&["init", dir]).0);
    assert!(certs(&["issue", dir, &ps_hosts, &worker_hosts, "--client=ann"]).0);
    let file = |name: &str| format!("{dir}/{name}");
    let flags = [
        format!("--tls_cert={}", file("{job}-{task}.pem")),
        format!("--tls_key={}", file("{job}-{task}.key")),
        format!("--tls_ca={}", file("ca.pem")),
    ];
    let mut tasks = ["ps", "worker"].map(|job| {
        let mut arguments =
            vec!["server".to_owned(), format!("--job_name={job}"), ps_hosts.clone(), worker_hosts.clone()];
        arguments.extend(["--transport=tcp".to_owned(), "--task_index=0".to_owned()]);
        arguments.extend(flags.clone());
        Process::start(job, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    });
    tasks.iter_mut().for_each(|task| drop(task.wait_for("server ready")));
    let g = Graph::new();
    let six = g.device("/job:ps/task:0", |g| g.constant(2f32) * 3.0);
    let sum = g.device("/job:worker/task:0", |_| &six + 1.0);
    let target = format!("grpc://{worker}");
    let ann = TlsFiles::new(file("client-ann.pem"), file("client-ann.key"), file("ca.pem"));
    let session = Session::connect_with(&g, &target, SessionConfig::new().tls(ann)).unwrap();
    assert_eq!(session.eval::<f32>(&sum).unwrap(), 7.0);
    let plain = Session::connect(&g, &target).unwrap().eval::<f32>(&sum).unwrap_err();
    assert_eq!(plain.code(), Code::Unauthenticated, "{plain}");
    let flag = |name: &str, file: String| format!("--tls_{name}={file}");
    let [cert, key, ca] =
        [flag("cert", file("client-ann.pem")), flag("key", file("client-ann.key")), flag("ca", file("ca.pem"))];
    let mut proxy = Process::start("proxy", &["proxy", &worker, &cert, &key, &ca]);
    let line = proxy.wait_for("proxy ready: ");
    let through = line.split(' ').find(|word| word.starts_with("grpc://")).unwrap();
    assert_eq!(Session::connect(&g, through).unwrap().eval::<f32>(&sum).unwrap(), 7.0);
}

/// Asks a status port; returns the body of the answer.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn readmes_two_commands_train_with_mutual_tls_and_show_it() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("certs").display().to_string();
    assert!(certs(&["init", &dir]).0);
    let (succeeded, said) = certs(&["issue", &dir, "--ps=1", "--ps_hosts=a:1"]);
    assert!(!succeeded && said.contains("cannot be used with"), "{said}");
    assert!(certs(&["issue", &dir, "--ps=1", "--workers=2"]).0);
    let tls = [
        format!("--tls_cert={dir}/{{job}}-{{task}}.pem"),
        format!("--tls_key={dir}/{{job}}-{{task}}.key"),
        format!("--tls_ca={dir}/ca.pem"),
    ];
    let mut arguments = vec!["train", "--processes", "--http_port=0", "--train_steps=100000000"];
    arguments.extend(tls.iter().map(String::as_str));
    let mut training = Process::start("train", &arguments);
    let line = training.wait_for("http://");
    let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
    training.wait_for_step();
    assert!(get(&address, "/").contains("<title>Ferroflow</title>"));
    let state: serde_json::Value = serde_json::from_str(&get(&address, "/state")).unwrap();
    let tasks = state["tasks"].as_array().unwrap();
    assert_eq!((state["num_tasks"].as_u64(), tasks.len()), (Some(3), 3), "{state}");
    assert!(tasks.iter().all(|task| task["incarnation"].is_string()), "a task doesn't answer: {state}");
    training.signal("-INT");
    training.wait_for_success();
}
