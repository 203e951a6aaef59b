//! Assignments of whole values: Assign, AssignAdd, AssignSub, their forms for resource handles, and counters with a limit.

use super::handle_shape;
use super::scatter::{Add, RowOperator, Subtract};
use crate::arithmetic::Arithmetic;
use graph::{Operation, Output};
use kernel::{
    BoxedKernel, Cost, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, ShapeContext,
    Variable, shape,
};
use numeric::{elementwise, parallel};
use std::marker::PhantomData;
use std::sync::Arc;
use tensor::{DType, Element, PartialShape, Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[
    Op {
        def: OpDef {
            name: "Assign",
            inputs: &["ref: Ref(T)", "value: T"],
            outputs: &["output_ref: Ref(T)"],
            attrs: &["T: type", "validate_shape: bool = true", "use_locking: bool = true"],
            flags: OpFlags::ALLOWS_UNINITIALIZED_INPUT,
        },
        shape: assign_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| {
            BoxedKernel::new(Assign { validate_shape: builder.attrs().bool("validate_shape")? })
        })],
    },
    Op {
        def: OpDef {
            name: "AssignAdd",
            inputs: &["ref: Ref(T)", "value: T"],
            outputs: &["output_ref: Ref(T)"],
            attrs: &[numbertype!("T"), "use_locking: bool = false"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::NotDifferentiable,
        kernels: number_kernels!("T" => DenseUpdate<Add>),
    },
    Op {
        def: OpDef {
            name: "AssignSub",
            inputs: &["ref: Ref(T)", "value: T"],
            outputs: &["output_ref: Ref(T)"],
            attrs: &[numbertype!("T"), "use_locking: bool = false"],
            flags: OpFlags::NONE,
        },
        shape: shape::merged,
        gradient: Gradient::NotDifferentiable,
        kernels: number_kernels!("T" => DenseUpdate<Subtract>),
    },
    Op {
        def: OpDef {
            name: "AssignVariableOp",
            inputs: &["resource: resource", "value: dtype"],
            outputs: &[],
            attrs: &["dtype: type", "validate_shape: bool = false"],
            flags: OpFlags::STATEFUL,
        },
        shape: assign_resource_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: &[KernelDef::any(|builder| {
            let dtype = builder.input_dtype(1);
            BoxedKernel::new(AssignVariable { dtype, validate_shape: builder.attrs().bool("validate_shape")? })
        })],
    },
    Op {
        def: OpDef {
            name: "AssignAddVariableOp",
            inputs: &["resource: resource", "value: dtype"],
            outputs: &[],
            attrs: &["dtype: type"],
            flags: OpFlags::STATEFUL,
        },
        shape: assign_resource_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: number_kernels!("dtype" => DenseUpdate<Add>),
    },
    Op {
        def: OpDef {
            name: "AssignSubVariableOp",
            inputs: &["resource: resource", "value: dtype"],
            outputs: &[],
            attrs: &["dtype: type"],
            flags: OpFlags::STATEFUL,
        },
        shape: assign_resource_shape,
        gradient: Gradient::NotDifferentiable,
        kernels: number_kernels!("dtype" => DenseUpdate<Subtract>),
    },
    Op {
        def: OpDef {
            name: "CountUpTo",
            inputs: &["ref: Ref(T)"],
            outputs: &["output: T"],
            attrs: &["limit: int", "T: {int32, int64}"],
            flags: OpFlags::NONE,
        },
        shape: |c| {
            let shape = c.with_rank(0, 0)?;
            c.set_output(0, shape);
            Ok(())
        },
        gradient: Gradient::NotDifferentiable,
        kernels: kernel::kernels!("T": [i32, i64] => CountUpTo),
    },
    Op {
        def: OpDef {
            name: "ResourceCountUpTo",
            inputs: &["resource: resource"],
            outputs: &["output: T"],
            attrs: &["limit: int", "T: {int32, int64}"],
            flags: OpFlags::STATEFUL,
        },
        shape: |c| {
            let (_, shape) = handle_shape(c, 0)?;
            c.set_output(0, shape.merge(&PartialShape::scalar())?);
            Ok(())
        },
        gradient: Gradient::NotDifferentiable,
        kernels: kernel::kernels!("T": [i32, i64] => CountUpTo),
    },
];

/// Assigns a value of the same shape to a variable; the output is the variable.
#[track_caller]
pub fn assign(variable: &Output, value: &Output) -> Output {
    variable.graph().op("Assign").input(variable).input(value).output()
}

/// Assigns a value of any shape to a variable; the output is the variable.
#[track_caller]
pub fn assign_any_shape(variable: &Output, value: &Output) -> Output {
    variable.graph().op("Assign").input(variable).input(value).attr("validate_shape", false).output()
}

/// Adds to a variable; the output is the variable.
#[track_caller]
pub fn assign_add(variable: &Output, value: &Output) -> Output {
    variable.graph().op("AssignAdd").input(variable).input(value).output()
}

/// Subtracts from a variable; the output is the variable.
#[track_caller]
pub fn assign_sub(variable: &Output, value: &Output) -> Output {
    variable.graph().op("AssignSub").input(variable).input(value).output()
}

/// Assigns a value to the variable of a handle, which is created if it doesn't exist.
#[track_caller]
pub fn assign_variable_op(handle: &Output, value: &Output) -> Operation {
    handle.graph().op("AssignVariableOp").input(handle).input(value).build()
}

/// Adds to the variable of a handle.
#[track_caller]
pub fn assign_add_variable_op(handle: &Output, value: &Output) -> Operation {
    handle.graph().op("AssignAddVariableOp").input(handle).input(value).build()
}

/// Subtracts from the variable of a handle.
#[track_caller]
pub fn assign_sub_variable_op(handle: &Output, value: &Output) -> Operation {
    handle.graph().op("AssignSubVariableOp").input(handle).input(value).build()
}

/// Increments a scalar variable, by ref or by handle, and returns the old value; at `limit` it fails with `OutOfRange`.
#[track_caller]
pub fn count_up_to(variable: &Output, limit: i64) -> Output {
    if variable.dtype() == DType::Resource {
        let dtype = variable.handle_data().first().map_or(DType::Int64, |data| data.dtype);
        return variable.graph().op("ResourceCountUpTo").input(variable).attr("limit", limit).attr("T", dtype).output();
    }
    variable.graph().op("CountUpTo").input(variable).attr("limit", limit).output()
}

fn assign_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = if c.attrs.bool("validate_shape")? { c.merged(0, 1)? } else { c.input(1) };
    c.set_output(0, shape);
    Ok(())
}

fn assign_resource_shape(c: &mut ShapeContext<'_>) -> Result<()> {
    let (dtype, shape) = handle_shape(c, 0)?;
    let value_dtype = c.attrs.dtype("dtype")?;
    if let Some(dtype) = dtype
        && dtype != value_dtype
    {
        return Err(Status::invalid_argument(format!(
            "Trying to assign variable with wrong dtype. Expected {dtype} got {value_dtype}"
        )));
    }
    shape.merge(&c.input(1)).map(drop)
}

struct Assign {
    validate_shape: bool,
}

impl Kernel for Assign {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variable = context.variable(0)?;
        let value = context.take_input(1)?;
        if self.validate_shape {
            let current = variable.lock_for_read().as_ref().map(|tensor| PartialShape::from(tensor.shape()));
            let expected = current.unwrap_or_else(|| variable.declared_shape().clone());
            if !expected.is_compatible_with(value.shape()) {
                return Err(Status::invalid_argument(format!(
                    "Assign requires shapes of both tensors to match. lhs shape= {expected} rhs shape= {}",
                    value.shape()
                )));
            }
        }
        variable.assign(value)?;
        context.set_output_ref(0, variable);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct AssignVariable {
    dtype: DType,
    validate_shape: bool,
}

impl Kernel for AssignVariable {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let value = context.take_input(1)?;
        let variable = self.variable(context)?;
        if self.validate_shape {
            let current = variable.lock_for_read().as_ref().map(|tensor| tensor.shape().clone());
            if let Some(expected) = current
                && expected != *value.shape()
            {
                return Err(Status::invalid_argument(format!(
                    "Trying to assign to variable with tensor with wrong shape. Expected {expected} got {}",
                    value.shape()
                )));
            }
        }
        variable.assign(value)
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

impl AssignVariable {
    fn variable(&self, context: &OpContext<'_>) -> Result<Arc<Variable>> {
        if let Ok(variable) = context.variable(0) {
            return Ok(variable);
        }
        let handle = context.input(0)?.resources()?.first();
        let handle = handle.ok_or_else(|| Status::invalid_argument("an empty resource handle"))?;
        let declared = handle.dtypes_and_shapes.first();
        if let Some(declared) = declared
            && declared.dtype != self.dtype
        {
            return Err(Status::invalid_argument(format!(
                "Trying to assign variable with wrong dtype. Expected {} got {}",
                declared.dtype, self.dtype
            )));
        }
        let shape = declared.map_or_else(PartialShape::unknown, |declared| declared.shape.clone());
        let create = || Ok(Variable::new(&handle.name, self.dtype, shape));
        context.resources().lookup_or_create(&handle.container, &handle.name, create)
    }
}

/// Adds to or subtracts from a variable.
struct DenseUpdate<T, O> {
    /// Whether the variable is given by handle, which determines the text of errors.
    by_handle: bool,
    types: PhantomData<fn() -> (T, O)>,
}

impl<T: Arithmetic, O: RowOperator<T>> DenseUpdate<T, O> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let by_handle = builder.input_dtype(0) == DType::Resource;
        BoxedKernel::new(DenseUpdate::<T, O> { by_handle, types: PhantomData })
    }

    fn mismatch(&self, variable: &Tensor, update: &Tensor) -> Status {
        if !self.by_handle {
            return Status::invalid_argument("Parameters and update must be the same size");
        }
        Status::invalid_argument(format!(
            "Cannot update variable with shape {} using a Tensor with shape {}, shapes must be equal.",
            variable.shape(),
            update.shape()
        ))
    }
}

impl<T: Arithmetic, O: RowOperator<T>> Kernel for DenseUpdate<T, O> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variable = context.variable(0)?;
        let value = context.take_input(1)?;
        variable.update(|tensor| {
            if tensor.shape() != value.shape() {
                return Err(self.mismatch(tensor, &value));
            }
            let updates = value.as_slice::<T>()?;
            if let Some(elements) = tensor.as_mut_slice::<T>() {
                parallel::for_each_chunk_mut(elements, 1, elementwise::CHEAP, |first, run| {
                    run.iter_mut().zip(&updates[first..]).for_each(|(old, &update)| *old = O::apply(*old, update));
                });
                return Ok(());
            }
            // A reader holds the old value, so the new one is written to other memory in the same pass.
            let old = tensor.as_slice::<T>()?;
            *tensor = Tensor::build(tensor.shape().clone(), |new: &mut [T]| {
                parallel::for_each_chunk_mut(new, 1, elementwise::CHEAP, |first, run| {
                    let operands = old[first..].iter().zip(&updates[first..]);
                    run.iter_mut().zip(operands).for_each(|(new, (&old, &update))| *new = O::apply(old, update));
                });
            })?;
            Ok(())
        })?;
        // Only the form by ref has an output, which is the variable.
        context.set_output_ref(0, variable);
        Ok(())
    }
}

struct CountUpTo<T> {
    limit: i64,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> CountUpTo<T> {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel>
    where
        CountUpTo<T>: Kernel + 'static,
    {
        BoxedKernel::new(CountUpTo::<T> { limit: builder.attrs().int("limit")?, element: PhantomData })
    }
}

impl<T: Arithmetic + Into<i64> + num_traits::One> Kernel for CountUpTo<T> {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let variable = context.variable(0)?;
        let before = variable.update(|tensor| {
            if !tensor.shape().is_scalar() {
                return Err(Status::invalid_argument(format!("input is not a scalar: {}", tensor.shape())));
            }
            let before = tensor.to_scalar::<T>()?;
            if before.into() >= self.limit {
                return Err(Status::out_of_range(format!("Reached limit of {}", self.limit)));
            }
            *tensor = Tensor::scalar(before.plus(T::one()));
            Ok(before)
        })?;
        context.set_output(0, Tensor::scalar(before));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{read_variable_op, var_handle_op, variable_op_v2};
    use crate::testing::{TestSession, attrs, check_shape};
    use tensor::Code;

    #[test]
    fn ref_variables_take_values_and_updates() {
        let session = TestSession::new();
        let variable = variable_op_v2(&session.graph, "v", DType::Float, &PartialShape::from_dims(&[2]));
        let value = session.placeholder(DType::Float);
        let status = session.fetch(&assign_add(&variable, &value), &[(&value, Tensor::vector(&[1f32, 2.0]))]);
        assert_eq!(status.unwrap_err().message(), "Attempting to use uninitialized value v");
        let wrong = session.fetch(&assign(&variable, &value), &[(&value, Tensor::vector(&[1f32]))]).unwrap_err();
        assert_eq!(wrong.message(), "Assign requires shapes of both tensors to match. lhs shape= [2] rhs shape= [1]");
        session.fetch(&assign(&variable, &value), &[(&value, Tensor::vector(&[1f32, 2.0]))]).unwrap();
        let held = session.fetch(&variable, &[]).unwrap();
        let sum = session.fetch(&assign_add(&variable, &value), &[(&value, Tensor::vector(&[10f32, 20.0]))]).unwrap();
        assert_eq!(sum.as_slice::<f32>().unwrap(), &[11.0, 22.0]);
        assert_eq!(held.as_slice::<f32>().unwrap(), &[1.0, 2.0], "a snapshot must not change");
        drop(sum);
        let less = session.fetch(&assign_sub(&variable, &value), &[(&value, Tensor::vector(&[1f32, 1.0]))]).unwrap();
        assert_eq!(less.as_slice::<f32>().unwrap(), &[10.0, 21.0]);
        let wrong = session.fetch(&assign_sub(&variable, &value), &[(&value, Tensor::vector(&[1f32]))]).unwrap_err();
        assert_eq!(wrong.message(), "Parameters and update must be the same size");
        let any = session.fetch(&assign_any_shape(&variable, &value), &[(&value, Tensor::scalar(3f32))]).unwrap();
        assert_eq!(any.dims(), &[] as &[i64]);
    }

    #[test]
    fn an_update_works_in_place_when_nobody_reads() {
        let session = TestSession::new();
        let variable = variable_op_v2(&session.graph, "v", DType::Float, &PartialShape::from_dims(&[2]));
        let value = session.placeholder(DType::Float);
        session.fetch(&assign(&variable, &value), &[(&value, Tensor::vector(&[1f32, 2.0]))]).unwrap();
        let resource = session.step.resources.lookup::<Variable>("", "v").unwrap();
        let address = || resource.read_with(|tensor| Ok(tensor.as_slice::<f32>()?.as_ptr().addr())).unwrap();
        let before = address();
        session.run(&assign_add(&variable, &value).op, &[(&value, Tensor::vector(&[1f32, 1.0]))]).unwrap();
        assert_eq!(address(), before);
    }

    #[test]
    fn resource_variables_take_values_and_updates() {
        let session = TestSession::new();
        let handle = var_handle_op(&session.graph, "v", DType::Int64, &PartialShape::unknown());
        let value = session.placeholder(DType::Int64);
        let missing = session.run(&assign_add_variable_op(&handle, &value), &[(&value, Tensor::scalar(1i64))]);
        assert_eq!(missing.unwrap_err().code(), Code::NotFound);
        session.run(&assign_variable_op(&handle, &value), &[(&value, Tensor::vector(&[5i64, 6]))]).unwrap();
        session.run(&assign_add_variable_op(&handle, &value), &[(&value, Tensor::vector(&[1i64, 1]))]).unwrap();
        session.run(&assign_sub_variable_op(&handle, &value), &[(&value, Tensor::vector(&[0i64, i64::MIN]))]).unwrap();
        let read = session.fetch(&read_variable_op(&handle, DType::Int64), &[]).unwrap();
        assert_eq!(read.as_slice::<i64>().unwrap(), &[6, 7i64.wrapping_sub(i64::MIN)]);
        let wrong = session.run(&assign_add_variable_op(&handle, &value), &[(&value, Tensor::vector(&[1i64]))]);
        assert_eq!(
            wrong.unwrap_err().message(),
            "Cannot update variable with shape [2] using a Tensor with shape [1], shapes must be equal."
        );
        let checked = session.graph.op("AssignVariableOp").input(&handle).input(&value).attr("validate_shape", true);
        let wrong = session.run(&checked.build(), &[(&value, Tensor::vector(&[1i64]))]);
        assert_eq!(
            wrong.unwrap_err().message(),
            "Trying to assign to variable with tensor with wrong shape. Expected [2] got [1]"
        );
    }

    #[test]
    fn counting_stops_at_the_limit() {
        let session = TestSession::new();
        let variable = variable_op_v2(&session.graph, "v", DType::Int32, &PartialShape::scalar());
        let value = session.placeholder(DType::Int32);
        session.fetch(&assign(&variable, &value), &[(&value, Tensor::scalar(1i32))]).unwrap();
        let count = count_up_to(&variable, 2);
        assert_eq!(session.fetch(&count, &[]).unwrap().to_scalar::<i32>().unwrap(), 1);
        let status = session.fetch(&count, &[]).unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::OutOfRange, "Reached limit of 2"));
    }

    #[test]
    fn shapes() {
        check_shape("Assign", attrs![("validate_shape", false)], "[2,?];[?,3]", "[?,3]");
        check_shape("Assign", attrs![], "[2,?];[?,3]", "[2,3]");
        check_shape("AssignAdd", attrs![], "[2,?];[?,3]", "[2,3]");
        check_shape("CountUpTo", attrs![("limit", 3i64), ("T", DType::Int32)], "?", "[]");
    }
}
