//! Common parts of this family's kernels: matrices in double precision, and the shapes of batches of them.

use kernel::{BoxedKernel, Cost, Kernel, OpContext, ShapeContext};
use num_complex::Complex64;
use numeric::linalg::Field;
use tensor::{Complex32, DType, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// Lists kernels for element types: `matrix_kernels!([Float, Double] => |builder| Process)`.
macro_rules! matrix_kernels {
    ([$($dtype:ident),*] => $create:expr) => {
        &[$(::kernel::KernelDef {
            types: &[("T", ::tensor::DType::$dtype)],
            create: |builder| {
                let create: fn(&::kernel::KernelBuilder<'_>) -> ::tensor::Result<_> = $create;
                $crate::linalg::matrices::OnMatrices::boxed(builder.attrs().dtype("T")?, create(builder)?)
            },
        },)*]
    };
}
pub(super) use matrix_kernels;

/// The computation of an op, for real and for complex numbers.
pub(super) trait Process: Send + Sync + 'static {
    fn run<F: Field>(&self, context: &mut OpContext<'_>, dtype: DType) -> Result<()>;
}

/// The kernel around a [`Process`].
pub(super) struct OnMatrices<P> {
    dtype: DType,
    process: P,
}

impl<P: Process> OnMatrices<P> {
    pub(super) fn boxed(dtype: DType, process: P) -> Result<BoxedKernel> {
        BoxedKernel::new(OnMatrices { dtype, process })
    }
}

impl<P: Process> Kernel for OnMatrices<P> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        match self.dtype.is_complex() {
            true => self.process.run::<Complex64>(context, self.dtype),
            false => self.process.run::<f64>(context, self.dtype),
        }
    }

    fn cost(&self) -> Cost {
        Cost::Expensive
    }
}

/// Matrices of one size, one after the other.
pub(super) struct Matrices<F> {
    pub values: Vec<F>,
    pub batch: Shape,
    pub rows: usize,
    pub columns: usize,
}

impl<F: Field> Matrices<F> {
    pub(super) fn input(context: &OpContext<'_>, index: usize) -> Result<Matrices<F>> {
        let tensor = context.input(index)?;
        let rank = tensor.shape().rank();
        if rank < 2 {
            return Err(Status::invalid_argument(format!("Input tensor {index} must have rank >= 2, got {rank}")));
        }
        let (rows, columns) = (tensor.shape().size(rank - 2), tensor.shape().size(rank - 1));
        Ok(Matrices { values: load(tensor)?, batch: tensor.shape().slice(0, rank - 2), rows, columns })
    }

    /// Returns the matrices of an input after checking that they are square.
    pub(super) fn square_input(context: &OpContext<'_>, index: usize) -> Result<Matrices<F>> {
        let matrices = Matrices::input(context, index)?;
        if matrices.rows != matrices.columns {
            return Err(Status::invalid_argument("Input matrix must be square."));
        }
        Ok(matrices)
    }

    /// Returns the matrices one by one; there are none if they are empty.
    pub(super) fn each(&self) -> impl Iterator<Item = &[F]> {
        self.values.chunks_exact((self.rows * self.columns).max(1))
    }

    pub(super) fn count(&self) -> usize {
        self.batch.num_elements()
    }

    /// Returns the shape of a batch of matrices of another size.
    pub(super) fn shape(&self, inner: &[usize]) -> Result<Shape> {
        self.batch.concat(&Shape::from_usize(inner)?)
    }
}

/// Returns a tensor's elements in double precision.
pub(super) fn load<F: Field>(tensor: &Tensor) -> Result<Vec<F>> {
    Ok(match tensor.dtype() {
        DType::Float => tensor.as_slice::<f32>()?.iter().map(|&x| F::from_real(f64::from(x))).collect(),
        DType::Double => tensor.as_slice::<f64>()?.iter().map(|&x| F::from_real(x)).collect(),
        DType::Half => tensor.as_slice::<f16>()?.iter().map(|&x| F::from_real(x.to_f64())).collect(),
        DType::BFloat16 => tensor.as_slice::<bf16>()?.iter().map(|&x| F::from_real(x.to_f64())).collect(),
        DType::Complex64 => {
            let parts = |x: &Complex32| F::from_parts(f64::from(x.re), f64::from(x.im));
            tensor.as_slice::<Complex32>()?.iter().map(parts).collect()
        }
        DType::Complex128 => tensor.as_slice::<Complex64>()?.iter().map(|x| F::from_parts(x.re, x.im)).collect(),
        other => return Err(Status::internal(format!("matrices of type {other}"))),
    })
}

/// Returns numbers as a tensor.
pub(super) fn store<F: Field>(dtype: DType, shape: Shape, values: &[F]) -> Result<Tensor> {
    if shape.num_elements() != values.len() {
        return Err(Status::internal(format!("{} values for the shape {shape}", values.len())));
    }
    fn fill<T: tensor::Element, F: Field>(shape: Shape, values: &[F], narrow: fn(&F) -> T) -> Result<Tensor> {
        Tensor::build::<T>(shape, |to| to.iter_mut().zip(values).for_each(|(to, value)| *to = narrow(value)))
    }
    match dtype {
        DType::Float => fill(shape, values, |x| x.real() as f32),
        DType::Double => fill(shape, values, |x| x.real()),
        DType::Half => fill(shape, values, |x| f16::from_f64(x.real())),
        DType::BFloat16 => fill(shape, values, |x| bf16::from_f64(x.real())),
        DType::Complex64 => fill(shape, values, |x| Complex32::new(x.real() as f32, x.imaginary() as f32)),
        DType::Complex128 => fill(shape, values, |x| Complex64::new(x.real(), x.imaginary())),
        other => Err(Status::internal(format!("matrices of type {other}"))),
    }
}

/// Returns the batch dimensions, the rows and the columns of an input.
pub(super) fn matrix_dims(c: &ShapeContext<'_>, index: usize) -> Result<(PartialShape, Option<i64>, Option<i64>)> {
    let shape = c.with_rank_at_least(index, 2)?;
    Ok(match shape.rank() {
        None => (PartialShape::unknown(), None, None),
        Some(rank) => (shape.slice(0, rank - 2), shape.dim(rank - 2), shape.dim(rank - 1)),
    })
}

/// Returns the merged information of two sizes.
pub(super) fn merged_dim(a: Option<i64>, b: Option<i64>) -> Result<Option<i64>> {
    Ok(PartialShape::new(&[a]).merge(&PartialShape::new(&[b]))?.dim(0))
}

/// Returns the batch dimensions and the size of square matrices.
pub(super) fn square_dims(c: &ShapeContext<'_>, index: usize) -> Result<(PartialShape, Option<i64>)> {
    let (batch, rows, columns) = matrix_dims(c, index)?;
    match merged_dim(rows, columns) {
        Ok(size) => Ok((batch, size)),
        Err(_) => Err(Status::invalid_argument(format!(
            "Dimensions must be equal, but are {} and {}",
            rows.unwrap_or(-1),
            columns.unwrap_or(-1)
        ))),
    }
}

/// Sets an output to a batch of matrices or vectors.
pub(super) fn set_batch(c: &mut ShapeContext<'_>, output: usize, batch: &PartialShape, inner: &[Option<i64>]) {
    c.set_output(output, batch.concat(&PartialShape::new(inner)));
}
