//! [`Tensor`]: a typed, shaped, immutable-by-default array that is cheap to clone.

use crate::{
    Account, Buffer, Charge, Code, DType, Element, ResourceHandle, Result, Shape, Status, Variant, check_elements_fit,
    copy_bytes,
};
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// An element of a string tensor: any bytes.
pub type StringElement = Bytes;

/// A multi-dimensional array. Cloning shares the elements; writing needs the only reference or copies first.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    data: Data,
}

#[derive(Clone)]
enum Data {
    Plain(Buffer),
    Strings(Arc<List<StringElement>>),
    Resources(Arc<List<ResourceHandle>>),
    Variants(Arc<List<Variant>>),
}

/// Elements that are not plain bytes, and the charge for them.
#[derive(Clone)]
struct List<T> {
    values: Vec<T>,
    charge: Charge,
}

impl<T> List<T> {
    /// Charges the list, and what its elements hold themselves, to the account that is current.
    fn new(values: Vec<T>, held_bytes: impl Fn(&T) -> usize) -> Result<Arc<List<T>>> {
        let charge = Charge::new(list_bytes(&values, held_bytes))?;
        Ok(Arc::new(List { values, charge }))
    }

    /// As [`new`](Self::new), for so little that it is always taken.
    fn small(values: Vec<T>, held_bytes: impl Fn(&T) -> usize) -> Arc<List<T>> {
        let charge = Charge::anyway(list_bytes(&values, held_bytes));
        Arc::new(List { values, charge })
    }
}

impl<T> std::ops::Deref for List<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.values
    }
}

fn list_bytes<T>(values: &[T], held_bytes: impl Fn(&T) -> usize) -> usize {
    size_of_val(values) + size_of::<List<T>>() + values.iter().map(held_bytes).sum::<usize>()
}

/// Adds the tensor that there is no memory for, in TensorFlow's words.
fn for_tensor(status: Status, dtype: DType, shape: &Shape) -> Status {
    if status.code() != Code::ResourceExhausted {
        return status;
    }
    status.context(format!("OOM when allocating tensor with shape{shape} and type {dtype}"))
}

impl Tensor {
    /// Returns a tensor whose elements are initialized but unspecified (`bool` and non-plain ones are empty).
    pub fn new(dtype: DType, shape: Shape) -> Result<Tensor> {
        if dtype == DType::Bool || !dtype.is_plain() {
            return Tensor::zeros(dtype, shape);
        }
        match Buffer::new(shape.num_bytes(dtype.size())?) {
            Ok(buffer) => Ok(Tensor { dtype, shape, data: Data::Plain(buffer) }),
            Err(status) => Err(for_tensor(status, dtype, &shape)),
        }
    }

    /// Returns a tensor of zeros, `false`s, empty strings or empty variants.
    pub fn zeros(dtype: DType, shape: Shape) -> Result<Tensor> {
        let data = Tensor::zero_data(dtype, &shape).map_err(|status| for_tensor(status, dtype, &shape))?;
        Ok(Tensor { dtype, shape, data })
    }

    fn zero_data(dtype: DType, shape: &Shape) -> Result<Data> {
        Ok(match dtype {
            DType::String => {
                check_elements_fit(shape.num_elements(), size_of::<StringElement>())?;
                Data::Strings(List::new(vec![Bytes::new(); shape.num_elements()], Bytes::len)?)
            }
            DType::Variant => {
                check_elements_fit(shape.num_elements(), size_of::<Variant>())?;
                Data::Variants(List::new(vec![Variant::Empty; shape.num_elements()], |_| 0)?)
            }
            DType::Resource => {
                if shape.num_elements() != 0 {
                    return Err(Status::invalid_argument("a resource tensor can't be made without its handles"));
                }
                Data::Resources(List::small(Vec::new(), |_| 0))
            }
            _ => Data::Plain(Buffer::zeroed(shape.num_bytes(dtype.size())?)?),
        })
    }

    /// Makes a tensor by filling its elements, which start out unspecified.
    pub fn build<T: Element>(shape: Shape, fill: impl FnOnce(&mut [T])) -> Result<Tensor> {
        // Filled where it is returned, and all but the call elsewhere: this is compiled for more than a thousand closures.
        let mut built = unfilled(T::DTYPE, shape);
        if let Some(elements) = elements_to_fill(&mut built) {
            fill(elements);
        }
        built
    }

    /// As [`build`](Self::build), for elements that stand for those of a type of the same size.
    pub fn build_as<T: Element>(dtype: DType, shape: Shape, fill: impl FnOnce(&mut [T])) -> Result<Tensor> {
        if dtype == DType::Bool || !dtype.is_plain() || dtype.size() != size_of::<T>() {
            return Err(Status::invalid_argument(format!("{} elements can't be seen as {dtype}", T::DTYPE)));
        }
        let mut built = unfilled(dtype, shape);
        if let Some(elements) = elements_to_fill(&mut built) {
            fill(elements);
        }
        built
    }

    /// Makes a scalar.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        let buffer = Buffer::copy_of(bytemuck::bytes_of(&value));
        Tensor { dtype: T::DTYPE, shape: Shape::scalar(), data: Data::Plain(buffer) }
    }

    /// Makes a vector from a slice.
    pub fn vector<T: Element>(values: &[T]) -> Tensor {
        let buffer = Buffer::copy_of(bytemuck::cast_slice(values));
        Tensor { dtype: T::DTYPE, shape: Shape::vector(values.len()), data: Data::Plain(buffer) }
    }

    /// Makes a tensor from its elements in row-major order; their number must fit the shape.
    pub fn from_slice<T: Element>(dims: &[i64], values: &[T]) -> Result<Tensor> {
        let shape = Shape::new(dims)?;
        if shape.num_elements() != values.len() {
            return Err(Status::invalid_argument(format!("{} values don't fill shape {shape}", values.len())));
        }
        let mut buffer = Buffer::new(size_of_val(values)).map_err(|status| for_tensor(status, T::DTYPE, &shape))?;
        if let Some(bytes) = buffer.bytes_mut() {
            copy_bytes(bytes, bytemuck::cast_slice(values));
        }
        Ok(Tensor { dtype: T::DTYPE, shape, data: Data::Plain(buffer) })
    }

    /// Makes a scalar string.
    pub fn string(value: impl Into<Bytes>) -> Tensor {
        Tensor {
            dtype: DType::String,
            shape: Shape::scalar(),
            data: Data::Strings(List::small(vec![value.into()], Bytes::len)),
        }
    }

    /// Makes a string tensor from its elements.
    pub fn from_strings(shape: Shape, values: Vec<StringElement>) -> Result<Tensor> {
        check_count(&shape, values.len())?;
        let list = List::new(values, Bytes::len).map_err(|status| for_tensor(status, DType::String, &shape))?;
        Ok(Tensor { dtype: DType::String, shape, data: Data::Strings(list) })
    }

    /// Makes a scalar resource tensor.
    pub fn resource(handle: ResourceHandle) -> Tensor {
        Tensor {
            dtype: DType::Resource,
            shape: Shape::scalar(),
            data: Data::Resources(List::small(vec![handle], |_| 0)),
        }
    }

    /// Makes a resource tensor from its handles.
    pub fn from_resources(shape: Shape, handles: Vec<ResourceHandle>) -> Result<Tensor> {
        check_count(&shape, handles.len())?;
        Ok(Tensor { dtype: DType::Resource, shape, data: Data::Resources(List::new(handles, |_| 0)?) })
    }

    /// Makes a scalar variant tensor.
    pub fn variant(value: Variant) -> Tensor {
        Tensor { dtype: DType::Variant, shape: Shape::scalar(), data: Data::Variants(List::small(vec![value], |_| 0)) }
    }

    /// Makes a variant tensor from its elements.
    pub fn from_variants(shape: Shape, values: Vec<Variant>) -> Result<Tensor> {
        check_count(&shape, values.len())?;
        Ok(Tensor { dtype: DType::Variant, shape, data: Data::Variants(List::new(values, |_| 0)?) })
    }

    /// Makes a tensor over a buffer; the bytes must fit the shape. A misaligned buffer is copied once.
    pub fn from_buffer(dtype: DType, shape: Shape, buffer: Buffer) -> Result<Tensor> {
        if !dtype.is_plain() {
            return Err(Status::invalid_argument(format!("{dtype} elements are not plain bytes")));
        }
        let expected = shape.num_bytes(dtype.size())?;
        if buffer.len() != expected {
            return Err(Status::invalid_argument(format!(
                "{} bytes don't fit a {dtype} tensor of shape {shape}, which has {expected}",
                buffer.len()
            )));
        }
        if dtype == DType::Bool && buffer.bytes().iter().any(|&byte| byte > 1) {
            let mut normal = Buffer::new(buffer.len())?;
            if let Some(bytes) = normal.bytes_mut() {
                bytes.iter_mut().zip(buffer.bytes()).for_each(|(to, &from)| *to = u8::from(from != 0));
            }
            return Ok(Tensor { dtype, shape, data: Data::Plain(normal) });
        }
        let alignment = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
        let buffer = if buffer.is_aligned_to(alignment) {
            buffer
        } else {
            let mut aligned = Buffer::new(buffer.len())?;
            if let Some(bytes) = aligned.bytes_mut() {
                copy_bytes(bytes, buffer.bytes());
            }
            aligned
        };
        Ok(Tensor { dtype, shape, data: Data::Plain(buffer) })
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the sizes of the dimensions.
    pub fn dims(&self) -> &[i64] {
        self.shape.dims()
    }

    /// Returns the number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.num_elements()
    }

    /// Returns about how many bytes the elements take.
    pub fn num_bytes(&self) -> usize {
        match &self.data {
            Data::Plain(buffer) => buffer.len(),
            Data::Strings(strings) => strings.iter().map(|s| s.len() + size_of::<StringElement>()).sum(),
            Data::Resources(handles) => handles.len() * size_of::<ResourceHandle>(),
            Data::Variants(variants) => variants.len() * size_of::<Variant>(),
        }
    }

    /// Returns the buffer of a tensor with plain elements.
    pub fn buffer(&self) -> Option<&Buffer> {
        match &self.data {
            Data::Plain(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// Returns the elements, which must be of type `T`.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        match &self.data {
            Data::Plain(buffer) if storage(self.dtype) == T::DTYPE => Ok(buffer.typed()),
            _ => Err(self.type_error(T::DTYPE)),
        }
    }

    /// Returns the elements of a new tensor.
    fn own_elements<T: Element>(&mut self) -> Option<&mut [T]> {
        match &mut self.data {
            Data::Plain(buffer) => buffer.typed_mut(),
            _ => None,
        }
    }

    /// Returns the elements for writing, if they are `T`s and not shared.
    pub fn as_mut_slice<T: Element>(&mut self) -> Option<&mut [T]> {
        match &mut self.data {
            Data::Plain(buffer) if storage(self.dtype) == T::DTYPE => buffer.typed_mut(),
            _ => None,
        }
    }

    /// Returns the elements for writing, after copying them if they are shared.
    pub fn make_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        if storage(self.dtype) != T::DTYPE {
            return Err(self.type_error(T::DTYPE));
        }
        if !self.is_unique() {
            *self = self.deep_copy()?;
        }
        self.as_mut_slice().ok_or_else(|| Status::internal("a tensor just copied is not writable"))
    }

    /// Has an account hold the charge for the elements from now on, unless others share them. An account that then holds too
    /// much is an error.
    pub fn charge_to(&mut self, account: &Account) -> Result<()> {
        let charged = match &mut self.data {
            Data::Plain(buffer) => buffer.charge_to(account),
            Data::Strings(list) => move_charge(list, account),
            Data::Resources(list) => move_charge(list, account),
            Data::Variants(list) => move_charge(list, account),
        };
        charged.map_err(|status| for_tensor(status, self.dtype, &self.shape))
    }

    /// Returns whether the elements are not shared, so that they may be overwritten.
    pub fn is_unique(&self) -> bool {
        match &self.data {
            Data::Plain(buffer) => buffer.is_unique(),
            Data::Strings(strings) => Arc::strong_count(strings) == 1,
            Data::Resources(handles) => Arc::strong_count(handles) == 1,
            Data::Variants(variants) => Arc::strong_count(variants) == 1,
        }
    }

    /// Returns [`Buffer::contents`] of the elements, which are equal only for the same elements in the same memory. `None` for elements
    /// that are not plain.
    pub fn contents(&self) -> Option<[u64; 3]> {
        match &self.data {
            Data::Plain(buffer) => Some(buffer.contents()),
            _ => None,
        }
    }

    /// Returns a tensor with elements of its own.
    pub fn deep_copy(&self) -> Result<Tensor> {
        let data = match &self.data {
            Data::Plain(buffer) => {
                let mut copy = Buffer::new(buffer.len())?;
                if let Some(bytes) = copy.bytes_mut() {
                    copy_bytes(bytes, buffer.bytes());
                }
                Data::Plain(copy)
            }
            Data::Strings(strings) => Data::Strings(Arc::new((**strings).clone())),
            Data::Resources(handles) => Data::Resources(Arc::new((**handles).clone())),
            Data::Variants(variants) => Data::Variants(Arc::new((**variants).clone())),
        };
        Ok(Tensor { dtype: self.dtype, shape: self.shape.clone(), data })
    }

    /// Moves the elements to unshared memory that is fast for random access to rows: for long-lived tables.
    pub fn become_table(&mut self) -> Result<()> {
        if let Data::Plain(buffer) = &mut self.data {
            buffer.move_to_huge_pages();
        }
        if !self.is_unique() {
            *self = self.deep_copy()?;
        }
        Ok(())
    }

    /// Returns the strings of a string tensor.
    pub fn strings(&self) -> Result<&[StringElement]> {
        match &self.data {
            Data::Strings(strings) => Ok(strings),
            _ => Err(self.type_error(DType::String)),
        }
    }

    /// Returns the strings for writing, after copying the list if it is shared.
    pub fn strings_mut(&mut self) -> Result<&mut Vec<StringElement>> {
        match &mut self.data {
            Data::Strings(strings) => Ok(&mut Arc::make_mut(strings).values),
            _ => Err(Status::invalid_argument(format!("expected a string tensor, got {}", self.dtype))),
        }
    }

    /// Returns the handles of a resource tensor.
    pub fn resources(&self) -> Result<&[ResourceHandle]> {
        match &self.data {
            Data::Resources(handles) => Ok(handles),
            _ => Err(self.type_error(DType::Resource)),
        }
    }

    /// Returns the elements of a variant tensor.
    pub fn variants(&self) -> Result<&[Variant]> {
        match &self.data {
            Data::Variants(variants) => Ok(variants),
            _ => Err(self.type_error(DType::Variant)),
        }
    }

    /// Returns the elements of a variant tensor for writing, after copying the list if it is shared.
    pub fn variants_mut(&mut self) -> Result<&mut Vec<Variant>> {
        match &mut self.data {
            Data::Variants(variants) => Ok(&mut Arc::make_mut(variants).values),
            _ => Err(Status::invalid_argument(format!("expected a variant tensor, got {}", self.dtype))),
        }
    }

    /// Returns the single element of type `T`; the tensor must have just one.
    pub fn to_scalar<T: Element>(&self) -> Result<T> {
        match self.as_slice::<T>()? {
            [value] => Ok(*value),
            _ => Err(Status::invalid_argument(format!("expected a scalar, got a tensor of shape {}", self.shape))),
        }
    }

    /// Returns the single element of an `int32` or `int64` tensor.
    pub fn to_index(&self) -> Result<i64> {
        match self.dtype {
            DType::Int32 => self.to_scalar::<i32>().map(i64::from),
            _ => self.to_scalar::<i64>(),
        }
    }

    /// Returns the elements of an `int32` or `int64` tensor as `i64`s.
    pub fn to_indices(&self) -> Result<Vec<i64>> {
        match self.dtype {
            DType::Int32 => Ok(self.as_slice::<i32>()?.iter().map(|&value| i64::from(value)).collect()),
            _ => Ok(self.as_slice::<i64>()?.to_vec()),
        }
    }

    /// Returns the same elements in another shape of as many elements.
    pub fn reshape(&self, shape: Shape) -> Result<Tensor> {
        self.clone().into_shape(shape)
    }

    /// As [`reshape`](Self::reshape), but keeps a sole reference sole.
    pub fn into_shape(self, shape: Shape) -> Result<Tensor> {
        if shape.num_elements() != self.num_elements() {
            return Err(Status::invalid_argument(format!(
                "a tensor with {} elements can't take shape {shape}, which has {}",
                self.num_elements(),
                shape.num_elements()
            )));
        }
        Ok(Tensor { shape, ..self })
    }

    /// Returns the same bytes seen as another type of the same size, such as a quantized type's storage.
    pub fn with_dtype(self, dtype: DType) -> Result<Tensor> {
        if dtype == DType::Bool || !dtype.is_plain() || dtype.size() != self.dtype.size() {
            return Err(Status::invalid_argument(format!("{} elements can't be seen as {dtype}", self.dtype)));
        }
        Ok(Tensor { dtype, ..self })
    }

    /// Returns rows `from..to` along axis 0 without copying plain elements.
    pub fn slice_rows(&self, from: usize, to: usize) -> Result<Tensor> {
        let rows = *self.shape.first().ok_or_else(|| Status::invalid_argument("a scalar has no rows"))? as usize;
        if from > to || to > rows {
            return Err(Status::invalid_argument(format!("rows {from}..{to} of {rows}")));
        }
        let shape = self.shape.with_dim(0, (to - from) as i64)?;
        let per_row = self.num_elements().checked_div(rows).unwrap_or(0);
        let (start, end) = (from * per_row, to * per_row);
        let data = match &self.data {
            Data::Plain(buffer) => {
                let size = self.dtype.size();
                Data::Plain(buffer.slice(start * size, (end - start) * size))
            }
            Data::Strings(strings) => Data::Strings(List::new(strings[start..end].to_vec(), Bytes::len)?),
            Data::Resources(handles) => Data::Resources(List::new(handles[start..end].to_vec(), |_| 0)?),
            Data::Variants(variants) => Data::Variants(List::new(variants[start..end].to_vec(), |_| 0)?),
        };
        Ok(Tensor { dtype: self.dtype, shape, data })
    }

    /// Returns whether both share their elements.
    pub fn shares_memory(&self, other: &Tensor) -> bool {
        match (&self.data, &other.data) {
            (Data::Plain(a), Data::Plain(b)) => a.same_memory(b),
            (Data::Strings(a), Data::Strings(b)) => Arc::ptr_eq(a, b),
            (Data::Resources(a), Data::Resources(b)) => Arc::ptr_eq(a, b),
            (Data::Variants(a), Data::Variants(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    fn type_error(&self, expected: DType) -> Status {
        Status::invalid_argument(format!("expected a {expected} tensor, got {}", self.dtype))
    }
}

/// Returns the type whose Rust values a type's elements are kept as.
fn storage(dtype: DType) -> DType {
    match dtype {
        DType::QInt8 | DType::Int4 => DType::Int8,
        DType::QUInt8 | DType::UInt4 | DType::Float8E5M2 | DType::Float8E4M3Fn => DType::UInt8,
        DType::QInt16 => DType::Int16,
        DType::QUInt16 => DType::UInt16,
        DType::QInt32 => DType::Int32,
        other => other,
    }
}

fn move_charge<T>(list: &mut Arc<List<T>>, account: &Account) -> Result<()> {
    Arc::get_mut(list).map_or(Ok(()), |list| list.charge.move_to(account))
}

fn check_count(shape: &Shape, count: usize) -> Result<()> {
    if shape.num_elements() != count {
        return Err(Status::invalid_argument(format!("{count} values don't fill shape {shape}")));
    }
    Ok(())
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {}", self.dtype, self.shape)?;
        const SHOWN: usize = 8;
        macro_rules! show {
            ($($variant:ident => $rust:ty),*) => {
                match self.dtype {
                    $(DType::$variant => {
                        if let Ok(values) = self.as_slice::<$rust>() {
                            write!(f, " {:?}", &values[..values.len().min(SHOWN)])?;
                        }
                    })*
                    DType::String => {
                        if let Ok(values) = self.strings() {
                            write!(f, " {:?}", &values[..values.len().min(SHOWN)])?;
                        }
                    }
                    _ => {}
                }
            };
        }
        show!(Float => f32, Double => f64, Int32 => i32, Int64 => i64, Bool => bool, UInt8 => u8);
        f.write_str(")")
    }
}

/// Returns the elements of a new tensor.
#[inline(never)]
fn elements_to_fill<T: Element>(built: &mut Result<Tensor>) -> Option<&mut [T]> {
    built.as_mut().ok()?.own_elements()
}

/// What [`Tensor::build`] does whatever the type, so that it is compiled once and not for every closure.
#[inline(never)]
fn unfilled(dtype: DType, shape: Shape) -> Result<Tensor> {
    let mut tensor = Tensor::new(dtype, shape)?;
    if let Data::Plain(buffer) = &mut tensor.data
        && buffer.bytes_mut().is_some()
    {
        return Ok(tensor);
    }
    Err(Status::internal("a new tensor is not writable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_share_and_writing_copies() {
        let mut tensor = Tensor::from_slice(&[3, 2], &[1f32, 2., 3., 4., 5., 6.]).unwrap();
        let rows = tensor.slice_rows(1, 3).unwrap();
        assert_eq!(rows.as_slice::<f32>().unwrap(), &[3., 4., 5., 6.]);
        assert!(tensor.as_mut_slice::<f32>().is_none());
        tensor.make_mut::<f32>().unwrap()[2] = 0.0;
        assert_eq!(rows.as_slice::<f32>().unwrap()[0], 3.0);
        assert!(tensor.as_slice::<i32>().is_err());
    }

    #[test]
    fn what_no_machine_can_hold_is_refused() {
        let shape = Shape::new(&[1 << 50]).unwrap();
        for dtype in [DType::Float, DType::String, DType::Variant] {
            assert_eq!(Tensor::zeros(dtype, shape.clone()).unwrap_err().code(), crate::Code::ResourceExhausted);
        }
    }

    #[test]
    fn foreign_bools_are_made_valid() {
        let buffer = Buffer::foreign(Bytes::from_static(&[0, 2, 255, 1]));
        let tensor = Tensor::from_buffer(DType::Bool, Shape::vector(4), buffer).unwrap();
        assert_eq!(tensor.as_slice::<bool>().unwrap(), &[false, true, true, true]);
    }

    #[test]
    fn misaligned_bytes_are_copied() {
        let bytes = Bytes::from(vec![0u8; 17]).slice(1..);
        let tensor = Tensor::from_buffer(DType::Double, Shape::vector(2), Buffer::foreign(bytes)).unwrap();
        assert_eq!(tensor.as_slice::<f64>().unwrap(), &[0.0, 0.0]);
    }

    #[test]
    fn empty_shapes() {
        let tensor = Tensor::new(DType::Float, Shape::new(&[0, 3]).unwrap()).unwrap();
        assert_eq!(tensor.as_slice::<f32>().unwrap().len(), 0);
        assert_eq!(tensor.slice_rows(0, 0).unwrap().dims(), &[0, 3]);
        let tensor = Tensor::new(DType::Float, Shape::new(&[3, 0]).unwrap()).unwrap();
        assert_eq!(tensor.slice_rows(1, 3).unwrap().dims(), &[2, 0]);
    }
}
