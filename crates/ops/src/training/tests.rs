//! Tests of all optimizers: every form of every op compared with TensorFlow's results, and common properties.

use super::*;
use crate::registry;
use crate::state::{assign, assign_variable_op, var_handle_op, variable_op_v2};
use crate::testing::{TestSession, attrs, check_shape, infer};
use graph::{OpLookup, Operation, Output};
use kernel::Variable;
use std::sync::Arc;
use tensor::{Code, DType, Element, PartialShape, Result, Tensor, bf16, f16};

/// An op with one attribute, and the values of the variable and its slots after one step.
struct Case {
    op: &'static str,
    attr: Option<(&'static str, bool)>,
    expected: &'static [[f32; 6]],
}

const fn case(op: &'static str, attr: Option<(&'static str, bool)>, expected: &'static [[f32; 6]]) -> Case {
    Case { op, attr, expected }
}

/// TensorFlow's results for the inputs of [`Run`].
const CASES: &[Case] = &[
    case(
        "ResourceApplyAdaMax",
        None,
        &[
            [0.7647059, -2.2143757, 2.7578204, -0.74390244, 0.040915653, 1.7539432],
            [0.28, 0.33999997, 0.48, 0.58000004, 0.5799999, 0.78000003],
            [0.59400004, 0.792, 0.99, 1.1880001, 1.386, 1.584],
        ],
    ),
    case(
        "ResourceApplyAdadelta",
        None,
        &[
            [0.98513544, -1.9703722, 2.9557452, -0.55873597, 0.3230697, 1.9127432],
            [0.271, 0.364, 0.459, 0.55600005, 0.655, 0.756],
            [0.54220957, 0.72877806, 0.91958475, 1.1144992, 1.3133918, 1.5161374],
        ],
    ),
    case(
        "ResourceApplyAdagrad",
        None,
        &[
            [0.98203945, -1.9698489, 2.9609432, -0.5458832, 0.30129892, 1.9442914],
            [0.31, 0.44, 0.59000003, 0.76000005, 0.95, 1.1600001],
        ],
    ),
    case(
        "ResourceApplyAdagrad",
        Some(("update_slots", false)),
        &[[0.98174256, -1.9683772, 2.9575737, -0.5516398, 0.30976143, 1.932918], [0.3, 0.4, 0.5, 0.6, 0.7, 0.8]],
    ),
    case(
        "ResourceApplyAdagradDA",
        None,
        &[
            [-0.047012486, -0.018427882, -0.07333119, -0.082751065, -0.013172951, -0.09743955],
            [0.4, 0.2, 0.8, 1.0, 0.19999999, 1.4000001],
            [0.61, 0.84000003, 1.09, 1.36, 1.65, 1.96],
        ],
    ),
    case(
        "ResourceApplyAdagradV2",
        None,
        &[
            [0.9820717, -1.9698943, 2.960994, -0.5458306, 0.30124635, 1.9443431],
            [0.31, 0.44, 0.59000003, 0.76000005, 0.95, 1.1600001],
        ],
    ),
    case(
        "ResourceApplyAdagradV2",
        Some(("update_slots", false)),
        &[[0.9817759, -1.9684272, 2.9576335, -0.5515732, 0.3096901, 1.9329929], [0.3, 0.4, 0.5, 0.6, 0.7, 0.8]],
    ),
    case(
        "ResourceApplyAdam",
        None,
        &[
            [0.94263655, -2.060324, 2.923834, -0.5840039, 0.17223993, 1.9021976],
            [0.28, 0.33999997, 0.48, 0.58000004, 0.5799999, 0.78000003],
            [0.59410006, 0.7924, 0.9909, 1.1896001, 1.3885, 1.5876],
        ],
    ),
    case(
        "ResourceApplyAdam",
        Some(("use_nesterov", true)),
        &[
            [0.9463242, -2.050743, 2.9266903, -0.5813969, 0.1867194, 1.9044546],
            [0.28, 0.33999997, 0.48, 0.58000004, 0.5799999, 0.78000003],
            [0.59410006, 0.7924, 0.9909, 1.1896001, 1.3885, 1.5876],
        ],
    ),
    case(
        "ResourceApplyAdamWithAmsgrad",
        None,
        &[
            [0.9533825, -2.04903, 2.938083, -0.56830275, 0.18676046, 1.9204429],
            [0.28, 0.33999997, 0.48, 0.58000004, 0.5799999, 0.78000003],
            [0.59410006, 0.7924, 0.9909, 1.1896001, 1.3885, 1.5876],
            [0.90000004, 1.2, 1.5, 1.8000001, 2.1, 2.4],
        ],
    ),
    case(
        "ResourceApplyAddSign",
        None,
        &[[0.992, -2.012, 2.976, -0.532, 0.22, 1.952], [0.26000002, 0.28000003, 0.46, 0.56, 0.46, 0.76000005]],
    ),
    case(
        "ResourceApplyCenteredRMSProp",
        None,
        &[
            [0.17531317, -3.05438, 1.6136091, -2.165865, -1.5886902, -0.22437859],
            [0.28, 0.33999997, 0.48, 0.58000004, 0.5799999, 0.78000003],
            [0.541, 0.724, 0.909, 1.096, 1.285, 1.476],
            [0.8246868, 1.05438, 1.3863909, 1.6658651, 1.8386902, 2.2243786],
        ],
    ),
    case(
        "ResourceApplyFtrl",
        None,
        &[
            [-0.10689842, -0.18092963, 0.067377806, -0.23703624, -0.05568234, 0.13340178],
            [0.31, 0.44, 0.59000003, 0.76000005, 0.95, 1.1600001],
            [0.6094612, 1.2173885, -0.53023386, 2.0859156, 0.55495155, -1.4521173],
        ],
    ),
    case(
        "ResourceApplyFtrl",
        Some(("multiply_linear_by_lr", true)),
        &[
            [-1.069849, -1.2598643, -1.0956621, -1.470223, -1.3431314, -1.1968074],
            [0.31, 0.44, 0.59000003, 0.76000005, 0.95, 1.1600001],
            [0.6009461, 0.8417389, 0.84697664, 1.2885916, 1.3154951, 1.2947884],
        ],
    ),
    case(
        "ResourceApplyFtrlV2",
        None,
        &[
            [-0.11759786, -0.16294739, 0.04406521, -0.23361073, -0.057215016, 0.12230128],
            [0.31, 0.44, 0.59000003, 0.76000005, 0.95, 1.1600001],
            [0.66946113, 1.0973885, -0.3502339, 2.0559156, 0.56995153, -1.3321172],
        ],
    ),
    case(
        "ResourceApplyFtrlV2",
        Some(("multiply_linear_by_lr", true)),
        &[
            [-1.0805484, -1.241882, -1.1189747, -1.4667975, -1.3446641, -1.2079079],
            [0.31, 0.44, 0.59000003, 0.76000005, 0.95, 1.1600001],
            [0.6069461, 0.82973886, 0.86497664, 1.2855916, 1.3169951, 1.3067883],
        ],
    ),
    case("ResourceApplyGradientDescent", None, &[[0.99, -1.98, 2.97, -0.54, 0.3, 1.94]]),
    case(
        "ResourceApplyKerasMomentum",
        None,
        &[[1.26, -1.62, 3.42, 0.0, 0.93, 2.6599998], [0.26000002, 0.38, 0.42, 0.5, 0.68, 0.65999997]],
    ),
    case(
        "ResourceApplyKerasMomentum",
        Some(("use_nesterov", true)),
        &[[1.224, -1.638, 3.348, -0.09, 0.912, 2.534], [0.26000002, 0.38, 0.42, 0.5, 0.68, 0.65999997]],
    ),
    case(
        "ResourceApplyMomentum",
        None,
        &[[0.963, -2.016, 2.925, -0.594, 0.237, 1.868], [0.37, 0.15999998, 0.75, 0.94000006, 0.13, 1.3199999]],
    ),
    case(
        "ResourceApplyMomentum",
        Some(("use_nesterov", true)),
        &[
            [0.95669997, -1.9944, 2.9025, -0.6246, 0.2883, 1.8212],
            [0.37, 0.15999998, 0.75, 0.94000006, 0.13, 1.3199999],
        ],
    ),
    case(
        "ResourceApplyPowerSign",
        None,
        &[
            [0.9768363, -1.9913658, 2.930509, -0.5926547, 0.27158552, 1.861018],
            [0.26000002, 0.28000003, 0.46, 0.56, 0.46, 0.76000005],
        ],
    ),
    case(
        "ResourceApplyProximalAdagrad",
        None,
        &[
            [0.9767348, -1.9624243, 2.951955, -0.54348916, 0.29965806, 1.9397608],
            [0.31, 0.44, 0.59000003, 0.76000005, 0.95, 1.1600001],
        ],
    ),
    case(
        "ResourceApplyProximalGradientDescent",
        None,
        &[[0.987026, -1.97505, 2.963074, -0.5379242, 0.29840323, 1.9351298]],
    ),
    case(
        "ResourceApplyRMSProp",
        None,
        &[
            [0.44082588, -2.6868958, 2.0557675, -1.6335961, -0.94826686, 0.49103904],
            [0.271, 0.364, 0.459, 0.556, 0.655, 0.756],
            [0.5591741, 0.6868957, 0.9442326, 1.1335961, 1.1982669, 1.508961],
        ],
    ),
    case(
        "ResourceSparseApplyAdadelta",
        None,
        &[
            [0.9560479, -2.058305, 3.0, -0.5, 0.23511118, 2.0297205],
            [0.279, 0.376, 0.5, 0.6, 0.631, 0.724],
            [0.5593179, 0.7539947, 1.0, 1.2, 1.2622168, 1.448833],
        ],
    ),
    case(
        "ResourceSparseApplyAdagrad",
        None,
        &[[0.9519616, -2.0534523, 3.0, -0.5, 0.23813218, 2.0218217], [0.39000002, 0.56, 0.5, 0.6, 0.71, 0.84000003]],
    ),
    case(
        "ResourceSparseApplyAdagrad",
        Some(("update_slots", false)),
        &[[0.94522774, -2.0632455, 3.0, -0.5, 0.23804772, 2.0223608], [0.3, 0.4, 0.5, 0.6, 0.7, 0.8]],
    ),
    case(
        "ResourceSparseApplyAdagradDA",
        None,
        &[
            [-0.06812784, -0.07810949, 3.0, -0.5, -0.064519696, -0.04430196],
            [0.6, 0.8, 0.5, 0.6, 0.8, 0.6],
            [0.69000006, 0.96000004, 1.0, 1.2, 1.41, 1.64],
        ],
    ),
    case(
        "ResourceSparseApplyAdagradV2",
        None,
        &[[0.95203835, -2.053381, 3.0, -0.5, 0.23814625, 2.021798], [0.39000002, 0.56, 0.5, 0.6, 0.71, 0.84000003]],
    ),
    case(
        "ResourceSparseApplyAdagradV2",
        Some(("update_slots", false)),
        &[[0.9453276, -2.0631456, 3.0, -0.5, 0.23806198, 2.0223358], [0.3, 0.4, 0.5, 0.6, 0.7, 0.8]],
    ),
    case(
        "ResourceSparseApplyCenteredRMSProp",
        None,
        &[
            [0.14576739, -3.132659, 3.0, -0.5, -1.6508311, -0.13953424],
            [0.3, 0.4, 0.5, 0.6, 0.64, 0.7],
            [0.549, 0.736, 1.0, 1.2, 1.261, 1.4439999],
            [0.8542326, 1.132659, 1.5, 1.8000001, 1.9008311, 2.1395342],
        ],
    ),
    case(
        "ResourceSparseApplyFtrl",
        None,
        &[
            [-0.019447554, -0.4662199, 3.0, -0.5, -0.17423655, -0.103011906],
            [0.39000002, 0.56, 0.5, 0.6, 0.71, 0.84000003],
            [0.13222784, 3.5175192, 1.0, 1.2, 1.4851127, 0.9582402],
        ],
    ),
    case(
        "ResourceSparseApplyFtrl",
        Some(("multiply_linear_by_lr", true)),
        &[
            [-0.87863636, -1.4232448, 3.0, -0.5, -1.6625164, -1.6673533],
            [0.39000002, 0.56, 0.5, 0.6, 0.71, 0.84000003],
            [0.5532228, 1.071752, 1.0, 1.2, 1.4085113, 1.5358241],
        ],
    ),
    case(
        "ResourceSparseApplyFtrlV2",
        None,
        &[
            [-0.028994096, -0.4502695, 3.0, -0.5, -0.17600831, -0.11604808],
            [0.39000002, 0.56, 0.5, 0.6, 0.71, 0.84000003],
            [0.19222784, 3.397519, 1.0, 1.2, 1.5001127, 1.0782402],
        ],
    ),
    case(
        "ResourceSparseApplyFtrlV2",
        Some(("multiply_linear_by_lr", true)),
        &[
            [-0.888183, -1.4072945, 3.0, -0.5, -1.6642882, -1.6803894],
            [0.39000002, 0.56, 0.5, 0.6, 0.71, 0.84000003],
            [0.5592228, 1.059752, 1.0, 1.2, 1.4100113, 1.547824],
        ],
    ),
    case(
        "ResourceSparseApplyKerasMomentum",
        None,
        &[[1.24, -1.6800001, 3.0, -0.5, 0.87, 2.74], [0.24000001, 0.32, 0.5, 0.6, 0.62, 0.73999995]],
    ),
    case(
        "ResourceSparseApplyKerasMomentum",
        Some(("use_nesterov", true)),
        &[[1.186, -1.752, 3.0, -0.5, 0.798, 2.6859999], [0.24000001, 0.32, 0.5, 0.6, 0.62, 0.73999995]],
    ),
    case(
        "ResourceSparseApplyMomentum",
        None,
        &[[0.943, -2.076, 3.0, -0.5, 0.17699999, 1.948], [0.57000005, 0.76, 0.5, 0.6, 0.73, 0.52]],
    ),
    case(
        "ResourceSparseApplyMomentum",
        Some(("use_nesterov", true)),
        &[[0.9187, -2.1084, 3.0, -0.5, 0.1743, 1.9732], [0.57000005, 0.76, 0.5, 0.6, 0.73, 0.52]],
    ),
    case(
        "ResourceSparseApplyProximalAdagrad",
        None,
        &[[0.9473264, -2.046646, 3.0, -0.5, 0.23638432, 2.016331], [0.39000002, 0.56, 0.5, 0.6, 0.71, 0.84000003]],
    ),
    case(
        "ResourceSparseApplyProximalGradientDescent",
        None,
        &[[0.96706593, -2.0349302, 3.0, -0.5, 0.23852295, 2.01497]],
    ),
    case(
        "ResourceSparseApplyRMSProp",
        None,
        &[
            [0.4033053, -2.7851462, 3.0, -0.5, -1.0225788, 0.5834888],
            [0.279, 0.376, 0.5, 0.6, 0.631, 0.724],
            [0.5966947, 0.78514624, 1.0, 1.2, 1.2725788, 1.4165112],
        ],
    ),
];

/// The values of the hyper-parameters by name.
fn hyper_parameter(name: &str) -> f64 {
    match name {
        "lr" | "alpha" => 0.1,
        "rho" | "momentum" | "beta1" | "beta2_power" => 0.9,
        "epsilon" => 1e-3,
        "beta2" => 0.99,
        "beta1_power" | "beta" => 0.8,
        "l1" => 0.01,
        "l2" => 0.02,
        "l2_shrinkage" => 0.03,
        "lr_power" => -0.5,
        "sign_decay" => 0.7,
        "logbase" => 1.2,
        other => panic!("no value for {other}"),
    }
}

/// A graph with one step of an optimizer.
struct Run {
    session: TestSession,
    step: Operation,
    feeds: Vec<(Output, Tensor)>,
    variables: Vec<Arc<Variable>>,
}

impl Run {
    fn new<T: Element>(op: &str, attr: Option<(&str, bool)>, from: impl Fn(f64) -> T) -> Run {
        let session = TestSession::new();
        let numbers = |dims: &[i64], values: &[f64]| {
            Tensor::from_slice(dims, &values.iter().map(|&value| from(value)).collect::<Vec<T>>()).unwrap()
        };
        let schema = &registry().op(op).unwrap().schema;
        let sparse = schema.inputs.iter().any(|arg| arg.name == "indices");
        let (mut inputs, mut feeds, mut variables) = (Vec::new(), Vec::new(), Vec::new());
        for arg in &schema.inputs {
            let by_handle = arg.ty == graph::ArgType::Fixed(DType::Resource);
            if arg.is_ref || by_handle {
                let index = variables.len();
                let start: [f64; 6] = match index {
                    0 => [1.0, -2.0, 3.0, -0.5, 0.25, 2.0],
                    _ => [0.3, 0.4, 0.5, 0.6, 0.7, 0.8].map(|value| f64::from(value as f32 * index as f32)),
                };
                let value = session.placeholder(T::DTYPE);
                let feed = [(&value, numbers(&[3, 2], &start))];
                let shape = PartialShape::from_dims(&[3, 2]);
                let variable = if by_handle {
                    let handle = var_handle_op(&session.graph, &arg.name, T::DTYPE, &shape);
                    session.run(&assign_variable_op(&handle, &value), &feed).unwrap();
                    handle
                } else {
                    let variable = variable_op_v2(&session.graph, &arg.name, T::DTYPE, &shape);
                    session.run(&assign(&variable, &value).op, &feed).unwrap();
                    variable
                };
                variables.push(session.step.resources.lookup::<Variable>("", &arg.name).unwrap());
                inputs.push(variable);
                continue;
            }
            let feed = match arg.name.as_str() {
                "grad" | "delta" if sparse => numbers(&[2, 2], &[0.1, -0.2, 0.3, 0.4]),
                "grad" | "delta" => numbers(&[3, 2], &[0.1, -0.2, 0.3, 0.4, -0.5, 0.6]),
                "indices" => Tensor::vector(&[2i32, 0]),
                "global_step" => Tensor::scalar(3i64),
                name => numbers(&[], &[hyper_parameter(name)]),
            };
            let input = session.placeholder(feed.dtype());
            feeds.push((input.clone(), feed));
            inputs.push(input);
        }
        let mut builder = session.graph.op(op).inputs(&inputs);
        if let Some((name, value)) = attr {
            builder = builder.attr(name, value);
        }
        Run { step: builder.build(), session, feeds, variables }
    }

    fn run(&self) -> Result<()> {
        let feeds: Vec<_> = self.feeds.iter().map(|(input, value)| (input, value.clone())).collect();
        self.session.run(&self.step, &feeds).map(|_| ())
    }

    /// Replaces the feed of an input.
    fn feed(&mut self, input: &str, value: Tensor) {
        let position = self.step_input(input);
        let edge = self.step.input(position).edge();
        let feed = self.feeds.iter_mut().find(|(output, _)| output.edge() == edge).unwrap();
        feed.1 = value;
    }

    fn step_input(&self, name: &str) -> usize {
        let schema = &registry().op(&self.step.op_type()).unwrap().schema;
        schema.inputs.iter().position(|arg| arg.name == name).unwrap()
    }

    fn check<T: Element>(&self, expected: &[[f32; 6]], tolerance: f64, to: impl Fn(T) -> f64) {
        assert_eq!(self.variables.len(), expected.len());
        for (variable, expected) in self.variables.iter().zip(expected) {
            let value = variable.read().unwrap();
            for (&value, &expected) in value.as_slice::<T>().unwrap().iter().zip(expected) {
                let (value, expected) = (to(value), f64::from(expected));
                let close = (value - expected).abs() <= tolerance * (1.0 + expected.abs());
                assert!(close, "{} of {}: {value} instead of {expected}", variable.name(), self.step.op_type());
            }
        }
    }
}

#[test]
fn every_op_computes_what_tensorflow_computes() {
    for Case { op, attr, expected } in CASES {
        // Those by ref have the same name without the first word.
        for op in [*op, op.trim_start_matches("Resource")] {
            if registry().op(op).is_none() {
                continue;
            }
            let single = Run::new::<f32>(op, *attr, |value| value as f32);
            single.run().unwrap();
            single.check::<f32>(expected, 1e-6, f64::from);
            let double = Run::new::<f64>(op, *attr, |value| value);
            double.run().unwrap();
            double.check::<f64>(expected, 2e-6, |value| value);
            let half = Run::new::<f16>(op, *attr, f16::from_f64);
            half.run().unwrap();
            half.check::<f16>(expected, 1e-2, f64::from);
            let brain = Run::new::<bf16>(op, *attr, bf16::from_f64);
            brain.run().unwrap();
            brain.check::<bf16>(expected, 6e-2, f64::from);
        }
    }
}

#[test]
fn all_ops_are_among_the_cases() {
    let tested: Vec<&str> = CASES.iter().map(|case| case.op.trim_start_matches("Resource")).collect();
    for op in FILES.iter().flat_map(|ops| ops.iter()) {
        assert!(tested.contains(&op.def.name.trim_start_matches("Resource")), "{} has no case", op.def.name);
    }
}

#[test]
fn a_reader_keeps_the_old_value_and_who_is_alone_updates_in_place() {
    let run = Run::new::<f32>("ResourceApplyAdam", None, |value| value as f32);
    let address = |variable: &Variable| variable.read_with(|t| Ok(t.as_slice::<f32>()?.as_ptr().addr())).unwrap();
    let before: Vec<usize> = run.variables.iter().map(|variable| address(variable)).collect();
    let held = run.variables[0].read().unwrap();
    run.run().unwrap();
    assert_eq!(held.as_slice::<f32>().unwrap()[0], 1.0);
    assert_ne!(address(&run.variables[0]), before[0]);
    assert_eq!(address(&run.variables[1]), before[1]);
    drop(held);
    let before = address(&run.variables[0]);
    run.run().unwrap();
    assert_eq!(address(&run.variables[0]), before);
}

#[test]
fn rows_are_updated_in_place_even_while_somebody_reads() {
    let run = Run::new::<f32>("SparseApplyAdagrad", None, |value| value as f32);
    run.run().unwrap();
    let address = || run.variables[0].read_with(|t| Ok(t.as_slice::<f32>()?.as_ptr().addr())).unwrap();
    let before = address();
    let held = run.variables[0].read().unwrap();
    run.run().unwrap();
    assert_eq!(address(), before);
    assert_ne!(held.as_slice::<f32>().unwrap()[0], run.variables[0].read().unwrap().as_slice::<f32>().unwrap()[0]);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let message = |op: &str, input: &str, value: Tensor| {
        let mut run = Run::new::<f32>(op, None, |value| value as f32);
        run.feed(input, value);
        run.run().unwrap_err().message().to_owned()
    };
    assert_eq!(
        message("ResourceApplyGradientDescent", "delta", Tensor::vector(&[1f32])),
        "var and delta do not have the same shape[3,2] [1]"
    );
    assert_eq!(message("ApplyGradientDescent", "alpha", Tensor::vector(&[1f32, 2.0])), "alpha is not a scalar: [2]");
    assert_eq!(
        message("ApplyAdam", "grad", Tensor::vector(&[1f32])),
        "var and grad do not have the same shape[3,2] [1]"
    );
    let row = || Tensor::from_slice(&[1, 2], &[1f32, 2.0]).unwrap();
    assert_eq!(
        message("SparseApplyMomentum", "grad", row()),
        "grad must be the same size as indices in the first dimension."
    );
    assert_eq!(
        message("SparseApplyMomentum", "indices", Tensor::vector(&[7i32, 0])),
        "Index 7 at offset 0 in indices is out of range"
    );
    assert_eq!(
        message("ResourceSparseApplyKerasMomentum", "indices", Tensor::vector(&[7i32, 0])),
        "indices[0] = 7 is not in [0, 3)"
    );
    let wide = Tensor::from_slice(&[2, 3], &[0f32; 6]).unwrap();
    assert_eq!(message("SparseApplyAdagrad", "grad", wide), "var and grad must match in dimension 1");
    assert_eq!(
        message("SparseApplyFtrl", "l1", Tensor::scalar(-1f32)),
        "l1 regularization strength is not a non-negative scalar: []"
    );
    assert_eq!(
        message("SparseApplyFtrl", "lr", Tensor::scalar(-1f32)),
        "lr is not a positive scalar (or zero if multiply_linear_by_lr is set): []"
    );
    assert_eq!(
        message("SparseApplyFtrl", "lr_power", Tensor::scalar(1f32)),
        "lr_power is not a non-positive scalar: []"
    );
}

#[test]
fn variables_without_a_value_or_used_twice_are_errors() {
    let run = Run::new::<f32>("ApplyMomentum", None, |value| value as f32);
    run.variables[1].clear();
    let status = run.run().unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::FailedPrecondition, "Attempting to use uninitialized value accum")
    );
    let session = TestSession::new();
    let variable = variable_op_v2(&session.graph, "v", DType::Float, &PartialShape::scalar());
    let value = session.placeholder(DType::Float);
    let feeds = [(&value, Tensor::scalar(1f32))];
    session.run(&assign(&variable, &value).op, &feeds).unwrap();
    let twice = apply_momentum(&variable, &variable, &value, &value, &value);
    assert_eq!(session.run(&twice.op, &feeds).unwrap_err().code(), Code::InvalidArgument, "and not a deadlock");
}

#[test]
fn shapes() {
    check_shape("ApplyAdagrad", attrs![], "[2,?];[?,3];[];[2,3]", "[2,3]");
    check_shape("SparseApplyAdagrad", attrs![("Tindices", DType::Int32)], "[5,3];[5,?];[];[2,3];[2]", "[5,3]");
    assert!(infer("ApplyAdagrad", attrs![], "[2];[2];[1];[2]", &[]).is_err());
    assert!(infer("SparseApplyAdagrad", attrs![("Tindices", DType::Int32)], "[5,3];[5,3];[];[2,4];[2]", &[]).is_err());
}
