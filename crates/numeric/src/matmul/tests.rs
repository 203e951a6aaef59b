//! Products against the naive loop, for every element type, storage and edge size.

use super::*;
use num_traits::Zero;

/// Returns small integers, whose sums are exact in every type, so that results must be equal.
fn values<T>(len: usize, seed: usize, from: impl Fn(i32) -> T) -> Vec<T> {
    (0..len).map(|i| from(((i * 7 + seed * 5 + i / 3) % 9) as i32 - 4)).collect()
}

fn naive<T: Copy + Zero + std::ops::Mul<Output = T> + MatMulElement>(shape: MatMulShape, a: &[T], b: &[T]) -> Vec<T> {
    let MatMulShape { m, k, n, .. } = shape;
    let mut out = vec![T::zero(); m * n];
    for i in 0..m {
        for j in 0..n {
            for p in 0..k {
                let x = match shape.a {
                    Operand::Plain => a[i * k + p],
                    Operand::Transposed => a[p * m + i],
                    Operand::Adjoint => a[p * m + i].conjugate(),
                };
                let y = match shape.b {
                    Operand::Plain => b[p * n + j],
                    Operand::Transposed => b[j * k + p],
                    Operand::Adjoint => b[j * k + p].conjugate(),
                };
                out[i * n + j] = out[i * n + j] + x * y;
            }
        }
    }
    out
}

const OPERANDS: [Operand; 3] = [Operand::Plain, Operand::Transposed, Operand::Adjoint];

fn check<T>(from: impl Fn(i32) -> T + Copy)
where
    T: Copy + Zero + std::ops::Mul<Output = T> + MatMulElement + PartialEq + std::fmt::Debug,
{
    let sizes = [0, 1, 2, 3, 5, 8, 13, 17, 33];
    for m in sizes {
        for k in [0, 1, 2, 7, 19, 40] {
            for n in sizes {
                for a_stored in OPERANDS {
                    for b_stored in OPERANDS {
                        let shape = MatMulShape::new(m, k, n).stored(a_stored, b_stored);
                        let (a, b) = (values(m * k, 1, from), values(k * n, 2, from));
                        let mut out = vec![from(3); m * n];
                        matmul(shape, &a, &b, &mut out);
                        assert!(out == naive(shape, &a, &b), "{shape:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn floats_equal_the_naive_product() {
    check(|v| v as f32);
    check(|v| v as f64);
}

#[test]
fn halves_equal_the_naive_product() {
    check(|v| f16::from_f32(v as f32));
    check(|v| bf16::from_f32((v % 3) as f32));
}

#[test]
fn integers_equal_the_naive_product_and_wrap() {
    check(|v| v);
    check(|v| v as i64);
    let mut out = [0i32];
    matmul(MatMulShape::new(1, 1, 1), &[i32::MAX], &[2], &mut out);
    assert_eq!(out, [-2]);
}

#[test]
fn complex_equal_the_naive_product() {
    check(|v| Complex::new(v as f32, (v % 3) as f32));
    check(|v| Complex::new(v as f64, (v % 3) as f64));
}

#[test]
fn large_products_cross_every_block_boundary() {
    for (m, k, n) in [(300, 700, 250), (1, 900, 2000), (2000, 900, 1), (7, 1200, 300), (130, 33, 1100)] {
        for a_stored in [Operand::Plain, Operand::Transposed] {
            for b_stored in [Operand::Plain, Operand::Transposed] {
                let shape = MatMulShape::new(m, k, n).stored(a_stored, b_stored);
                let (a, b) = (values(m * k, 1, |v| v as f32), values(k * n, 2, |v| v as f32));
                let mut out = vec![f32::NAN; m * n];
                matmul(shape, &a, &b, &mut out);
                assert!(out == naive(shape, &a, &b), "{shape:?}");
            }
        }
    }
}

#[test]
fn bias_and_activation_follow_the_product() {
    for (m, k, n) in [(1, 3, 5), (9, 20, 33), (200, 300, 90)] {
        let shape = MatMulShape::new(m, k, n);
        let (a, b) = (values(m * k, 1, |v| v as f32 / 8.0), values(k * n, 2, |v| v as f32 / 8.0));
        let bias = values(n, 3, |v| v as f32 / 4.0);
        let product = naive(shape, &a, &b);
        for activation in [
            Activation::Identity,
            Activation::Relu,
            Activation::Relu6,
            Activation::Elu,
            Activation::LeakyRelu(0.25),
            Activation::Tanh,
            Activation::Sigmoid,
        ] {
            let expected = |i: usize| {
                let x = f64::from(product[i]) + f64::from(bias[i % n]);
                match activation {
                    Activation::Identity => x,
                    Activation::Relu => x.max(0.0),
                    Activation::Relu6 => x.clamp(0.0, 6.0),
                    Activation::Elu => {
                        if x > 0.0 {
                            x
                        } else {
                            x.exp_m1()
                        }
                    }
                    Activation::LeakyRelu(_) => {
                        if x > 0.0 {
                            x
                        } else {
                            0.25 * x
                        }
                    }
                    Activation::Tanh => x.tanh(),
                    Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
                }
            };
            let mut out = vec![0.0f32; m * n];
            matmul_bias_activation(shape, &a, &b, &mut out, Epilogue { bias: Some(&bias), activation });
            for (i, &value) in out.iter().enumerate() {
                assert!((f64::from(value) - expected(i)).abs() < 1e-6, "{shape:?} {activation:?} at {i}");
            }
        }
    }
}

#[test]
fn batches_broadcast_by_item() {
    let shape = MatMulShape::new(3, 4, 5);
    for items in [0, 1, 3, 400] {
        let a = values(items * 12, 1, |v| v as f32);
        let b = values(20, 2, |v| v as f32);
        let mut out = vec![0.0; items * 15];
        batch_matmul(shape, &a, &b, &mut out, |item| item, |_| 0);
        for item in 0..items {
            assert_eq!(out[item * 15..][..15], naive(shape, &a[item * 12..][..12], &b));
        }
    }
}

/// Returns a sparse matrix, such as images and one-hot rows are.
fn mostly_zero(rows: usize, columns: usize, counts: impl Fn(usize, usize) -> bool) -> Vec<f32> {
    let at = |i: usize| if counts(i / columns, i % columns) { ((i * 7) % 9) as f32 - 4.0 } else { -0.0 };
    (0..rows * columns).map(at).collect()
}

#[test]
fn zeros_that_are_left_out_change_nothing() {
    let pictures: [fn(usize, usize) -> bool; 4] = [
        |_, _| false,
        |_, column| column % 28 > 8 && column % 28 < 20,
        |row, column| (row * 31) % 97 == column % 97,
        |row, column| row > 20 && column > 300,
    ];
    for (m, k, n) in [(100, 784, 100), (784, 100, 100), (13, 900, 130), (409, 300, 49)] {
        for picture in pictures {
            for a_stored in [Operand::Plain, Operand::Transposed] {
                for b_stored in [Operand::Plain, Operand::Transposed] {
                    let shape = MatMulShape::new(m, k, n).stored(a_stored, b_stored);
                    let a = match a_stored {
                        Operand::Plain => mostly_zero(m, k, picture),
                        _ => mostly_zero(k, m, picture),
                    };
                    let b = values(k * n, 2, |v| v as f32);
                    let mut out = vec![f32::NAN; m * n];
                    matmul(shape, &a, &b, &mut out);
                    assert!(out == naive(shape, &a, &b), "{shape:?}");
                }
            }
        }
    }
}

#[test]
fn zero_times_what_is_not_finite_is_no_number() {
    let (m, k, n) = (100, 784, 100);
    let shape = MatMulShape::new(m, k, n);
    let a = mostly_zero(m, k, |_, column| column > 600);
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut b = values(k * n, 2, |v| v as f32);
        b[5 * n + 70] = value;
        let mut out = vec![0.0; m * n];
        matmul(shape, &a, &b, &mut out);
        for (i, value) in out.iter().enumerate() {
            assert_eq!(value.is_nan(), i % n == 70, "at {i}");
        }
    }
}
