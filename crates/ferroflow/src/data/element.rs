//! What an element of a dataset is made of: values in Rust ([`IntoElement`]), or tensors of a graph ([`IntoOutputs`]).

use graph::Output;
use tensor::{IntoTensor, Result, Tensor};

/// Values that are an element: a number, a text, a tensor, a tuple of them, or as many tensors as a vector has.
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

/// What the function of a dataset returns: one tensor, or several as a tuple, an array or a vector.
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
