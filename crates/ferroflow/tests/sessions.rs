//! What a session can do, on each of the three ways to run a graph: in this process, on a master in this process, and on a server
//! over gRPC.

use cluster::{ClusterSpec, EmbeddedCluster, Server};
use ferroflow::ops::array::placeholder;
use ferroflow::session::{chrome_trace, runtime};
use ferroflow::{Code, DType, Graph, Operation, Output, PartialShape, RunOptions, Session, SessionConfig, Tensor, ops};
use std::time::Duration;

/// Runs a script on a session of each kind.
fn on_each(script: impl Fn(&Graph, &Session)) {
    let g = Graph::new();
    script(&g, &Session::new(&g).unwrap());

    let g = Graph::new();
    let spec = ClusterSpec::new().with_job("local", &["localhost:0"]).unwrap();
    let cluster = EmbeddedCluster::start(&spec, ops::registry(), runtime().unwrap()).unwrap();
    let session = Session::on_master(&g, cluster.master("local", 0).unwrap(), SessionConfig::default()).unwrap();
    script(&g, &session);
    session.close().unwrap();

    let g = Graph::new();
    let server = Server::create_local_server(ops::registry(), runtime().unwrap()).unwrap();
    let session = Session::connect(&g, &server.target()).unwrap();
    script(&g, &session);
    session.close().unwrap();
}

fn number(g: &Graph) -> Output {
    placeholder(g, DType::Float, &PartialShape::scalar())
}

fn value(tensor: &Tensor) -> f32 {
    tensor.to_scalar().unwrap()
}

#[test]
fn feeds_and_fetches() {
    on_each(|g, session| {
        let x = number(g);
        let y = &x * 2.0;
        let results = session.runner().feed(&x, Tensor::scalar(4f32)).fetch(&y).fetch(&x).fetch(&y).run().unwrap();
        assert_eq!(results.iter().map(value).collect::<Vec<_>>(), [8.0, 4.0, 8.0]);
        // An output in the middle can be fed too, and what is added later is sent along.
        let z = &y + 1.0;
        let (z, y): (f32, f32) = session.runner().feed(&y, Tensor::scalar(5f32)).fetch(&z).fetch(&y).run_as().unwrap();
        assert_eq!((z, y), (6.0, 5.0));
        assert_eq!(session.runner().feed(&x, Tensor::scalar(1f32)).fetch(&x).run_as::<(f32,)>().unwrap(), (1.0,));
        let status = session.runner().feed(&x, Tensor::scalar(1f32)).fetch(&x).run_as::<(i32,)>().unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    });
}

#[test]
fn callables() {
    on_each(|g, session| {
        let (x, y) = (number(g), number(g));
        let callable = session.make_callable(&[&y, &x], &[&(&x - &y)], &[]).unwrap();
        for turn in 0..3 {
            let results = callable.call(&[Tensor::scalar(turn as f32), Tensor::scalar(10f32)]).unwrap();
            assert_eq!(value(&results[0]), 10.0 - turn as f32);
        }
        assert_eq!(callable.call(&[Tensor::scalar(1f32)]).unwrap_err().code(), Code::InvalidArgument);
    });
}

#[test]
fn partial_runs() {
    on_each(|g, session| {
        let (a, b, c) = (number(g), number(g), number(g));
        let first = &a + &b;
        let second = &first * &c;
        let step = session.partial_run_setup(&[&a, &b, &c], &[&first, &second], &[]).unwrap();
        let results = step.run(&[(&a, Tensor::scalar(1f32)), (&b, Tensor::scalar(2f32))], &[&first]).unwrap();
        assert_eq!(value(&results[0]), 3.0);
        let results = step.run(&[(&c, results[0].clone())], &[&second]).unwrap();
        assert_eq!(value(&results[0]), 9.0);
        let step = session.partial_run_setup(&[&a, &b, &c], &[&first, &second], &[]).unwrap();
        step.run(&[(&a, Tensor::scalar(1f32)), (&b, Tensor::scalar(2f32))], &[&first]).unwrap();
        let status = step.run(&[(&a, Tensor::scalar(1f32))], &[]).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains("already been fed"), "{status}");
    });
}

#[test]
fn a_fetch_that_lacks_its_feeds_is_refused() {
    on_each(|g, session| {
        let (a, b) = (number(g), number(g));
        let sum = &a + &b;
        let step = session.partial_run_setup(&[&a, &b], &[&sum], &[]).unwrap();
        let status = step.run(&[(&a, Tensor::scalar(1f32))], &[&sum]).unwrap_err();
        assert!(status.message().contains("can't be computed from the feeds that have been fed so far"), "{status}");
        // The step goes on with what it lacks.
        let feeds = [(&a, Tensor::scalar(1f32)), (&b, Tensor::scalar(2f32))];
        assert_eq!(value(&step.run(&feeds, &[&sum]).unwrap()[0]), 3.0);
    });
}

#[test]
fn a_partial_run_fails_where_a_node_does() {
    on_each(|g, session| {
        let (x, shape) = (
            placeholder(g, DType::Float, &PartialShape::unknown()),
            placeholder(g, DType::Int32, &PartialShape::unknown()),
        );
        let reshaped = g.op("Reshape").input(&x).input(&shape).output();
        let step = session.partial_run_setup(&[&x, &shape], &[&reshaped], &[]).unwrap();
        let feeds = [(&x, Tensor::vector(&[1f32, 2.0])), (&shape, Tensor::vector(&[3i32]))];
        let status = step.run(&feeds, &[&reshaped]).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    });
}

/// Returns an operation that waits for what never comes.
fn wait_forever(g: &Graph) -> Operation {
    let queue = g.op("FIFOQueueV2").attr("component_types", [DType::Float].as_slice()).output();
    g.op("QueueDequeueV2").input(&queue).attr("component_types", [DType::Float].as_slice()).build()
}

#[test]
fn a_run_ends_after_its_time() {
    on_each(|g, session| {
        let options = RunOptions::new().timeout(Duration::from_millis(50));
        let waiting = wait_forever(g);
        // The first step compiles the run, and the second finds it.
        for _ in 0..2 {
            let status = session.runner().target(&waiting).options(options.clone()).run().unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        }
        // The session goes on.
        assert_eq!(session.eval::<f32>(&g.constant_tensor(&Tensor::scalar(7f32))).unwrap(), 7.0);
    });
}

#[test]
fn a_loop_without_end_ends_after_its_time() {
    on_each(|g, session| {
        let start = g.constant_tensor(&Tensor::scalar(0f32));
        let endless = g.while_loop(
            &[start],
            |g, vars| g.op("LessEqual").input(&vars[0]).input(&vars[0]).output(),
            |_, vars| vec![&vars[0] + 1.0],
        );
        let options = RunOptions::new().timeout(Duration::from_millis(50));
        for _ in 0..2 {
            let status = session.runner().fetch(&endless[0]).options(options.clone()).run().unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        }
        assert_eq!(session.eval::<f32>(&g.constant_tensor(&Tensor::scalar(7f32))).unwrap(), 7.0);
    });
}

#[test]
fn a_trace_tells_of_every_op() {
    on_each(|g, session| {
        let x = placeholder(g, DType::Float, &PartialShape::from_dims(&[2, 2]));
        let product = g.op("MatMul").name("product").input(&x).input(&x).output();
        let options = RunOptions::new().full_trace(true).output_partition_graphs(true);
        let feed = Tensor::from_slice(&[2, 2], &[1f32, 2.0, 3.0, 4.0]).unwrap();
        let runner = session.runner().feed(&x, feed).fetch(&product).options(options);
        let (values, metadata) = runner.run_with_metadata().unwrap();
        assert_eq!(values[0].as_slice::<f32>().unwrap(), [7.0, 10.0, 15.0, 22.0]);
        let metadata = metadata.unwrap();
        assert!(metadata.node_runs().iter().any(|run| run.node == "product" && !run.start.is_zero()));
        assert!(metadata.partition_graphs().unwrap().iter().any(|text| text.contains("name: \"product\"")));
        let trace = chrome_trace(&metadata);
        assert!(trace.contains("\"name\": \"MatMul\"") && trace.contains("{\"name\": \"product\""), "{trace}");
    });
}

#[test]
fn a_closed_session_runs_nothing() {
    on_each(|g, session| {
        let x = g.constant_tensor(&Tensor::scalar(1f32));
        session.run(&[&x]).unwrap();
        session.close().unwrap();
        assert!(session.run(&[&x]).is_err());
    });
}

#[test]
fn a_step_under_way_ends_with_its_session() {
    on_each(|g, session| {
        let queue = g.op("FIFOQueueV2").attr("component_types", [DType::Float].as_slice()).output();
        let component = g.constant_tensor(&Tensor::scalar(1f32));
        let enqueue = g.op("QueueEnqueueV2").input(&queue).inputs([&component]).build();
        let dequeue = g.op("QueueDequeueV2").input(&queue).attr("component_types", [DType::Float].as_slice()).output();
        session.run_ops(&[&enqueue]).unwrap();
        assert_eq!(session.eval::<f32>(&dequeue).unwrap(), 1.0);
        std::thread::scope(|scope| {
            // It waits for an element that never comes, or has not begun when the session ends.
            let waiting = scope.spawn(|| session.eval::<f32>(&dequeue));
            session.close().unwrap();
            assert!(waiting.join().unwrap().is_err());
        });
    });
}

#[test]
fn an_error_of_this_process_names_the_node_and_no_task() {
    let g = Graph::new();
    let (x, shape) = (
        placeholder(&g, DType::Float, &PartialShape::unknown()),
        placeholder(&g, DType::Int32, &PartialShape::unknown()),
    );
    let reshaped = g.op("Reshape").name("reshaped").input(&x).input(&shape).output();
    let session = Session::new(&g).unwrap();
    let step = |size: i32| {
        let runner = session.runner().feed(&x, Tensor::vector(&[1f32, 2.0])).feed(&shape, Tensor::vector(&[size]));
        runner.fetch(&reshaped).run()
    };
    for _ in 0..2 {
        let status = step(3).unwrap_err();
        assert_eq!((status.code(), status.node()), (Code::InvalidArgument, Some("reshaped")), "{status}");
        assert!(!status.message().contains("/job:"), "{status}");
        assert_eq!(step(2).unwrap()[0].to_vec::<f32>().unwrap(), [1.0, 2.0]);
    }
}

#[test]
fn a_fetch_on_a_branch_that_was_not_taken_is_refused() {
    on_each(|g, session| {
        let x = number(g);
        let is_taken = placeholder(g, DType::Bool, &PartialShape::scalar());
        let taken = g.op("Switch").name("switch").input(&x).input(&is_taken).build().output(1);
        for _ in 0..2 {
            let step = |value: bool| {
                let runner = session.runner().feed(&x, Tensor::scalar(2f32)).feed(&is_taken, Tensor::scalar(value));
                runner.fetch(&taken).run()
            };
            assert_eq!(value(&step(true).unwrap()[0]), 2.0);
            let status = step(false).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().contains("switch:1"), "{status}");
        }
    });
}

/// Blocking there is a program's own choice; it works, since nothing of the session needs that program's threads.
#[test]
fn a_session_of_this_process_runs_within_a_task_of_any_runtime() {
    let own = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let task = async {
        let g = Graph::new();
        let (a, b) = (number(&g), number(&g));
        let sum = &a + &b;
        let session = Session::new(&g).unwrap();
        for turn in 0..3 {
            let runner = session.runner().feed(&a, turn as f32).feed(&b, 1f32).fetch(&sum);
            assert_eq!(value(&runner.run().unwrap()[0]), turn as f32 + 1.0);
        }
        let step = session.partial_run_setup(&[&a, &b], &[&sum], &[]).unwrap();
        step.run(&[(&a, Tensor::scalar(1f32))], &[]).unwrap();
        assert_eq!(value(&step.run(&[(&b, Tensor::scalar(2f32))], &[&sum]).unwrap()[0]), 3.0);
    };
    own.block_on(async { tokio::task::LocalSet::new().run_until(task).await });
}

#[test]
fn wrong_feeds_and_names_are_refused() {
    on_each(|g, session| {
        let x = placeholder(g, DType::Float, &PartialShape::new(&[None, Some(2)]));
        let y = g.op("Neg").name("y").input(&x).output();
        #[track_caller]
        fn check(result: ferroflow::Result<Vec<Tensor>>, code: Code, words: &str) {
            let status = result.unwrap_err();
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(words), "{status}");
        }
        let name = x.name();
        let wrong_shape = session.runner().feed(&x, Tensor::vector(&[1f32, 2.0])).fetch(&y).run();
        check(wrong_shape, Code::InvalidArgument, &name);
        let wrong_type = session.runner().feed(&x, Tensor::vector(&[1i32])).fetch(&y).run();
        check(wrong_type, Code::InvalidArgument, &name);
        check(session.runner().fetch(&y).run(), Code::InvalidArgument, "You must feed a value for placeholder tensor");
        check(session.runner().fetch_name("absent:0").run(), Code::NotFound, "absent");
        check(session.runner().fetch_name("y:1").run(), Code::InvalidArgument, "y:1");
        check(session.runner().target_name("absent").run(), Code::NotFound, "absent");
        let value = Tensor::scalar(1f32);
        check(session.runner().feed_name("absent:0", value).fetch(&y).run(), Code::NotFound, "absent");
        check(session.runner().run(), Code::InvalidArgument, "at least one target");
    });
}

#[test]
fn a_session_has_a_time_for_every_run() {
    let config = SessionConfig::new().operation_timeout(Duration::from_millis(50));
    let g = Graph::new();
    let status = Session::connect_with(&g, "", config).unwrap().run_ops(&[&wait_forever(&g)]).unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
}

#[test]
fn a_graph_goes_through_a_file() {
    let g = Graph::new();
    let sum = g.constant([1, 2]) + 3;
    let copy = Graph::new();
    copy.import_bytes(&g.to_bytes()).unwrap();
    let sum = copy.output(&sum.name()).unwrap();
    assert_eq!(Session::new(&copy).unwrap().eval::<Vec<i32>>(&sum).unwrap(), [4, 5]);
    assert_eq!(copy.import_bytes(b"anything").unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn functions_that_are_imported_after_the_first_step_are_sent_too() {
    let arg = |name: &str| proto::op_def::ArgDef {
        name: name.to_owned(),
        r#type: proto::DataType::DtFloat as i32,
        ..Default::default()
    };
    let signature = proto::OpDef {
        name: "double".to_owned(),
        input_arg: vec![arg("a")],
        output_arg: vec![arg("r")],
        ..Default::default()
    };
    let float = proto::attr_value::Value::Type(proto::DataType::DtFloat as i32);
    let sum = proto::NodeDef {
        name: "sum".to_owned(),
        op: "AddV2".to_owned(),
        input: vec!["a".to_owned(), "a".to_owned()],
        attr: [("T".to_owned(), proto::AttrValue { value: Some(float) })].into(),
        ..Default::default()
    };
    let ret = [("r".to_owned(), "sum:z:0".to_owned())].into();
    let function = proto::FunctionDef { signature: Some(signature), node_def: vec![sum], ret, ..Default::default() };
    let library = Some(proto::FunctionDefLibrary { function: vec![function], ..Default::default() });
    on_each(|g, session| {
        let x = g.constant(3f32);
        assert_eq!(session.eval::<f32>(&x).unwrap(), 3.0);
        g.import(&proto::GraphDef { library: library.clone(), ..Default::default() }).unwrap();
        let doubled = g.op("double").input(&x).output();
        assert_eq!(session.eval::<f32>(&doubled).unwrap(), 6.0);
    });
}
