//! Every rule against TensorFlow 2.15's results for the same numbers, and the loops against each other.

// The digits are as TensorFlow printed them.
#![allow(clippy::excessive_precision)]

use super::*;

const VAR: [f32; 5] = [1.0, -2.0, 0.5, 0.0, 3.0];
const GRAD: [f32; 5] = [0.1, -0.2, 0.3, 0.4, 0.0];
const A: [f32; 5] = [0.1, 0.2, 0.3, 0.4, 0.5];
const B: [f32; 5] = [0.5, -0.4, 0.3, 0.2, 0.1];
const C: [f32; 5] = [0.05, 0.1, -0.1, 0.2, 0.3];

const ADAM: Adam<f32> =
    Adam { lr: 0.1, beta1_power: 0.9, beta2_power: 0.99, beta1: 0.9, beta2: 0.99, epsilon: 1e-4, use_nesterov: false };
const FTRL: Ftrl<f32> =
    Ftrl { lr: 0.1, l1: 0.03, l2: 0.2, l2_shrinkage: 0.0, lr_power: -0.5, multiply_linear_by_lr: false };

fn reversed(mut values: [f32; 5]) -> [f32; 5] {
    values.reverse();
    values
}

/// The variable and its slots, after `steps`.
fn start<const N: usize>(slots: &[[f32; 5]]) -> [[f32; 5]; N] {
    assert_eq!(slots.len(), N - 1);
    std::array::from_fn(|slot| if slot == 0 { VAR } else { slots[slot - 1] })
}

fn assert_close<const N: usize>(name: &str, values: &[[f32; 5]; N], expected: [[f32; 5]; N]) {
    for slot in 0..N {
        for (&value, &expected) in values[slot].iter().zip(&expected[slot]) {
            assert!(
                (value - expected).abs() <= 4e-6 * expected.abs().max(0.1),
                "{name}, slot {slot}: {value} {expected}"
            );
        }
    }
}

/// Two dense steps.
fn dense<const N: usize>(name: &str, rule: impl Rule<f32, N>, slots: &[[f32; 5]], expected: [[f32; 5]; N]) {
    let mut values: [[f32; 5]; N] = start(slots);
    for _ in 0..2 {
        apply_dense(&rule, &mut values.each_mut().map(|slot| Slot::in_place(slot.as_mut_slice())), &GRAD);
    }
    assert_close(name, &values, expected);
}

/// One sparse step, with a repeated row.
fn sparse<const N: usize>(name: &str, rule: impl Rule<f32, N>, slots: &[[f32; 5]], expected: [[f32; 5]; N]) {
    let mut values: [[f32; 5]; N] = start(slots);
    let mut slots = values.each_mut().map(|slot| Slot::in_place(slot.as_mut_slice()));
    apply_sparse(&rule, &mut slots, 1, &[3, 1, 3], &[0.1, -0.2, 0.3]);
    assert_close(name, &values, expected);
}

#[rustfmt::skip]
#[test]
fn dense_rules_equal_tensorflows() {
    dense("gradient_descent", GradientDescent { lr: 0.1 }, &[], [[0.980000019, -1.96000004, 0.439999998, -0.0800000057, 3.0]]);
    dense("proximal_gradient_descent_l1", ProximalGradientDescent { lr: 0.1, l1: 0.3, l2: 0.2 }, &[], [[0.883506477, -1.82525969, 0.364090741, -0.0194156151, 2.82525969]]);
    dense("proximal_gradient_descent", ProximalGradientDescent { lr: 0.1, l1: 0.0, l2: 0.2 }, &[], [[0.941753209, -1.88350642, 0.422337562, -0.0776624456, 2.8835063]]);
    dense("momentum", Momentum { lr: 0.1, momentum: 0.9, use_nesterov: false }, &[B], [[0.885500014, -1.87360001, 0.361699998, -0.150199994, 2.9828999], [0.595000029, -0.703999996, 0.813000023, 0.921999931, 0.0809999928]]);
    dense("momentum_nesterov", Momentum { lr: 0.1, momentum: 0.9, use_nesterov: true }, &[B], [[0.876950026, -1.84624004, 0.315529972, -0.215179995, 2.98461008], [0.595000029, -0.703999996, 0.813000023, 0.921999931, 0.0809999928]]);
    dense("keras_momentum", KerasMomentum { lr: 0.1, momentum: 0.9, use_nesterov: false }, &[B], [[1.82600009, -2.62599993, 0.925999999, 0.225999966, 3.171], [0.386000007, -0.285999954, 0.186000004, 0.0859999806, 0.0809999928]]);
    dense("keras_momentum_nesterov", KerasMomentum { lr: 0.1, momentum: 0.9, use_nesterov: true }, &[B], [[1.72340012, -2.52340007, 0.823400021, 0.123399958, 3.15390015], [0.386000007, -0.285999954, 0.186000004, 0.0859999806, 0.0809999928]]);
    dense("adagrad", Adagrad { lr: 0.1, update_slots: true }, &[A], [[0.940981328, -1.92137861, 0.408660263, -0.100592703, 3.0], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5]]);
    dense("adagrad_no_update", Adagrad { lr: 0.1, update_slots: false }, &[A], [[0.936754465, -1.91055727, 0.390455484, -0.126491114, 3.0], [0.100000001, 0.200000003, 0.300000012, 0.400000006, 0.5]]);
    dense("adagrad_v2", AdagradV2 { lr: 0.1, epsilon: 0.01, update_slots: true }, &[A], [[0.942673743, -1.92289639, 0.410033524, -0.099338755, 3.0], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5]]);
    dense("proximal_adagrad", ProximalAdagrad { lr: 0.1, l1: 0.3, l2: 0.2 }, &[A], [[0.674943805, -1.66603303, 0.296234548, -0.0242292434, 2.75584793], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5]]);
    dense("proximal_adagrad_no_l1", ProximalAdagrad { lr: 0.1, l1: 0.0, l2: 0.2 }, &[A], [[0.837471902, -1.77735531, 0.383562624, -0.0969169736, 2.83723187], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5]]);
    dense("adagrad_da", AdagradDa { lr: 0.1, l1: 0.03, l2: 0.2, global_step: 2.0 }, &[B, A], [[-0.165627122, 0.130018383, -0.114625648, -0.10579294, -0.00535398722], [0.700000048, -0.800000012, 0.900000036, 1.0, 0.100000001], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5]]);
    dense("adagrad_da_no_l1", AdagradDa { lr: 0.1, l1: 0.0, l2: 0.2, global_step: 2.0 }, &[B, A], [[-0.181154683, 0.140560433, -0.122813188, -0.112545677, -0.013384968], [0.700000048, -0.800000012, 0.900000036, 1.0, 0.100000001], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5]]);
    dense("adadelta", Adadelta { lr: 0.5, rho: 0.9, epsilon: 1e-4 }, &[A, reversed(A)], [[0.765707433, -1.70516169, 0.188918591, -0.291765928, 3.0], [0.0828999951, 0.16960001, 0.260100007, 0.354399979, 0.404999971], [0.415429622, 0.340516597, 0.261386603, 0.178174198, 0.0809999928]]);
    dense("adam", ADAM, &[B, A], [[0.718668342, -1.83312738, 0.389897555, -0.0727360696, 2.97564054], [0.423999965, -0.361999989, 0.300000012, 0.23800002, 0.0809999928], [0.0982090011, 0.196816012, 0.295821011, 0.395224005, 0.490050018]]);
    dense("adam_nesterov", Adam { use_nesterov: true, ..ADAM }, &[B, A], [[0.740435958, -1.84081841, 0.389897555, -0.0781667084, 2.9780767], [0.423999965, -0.361999989, 0.300000012, 0.23800002, 0.0809999928], [0.0982090011, 0.196816012, 0.295821011, 0.395224005, 0.490050018]]);
    dense("adam_amsgrad", AdamWithAmsgrad { adam: ADAM }, &[B, A, reversed(A)], [[0.875001311, -1.88269818, 0.390475571, -0.0726228207, 2.97569871], [0.423999965, -0.361999989, 0.300000012, 0.23800002, 0.0809999928], [0.0982090011, 0.196816012, 0.295821011, 0.395224005, 0.490050018], [0.5, 0.400000006, 0.300000012, 0.397599995, 0.495000005]]);
    dense("ada_max", AdaMax { lr: 0.1, beta1_power: 0.9, beta1: 0.9, beta2: 0.99, epsilon: 1e-4 }, &[B, A], [[-7.83116579, 1.70814478, -1.49933314, -1.14471364, 2.65296316], [0.423999965, -0.361999989, 0.300000012, 0.23800002, 0.0809999928], [0.100000001, 0.200000003, 0.300000012, 0.400000006, 0.490050018]]);
    dense("rms_prop", RmsProp { lr: 0.1, rho: 0.9, momentum: 0.5, epsilon: 1e-4 }, &[A, B], [[0.540592253, -1.58153117, 0.131008729, -0.315018058, 2.92499995], [0.0828999951, 0.169599995, 0.260100007, 0.354399979, 0.404999971], [0.176276252, -0.171856284, 0.162205234, 0.149793908, 0.0250000004]]);
    dense("centered_rms_prop", CenteredRmsProp { lr: 0.1, rho: 0.9, momentum: 0.5, epsilon: 1e-4 }, &[C, A, B], [[0.538981199, -1.58031499, 0.130388826, -0.328104556, 2.92499995], [0.0595000051, 0.0429999903, -0.0239999816, 0.23800002, 0.243000001], [0.0828999951, 0.169599995, 0.260100007, 0.354399979, 0.404999971], [0.177323148, -0.172439441, 0.16245535, 0.158229545, 0.0250000004]]);
    dense("ftrl", FTRL, &[A, B], [[-0.137715355, -0.00707321381, -0.0689458549, -0.117322899, -0.00936947763], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5], [0.562146127, 0.0702572167, 0.535249233, 1.07244682, 0.100000001]]);
    dense("ftrl_power", Ftrl { lr_power: -0.7, ..FTRL }, &[A, B], [[-0.208185732, -0.0174157135, -0.0714156404, -0.128620237, -0.0106776943], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5], [0.585204542, 0.108408004, 0.48579672, 1.10342729, 0.100000001]]);
    dense("ftrl_v2", Ftrl { l2_shrinkage: 0.05, ..FTRL }, &[A, B], [[-0.161030948, 0.0202064123, -0.0759854391, -0.116509132, -0.0488614999], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5], [0.652239919, -0.145004854, 0.586836696, 1.0652163, 0.395047575]]);
    dense("ftrl_v2_power", Ftrl { l2_shrinkage: 0.05, lr_power: -0.7, ..FTRL }, &[A, B], [[-0.23978512, 0.0185317881, -0.0798643753, -0.127653375, -0.0555783249], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5], [0.669476032, -0.113432735, 0.539719105, 1.09535813, 0.394356072]]);
    dense("ftrl_lr", Ftrl { multiply_linear_by_lr: true, ..FTRL }, &[A, B], [[-1.34849131, 0.660979986, -0.475266546, -0.345653236, -0.12983419], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5], [0.52407074, -0.379196912, 0.351284981, 0.310122639, 0.100000001]]);
    dense("ftrl_v2_lr_power", Ftrl { l2_shrinkage: 0.05, lr_power: -0.7, multiply_linear_by_lr: true, ..FTRL }, &[A, B], [[-1.94977212, 0.879705429, -0.556749403, -0.379415154, -0.190768838], [0.119999997, 0.280000001, 0.480000019, 0.720000029, 0.5], [0.52297914, -0.399055809, 0.35833469, 0.319648921, 0.128062755]]);
    dense("add_sign", AddSign { lr: 0.1, alpha: 1.0, sign_decay: 0.5, beta: 0.9 }, &[B], [[0.970000029, -1.94000006, 0.409999967, -0.120000005, 3.0], [0.423999965, -0.361999989, 0.300000012, 0.238000005, 0.0809999928]]);
    dense("power_sign", PowerSign { lr: 0.1, logbase: 1.2, sign_decay: 0.5, beta: 0.9 }, &[B], [[0.963557601, -1.9271152, 0.390672863, -0.145769522, 3.0], [0.423999965, -0.361999989, 0.300000012, 0.238000005, 0.0809999928]]);
}

#[rustfmt::skip]
#[test]
fn sparse_rules_equal_tensorflows() {
    sparse("sparse adagrad", Adagrad { lr: 0.1, update_slots: true }, &[A], [[1.0, -1.95917511, 0.5, -0.0580437891, 3.0], [0.100000001, 0.24000001, 0.300000012, 0.5, 0.5]]);
    sparse("sparse momentum_nesterov", Momentum { lr: 0.1, momentum: 0.9, use_nesterov: true }, &[B], [[1.0, -1.9296, 0.5, -0.114880003, 3.0], [0.5, -0.560000002, 0.300000012, 0.552000046, 0.100000001]]);
    sparse("sparse rms_prop", RmsProp { lr: 0.1, rho: 0.9, momentum: 0.5, epsilon: 1e-4 }, &[A, B], [[1.0, -1.75338745, 0.5, -0.22687155, 3.0], [0.100000001, 0.184, 0.300000012, 0.333899975, 0.5], [0.5, -0.246612579, 0.300000012, 0.110230282, 0.100000001]]);
    sparse("sparse centered", CenteredRmsProp { lr: 0.1, rho: 0.9, momentum: 0.5, epsilon: 1e-4 }, &[C, A, B], [[1.0, -1.75275445, 0.5, -0.23167786, 3.0], [0.0500000007, 0.0699999928, -0.100000001, 0.201000005, 0.300000012], [0.100000001, 0.184, 0.300000012, 0.333899975, 0.5], [0.5, -0.247245565, 0.300000012, 0.114136696, 0.100000001]]);
    sparse("sparse ftrl", FTRL, &[A, B], [[1.0, -0.0422133133, 0.5, -0.0798425525, 3.0], [0.100000001, 0.24000001, 0.300000012, 0.5, 0.5], [0.5, 0.253687501, 0.300000012, 0.62650913, 0.100000001]]);
    sparse("sparse ftrl_power", Ftrl { lr_power: -0.7, ..FTRL }, &[A, B], [[1.0, -0.0618390106, 0.5, -0.0926582664, 3.0], [0.100000001, 0.24000001, 0.300000012, 0.5, 0.5], [0.5, 0.282460451, 0.300000012, 0.637441814, 0.100000001]]);
    sparse("sparse ftrl_v2", Ftrl { l2_shrinkage: 0.05, ..FTRL }, &[A, B], [[1.0, -0.00447020261, 0.5, -0.0793113336, 3.0], [0.100000001, 0.24000001, 0.300000012, 0.5, 0.5], [0.5, 0.0536875129, 0.300000012, 0.622540355, 0.100000001]]);
    sparse("sparse proximal_adagrad", ProximalAdagrad { lr: 0.1, l1: 0.3, l2: 0.2 }, &[A], [[1.0, -1.8234942, 0.5, -0.0, 3.0], [0.100000001, 0.24000001, 0.300000012, 0.5, 0.5]]);
    sparse("sparse proximal_gradient_descent", ProximalGradientDescent { lr: 0.1, l1: 0.3, l2: 0.2 }, &[], [[1.0, -1.91176474, 0.5, -0.0, 3.0]]);
    sparse("sparse adadelta", Adadelta { lr: 0.5, rho: 0.9, epsilon: 1e-4 }, &[A, reversed(A)], [[1.0, -1.85257971, 0.5, -0.147537202, 3.0], [0.100000001, 0.184, 0.300000012, 0.333899975, 0.5], [0.5, 0.368693084, 0.300000012, 0.167366639, 0.100000001]]);
    sparse("sparse adagrad_da", AdagradDa { lr: 0.1, l1: 0.03, l2: 0.2, global_step: 2.0 }, &[B, A], [[1.0, 0.101906419, 0.5, -0.0722788274, 3.0], [0.5, -0.600000024, 0.300000012, 0.600000024, 0.100000001], [0.100000001, 0.24000001, 0.300000012, 0.5, 0.5]]);
}

#[test]
fn long_tensors_in_place_and_copied_give_the_same() {
    let len = 300_007;
    let grad: Vec<f32> = (0..len).map(|i| (i % 13) as f32 / 13.0 - 0.4).collect();
    let old: Vec<f32> = (0..len).map(|i| (i % 7) as f32).collect();
    let (mut var, mut m, mut v) = (old.clone(), vec![0.0; len], vec![0.0; len]);
    apply_dense(&ADAM, &mut [(&mut var[..]).into(), (&mut m[..]).into(), (&mut v[..]).into()], &grad);
    let (mut copy, mut m2, mut v2) = (vec![0.0; len], vec![0.0; len], vec![0.0; len]);
    apply_dense(&ADAM, &mut [Slot::copied(&old, &mut copy), (&mut m2[..]).into(), (&mut v2[..]).into()], &grad);
    assert!(copy == var && m == m2 && v == v2);
    for i in [0, 1, 15, 16, 17, 1000, len - 1] {
        let expected = ADAM.update([old[i], 0.0, 0.0], grad[i]);
        assert!((var[i] - expected[0]).abs() < 1e-6, "at {i}");
    }
}

#[test]
fn sparse_rows_meet_in_order_also_in_parallel() {
    let (rows, row_len) = (1000, 33);
    let indices: Vec<usize> = (0..20_000).map(|i| (i * 7919) % rows).collect();
    let grad: Vec<f64> = (0..indices.len() * row_len).map(|i| (i % 11) as f64 - 5.0).collect();
    let rule = Momentum { lr: 0.01, momentum: 0.5, use_nesterov: true };
    let mut var = vec![1.0f64; rows * row_len];
    let mut accum = vec![0.0f64; var.len()];
    let (mut slow_var, mut slow_accum) = (var.clone(), accum.clone());
    apply_sparse(&rule, &mut [(&mut var[..]).into(), (&mut accum[..]).into()], row_len, &indices, &grad);
    for (position, &row) in indices.iter().enumerate() {
        for column in 0..row_len {
            let at = row * row_len + column;
            [slow_var[at], slow_accum[at]] =
                rule.update([slow_var[at], slow_accum[at]], grad[position * row_len + column]);
        }
    }
    assert!(var == slow_var && accum == slow_accum);
}

#[test]
#[should_panic(expected = "a row outside")]
fn a_row_outside_is_refused() {
    apply_sparse(&GradientDescent { lr: 1.0 }, &mut [(&mut [0.0f32; 4][..]).into()], 2, &[2], &[1.0, 1.0]);
}

#[test]
fn the_loop_for_old_processors_does_the_same() {
    let numbers = |seed: usize| (0..53).map(|i| ((i * 37 + seed * 11) % 101) as f32 * 0.02 + 0.1).collect::<Vec<_>>();
    let grad = numbers(4);
    let mut expected = [numbers(1), numbers(2), numbers(3)];
    let mut found = expected.clone();
    apply_dense(&ADAM, &mut expected.each_mut().map(|slot| Slot::in_place(slot.as_mut_slice())), &grad);
    let mut slots = found.each_mut().map(|slot| Slot::in_place(slot.as_mut_slice()));
    let streams = Streams::<f32, 3>::new(&mut slots, grad.len(), &grad);
    // SAFETY: every slot has the length of the gradient.
    unsafe { update_range_shared(&ADAM, streams, 0, grad.len()) };
    for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
        assert!((found - expected).abs() <= 1e-6 * expected.abs(), "{found} {expected}");
    }
}
