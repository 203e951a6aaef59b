//! The generator and the distributions against values that TensorFlow 2.15 produced.

// The digits are as TensorFlow printed them.
#![allow(clippy::excessive_precision)]

use super::*;
use half::{bf16, f16};

/// `seed`, `seed2`, and for each of two runs the seven numbers that an op with these seeds gave.
struct Golden<T, const N: usize> {
    seeds: [i64; 2],
    runs: [[T; N]; 2],
}

#[rustfmt::skip]
const UNIFORM_F32: [Golden<f32, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [0.406396747, 0.857599616, 0.0553958416, 0.0858722925, 0.412153602, 0.0366308689, 0.65721333],
        [0.432612896, 0.86896801, 0.266647577, 0.602451921, 0.88338232, 0.247508764, 0.327224374],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [0.387851, 0.845198631, 0.0087685585, 0.153224468, 0.764719129, 0.312288404, 0.535177112],
        [0.271085978, 0.554859757, 0.110478044, 0.850708842, 0.968344092, 0.764729023, 0.334648848],
    ] },
];

#[rustfmt::skip]
const UNIFORM_F64: [Golden<f64, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [0.2511744980841868, 0.44316677020093853, 0.2972296290781924, 0.2577066944684787, 0.9527181182843207, 0.8291687913947399, 0.5467094415652871],
        [0.46090345060260596, 0.13318065293589965, 0.06705912248698764, 0.6177953117668469, 0.13577060612491687, 0.4944281613281649, 0.8463250124658188],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [0.10280873597636564, 0.07014916120697645, 0.11775339639240578, 0.28141725135279305, 0.06286063581270196, 0.7275641006424944, 0.7834759365801418],
        [0.16868849202033087, 0.8838247039368541, 0.7467536847381462, 0.6771913517480783, 0.3631854296434227, 0.3832056505420598, 0.7981978833207073],
    ] },
];

#[rustfmt::skip]
const UNIFORM_F16: [Golden<f32, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [0.2021484375, 0.4560546875, 0.802734375, 0.4658203125, 0.3623046875, 0.080078125, 0.8916015625],
        [0.96484375, 0.5859375, 0.376953125, 0.2861328125, 0.66796875, 0.591796875, 0.6220703125],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [0.275390625, 0.8671875, 0.83203125, 0.21484375, 0.5791015625, 0.2666015625, 0.1708984375],
        [0.736328125, 0.4111328125, 0.0361328125, 0.0068359375, 0.6748046875, 0.66015625, 0.443359375],
    ] },
];

#[rustfmt::skip]
const UNIFORM_BF16: [Golden<f32, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [0.6171875, 0.6484375, 0.421875, 0.7265625, 0.8984375, 0.640625, 0.1328125],
        [0.71875, 0.6875, 0.015625, 0.2890625, 0.34375, 0.734375, 0.9765625],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [0.203125, 0.9375, 0.65625, 0.71875, 0.6328125, 0.1328125, 0.3671875],
        [0.890625, 0.2890625, 0.2890625, 0.0546875, 0.3984375, 0.28125, 0.546875],
    ] },
];

#[rustfmt::skip]
const NORMAL_F32: [Golden<f32, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [-1.04677927, 0.839704573, 1.23583639, 2.06378531, 0.303742707, 1.29632509, 0.4801929],
        [-0.949402511, 0.880033493, -0.975849509, -1.30052781, 0.497929335, 0.00779465027, 0.393590927],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [-1.13736439, 0.775029063, 2.52617264, 1.75829959, 0.677074075, -0.279399276, 0.732548296],
        [-0.54597497, -1.52070713, -1.69262934, 1.24132311, -0.252559185, 0.0234400574, -0.95388937],
    ] },
];

#[rustfmt::skip]
const NORMAL_F64: [Golden<f64, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [0.58105877128258, -1.557429113677359, 1.555896998265924, -0.07539950171215416, -0.27352397455564637, 0.14851612905214345, -0.7035089949936238],
        [0.9241497920918946, 0.8337149075190603, -1.5677589010087805, -1.7165352531622127, 0.06994726208202519, -1.9971691101620124, -0.47914552583265674],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [0.9100037269469069, 1.9291612466189667, 2.0282422052597338, -0.405658676244683, -2.3290406547336793, -0.3305145903599739, -0.6366530175323131],
        [-1.2580725958523382, 1.4059361146131835, -0.6856417746490785, -0.33754278531668686, 0.9531984604882255, -1.0569277147862692, 0.4219627536306597],
    ] },
];

#[rustfmt::skip]
const NORMAL_F16: [Golden<f32, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [-1.046875, 0.83984375, 1.2353515625, 2.064453125, 0.3037109375, 1.2958984375, 0.480224609375],
        [-0.94921875, 0.8798828125, -0.97607421875, -1.30078125, 0.498046875, 0.007793426513671875, 0.3935546875],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [-1.1376953125, 0.77490234375, 2.525390625, 1.7578125, 0.67724609375, -0.279296875, 0.732421875],
        [-0.5458984375, -1.5205078125, -1.6923828125, 1.2412109375, -0.25244140625, 0.0234375, -0.9541015625],
    ] },
];

#[rustfmt::skip]
const NORMAL_BF16: [Golden<f32, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [-1.046875, 0.83984375, 1.234375, 2.0625, 0.3046875, 1.296875, 0.48046875],
        [-0.94921875, 0.87890625, -0.9765625, -1.296875, 0.498046875, 0.00778198242, 0.39453125],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [-1.140625, 0.7734375, 2.53125, 1.7578125, 0.67578125, -0.279296875, 0.734375],
        [-0.546875, -1.5234375, -1.6953125, 1.2421875, -0.251953125, 0.0234375, -0.953125],
    ] },
];

#[rustfmt::skip]
const TRUNCATED_NORMAL_F32: [Golden<f32, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [-1.04677927, 0.839704573, 1.23583639, 0.303742707, 0.388690919, 1.23670471, 0.240398034],
        [-0.949402511, 0.880033493, -0.975849509, -1.30052781, -0.303848684, -0.289082408, 0.127511308],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [-1.13736439, 0.775029063, 1.75829959, 0.677074075, -0.0437924564, 0.461730152, 0.41380775],
        [-0.54597497, -1.52070713, -1.69262934, 1.24132311, -0.594199777, 0.550718665, -0.272777706],
    ] },
];

#[rustfmt::skip]
const TRUNCATED_NORMAL_F64: [Golden<f64, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [0.58105877128258, -1.557429113677359, -1.1295845092323191, -0.5156530039692888, -1.1279218571369347, -0.558978533853913, 1.0048697831995255],
        [0.9241497920918946, 0.8337149075190603, -0.32568824244383376, 1.0502830770300289, -0.5241590551349047, -0.6296296527861643, -0.9042234547900319],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [0.9100037269469069, 1.9291612466189667, 1.451525478546525, 0.9614570774903732, 1.593033312611582, 0.9195736068787437, 0.13874931915687058],
        [-1.2580725958523382, 1.4059361146131835, -0.8252971107575658, -1.1641771956192033, -0.20882919108941544, 0.7073813604067312, -0.6490617246836868],
    ] },
];

#[rustfmt::skip]
const TRUNCATED_NORMAL_F16: [Golden<f32, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [-1.046875, 0.83984375, 1.2353515625, 0.3037109375, 0.388671875, 1.236328125, 0.2403564453125],
        [-0.94921875, 0.8798828125, -0.97607421875, -1.30078125, -0.303955078125, -0.2890625, 0.1275634765625],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [-1.1376953125, 0.77490234375, 1.7578125, 0.67724609375, -0.043792724609375, 0.461669921875, 0.413818359375],
        [-0.5458984375, -1.5205078125, -1.6923828125, 1.2412109375, -0.59423828125, 0.55078125, -0.272705078125],
    ] },
];

#[rustfmt::skip]
const TRUNCATED_NORMAL_BF16: [Golden<f32, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [-1.046875, 0.83984375, 1.234375, 0.3046875, 0.388671875, 1.234375, 0.240234375],
        [-0.94921875, 0.87890625, -0.9765625, -1.296875, -0.3046875, -0.2890625, 0.127929688],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [-1.140625, 0.7734375, 1.7578125, 0.67578125, -0.0437011719, 0.4609375, 0.4140625],
        [-0.546875, -1.5234375, -1.6953125, 1.2421875, -0.59375, 0.55078125, -0.2734375],
    ] },
];

#[rustfmt::skip]
const INTEGERS_I32: [Golden<i32, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [589, 75, 702, 259, 921, 216, 653],
        [132, 680, 40, 637, 824, 434, 801],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [18, 60, 586, 126, 413, 561, 165],
        [996, 301, 843, 573, 309, 598, 900],
    ] },
];

#[rustfmt::skip]
const INTEGERS_I64: [Golden<i64, 7>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [990248697952289, 669816833407726, 932863528786167, 969556795881481, 733656294702983, 861645925015518, 606758917250946],
        [656224799230492, 223967161812812, 556551258041368, 439558414561217, 572582781643851, 492945630232117, 893111140861228],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [826313813719038, 232984360719242, 924389443292319, 447213042397671, 867388561953398, 765071128587464, 604895121857336],
        [357859037394812, 121451205564291, 152356834125837, 843627797554752, 901669818455359, 902299842539198, 813618492038621],
    ] },
];

#[rustfmt::skip]
const SHUFFLED: [Golden<i32, 10>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [9, 0, 8, 6, 1, 3, 7, 2, 4, 5],
        [8, 7, 4, 3, 2, 1, 9, 5, 6, 0],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [8, 7, 6, 1, 3, 2, 9, 0, 4, 5],
        [8, 6, 4, 1, 0, 2, 5, 7, 3, 9],
    ] },
];

#[rustfmt::skip]
const MULTINOMIAL: [Golden<i64, 12>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [1, 2, 1, 1, 2, 2, 3, 3, 3, 3, 1, 3],
        [2, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [1, 0, 1, 1, 0, 2, 3, 3, 3, 3, 3, 1],
        [2, 1, 1, 1, 2, 2, 3, 3, 3, 3, 1, 3],
    ] },
];

#[rustfmt::skip]
const GAMMA: [Golden<f64, 9>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [0.014439557851346523, 1.2996736500592585, 1.141082807716981, 0.19106529193912436, 1.9279517711936067, 0.1429246894673842, 0.1917163381668231, 0.5654965077289306, 0.9428698131513098],
        [0.03615254555568427, 2.5964911876549053, 0.7954414204793143, 0.0009152151871124601, 3.022822204282805, 0.5413060373239378, 0.0276982598196684, 3.937904809147877, 0.9066721721490394],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [0.06568456196905424, 0.9816444379970903, 0.05926125689397972, 0.01809997341768468, 0.737847553909023, 2.152655055590448, 0.4716091960334005, 0.5553504899558485, 3.0859389707581957],
        [0.2544086284206001, 1.3882067400505622, 0.5393107510832276, 0.5653733552918878, 5.989707757306365, 0.9721263846482175, 2.539362622943353, 0.5948256985160332, 1.0553134721554727],
    ] },
];

#[rustfmt::skip]
const POISSON: [Golden<f64, 12>; 2] = [
    Golden { seeds: [1, 2], runs: [
        [0.0, 1.0, 52.0, 1.0, 2.0, 53.0, 0.0, 2.0, 45.0, 0.0, 2.0, 51.0],
        [0.0, 2.0, 50.0, 0.0, 3.0, 54.0, 1.0, 3.0, 37.0, 0.0, 4.0, 44.0],
    ] },
    Golden { seeds: [123456789012345, 987654321098765], runs: [
        [0.0, 4.0, 53.0, 0.0, 6.0, 44.0, 0.0, 1.0, 58.0, 0.0, 4.0, 46.0],
        [0.0, 3.0, 63.0, 0.0, 6.0, 54.0, 0.0, 3.0, 47.0, 0.0, 6.0, 62.0],
    ] },
];

fn check<T: Copy, U: Copy + PartialEq + std::fmt::Debug, const N: usize>(
    golden: &[Golden<U, N>],
    reserve: impl Fn(&mut GuardedPhilox) -> Philox,
    fill: impl Fn(Philox) -> Vec<T>,
    convert: impl Fn(T) -> U,
) {
    for golden in golden {
        let mut generator = GuardedPhilox::new(golden.seeds[0], golden.seeds[1]);
        for run in golden.runs {
            let values: Vec<U> = fill(reserve(&mut generator)).into_iter().map(&convert).collect();
            assert_eq!(values, run, "seeds {:?}", golden.seeds);
        }
    }
}

fn seven<T: Copy + Default>(fill: impl Fn(Philox, &mut [T])) -> impl Fn(Philox) -> Vec<T> {
    move |philox| {
        let mut out = vec![T::default(); 7];
        fill(philox, &mut out);
        out
    }
}

fn outputs(generator: &mut GuardedPhilox) -> Philox {
    generator.reserve_outputs(7)
}

#[test]
fn uniform_numbers_equal_tensorflows() {
    check(&UNIFORM_F32, outputs, seven(fill_uniform::<f32>), |x| x);
    check(&UNIFORM_F64, outputs, seven(fill_uniform::<f64>), |x| x);
    check(&UNIFORM_F16, outputs, seven(fill_uniform::<f16>), f16::to_f32);
    check(&UNIFORM_BF16, outputs, seven(fill_uniform::<bf16>), bf16::to_f32);
}

#[test]
fn normal_numbers_equal_tensorflows() {
    check(&NORMAL_F32, outputs, seven(fill_standard_normal::<f32>), |x| x);
    check(&NORMAL_F64, outputs, seven(fill_standard_normal::<f64>), |x| x);
    check(&NORMAL_F16, outputs, seven(fill_standard_normal::<f16>), f16::to_f32);
    check(&NORMAL_BF16, outputs, seven(fill_standard_normal::<bf16>), bf16::to_f32);
}

#[test]
fn truncated_normal_numbers_equal_tensorflows() {
    check(&TRUNCATED_NORMAL_F32, outputs, seven(fill_truncated_normal::<f32>), |x| x);
    check(&TRUNCATED_NORMAL_F64, outputs, seven(fill_truncated_normal::<f64>), |x| x);
    check(&TRUNCATED_NORMAL_F16, outputs, seven(fill_truncated_normal::<f16>), f16::to_f32);
    check(&TRUNCATED_NORMAL_BF16, outputs, seven(fill_truncated_normal::<bf16>), bf16::to_f32);
}

#[test]
fn integers_equal_tensorflows() {
    check(&INTEGERS_I32, outputs, seven(|philox, out| fill_uniform_integers(philox, -10i32, 1000, out)), |x| x);
    let high = 1_000_000_000_000_000;
    check(&INTEGERS_I64, outputs, seven(|philox, out| fill_uniform_integers(philox, -10i64, high, out)), |x| x);
}

#[test]
fn shuffling_equals_tensorflows() {
    let shuffled = |philox| shuffled_indices(philox, 10);
    check(&SHUFFLED, |generator| generator.reserve_samples32(9), shuffled, |index| index as i32);
}

#[test]
fn multinomial_equals_tensorflows() {
    let logits = [0.0f32, 1.0, 2.0, -1.0, 1.0, 0.0, 0.0, 3.0];
    let draw = |philox| {
        let mut out = vec![0i64; 12];
        multinomial(philox, &logits, 4, 6, &mut out, |class| class as i64);
        out
    };
    // Two rows of six draws, rounded up to eight, two samples each.
    check(&MULTINOMIAL, |generator| generator.reserve_outputs(2 * 8 * 2), draw, |x| x);
}

#[test]
fn gamma_and_poisson_numbers_equal_tensorflows() {
    let gamma = |philox| {
        let mut out = vec![0.0; 9];
        random_gamma(philox, &[0.5, 2.0, 1.0], 3, &mut out);
        out
    };
    check(&GAMMA, |generator| generator.reserve_outputs(9), gamma, |x| x);
    let poisson = |philox| {
        let mut out = vec![0.0; 12];
        random_poisson(philox, &[0.5, 3.0, 50.0], 4, &mut out);
        out
    };
    check(&POISSON, |generator| generator.reserve_outputs(12), poisson, |x| x);
}

#[test]
fn long_outputs_equal_tensorflows() {
    let philox = Philox::from_seeds(5, 6);
    let check = |fill: fn(Philox, &mut [f32]), tail: [f32; 5], sum: f64| {
        let mut out = vec![0.0f32; 1001];
        fill(philox, &mut out);
        assert_eq!(out[996..], tail);
        assert!((out.iter().map(|&x| f64::from(x)).sum::<f64>() - sum).abs() < 1e-9);
    };
    check(fill_uniform, [0.274_369_24, 0.859_884_26, 0.745_911_1, 0.201_682_45, 0.646_963_83], 497.991_753_578_186_04);
    check(
        fill_truncated_normal,
        [-0.660_064_8, -0.973_438_86, 0.370_021_46, 0.935_772_4, -1.529_370_5],
        -49.375_539_280_474_186,
    );
    check(
        fill_standard_normal,
        [-1.239_945_5, 1.024_254, 0.730_685_3, 0.228_903_29, -0.925_686],
        -19.419_459_500_408_266,
    );
}

#[test]
fn threads_do_not_change_the_numbers() {
    let philox = Philox::from_seeds(9, 9);
    let mut whole = vec![0.0f32; 300_001];
    fill_uniform(philox, &mut whole);
    let mut tail = vec![0.0f32; 10];
    let mut later = philox;
    later.skip(70_000);
    fill_uniform(later, &mut tail);
    assert_eq!(whole[280_000..280_010], tail);
}

#[test]
fn stateless_seeds_are_scrambled_as_in_tensorflow() {
    let philox = Philox::from_stateless_seed([11, 22]);
    let mut out = [0.0f32; 5];
    fill_uniform(philox, &mut out);
    assert_eq!(out, [0.167_626_02, 0.835_568_3, 0.866_870_5, 0.987_342_1, 0.071_953_535]);
    fill_standard_normal(philox, &mut out);
    assert_eq!(out, [-1.623_342_9, 0.967_882_87, -0.042_468_09, 0.532_848_7, -1.438_706]);
}

#[test]
fn skipping_carries_through_the_counter() {
    let mut philox = Philox::from_state([u64::MAX, 7], 3);
    let words = philox.samples::<4>(0);
    let expected: Vec<[u32; 4]> = (0..4).map(|_| philox.next_sample()).collect();
    assert_eq!(philox.counter(), [3, 8]);
    for lane in 0..4 {
        assert_eq!(words.map(|word| word[lane]), expected[lane]);
    }
}
