//! Functions of square matrices: MatrixSquareRoot, MatrixLogarithm.

use super::gradients;
use super::matrices::{Matrices, Process, matrix_kernels, square_dims, store};
use graph::Output;
use kernel::{Gradient, Op, OpContext, OpDef, OpFlags, ShapeContext};
use num_complex::Complex64;
use numeric::linalg::{self, Field};
use tensor::{DType, PartialShape, Result};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "MatrixSquareRoot",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: {double, float, half, complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: same_shape,
        gradient: Gradient::Fn(gradients::matrix_square_root),
        kernels: matrix_kernels!([Float, Double, Complex64, Complex128] => |_| {
            Ok(Function { real: Some(linalg::square_root), complex: linalg::square_root })
        }),
    },
    Op {
        def: OpDef {
            name: "MatrixLogarithm",
            inputs: &["input: T"],
            outputs: &["output: T"],
            attrs: &["T: {complex64, complex128}"],
            flags: OpFlags::NONE,
        },
        shape: same_shape,
        gradient: Gradient::Unsupported,
        kernels: matrix_kernels!([Complex64, Complex128] => |_| {
            Ok(Function { real: None, complex: linalg::logarithm })
        }),
    },
];

/// Returns the square roots of matrices.
#[track_caller]
pub fn matrix_square_root(input: &Output) -> Output {
    input.graph().op("MatrixSquareRoot").input(input).output()
}

/// Returns the logarithms of matrices.
#[track_caller]
pub fn matrix_logarithm(input: &Output) -> Output {
    input.graph().op("MatrixLogarithm").input(input).output()
}

fn same_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (batch, size) = square_dims(c, 0)?;
    c.set_output(0, batch.concat(&PartialShape::new(&[size, size])));
    Ok(())
}

struct Function {
    /// The method for real numbers, if there is one.
    real: Option<fn(&[f64], usize) -> Vec<f64>>,
    complex: fn(&[Complex64], usize) -> Vec<Complex64>,
}

impl Process for Function {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()> {
        let matrices = Matrices::<F>::square_input(context, 0)?;
        let size = matrices.rows;
        let mut values = Vec::with_capacity(matrices.values.len());
        for matrix in matrices.each() {
            match self.real.filter(|_| !dtype.is_complex()) {
                None => {
                    let parts: Vec<Complex64> =
                        matrix.iter().map(|x| Complex64::new(x.real(), x.imaginary())).collect();
                    values.extend((self.complex)(&parts, size).iter().map(|x| F::from_parts(x.re, x.im)));
                }
                Some(real) => {
                    let parts: Vec<f64> = matrix.iter().map(|x| x.real()).collect();
                    values.extend(real(&parts, size).iter().map(|&x| F::from_real(x)));
                }
            }
        }
        context.set_output(0, store(dtype, matrices.shape(&[size, size])?, &values)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::matrix_square_root;
    use crate::testing::{attrs, check_gradient, check_shape, run_op};
    use tensor::Tensor;

    #[test]
    fn values() {
        let matrix = Tensor::from_slice(&[1, 2, 2], &[4f32, 0.0, 0.0, 9.0]).unwrap();
        let root = run_op("MatrixSquareRoot", attrs![], &[matrix]).unwrap();
        assert_eq!(root[0].as_slice::<f32>().unwrap(), [2.0, 0.0, 0.0, 3.0]);
        let wide = Tensor::from_slice(&[1, 2], &[4f32, 0.0]).unwrap();
        assert!(run_op("MatrixSquareRoot", attrs![], &[wide]).is_err());
    }

    #[test]
    fn the_gradient_of_a_root() {
        check_gradient(
            &[Tensor::from_slice(&[2, 2, 2], &[4f64, 1.0, 0.5, 3.0, 5.0, -1.0, 0.3, 6.0]).unwrap()],
            |_, x| matrix_square_root(&x[0]),
        );
    }

    #[test]
    fn shapes() {
        check_shape("MatrixSquareRoot", attrs![], "[?,3,?]", "[?,3,3]");
    }
}
