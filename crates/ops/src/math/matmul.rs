//! Matrix products: MatMul, BatchMatMul, BatchMatMulV2, BatchMatMulV3, SparseMatMul.

use crate::compose::{Gradients, conj, int_vector, reshape, shape_of, sum};
use graph::Output;
use kernel::{
    BoxedKernel, Gradient, GradientArgs, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
    kernels, shape,
};
use num_traits::AsPrimitive;
use numeric::elementwise::BroadcastPlan;
use numeric::matmul::{self as product, KeptPanels, MatMulElement, MatMulShape, Operand};
use smallvec::SmallVec;
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, DType, Element, PartialShape, Result, Shape, Status, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "MatMul",
            inputs: &["a: T", "b: T"],
            outputs: &["product: T"],
            attrs: &[
                "transpose_a: bool = false",
                "transpose_b: bool = false",
                "T: {bfloat16, half, float, double, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}",
            ],
            flags: OpFlags::NONE,
        },
        shape: matmul_shape,
        gradient: Gradient::Fn(matmul_gradient),
        kernels: &[
            matmul_kernel::<f32>(),
            matmul_kernel::<f64>(),
            matmul_kernel::<f16>(),
            matmul_kernel::<bf16>(),
            matmul_kernel::<i32>(),
            matmul_kernel::<i64>(),
            matmul_kernel::<Complex32>(),
            matmul_kernel::<Complex64>(),
            matmul_through::<u8, i32>(),
            matmul_through::<u16, i32>(),
            matmul_through::<u32, i64>(),
            matmul_through::<u64, i64>(),
        ],
    },
    Op {
        def: OpDef {
            name: "BatchMatMul",
            inputs: &["x: T", "y: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}",
                "adj_x: bool = false",
                "adj_y: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: batch_matmul_v2_shape,
        gradient: Gradient::Fn(batch_matmul_gradient),
        kernels: kernels!("T": [f32, f64, f16, bf16, i32, i64, Complex32, Complex64] => Batch),
    },
    Op {
        def: OpDef {
            name: "BatchMatMulV2",
            inputs: &["x: T", "y: T"],
            outputs: &["output: T"],
            attrs: &[
                "T: {bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}",
                "adj_x: bool = false",
                "adj_y: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: batch_matmul_v2_shape,
        gradient: Gradient::Fn(batch_matmul_v2_gradient),
        kernels: &[
            batch_kernel::<f32>(),
            batch_kernel::<f64>(),
            batch_kernel::<f16>(),
            batch_kernel::<bf16>(),
            batch_kernel::<i32>(),
            batch_kernel::<i64>(),
            batch_kernel::<Complex32>(),
            batch_kernel::<Complex64>(),
            batch_through::<i16, i32>(),
            batch_through::<u8, i32>(),
            batch_through::<u16, i32>(),
            batch_through::<u32, i64>(),
            batch_through::<u64, i64>(),
        ],
    },
    Op {
        def: OpDef {
            name: "BatchMatMulV3",
            inputs: &["x: Ta", "y: Tb"],
            outputs: &["output: Tout"],
            attrs: &[
                "Ta: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}",
                "Tb: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}",
                "Tout: {bfloat16, half, float, double, int16, int32, int64, complex64, complex128}",
                "adj_x: bool = false",
                "adj_y: bool = false",
            ],
            flags: OpFlags::NONE,
        },
        shape: batch_matmul_v2_shape,
        gradient: Gradient::Fn(batch_matmul_v2_gradient),
        kernels: &[
            same_v3::<f32>(),
            same_v3::<f64>(),
            same_v3::<f16>(),
            same_v3::<bf16>(),
            same_v3::<i32>(),
            same_v3::<i64>(),
            same_v3::<Complex32>(),
            same_v3::<Complex64>(),
            mixed_v3::<i16, i16, i16>(),
            mixed_v3::<i8, i8, i32>(),
            mixed_v3::<u8, i8, i32>(),
            mixed_v3::<i8, u8, i32>(),
            mixed_v3::<u8, u8, i32>(),
        ],
    },
    Op {
        def: OpDef {
            name: "SparseMatMul",
            inputs: &["a: Ta", "b: Tb"],
            outputs: &["product: float"],
            attrs: &[
                "transpose_a: bool = false",
                "transpose_b: bool = false",
                "a_is_sparse: bool = false",
                "b_is_sparse: bool = false",
                "Ta: {float, bfloat16} = DT_FLOAT",
                "Tb: {float, bfloat16} = DT_FLOAT",
            ],
            flags: OpFlags::NONE,
        },
        shape: matmul_shape,
        gradient: Gradient::Fn(sparse_matmul_gradient),
        kernels: &[KernelDef::any(SparseMatMul::create)],
    },
];

/// Returns the product of two matrices.
#[track_caller]
pub fn matmul(a: &Output, b: &Output) -> Output {
    matmul_transposed(a, b, false, false)
}

/// Returns the product of two matrices, each transposed first if requested.
#[track_caller]
pub fn matmul_transposed(a: &Output, b: &Output, transpose_a: bool, transpose_b: bool) -> Output {
    let graph = a.graph();
    let is_batch = a.shape().rank().is_some_and(|rank| rank > 2) || b.shape().rank().is_some_and(|rank| rank > 2);
    if is_batch {
        // Only complex adjoints differ from transposes, and those have a separate op.
        return graph
            .op("BatchMatMulV2")
            .input(a)
            .input(b)
            .attr("adj_x", transpose_a)
            .attr("adj_y", transpose_b)
            .output();
    }
    graph.op("MatMul").input(a).input(b).attr("transpose_a", transpose_a).attr("transpose_b", transpose_b).output()
}

pub(crate) fn matmul_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (a, b) = (c.with_rank(0, 2)?, c.with_rank(1, 2)?);
    let (transpose_a, transpose_b) = (c.attrs.bool("transpose_a")?, c.attrs.bool("transpose_b")?);
    let at = |shape: &PartialShape, transposed: bool, axis: usize| shape.dim(if transposed { 1 - axis } else { axis });
    check_inner(at(&a, transpose_a, 1), at(&b, transpose_b, 0))?;
    c.set_output(0, PartialShape::new(&[at(&a, transpose_a, 0), at(&b, transpose_b, 1)]));
    Ok(())
}

fn batch_matmul_v2_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (a, b) = (c.with_rank_at_least(0, 2)?, c.with_rank_at_least(1, 2)?);
    let (Some(a_rank), Some(b_rank)) = (a.rank(), b.rank()) else {
        c.set_output(0, PartialShape::unknown());
        return Ok(());
    };
    let at = |shape: &PartialShape, rank: usize, adjoint: bool, axis: usize| {
        shape.dim(rank - 2 + if adjoint { 1 - axis } else { axis })
    };
    let (adj_x, adj_y) = (c.attrs.bool("adj_x")?, c.attrs.bool("adj_y")?);
    check_inner(at(&a, a_rank, adj_x, 1), at(&b, b_rank, adj_y, 0))?;
    let batch = shape::broadcast(&a.slice(0, a_rank - 2), &b.slice(0, b_rank - 2))?;
    let matrix = PartialShape::new(&[at(&a, a_rank, adj_x, 0), at(&b, b_rank, adj_y, 1)]);
    c.set_output(0, batch.concat(&matrix));
    Ok(())
}

fn check_inner(a: Option<i64>, b: Option<i64>) -> Result<()> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => {
            Err(Status::invalid_argument(format!("Dimensions must be equal, but are {a} and {b}")))
        }
        _ => Ok(()),
    }
}

/// The factors of a product's gradients, and how they are stored.
///
/// `multiply(left, left_transposed, right, right_transposed)` adds the product.
fn product_gradients(
    grad: &Output,
    a: &Output,
    b: &Output,
    transposed: (bool, bool),
    multiply: impl Fn(&Output, bool, &Output, bool) -> Result<Output>,
) -> Result<(Output, Output)> {
    let (a, b) = (&conj(a)?, &conj(b)?);
    Ok(match transposed {
        (false, false) => (multiply(grad, false, b, true)?, multiply(a, true, grad, false)?),
        (false, true) => (multiply(grad, false, b, false)?, multiply(grad, true, a, false)?),
        (true, false) => (multiply(b, false, grad, true)?, multiply(a, false, grad, false)?),
        (true, true) => (multiply(b, true, grad, true)?, multiply(grad, true, a, true)?),
    })
}

fn matmul_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let attrs = args.op.attrs();
    let transposed = (attrs.bool("transpose_a")?, attrs.bool("transpose_b")?);
    let (grad_a, grad_b) = product_gradients(
        &grad,
        &args.input(0),
        &args.input(1),
        transposed,
        |left, transpose_a, right, transpose_b| {
            let op = left.graph().op("MatMul").input(left).input(right);
            Ok(op.attr("transpose_a", transpose_a).attr("transpose_b", transpose_b).try_build()?.output(0))
        },
    )?;
    Ok(vec![Some(grad_a.into()), Some(grad_b.into())])
}

fn sparse_matmul_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let attrs = args.op.attrs();
    let transposed = (attrs.bool("transpose_a")?, attrs.bool("transpose_b")?);
    let (a, b) = (args.input(0), args.input(1));
    let sparse: [(graph::Edge, bool); 3] = [
        (a.edge(), attrs.bool("a_is_sparse")?),
        (b.edge(), attrs.bool("b_is_sparse")?),
        (grad.edge(), grad.op.op_type() == "ReluGrad"),
    ];
    let is_sparse = |x: &Output| sparse.iter().any(|(edge, is_sparse)| *edge == x.edge() && *is_sparse);
    let (grad_a, grad_b) = product_gradients(&grad, &a, &b, transposed, |left, transpose_a, right, transpose_b| {
        let op = left.graph().op("SparseMatMul").input(left).input(right);
        let op = op.attr("transpose_a", transpose_a).attr("transpose_b", transpose_b);
        Ok(op.attr("a_is_sparse", is_sparse(left)).attr("b_is_sparse", is_sparse(right)).try_build()?.output(0))
    })?;
    let grad_a = crate::compose::cast(&grad_a, a.dtype())?;
    let grad_b = crate::compose::cast(&grad_b, b.dtype())?;
    Ok(vec![Some(grad_a.into()), Some(grad_b.into())])
}

fn batch_product_gradients(args: &GradientArgs<'_>, grad: &Output) -> Result<(Output, Output)> {
    let attrs = args.op.attrs();
    let op_type = args.op.op_type();
    let adjoint = (attrs.bool("adj_x")?, attrs.bool("adj_y")?);
    // Adjoints conjugate, where transposes would need conjugated operands.
    let (x, y) = (&args.input(0), &args.input(1));
    let multiply = |left: &Output, adj_x: bool, right: &Output, adj_y: bool| -> Result<Output> {
        let op = left.graph().op(&op_type).input(left).input(right).attr("adj_x", adj_x).attr("adj_y", adj_y);
        let op = if op_type == "BatchMatMulV3" { op.attr("Tout", x.dtype()) } else { op };
        Ok(op.try_build()?.output(0))
    };
    Ok(match adjoint {
        (false, false) => (multiply(grad, false, y, true)?, multiply(x, true, grad, false)?),
        (false, true) => (multiply(grad, false, y, false)?, multiply(grad, true, x, false)?),
        (true, false) => (multiply(y, false, grad, true)?, multiply(x, false, grad, false)?),
        (true, true) => (multiply(y, true, grad, true)?, multiply(grad, true, x, true)?),
    })
}

fn batch_matmul_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (grad_x, grad_y) = batch_product_gradients(args, &grad)?;
    Ok(vec![Some(grad_x.into()), Some(grad_y.into())])
}

fn batch_matmul_v2_gradient(args: &GradientArgs<'_>) -> Gradients {
    let Some(grad) = args.grad(0) else { return Ok(vec![None, None]) };
    let (grad_x, grad_y) = batch_product_gradients(args, &grad)?;
    let (x, y) = (args.input(0), args.input(1));
    let batch = |operand: &Output| {
        let shape = operand.shape();
        shape.rank().and_then(|rank| shape.slice(0, rank.saturating_sub(2)).to_shape())
    };
    if let (Some(x_batch), Some(y_batch)) = (batch(&x), batch(&y))
        && x_batch == y_batch
    {
        return Ok(vec![Some(grad_x.into()), Some(grad_y.into())]);
    }
    let (x_size, y_size) = (shape_of(&x)?, shape_of(&y)?);
    let graph = x.graph();
    let leading = |size: &Output| -> Result<Output> {
        let op = graph.op("StridedSlice").input(size).input(&int_vector(graph, &[0])?);
        let op = op.input(&int_vector(graph, &[-2])?).input(&int_vector(graph, &[1])?);
        Ok(op.attr("begin_mask", 1i64).try_build()?.output(0))
    };
    let axes = graph.op("BroadcastGradientArgs").input(&leading(&x_size)?).input(&leading(&y_size)?).try_build()?;
    let grad_x = reshape(&sum(&grad_x, &axes.output(0), false)?, &x_size)?;
    let grad_y = reshape(&sum(&grad_y, &axes.output(1), false)?, &y_size)?;
    Ok(vec![Some(grad_x.into()), Some(grad_y.into())])
}

/// The product of two matrices.
struct MatMul<T> {
    transpose_a: bool,
    transpose_b: bool,
    /// The panels of weights that stay the same, as in the iterations of a loop.
    panels: KeptPanels<T>,
}

const fn matmul_kernel<T: Element + MatMulElement>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let attrs = builder.attrs();
            let (transpose_a, transpose_b) = (attrs.bool("transpose_a")?, attrs.bool("transpose_b")?);
            BoxedKernel::new(MatMul { transpose_a, transpose_b, panels: KeptPanels::<T>::new() })
        },
    }
}

impl<T: Element + MatMulElement> Kernel for MatMul<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (a, b) = (context.input(0)?, context.input(1)?);
        let (shape, out_shape) = matrix_product_shape(a.shape(), b.shape(), self.transpose_a, self.transpose_b)?;
        let panels = self.panels.of(shape, b.as_slice::<T>()?, || b.contents());
        let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        let multiply = |out: &mut [T]| product::matmul_with(shape, a, b, panels.as_deref(), out);
        let output = Tensor::build(out_shape, multiply)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// Returns the sizes and the shape of the product of two matrices, or an error if they don't match.
pub(crate) fn matrix_product_shape(
    a: &Shape,
    b: &Shape,
    transpose_a: bool,
    transpose_b: bool,
) -> Result<(MatMulShape, Shape)> {
    for (index, shape) in [a, b].into_iter().enumerate() {
        if !shape.is_matrix() {
            return Err(Status::invalid_argument(format!("In[{index}] is not a matrix. Instead it has shape {shape}")));
        }
    }
    let oriented = |shape: &Shape, transposed: bool| {
        if transposed { (shape.size(1), shape.size(0)) } else { (shape.size(0), shape.size(1)) }
    };
    let ((m, k), (other_k, n)) = (oriented(a, transpose_a), oriented(b, transpose_b));
    if k != other_k {
        return Err(Status::invalid_argument(format!("Matrix size-incompatible: In[0]: {a}, In[1]: {b}")));
    }
    let stored = |transposed: bool| if transposed { Operand::Transposed } else { Operand::Plain };
    let shape = MatMulShape::new(m, k, n).stored(stored(transpose_a), stored(transpose_b));
    Ok((shape, Shape::from_usize(&[m, n])?))
}

/// Products of matrices in the last two dimensions; the others are broadcast.
struct Batch<T> {
    adj_x: bool,
    adj_y: bool,
    /// Whether different batches are broadcast; the first version of the op requires equal ones.
    broadcasts: bool,
    element: PhantomData<fn(T)>,
}

impl<T: Element + MatMulElement> Batch<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Batch::<T>::from_attrs(builder)?)
    }

    fn from_attrs(builder: &KernelBuilder<'_>) -> Result<Batch<T>> {
        let attrs = builder.attrs();
        let broadcasts = builder.node.op() != "BatchMatMul";
        Ok(Batch { adj_x: attrs.bool("adj_x")?, adj_y: attrs.bool("adj_y")?, broadcasts, element: PhantomData })
    }

    fn multiply(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let plan = BatchPlan::new(x.shape(), y.shape(), self.adj_x, self.adj_y)?;
        let batches = |shape: &Shape| shape.dims()[..shape.rank() - 2].to_vec();
        if !self.broadcasts && batches(x.shape()) != batches(y.shape()) {
            return Err(Status::invalid_argument(format!(
                "In[0] and In[1] must have compatible batch dimensions: {} vs. {}",
                x.shape(),
                y.shape()
            )));
        }
        let (x, y) = (x.as_slice::<T>()?, y.as_slice::<T>()?);
        Tensor::build(plan.out_shape.clone(), |out: &mut [T]| match &plan.items {
            None => product::batch_matmul(plan.shape, x, y, out, |item| item, |item| item),
            Some(items) => {
                product::batch_matmul(plan.shape, x, y, out, |item| items[item].0, |item| items[item].1);
            }
        })
    }
}

impl<T: Element + MatMulElement> Kernel for Batch<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let output = self.multiply(context.input(0)?, context.input(1)?)?;
        context.set_output(0, output);
        Ok(())
    }
}

const fn batch_kernel<T: Element + MatMulElement>() -> KernelDef {
    KernelDef { types: const { &[("T", T::DTYPE)] }, create: |builder| Batch::<T>::create(builder) }
}

const fn same_v3<T: Element + MatMulElement>() -> KernelDef {
    KernelDef {
        types: const { &[("Ta", T::DTYPE), ("Tb", T::DTYPE), ("Tout", T::DTYPE)] },
        create: |builder| Batch::<T>::create(builder),
    }
}

/// The sizes of a batch of products.
struct BatchPlan {
    shape: MatMulShape,
    out_shape: Shape,
    /// The matrix of each operand for a product, if its index differs from the product's.
    items: Option<Vec<(usize, usize)>>,
}

impl BatchPlan {
    fn new(x: &Shape, y: &Shape, adj_x: bool, adj_y: bool) -> Result<BatchPlan> {
        for (index, shape) in [x, y].into_iter().enumerate() {
            if shape.rank() < 2 {
                return Err(Status::invalid_argument(format!("In[{index}] ndims must be >= 2: {}", shape.rank())));
            }
        }
        let (x_rank, y_rank) = (x.rank(), y.rank());
        let (x_dims, y_dims) = (x.to_usize(), y.to_usize());
        let (x_batch, x_matrix) = x_dims.split_at(x_rank - 2);
        let (y_batch, y_matrix) = y_dims.split_at(y_rank - 2);
        let oriented = |dims: &[usize], adjoint: bool| if adjoint { (dims[1], dims[0]) } else { (dims[0], dims[1]) };
        let ((m, k), (other_k, n)) = (oriented(x_matrix, adj_x), oriented(y_matrix, adj_y));
        if k != other_k {
            return Err(Status::invalid_argument(format!("Matrix size-incompatible: In[0]: {x}, In[1]: {y}")));
        }
        let plan = BroadcastPlan::new(x_batch, y_batch).ok_or_else(|| {
            Status::invalid_argument(format!("In[0] and In[1] must have compatible batch dimensions: {x} vs. {y}"))
        })?;
        let mut dims: SmallVec<[usize; 8]> = SmallVec::from_slice(plan.out_dims());
        dims.extend([m, n]);
        let items = if x_batch == y_batch {
            None
        } else {
            let numbers = |dims: &[usize]| -> Vec<usize> { (0..dims.iter().product()).collect() };
            let mut items = vec![(0, 0); plan.out_len()];
            let (xs, ys) = (numbers(x_batch), numbers(y_batch));
            numeric::elementwise::binary(&xs, &ys, &mut items, &plan, |x, y| (x, y));
            Some(items)
        };
        let stored = |adjoint: bool| if adjoint { Operand::Adjoint } else { Operand::Plain };
        let shape = MatMulShape::new(m, k, n).stored(stored(adj_x), stored(adj_y));
        Ok(BatchPlan { shape, out_shape: Shape::from_usize(&dims)?, items })
    }
}

/// Products in a type with a fast loop; operands and results are converted. Integers wrap in the same way in both.
struct Through<A, B, W, R> {
    inner: Batch<W>,
    types: PhantomData<fn(A, B) -> R>,
}

impl<A, B, W, R> Kernel for Through<A, B, W, R>
where
    A: Element + AsPrimitive<W>,
    B: Element + AsPrimitive<W>,
    W: Element + MatMulElement + AsPrimitive<R>,
    R: Element,
{
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (x, y) = (convert::<A, W>(context.input(0)?)?, convert::<B, W>(context.input(1)?)?);
        let output = convert::<W, R>(&self.inner.multiply(&x, &y)?)?;
        context.set_output(0, output);
        Ok(())
    }
}

fn convert<A: Element + AsPrimitive<B>, B: Element>(tensor: &Tensor) -> Result<Tensor> {
    let from = tensor.as_slice::<A>()?;
    Tensor::build(tensor.shape().clone(), |to: &mut [B]| numeric::elementwise::unary(from, to, |value: A| value.as_()))
}

const fn matmul_through<T: Element + AsPrimitive<W>, W: Element + MatMulElement + AsPrimitive<T>>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let attrs = builder.attrs();
            let (adj_x, adj_y) = (attrs.bool("transpose_a")?, attrs.bool("transpose_b")?);
            let inner = Batch::<W> { adj_x, adj_y, broadcasts: true, element: PhantomData };
            BoxedKernel::new(Through { inner, types: PhantomData::<fn(T, T) -> T> })
        },
    }
}

const fn batch_through<T: Element + AsPrimitive<W>, W: Element + MatMulElement + AsPrimitive<T>>() -> KernelDef {
    KernelDef {
        types: const { &[("T", T::DTYPE)] },
        create: |builder| {
            let inner = Batch::<W>::from_attrs(builder)?;
            BoxedKernel::new(Through { inner, types: PhantomData::<fn(T, T) -> T> })
        },
    }
}

const fn mixed_v3<A: Element + AsPrimitive<i32>, B: Element + AsPrimitive<i32>, R: Element>() -> KernelDef
where
    i32: AsPrimitive<R>,
{
    KernelDef {
        types: const { &[("Ta", A::DTYPE), ("Tb", B::DTYPE), ("Tout", R::DTYPE)] },
        create: |builder| {
            let inner = Batch::<i32>::from_attrs(builder)?;
            BoxedKernel::new(Through { inner, types: PhantomData::<fn(A, B) -> R> })
        },
    }
}

/// A product whose operands may be `bfloat16`; the hints about sparsity aren't needed.
struct SparseMatMul {
    transpose_a: bool,
    transpose_b: bool,
}

impl SparseMatMul {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let (transpose_a, transpose_b) = (attrs.bool("transpose_a")?, attrs.bool("transpose_b")?);
        BoxedKernel::new(SparseMatMul { transpose_a, transpose_b })
    }
}

impl Kernel for SparseMatMul {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let wide = |tensor: &Tensor| match tensor.dtype() {
            DType::BFloat16 => convert::<bf16, f32>(tensor),
            _ => Ok(tensor.clone()),
        };
        let (a, b) = (wide(context.input(0)?)?, wide(context.input(1)?)?);
        let product = matrix_product_shape(a.shape(), b.shape(), self.transpose_a, self.transpose_b);
        let (shape, out_shape) = product.map_err(|status| {
            status.context(format!("Matrix size incompatible: a: {}, b: {}", a.shape(), b.shape()))
        })?;
        let (a, b) = (a.as_slice::<f32>()?, b.as_slice::<f32>()?);
        let output = Tensor::build(out_shape, |out: &mut [f32]| product::matmul(shape, a, b, out))?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{RepeatedOp, attrs, check_gradient, check_shape, run_op};
    use tensor::Tensor;

    #[test]
    fn products() {
        let a = Tensor::from_slice(&[2, 3], &[1f32, 2., 3., 4., 5., 6.]).unwrap();
        let b = Tensor::from_slice(&[2, 2], &[1f32, 2., 3., 4.]).unwrap();
        let c = run_op("MatMul", attrs![("transpose_a", true)], &[a.clone(), b.clone()]).unwrap();
        assert_eq!(c[0].as_slice::<f32>().unwrap(), &[13., 18., 17., 24., 21., 30.]);
        let status = run_op("MatMul", attrs![], &[a, b]).unwrap_err();
        assert!(status.message().starts_with("Matrix size-incompatible: In[0]: [2,3], In[1]: [2,2]"), "{status}");
        let empty = Tensor::from_slice::<f32>(&[2, 0], &[]).unwrap();
        let c = run_op("MatMul", attrs![("transpose_b", true)], &[empty.clone(), empty]).unwrap();
        assert_eq!(c[0].as_slice::<f32>().unwrap(), &[0.0; 4]);
    }

    /// The kernel keeps the panels of an operand that stays the same; one that changes, in place or not, is another.
    #[test]
    fn a_variable_that_is_updated_in_place_is_multiplied_as_it_is_now() {
        let values =
            |len: usize, seed: usize| (0..len).map(|i| ((i * 7 + seed) % 23) as f32 - 11.0).collect::<Vec<_>>();
        let a = Tensor::from_slice(&[30, 64], &values(30 * 64, 1)).unwrap();
        for transpose_b in [false, true] {
            let product = RepeatedOp::new("MatMul", attrs![("transpose_b", transpose_b)], &[a.clone(), a.clone()]);
            let mut weights = Tensor::from_slice(&[64, 64], &values(64 * 64, 2)).unwrap();
            for step in 0..6 {
                // As in a loop: the same operand several times. One time packs it, the others use that.
                for _ in 0..3 {
                    let inputs = [a.clone(), weights.clone()];
                    let expected = run_op("MatMul", attrs![("transpose_b", transpose_b)], &inputs).unwrap();
                    let out = product.run(&inputs).unwrap();
                    assert_eq!(
                        out[0].as_slice::<f32>().unwrap(),
                        expected[0].as_slice::<f32>().unwrap(),
                        "step {step}"
                    );
                }
                let address = weights.as_slice::<f32>().unwrap().as_ptr();
                match step % 3 {
                    // Updated in place, as a variable is that nobody else reads.
                    0 | 1 => weights.as_mut_slice::<f32>().expect("the only owner")[step] += 1.0,
                    // Other weights, perhaps in the memory of these.
                    _ => weights = Tensor::from_slice(&[64, 64], &values(64 * 64, step + 3)).unwrap(),
                }
                assert!(step % 3 == 2 || address == weights.as_slice::<f32>().unwrap().as_ptr());
            }
        }
    }

    #[test]
    fn batches_broadcast() {
        let x = Tensor::from_slice(&[2, 1, 1, 2], &[1i64, 2, 3, 4]).unwrap();
        let y = Tensor::from_slice(&[2, 2, 1], &[1i64, 1, 10, 10]).unwrap();
        let z = run_op("BatchMatMulV2", attrs![], &[x, y]).unwrap();
        assert_eq!(z[0].dims(), &[2, 2, 1, 1]);
        assert_eq!(z[0].as_slice::<i64>().unwrap(), &[3, 30, 7, 70]);
        let x = Tensor::from_slice(&[1, 2], &[200u8, 100]).unwrap();
        let z = run_op("BatchMatMulV2", attrs![("adj_y", true)], &[x.clone(), x]).unwrap();
        assert_eq!(z[0].as_slice::<u8>().unwrap(), &[50000u32 as u8]);
    }

    #[test]
    fn shapes() {
        check_shape("MatMul", attrs![("transpose_a", true)], "[?,3];[4,5]", "[3,5]");
        check_shape("BatchMatMulV2", attrs![("adj_x", true)], "[7,1,4,3];[2,4,?]", "[7,2,3,?]");
    }

    #[test]
    fn gradients() {
        let a = Tensor::from_slice(&[2, 3], &[1f64, -2., 3., 4., 0.5, 6.]).unwrap();
        let b = Tensor::from_slice(&[3, 2], &[0.5f64, -1., 2., 3., 1., 4.]).unwrap();
        let swapped = [a.clone(), b.clone()].map(|x| {
            let shape = tensor::Shape::new(&[x.dims()[1], x.dims()[0]]).unwrap();
            x.reshape(shape).unwrap()
        });
        for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
            let a = if transpose_a { swapped[0].clone() } else { a.clone() };
            let b = if transpose_b { swapped[1].clone() } else { b.clone() };
            check_gradient(&[a, b], |_, x| super::matmul_transposed(&x[0], &x[1], transpose_a, transpose_b));
        }
    }
}
