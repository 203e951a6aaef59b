//! Kernels of element-wise ops, each defined by a closure per type.
//!
//! `unary_kernels!([f32, f64] => |x| x * x)` and `binary_kernels!([f32] => |x, y| x + y)` list the kernels of ops whose attribute
//! `T` is the type of all inputs and outputs; `compare_kernels!` those whose result is `bool`. Outputs reuse the memory of an
//! input that isn't shared.

use kernel::{BoxedKernel, Cost, Kernel, KernelBuilder, KernelDef, OpContext};
use numeric::elementwise::{self, BroadcastPlan};
use std::marker::PhantomData;
use tensor::{Element, Result, Shape, Status, Tensor};

/// Maps a function over one input; the result has the input's type.
pub(crate) struct Unary<T, F> {
    function: F,
    cost_ns: f64,
    element: PhantomData<fn(T)>,
}

/// Maps a function over two inputs broadcast to each other; the result has the inputs' type.
pub(crate) struct Binary<T, F> {
    function: F,
    /// The op, if its inputs must have the same shape.
    unbroadcast: Option<Box<str>>,
    element: PhantomData<fn(T)>,
}

/// Maps a function over two inputs broadcast to each other; the result is `bool`.
pub(crate) struct Compare<T, F> {
    function: F,
    element: PhantomData<fn(T)>,
}

impl<T: Element, F: Fn(T) -> T + Copy + Send + Sync + 'static> Unary<T, F> {
    pub(crate) fn boxed(function: F) -> Result<BoxedKernel> {
        BoxedKernel::new(Unary { function, cost_ns: elementwise::CHEAP, element: PhantomData::<fn(T)> })
    }

    pub(crate) fn boxed_with_cost(cost_ns: f64, function: F) -> Result<BoxedKernel> {
        BoxedKernel::new(Unary { function, cost_ns, element: PhantomData::<fn(T)> })
    }
}

impl<T: Element, F: Fn(T, T) -> T + Copy + Send + Sync + 'static> Binary<T, F> {
    pub(crate) fn boxed(function: F) -> Result<BoxedKernel> {
        BoxedKernel::new(Binary { function, unbroadcast: None, element: PhantomData::<fn(T)> })
    }

    /// As [`boxed`](Self::boxed), for an op that doesn't broadcast its inputs.
    pub(crate) fn unbroadcast(builder: &KernelBuilder<'_>, function: F) -> Result<BoxedKernel> {
        let unbroadcast = Some(builder.node.op().into());
        BoxedKernel::new(Binary { function, unbroadcast, element: PhantomData::<fn(T)> })
    }
}

impl<T: Element, F: Fn(T, T) -> bool + Copy + Send + Sync + 'static> Compare<T, F> {
    pub(crate) fn boxed(function: F) -> Result<BoxedKernel> {
        BoxedKernel::new(Compare { function, element: PhantomData::<fn(T)> })
    }
}

impl<T: Element, F: Fn(T) -> T + Copy + Send + Sync> Kernel for Unary<T, F> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let mut input = context.take_input(0)?;
        let output = match input.as_mut_slice::<T>() {
            Some(elements) => {
                elementwise::unary_in_place_with_cost(self.cost_ns, elements, self.function);
                input
            }
            None => {
                let from = input.as_slice::<T>()?;
                Tensor::build(input.shape().clone(), |to: &mut [T]| {
                    elementwise::unary_with_cost(self.cost_ns, from, to, self.function)
                })?
            }
        };
        context.set_output(0, output);
        Ok(())
    }
}

impl<T: Element, F: Fn(T, T) -> T + Copy + Send + Sync> Kernel for Binary<T, F> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (mut a, b) = (context.take_input(0)?, context.take_input(1)?);
        if let Some(op) = &self.unbroadcast
            && a.shape() != b.shape()
        {
            return Err(Status::invalid_argument(format!(
                "Inputs to operation {} of type {op} must have the same size and shape.  Input 0: {} != input 1: {}",
                context.node_name(),
                a.shape(),
                b.shape()
            )));
        }
        // Scalars are most of a training graph's bookkeeping, and need no plan.
        if a.shape().is_scalar()
            && b.shape().is_scalar()
            && let Some(elements) = a.as_mut_slice::<T>()
        {
            elements[0] = (self.function)(elements[0], b.to_scalar::<T>()?);
            context.set_output(0, a);
            return Ok(());
        }
        let output = combined(a, b, &self.function)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// The loop of a binary function. Everything else is compiled once per type, not per function.
trait BinaryLoop<T> {
    fn run(&self, operands: Operands<'_, T>, plan: &BroadcastPlan);
}

/// The inputs of a binary function, and its output.
enum Operands<'a, T> {
    InPlaceLeft(&'a mut [T], &'a [T]),
    InPlaceRight(&'a [T], &'a mut [T]),
    New(&'a [T], &'a [T], &'a mut [T]),
}

impl<T: Element, F: Fn(T, T) -> T + Copy + Send + Sync> BinaryLoop<T> for F {
    fn run(&self, operands: Operands<'_, T>, plan: &BroadcastPlan) {
        match operands {
            Operands::InPlaceLeft(a, b) => elementwise::binary_in_place_left(a, b, plan, *self),
            Operands::InPlaceRight(a, b) => elementwise::binary_in_place_right(a, b, plan, *self),
            Operands::New(a, b, out) => elementwise::binary(a, b, out, plan, *self),
        }
    }
}

/// Combines two tensors, in the memory of one of them if it isn't shared.
fn combined<T: Element>(mut a: Tensor, mut b: Tensor, function: &dyn BinaryLoop<T>) -> Result<Tensor> {
    let (plan, shape) = broadcast_plan(&a, &b)?;
    if plan.left_holds_output()
        && a.shape() == &shape
        && let Some(elements) = a.as_mut_slice::<T>()
    {
        function.run(Operands::InPlaceLeft(elements, b.as_slice::<T>()?), &plan);
        return Ok(a);
    }
    if plan.right_holds_output()
        && b.shape() == &shape
        && let Some(elements) = b.as_mut_slice::<T>()
    {
        function.run(Operands::InPlaceRight(a.as_slice::<T>()?, elements), &plan);
        return Ok(b);
    }
    let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
    Tensor::build(shape, |out: &mut [T]| function.run(Operands::New(a, b, out), &plan))
}

impl<T: Element, F: Fn(T, T) -> bool + Copy + Send + Sync> Kernel for Compare<T, F> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let output = compared(context.input(0)?, context.input(1)?, &self.function)?;
        context.set_output(0, output);
        Ok(())
    }
}

/// The loop of a comparison, like [`BinaryLoop`].
trait CompareLoop<T> {
    fn run(&self, a: &[T], b: &[T], out: &mut [bool], plan: &BroadcastPlan);
}

impl<T: Element, F: Fn(T, T) -> bool + Copy + Send + Sync> CompareLoop<T> for F {
    fn run(&self, a: &[T], b: &[T], out: &mut [bool], plan: &BroadcastPlan) {
        elementwise::binary(a, b, out, plan, *self);
    }
}

fn compared<T: Element>(a: &Tensor, b: &Tensor, function: &dyn CompareLoop<T>) -> Result<Tensor> {
    let (plan, shape) = broadcast_plan(a, b)?;
    let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
    Tensor::build(shape, |out: &mut [bool]| function.run(a, b, out, &plan))
}

/// Plans the loop over two tensors, and returns the shape of the result.
pub(crate) fn broadcast_plan(a: &Tensor, b: &Tensor) -> Result<(BroadcastPlan, Shape)> {
    if a.shape() == b.shape() {
        return Ok((BroadcastPlan::same_shape(a.num_elements()), a.shape().clone()));
    }
    let plan = BroadcastPlan::new(&a.shape().to_usize(), &b.shape().to_usize())
        .ok_or_else(|| Status::invalid_argument(format!("Incompatible shapes: {} vs. {}", a.shape(), b.shape())))?;
    let shape = Shape::from_usize(plan.out_dims())?;
    Ok((plan, shape))
}

/// A kernel that checks its inputs before another one computes.
pub(crate) struct Checked<K> {
    check: fn(&OpContext<'_>) -> Result<()>,
    kernel: K,
}

impl<T: Element> Checked<Binary<T, fn(T, T) -> T>> {
    pub(crate) fn boxed(check: fn(&OpContext<'_>) -> Result<()>, function: fn(T, T) -> T) -> Result<BoxedKernel> {
        BoxedKernel::new(Checked {
            check,
            kernel: Binary { function, unbroadcast: None, element: PhantomData::<fn(T)> },
        })
    }
}

impl<K: Kernel> Kernel for Checked<K> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        (self.check)(context)?;
        self.kernel.compute(context)
    }
}

/// Maps a function over one input; the result has a different type.
pub(crate) struct Convert<T, R, F> {
    function: F,
    element: PhantomData<fn(T) -> R>,
}

impl<T: Element, R: Element, F: Fn(T) -> R + Copy + Send + Sync + 'static> Convert<T, R, F> {
    pub(crate) fn boxed(function: F) -> Result<BoxedKernel> {
        BoxedKernel::new(Convert { function, element: PhantomData::<fn(T) -> R> })
    }
}

impl<T: Element, R: Element, F: Fn(T) -> R + Copy + Send + Sync> Kernel for Convert<T, R, F> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let from = input.as_slice::<T>()?;
        let output = Tensor::build(input.shape().clone(), |to: &mut [R]| elementwise::unary(from, to, self.function))?;
        context.set_output(0, output);
        Ok(())
    }
}

/// A kernel that returns its input unchanged.
pub(crate) struct PassThrough;

impl Kernel for PassThrough {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let value = context.take_value(0);
        context.set_output_value(0, value);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }

    fn forwards_refs(&self) -> bool {
        true
    }
}

/// [`PassThrough`] for any type.
pub(crate) const PASS_THROUGH: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(PassThrough))];

/// Determines how a kernel calls its function. For the common training types it is compiled into the loop; for the others, the
/// loops are shared and call it through a pointer, which avoids hundreds of copies of them in the binary.
macro_rules! kernel_function {
    (f32, $signature:ty, $function:expr) => {
        $function
    };
    (f64, $signature:ty, $function:expr) => {
        $function
    };
    (i32, $signature:ty, $function:expr) => {
        $function
    };
    (i64, $signature:ty, $function:expr) => {
        $function
    };
    ($other:ident, $signature:ty, $function:expr) => {{
        let function: $signature = $function;
        function
    }};
}

/// Lists the kernels of a unary op, one per type; other kernels may follow a semicolon.
macro_rules! unary_kernels {
    ($([$($ty:ident),* $(,)?] => $function:expr),* $(; $($other:expr),*)? $(,)?) => {
        &[$($(::kernel::KernelDef {
            types: &[("T", <$ty as ::tensor::Element>::DTYPE)],
            create: |_| $crate::elementwise::Unary::<$ty, _>::boxed(kernel_function!($ty, fn($ty) -> $ty, $function)),
        },)*)* $($($other,)*)?]
    };
}

/// Lists the kernels of a unary op whose function is expensive; its cost is in nanoseconds.
macro_rules! costly_unary_kernels {
    ($cost_ns:literal; $([$($ty:ident),* $(,)?] => $function:expr),* $(,)?) => {
        &[$($(::kernel::KernelDef {
            types: &[("T", <$ty as ::tensor::Element>::DTYPE)],
            create: |_| {
                $crate::elementwise::Unary::<$ty, _>::boxed_with_cost(
                    $cost_ns,
                    kernel_function!($ty, fn($ty) -> $ty, $function),
                )
            },
        },)*)*]
    };
}

/// Lists the kernels of a binary op, one per type; other kernels may follow a semicolon.
macro_rules! binary_kernels {
    ($([$($ty:ident),* $(,)?] => $function:expr),* $(; $($other:expr),*)? $(,)?) => {
        &[$($(::kernel::KernelDef {
            types: &[("T", <$ty as ::tensor::Element>::DTYPE)],
            create: |_| {
                $crate::elementwise::Binary::<$ty, _>::boxed(kernel_function!($ty, fn($ty, $ty) -> $ty, $function))
            },
        },)*)* $($($other,)*)?]
    };
}

/// As `binary_kernels!`, for an op whose inputs must have the same shape.
macro_rules! unbroadcast_kernels {
    ($([$($ty:ident),* $(,)?] => $function:expr),* $(,)?) => {
        &[$($(::kernel::KernelDef {
            types: &[("T", <$ty as ::tensor::Element>::DTYPE)],
            create: |builder| {
                $crate::elementwise::Binary::<$ty, _>::unbroadcast(
                    builder,
                    kernel_function!($ty, fn($ty, $ty) -> $ty, $function),
                )
            },
        },)*)*]
    };
}

/// Lists the kernels of a comparison, one per type.
macro_rules! compare_kernels {
    ($([$($ty:ident),* $(,)?] => $function:expr),* $(,)?) => {
        &[$($(::kernel::KernelDef {
            types: &[("T", <$ty as ::tensor::Element>::DTYPE)],
            create: |_| {
                $crate::elementwise::Compare::<$ty, _>::boxed(kernel_function!($ty, fn($ty, $ty) -> bool, $function))
            },
        },)*)*]
    };
}

/// Lists the kernels of a test, one per type.
macro_rules! test_kernels {
    ($([$($ty:ident),* $(,)?] => $function:expr),* $(,)?) => {
        &[$($(::kernel::KernelDef {
            types: &[("T", <$ty as ::tensor::Element>::DTYPE)],
            create: |_| {
                $crate::elementwise::Convert::<$ty, bool, _>::boxed(kernel_function!($ty, fn($ty) -> bool, $function))
            },
        },)*)*]
    };
}

/// Defines the builder functions of ops with one input and one output.
macro_rules! unary_functions {
    ($($(#[$doc:meta])* $name:ident => $op:literal;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(x: &Output) -> Output {
            x.graph().op($op).input(x).output()
        }
    )*};
}
