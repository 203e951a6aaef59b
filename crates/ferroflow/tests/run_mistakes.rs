//! A run that fails names the lines of the program: where the failing node was added, where what doesn't fit was fed, and where the
//! run was asked for.

use ferroflow::Code;
use ferroflow::layers::{Apply, Dense};
use ferroflow::prelude::*;
use ferroflow::train::{
    AdamOptimizer, GradientDescentOptimizer, MonitoredSession, RunArgs, global_variables_initializer,
};

const SOURCE: &str = include_str!("run_mistakes.rs");

/// Checks an error's code and words, and that it is blamed on the lines of this file that have `blamed` in them, in this order.
#[track_caller]
fn check<T>(result: ferroflow::Result<T>, code: Code, words: &str, blamed: &[&str]) {
    let Err(status) = result else { panic!("nothing failed") };
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(words), "{status}");
    let places = status.message().split("run_mistakes.rs:").skip(1);
    let lines: Vec<&str> = places
        .filter_map(|place| place.split(':').next()?.parse::<usize>().ok())
        .filter_map(|line| SOURCE.lines().nth(line - 1))
        .collect();
    assert_eq!(lines.len(), blamed.len(), "{status}\n{lines:#?}");
    for (line, code) in lines.iter().zip(blamed) {
        assert!(line.contains(code), "`{code}` is not in `{line}`: {status}");
    }
}

#[test]
fn a_variable_without_a_value() {
    let g = Graph::new();
    let w = Variable::new(&g, "w", &g.constant(1f32)); // where w is
    let session = Session::new(&g).unwrap();
    let result = session.eval::<f32>(&(&w * 2.0));
    check(result, Code::FailedPrecondition, "uninitialized value w", &["// where w is", "let result = session.eval"]);
}

#[test]
fn a_placeholder_that_is_not_fed() {
    let g = Graph::new();
    let x = g.placeholder::<f32>((None, 2)); // where x is
    let sum = x.sum();
    let session = Session::new(&g).unwrap();
    check(
        session.run(&[&sum]),
        Code::InvalidArgument,
        "You must feed a value",
        &["// where x is", "session.run(&[&sum])"],
    );
    let step = session.make_callable(&[], &[&sum], &[]).unwrap();
    check(step.call(&[]), Code::InvalidArgument, "You must feed a value", &["// where x is", "step.call"]);
    check(session.run_ops(&[&sum.op]), Code::InvalidArgument, "You must feed", &["// where x is", "session.run_ops"]);
}

#[test]
fn feeds_of_another_shape_or_type() {
    let g = Graph::new();
    let x = g.placeholder::<f32>((None, 2));
    let y = g.placeholder::<f32>(());
    let sum = x.sum() + &y;
    let session = Session::new(&g).unwrap();
    let run = session.runner().feed(&y, 1f32).fetch(&sum);
    let run = run.feed(&x, [1f32, 2.0]); // a vector
    check(run.run(), Code::InvalidArgument, "Placeholder:0", &["// a vector", "check(run.run()"]);
    let run = session.runner().fetch(&sum).feed(&y, 1f32);
    let run = run.feed(&x, [[1.0, 2.0]]); // 64 bits
    check(run.run(), Code::InvalidArgument, "double", &["// 64 bits", "check(run.run()"]);
}

#[test]
fn feeds_that_are_no_tensors_and_of_another_graph() {
    let g = Graph::new();
    let x = g.placeholder::<i32>([2, 2]);
    let session = Session::new(&g).unwrap();
    let run = session.runner().fetch(&x).feed(&x, vec![vec![1, 2], vec![3]]); // ragged
    check(run.run(), Code::InvalidArgument, "the feed of Placeholder:0", &["// ragged"]);
    let run = session.runner().fetch(&Graph::new().constant(1)); // another graph
    check(run.run(), Code::InvalidArgument, "belongs to another graph", &["// another graph"]);
}

#[test]
fn shapes_that_are_known_only_when_it_runs() {
    let g = Graph::new();
    let (x, y) = (g.placeholder::<f32>([-1, -1]), g.placeholder::<f32>([-1, -1]));
    let product = x.matmul(&y); // where they meet
    let run = Session::new(&g).unwrap();
    let run = run.runner().feed(&x, [[1f32, 2.0]]).feed(&y, [[1f32, 2.0]]).fetch(&product);
    check(run.run(), Code::InvalidArgument, "[1,2]", &["// where they meet", "check(run.run()"]);
}

#[test]
fn a_layer_and_its_gradients_belong_to_the_line_that_applies_it() {
    let g = Graph::new();
    let x = g.placeholder::<f32>((None, 2));
    let y = x.apply(&Dense::new(3)); // the layer
    let train = GradientDescentOptimizer::new(0.1).minimize(&y.mean(), None).unwrap();
    let line = |name: &str| g.operation(name).unwrap().line().map(|line| line.line());
    let layer = line(y.op.name().as_str());
    assert!(SOURCE.lines().nth(layer.unwrap() as usize - 1).unwrap().contains("// the layer"));
    for name in ["dense/kernel", "dense/MatMul", "gradients/dense/MatMul_grad/MatMul_1"] {
        assert_eq!(line(name), layer, "{name}");
    }
    let session = Session::new(&g).unwrap();
    let result = session.runner().feed(&x, [[1f32, 2.0]]).target(&train).run();
    check(result, Code::FailedPrecondition, "uninitialized value", &["// the layer", "let result = "]);
}

#[test]
fn an_op_without_a_gradient() {
    let g = Graph::new();
    let w = Variable::new(&g, "w", &g.constant([1f32, 2.0]));
    let loss = g.op("Mod").input(&w).input(&w).output(); // no way back
    let result = GradientDescentOptimizer::new(0.1).minimize(&loss, None);
    check(result, Code::NotFound, "No gradient defined for operation", &["// no way back", "let result = "]);
}

#[test]
fn a_node_that_a_monitored_session_runs() {
    let g = Graph::new();
    let x = g.placeholder::<f32>(()); // where x is
    let mut session = MonitoredSession::training(&g).build().unwrap();
    let result = session.run(&RunArgs::new().fetch(&x));
    check(result, Code::InvalidArgument, "You must feed a value", &["// where x is"]);
}

#[test]
fn an_imported_node_has_no_line() {
    let g = Graph::new();
    g.import_bytes(&{
        let other = Graph::new();
        other.op("Placeholder").name("x").attr("dtype", DType::Float).build();
        other.to_bytes()
    })
    .unwrap();
    let x = g.output("x:0").unwrap();
    assert!(x.op.line().is_none());
    let result = Session::new(&g).unwrap().run(&[&x]);
    check(result, Code::InvalidArgument, "You must feed a value", &["let result = "]);
}

#[test]
fn a_loss_without_variables_or_of_integers() {
    let g = Graph::new();
    let optimizer = GradientDescentOptimizer::new(0.1);
    let loss = g.placeholder::<f32>((None, 2)).mean();
    check(optimizer.minimize(&loss, None), Code::InvalidArgument, "No variables to optimize", &["optimizer.minimize"]);
    let count = Variable::new(&g, "count", &g.constant(1));
    let result = optimizer.minimize(&count, None);
    check(result, Code::InvalidArgument, "int32", &["let result = "]);
}

#[test]
fn variables_of_an_optimizer_belong_to_the_line_that_minimizes() {
    let g = Graph::new();
    let w = Variable::new(&g, "w", &g.constant(1f32));
    let session = Session::new(&g).unwrap();
    session.run_ops(&[&global_variables_initializer(&g)]).unwrap();
    let train = AdamOptimizer::new(0.1).minimize(&w.square(), None).unwrap(); // too late
    let result = session.run_ops(&[&train]);
    check(result, Code::FailedPrecondition, "uninitialized value", &["// too late", "let result = "]);
}

#[test]
fn values_of_another_type_shape_or_count() {
    let g = Graph::new();
    let x = g.constant([1f32, 2.0]);
    let session = Session::new(&g).unwrap();
    check(session.eval::<f64>(&x.sum()), Code::InvalidArgument, "the value of Sum:0", &["eval::<f64>"]);
    check(session.eval::<f32>(&x), Code::InvalidArgument, "expected a scalar", &["eval::<f32>(&x)"]);
    let result: ferroflow::Result<(f32, f32)> = session.runner().fetch(&x).run_as(); // one
    check(result, Code::InvalidArgument, "2 values were requested", &["// one"]);
}
