//! Reductions against the naive loop over every element.

use super::*;
use half::f16;

/// Folds the inputs of each output, which it finds by index arithmetic.
fn naive<T: Copy, A: Copy>(a: &[T], dims: &[usize], axes: &[usize], start: A, step: impl Fn(A, T) -> A) -> Vec<A> {
    let out_len = dims.iter().enumerate().filter(|(axis, _)| !axes.contains(axis)).map(|(_, &size)| size).product();
    let mut out = vec![start; out_len];
    for (index, &value) in a.iter().enumerate() {
        let mut rest = index;
        let mut target = 0;
        let mut stride = 1;
        for axis in (0..dims.len()).rev() {
            if !axes.contains(&axis) {
                target += rest % dims[axis] * stride;
                stride *= dims[axis];
            }
            rest /= dims[axis];
        }
        out[target] = step(out[target], value);
    }
    out
}

const SHAPES: &[&[usize]] = &[
    &[],
    &[1],
    &[9],
    &[5000],
    &[3, 1],
    &[7, 33],
    &[300, 10],
    &[70_000, 3],
    &[4, 200_000],
    &[300, 300],
    &[3, 4, 5],
    &[2, 3, 4, 5],
    &[5, 600, 7],
    &[3, 40, 5, 6, 7],
    &[0, 3],
    &[3, 0],
];

fn for_each_case(mut body: impl FnMut(&[usize], &[usize])) {
    for dims in SHAPES {
        for mask in 0..1usize << dims.len() {
            let axes: Vec<usize> = (0..dims.len()).filter(|axis| mask >> axis & 1 == 1).collect();
            body(dims, &axes);
        }
    }
}

#[test]
fn sums_and_means_equal_the_naive_ones() {
    for_each_case(|dims, axes| {
        let plan = ReducePlan::new(dims, axes);
        let a: Vec<f32> = (0..plan.in_len()).map(|i| ((i * 7919) % 1000) as f32 / 8.0).collect();
        let expected = naive(&a, dims, axes, 0.0f64, |sum, x| sum + f64::from(x));
        let mut out = vec![0.0f32; plan.out_len()];
        reduce::<Sum, f32>(&a, &mut out, &plan);
        for (&value, &expected) in out.iter().zip(&expected) {
            assert!((f64::from(value) - expected).abs() <= expected * 1e-7, "{dims:?} {axes:?} {value} {expected}");
        }
        reduce::<Mean, f32>(&a, &mut out, &plan);
        for (&value, &expected) in out.iter().zip(&expected) {
            let mean = (expected / plan.reduced_len() as f64) as f32;
            assert!(value == mean || (value - mean).abs() <= mean * 1e-6 || value.is_nan() && mean.is_nan());
        }
    });
}

#[test]
fn integers_and_extremes_equal_the_naive_ones() {
    for_each_case(|dims, axes| {
        let plan = ReducePlan::new(dims, axes);
        let a: Vec<i32> = (0..plan.in_len()).map(|i| ((i * 7919) % 2003) as i32 - 1000).collect();
        let mut out = vec![0; plan.out_len()];
        let mut check = |reduce: &dyn Fn(&mut [i32]), start: i32, step: fn(i32, i32) -> i32| {
            reduce(&mut out);
            assert!(out == naive(&a, dims, axes, start, step), "{dims:?} {axes:?}");
        };
        check(&|out| reduce::<Sum, i32>(&a, out, &plan), 0, i32::wrapping_add);
        check(&|out| reduce::<Product, i32>(&a, out, &plan), 1, i32::wrapping_mul);
        check(&|out| reduce::<Max, i32>(&a, out, &plan), i32::MIN, i32::max);
        check(&|out| reduce::<Min, i32>(&a, out, &plan), i32::MAX, i32::min);
        check(&|out| reduce::<SumOfSquares, i32>(&a, out, &plan), 0, |sum, x| sum.wrapping_add(x * x));
        let truth: Vec<bool> = a.iter().map(|&x| x > -995).collect();
        let mut all = vec![false; plan.out_len()];
        reduce::<All, bool>(&truth, &mut all, &plan);
        assert!(all == naive(&truth, dims, axes, true, |all, x| all & x));
        let truth: Vec<bool> = a.iter().map(|&x| x < -995).collect();
        reduce::<Any, bool>(&truth, &mut all, &plan);
        assert!(all == naive(&truth, dims, axes, false, |any, x| any | x));
    });
}

#[test]
fn extremes_pass_nan_on() {
    for len in [3, 100, 5000] {
        for place in [0, 1, len / 2, len - 1] {
            let mut a = vec![1.0f32; len];
            a[place] = f32::NAN;
            assert!(reduce_all::<Max, f32>(&a).is_nan());
            assert!(reduce_all::<Min, f32>(&a).is_nan());
            let mut columns = vec![0.0f32; len];
            let two_rows = [vec![2.0; len], a].concat();
            reduce::<Max, f32>(&two_rows, &mut columns, &ReducePlan::new(&[2, len], &[0]));
            assert!(columns.iter().enumerate().all(|(i, x)| if i == place { x.is_nan() } else { *x == 2.0 }));
        }
    }
}

#[test]
fn nothing_reduces_to_the_identity() {
    assert_eq!(reduce_all::<Sum, f32>(&[]), 0.0);
    assert_eq!(reduce_all::<Product, i64>(&[]), 1);
    assert_eq!(reduce_all::<Max, f32>(&[]), f32::NEG_INFINITY);
    assert_eq!(reduce_all::<Min, i32>(&[]), i32::MAX);
    assert!(reduce_all::<Mean, f64>(&[]).is_nan());
    assert_eq!(reduce_all::<Mean, i32>(&[]), 0);
}

#[test]
fn integer_means_truncate() {
    assert_eq!(reduce_all::<Mean, i32>(&[1, 2, 4, -9]), 0);
    assert_eq!(reduce_all::<Mean, i32>(&[-7, 2]), -2);
}

#[test]
fn half_sums_do_not_stall() {
    let a = vec![f16::from_f32(1.0); 10_000];
    let mut columns = [f16::ZERO; 2];
    reduce::<Sum, f16>(&a, &mut columns, &ReducePlan::new(&[5000, 2], &[0]));
    assert_eq!(columns, [f16::from_f32(5000.0); 2]);
    assert_eq!(reduce_all::<Mean, f16>(&vec![f16::from_f32(2.0); 70_000]), f16::from_f32(2.0));
}

#[test]
fn positions_of_extremes() {
    let nan = f32::NAN;
    let cases: &[(&[f32], i64, i64)] = &[
        (&[nan, 1.0, 2.0], 2, 1),
        (&[1.0, nan, 2.0], 2, 0),
        (&[nan, nan], 0, 0),
        (&[nan, f32::NEG_INFINITY], 0, 1),
        (&[f32::NEG_INFINITY, f32::NEG_INFINITY], 0, 0),
        (&[2.0, 1.0, 2.0, 1.0], 0, 1),
    ];
    for (a, largest, smallest) in cases {
        let mut out = [7i64];
        argmax(a, [1, a.len(), 1], &mut out);
        assert_eq!(out[0], *largest, "{a:?}");
        argmin(a, [1, a.len(), 1], &mut out);
        assert_eq!(out[0], *smallest, "{a:?}");
        // The same along columns.
        let pairs: Vec<f32> = a.iter().flat_map(|&x| [x, x]).collect();
        let mut out = [7i32; 2];
        argmax(&pairs, [1, a.len(), 2], &mut out);
        assert_eq!(out, [*largest as i32; 2], "{a:?}");
    }
    let a: Vec<i32> = (0..3 * 1000 * 4).map(|i| (i * 7919) % 5003).collect();
    let mut out = vec![0i64; 12];
    argmax(&a, [3, 1000, 4], &mut out);
    for (index, &position) in out.iter().enumerate() {
        let value = |position: usize| a[index / 4 * 4000 + position * 4 + index % 4];
        let expected = (0..1000).max_by_key(|&p| (value(p), usize::MAX - p)).unwrap();
        assert_eq!(position as usize, expected);
    }
}

#[test]
fn the_loops_for_old_processors_do_the_same() {
    for len in [0, 1, 7, 300, 5000] {
        let a: Vec<f32> = (0..len).map(|i| (i % 13) as f32 - 4.0).collect();
        assert_eq!(run_plain::<Sum, f32>(0.0, &a), run::<Sum, f32>(0.0, &a), "{len} elements");
        let none = <Max as Reducer<f32>>::TOTAL;
        assert_eq!(run_plain::<Max, f32>(none, &a), run::<Max, f32>(none, &a), "{len} elements");
    }
    let a: Vec<i32> = (0..60).map(|i| i * i % 17).collect();
    let (mut expected, mut found) = ([0; 6], [0; 6]);
    add_rows::<Sum, i32>(&a, 10, 6, &mut expected);
    for row in a.chunks_exact(6) {
        add_row::<Sum, i32>(row, &mut found);
    }
    assert_eq!(found, expected);
}
