//! What callables and partial runs hold stays registered, however many other runs their session compiles meanwhile.

#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use cluster::RunCallableCall;
use common::{Kind, Session, TestCluster};
use proto::{CallableOptions, MakeCallableRequest, PartialRunSetupRequest};
use tensor::Tensor;

/// More runs than a session keeps.
const NUM_RUNS: usize = 1100;

/// The nodes of whose sets the runs are made.
const NUM_NODES: usize = 11;

/// Returns a graph of a few nodes whose sets are different runs, and of what is called and run in parts.
fn graph() -> String {
    let mut text = r#"
        a = Placeholder() {dtype=float} @/job:ps/task:0
        b = Placeholder() {dtype=float} @/job:worker/task:0
        first = Neg(a) @/job:worker/task:0
        second = Mul(first, b) @/job:ps/task:0
    "#
    .to_owned();
    for index in 0..NUM_NODES {
        text.push_str(&format!("n{index} = NoOp() @/job:worker/task:0\n"));
    }
    text
}

/// Runs more different sets of nodes than a session keeps runs.
fn run_many(session: &Session<'_>) {
    for set in 1..=NUM_RUNS {
        let names: Vec<String> =
            (0..NUM_NODES).filter(|index| set >> index & 1 == 1).map(|index| format!("n{index}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        session.run_targets(&[], &names).unwrap();
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_callable_and_a_partial_run_outlive_many_other_runs() {
    for kind in [Kind::Embedded, Kind::SharedMemory] {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(&graph());
        let options =
            CallableOptions { feed: names(&["a:0", "b:0"]), fetch: names(&["second:0"]), ..Default::default() };
        let request =
            MakeCallableRequest { session_handle: session.handle.clone(), options: Some(options), request_id: 1 };
        let handle = cluster.runtime.block_on(session.master.make_callable(request)).unwrap();
        let setup = PartialRunSetupRequest {
            session_handle: session.handle.clone(),
            feed: names(&["a:0", "b:0"]),
            fetch: names(&["first:0", "second:0"]),
            ..Default::default()
        };
        let partial = cluster.runtime.block_on(session.master.partial_run_setup(setup)).unwrap();

        run_many(&session);

        let feeds = vec![Tensor::scalar(2f32), Tensor::scalar(3f32)];
        let call = RunCallableCall { session_handle: session.handle.clone(), handle, feeds };
        let reply = cluster.runtime.block_on(session.master.run_callable(call)).unwrap();
        assert_eq!(reply.fetches[0].to_scalar::<f32>().unwrap(), -6.0, "{kind:?}");
        let part = |name: &str, value: f32, fetch: &str| {
            let mut call = session.call(&[(name, Tensor::scalar(value))], &[fetch], &[]);
            call.partial_run_handle = partial.clone();
            session.make(call).unwrap().tensors[0].1.to_scalar::<f32>().unwrap()
        };
        assert_eq!(part("a:0", 2.0, "first:0"), -2.0, "{kind:?}");
        assert_eq!(part("b:0", 4.0, "second:0"), -8.0, "{kind:?}");
    }
}
