//! Kernels of the ops on tensor arrays.

use super::stacking::stack;
use super::tensor_array::{TensorArray, TensorArrayOptions, check_count};
use crate::movement::Movable;
use kernel::{BoxedKernel, Cost, Kernel, KernelBuilder, KernelDef, OpContext, ResourceManager, Variable};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

pub(super) const MAKE: &[KernelDef] = &[KernelDef::any(TensorArrayOp::create)];
pub(super) const MAKE_GRADIENT: &[KernelDef] = &[KernelDef::any(|builder| {
    BoxedKernel::new(TensorArrayGrad { source: builder.attrs().string("source")?, form: Form::of(builder) })
})];
pub(super) const WRITE: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(TensorArrayWrite))];
pub(super) const READ: &[KernelDef] =
    &[KernelDef::any(|builder| BoxedKernel::new(TensorArrayRead { dtype: builder.output_dtype(0) }))];
pub(super) const GATHER: &[KernelDef] = &[KernelDef::any(|builder| {
    let element_shape = builder.attrs().shape("element_shape")?;
    BoxedKernel::new(TensorArrayGather { dtype: builder.output_dtype(0), element_shape })
})];
pub(super) const SCATTER: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(TensorArrayScatter))];
pub(super) const CONCAT: &[KernelDef] = &[KernelDef::any(|builder| {
    let element_shape = builder.attrs().shape("element_shape_except0")?;
    BoxedKernel::new(TensorArrayConcat { dtype: builder.output_dtype(0), element_shape })
})];
pub(super) const SPLIT: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(TensorArraySplit))];
pub(super) const SIZE: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(TensorArraySize))];
pub(super) const CLOSE: &[KernelDef] = &[KernelDef::any(|_| BoxedKernel::new(TensorArrayClose))];
/// How an op outputs the array, which differs among the versions.
#[derive(Clone, Copy)]
enum Form {
    Ref,
    Strings,
    Resource,
}

impl Form {
    fn of(builder: &KernelBuilder<'_>) -> Form {
        let slot = builder.node.output_types[0];
        match (slot.dtype, slot.is_ref) {
            (DType::Resource, _) => Form::Resource,
            (_, true) => Form::Ref,
            _ => Form::Strings,
        }
    }

    fn set_output(self, context: &mut OpContext<'_>, container: &str, array: Arc<TensorArray>) -> Result<()> {
        let name = array.name().to_owned();
        if let Form::Resource = self {
            let handle = ResourceManager::handle_to(&context.step().device, container, &name, array);
            context.set_output(0, Tensor::resource(handle));
        } else {
            let names = vec![container.as_bytes().to_vec().into(), name.clone().into_bytes().into()];
            let names = Tensor::from_strings(Shape::vector(2), names)?;
            if let Form::Ref = self {
                let variable = Variable::new(name, DType::String, PartialShape::from_dims(&[2]));
                variable.assign(names)?;
                context.set_output_ref(0, Arc::new(variable));
            } else {
                context.set_output(0, names);
            }
        }
        // The flow only orders operations; its value doesn't matter.
        context.set_output(1, Tensor::scalar(0f32));
        Ok(())
    }
}

/// The containers of tensor arrays and of their gradients among a step's resources.
const ARRAYS: &str = "_tensor_arrays";
const GRADIENTS: &str = "_tensor_array_grads";

struct TensorArrayOp {
    name: String,
    form: Form,
    dtype: DType,
    element_shape: PartialShape,
    dynamic_size: bool,
    clear_after_read: bool,
    identical_element_shapes: bool,
}

impl TensorArrayOp {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let name = attrs.string("tensor_array_name")?;
        BoxedKernel::new(TensorArrayOp {
            name: if name.is_empty() { builder.name().to_owned() } else { name },
            form: Form::of(builder),
            dtype: attrs.dtype("dtype")?,
            element_shape: attrs.shape("element_shape")?,
            dynamic_size: attrs.bool("dynamic_size")?,
            clear_after_read: attrs.bool("clear_after_read")?,
            identical_element_shapes: attrs.bool("identical_element_shapes").unwrap_or(false),
        })
    }
}

impl Kernel for TensorArrayOp {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let size = context.input(0)?;
        if !size.shape().is_scalar() {
            return Err(Status::invalid_argument(format!(
                "TensorArray size must be scalar, but had shape: {}",
                size.shape()
            )));
        }
        let size = usize::try_from(size.to_scalar::<i32>()?);
        let size = size.map_err(|_| Status::invalid_argument("Size should be >= 0."))?;
        check_count(size)?;
        let name = format!("{}_{}", self.name, NEXT.fetch_add(1, Ordering::Relaxed));
        let options = TensorArrayOptions {
            dtype: self.dtype,
            size,
            element_shape: self.element_shape.clone(),
            dynamic_size: self.dynamic_size,
            clear_after_read: self.clear_after_read,
            identical_element_shapes: self.identical_element_shapes,
        };
        let array = Arc::new(TensorArray::new(name.clone(), options));
        context.step().step_resources.create(ARRAYS, &name, array.clone())?;
        self.form.set_output(context, ARRAYS, array)
    }
}

struct TensorArrayGrad {
    source: String,
    form: Form,
}

impl Kernel for TensorArrayGrad {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let array = context.resource::<TensorArray>(0)?;
        let prepended = match context.num_inputs() {
            3 => Some(Shape::new(&context.input(2)?.to_indices()?)?),
            _ => None,
        };
        let name = format!("{}@{}", array.name(), self.source);
        let gradient = context
            .step()
            .step_resources
            .lookup_or_create(GRADIENTS, &name, || array.gradient(name.clone(), prepended.as_ref()))?;
        self.form.set_output(context, GRADIENTS, gradient)
    }
}

/// Passes the flow through, after the array has changed.
fn pass_flow_on(context: &mut OpContext<'_>) -> Result<()> {
    let flow = context.take_input(context.num_inputs() - 1)?;
    context.set_output(0, flow);
    Ok(())
}

fn check_written_dtype(array: &TensorArray, value: &Tensor) -> Result<()> {
    if array.dtype() == value.dtype() {
        return Ok(());
    }
    Err(Status::invalid_argument(format!(
        "TensorArray dtype is {} but Op is trying to write dtype {}.",
        array.dtype(),
        value.dtype()
    )))
}

fn check_read_dtype(array: &TensorArray, dtype: DType) -> Result<()> {
    if array.dtype() == dtype {
        return Ok(());
    }
    Err(Status::invalid_argument(format!("TensorArray dtype is {} but Op requested dtype {dtype}.", array.dtype())))
}

fn index_argument(context: &OpContext<'_>) -> Result<i64> {
    let index = context.input(1)?;
    if !index.shape().is_scalar() {
        return Err(Status::invalid_argument(format!(
            "TensorArray index must be scalar, but had shape: {}",
            index.shape()
        )));
    }
    Ok(i64::from(index.to_scalar::<i32>()?))
}

fn indices_argument(context: &OpContext<'_>) -> Result<Vec<i64>> {
    let indices = context.input(1)?;
    if !indices.shape().is_vector() {
        return Err(Status::invalid_argument(format!(
            "Expected indices to be a vector, but received shape: {}",
            indices.shape()
        )));
    }
    indices.to_indices()
}

struct TensorArrayWrite;

impl Kernel for TensorArrayWrite {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let array = context.resource::<TensorArray>(0)?;
        let index = index_argument(context)?;
        let value = context.take_input(2)?;
        check_written_dtype(&array, &value)?;
        array.write(std::iter::once(Ok((index, value))))?;
        pass_flow_on(context)
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct TensorArrayRead {
    dtype: DType,
}

impl Kernel for TensorArrayRead {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let array = context.resource::<TensorArray>(0)?;
        check_read_dtype(&array, self.dtype)?;
        let value = array.read(std::iter::once(index_argument(context)?))?.pop();
        context.set_output(0, value.ok_or_else(|| Status::internal("nothing was read"))?);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct TensorArrayGather {
    dtype: DType,
    element_shape: PartialShape,
}

impl Kernel for TensorArrayGather {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let array = context.resource::<TensorArray>(0)?;
        check_read_dtype(&array, self.dtype)?;
        array.merge_element_shape(&self.element_shape)?;
        // The first version, which has no indices, takes all elements.
        let indices = match context.num_inputs() {
            2 => (0..array.pack_size()? as i64).collect(),
            _ => indices_argument(context)?,
        };
        let output = if indices.is_empty() {
            let shape = self.element_shape.to_shape().ok_or_else(|| {
                Status::unimplemented(format!(
                    "TensorArray has size zero, but element shape {} is not fully defined. Currently only static shapes are \
                     supported when packing zero-size TensorArrays.",
                    self.element_shape
                ))
            })?;
            Tensor::zeros(self.dtype, Shape::vector(0).concat(&shape)?)?
        } else {
            let elements = array.read(indices.into_iter())?;
            let shape = elements[0].shape();
            if !self.element_shape.is_compatible_with(shape) {
                return Err(Status::invalid_argument(format!(
                    "TensorArray was passed element_shape {} which does not match the Tensor at index 0: {shape}",
                    self.element_shape
                )));
            }
            if let Some(position) = elements.iter().position(|element| element.shape() != shape) {
                return Err(Status::invalid_argument(format!(
                    "TensorArray has inconsistent shapes.  Index 0 has shape: {shape} but index {position} has shape: {}",
                    elements[position].shape()
                )));
            }
            stack(self.dtype, shape, &elements.iter().collect::<Vec<_>>())?
        };
        context.set_output(0, output);
        Ok(())
    }
}

struct TensorArrayScatter;

impl Kernel for TensorArrayScatter {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let array = context.resource::<TensorArray>(0)?;
        let unpacks = context.num_inputs() == 3;
        let value = context.take_input(context.num_inputs() - 2)?;
        check_written_dtype(&array, &value)?;
        let Some(&rows) = value.dims().first() else {
            return Err(Status::invalid_argument(format!(
                "Input value for unpack must be at least a vector but received shape: {}",
                value.shape()
            )));
        };
        let indices = if unpacks { (0..rows).collect() } else { indices_argument(context)? };
        if indices.len() != rows as usize {
            return Err(Status::invalid_argument(format!(
                "Expected len(indices) == values.shape[0], but saw: {} vs. {rows}",
                indices.len()
            )));
        }
        let size = array.size()?;
        if !unpacks
            && !array.is_dynamic()
            && let Some(most) = indices.iter().max()
            && *most >= size as i64
        {
            return Err(Status::invalid_argument(format!(
                "Max scatter index must be < array size ({most} vs. {size})"
            )));
        }
        if unpacks && !array.is_dynamic() && size != rows as usize {
            return Err(Status::invalid_argument(format!(
                "Unpack: Mismatched sizes: array has {size} elements but the value has {rows} rows"
            )));
        }
        let row = |(row, index): (usize, i64)| {
            let part = value.slice_rows(row, row + 1)?;
            let shape = part.shape().slice(1, part.shape().rank());
            Ok((index, part.into_shape(shape)?))
        };
        array.write(indices.into_iter().enumerate().map(row))?;
        if unpacks {
            array.mark_size(rows as usize);
        }
        pass_flow_on(context)
    }
}

struct TensorArrayConcat {
    dtype: DType,
    element_shape: PartialShape,
}

impl Kernel for TensorArrayConcat {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let array = context.resource::<TensorArray>(0)?;
        check_read_dtype(&array, self.dtype)?;
        let size = array.pack_size()?;
        if size == 0 {
            let shape = self.element_shape.to_shape().ok_or_else(|| {
                Status::unimplemented(format!(
                    "TensorArray has size zero, but element_shape_except0 {} is not fully defined. Currently only static \
                     shapes are supported when concatenating zero-size TensorArrays.",
                    self.element_shape
                ))
            })?;
            context.set_output(0, Tensor::zeros(self.dtype, Shape::vector(0).concat(&shape)?)?);
            context.set_output(1, Tensor::vector::<i64>(&[]));
            return Ok(());
        }
        let elements = array.read(0..size as i64)?;
        let mut lengths = Vec::with_capacity(size);
        let mut rest: Option<Shape> = None;
        for (index, element) in elements.iter().enumerate() {
            let Some(&rows) = element.dims().first() else {
                return Err(Status::invalid_argument(format!(
                    "Concat saw a scalar shape at index {index} but requires at least vectors.  Did you mean to call pack?"
                )));
            };
            lengths.push(rows);
            let except0 = element.shape().slice(1, element.shape().rank());
            match &rest {
                None if !self.element_shape.is_compatible_with(&except0) => {
                    return Err(Status::invalid_argument(format!(
                        "TensorArray was passed element_shape_except0 {} but index 0 has (excepting dimension 0) shape: \
                         {except0} which does not match.",
                        self.element_shape
                    )));
                }
                None => rest = Some(except0),
                Some(first) if *first != except0 => {
                    return Err(Status::invalid_argument(format!(
                        "TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape: {first} but index \
                         {index} has (excepting dimension 0) shape: {except0}"
                    )));
                }
                Some(_) => {}
            }
        }
        let shape = Shape::new(&[lengths.iter().sum()])?.concat(&rest.unwrap_or_default())?;
        let output = with_movable!(self.dtype, E => {
            let views: Vec<&[E]> = elements.iter().map(<E as Movable>::view).collect::<Result<_>>()?;
            <E as Movable>::build(self.dtype, shape, |mut to| {
                for from in views {
                    let (part, rest) = to.split_at_mut(from.len());
                    part.clone_from_slice(from);
                    to = rest;
                }
            })
        })?;
        context.set_output(0, output);
        context.set_output(1, Tensor::vector(&lengths));
        Ok(())
    }
}

struct TensorArraySplit;

impl Kernel for TensorArraySplit {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let array = context.resource::<TensorArray>(0)?;
        let value = context.take_input(1)?;
        check_written_dtype(&array, &value)?;
        let lengths = context.input(2)?;
        if !lengths.shape().is_vector() {
            return Err(Status::invalid_argument(format!(
                "Expected lengths to be a vector, received shape: {}",
                lengths.shape()
            )));
        }
        let lengths = lengths.as_slice::<i64>()?.to_vec();
        let Some(&rows) = value.dims().first() else {
            return Err(Status::invalid_argument(format!(
                "Expected value to be at least a vector, but received shape: {}",
                value.shape()
            )));
        };
        let mut total = 0i64;
        for &length in &lengths {
            let sum = total.checked_add(length).filter(|_| length >= 0);
            total = sum.ok_or_else(|| Status::invalid_argument("Expected lengths to be non-negative"))?;
        }
        if total != rows {
            return Err(Status::invalid_argument(format!(
                "Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {total} and value's shape \
                 is: {}",
                value.shape()
            )));
        }
        let size = array.size()?;
        if !array.is_dynamic() && lengths.len() != size {
            return Err(Status::invalid_argument(format!(
                "TensorArray's size is not equal to the size of lengths ({size} vs. {}), and the TensorArray is not marked \
                 as dynamically resizeable",
                lengths.len()
            )));
        }
        let mut start = 0usize;
        let count = lengths.len();
        array.write(lengths.into_iter().enumerate().map(|(index, length)| {
            let end = start + length as usize;
            let part = value.slice_rows(start, end)?;
            start = end;
            Ok((index as i64, part))
        }))?;
        array.mark_size(count);
        pass_flow_on(context)
    }
}

struct TensorArraySize;

impl Kernel for TensorArraySize {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let size = context.resource::<TensorArray>(0)?.size()?;
        context.set_output(0, Tensor::scalar(i32::try_from(size).unwrap_or(i32::MAX)));
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}

struct TensorArrayClose;

impl Kernel for TensorArrayClose {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        context.resource::<TensorArray>(0)?.close();
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost::Inline
    }
}
