//! The kernels of list ops.

use super::tensor_list::{MAX_ELEMENTS, TensorList, check_count, merged};
use crate::array::join;
use kernel::{BoxedKernel, Kernel, KernelBuilder, OpContext};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// Runs a function on a node's inputs and attributes.
pub(super) struct ListKernel {
    attrs: Attrs,
    run: fn(&Attrs, &mut OpContext<'_>) -> Result<()>,
}

/// The attributes that list ops have.
pub(super) struct Attrs {
    dtype: DType,
    num_elements: i64,
    resizes: bool,
    shape_is_wide: bool,
    element_shape: PartialShape,
}

impl ListKernel {
    pub(super) fn create(
        builder: &KernelBuilder<'_>,
        run: fn(&Attrs, &mut OpContext<'_>) -> Result<()>,
    ) -> Result<BoxedKernel> {
        let attrs = builder.attrs();
        let attrs = Attrs {
            dtype: attrs.dtype("element_dtype").unwrap_or(DType::Float),
            num_elements: attrs.int("num_elements").unwrap_or(-1),
            resizes: attrs.bool("resize_if_index_out_of_bounds").unwrap_or(false),
            shape_is_wide: attrs.dtype("shape_type").is_ok_and(|dtype| dtype == DType::Int64),
            element_shape: attrs.shape("element_shape").unwrap_or_else(|_| PartialShape::unknown()),
        };
        BoxedKernel::new(ListKernel { attrs, run })
    }
}

impl Kernel for ListKernel {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        (self.run)(&self.attrs, context)
    }
}

/// Returns the element shape in an input: sizes, or -1 for any shape.
fn shape_input(context: &OpContext<'_>, index: usize) -> Result<PartialShape> {
    let sizes = context.input(index)?;
    if sizes.shape().is_scalar() {
        return match sizes.to_index()? {
            -1 => Ok(PartialShape::unknown()),
            _ => Err(Status::invalid_argument(
                "The only valid scalar shape tensor is the fully unknown shape specified as -1.",
            )),
        };
    }
    if sizes.shape().rank() > 1 {
        return Err(Status::invalid_argument(format!(
            "Shape must be at most rank 1 but is rank {}",
            sizes.shape().rank()
        )));
    }
    let sizes = sizes.to_indices()?;
    if let Some(size) = sizes.iter().find(|&&size| size < -1) {
        return Err(Status::invalid_argument(format!("Dimension {size} must be >= -1")));
    }
    Ok(PartialShape::from_dims(&sizes))
}

fn input_list(attrs: &Attrs, context: &OpContext<'_>) -> Result<std::sync::Arc<TensorList>> {
    let list = TensorList::of(context.input(0)?)?;
    list.check_dtype(attrs.dtype)?;
    Ok(list)
}

fn take_list(context: &mut OpContext<'_>) -> Result<TensorList> {
    TensorList::take(context.take_input(0)?)
}

/// Returns the rows of a tensor.
fn rows(tensor: &Tensor) -> Result<Vec<Tensor>> {
    let count = tensor.dims().first().copied().unwrap_or(0) as usize;
    let shape = tensor.shape().slice(1.min(tensor.shape().rank()), tensor.shape().rank());
    (0..count).map(|row| tensor.slice_rows(row, row + 1)?.into_shape(shape.clone())).collect()
}

fn at_least_vector(tensor: &Tensor) -> Result<()> {
    if tensor.shape().is_scalar() {
        return Err(Status::invalid_argument("Tensor must be at least a vector, but saw shape: []"));
    }
    Ok(())
}

/// Returns the only element of an input; for another shape, `problem` formats the error.
fn only_number(context: &OpContext<'_>, index: usize, problem: &str) -> Result<i32> {
    match context.slice::<i32>(index)? {
        [number] => Ok(*number),
        _ => Err(Status::invalid_argument(format!("{problem} {}", context.input(index)?.shape()))),
    }
}

pub(super) fn empty(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let max_num_elements = only_number(context, 1, "max_num_elements expected to be a scalar but got shape:")?;
    let max_num_elements = i64::from(max_num_elements);
    let list = TensorList::new(attrs.dtype, shape_input(context, 0)?, Vec::new());
    context.set_output(0, TensorList { max_num_elements, ..list }.into_tensor());
    Ok(())
}

pub(super) fn reserve(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let count = only_number(context, 1, "The num_elements to reserve must be a tensor size 1, but got")?;
    let count = i64::from(count);
    let list = TensorList::reserved(attrs.dtype, shape_input(context, 0)?, count)?;
    context.set_output(0, list.into_tensor());
    Ok(())
}

/// Appends an element; `whose` says which of several lists it is.
fn push(list: &mut TensorList, element: Tensor, whose: &str) -> Result<()> {
    if !list.element_shape.is_compatible_with(element.shape()) {
        return Err(Status::invalid_argument(format!(
            "Tried to append a tensor with incompatible shape to a list{whose}. Op element shape: {} list shape: {}",
            element.shape(),
            list.element_shape
        )));
    }
    let size = list.elements.len();
    if (list.max_num_elements >= 0 && size as i64 >= list.max_num_elements) || size >= MAX_ELEMENTS {
        return Err(Status::invalid_argument(format!(
            "Tried to push item into a full list list size: {size} max_num_elements: {}",
            list.max_num_elements
        )));
    }
    list.elements.push(Some(element));
    Ok(())
}

pub(super) fn push_back(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    input_list(attrs, context)?;
    let element = context.take_input(1)?;
    let mut list = take_list(context)?;
    push(&mut list, element, "")?;
    context.set_output(0, list.into_tensor());
    Ok(())
}

pub(super) fn push_back_batch(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let (handles, tensor) = (context.input(0)?, context.input(1)?);
    if tensor.shape().is_scalar() {
        return Err(Status::invalid_argument("Expected tensor to be at least a vector, but saw shape: []"));
    }
    let elements = rows(tensor)?;
    if handles.num_elements() != elements.len() {
        return Err(Status::invalid_argument(format!(
            "Expected tensor.shape[0] == input_handles.size, but saw {} vs. {}",
            elements.len(),
            handles.num_elements()
        )));
    }
    let mut lists = Vec::with_capacity(elements.len());
    for (index, (variant, element)) in handles.variants()?.iter().zip(elements).enumerate() {
        let mut list = (*TensorList::of_variant(variant)?).clone();
        if list.dtype != attrs.dtype {
            return Err(Status::invalid_argument(format!(
                "Invalid data type at index {index}; op elements {} but list elements {}",
                attrs.dtype, list.dtype
            )));
        }
        push(&mut list, element, &format!(" at index {index}"))?;
        lists.push(list.into_variant());
    }
    let output = Tensor::from_variants(handles.shape().clone(), lists)?;
    context.set_output(0, output);
    Ok(())
}

pub(super) fn pop_back(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let known = input_list(attrs, context)?;
    if known.elements.is_empty() {
        return Err(Status::invalid_argument("Trying to pop from an empty list."));
    }
    let wanted = shape_input(context, 1)?;
    let last = known.elements.len() - 1;
    let element = match &known.elements[last] {
        Some(element) => element.clone(),
        None => {
            let shape = known.declared_shape(&wanted)?;
            let problem = "Trying to read an uninitialized tensor but element_shape is not fully defined.";
            let whole = shape.to_shape().ok_or_else(|| Status::invalid_argument(format!("{problem}{shape}")))?;
            Tensor::zeros(known.dtype, whole)?
        }
    };
    drop(known);
    let mut list = take_list(context)?;
    list.elements.pop();
    context.set_output(0, list.into_tensor());
    context.set_output(1, element);
    Ok(())
}

/// Returns an element; one that was never set is zeros, if its shape is known.
fn element(list: &TensorList, index: usize, wanted: &PartialShape) -> Result<Tensor> {
    if let Some(Some(element)) = list.elements.get(index) {
        return Ok(element.clone());
    }
    let shape = list.merged_shape(wanted, 0..list.elements.len())?;
    let shape = shape.to_shape().ok_or_else(|| {
        Status::invalid_argument(format!(
            "Trying to read an uninitialized tensor but element_shape is not fully defined: {shape} and no list element is \
             set."
        ))
    })?;
    Tensor::zeros(list.dtype, shape)
}

pub(super) fn get_item(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let list = input_list(attrs, context)?;
    let index = context.scalar::<i32>(1, "index")?;
    let position = usize::try_from(index).ok().filter(|&position| position < list.elements.len());
    let position = position.ok_or_else(|| {
        let count = list.elements.len();
        Status::invalid_argument(format!("Trying to access element {index} in a list with {count} elements."))
    })?;
    let element = element(&list, position, &shape_input(context, 2)?)?;
    context.set_output(0, element);
    Ok(())
}

pub(super) fn set_item(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    input_list(attrs, context)?.check_element(context.input(2)?)?;
    let &[index] = context.slice::<i32>(1)? else {
        let (index, shape) = (context.input(1)?, context.input(1)?.shape());
        let values = crate::logging::summarize::summarize_value(index, 3)?;
        let values = values.trim_start_matches('[').trim_end_matches(']');
        return Err(Status::invalid_argument(format!(
            "Expected argument 1 to be a scalar. ReceivedTensor<type: int32 shape: {shape} values: {values}>"
        )));
    };
    let item = context.take_input(2)?;
    let mut list = take_list(context)?;
    let count = list.elements.len();
    let position = usize::try_from(index).ok().filter(|&position| position < count || attrs.resizes);
    let position = position.filter(|&position| position < MAX_ELEMENTS).ok_or_else(|| {
        Status::invalid_argument(format!("Trying to modify element {index} in a list with {count} elements."))
    })?;
    if position >= count {
        check_count(position + 1)?;
        list.elements.resize(position + 1, None);
    }
    list.elements[position] = Some(item);
    context.set_output(0, list.into_tensor());
    Ok(())
}

pub(super) fn length(_: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let count = TensorList::of(context.input(0)?)?.elements.len();
    context.set_output(0, Tensor::scalar(count as i32));
    Ok(())
}

pub(super) fn element_shape(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let list = TensorList::of(context.input(0)?)?;
    let output = match list.element_shape.dims() {
        None if attrs.shape_is_wide => Tensor::scalar(-1i64),
        None => Tensor::scalar(-1i32),
        Some(dims) => {
            let sizes: Vec<i64> = dims.iter().map(|dim| dim.unwrap_or(-1)).collect();
            crate::array::index_vector(&sizes, attrs.shape_is_wide)?
        }
    };
    context.set_output(0, output);
    Ok(())
}

/// Stacks elements of a known shape along a new first axis.
fn stacked(list: &TensorList, indices: &[usize], shape: &Shape) -> Result<Tensor> {
    let parts: Vec<Tensor> = indices.iter().map(|&index| list.element_or_zeros(index, shape)).collect::<Result<_>>()?;
    let parts: Vec<&Tensor> = parts.iter().collect();
    crate::data_flow::stack(list.dtype, shape, &parts)
}

pub(super) fn stack(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let list = input_list(attrs, context)?;
    let count = list.elements.len();
    if attrs.num_elements >= 0 && attrs.num_elements != count as i64 {
        return Err(Status::invalid_argument(format!(
            "Operation expected a list with {} elements but got a list with {count} elements.",
            attrs.num_elements
        )));
    }
    let all: Vec<usize> = (0..count).collect();
    let shape = list.merged_shape(&shape_input(context, 1)?, all.iter().copied())?;
    let whole = shape.to_shape().ok_or_else(|| {
        let problem = match list.elements.is_empty() {
            true => "Tried to stack elements of an empty list with non-fully-defined element_shape",
            false => {
                "Tried to stack list which only contains uninitialized tensors and has a non-fully-defined \
                 element_shape"
            }
        };
        Status::invalid_argument(format!("{problem}: {shape}"))
    })?;
    let output = stacked(&list, &all, &whole)?;
    context.set_output(0, output);
    Ok(())
}

pub(super) fn gather(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let list = input_list(attrs, context)?;
    let count = list.elements.len();
    let indices = context.slice::<i32>(1)?;
    let wanted = shape_input(context, 2)?;
    let shape = list.declared_shape(&wanted)?;
    if indices.is_empty() && !shape.is_fully_defined() {
        return Err(Status::invalid_argument(format!(
            "Tried to gather 0-elements from a list with non-fully-defined shape: {shape}"
        )));
    }
    let mut places = Vec::new();
    for &index in indices {
        let place = usize::try_from(index).ok().filter(|&place| place < count);
        places.push(place.ok_or_else(|| {
            Status::invalid_argument(match list.element_shape.is_fully_defined() {
                true => format!("Index {index} out o range; list only has {count} elements."),
                false => format!("Trying to gather element {index} in a list with {count} elements."),
            })
        })?);
    }
    let shape = list.merged_shape(&wanted, places.iter().copied())?;
    let whole = shape.to_shape().ok_or_else(|| {
        Status::invalid_argument(format!(
            "Tried to gather uninitialized tensors from a list with non-fully-defined element_shape: {shape}"
        ))
    })?;
    let output = match places.is_empty() {
        true => Tensor::zeros(list.dtype, Shape::vector(0).concat(&whole)?)?,
        false => stacked(&list, &places, &whole)?,
    };
    context.set_output(0, output);
    Ok(())
}

pub(super) fn from_tensor(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let tensor = context.input(0)?;
    at_least_vector(tensor)?;
    let shape = shape_input(context, 1)?;
    let row = tensor.shape().slice(1, tensor.shape().rank());
    if !shape.is_compatible_with(&row) {
        return Err(Status::invalid_argument(format!(
            "Specified a list with shape {shape} from a tensor with shape {row}"
        )));
    }
    let elements = rows(tensor)?.into_iter().map(Some).collect();
    context.set_output(0, TensorList::new(attrs.dtype, shape, elements).into_tensor());
    Ok(())
}

/// Puts rows of a tensor into positions of a list, which grows as needed. As in TensorFlow, comparing the shapes is up to the
/// caller.
fn put(list: &mut TensorList, tensor: &Tensor, indices: &[i32]) -> Result<()> {
    let elements = rows(tensor)?;
    if elements.len() != indices.len() {
        return Err(Status::invalid_argument(format!(
            "Invalid number of rows in input tensor. Expected: {} Actual: {}",
            indices.len(),
            elements.len()
        )));
    }
    for (&index, element) in indices.iter().zip(elements) {
        let place = usize::try_from(index).ok().filter(|&place| place < MAX_ELEMENTS);
        let place = place.ok_or_else(|| {
            Status::invalid_argument(format!(
                "Indices in TensorListScatter must all be non-negative. There is {index} among them."
            ))
        })?;
        if place >= list.elements.len() {
            check_count(place + 1)?;
            list.elements.resize(place + 1, None);
        }
        list.elements[place] = Some(element);
    }
    Ok(())
}

fn index_vector(indices: &Tensor) -> Result<&[i32]> {
    if !indices.shape().is_vector() {
        return Err(Status::invalid_argument(format!(
            "Expected indices to be a vector, but received shape: {}",
            indices.shape()
        )));
    }
    indices.as_slice::<i32>()
}

pub(super) fn scatter(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let tensor = context.input(0)?;
    at_least_vector(tensor)?;
    let indices = index_vector(context.input(1)?)?;
    let shape = shape_input(context, 2)?;
    let wanted = match context.num_inputs() > 3 {
        true => i64::from(context.scalar::<i32>(3, "num_elements")?),
        false => -1,
    };
    if wanted < -1 {
        return Err(Status::invalid_argument(format!("TensorListScatter expects num_elements >= -1, found: {wanted}")));
    }
    if wanted >= 0
        && let Some(index) = indices.iter().find(|&&index| i64::from(index) >= wanted)
    {
        return Err(Status::invalid_argument(format!(
            "TensorListScatter: Trying to scatter at index {index} in list with size {wanted}"
        )));
    }
    let row = tensor.shape().slice(1, tensor.shape().rank());
    if !shape.is_compatible_with(&row) {
        return Err(Status::invalid_argument(format!(
            "Specified a list with shape {shape} from a tensor with shape {row}"
        )));
    }
    let mut list = TensorList::reserved(attrs.dtype, shape, wanted.max(0))?;
    put(&mut list, tensor, indices)?;
    context.set_output(0, list.into_tensor());
    Ok(())
}

pub(super) fn scatter_into_existing_list(_: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let known = TensorList::of(context.input(0)?)?;
    let (tensor, indices) = (context.take_input(1)?, context.take_input(2)?);
    if tensor.dtype() != known.dtype {
        return Err(Status::invalid_argument(format!(
            "Invalid data types; input tensor type: {} list element_type: {}",
            tensor.dtype(),
            known.dtype
        )));
    }
    drop(known);
    at_least_vector(&tensor)?;
    let indices = index_vector(&indices)?;
    let mut list = take_list(context)?;
    put(&mut list, &tensor, indices)?;
    context.set_output(0, list.into_tensor());
    Ok(())
}

pub(super) fn resize(_: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let size = context.scalar::<i32>(1, "size")?;
    let size = usize::try_from(size).ok().filter(|&size| size <= MAX_ELEMENTS).ok_or_else(|| {
        Status::invalid_argument(format!("TensorListSlice expects size to be non-negative. Got: {size}"))
    })?;
    let mut list = take_list(context)?;
    check_count(size)?;
    list.elements.resize(size, None);
    context.set_output(0, list.into_tensor());
    Ok(())
}

pub(super) fn split(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let tensor = context.input(0)?;
    at_least_vector(tensor)?;
    let shape = shape_input(context, 1)?;
    let rank = tensor.shape().rank();
    if shape.rank() == Some(0) {
        return Err(Status::invalid_argument(format!(
            "TensorListSplit requires element_shape to be at least of rank 1, but saw: {shape}"
        )));
    }
    let rest = shape.rank().map_or_else(PartialShape::unknown, |rank| shape.slice(1, rank));
    if !rest.is_compatible_with(&tensor.shape().slice(1, rank)) {
        return Err(Status::invalid_argument(format!(
            "tensor shape {} is not compatible with element_shape {shape}",
            tensor.shape()
        )));
    }
    if !context.input(2)?.shape().is_vector() {
        return Err(Status::invalid_argument(format!(
            "Expected lengths to be a vector, received shape: {}",
            context.input(2)?.shape()
        )));
    }
    let lengths = context.slice::<i64>(2)?;
    let total = tensor.dims()[0] as usize;
    let mut elements = Vec::with_capacity(lengths.len());
    let mut start = 0usize;
    for &length in lengths {
        let Ok(rows) = usize::try_from(length) else {
            return Err(Status::invalid_argument(format!("Invalid value in lengths: {length}")));
        };
        let end = start.saturating_add(rows);
        if end > total {
            return Err(Status::invalid_argument(format!(
                "Attempting to slice [{start}, {end}] from tensor with length {total}"
            )));
        }
        elements.push(Some(tensor.slice_rows(start, end)?));
        start = end;
    }
    if start != total {
        return Err(Status::invalid_argument(format!(
            "Unused values in tensor. Length of tensor: {total} Values used: {start}"
        )));
    }
    context.set_output(0, TensorList::new(attrs.dtype, shape, elements).into_tensor());
    Ok(())
}

pub(super) fn concat(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let list = input_list(attrs, context)?;
    let (wanted, leading) = match context.num_inputs() > 1 {
        true => (shape_input(context, 1)?, context.slice::<i64>(2)?),
        false => (attrs.element_shape.clone(), &[][..]),
    };
    let is_second_version = context.num_inputs() > 1;
    let mut shape = wanted;
    if is_second_version {
        shape = list.declared_shape(&shape)?;
    }
    if shape.rank() == Some(0) {
        return Err(Status::invalid_argument(match is_second_version {
            true => "Concat requires elements to be at least vectors, found scalars instead.",
            false => "element_shape must not be empty",
        }));
    }
    let mut inner = shape.rank().map_or_else(PartialShape::unknown, |rank| shape.slice(1, rank));
    if list.elements.is_empty() && !inner.is_fully_defined() {
        return Err(Status::invalid_argument(format!(
            "All except the first dimension must be fully defined when concating an empty tensor list. element_shape: \
             {inner}"
        )));
    }
    // The rows of elements that were never set: as many as requested, or as in all others.
    let mut first_dim = if is_second_version { shape.dim(0) } else { None };
    if !list.element_shape.is_fully_defined() {
        let asked_for = first_dim;
        let mut others = Vec::new();
        for (index, element) in list.elements.iter().enumerate() {
            let Some(element) = element else { continue };
            let Some(&rows) = element.dims().first() else {
                return Err(Status::invalid_argument(format!(
                    "Concat saw a scalar shape at index {index} but requires at least vectors."
                )));
            };
            inner = merged(&inner, &PartialShape::from(&element.shape().slice(1, element.shape().rank())))?;
            if let Some(expected) = asked_for
                && rows != expected
            {
                return Err(Status::invalid_argument(format!(
                    "First entry of element_shape input does not match the first dim of list element at index: {index} \
                     Expected: {expected} Actual: {rows}"
                )));
            }
            others.push(rows);
        }
        others.dedup();
        if let (None, [rows]) = (asked_for, others.as_slice()) {
            first_dim = Some(*rows);
        }
    }
    let inner = inner.to_shape().ok_or_else(|| {
        Status::invalid_argument(format!(
            "Trying to concat list with only uninitialized tensors but element_shape_except_first_dim is not fully \
             defined: {inner}"
        ))
    })?;
    let mut parts = Vec::with_capacity(list.elements.len());
    for (index, element) in list.elements.iter().enumerate() {
        parts.push(match (element, leading.get(index), first_dim) {
            (Some(element), ..) if element.shape().slice(1, element.shape().rank()) == inner => element.clone(),
            (Some(element), ..) => {
                let found = PartialShape::from(&element.shape().slice(1, element.shape().rank()));
                merged(&PartialShape::from(&inner), &found)?;
                element.clone()
            }
            (None, Some(&rows), _) | (None, None, Some(rows)) => {
                Tensor::zeros(list.dtype, Shape::new(&[rows])?.concat(&inner)?)?
            }
            (None, None, None) if is_second_version => {
                return Err(Status::invalid_argument(format!(
                    "List contains uninitialized tensor at index {index} but leading_dims has only {} elements.",
                    leading.len()
                )));
            }
            (None, None, None) => {
                return Err(Status::invalid_argument(
                    "Concating lists with uninitialized tensors is not supported in this version of TensorListConcat. \
                     Consider updating your GraphDef to run the newer version.",
                ));
            }
        });
    }
    let lengths: Vec<i64> = parts.iter().map(|part| part.dims()[0]).collect();
    let total: i64 = lengths.iter().sum();
    let shape = Shape::new(&[total])?.concat(&inner)?;
    let parts: Vec<&Tensor> = parts.iter().collect();
    let output = match parts.is_empty() {
        true => Tensor::zeros(list.dtype, shape)?,
        false => join(&parts, 0, shape)?,
    };
    context.set_output(0, output);
    context.set_output(1, Tensor::vector(&lengths));
    Ok(())
}

pub(super) fn concat_lists(attrs: &Attrs, context: &mut OpContext<'_>) -> Result<()> {
    let (a, b) = (context.input(0)?, context.input(1)?);
    if a.shape() != b.shape() {
        return Err(Status::invalid_argument(format!(
            "input_a and input_b must have the same shape, but saw {} and {}",
            a.shape(),
            b.shape()
        )));
    }
    let mut lists = Vec::with_capacity(a.num_elements());
    for (a, b) in a.variants()?.iter().zip(b.variants()?) {
        let (mut first, second) = ((*TensorList::of_variant(a)?).clone(), TensorList::of_variant(b)?);
        first.check_dtype(attrs.dtype)?;
        second.check_dtype(attrs.dtype)?;
        if first.element_shape != second.element_shape {
            return Err(Status::invalid_argument(format!(
                "input_a and input_b TensorList element shapes are not identical at index {}.  Saw {} vs. {}",
                lists.len(),
                first.element_shape,
                second.element_shape
            )));
        }
        first.elements.extend(second.elements.iter().cloned());
        lists.push(first.into_variant());
    }
    let output = Tensor::from_variants(a.shape().clone(), lists)?;
    context.set_output(0, output);
    Ok(())
}
