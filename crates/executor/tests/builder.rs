//! Conditionals and loops that the graph builder makes.

mod common;

use common::{constant, graph, op, run};
use graph::builder::LoopOptions;
use tensor::{DType, Tensor};

fn value(result: &Option<Tensor>) -> i32 {
    result.as_ref().unwrap().to_scalar::<i32>().unwrap()
}

#[test]
fn a_loop_uses_values_from_outside() {
    let g = graph();
    let (limit, step) = (constant(&g, 10), constant(&g, 3));
    let outputs = g.while_loop(
        &[constant(&g, 0), constant(&g, 100)],
        |_, vars| op("Less", &[&vars[0], &limit]),
        |g, vars| {
            let one = constant(g, 1);
            vec![op("Add", &[&vars[0], &one]), op("Add", &[&vars[1], &step])]
        },
    );
    let result = run(&g, &[&outputs[0], &outputs[1]], vec![]).unwrap();
    assert_eq!((value(&result[0]), value(&result[1])), (10, 130));
}

#[test]
fn a_conditional_inside_a_loop_inside_a_conditional() {
    for (flag, expected) in [(true, 2 + 3 + 4 + 10 + 10), (false, -1)] {
        let g = graph();
        let predicate = g.op("_Arg").attr("T", DType::Bool).attr("index", 0i64).output();
        let five = constant(&g, 5);
        let outputs = g.cond(
            &predicate,
            |g| {
                // i from 0 to 4: adds i + 2 while i < 3, and 10 after that.
                let two = constant(g, 2);
                let outputs = g.while_loop(
                    &[constant(g, 0), constant(g, 0)],
                    |_, vars| op("Less", &[&vars[0], &five]),
                    |g, vars| {
                        let small = op("Less", &[&vars[0], &constant(g, 3)]);
                        let add = g.cond(&small, |_| vec![op("Add", &[&vars[0], &two])], |g| vec![constant(g, 10)]);
                        vec![op("Add", &[&vars[0], &constant(g, 1)]), op("Add", &[&vars[1], &add[0]])]
                    },
                );
                vec![outputs[1].clone()]
            },
            |g| vec![constant(g, -1)],
        );
        let result = run(&g, &[&outputs[0]], vec![Tensor::scalar(flag)]).unwrap();
        assert_eq!(value(&result[0]), expected);
    }
}

#[test]
fn mistakes_are_said() {
    let g = graph();
    let number = constant(&g, 1);
    let status = g.try_cond(&number, |_| vec![], |_| vec![]).unwrap_err();
    assert!(status.message().contains("not bool"), "{status}");
    let status = g.try_while_loop(&[], &LoopOptions::default(), |_, _| unreachable!(), |_, _| vec![]).unwrap_err();
    assert!(status.message().contains("at least one variable"), "{status}");
}
