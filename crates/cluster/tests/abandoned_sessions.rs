//! A session whose client gives up while it is being made leaves nothing on the tasks that were told of it.

#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use cluster::ClusterSpec;
use common::{Kind, TestCluster, free_ports, graph_def};
use proto::{ConfigProto, CreateSessionRequest};
use std::time::{Duration, Instant};

/// How long telling a task may take.
const TELLING_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn a_session_that_is_given_up_while_it_is_made_ends_on_the_tasks_that_know_it() {
    let cluster = TestCluster::start(Kind::Grpc);
    let [nobody] = free_ports::<1>();
    let address = |index: usize| cluster.servers[index].address().to_owned();
    let own = ClusterSpec::new()
        .with_job("near", &[address(0)])
        .unwrap()
        .with_job("far", &[address(1)])
        .unwrap()
        .with_job("gone", &[format!("127.0.0.1:{nobody}")])
        .unwrap();
    let text = "a = NoOp() @/job:far/task:0\nb = NoOp() @/job:gone/task:0";
    let request = CreateSessionRequest {
        graph_def: Some(graph_def(text)),
        config: Some(ConfigProto { cluster_def: Some(own.to_proto()), ..Default::default() }),
        target: format!("grpc://{}", address(0)),
    };
    let waits_for = |count: usize| {
        let started = Instant::now();
        while cluster.servers[1].num_sessions_of_others() != count {
            assert!(started.elapsed() < TELLING_TIMEOUT, "the task never had {count} sessions");
            std::thread::yield_now();
        }
    };
    // It waits for the task that isn't there, after the other one was told.
    let creation = cluster.runtime.spawn(cluster.master("ps", 0).create_session(request));
    waits_for(1);
    creation.abort();
    waits_for(0);
}
