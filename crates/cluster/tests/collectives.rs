//! Collective ops among tasks of ours, on an embedded cluster and on ones behind sockets.

#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use common::{KINDS, Kind, TestCluster};
use tensor::{Code, Tensor};

const TASKS: [&str; 3] = ["/job:ps/task:0", "/job:worker/task:0", "/job:worker/task:1"];

/// Returns a graph in which each task reduces, gathers and broadcasts what it is fed.
fn graph() -> String {
    let group = "group_key=5, group_size=3";
    let part = |(index, task): (usize, &&str)| {
        let broadcast = match index {
            1 => format!(
                "b{index} = CollectiveBcastSend(x{index}) {{T=float, {group}, instance_key=3, shape=[4]}} @{task}\n"
            ),
            _ => format!("b{index} = CollectiveBcastRecv() {{T=float, {group}, instance_key=3, shape=[4]}} @{task}\n"),
        };
        format!(
            "x{index} = Placeholder() {{dtype=float, shape=[4]}} @{task}\n\
             r{index} = CollectiveReduce(x{index}) {{T=float, {group}, instance_key=1, merge_op=\"Add\", final_op=\"Div\", \
             subdiv_offsets=[0]}} @{task}\n\
             g{index} = CollectiveGather(x{index}) {{T=float, {group}, instance_key=2, shape=[12]}} @{task}\n{broadcast}"
        )
    };
    TASKS.iter().enumerate().map(part).collect()
}

fn value(index: usize) -> Tensor {
    Tensor::vector(&[index as f32, 10.0, 20.0, 30.0 * index as f32])
}

#[test]
fn all_members_get_what_all_have_given() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(&graph());
        let feeds: Vec<(String, Tensor)> = (0..3).map(|index| (format!("x{index}:0"), value(index))).collect();
        let feeds: Vec<(&str, Tensor)> = feeds.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        for _ in 0..3 {
            for op in ["r", "g", "b"] {
                let names: Vec<String> = (0..3).map(|index| format!("{op}{index}:0")).collect();
                let fetches: Vec<&str> = names.iter().map(String::as_str).collect();
                for result in session.run(&feeds, &fetches).unwrap() {
                    let result = result.as_slice::<f32>().unwrap();
                    match op {
                        "r" => assert_eq!(result, [1.0, 10.0, 20.0, 30.0], "{kind:?}"),
                        "b" => assert_eq!(result, value(1).as_slice::<f32>().unwrap(), "{kind:?}"),
                        // Jobs stand in the order of their names.
                        _ => {
                            let all: Vec<f32> =
                                (0..3).flat_map(|index| value(index).as_slice::<f32>().unwrap().to_vec()).collect();
                            assert_eq!(result, all, "{kind:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_member_that_stops_is_named_and_nobody_waits_for_it() {
    for kind in [Kind::Grpc, Kind::SharedMemory] {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(&graph());
        let feeds = [("x0:0", value(0)), ("x1:0", value(1)), ("x2:0", value(2))];
        session.run(&feeds, &["r0:0", "r1:0", "r2:0"]).unwrap();
        cluster.runtime.block_on(cluster.servers[2].stop());
        let status = session.run(&feeds, &["r0:0", "r1:0", "r2:0"]).unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("/job:worker/replica:0/task:1"), "{status}");
        // The others, without a master that would tell them.
        let status = session.run(&feeds, &["r0:0", "r1:0"]).unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("/job:worker/replica:0/task:1"), "{status}");
    }
}
