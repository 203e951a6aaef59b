//! Between Rust values and tensors: `Tensor::from([[1f32, 2.0], [3.0, 4.0]])`, `f32::try_from(&tensor)`.

use crate::{Complex32, Complex64};
use crate::{DType, Element, Result, Shape, Status, StringElement, Tensor, bf16, f16};
use std::convert::Infallible;

/// What a tensor can be made from: numbers, `bool`s and strings, arrays of them to any depth, slices and vectors of those, tensors,
/// and the result of making one.
///
/// ```
/// use tensor::{IntoTensor, Tensor};
///
/// assert_eq!([[1f32, 2.0], [3.0, 4.0]].into_tensor()?.dims(), [2, 2]);
/// assert_eq!(vec!["a", "b"].into_tensor()?.dims(), [2]);
/// assert!(vec![vec![1, 2], vec![3]].into_tensor().is_err());
/// # Ok::<(), tensor::Status>(())
/// ```
pub trait IntoTensor {
    /// Makes the tensor.
    fn into_tensor(self) -> Result<Tensor>;
}

impl<T> IntoTensor for T
where
    T: TryInto<Tensor>,
    T::Error: ConversionError,
{
    fn into_tensor(self) -> Result<Tensor> {
        self.try_into().map_err(ConversionError::into_status)
    }
}

/// Why a value is no tensor. A `From` would do if it didn't make every other `?` ambiguous.
pub trait ConversionError {
    /// Returns the error.
    fn into_status(self) -> Status;
}

impl ConversionError for Status {
    fn into_status(self) -> Status {
        self
    }
}

impl ConversionError for Infallible {
    fn into_status(self) -> Status {
        match self {}
    }
}

/// A value that can be an element of a tensor.
pub trait Scalar: Sized {
    /// Makes a tensor of `shape`, which has as many elements.
    fn tensor(shape: Shape, values: &[Self]) -> Result<Tensor>;
}

/// An element, or an array of such to any depth.
pub trait Nested: Sized {
    /// What is innermost.
    type Scalar: Scalar;
    /// Adds the sizes of the arrays, from the outermost inwards.
    fn add_dims(dims: &mut Vec<usize>);
    /// Returns the elements in row-major order.
    fn flatten(values: &[Self]) -> &[Self::Scalar];
}

impl<N: Nested, const LEN: usize> Nested for [N; LEN] {
    type Scalar = N::Scalar;

    fn add_dims(dims: &mut Vec<usize>) {
        dims.push(LEN);
        N::add_dims(dims);
    }

    fn flatten(values: &[[N; LEN]]) -> &[N::Scalar] {
        N::flatten(values.as_flattened())
    }
}

fn of_slice<N: Nested>(values: &[N]) -> Result<Tensor> {
    let mut dims = vec![values.len()];
    N::add_dims(&mut dims);
    N::Scalar::tensor(Shape::from_usize(&dims)?, N::flatten(values))
}

impl<N: Nested> TryFrom<&[N]> for Tensor {
    type Error = Status;
    fn try_from(values: &[N]) -> Result<Tensor> {
        of_slice(values)
    }
}

impl<N: Nested> TryFrom<Vec<N>> for Tensor {
    type Error = Status;
    fn try_from(values: Vec<N>) -> Result<Tensor> {
        of_slice(&values)
    }
}

impl<N: Nested> TryFrom<&Vec<N>> for Tensor {
    type Error = Status;
    fn try_from(values: &Vec<N>) -> Result<Tensor> {
        of_slice(values)
    }
}

impl<N: Nested, const LEN: usize> TryFrom<[N; LEN]> for Tensor {
    type Error = Status;
    fn try_from(values: [N; LEN]) -> Result<Tensor> {
        of_slice(&values)
    }
}

impl<N: Nested, const LEN: usize> TryFrom<&[N; LEN]> for Tensor {
    type Error = Status;
    fn try_from(values: &[N; LEN]) -> Result<Tensor> {
        of_slice(values)
    }
}

/// Rows of one length.
impl<N: Nested + Clone> TryFrom<Vec<Vec<N>>> for Tensor {
    type Error = Status;
    fn try_from(rows: Vec<Vec<N>>) -> Result<Tensor> {
        let width = rows.first().map_or(0, Vec::len);
        if let Some(row) = rows.iter().find(|row| row.len() != width) {
            return Err(Status::invalid_argument(format!("rows of {width} and of {} values are no matrix", row.len())));
        }
        let mut dims = vec![rows.len(), width];
        N::add_dims(&mut dims);
        N::Scalar::tensor(Shape::from_usize(&dims)?, N::flatten(&rows.concat()))
    }
}

impl TryFrom<Result<Tensor>> for Tensor {
    type Error = Status;
    fn try_from(made: Result<Tensor>) -> Result<Tensor> {
        made
    }
}

impl From<&Tensor> for Tensor {
    fn from(tensor: &Tensor) -> Tensor {
        tensor.clone()
    }
}

macro_rules! elements {
    ($($ty:ty),*) => {$(
        impl Scalar for $ty {
            fn tensor(shape: Shape, values: &[Self]) -> Result<Tensor> {
                Tensor::from_slice(shape.dims(), values)
            }
        }

        impl Nested for $ty {
            type Scalar = $ty;
            fn add_dims(_: &mut Vec<usize>) {}
            fn flatten(values: &[Self]) -> &[Self] {
                values
            }
        }

        impl From<$ty> for Tensor {
            fn from(value: $ty) -> Tensor {
                Tensor::scalar(value)
            }
        }

        impl TryFrom<&Tensor> for $ty {
            type Error = Status;
            fn try_from(tensor: &Tensor) -> Result<$ty> {
                tensor.to_scalar()
            }
        }

        impl TryFrom<Tensor> for $ty {
            type Error = Status;
            fn try_from(tensor: Tensor) -> Result<$ty> {
                tensor.to_scalar()
            }
        }
    )*};
}

elements!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool, Complex32, Complex64);

macro_rules! strings {
    ($([$($life:lifetime)?] $ty:ty),*) => {$(
        impl$(<$life>)? Scalar for $ty {
            fn tensor(shape: Shape, values: &[Self]) -> Result<Tensor> {
                let values = values.iter().map(|value| StringElement::copy_from_slice(value.as_bytes()));
                Tensor::from_strings(shape, values.collect())
            }
        }

        impl$(<$life>)? Nested for $ty {
            type Scalar = $ty;
            fn add_dims(_: &mut Vec<usize>) {}
            fn flatten(values: &[Self]) -> &[Self] {
                values
            }
        }

        impl$(<$life>)? From<$ty> for Tensor {
            fn from(value: $ty) -> Tensor {
                Tensor::string(StringElement::copy_from_slice(value.as_bytes()))
            }
        }
    )*};
}

strings!(['a] &'a str, [] String);

/// The string of a scalar; bytes that aren't UTF-8 are an error.
impl TryFrom<&Tensor> for String {
    type Error = Status;
    fn try_from(tensor: &Tensor) -> Result<String> {
        let [text] = tensor.strings()? else {
            return Err(Status::invalid_argument(format!("one string expected, but the shape is {}", tensor.shape())));
        };
        String::from_utf8(text.to_vec()).map_err(|_| Status::invalid_argument("a string that is not UTF-8"))
    }
}

/// All elements in row-major order.
impl<T: Element> TryFrom<&Tensor> for Vec<T> {
    type Error = Status;
    fn try_from(tensor: &Tensor) -> Result<Vec<T>> {
        tensor.to_vec()
    }
}

/// All elements in row-major order.
impl<T: Element> TryFrom<Tensor> for Vec<T> {
    type Error = Status;
    fn try_from(tensor: Tensor) -> Result<Vec<T>> {
        tensor.to_vec()
    }
}

/// The elements of a vector of this length.
impl<T: Element, const LEN: usize> TryFrom<&Tensor> for [T; LEN] {
    type Error = Status;
    fn try_from(tensor: &Tensor) -> Result<[T; LEN]> {
        let view = tensor.view::<T, 1>()?;
        view.as_slice().try_into().map_err(|_| {
            Status::invalid_argument(format!("{LEN} values expected, but the shape is {}", tensor.shape()))
        })
    }
}

/// The elements of a tensor of `RANK` dimensions, indexed by as many numbers.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T, const RANK: usize> {
    elements: &'a [T],
    dims: [usize; RANK],
}

impl<'a, T, const RANK: usize> View<'a, T, RANK> {
    /// Returns the sizes.
    pub fn dims(&self) -> [usize; RANK] {
        self.dims
    }

    /// Returns the elements in row-major order.
    pub fn as_slice(&self) -> &'a [T] {
        self.elements
    }

    /// Returns an element, when there is one.
    pub fn get(&self, index: [usize; RANK]) -> Option<&'a T> {
        let mut flat = 0;
        for (at, size) in index.into_iter().zip(self.dims) {
            if at >= size {
                return None;
            }
            flat = flat * size + at;
        }
        self.elements.get(flat)
    }

    /// Returns the parts along the first dimension: of a matrix, its rows.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &'a [T]> + use<'a, T, RANK> {
        let rows = self.dims.first().copied().unwrap_or(1);
        let width = self.elements.len().checked_div(rows).unwrap_or(0);
        let elements = self.elements;
        (0..rows).map(move |row| &elements[row * width..(row + 1) * width])
    }
}

/// Panics when there is no such element, as indexing a slice does.
impl<T, const RANK: usize> std::ops::Index<[usize; RANK]> for View<'_, T, RANK> {
    type Output = T;
    #[track_caller]
    fn index(&self, index: [usize; RANK]) -> &T {
        match self.get(index) {
            Some(element) => element,
            None => panic!("index {index:?} is out of the bounds {:?}", self.dims),
        }
    }
}

impl Tensor {
    /// Returns a copy of all elements in row-major order.
    ///
    /// ```
    /// # use tensor::Tensor;
    /// assert_eq!(Tensor::vector(&[1f32, 2.0]).to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), tensor::Status>(())
    /// ```
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        Ok(self.as_slice::<T>()?.to_vec())
    }

    /// Returns the elements of a tensor of `RANK` dimensions for indexing.
    ///
    /// ```
    /// # use tensor::Tensor;
    /// let matrix = Tensor::try_from([[1, 2, 3], [4, 5, 6]])?;
    /// assert_eq!(matrix.view::<i32, 2>()?[[1, 0]], 4);
    /// # Ok::<(), tensor::Status>(())
    /// ```
    pub fn view<T: Element, const RANK: usize>(&self) -> Result<View<'_, T, RANK>> {
        let elements = self.as_slice::<T>()?;
        let dims = <[usize; RANK]>::try_from(&self.shape().to_usize()[..]).map_err(|_| {
            Status::invalid_argument(format!("{RANK} dimensions expected, but the shape is {}", self.shape()))
        })?;
        Ok(View { elements, dims })
    }

    /// Returns the strings as text; bytes that aren't UTF-8 are an error.
    pub fn to_strings(&self) -> Result<Vec<String>> {
        let text = |bytes: &StringElement| String::from_utf8(bytes.to_vec());
        let strings: std::result::Result<Vec<String>, _> = self.strings()?.iter().map(text).collect();
        strings.map_err(|_| Status::invalid_argument(format!("a {} that is not UTF-8", DType::String)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: impl IntoTensor, dims: &[i64], debug: &str) {
        let tensor = value.into_tensor().unwrap();
        assert_eq!(tensor.dims(), dims);
        assert!(format!("{tensor:?}").contains(debug), "{tensor:?}");
    }

    #[test]
    fn values_of_every_kind_become_tensors() {
        check(3f32, &[], "float");
        check(true, &[], "bool");
        check("text", &[], "text");
        check(String::from("text"), &[], "text");
        check([1i64, 2], &[2], "[1, 2]");
        check([[1u8; 3]; 2], &[2, 3], "[1, 1, 1, 1, 1, 1]");
        check([[["a"; 2]; 1]; 3], &[3, 1, 2], "a");
        check(&[1f64][..], &[1], "double");
        check(vec![[1i32, 2], [3, 4]], &[2, 2], "[1, 2, 3, 4]");
        check(vec![vec![1i32, 2], vec![3, 4]], &[2, 2], "[1, 2, 3, 4]");
        check(Vec::<f32>::new(), &[0], "[]");
        check(Tensor::from_slice(&[1, 2], &[1f32, 2.0]), &[1, 2], "float");
        let tensor = Tensor::scalar(1f32);
        check(&tensor, &[], "float");
        check(tensor, &[], "float");
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(vec![vec![1, 2], vec![3]].into_tensor().unwrap_err().message().contains("2 and of 1"));
        assert!(Tensor::from_slice(&[3], &[1f32]).into_tensor().is_err());
    }

    #[test]
    fn tensors_become_values() {
        let matrix = Tensor::try_from([[1f32, 2.0], [3.0, 4.0]]).unwrap();
        assert_eq!(Vec::<f32>::try_from(&matrix).unwrap(), [1.0, 2.0, 3.0, 4.0]);
        assert!(Vec::<f64>::try_from(&matrix).is_err());
        assert!(f32::try_from(&matrix).is_err());
        assert_eq!(i32::try_from(Tensor::scalar(7i32)).unwrap(), 7);
        assert_eq!(<[i32; 2]>::try_from(&Tensor::vector(&[7i32, 8])).unwrap(), [7, 8]);
        assert!(<[i32; 3]>::try_from(&Tensor::vector(&[7i32, 8])).is_err());
        assert_eq!(String::try_from(&Tensor::string("text")).unwrap(), "text");
        let view = matrix.view::<f32, 2>().unwrap();
        assert_eq!((view[[1, 0]], view.get([0, 2]), view.dims()), (3.0, None, [2, 2]));
        assert_eq!(view.rows().map(|row| row[1]).collect::<Vec<_>>(), [2.0, 4.0]);
        assert!(matrix.view::<f32, 1>().is_err());
    }
}
