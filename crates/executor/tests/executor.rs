//! Steps, loops, branches, failures.

mod common;

use common::{constant, graph, op, run, run_steps};
use graph::{Graph, Output};
use tensor::{Code, DType, Tensor};

fn value(result: &Option<Tensor>) -> i32 {
    result.as_ref().unwrap().to_scalar::<i32>().unwrap()
}

fn arg(graph: &Graph, index: i64) -> Output {
    graph.op("_Arg").attr("T", DType::Int32).attr("index", index).output()
}

#[test]
fn a_chain_and_a_diamond_of_cheap_and_expensive_nodes() {
    let g = graph();
    let x = arg(&g, 0);
    let one = constant(&g, 1);
    let mut left = x.clone();
    let mut right = x.clone();
    for _ in 0..100 {
        left = op("Add", &[&left, &one]);
        right = op("SlowAdd", &[&right, &one]);
    }
    let later = op("Later", &[&right]);
    let sum = op("Add", &[&left, &later]);
    let steps: Vec<Vec<Tensor>> = (0..20).map(|start| vec![Tensor::scalar(start)]).collect();
    for (start, result) in run_steps(&g, &[&sum, &x], steps).into_iter().enumerate() {
        let result = result.unwrap();
        assert_eq!(value(&result[0]), 2 * (start as i32 + 100));
        assert_eq!(value(&result[1]), start as i32, "an argument that is fetched must not be overwritten");
    }
}

/// Builds `while i < limit: i, total = i + 1, body(i, total)` and returns the exits of `i` and `total`.
fn while_loop(
    g: &Graph,
    name: &str,
    start: &Output,
    limit: &Output,
    parallel: i64,
    body: impl Fn(&Output, &Output) -> Output,
) -> (Output, Output) {
    let enter = |x: &Output, constant: bool| {
        g.op("Enter")
            .input(x)
            .attr("frame_name", name)
            .attr("is_constant", constant)
            .attr("parallel_iterations", parallel)
            .output()
    };
    let zero = constant(g, 0);
    let one = enter(&constant(g, 1), true);
    let limit = enter(limit, true);
    let (i, total) = (enter(start, false), enter(&zero, false));
    let merge = |x: &Output| g.op("Merge").input(x).input(x).build();
    let (merge_i, merge_total) = (merge(&i), merge(&total));
    let less = op("Less", &[&merge_i.output(0), &limit]);
    let cond = op("LoopCond", &[&less]);
    let switch = |merge: &graph::Operation| g.op("Switch").input(&merge.output(0)).input(&cond).build();
    let (switch_i, switch_total) = (switch(&merge_i), switch(&merge_total));
    let exit = |switch: &graph::Operation| op("Exit", &[&switch.output(0)]);
    let exits = (exit(&switch_i), exit(&switch_total));
    let next_total = body(&switch_i.output(1), &switch_total.output(1));
    let next_i = op("Add", &[&switch_i.output(1), &one]);
    merge_i.update_input(1, &op("NextIteration", &[&next_i])).unwrap();
    merge_total.update_input(1, &op("NextIteration", &[&next_total])).unwrap();
    exits
}

#[test]
fn loops_with_any_number_of_parallel_iterations() {
    for parallel in [1, 2, 10] {
        for (limit, expected) in [(0, 0), (1, 0), (50, 1225)] {
            let g = graph();
            let (i, total) = while_loop(&g, "loop", &constant(&g, 0), &constant(&g, limit), parallel, |i, total| {
                op("Add", &[&op("Later", &[total]), i])
            });
            let result = run(&g, &[&i, &total], vec![]).unwrap();
            assert_eq!(value(&result[0]), limit);
            assert_eq!(value(&result[1]), expected);
        }
    }
}

#[test]
fn nested_loops() {
    let g = graph();
    let ten = constant(&g, 10);
    let (_, total) = while_loop(&g, "outer", &constant(&g, 0), &ten, 4, |i, total| {
        // Constants of the outer graph must enter both frames.
        let enter = |x: &Output, frame: &str| {
            g.op("Enter").input(x).attr("frame_name", frame).attr("is_constant", true).output()
        };
        let inner_enter = |x: &Output| g.op("Enter").input(x).attr("frame_name", "inner").output();
        let one = enter(&enter(&constant(&g, 1), "outer"), "inner");
        let zero = enter(&constant(&g, 0), "outer");
        let limit = enter(i, "inner");
        let (j, sum) = (inner_enter(&zero), inner_enter(total));
        let (merge_j, merge_sum) =
            (g.op("Merge").input(&j).input(&j).build(), g.op("Merge").input(&sum).input(&sum).build());
        let cond = op("LoopCond", &[&op("Less", &[&merge_j.output(0), &limit])]);
        let switch_j = g.op("Switch").input(&merge_j.output(0)).input(&cond).build();
        let switch_sum = g.op("Switch").input(&merge_sum.output(0)).input(&cond).build();
        let next = |x: &Output| op("NextIteration", &[&op("Add", &[x, &one])]);
        merge_j.update_input(1, &next(&switch_j.output(1))).unwrap();
        merge_sum.update_input(1, &next(&switch_sum.output(1))).unwrap();
        op("Exit", &[&switch_sum.output(0)])
    });
    // 0 + 1 + … + 9 turns of the inner loop.
    assert_eq!(value(&run(&g, &[&total], vec![]).unwrap()[0]), 45);
}

#[test]
fn only_one_branch_runs_and_a_loop_on_the_other_is_dead() {
    for taken in [false, true] {
        let g = graph();
        let pred = g.constant_tensor(&Tensor::scalar(taken));
        let switch = g.op("Switch").input(&constant(&g, 5)).input(&pred).build();
        // The false branch fails if it runs; the true branch is a loop.
        let on_false = op("Add", &[&switch.output(0), &constant(&g, 1)]);
        let (_, on_true) =
            while_loop(&g, "loop", &switch.output(1), &constant(&g, 8), 10, |i, total| op("Add", &[total, i]));
        let merge = g.op("Merge").input(&on_false).input(&on_true).build();
        let result = run(&g, &[&merge.output(0), &merge.output(1)], vec![]).unwrap();
        assert_eq!(value(&result[0]), if taken { 5 + 6 + 7 } else { 6 });
        assert_eq!(value(&result[1]), i32::from(taken));
    }
}

#[test]
fn a_failure_names_its_node_and_ends_what_waits() {
    let g = graph();
    let never = op("Never", &[&constant(&g, 1)]);
    let fail = g.op("Fail").name("culprit").input(&constant(&g, 1)).output();
    let status = run(&g, &[&never, &fail], vec![]).unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    assert_eq!(status.message(), "no more\n\t [[{{node culprit}}]]");
    assert!(!status.is_derived());
}

#[test]
fn a_panic_is_an_internal_error_and_the_next_step_runs() {
    let g = graph();
    let x = arg(&g, 0);
    let switch = g.op("Switch").input(&x).input(&op("Less", &[&x, &constant(&g, 1)])).build();
    let panics = g.op("Panic").name("bad").input(&switch.output(1)).output();
    let merge = g.op("Merge").input(&switch.output(0)).input(&panics).build();
    let results = run_steps(&g, &[&merge.output(0)], vec![vec![Tensor::scalar(0)], vec![Tensor::scalar(3)]]);
    let status = results[0].as_ref().unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(status.message().contains("on purpose") && status.message().contains("{{node bad}}"));
    assert_eq!(value(&results[1].as_ref().unwrap()[0]), 3);
}

#[test]
fn a_kernel_that_forgets_to_answer_is_an_error_not_a_hang() {
    let g = graph();
    let y = op("Forgetful", &[&constant(&g, 1)]);
    assert_eq!(run(&g, &[&y], vec![]).unwrap_err().code(), Code::Internal);
}

#[test]
fn frames_that_make_no_sense_are_refused() {
    let g = graph();
    let inside = g.op("Enter").input(&constant(&g, 1)).attr("frame_name", "f").output();
    let mixed = op("Add", &[&inside, &constant(&g, 1)]);
    let status = run(&g, &[&mixed], vec![]).unwrap_err();
    assert!(status.message().contains("different frames"), "{status}");
    let g = graph();
    let status = run(&g, &[&op("Exit", &[&constant(&g, 1)])], vec![]).unwrap_err();
    assert!(status.message().contains("nobody entered"), "{status}");
}

/// Returns the name of the thread on which a new executor runs an expensive node.
fn thread_of_an_expensive_node() -> String {
    let g = graph();
    let result = run(&g, &[&op("SlowThread", &[&constant(&g, 1)])], vec![]).unwrap();
    String::from_utf8(result[0].as_ref().unwrap().strings().unwrap()[0].to_vec()).unwrap()
}

#[test]
fn a_thread_that_serves_others_leaves_what_may_take_long_to_the_pool() {
    let on = |serves: bool| {
        let body = move || {
            if serves {
                executor::ServingThread::start();
            }
            thread_of_an_expensive_node()
        };
        std::thread::Builder::new().name("caller".to_owned()).spawn(body).unwrap().join().unwrap()
    };
    assert_eq!(on(false), "caller");
    assert!(on(true).starts_with("compute-"));
}
