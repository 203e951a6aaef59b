//! Session scripts, each run on an embedded cluster and on one behind sockets.

#[allow(dead_code, reason = "each test file uses a part")]
mod common;

use cluster::RunCallableCall;
use common::{KINDS, TestCluster, graph_def};
use proto::{CallableOptions, ConfigProto, RunOptions};
use tensor::{Code, Tensor};

const GRAPH: &str = r#"
    x = Placeholder() {dtype=float} @/job:worker/task:0
    v = VariableV2() {dtype=float, shape=[]} @/job:ps/task:0
    init = Assign(v, x) @/job:ps/task:0
    sum = AddV2(v, x) @/job:worker/task:0
    product = Mul(sum, x) @/job:worker/task:1
    update = AssignAdd(v, product) @/job:ps/task:0
    queue = FIFOQueueV2() {component_types=[float], shared_name="queue"} @/job:ps/task:0
    put = QueueEnqueueV2(queue, x) @/job:ps/task:0
    take = QueueDequeueV2(queue) {component_types=[float]} @/job:ps/task:0
    taken = Neg(take) @/job:worker/task:1
    size = QueueSizeV2(queue) @/job:ps/task:0
    matrix = Placeholder() {dtype=float} @/job:worker/task:1
    square = MatMul(matrix, matrix) @/job:worker/task:1
    out = Identity(square) @/job:ps/task:0
"#;

fn scalar(value: f32) -> Tensor {
    Tensor::scalar(value)
}

#[test]
fn a_variable_on_the_ps_is_read_and_changed_from_two_workers() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(GRAPH);
        session.run_targets(&[("x:0", scalar(2.0))], &["init"]).unwrap();
        assert_eq!(session.float(&[("x:0", scalar(3.0))], "product:0").unwrap(), 15.0);
        session.run_targets(&[("x:0", scalar(3.0))], &["update"]).unwrap();
        assert_eq!(session.float(&[], "v:0").unwrap(), 17.0);
        // Fetched twice, and together with what lives elsewhere.
        let all = session.run(&[("x:0", scalar(1.0))], &["product:0", "v:0", "product:0"]).unwrap();
        let values: Vec<f32> = all.iter().map(|tensor| tensor.to_scalar().unwrap()).collect();
        assert_eq!(values, [18.0, 17.0, 18.0]);
        // Another master sees the same variable.
        let master = cluster.master("worker", 1);
        let request = proto::CreateSessionRequest { graph_def: Some(graph_def(GRAPH)), ..Default::default() };
        let other = cluster.runtime.block_on(master.create_session(request)).unwrap().session_handle;
        let call = cluster::RunStepCall { session_handle: other, ..session.call(&[], &["v:0"], &[]) };
        let reply = cluster.runtime.block_on(master.run_step(call)).unwrap();
        assert_eq!(reply.tensors[0].1.to_scalar::<f32>().unwrap(), 17.0);
    }
}

#[test]
fn an_error_names_its_task_and_node_and_the_session_lives_on() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(GRAPH);
        let wrong = Tensor::from_slice(&[2, 3], &[0f32; 6]).unwrap();
        let status = session.run(&[("matrix:0", wrong)], &["out:0"]).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().starts_with("From /job:worker/replica:0/task:1:\n"), "{status}");
        assert!(status.message().contains("{{node square}}"), "{status}");
        assert!(!status.is_derived());
        let right = Tensor::from_slice(&[1, 1], &[3f32]).unwrap();
        assert_eq!(session.float(&[("matrix:0", right)], "out:0").unwrap(), 9.0);
        // What is not there is said to be missing.
        assert!(session.run(&[], &["nothing:0"]).unwrap_err().message().contains("nothing"));
        assert!(session.run(&[("x:7", scalar(1.0))], &["sum:0"]).is_err());
        assert_eq!(session.run(&[], &[]).unwrap_err().code(), Code::InvalidArgument);
        let status = session.run(&[("x:0", scalar(1.0))], &["sum:0", "x:0"]).unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "x:0 is both fed and fetched."));
        assert_eq!(session.float(&[], "v:0").unwrap_err().code(), Code::FailedPrecondition);
    }
}

#[test]
fn a_step_that_takes_too_long_leaves_nothing_behind() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(GRAPH);
        let mut call = session.call(&[], &["taken:0"], &[]);
        call.options = Some(RunOptions { timeout_in_ms: 50, ..Default::default() });
        assert_eq!(session.make(call).unwrap_err().code(), Code::DeadlineExceeded);
        session.run_targets(&[("x:0", scalar(4.0))], &["put"]).unwrap();
        // The abandoned dequeue must not have taken the element.
        assert_eq!(session.float(&[], "taken:0").unwrap(), -4.0);
        let config = ConfigProto { operation_timeout_in_ms: 50, ..Default::default() };
        let impatient = cluster.session_with(GRAPH, config).unwrap();
        assert_eq!(impatient.float(&[], "taken:0").unwrap_err().code(), Code::DeadlineExceeded);
    }
}

#[test]
fn a_loop_without_end_leaves_the_server_free_and_ends_when_told() {
    const ENDLESS: &str = r#"
        start = Placeholder() {dtype=float} @/job:worker/task:0
        enter = Enter(start) {frame_name="endless"} @/job:worker/task:0
        merge = Merge(enter, next) @/job:worker/task:0
        test = LessEqual(merge, merge) @/job:worker/task:0
        go_on = LoopCond(test) @/job:worker/task:0
        switch = Switch(merge, go_on) @/job:worker/task:0
        next = NextIteration(switch:1) @/job:worker/task:0
        end = Exit(switch) @/job:worker/task:0
        negative = Neg(start) @/job:worker/task:0
    "#;
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(ENDLESS);
        let feeds = [("start:0", scalar(1.0))];
        let endless = session.call(&feeds, &["end:0"], &[]);
        // More of them than the machine has threads.
        let num_steps = 2 * std::thread::available_parallelism().unwrap().get();
        let steps: Vec<_> =
            (0..num_steps).map(|_| cluster.runtime.spawn(session.master.run_step(endless.clone()))).collect();
        let mut call = endless.clone();
        call.options = Some(RunOptions { timeout_in_ms: 50, ..Default::default() });
        assert_eq!(session.make(call).unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(session.float(&feeds, "negative:0").unwrap(), -1.0);
        cluster.runtime.block_on(session.master.close_session(session.handle.clone())).unwrap();
        for step in steps {
            let status = cluster.runtime.block_on(step).unwrap().unwrap_err();
            assert!(matches!(status.code(), Code::Cancelled | Code::Aborted), "{status}");
        }
    }
}

#[test]
fn closing_a_session_ends_its_steps() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(GRAPH);
        let waiting = cluster.runtime.spawn(session.master.run_step(session.call(&[], &["taken:0"], &[])));
        cluster.runtime.block_on(session.master.close_session(session.handle.clone())).unwrap();
        // Either the step was under way, or it came too late.
        let status = cluster.runtime.block_on(waiting).unwrap().unwrap_err();
        assert!(matches!(status.code(), Code::Cancelled | Code::Aborted), "{status}");
        let status = session.float(&[], "size:0").unwrap_err();
        assert_eq!(status.code(), Code::Aborted);
        assert!(status.message().contains(&session.handle));
    }
}

#[test]
fn a_partial_run_is_fed_and_fetched_bit_by_bit() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(
            r#"
            a = Placeholder() {dtype=float} @/job:ps/task:0
            b = Placeholder() {dtype=float} @/job:worker/task:1
            first = Neg(a) @/job:worker/task:0
            second = Mul(first, b) @/job:worker/task:1
            "#,
        );
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let setup = || {
            let request = proto::PartialRunSetupRequest {
                session_handle: session.handle.clone(),
                feed: names(&["a:0", "b:0"]),
                fetch: names(&["first:0", "second:0"]),
                ..Default::default()
            };
            cluster.runtime.block_on(session.master.partial_run_setup(request)).unwrap()
        };
        let part = |handle: &str, feeds: &[(&str, Tensor)], fetches: &[&str]| {
            let mut call = session.call(feeds, fetches, &[]);
            call.partial_run_handle = handle.to_owned();
            session.make(call).map(|reply| reply.tensors[0].1.to_scalar::<f32>().unwrap())
        };
        let (one, two) = (setup(), setup());
        assert_eq!(part(&one, &[("a:0", scalar(2.0))], &["first:0"]).unwrap(), -2.0);
        assert_eq!(part(&two, &[("a:0", scalar(5.0))], &["first:0"]).unwrap(), -5.0);
        assert_eq!(part(&one, &[("a:0", scalar(2.0))], &["second:0"]).unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(part(&one, &[("b:0", scalar(3.0))], &["second:0"]).unwrap(), -6.0);
        assert_eq!(part(&two, &[("b:0", scalar(3.0))], &["second:0"]).unwrap(), -15.0);
        assert_eq!(part(&one, &[], &["second:0"]).unwrap_err().code(), Code::InvalidArgument, "it is over");
        // The same graph as a whole step, whose feeds go another way.
        assert_eq!(session.float(&[("a:0", scalar(1.0)), ("b:0", scalar(2.0))], "second:0").unwrap(), -2.0);
    }
}

#[test]
fn callables_are_made_once_and_run_by_number() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(GRAPH);
        session.run_targets(&[("x:0", scalar(2.0))], &["init"]).unwrap();
        let options = CallableOptions {
            feed: vec!["x:0".to_owned()],
            fetch: vec!["product:0".to_owned(), "v:0".to_owned()],
            ..Default::default()
        };
        let session_handle = session.handle.clone();
        let request = proto::MakeCallableRequest {
            session_handle: session_handle.clone(),
            options: Some(options),
            request_id: 1,
        };
        let handle = cluster.runtime.block_on(session.master.make_callable(request)).unwrap();
        let run = |feeds: Vec<Tensor>| {
            let call = RunCallableCall { session_handle: session_handle.clone(), handle, feeds };
            cluster.runtime.block_on(session.master.run_callable(call))
        };
        let reply = run(vec![scalar(1.0)]).unwrap();
        assert_eq!(reply.fetches[0].to_scalar::<f32>().unwrap(), 3.0);
        assert_eq!(run(vec![]).unwrap_err().code(), Code::InvalidArgument);
        let release = || {
            let request = proto::ReleaseCallableRequest { session_handle: session_handle.clone(), handle };
            cluster.runtime.block_on(session.master.release_callable(request))
        };
        release().unwrap();
        assert!(release().is_err());
        assert!(run(vec![scalar(1.0)]).is_err());
    }
}

#[test]
fn graphs_grow_in_steps() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session("a = Const() {dtype=float, value=float[](3)} @/job:ps/task:0");
        assert_eq!(session.float(&[], "a:0").unwrap(), 3.0);
        let mut more = graph_def("a = Const() {dtype=float, value=float[](3)}\n b = Neg(a) @/job:worker/task:1");
        more.node.retain(|node| node.name == "b");
        let extend = |version: i64| {
            let request = proto::ExtendSessionRequest {
                session_handle: session.handle.clone(),
                graph_def: Some(more.clone()),
                current_graph_version: version,
            };
            cluster.runtime.block_on(session.master.extend_session(request))
        };
        assert_eq!(extend(5).unwrap_err().code(), Code::Aborted);
        assert_eq!(extend(0).unwrap().new_graph_version, 1);
        assert!(extend(1).unwrap_err().message().contains("'b' is not unique"));
        assert_eq!(session.float(&[], "b:0").unwrap(), -3.0);
    }
}

#[test]
fn reset_drops_containers_and_sessions() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let text = r#"
            x = Placeholder() {dtype=float} @/job:ps/task:0
            v = VariableV2() {dtype=float, shape=[]} @/job:ps/task:0
            w = VariableV2() {dtype=float, shape=[], container="mine"} @/job:ps/task:0
            v/init = Assign(v, x) @/job:ps/task:0
            w/init = Assign(w, x) @/job:ps/task:0
        "#;
        let session = cluster.session(text);
        session.run_targets(&[("x:0", scalar(1.0))], &["v/init", "w/init"]).unwrap();
        let reset = |container: Vec<String>| {
            let request = proto::ResetRequest { container, device_filters: Vec::new() };
            cluster.runtime.block_on(session.master.reset(request)).unwrap();
        };
        reset(Vec::new());
        assert_eq!(session.float(&[], "v:0").unwrap_err().code(), Code::Aborted);
        let session = cluster.session(text);
        assert_eq!(session.float(&[], "v:0").unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(session.float(&[], "w:0").unwrap(), 1.0);
        reset(vec!["mine".to_owned()]);
        let session = cluster.session(text);
        assert_eq!(session.float(&[], "w:0").unwrap_err().code(), Code::FailedPrecondition);
    }
}

#[test]
fn isolated_sessions_share_nothing_and_filters_hide_tasks() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let config = ConfigProto { isolate_session_state: true, ..Default::default() };
        let one = cluster.session_with(GRAPH, config.clone()).unwrap();
        let two = cluster.session_with(GRAPH, config).unwrap();
        one.run_targets(&[("x:0", scalar(1.0))], &["init"]).unwrap();
        assert_eq!(one.float(&[], "v:0").unwrap(), 1.0);
        assert_eq!(two.float(&[], "v:0").unwrap_err().code(), Code::FailedPrecondition);
        let filters = vec!["/job:ps".to_owned(), "/job:worker/task:0".to_owned()];
        let filtered =
            cluster.session_with(GRAPH, ConfigProto { device_filters: filters, ..Default::default() }).unwrap();
        let devices = cluster.runtime.block_on(filtered.master.list_devices(filtered.handle.clone())).unwrap();
        let names: Vec<&str> = devices.local_device.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["/job:ps/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:0/device:CPU:0"]);
        let status = filtered.float(&[("x:0", scalar(1.0))], "product:0").unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
}

#[test]
fn a_trace_shows_all_tasks_and_partitions() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(GRAPH);
        session.run_targets(&[("x:0", scalar(2.0))], &["init"]).unwrap();
        let mut call = session.call(&[("x:0", scalar(2.0))], &["product:0"], &[]);
        let trace_level = proto::run_options::TraceLevel::FullTrace as i32;
        call.options = Some(RunOptions { trace_level, output_partition_graphs: true, ..Default::default() });
        let metadata = session.make(call).unwrap().metadata.unwrap();
        assert_eq!(metadata.partition_graphs.len(), 3);
        let nodes = || metadata.partition_graphs.iter().flat_map(|graph| &graph.node);
        assert!(nodes().any(|node| node.op == "_Arg") && nodes().any(|node| node.op == "_Retval"));
        for node in nodes().filter(|node| node.op == "_Arg" || node.op == "_Retval") {
            let is_known = |name: &String| name == "T" || name == "index" || name.starts_with('_');
            assert!(node.attr.keys().all(is_known), "TensorFlow's op has no such attribute: {node:?}");
        }
        let stats = metadata.step_stats.unwrap();
        let node = |device: &str, name: &str| {
            let device = stats.dev_stats.iter().find(|stats| stats.device == device).unwrap();
            device.node_stats.iter().any(|node| node.node_name == name)
        };
        assert!(node("/job:worker/replica:0/task:0/device:CPU:0", "sum"));
        assert!(node("/job:worker/replica:0/task:1/device:CPU:0", "product"));
        assert!(node("/job:worker/replica:0/task:1/device:CPU:0", "RecvTensor"));
    }
}

#[test]
fn large_tensors_arrive_whole() {
    for kind in KINDS {
        let cluster = TestCluster::start(kind);
        let session = cluster.session(
            r#"
            x = Placeholder() {dtype=int64} @/job:worker/task:0
            v = VariableV2() {dtype=int64, shape=[1048579]} @/job:ps/task:0
            init = Assign(v, x) @/job:ps/task:0
            back = Identity(v) @/job:worker/task:1
            axis = Const() {dtype=int32, value=int32[](0)} @/job:ps/task:0
            parts = Split(axis, v) {num_split=7} @/job:ps/task:0
            part = Neg(parts:2) @/job:worker/task:1
            "#,
        );
        let values: Vec<i64> = (0..(1 << 20) + 3).map(|index| index * 0x0101_0101).collect();
        session.run_targets(&[("x:0", Tensor::vector(&values))], &["init"]).unwrap();
        for fetch in ["v:0", "back:0"] {
            let fetched = session.run(&[], &[fetch]).unwrap();
            assert!(fetched[0].as_slice::<i64>().unwrap() == values, "{kind:?}: {fetch}");
        }
        // A part of a tensor, which begins anywhere in its memory.
        let part = session.run(&[], &["part:0"]).unwrap();
        let expected: Vec<i64> = values.chunks(values.len() / 7).nth(2).unwrap().iter().map(|value| -value).collect();
        assert!(part[0].as_slice::<i64>().unwrap() == expected, "{kind:?}: a part");
    }
}
