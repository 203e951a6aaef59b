//! Scatters to rows of a variable: ScatterUpdate, ScatterAdd and so on, by ref and by resource handle.
//!
//! They work in place under the variable's lock, so that a large table is never copied for a few rows.

use super::handle_shape;
use crate::arithmetic::{Arithmetic, Ordered};
use crate::rows::row_indices;
use graph::{Operation, Output};
use kernel::{
    BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext, Variable,
};
use std::marker::PhantomData;
use tensor::{DType, Element, PartialShape, Result, Shape, Status, Tensor};

const INDICES: &str = "Tindices: {int32, int64}";
const UNLOCKED: &str = "use_locking: bool = false";
const REAL_T: &str = "T: {half, bfloat16, float, double, int32, int64}";

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    by_ref("ScatterUpdate", &["T: type", INDICES, "use_locking: bool = true"], UPDATE_T),
    by_ref("ScatterAdd", &[numbertype!("T"), INDICES, UNLOCKED], number_kernels!("T" => Scatter<Add>)),
    by_ref("ScatterSub", &[numbertype!("T"), INDICES, UNLOCKED], number_kernels!("T" => Scatter<Subtract>)),
    by_ref("ScatterMul", &[numbertype!("T"), INDICES, UNLOCKED], number_kernels!("T" => Scatter<Multiply>)),
    by_ref("ScatterDiv", &[numbertype!("T"), INDICES, UNLOCKED], number_kernels!("T" => Scatter<Divide>)),
    by_ref("ScatterMin", &[REAL_T, INDICES, UNLOCKED], real_kernels!("T" => Scatter<Minimum>)),
    by_ref("ScatterMax", &[REAL_T, INDICES, UNLOCKED], real_kernels!("T" => Scatter<Maximum>)),
    by_handle("ResourceScatterUpdate", &["dtype: type", INDICES], UPDATE_DTYPE),
    by_handle("ResourceScatterAdd", &[numbertype!("dtype"), INDICES], number_kernels!("dtype" => Scatter<Add>)),
    by_handle("ResourceScatterSub", &[numbertype!("dtype"), INDICES], number_kernels!("dtype" => Scatter<Subtract>)),
    by_handle("ResourceScatterMul", &[numbertype!("dtype"), INDICES], number_kernels!("dtype" => Scatter<Multiply>)),
    by_handle("ResourceScatterDiv", &[numbertype!("dtype"), INDICES], number_kernels!("dtype" => Scatter<Divide>)),
    by_handle("ResourceScatterMin", &[numbertype!("dtype"), INDICES], real_kernels!("dtype" => Scatter<Minimum>)),
    by_handle("ResourceScatterMax", &[numbertype!("dtype"), INDICES], real_kernels!("dtype" => Scatter<Maximum>)),
];

const fn by_ref(name: &'static str, attrs: &'static [&'static str], kernels: &'static [KernelDef]) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &["ref: Ref(T)", "indices: Tindices", "updates: T"],
            outputs: &["output_ref: Ref(T)"],
            attrs,
            flags: OpFlags::NONE,
        },
        shape: scatter_shape,
        gradient: Gradient::NotDifferentiable,
        kernels,
    }
}

const fn by_handle(name: &'static str, attrs: &'static [&'static str], kernels: &'static [KernelDef]) -> Op {
    Op {
        def: OpDef {
            name,
            inputs: &["resource: resource", "indices: Tindices", "updates: dtype"],
            outputs: &[],
            attrs,
            flags: OpFlags::STATEFUL,
        },
        shape: resource_scatter_shape,
        gradient: Gradient::NotDifferentiable,
        kernels,
    }
}

macro_rules! builders {
    ($($(#[$doc:meta])* $name:ident, $resource_name:ident => $op:literal, $resource_op:literal;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(variable: &Output, indices: &Output, updates: &Output) -> Output {
            variable.graph().op($op).input(variable).input(indices).input(updates).output()
        }

        $(#[$doc])*
        #[track_caller]
        pub fn $resource_name(handle: &Output, indices: &Output, updates: &Output) -> Operation {
            handle.graph().op($resource_op).input(handle).input(indices).input(updates).build()
        }
    )*};
}

builders! {
    /// Replaces rows of a variable.
    scatter_update, resource_scatter_update => "ScatterUpdate", "ResourceScatterUpdate";
    /// Adds to rows of a variable; a row that occurs twice is added to twice.
    scatter_add, resource_scatter_add => "ScatterAdd", "ResourceScatterAdd";
    /// Subtracts from rows of a variable.
    scatter_sub, resource_scatter_sub => "ScatterSub", "ResourceScatterSub";
    /// Multiplies rows of a variable.
    scatter_mul, resource_scatter_mul => "ScatterMul", "ResourceScatterMul";
    /// Divides rows of a variable.
    scatter_div, resource_scatter_div => "ScatterDiv", "ResourceScatterDiv";
    /// Sets rows of a variable to the minimum with the updates.
    scatter_min, resource_scatter_min => "ScatterMin", "ResourceScatterMin";
    /// Sets rows of a variable to the maximum with the updates.
    scatter_max, resource_scatter_max => "ScatterMax", "ResourceScatterMax";
}

fn scatter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let variable = c.input(0);
    check_updates(c, &variable)?;
    c.set_output(0, variable);
    Ok(())
}

fn resource_scatter_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (_, variable) = handle_shape(c, 0)?;
    check_updates(c, &variable)
}

fn check_updates(c: &ShapeContext<'_>, variable: &PartialShape) -> Result<()> {
    if c.input(2).rank() == Some(0) {
        return Ok(());
    }
    match variable.rank() {
        None => Ok(()),
        Some(0) => Err(Status::invalid_argument("Shape must be at least rank 1 but is rank 0")),
        Some(rank) => c.input(2).merge(&c.input(1).concat(&variable.slice(1, rank))).map(drop),
    }
}

/// How a scatter combines a row with its update.
pub(super) trait RowOperator<T>: Send + Sync + 'static {
    /// Whether the updates are divisors.
    const DIVIDES: bool = false;
    fn apply(old: T, update: T) -> T;
}

pub(super) struct Replace;
pub(super) struct Add;
pub(super) struct Subtract;
pub(super) struct Multiply;
pub(super) struct Divide;
pub(super) struct Minimum;
pub(super) struct Maximum;

impl<T: Element> RowOperator<T> for Replace {
    #[inline(always)]
    fn apply(_: T, update: T) -> T {
        update
    }
}

macro_rules! row_operators {
    ($($operator:ident: $bound:ident => $method:ident, $divides:literal;)*) => {$(
        impl<T: $bound> RowOperator<T> for $operator {
            const DIVIDES: bool = $divides;
            #[inline(always)]
            fn apply(old: T, update: T) -> T {
                old.$method(update)
            }
        }
    )*};
}

row_operators! {
    Add: Arithmetic => plus, false;
    Subtract: Arithmetic => minus, false;
    Multiply: Arithmetic => times, false;
    Divide: Arithmetic => over, true;
    Minimum: Ordered => lesser, false;
    Maximum: Ordered => greater, false;
}

const UPDATE_T: &[KernelDef] = update_kernels!("T" => Scatter<Replace>, ScatterObjects);
const UPDATE_DTYPE: &[KernelDef] = update_kernels!("dtype" => Scatter<Replace>, ScatterObjects);

pub(super) struct Scatter<T, O>(PhantomData<fn() -> (T, O)>);

impl<T: Element, O: RowOperator<T>> Scatter<T, O> {
    pub(super) fn create(_: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        BoxedKernel::new(Scatter::<T, O>(PhantomData))
    }
}

impl<T: Element, O: RowOperator<T>> Kernel for Scatter<T, O> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (indices, updates) = (context.take_input(1)?, context.take_input(2)?);
        let variable = context.variable(0)?;
        let values = updates.as_slice::<T>()?;
        if O::DIVIDES && divides_by_zero(&updates)? {
            return Err(Status::invalid_argument("updates must not contain 0: Integer division by zero"));
        }
        update_rows(&variable, &indices, updates.shape(), &mut |tensor, rows, row_len| {
            let table = tensor.make_mut::<T>()?;
            for (position, &row) in rows.iter().enumerate() {
                let row = &mut table[row * row_len..(row + 1) * row_len];
                match values {
                    [value] => row.iter_mut().for_each(|old| *old = O::apply(*old, *value)),
                    _ => {
                        let update = &values[position * row_len..(position + 1) * row_len];
                        row.iter_mut().zip(update).for_each(|(old, &update)| *old = O::apply(*old, update));
                    }
                }
            }
            Ok(())
        })?;
        // Only the form by ref has an output, which is the variable.
        context.set_output_ref(0, variable);
        Ok(())
    }
}

/// ScatterUpdate for elements that aren't plain bytes.
struct ScatterObjects;

impl Kernel for ScatterObjects {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let (indices, updates) = (context.take_input(1)?, context.take_input(2)?);
        let variable = context.variable(0)?;
        update_rows(&variable, &indices, updates.shape(), &mut |tensor, rows, row_len| {
            for (position, &row) in rows.iter().enumerate() {
                let from = |offset: usize| if updates.shape().is_scalar() { 0 } else { position * row_len + offset };
                for offset in 0..row_len {
                    match updates.dtype() {
                        DType::String => {
                            let update = updates.strings()?[from(offset)].clone();
                            tensor.strings_mut()?[row * row_len + offset] = update;
                        }
                        _ => {
                            let update = updates.variants()?[from(offset)].clone();
                            tensor.variants_mut()?[row * row_len + offset] = update;
                        }
                    }
                }
            }
            Ok(())
        })?;
        context.set_output_ref(0, variable);
        Ok(())
    }
}

/// Checks the inputs of a scatter, and calls `write` with the table, the rows and the length of a row.
fn update_rows(
    variable: &Variable,
    indices: &Tensor,
    updates: &Shape,
    write: &mut dyn FnMut(&mut Tensor, &[usize], usize) -> Result<()>,
) -> Result<()> {
    variable.update_rows(|tensor| {
        let shape = tensor.shape();
        let Some(&num_rows) = shape.dims().first() else {
            return Err(Status::invalid_argument(format!(
                "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape \
                 {updates}, indices.shape {}, params.shape {shape}: params must be at least 1-D, got shape {shape}",
                indices.shape()
            )));
        };
        let row = shape.slice(1, shape.rank());
        if !updates.is_scalar() && *updates != indices.shape().concat(&row)? {
            let mut message = format!(
                "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape \
                 {updates}, indices.shape {}, params.shape {shape}",
                indices.shape()
            );
            if !updates.dims().starts_with(indices.dims()) {
                let prefix = format!(
                    "The shape of indices ({}) must be a prefix of the shape of updates ({updates})",
                    indices.shape()
                );
                message = format!("{prefix}. {message}");
            }
            return Err(Status::invalid_argument(message));
        }
        let rows = row_indices(indices, num_rows as usize)?;
        let row_len = row.num_elements();
        if rows.is_empty() || row_len == 0 {
            return Ok(());
        }
        write(tensor, &rows, row_len)
    })
}

/// Returns whether a divisor is an integer zero.
fn divides_by_zero(updates: &Tensor) -> Result<bool> {
    fn any_zero<T: Arithmetic>(updates: &Tensor) -> Result<bool> {
        Ok(updates.as_slice::<T>()?.iter().any(|value| value.forbids_division()))
    }
    match updates.dtype() {
        DType::Int8 => any_zero::<i8>(updates),
        DType::Int16 => any_zero::<i16>(updates),
        DType::Int32 => any_zero::<i32>(updates),
        DType::Int64 => any_zero::<i64>(updates),
        DType::UInt8 => any_zero::<u8>(updates),
        DType::UInt16 => any_zero::<u16>(updates),
        DType::UInt32 => any_zero::<u32>(updates),
        DType::UInt64 => any_zero::<u64>(updates),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{assign, assign_variable_op, read_variable_op, var_handle_op, variable_op_v2};
    use crate::testing::{TestSession, attrs, check_shape, infer};
    use tensor::Code;

    fn table(rows: i64) -> Tensor {
        let values: Vec<f32> = (0..rows * 2).map(|value| value as f32).collect();
        Tensor::from_slice(&[rows, 2], &values).unwrap()
    }

    #[test]
    fn every_operator_by_ref() {
        let session = TestSession::new();
        let variable = variable_op_v2(&session.graph, "v", DType::Float, &PartialShape::from_dims(&[3, 2]));
        let (value, updates) = (session.placeholder(DType::Float), session.placeholder(DType::Float));
        let indices = session.placeholder(DType::Int32);
        let start = assign(&variable, &value);
        type Builder = fn(&Output, &Output, &Output) -> Output;
        let cases: [(Builder, [f32; 6]); 7] = [
            (scatter_update, [6.0, 8.0, 2.0, 3.0, 2.0, 4.0]),
            (scatter_add, [6.0, 9.0, 2.0, 3.0, 6.0, 9.0]),
            (scatter_sub, [-6.0, -7.0, 2.0, 3.0, 2.0, 1.0]),
            (scatter_mul, [0.0, 8.0, 2.0, 3.0, 8.0, 20.0]),
            (scatter_div, [0.0, 0.125, 2.0, 3.0, 2.0, 1.25]),
            (scatter_min, [0.0, 1.0, 2.0, 3.0, 2.0, 4.0]),
            (scatter_max, [6.0, 8.0, 2.0, 3.0, 4.0, 5.0]),
        ];
        for (build, expected) in cases {
            session.fetch(&start, &[(&value, table(3))]).unwrap();
            let op = build(&variable, &indices, &updates);
            let feeds = [
                (&indices, Tensor::vector(&[2i32, 0])),
                (&updates, Tensor::from_slice(&[2, 2], &[2f32, 4.0, 6.0, 8.0]).unwrap()),
            ];
            let result = session.fetch(&op, &feeds).unwrap();
            assert_eq!(result.as_slice::<f32>().unwrap(), &expected, "{}", op.op.op_type());
        }
    }

    #[test]
    fn a_scalar_updates_every_row_that_is_named() {
        let session = TestSession::new();
        let handle = var_handle_op(&session.graph, "v", DType::Int32, &PartialShape::unknown());
        let (value, indices) = (session.placeholder(DType::Int32), session.placeholder(DType::Int64));
        let start = Tensor::from_slice(&[3, 2], &[1i32, 2, 3, 4, 5, 6]).unwrap();
        session.run(&assign_variable_op(&handle, &value), &[(&value, start)]).unwrap();
        let read = read_variable_op(&handle, DType::Int32);
        let feeds = [(&indices, Tensor::vector(&[1i64, 1])), (&value, Tensor::scalar(10i32))];
        session.run(&resource_scatter_add(&handle, &indices, &value), &feeds).unwrap();
        assert_eq!(session.fetch(&read, &[]).unwrap().as_slice::<i32>().unwrap(), &[1, 2, 23, 24, 5, 6]);
        let feeds = [(&indices, Tensor::vector(&[1i64, 1])), (&value, Tensor::scalar(0i32))];
        let status = session.run(&resource_scatter_div(&handle, &indices, &value), &feeds).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "dividing by zero must not crash: {status}");
        let feeds = [(&indices, Tensor::vector(&[1i64, 3])), (&value, Tensor::scalar(0i32))];
        let status = session.run(&resource_scatter_update(&handle, &indices, &value), &feeds).unwrap_err();
        assert_eq!(status.message(), "indices[1] = 3 is not in [0, 3)");
        let feeds = [(&indices, Tensor::vector(&[1i64])), (&value, Tensor::vector(&[1i32, 2]))];
        let status = session.run(&resource_scatter_update(&handle, &indices, &value), &feeds).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }

    #[test]
    fn strings_and_bools_are_replaced() {
        for dtype in [DType::String, DType::Bool] {
            let session = TestSession::new();
            let variable = variable_op_v2(&session.graph, "v", dtype, &PartialShape::from_dims(&[2]));
            let (value, indices) = (session.placeholder(dtype), session.placeholder(DType::Int32));
            let start = Tensor::zeros(dtype, Shape::vector(2)).unwrap();
            session.fetch(&assign(&variable, &value), &[(&value, start)]).unwrap();
            let update = if dtype == DType::Bool { Tensor::scalar(true) } else { Tensor::string("x") };
            let op = scatter_update(&variable, &indices, &value);
            let feeds = [(&indices, Tensor::vector(&[1i32])), (&value, update)];
            let result = session.fetch(&op, &feeds).unwrap();
            match dtype {
                DType::Bool => assert_eq!(result.as_slice::<bool>().unwrap(), &[false, true]),
                _ => assert_eq!(result.strings().unwrap(), ["", "x"]),
            }
        }
    }

    #[test]
    fn a_table_is_never_copied_for_a_few_rows() {
        let session = TestSession::new();
        let handle = var_handle_op(&session.graph, "table", DType::Float, &PartialShape::unknown());
        let (value, indices) = (session.placeholder(DType::Float), session.placeholder(DType::Int32));
        session.run(&assign_variable_op(&handle, &value), &[(&value, table(1000))]).unwrap();
        let update = resource_scatter_add(&handle, &indices, &value);
        let feeds = [(&indices, Tensor::vector(&[7i32])), (&value, Tensor::scalar(1f32))];
        let variable = session.step.resources.lookup::<Variable>("", "table").unwrap();
        let address = || variable.read_with(|tensor| Ok(tensor.as_slice::<f32>()?.as_ptr().addr())).unwrap();
        session.run(&update, &feeds).unwrap();
        let before = address();
        // Even while a dense read holds the value.
        let held = session.fetch(&read_variable_op(&handle, DType::Float), &[]).unwrap();
        session.run(&update, &feeds).unwrap();
        assert_eq!(address(), before);
        assert_eq!(held.as_slice::<f32>().unwrap()[14], 15.0);
        assert_eq!(variable.read().unwrap().as_slice::<f32>().unwrap()[14], 16.0);
    }

    #[test]
    fn shapes() {
        check_shape("ScatterAdd", attrs![("Tindices", DType::Int32)], "[5,3];[2];[2,3]", "[5,3]");
        check_shape("ScatterAdd", attrs![("Tindices", DType::Int32)], "[5,3];[2];[]", "[5,3]");
        assert!(infer("ScatterAdd", attrs![("Tindices", DType::Int32)], "[5,3];[2];[3,3]", &[]).is_err());
    }
}
