//! Fetches as Rust values: [`FromTensor`] and [`FromTensors`].

use tensor::{Complex32, Complex64, Element, Result, Status, Tensor, bf16, f16};

/// A Rust type that tensors convert to.
///
/// ```
/// use ferroflow::Tensor;
/// use ferroflow::session::FromTensor;
///
/// assert_eq!(f32::from_tensor(&Tensor::scalar(2f32))?, 2.0);
/// assert_eq!(Vec::<i32>::from_tensor(&Tensor::vector(&[1i32, 2]))?, [1, 2]);
/// assert!(f32::from_tensor(&Tensor::vector(&[1f32, 2.0])).is_err());
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub trait FromTensor: Sized {
    /// Converts a tensor; fails if its type or shape doesn't match.
    fn from_tensor(tensor: &Tensor) -> Result<Self>;
}

/// Several Rust values, one for each fetch.
///
/// ```
/// use ferroflow::Tensor;
/// use ferroflow::session::FromTensors;
///
/// let fetched = [Tensor::scalar(2f32), Tensor::string("two")];
/// let (number, name) = <(f32, String)>::from_tensors(&fetched)?;
/// assert_eq!((number, name.as_str()), (2.0, "two"));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub trait FromTensors: Sized {
    /// Converts the fetched tensors; fails if their number doesn't match.
    fn from_tensors(tensors: &[Tensor]) -> Result<Self>;
}

impl FromTensor for Tensor {
    fn from_tensor(tensor: &Tensor) -> Result<Tensor> {
        Ok(tensor.clone())
    }
}

macro_rules! scalars {
    ($($ty:ty),*) => {$(
        impl FromTensor for $ty {
            fn from_tensor(tensor: &Tensor) -> Result<$ty> {
                tensor.to_scalar()
            }
        }
    )*};
}

scalars!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool, Complex32, Complex64);

/// All elements, row by row.
impl<T: Element + Clone> FromTensor for Vec<T> {
    fn from_tensor(tensor: &Tensor) -> Result<Vec<T>> {
        Ok(tensor.as_slice::<T>()?.to_vec())
    }
}

/// The elements in the tensor's shape.
///
/// ```
/// use ferroflow::ndarray::{Array2, array};
/// use ferroflow::{Graph, Session};
///
/// let g = Graph::new();
/// let x = g.placeholder::<f32>((None, 2));
/// let session = Session::new(&g)?;
/// let (doubled,): (Array2<f32>,) = session.runner().feed(&x, array![[1f32, 2.0], [3.0, 4.0]].t()).fetch(&(&x * 2.0)).run_as()?;
/// assert_eq!(doubled, array![[2.0, 6.0], [4.0, 8.0]]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[cfg(feature = "ndarray")]
impl<T: Element, D: ndarray::Dimension> FromTensor for ndarray::Array<T, D> {
    fn from_tensor(tensor: &Tensor) -> Result<Self> {
        tensor.try_into()
    }
}

/// The string of a scalar.
impl FromTensor for String {
    fn from_tensor(tensor: &Tensor) -> Result<String> {
        match tensor.strings()? {
            [text] => Ok(String::from_utf8_lossy(text).into_owned()),
            all => Err(Status::invalid_argument(format!("one string expected, but there are {}", all.len()))),
        }
    }
}

macro_rules! tuples {
    ($($count:literal: $($ty:ident $index:tt),*;)*) => {$(
        impl<$($ty: FromTensor),*> FromTensors for ($($ty,)*) {
            fn from_tensors(tensors: &[Tensor]) -> Result<Self> {
                if tensors.len() != $count {
                    return Err(Status::invalid_argument(format!(
                        "{} values were requested, but {} are fetched", $count, tensors.len()
                    )));
                }
                Ok(($($ty::from_tensor(&tensors[$index])?,)*))
            }
        }
    )*};
}

tuples! {
    1: A 0;
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, F 5;
}
