//! Sums of many tensors of one shape: AddN, AccumulateNV2.

use crate::compose::Gradients;
use crate::list::added_variants;
use graph::Output;
use kernel::{BoxedKernel, Gradient, GradientArgs, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext};
use std::marker::PhantomData;
use tensor::{Complex32, Complex64, DType, Element, Result, Status, Tensor, bf16, f16};

macro_rules! add_kernels {
    ($([$($ty:ident),* $(,)?] => $function:expr),* $(,)?) => {
        &[$($(KernelDef {
            types: &[("T", <$ty as Element>::DTYPE)],
            create: |_| AddN::<$ty, _>::boxed(kernel_function!($ty, fn($ty, $ty) -> $ty, $function)),
        },)*)*]
    };
}

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "AddN",
            inputs: &["inputs: N * T"],
            outputs: &["sum: T"],
            attrs: &[
                "N: int >= 1",
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, variant}",
            ],
            flags: OpFlags::COMMUTATIVE.union(OpFlags::AGGREGATE),
        },
        shape: add_n_shape,
        gradient: Gradient::Fn(add_n_gradient),
        kernels: KERNELS_AND_LISTS,
    },
    Op {
        def: OpDef {
            name: "AccumulateNV2",
            inputs: &["inputs: N * T"],
            outputs: &["sum: T"],
            attrs: &[
                "N: int >= 1",
                "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64}",
                "shape: shape",
            ],
            flags: OpFlags::COMMUTATIVE.union(OpFlags::AGGREGATE),
        },
        shape: accumulate_shape,
        gradient: Gradient::Fn(add_n_gradient),
        kernels: KERNELS,
    },
];

const KERNELS: &[KernelDef] = add_kernels!(
    [f32, f64, f16, bf16, Complex32, Complex64] => |x, y| x + y,
    [i8, i16, i32, i64, u8, u16, u32, u64] => |x, y| x.wrapping_add(y),
);

const KERNELS_AND_LISTS: &[KernelDef] = &{
    const LISTS: KernelDef = KernelDef { types: &[("T", DType::Variant)], create: |_| BoxedKernel::new(AddLists) };
    let mut all = [LISTS; KERNELS.len() + 1];
    let mut index = 0;
    while index < KERNELS.len() {
        all[index] = KernelDef { types: KERNELS[index].types, create: KERNELS[index].create };
        index += 1;
    }
    all
};

/// Returns the sum of tensors of the same shape, at least one.
#[track_caller]
pub fn add_n(inputs: &[Output]) -> Output {
    match inputs {
        [] => {
            let status = tensor::Status::invalid_argument("add_n needs at least one input");
            graph::builder::mistaken_output("AddN", status)
        }
        [single] => single.clone(),
        [first, ..] => first.graph().op("AddN").inputs(inputs).output(),
    }
}

fn add_n_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut shape = c.input(0);
    for index in 1..c.num_inputs() {
        shape = shape
            .merge(&c.input(index))
            .map_err(|status| status.context(format!("From merging shape {index} with other shapes.")))?;
    }
    c.set_output(0, shape);
    Ok(())
}

fn accumulate_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.attrs.shape("shape")?;
    c.set_output(0, shape);
    Ok(())
}

fn add_n_gradient(args: &GradientArgs<'_>) -> Gradients {
    Ok(vec![args.grad(0).map(Into::into); args.op.num_inputs()])
}

/// Sums its inputs into the first one that isn't shared.
struct AddN<T, F> {
    add: F,
    element: PhantomData<fn(T)>,
}

impl<T: Element, F: Fn(T, T) -> T + Send + Sync + 'static> AddN<T, F> {
    fn boxed(add: F) -> Result<BoxedKernel> {
        BoxedKernel::new(AddN { add, element: PhantomData::<fn(T)> })
    }
}

impl<T: Element, F: Fn(T, T) -> T + Send + Sync> Kernel for AddN<T, F> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let count = context.num_inputs();
        let shape = context.input(0)?.shape().clone();
        for index in 1..count {
            let other = context.input(index)?.shape();
            if other != &shape {
                return Err(Status::invalid_argument(format!(
                    "Inputs to operation {} of type AddN must have the same size and shape.  Input 0: {shape} != input {index}: {other}",
                    context.node_name()
                )));
            }
        }
        let first = context.take_input(0)?;
        if count == 1 {
            context.set_output(0, first);
            return Ok(());
        }
        // Three at a time: the running total is read and written half as often.
        let plan = numeric::elementwise::Broadcast::<3>::of_same_len(shape.num_elements());
        let mut next = 1;
        let mut total = first;
        while next < count {
            let b = context.take_input(next)?;
            next += 1;
            if next < count && !total.is_unique() {
                let c = context.take_input(next)?;
                next += 1;
                let (x, y, z) = (total.as_slice::<T>()?, b.as_slice::<T>()?, c.as_slice::<T>()?);
                total = Tensor::build(shape.clone(), |out: &mut [T]| {
                    numeric::elementwise::ternary(x, y, z, out, &plan, |x, y, z| (self.add)((self.add)(x, y), z));
                })?;
                continue;
            }
            total = self.add_two(total, b)?;
        }
        context.set_output(0, total);
        Ok(())
    }
}

impl<T: Element, F: Fn(T, T) -> T + Send + Sync> AddN<T, F> {
    fn add_two(&self, mut a: Tensor, mut b: Tensor) -> Result<Tensor> {
        let plan = numeric::elementwise::BroadcastPlan::same_shape(a.num_elements());
        if let Some(into) = a.as_mut_slice::<T>() {
            numeric::elementwise::binary_in_place_left(into, b.as_slice::<T>()?, &plan, &self.add);
            return Ok(a);
        }
        if let Some(into) = b.as_mut_slice::<T>() {
            numeric::elementwise::binary_in_place_right(a.as_slice::<T>()?, into, &plan, &self.add);
            return Ok(b);
        }
        let (x, y) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        Tensor::build(a.shape().clone(), |out: &mut [T]| numeric::elementwise::binary(x, y, out, &plan, &self.add))
    }
}

/// Sums variants: lists of tensors, element by element, and optionals.
struct AddLists;

impl Kernel for AddLists {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let mut total = context.take_input(0)?;
        for index in 1..context.num_inputs() {
            let other = context.take_input(index)?;
            for (index, tensor) in [(0, &total), (index, &other)] {
                if !tensor.shape().is_scalar() {
                    // TensorFlow's message lacks the bracket, too.
                    return Err(Status::invalid_argument(format!(
                        "AddN of non-scalar Tensor with dtype=DT_VARIANT is not supported; inputs[{index} has shape: {}.",
                        tensor.shape()
                    )));
                }
            }
            let pairs = total.variants()?.iter().zip(other.variants()?);
            let sums = pairs.map(|(a, b)| added_variants(a, b, added)).collect::<Result<_>>()?;
            total = Tensor::from_variants(total.shape().clone(), sums)?;
        }
        context.set_output(0, total);
        Ok(())
    }
}

/// Adds two tensors of any numeric type.
fn added(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.shape() != b.shape() {
        return Err(Status::invalid_argument(format!(
            "Trying to add two tensors with incompatible element shapes. One is {} and the other is {}",
            a.shape(),
            b.shape()
        )));
    }
    fn sum<T: Element>(a: &Tensor, b: &Tensor, add: impl Fn(T, T) -> T + Send + Sync + 'static) -> Result<Tensor> {
        AddN { add, element: PhantomData::<fn(T)> }.add_two(a.clone(), b.clone())
    }
    match a.dtype() {
        DType::Float => sum(a, b, |x: f32, y| x + y),
        DType::Double => sum(a, b, |x: f64, y| x + y),
        DType::Half => sum(a, b, |x: f16, y| x + y),
        DType::BFloat16 => sum(a, b, |x: bf16, y| x + y),
        DType::Complex64 => sum(a, b, |x: Complex32, y| x + y),
        DType::Complex128 => sum(a, b, |x: Complex64, y| x + y),
        DType::Int32 => sum(a, b, |x: i32, y| x.wrapping_add(y)),
        DType::Int64 => sum(a, b, |x: i64, y| x.wrapping_add(y)),
        DType::Int16 => sum(a, b, |x: i16, y| x.wrapping_add(y)),
        DType::Int8 => sum(a, b, |x: i8, y| x.wrapping_add(y)),
        DType::UInt8 => sum(a, b, |x: u8, y| x.wrapping_add(y)),
        other => Err(Status::invalid_argument(format!("{other} elements can't be added"))),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, check_shape, run_op};
    use tensor::Tensor;

    #[test]
    fn sums() {
        for count in 1..6 {
            let inputs: Vec<Tensor> = (0..count).map(|index| Tensor::vector(&[index as f32, 1.0])).collect();
            let total = run_op("AddN", attrs![], &inputs).unwrap();
            let sum = (0..count).sum::<i32>() as f32;
            assert_eq!(total[0].as_slice::<f32>().unwrap(), &[sum, count as f32]);
        }
        let status = run_op("AddN", attrs![], &[Tensor::vector(&[1f32]), Tensor::scalar(1f32)]).unwrap_err();
        assert!(status.message().contains("must have the same size and shape"), "{status}");
    }

    #[test]
    fn shapes() {
        check_shape("AddN", attrs![("N", 3i64)], "[2,?];?;[?,3]", "[2,3]");
    }
}
