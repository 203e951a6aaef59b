//! Sessions that bring clusters of their own leave no connections behind. Alone in its file, because it counts the
//! descriptors of the whole process.

#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use cluster::{ClusterSpec, RunStepCall};
use common::{Kind, TestCluster, graph_def};
use proto::{ConfigProto, CreateSessionRequest};
use std::time::{Duration, Instant};

const NUM_SESSIONS: usize = 60;

/// How long the ends of connections may take to be noticed.
const CLOSED_TIMEOUT: Duration = Duration::from_secs(60);

fn num_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn connections_of_a_sessions_own_cluster_end_with_it() {
    let cluster = TestCluster::start(Kind::Grpc);
    let (near, far) = (cluster.servers[0].address().to_owned(), cluster.servers[1].address().to_owned());
    let master = cluster.master("ps", 0);
    let run_session = |number: usize| {
        // The same two servers under names that no session before has used.
        let own = ClusterSpec::new()
            .with_job("near", std::slice::from_ref(&near))
            .unwrap()
            .with_job(&format!("far{number}"), std::slice::from_ref(&far))
            .unwrap();
        let text = format!("a = Const() {{dtype=float, value=float[](3)}} @/job:far{number}/task:0");
        let request = CreateSessionRequest {
            graph_def: Some(graph_def(&text)),
            config: Some(ConfigProto { cluster_def: Some(own.to_proto()), ..Default::default() }),
            target: format!("grpc://{near}"),
        };
        cluster.runtime.block_on(async {
            let session_handle = master.create_session(request).await.unwrap().session_handle;
            let call = RunStepCall {
                session_handle: session_handle.clone(),
                fetches: vec!["a:0".to_owned()],
                ..Default::default()
            };
            assert_eq!(master.run_step(call).await.unwrap().tensors[0].1.to_scalar::<f32>().unwrap(), 3.0);
            master.close_session(session_handle).await.unwrap();
        });
    };
    run_session(0);
    let before = num_descriptors();
    for number in 1..=NUM_SESSIONS {
        run_session(number);
    }
    // The last connections may be about to end.
    let started = Instant::now();
    while num_descriptors() > before && started.elapsed() < CLOSED_TIMEOUT {
        cluster.runtime.block_on(tokio::task::yield_now());
        std::thread::yield_now();
    }
    let after = num_descriptors();
    assert!(after <= before, "{before} descriptors before {NUM_SESSIONS} sessions, {after} after");
}
