//! Gradients through conditionals and loops. The expected numbers are those that TensorFlow computes for the same programs.

use ferroflow::ops::{array, data_flow, math};
use ferroflow::{DType, Grad, Graph, Output, PartialShape, Session, Tensor};
use graph::builder::LoopOptions;

fn floats(g: &Graph, dims: &[i64], values: &[f32]) -> Output {
    g.constant_tensor(&Tensor::from_slice(dims, values).unwrap())
}

fn int(g: &Graph, value: i32) -> Output {
    g.constant_tensor(&Tensor::scalar(value))
}

fn tanh(x: &Output) -> Output {
    x.graph().op("Tanh").input(x).output()
}

fn less(x: &Output, y: &Output) -> Output {
    x.graph().op("Less").input(x).input(y).output()
}

fn dense(grad: &Option<Grad>) -> Output {
    match grad.as_ref().unwrap() {
        Grad::Dense(output) => output.clone(),
        Grad::Slices(slices) => slices.to_dense(),
    }
}

/// Compares the gradients of `y`, run several times, with TensorFlow's.
#[track_caller]
fn check(g: &Graph, y: &Output, xs: &[&Output], expected: &[&[f32]]) {
    let xs: Vec<Output> = xs.iter().map(|x| (*x).clone()).collect();
    let grads = g.gradients(&[y.clone()], &xs).unwrap();
    let outputs: Vec<Output> = grads.iter().map(dense).collect();
    let session = Session::new(g).unwrap();
    for _ in 0..3 {
        let values = session.run(&outputs.iter().collect::<Vec<_>>()).unwrap_or_else(|status| panic!("{status}"));
        for ((value, expected), x) in values.iter().zip(expected).zip(&xs) {
            let value = value.as_slice::<f32>().unwrap();
            assert_eq!(value.len(), expected.len());
            for (a, b) in value.iter().zip(*expected) {
                assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{}: {value:?} instead of {expected:?}", x.name());
            }
        }
    }
}

#[test]
fn a_conditional() {
    for (flag, expected_x, expected_w) in
        [(true, [6.0, -4.0], [1.0, 4.0]), (false, [0.419_974_33, 0.070_650_82], [0.0, 0.0])]
    {
        let g = Graph::new();
        let predicate =
            array::placeholder_with_default(&g.constant_tensor(&Tensor::scalar(flag)), &PartialShape::scalar());
        let (x, w) = (floats(&g, &[2], &[1.0, 2.0]), floats(&g, &[2], &[3.0, -1.0]));
        let y = g.cond(&predicate, |_| vec![&x * &x * &w], |_| vec![tanh(&x)]);
        check(&g, &y[0], &[&x, &w], &[&expected_x, &expected_w]);
    }
}

#[test]
fn a_loop_with_invariants() {
    let g = Graph::new();
    let (x, w) = (floats(&g, &[2], &[1.0, 2.0]), floats(&g, &[2], &[0.5, -0.7]));
    let b = g.constant_tensor(&Tensor::scalar(0.25f32));
    let four = int(&g, 4);
    let results = g.while_loop(
        &[int(&g, 0), x.clone()],
        |_, vars| less(&vars[0], &four),
        |_, vars| vec![&vars[0] + 1, &(&vars[1] * &vars[1]) * &w + &b],
    );
    check(&g, &results[1], &[&x, &w, &b], &[&[0.155_834_2, -1_070.661], &[0.536_062, 2_716.483], &[510.027_56]]);
}

#[test]
fn a_loop_in_a_loop() {
    let g = Graph::new();
    let (x, w) = (g.constant_tensor(&Tensor::scalar(1.1f32)), g.constant_tensor(&Tensor::scalar(0.9f32)));
    let three = int(&g, 3);
    let results = g.while_loop(
        &[int(&g, 0), x.clone()],
        |_, vars| less(&vars[0], &three),
        |g, vars| {
            let (i, x) = (&vars[0], &vars[1]);
            let inner = g.while_loop(
                &[int(g, 0), x.clone()],
                |_, vars| less(&vars[0], &(i + 1)),
                |_, vars| vec![&vars[0] + 1, &vars[1] * &w + x * 0.1],
            );
            vec![i + 1, &inner[1] * x]
        },
    );
    check(&g, &results[1], &[&x, &w], &[&[15.589_738], &[22.529_121]]);
}

#[test]
fn a_conditional_in_a_loop() {
    let g = Graph::new();
    let (x, w) = (floats(&g, &[2], &[1.1, 0.4]), floats(&g, &[2], &[0.9, 1.3]));
    let five = int(&g, 5);
    let results = g.while_loop(
        &[int(&g, 0), x.clone()],
        |_, vars| less(&vars[0], &five),
        |g, vars| {
            let (i, x) = (&vars[0], &vars[1]);
            let is_even = g.op("Equal").input(&(i % 2)).input(&int(g, 0)).output();
            let y = g.cond(&is_even, |_| vec![tanh(x) * &w * x], |_| vec![x + &(&w * &w)]);
            vec![i + 1, y[0].clone()]
        },
    );
    check(&g, &results[1], &[&x, &w], &[&[1.102_075_9, 1.785_975_2], &[8.036_097, 15.015_46]]);
}

#[test]
fn a_loop_in_a_conditional_in_a_loop() {
    let g = Graph::new();
    let (x, w) = (g.constant_tensor(&Tensor::scalar(1.1f32)), g.constant_tensor(&Tensor::scalar(0.9f32)));
    let (two, three) = (int(&g, 2), int(&g, 3));
    let results = g.while_loop(
        &[int(&g, 0), x.clone()],
        |_, vars| less(&vars[0], &three),
        |g, vars| {
            let (i, x) = (&vars[0], &vars[1]);
            let inner = |g: &Graph| {
                let results = g.while_loop(
                    &[int(g, 0), x.clone()],
                    |_, vars| less(&vars[0], &two),
                    |_, vars| vec![&vars[0] + 1, &vars[1] * &w * x],
                );
                vec![results[1].clone()]
            };
            let y = g.cond(&less(i, &two), inner, |_| vec![x * x]);
            vec![i + 1, y[0].clone()]
        },
    );
    check(&g, &results[1], &[&x, &w], &[&[16.858_858], &[18.315_8]]);
}

#[test]
fn rows_that_a_loop_gathers() {
    let g = Graph::new();
    let table = floats(&g, &[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let four = int(&g, 4);
    let results = g.while_loop(
        &[int(&g, 0), floats(&g, &[1, 2], &[1.0, 0.5])],
        |_, vars| less(&vars[0], &four),
        |g, vars| {
            let zero = int(g, 0);
            let row = g.op("ExpandDims").input(&(&vars[0] % 3)).input(&zero).output();
            vec![&vars[0] + 1, &vars[1] * &array::gather(&table, &row, 0)]
        },
    );
    check(&g, &results[1], &[&table], &[&[30.0, 48.0, 5.0, 12.0, 3.0, 8.0]]);
}

/// A recurrent network over three time steps: what it reads and what it returns are tensor arrays.
fn recurrent_network(g: &Graph, x: &Output, u: &Output, w: &Output, b: &Output) -> Output {
    let (three, zero) = (int(g, 3), int(g, 0));
    let steps = g.constant_tensor(&Tensor::vector(&[0i32, 1, 2]));
    let unknown = PartialShape::unknown();
    let array = |g: &Graph, shape: &PartialShape| {
        let op = g.op("TensorArrayV3").input(&three).attr("dtype", DType::Float).attr("element_shape", shape.clone());
        let op = op.attr("clear_after_read", false).build();
        (op.output(0), op.output(1))
    };
    let (inputs, flow) = array(g, &unknown);
    let inputs_flow = data_flow::tensor_array_scatter(&inputs, &steps, x, &flow);
    let (outputs, flow) = array(g, &PartialShape::from_dims(&[2, 3]));
    let state = floats(g, &[2, 3], &[0.0; 6]);
    let results = g.while_loop(
        &[zero, state, flow],
        |_, vars| less(&vars[0], &three),
        |_, vars| {
            let (t, h, flow) = (&vars[0], &vars[1], &vars[2]);
            let x = data_flow::tensor_array_read(&inputs, t, &inputs_flow, DType::Float);
            x.set_shape(&PartialShape::from_dims(&[2, 2])).unwrap();
            let h = tanh(&(math::matmul(&x, u) + math::matmul(h, w) + b));
            let flow = data_flow::tensor_array_write(&outputs, t, &h, flow);
            vec![t + 1, h, flow]
        },
    );
    let all =
        data_flow::tensor_array_gather(&outputs, &steps, &results[2], DType::Float, &PartialShape::from_dims(&[2, 3]));
    math::reduce_sum(&math::square(&(all - 0.5)), None, false)
}

#[test]
fn a_recurrent_network() {
    let g = Graph::new();
    let values: Vec<f32> = (0..12).map(|k| ((k * 37) % 11 - 5) as f32 * 0.1).collect();
    let x = floats(&g, &[3, 2, 2], &values);
    let u = floats(&g, &[2, 3], &[0.1, 0.2, 0.3, -0.4, 0.5, -0.6]);
    let w = floats(&g, &[3, 3], &[0.3, -0.1, 0.2, 0.1, 0.4, -0.2, 0.2, 0.1, 0.1]);
    let b = floats(&g, &[3], &[0.05, -0.05, 0.1]);
    let loss = recurrent_network(&g, &x, &u, &w, &b);
    check(
        &g,
        &loss,
        &[&u, &w, &b, &x],
        &[
            &[0.314_778_5, 0.009_493_828, 0.752_104, 0.143_374_62, 1.169_518_7, -0.236_690_9],
            &[
                -0.188_088_3,
                -0.523_890_73,
                -0.275_441_26,
                0.407_731_9,
                0.694_906_47,
                0.469_170_54,
                -0.275_350_57,
                -0.765_164_6,
                -0.419_683_64,
            ],
            &[-5.455_961, -9.178_902, -4.953_248_5],
            &[
                -0.946_457_74,
                0.674_403_07,
                -0.609_817_4,
                -0.338_078_38,
                -0.830_591_44,
                0.788_269,
                -0.758_332_4,
                0.025_754_154,
                -0.381_150_3,
                -0.029_941_976,
                -0.341_001_84,
                -0.555_523_16,
            ],
        ],
    );
}

#[test]
fn a_shape_that_changes_needs_an_invariant() {
    let grow = |g: &Graph, vars: &[Output]| {
        let axis = int(g, 0);
        let op = g.op("ConcatV2").input(&vars[1]).input(&vars[1]).input(&axis).attr("N", 2i64);
        vec![&vars[0] + 1, op.output() * 2.0]
    };
    let g = Graph::new();
    let x = floats(&g, &[1], &[3.0]);
    let three = int(&g, 3);
    let variables = [int(&g, 0), x.clone()];
    let status =
        g.try_while_loop(&variables, &LoopOptions::default(), |_, vars| less(&vars[0], &three), grow).unwrap_err();
    assert!(
        status.message().contains("enters the loop with shape [1], but has shape [2] after one iteration"),
        "{status}"
    );
    let options =
        LoopOptions { shape_invariants: vec![None, Some(PartialShape::new(&[None]))], ..LoopOptions::default() };
    let results = g.try_while_loop(&variables, &options, |_, vars| less(&vars[0], &three), grow).unwrap();
    check(&g, &results[1], &[&x], &[&[64.0]]);
}

#[test]
fn what_a_branch_leaves_alone_has_a_gradient_of_zeros_whatever_was_in_memory() {
    const COUNT: usize = 500;
    let g = Graph::new();
    let (x, y) = (floats(&g, &[COUNT as i64], &[1.0; COUNT]), floats(&g, &[COUNT as i64], &[1.0; COUNT]));
    let pick = g.constant(false);
    let picked = g.cond(&pick, |_| vec![&x * 2.0], |_| vec![&y * 2.0]).remove(0);
    // Leaves memory behind that isn't zero, for constants of the same size to be made in.
    let used: Vec<Tensor> = (0..64).map(|_| Tensor::vector(&[7f32; COUNT])).collect();
    drop(used);
    let grads = g.gradients(&[picked], &[x, y]).unwrap();
    let session = Session::new(&g).unwrap();
    let values = session.run(&[&dense(&grads[0]), &dense(&grads[1])]).unwrap();
    assert_eq!(values[0].to_vec::<f32>().unwrap(), [0.0; COUNT]);
    assert_eq!(values[1].to_vec::<f32>().unwrap(), [2.0; COUNT]);
}
