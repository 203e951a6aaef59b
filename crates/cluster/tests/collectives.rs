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

/// Reduces values of so many elements on these devices; returns what each gets.
fn reduce(
    cluster: &TestCluster,
    devices: &[String],
    dtype: &str,
    count: usize,
    ops: &str,
    value: &Value,
) -> Vec<Tensor> {
    let size = devices.len();
    let part = |(index, device): (usize, &String)| {
        format!(
            "x{index} = Placeholder() {{dtype={dtype}, shape=[{count}]}} @{device}\n\
             r{index} = CollectiveReduce(x{index}) {{T={dtype}, group_key={size}, group_size={size}, instance_key={count}, {ops}, \
             subdiv_offsets=[0]}} @{device}\n"
        )
    };
    let text: String = devices.iter().enumerate().map(part).collect();
    let session = cluster.session(&text);
    let names = |letter: &str| -> Vec<String> { (0..size).map(|index| format!("{letter}{index}:0")).collect() };
    let (fed, fetched) = (names("x"), names("r"));
    let feeds: Vec<(&str, Tensor)> =
        fed.iter().enumerate().map(|(index, name)| (name.as_str(), value(index))).collect();
    let fetches: Vec<&str> = fetched.iter().map(String::as_str).collect();
    // The second step finds the group and the streams as the first has left them.
    session.run(&feeds, &fetches).unwrap();
    session.run(&feeds, &fetches).unwrap()
}

type Value = dyn Fn(usize) -> Tensor + Sync;

#[test]
fn reductions_of_any_size_are_the_same_on_all_members() {
    let devices: Vec<String> = TASKS.iter().map(|task| format!("{task}/device:CPU:0")).collect();
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        // Up to 256 kB in all every member reduces everything; above, some members may have a short part or none.
        for count in [1, 15, 100, 21_845, 21_846, 40_000, 1_000_003] {
            let element = |member: usize, index: usize| 0.1 * (member + 1) as f32 + (index % 1013) as f32 / 7.0;
            let value = move |member: usize| {
                Tensor::vector(&(0..count).map(|index| element(member, index)).collect::<Vec<f32>>())
            };
            let means = reduce(&cluster, &devices, "float", count, "merge_op=\"Add\", final_op=\"Div\"", &value);
            let first = means[0].as_slice::<f32>().unwrap();
            for (index, mean) in first.iter().enumerate() {
                let expected = (0..3).map(|member| element(member, index)).sum::<f32>() / 3.0;
                assert!((mean - expected).abs() <= 1e-5 * expected.abs(), "{kind:?}, {count}: {mean} at {index}");
            }
            for other in &means[1..] {
                assert_eq!(other.as_slice::<f32>().unwrap(), first, "{kind:?}, {count}: to the last bit");
            }
        }
        let value = |member: usize| {
            Tensor::vector(&(0..70_001).map(|index| (index * (member as i64 + 3)) % 101).collect::<Vec<i64>>())
        };
        let most = reduce(&cluster, &devices, "int64", 70_001, "merge_op=\"Max\", final_op=\"Id\"", &value);
        for result in most {
            for (index, most) in result.as_slice::<i64>().unwrap().iter().enumerate() {
                assert_eq!(*most, (3..6).map(|factor| (index as i64 * factor) % 101).max().unwrap(), "{kind:?}");
            }
        }
    }
}

#[test]
fn large_groups_reduce_in_a_ring() {
    for kind in [Kind::Grpc, Kind::SharedMemory] {
        let cluster = TestCluster::with_devices(kind, 6);
        let devices: Vec<String> =
            TASKS.iter().flat_map(|task| (0..6).map(move |number| format!("{task}/device:CPU:{number}"))).collect();
        for count in [7, 50_000] {
            let value = move |member: usize| Tensor::vector(&vec![member as i32; count]);
            for sum in reduce(&cluster, &devices, "int32", count, "merge_op=\"Add\", final_op=\"Id\"", &value) {
                assert!(sum.as_slice::<i32>().unwrap().iter().all(|sum| *sum == 153), "{kind:?}, {count}");
            }
        }
    }
}

#[test]
fn a_leader_that_starts_last_is_waited_for() {
    let cluster = TestCluster::without(Kind::SharedMemory, "/job:ps/replica:0/task:0");
    let workers: Vec<String> = TASKS[1..].iter().map(|task| format!("{task}/device:CPU:0")).collect();
    let value = |member: usize| Tensor::vector(&[member as f32, 1.0]);
    let reducing = std::thread::scope(|scope| {
        let reducing =
            scope.spawn(|| reduce(&cluster, &workers, "float", 2, "merge_op=\"Add\", final_op=\"Id\"", &value));
        let leader = cluster.start_task("ps", 0);
        let reduced = reducing.join().unwrap();
        cluster.runtime.block_on(leader.stop());
        reduced
    });
    for sum in reducing {
        assert_eq!(sum.as_slice::<f32>().unwrap(), [1.0, 2.0]);
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

#[test]
fn members_gather_as_many_rows_as_each_other_in_a_step_or_fail() {
    let part = |(index, task): (usize, &&str)| {
        format!(
            "x{index} = Placeholder() {{dtype=float, shape=[?,2]}} @{task}\n\
             g{index} = CollectiveGather(x{index}) {{T=float, group_key=6, group_size=3, instance_key=4, shape=[?,2]}} @{task}\n"
        )
    };
    let text: String = TASKS.iter().enumerate().map(part).collect();
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(&text);
        let gather = |rows: [i64; 3]| {
            let value = |index: usize| {
                let count = 2 * rows[index];
                Tensor::from_slice(&[rows[index], 2], &vec![index as f32; count as usize]).unwrap()
            };
            session.run(&[("x0:0", value(0)), ("x1:0", value(1)), ("x2:0", value(2))], &["g0:0", "g1:0", "g2:0"])
        };
        for rows in [2, 1, 0, 3] {
            for gathered in gather([rows; 3]).unwrap() {
                assert_eq!(gathered.dims(), [3 * rows, 2], "{kind:?}");
                let values = (0..3 * 2 * rows).map(|index| (index / (2 * rows)) as f32);
                assert_eq!(gathered.as_slice::<f32>().unwrap(), values.collect::<Vec<f32>>(), "{kind:?}");
            }
        }
        // The one without rows must not be content with none, nor may the others wait for what it gives.
        assert!(gather([0, 3, 3]).is_err(), "{kind:?}");
    }
}
