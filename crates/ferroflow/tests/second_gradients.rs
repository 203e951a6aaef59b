//! Gradients of gradients through conditionals and loops. The expected numbers are TensorFlow's: for conditionals of the same
//! programs; for loops of the programs with the loops written out, since TensorFlow has no second gradients of loops.

use cluster::{ClusterSpec, EmbeddedCluster};
use ferroflow::ops::{array, data_flow, math};
use ferroflow::session::runtime;
use ferroflow::{DType, Graph, Output, PartialShape, Session, Tensor};
use proto::ConfigProto;

const X: [f32; 2] = [1.1, 0.4];
const W: [f32; 2] = [0.9, 1.3];

/// The gradients with respect to `x` and `w`.
type Pair<'a> = [&'a [f32]; 2];

fn floats(g: &Graph, dims: &[i64], values: &[f32]) -> Output {
    g.constant_tensor(&Tensor::from_slice(dims, values).unwrap())
}

fn int(g: &Graph, value: i32) -> Output {
    g.constant_tensor(&Tensor::scalar(value))
}

fn unary(op: &str, x: &Output) -> Output {
    x.graph().op(op).input(x).output()
}

fn tanh(x: &Output) -> Output {
    unary("Tanh", x)
}

fn sin(x: &Output) -> Output {
    unary("Sin", x)
}

fn less(x: &Output, y: &Output) -> Output {
    x.graph().op("Less").input(x).input(y).output()
}

/// Compares the gradients of `y` with respect to `x` and `w`, then those of the one with respect to `x`, then those of the
/// one of these with respect to `w`, and so on, for as many as are expected.
#[track_caller]
fn check(g: &Graph, y: &Output, x: &Output, w: &Output, expected: &[Pair<'_>]) {
    let mut y = y.clone();
    let mut all: Vec<(Output, &[f32])> = Vec::new();
    for (index, expected) in expected.iter().enumerate() {
        let grads = g.gradients(&[y], &[x.clone(), w.clone()]).unwrap_or_else(|status| panic!("{status}"));
        let grads: Vec<Output> = grads.iter().map(|grad| grad.as_ref().unwrap().to_dense()).collect();
        y = grads[index % 2].clone();
        all.extend(grads.into_iter().zip(expected.iter().copied()));
    }
    let session = Session::new(g).unwrap();
    // Together, and each alone: what the others need may not be what makes it right.
    let together: Vec<&Output> = all.iter().map(|(output, _)| output).collect();
    let run = |outputs: &[&Output]| session.run(outputs).unwrap_or_else(|status| panic!("{status}"));
    let mut found: Vec<Tensor> = run(&together);
    for output in &together {
        found.extend(run(&[output]));
    }
    for (index, value) in found.iter().enumerate() {
        let (output, expected) = &all[index % all.len()];
        let value = value.as_slice::<f32>().unwrap();
        assert_eq!(value.len(), expected.len(), "{}", output.name());
        for (a, b) in value.iter().zip(*expected) {
            let order = index % all.len() / 2 + 1;
            assert!((a - b).abs() <= 2e-5 * b.abs().max(1.0), "order {order}: {value:?} instead of {expected:?}");
        }
    }
}

fn flag(g: &Graph, value: bool) -> Output {
    array::placeholder_with_default(&g.constant_tensor(&Tensor::scalar(value)), &PartialShape::scalar())
}

/// Checks what `build` makes of a flag, `x` and `w`.
#[track_caller]
fn check_flag(
    build: impl Fn(&Graph, &Output, &Output, &Output) -> Output,
    on_true: &[Pair<'_>],
    on_false: &[Pair<'_>],
) {
    for (value, expected) in [(true, on_true), (false, on_false)] {
        let g = Graph::new();
        let (x, w) = (floats(&g, &[2], &X), floats(&g, &[2], &W));
        let y = build(&g, &flag(&g, value), &x, &w);
        check(&g, &y, &x, &w, expected);
    }
}

#[test]
fn a_conditional() {
    check_flag(
        |g, flag, x, w| g.cond(flag, |_| vec![tanh(&(x * w)) * x * x], |_| vec![sin(x) * w * x * w]).remove(0),
        &[
            [&[2.130_549_2, 0.542_695], &[0.567_541_54, 0.049_395_38]],
            [&[2.570_248_8, 2.361_362], &[0.774_138_4, 0.309_115_3]],
            [&[-0.743_228_85, 0.879_416_47], &[-2.628_698_3, -0.204_972_27]],
        ],
        &[
            [&[1.126_032_1, 1.280_754_1], &[1.764_590_6, 0.404_995_05]],
            [&[-0.059_240_16, 2.849_939], &[2.502_293_6, 1.970_391]],
            [&[-0.131_644_76, 4.384_522], &[2.780_326_1, 1.515_685_4]],
        ],
    );
}

#[test]
fn a_conditional_in_a_conditional() {
    check_flag(
        |g, flag, x, w| {
            let inner = |g: &Graph| {
                let one = g.constant_tensor(&Tensor::scalar(1f32));
                let is_large = less(&one, &math::reduce_sum(x, None, false));
                g.cond(&is_large, |_| vec![tanh(&(x * w)) * x * unary("Exp", w)], |_| vec![x.clone()])
            };
            &g.cond(flag, inner, |_| vec![sin(&(x * w)) * x * w])[0] * x * w
        },
        &[
            [&[4.716_274_7, 2.588_701_2], &[5.538_936, 0.880_659]],
            [&[5.689_612_4, 11.263_898], &[11.670_246, 6.054_516_3]],
            [&[10.366_161, 24.123_327], &[16.613_365, 10.811_068]],
        ],
        &[
            [&[1.973_792_2, 0.976_837_64], &[2.412_412_6, 0.300_565_42]],
            [&[2.450_634_5, 4.502_949_7], &[5.188_322, 2.136_936_7]],
            [&[3.475_295, 9.240_882], &[4.247_583, 2.843_348]],
        ],
    );
}

#[test]
fn a_conditional_whose_result_is_used_twice() {
    check_flag(
        |g, flag, x, w| {
            let y = g.cond(flag, |_| vec![tanh(&(x * w)) * x], |_| vec![x * x * w * w]).remove(0);
            &y * &y * sin(&y)
        },
        &[
            [&[2.004_948_1, 0.095_311_06], &[0.877_020_84, 0.013_389_434]],
            [&[4.789_128, 1.031_523], &[2.351_088_3, 0.172_253_98]],
            [&[0.126_483_02, 1.650_385_3], &[-5.250_262, 0.114_944_72]],
        ],
        &[
            [&[3.854_544_2, 0.290_566_7], &[4.711_109_6, 0.089_405_15]],
            [&[13.179_018, 3.572_466_9], &[20.390_516, 1.322_733_6]],
            [&[47.167_69, 16.077_463], &[57.649_395, 4.946_912]],
        ],
    );
}

#[test]
fn a_gradient_in_a_branch() {
    check_flag(
        |g, flag, x, w| {
            let inner = |g: &Graph| {
                let grads = g.gradients(&[tanh(&(x * w)) * x * x * w], &[x.clone()]).unwrap();
                vec![grads[0].as_ref().unwrap().to_dense()]
            };
            g.cond(flag, inner, |_| vec![x * x * w * w]).remove(0)
        },
        &[
            [&[2.313_223_8, 3.069_770_6], &[2.827_273_6, 0.944_544_8]],
            [&[-0.547_286_5, 3.715_534_2], &[1.901_342_6, 3.504_603_4]],
        ],
        &[[&[1.782, 1.352], &[2.178, 0.416]], [&[1.62, 3.38], &[3.96, 2.08]]],
    );
}

/// Checks what `build` makes of `x` and `w`.
#[track_caller]
fn check_loop(build: impl Fn(&Graph, &Output, &Output) -> Output, expected: &[Pair<'_>]) {
    let g = Graph::new();
    let (x, w) = (floats(&g, &[2], &X), floats(&g, &[2], &W));
    let y = build(&g, &x, &w);
    check(&g, &y, &x, &w, expected);
}

/// Runs `step` on `start` as often as `count` says; it is also given the number of the iteration.
fn repeat(g: &Graph, count: &Output, start: &Output, step: impl FnOnce(&Graph, &Output, &Output) -> Output) -> Output {
    let variables = [int(g, 0), start.clone()];
    let results = g.while_loop(
        &variables,
        |_, vars| less(&vars[0], count),
        |g, vars| vec![&vars[0] + 1, step(g, &vars[0], &vars[1])],
    );
    results[1].clone()
}

#[test]
fn a_conditional_and_its_gradient_in_one_sum() {
    check_loop(
        |g, x, w| {
            let y = g.cond(&flag(g, true), |_| vec![tanh(&(x * w)) * x], |_| vec![x.clone()]).remove(0);
            let z = &y * &y * w;
            let grad = g.gradients(&[z.clone()], &[x.clone()]).unwrap()[0].as_ref().unwrap().to_dense();
            z + grad
        },
        &[
            [&[4.560_935, 3.195_045_2], &[4.880_423_5, 0.946_579_3]],
            [&[2.400_966, 11.029_526], &[6.036_939, 5.515_495_3]],
            [&[-4.936_652_7, 11.154_867], &[-9.825_54, 2.779_407_5]],
        ],
    );
}

/// TensorFlow says that there is no second gradient: the only way to it is over the values that the loop kept.
#[test]
fn a_loop_that_takes_nothing_from_outside() {
    let g = Graph::new();
    let x = floats(&g, &[2], &X);
    let three = int(&g, 3);
    let mut y = repeat(&g, &three, &x, |_, _, v| v * v * 0.5);
    // The loop computes (x / 2) to the power of 8, times 2: each further gradient is one factor and one half more.
    let mut factor = 2.0;
    for order in 0..5 {
        y = g.gradients(&[y], &[x.clone()]).unwrap()[0].as_ref().unwrap().to_dense();
        factor *= (8 - order) as f64 / 2.0;
        let value = Session::new(&g).unwrap().run(&[&y]).unwrap();
        for (found, x) in value[0].as_slice::<f32>().unwrap().iter().zip(X) {
            let expected = factor * (f64::from(x) / 2.0).powi(7 - order);
            assert!((f64::from(*found) / expected - 1.0).abs() < 1e-5, "order {}: {found}, not {expected}", order + 1);
        }
    }
}

#[test]
fn a_loop_with_an_invariant() {
    check_loop(
        |g, x, w| repeat(g, &int(g, 3), x, |_, _, v| tanh(&(v * w)) * v),
        &[
            [&[1.054_313_4, 0.050_594_483], &[1.028_118_7, 0.013_406_776]],
            [&[2.678_592_9, 0.755_007_15], &[3.273_835_7, 0.232_309_91]],
            [&[-0.369_308_95, 3.246_238_5], &[-4.088_973, 0.820_142_75]],
        ],
    );
}

#[test]
fn a_loop_in_a_loop() {
    check_loop(
        |g, x, w| repeat(g, &int(g, 3), x, |g, i, x| repeat(g, &(i + 1), x, |_, _, v| v * w + sin(&(x * v)) * 0.1) * x),
        &[
            [&[9.653_771, 0.299_900_65], &[15.695_279, 0.121_198_77]],
            [&[-13.170_319, 5.552_438], &[24.602_068, 2.524_953]],
            [&[-900.500_9, 46.858_025], &[-951.454_7, 19.380_781]],
        ],
    );
}

#[test]
fn a_conditional_in_a_loop() {
    check_loop(
        |g, x, w| {
            repeat(g, &int(g, 5), x, |g, i, x| {
                let is_even = g.op("Equal").input(&(i % 2)).input(&int(g, 0)).output();
                g.cond(&is_even, |_| vec![tanh(x) * w * x], |_| vec![x + &(w * w * sin(x))]).remove(0)
            })
        },
        &[
            [&[2.546_905, 11.201_092], &[9.035_439, 7.003_404]],
            [&[-4.367_166, 76.831_665], &[3.032_287_4, 72.186_005]],
            [&[-33.136_63, -54.459_183], &[-67.032_95, 135.820_68]],
        ],
    );
}

#[test]
fn a_loop_in_a_conditional_in_a_loop() {
    check_loop(
        |g, x, w| {
            let two = int(g, 2);
            repeat(g, &int(g, 3), x, |g, i, x| {
                let inner = |g: &Graph| vec![repeat(g, &two, x, |_, _, v| v * w * sin(x))];
                g.cond(&less(i, &two), inner, |_| vec![x * x]).remove(0)
            })
        },
        &[
            [&[0.600_302_6, 0.000_142_464_44], &[0.953_056_45, 0.000_040_440_926]],
            [&[4.787_459_4, 0.005_778_209], &[9.390_334, 0.001_749_307_8]],
            [&[69.535_43, 0.070_890_725], &[130.282_93, 0.020_121_334]],
        ],
    );
}

#[test]
fn rows_that_a_loop_gathers() {
    let g = Graph::new();
    let x = floats(&g, &[3, 2], &[1.0, 0.2, 0.3, 0.4, 0.5, 0.6]);
    let w = floats(&g, &[1, 2], &[1.0, 0.5]);
    let y = repeat(&g, &int(&g, 4), &w, |g, i, v| {
        let row = g.op("ExpandDims").input(&(i % 3)).input(&int(g, 0)).output();
        v * v * array::gather(&x, &row, 0)
    });
    check(
        &g,
        &y,
        &x,
        &w,
        &[
            [&[0.018_225_003, 0.0, 0.027_000_003, 0.0, 0.008_1, 0.0], &[0.032_400_005, 0.0]],
            [&[0.461_700_05, 0.0, 0.621_000_05, 0.0, 0.197_100_01, 0.0], &[0.853_200_1, 0.0]],
            [&[7.387_201_8, 0.0, 9.936_001, 0.0, 3.153_600_2, 0.0], &[12.798_002, 0.0]],
        ],
    );
}

/// What the network reads and what it returns are tensor arrays.
#[test]
fn a_recurrent_network() {
    let g = Graph::new();
    let values: Vec<f32> = (0..12).map(|k| ((k * 37) % 11 - 5) as f32 * 0.1).collect();
    let x = floats(&g, &[3, 2, 2], &values);
    let u = floats(&g, &[2, 3], &[0.1, 0.2, 0.3, -0.4, 0.5, -0.6]);
    let w = floats(&g, &[3, 3], &[0.3, -0.1, 0.2, 0.1, 0.4, -0.2, 0.2, 0.1, 0.1]);
    let b = floats(&g, &[3], &[0.05, -0.05, 0.1]);
    let three = int(&g, 3);
    let steps = g.constant_tensor(&Tensor::vector(&[0i32, 1, 2]));
    let array = || {
        let op =
            g.op("TensorArrayV3").input(&three).attr("dtype", DType::Float).attr("clear_after_read", false).build();
        (op.output(0), op.output(1))
    };
    let (inputs, flow) = array();
    let inputs_flow = data_flow::tensor_array_scatter(&inputs, &steps, &x, &flow);
    let (outputs, flow) = array();
    let results = g.while_loop(
        &[int(&g, 0), floats(&g, &[2, 3], &[0.0; 6]), flow],
        |_, vars| less(&vars[0], &three),
        |_, vars| {
            let (t, h, flow) = (&vars[0], &vars[1], &vars[2]);
            let x = data_flow::tensor_array_read(&inputs, t, &inputs_flow, DType::Float);
            x.set_shape(&PartialShape::from_dims(&[2, 2])).unwrap();
            let h = tanh(&(math::matmul(&x, &u) + math::matmul(h, &w) + &b));
            let flow = data_flow::tensor_array_write(&outputs, t, &h, flow);
            vec![t + 1, h, flow]
        },
    );
    let shape = PartialShape::from_dims(&[2, 3]);
    let all = data_flow::tensor_array_gather(&outputs, &steps, &results[2], DType::Float, &shape);
    let loss = math::reduce_sum(&math::square(&(all - 0.5)), None, false);
    check(
        &g,
        &loss,
        &x,
        &w,
        &[
            [
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
            ],
            [
                &[
                    0.060_739_964,
                    2.042_322_6,
                    -0.020_817_578,
                    1.809_52,
                    0.187_981_49,
                    2.642_814_4,
                    -0.124_894_02,
                    2.188_748_4,
                    -0.012_133_777,
                    2.089_062_7,
                    -0.142_542_57,
                    1.188_156_1,
                ],
                &[
                    0.701_538_8,
                    2.237_136_8,
                    0.590_694_8,
                    -1.959_266_8,
                    -5.404_231_5,
                    -1.622_737_9,
                    0.672_748_7,
                    2.792_859_6,
                    0.428_559_15,
                ],
            ],
        ],
    );
}

/// Each iteration has a gradient of its own, with respect to what it starts with and to what comes from outside.
#[test]
fn a_gradient_in_a_loop() {
    check_loop(
        |g, x, w| {
            repeat(g, &int(g, 3), x, |g, _, v| {
                let y = sin(&(v * w)) * v;
                let grads = g.gradients(&[y], &[v.clone(), w.clone()]).unwrap();
                let [by_v, by_w] = [0, 1].map(|index| grads[index].as_ref().unwrap().to_dense());
                v - by_v * 0.1 + by_w * 0.05
            })
        },
        &[
            [&[0.932_936_9, 0.532_402_9], &[-0.268_133_9, -0.123_808_295]],
            [&[0.370_717_7, 0.524_450_54], &[0.134_783_94, -0.244_262_26]],
        ],
    );
}

/// The gradient with respect to something in a branch is there when the branch is taken, as in TensorFlow.
#[test]
fn with_respect_to_something_in_a_branch() {
    let g = Graph::new();
    let (x, w) = (floats(&g, &[2], &X), floats(&g, &[2], &W));
    let mut inner = None;
    let on_true = |g: &Graph| {
        let product = &x * &w;
        inner = Some(product.clone());
        g.cond(&flag_in(g), |_| vec![sin(&product) * &x], |_| vec![product.clone()])
    };
    let y = g.cond(&flag(&g, true), on_true, |_| vec![x.clone()]).remove(0);
    let inner = inner.unwrap();
    let grads = g.gradients(&[y], &[inner.clone(), x.clone()]).unwrap();
    let outputs: Vec<Output> = grads.iter().map(|grad| grad.as_ref().unwrap().to_dense()).collect();
    let values = Session::new(&g).unwrap().run(&[&outputs[0], &outputs[1]]).unwrap();
    for index in 0..2 {
        let (x, w) = (X[index], W[index]);
        let by_inner = (x * w).cos() * x;
        assert!((values[0].as_slice::<f32>().unwrap()[index] - by_inner).abs() < 1e-6, "{values:?}");
        let by_x = by_inner * w + (x * w).sin();
        assert!((values[1].as_slice::<f32>().unwrap()[index] - by_x).abs() < 1e-6, "{values:?}");
    }
}

fn flag_in(g: &Graph) -> Output {
    less(&int(g, 1), &int(g, 2))
}

/// The loop and what it multiplies with are on different tasks.
#[test]
fn a_loop_on_two_tasks() {
    let spec = ClusterSpec::new().with_job("worker", &["localhost:0"]).unwrap();
    let spec = spec.with_job("ps", &["localhost:1"]).unwrap();
    let cluster = EmbeddedCluster::start(&spec, ferroflow::ops::registry(), runtime().unwrap()).unwrap();
    let g = Graph::new();
    let x = floats(&g, &[2], &X);
    let w = g.device("/job:ps/task:0", |g| floats(g, &[2], &W));
    let three = int(&g, 3);
    let y = repeat(&g, &three, &x, |g, _, v| {
        let product = g.device("/job:ps/task:0", |_| v * &w);
        g.device("/job:worker/task:0", |_| tanh(&product) * v)
    });
    let mut grad = y;
    for target in [&x, &w] {
        grad = g.gradients(&[grad], &[target.clone()]).unwrap()[0].as_ref().unwrap().to_dense();
    }
    let session = Session::on_master(&g, cluster.master("worker", 0).unwrap(), ConfigProto::default()).unwrap();
    for _ in 0..3 {
        let found = session.run(&[&grad]).unwrap_or_else(|status| panic!("{status}"));
        for (found, expected) in found[0].as_slice::<f32>().unwrap().iter().zip([3.273_835_7, 0.232_309_91f32]) {
            assert!((found - expected).abs() < 1e-4, "{found} instead of {expected}");
        }
    }
    session.close().unwrap();
}
