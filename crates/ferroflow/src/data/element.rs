//! The elements of a dataset: values in Rust ([`IntoElement`]), or tensors of a graph ([`IntoOutputs`]).

use graph::Output;
use tensor::{IntoTensor, Result, Tensor};

/// A value that is an element: a number, a string, a tensor, a tuple of these, or a vector of tensors.
///
/// ```
/// use ferroflow::data::{Dataset, IntoElement};
/// use ferroflow::prelude::*;
///
/// assert_eq!((1i64, "a").into_element()?.len(), 2);
/// let pairs = Dataset::from_iter(&Graph::new(), (0..3i64).map(|number| (number, "a")));
/// assert_eq!(pairs.types(), [DType::Int64, DType::String]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub trait IntoElement {
    /// Returns the element's components.
    fn into_element(self) -> Result<Vec<Tensor>>;
}

impl IntoElement for Tensor {
    fn into_element(self) -> Result<Vec<Tensor>> {
        Ok(vec![self])
    }
}

impl IntoElement for Vec<Tensor> {
    fn into_element(self) -> Result<Vec<Tensor>> {
        Ok(self)
    }
}

macro_rules! single {
    ($($ty:ty),*) => {$(
        impl IntoElement for $ty {
            fn into_element(self) -> Result<Vec<Tensor>> {
                Ok(vec![self.into_tensor()?])
            }
        }

        impl IntoElement for Vec<$ty> {
            fn into_element(self) -> Result<Vec<Tensor>> {
                Ok(vec![self.into_tensor()?])
            }
        }

        impl<const N: usize> IntoElement for [$ty; N] {
            fn into_element(self) -> Result<Vec<Tensor>> {
                Ok(vec![self.into_tensor()?])
            }
        }

        impl<const N: usize, const M: usize> IntoElement for [[$ty; M]; N] {
            fn into_element(self) -> Result<Vec<Tensor>> {
                Ok(vec![self.into_tensor()?])
            }
        }
    )*};
}

single!(f32, f64, i32, i64, u8, bool, &str, String);

macro_rules! tuple {
    ($($name:ident),*) => {
        impl<$($name: IntoTensor),*> IntoElement for ($($name,)*) {
            #[allow(non_snake_case, reason = "a component has the name of its type")]
            fn into_element(self) -> Result<Vec<Tensor>> {
                let ($($name,)*) = self;
                Ok(vec![$($name.into_tensor()?),*])
            }
        }
    };
}

tuple!(A);
tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);

/// The result of a dataset's function: one tensor, or several as a tuple, an array or a vector.
///
/// ```
/// use ferroflow::data::Dataset;
/// use ferroflow::prelude::*;
///
/// let g = Graph::new();
/// let pairs = Dataset::range(&g, 3).map(|element| (element[0].clone(), element[0].square()));
/// assert_eq!(pairs.types(), [DType::Int64, DType::Int64]);
/// ```
pub trait IntoOutputs {
    /// Returns the tensors.
    fn into_outputs(self) -> Vec<Output>;
}

impl IntoOutputs for Output {
    fn into_outputs(self) -> Vec<Output> {
        vec![self]
    }
}

impl IntoOutputs for Vec<Output> {
    fn into_outputs(self) -> Vec<Output> {
        self
    }
}

impl<const N: usize> IntoOutputs for [Output; N] {
    fn into_outputs(self) -> Vec<Output> {
        self.into()
    }
}

impl IntoOutputs for (Output, Output) {
    fn into_outputs(self) -> Vec<Output> {
        vec![self.0, self.1]
    }
}

impl IntoOutputs for (Output, Output, Output) {
    fn into_outputs(self) -> Vec<Output> {
        vec![self.0, self.1, self.2]
    }
}
