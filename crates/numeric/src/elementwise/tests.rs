//! Element-wise loops against index arithmetic written the slow way.

use super::*;

/// The element of an operand that output position `index` uses.
fn operand_index(index: usize, out_dims: &[usize], dims: &[usize]) -> usize {
    let mut rest = index;
    let mut result = 0;
    let mut stride = 1;
    for axis in (0..out_dims.len()).rev() {
        let position = rest % out_dims[axis];
        rest /= out_dims[axis];
        let own = axis.checked_sub(out_dims.len() - dims.len()).map_or(1, |own_axis| dims[own_axis]);
        if own != 1 {
            result += position * stride;
        }
        stride *= own;
    }
    result
}

fn pointer<T>(operand: &[T]) -> Pointer<T> {
    Pointer(operand.as_ptr().cast_mut())
}

const SHAPES: &[(&[usize], &[usize])] = &[
    (&[], &[]),
    (&[17], &[17]),
    (&[17], &[]),
    (&[1, 1], &[33]),
    (&[5, 40], &[40]),
    (&[5, 40], &[5, 1]),
    (&[40], &[5, 40]),
    (&[5, 1], &[5, 40]),
    (&[5, 1], &[1, 7]),
    (&[2, 1, 3, 1], &[4, 1, 19]),
    (&[3, 1, 2, 2], &[1, 5, 2, 1]),
    (&[0, 3], &[3]),
    (&[300, 1, 100], &[20, 1]),
];

#[test]
fn binary_broadcasts() {
    for (a_dims, b_dims) in SHAPES {
        let plan = BroadcastPlan::new(a_dims, b_dims).unwrap();
        let a: Vec<f32> = (0..a_dims.iter().product()).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..b_dims.iter().product()).map(|i| 1000.0 * i as f32).collect();
        let expected: Vec<f32> = (0..plan.out_len())
            .map(|i| a[operand_index(i, plan.out_dims(), a_dims)] - b[operand_index(i, plan.out_dims(), b_dims)])
            .collect();
        let mut out = vec![f32::NAN; plan.out_len()];
        binary(&a, &b, &mut out, &plan, |x, y| x - y);
        assert!(out == expected, "{a_dims:?} {b_dims:?}");
        out.fill(f32::NAN);
        // Costly enough to be split in the middle of rows.
        binary_with_cost(1e5, &a, &b, &mut out, &plan, |x, y| x - y);
        assert!(out == expected, "{a_dims:?} {b_dims:?} in parallel");
        if plan.out_len() > 0 {
            out.fill(f32::NAN);
            let to = Pointer(out.as_mut_ptr());
            // SAFETY: the operands fit the plan.
            unsafe { binary_shared(&plan, 0..plan.out_len(), pointer(&a), pointer(&b), to, &|x, y| x - y) };
            assert!(out == expected, "{a_dims:?} {b_dims:?} without AVX2");
        }
        if plan.left_holds_output() {
            let mut left = a.clone();
            binary_in_place_left(&mut left, &b, &plan, |x, y| x - y);
            assert!(left == expected, "{a_dims:?} {b_dims:?} in place, left");
        }
        if plan.right_holds_output() {
            let mut right = b.clone();
            binary_in_place_right(&a, &mut right, &plan, |x, y| x - y);
            assert!(right == expected, "{a_dims:?} {b_dims:?} in place, right");
        }
    }
}

#[test]
fn outputs_may_have_another_type() {
    let a: Vec<i64> = (0..100).collect();
    let b: Vec<i64> = (0..100).rev().collect();
    let mut out = vec![false; 100];
    binary(&a, &b, &mut out, &BroadcastPlan::same_shape(100), |x, y| x < y);
    assert!(out.iter().enumerate().all(|(i, &less)| less == (i < 50)));
}

#[test]
fn unary_maps_every_element() {
    for len in [0, 1, 15, 16, 17, 1000] {
        let a: Vec<i32> = (0..len).collect();
        let mut out = vec![0i64; len as usize];
        unary(&a, &mut out, |x| i64::from(x) * 3);
        assert!(out.iter().zip(&a).all(|(&y, &x)| y == i64::from(x) * 3));
        out.fill(-1);
        // SAFETY: operand and output have this length.
        unsafe { unary_shared(0..a.len(), pointer(&a), Pointer(out.as_mut_ptr()), &|x| i64::from(x) * 3) };
        assert!(out.iter().zip(&a).all(|(&y, &x)| y == i64::from(x) * 3));
        let mut in_place = a.clone();
        unary_in_place_with_cost(1e4, &mut in_place, |x| -x);
        assert!(in_place.iter().zip(&a).all(|(&y, &x)| y == -x));
    }
}

#[test]
fn ternary_and_select_broadcast() {
    let cases: &[[&[usize]; 3]] = &[
        [&[4, 5], &[4, 5], &[4, 5]],
        [&[], &[4, 5], &[4, 5]],
        [&[4, 1], &[4, 5], &[4, 5]],
        [&[4, 1], &[5], &[]],
        [&[2, 1, 1], &[3, 1], &[4]],
    ];
    for dims in cases {
        let plan = Broadcast::of(*dims).unwrap();
        let condition: Vec<bool> = (0..dims[0].iter().product()).map(|i: usize| i.is_multiple_of(2)).collect();
        let a: Vec<i32> = (0..dims[1].iter().product::<usize>() as i32).collect();
        let b: Vec<i32> = (0..dims[2].iter().product::<usize>() as i32).map(|i| -1 - i).collect();
        let mut out = vec![0; plan.out_len()];
        select(&condition, &a, &b, &mut out, &plan);
        for (i, &value) in out.iter().enumerate() {
            let at = |operand: usize| operand_index(i, plan.out_dims(), dims[operand]);
            let expected = if condition[at(0)] { a[at(1)] } else { b[at(2)] };
            assert_eq!(value, expected, "{dims:?} at {i}");
        }
        let mut shared = vec![0; plan.out_len()];
        let (all, to) = (0..plan.out_len(), Pointer(shared.as_mut_ptr()));
        let choose = |condition: bool, a: i32, b: i32| if condition { a } else { b };
        // SAFETY: the operands fit the plan.
        unsafe { ternary_shared(&plan, all, pointer(&condition), pointer(&a), pointer(&b), to, &choose) };
        assert_eq!(shared, out, "{dims:?} without AVX2");
    }
}

#[test]
#[should_panic(expected = "operand 1 has another size than the plan")]
fn a_short_operand_is_refused() {
    binary(&[0.0f32; 4], &[0.0f32; 3], &mut [0.0f32; 4], &BroadcastPlan::same_shape(4), |x, y| x + y);
}
