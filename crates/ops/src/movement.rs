//! Moving elements about, whatever their type.
//!
//! Ops that copy, cut and join tensors don't care what an element is, only how large it is. [`Movable`] is a way to look
//! at a tensor's elements for copying, and `with_movable!(dtype, E => …)` picks the one for a type: plain elements by
//! their size, strings, resource handles and variants as they are.

use tensor::{
    Complex32, Complex64, DType, Element, ResourceHandle, Result, Shape, Status, StringElement, Tensor, Variant,
};

/// A view of elements for copying.
pub(crate) trait Movable: Clone + Send + Sync + 'static {
    /// Returns a tensor's elements.
    fn view(tensor: &Tensor) -> Result<&[Self]>;

    /// Makes a tensor by filling its elements, which start out unspecified; every one must be set.
    fn build(dtype: DType, shape: Shape, fill: impl FnOnce(&mut [Self])) -> Result<Tensor>;

    /// Changes a tensor's elements: in place when nobody else shares them, otherwise in a copy.
    fn modify(tensor: Tensor, change: impl FnOnce(&mut [Self]) -> Result<()>) -> Result<Tensor>;

    /// Returns the element that stands for nothing: zero, `false`, the empty string; handles have none.
    fn zero() -> Option<Self>;

    /// Returns how many bytes an element has, for estimates.
    const BYTES: usize = size_of::<Self>();
}

/// Types whose elements are seen as another type of the same size.
macro_rules! movable_by_size {
    ($($ty:ty),*) => {$(
        impl Movable for $ty {
            fn view(tensor: &Tensor) -> Result<&[Self]> {
                let bytes = tensor.buffer().ok_or_else(|| not_plain(tensor))?.bytes();
                if bytes.is_empty() {
                    return Ok(&[]);
                }
                bytemuck::try_cast_slice(bytes).map_err(|_| not_plain(tensor))
            }

            fn build(dtype: DType, shape: Shape, fill: impl FnOnce(&mut [Self])) -> Result<Tensor> {
                Tensor::build(shape, fill)?.with_dtype(dtype)
            }

            fn modify(tensor: Tensor, change: impl FnOnce(&mut [Self]) -> Result<()>) -> Result<Tensor> {
                let dtype = tensor.dtype();
                let mut tensor = tensor.with_dtype(<$ty as Element>::DTYPE)?;
                change(tensor.make_mut::<$ty>()?)?;
                tensor.with_dtype(dtype)
            }

            fn zero() -> Option<Self> {
                Some(0)
            }
        }
    )*};
}

/// Types whose elements are seen as they are.
macro_rules! movable_as_is {
    ($($ty:ty),*) => {$(
        impl Movable for $ty {
            fn view(tensor: &Tensor) -> Result<&[Self]> {
                tensor.as_slice()
            }

            fn build(_: DType, shape: Shape, fill: impl FnOnce(&mut [Self])) -> Result<Tensor> {
                Tensor::build(shape, fill)
            }

            fn modify(mut tensor: Tensor, change: impl FnOnce(&mut [Self]) -> Result<()>) -> Result<Tensor> {
                change(tensor.make_mut::<$ty>()?)?;
                Ok(tensor)
            }

            fn zero() -> Option<Self> {
                Some(Self::default())
            }
        }
    )*};
}

movable_by_size!(u8, u16, u32, u64);
movable_as_is!(bool, Complex32, Complex64);

impl Movable for StringElement {
    fn view(tensor: &Tensor) -> Result<&[Self]> {
        tensor.strings()
    }

    fn build(_: DType, shape: Shape, fill: impl FnOnce(&mut [Self])) -> Result<Tensor> {
        let mut tensor = Tensor::zeros(DType::String, shape)?;
        fill(tensor.strings_mut()?);
        Ok(tensor)
    }

    fn modify(mut tensor: Tensor, change: impl FnOnce(&mut [Self]) -> Result<()>) -> Result<Tensor> {
        change(tensor.strings_mut()?)?;
        Ok(tensor)
    }

    fn zero() -> Option<Self> {
        Some(StringElement::new())
    }
}

impl Movable for Variant {
    fn view(tensor: &Tensor) -> Result<&[Self]> {
        tensor.variants()
    }

    fn build(_: DType, shape: Shape, fill: impl FnOnce(&mut [Self])) -> Result<Tensor> {
        let mut tensor = Tensor::zeros(DType::Variant, shape)?;
        fill(tensor.variants_mut()?);
        Ok(tensor)
    }

    fn modify(mut tensor: Tensor, change: impl FnOnce(&mut [Self]) -> Result<()>) -> Result<Tensor> {
        change(tensor.variants_mut()?)?;
        Ok(tensor)
    }

    fn zero() -> Option<Self> {
        Some(Variant::Empty)
    }
}

impl Movable for ResourceHandle {
    fn view(tensor: &Tensor) -> Result<&[Self]> {
        tensor.resources()
    }

    fn build(_: DType, shape: Shape, fill: impl FnOnce(&mut [Self])) -> Result<Tensor> {
        shape.num_bytes(size_of::<ResourceHandle>())?;
        let nameless = ResourceHandle {
            device: String::new(),
            container: String::new(),
            name: String::new(),
            hash_code: 0,
            maybe_type_name: String::new(),
            dtypes_and_shapes: Vec::new(),
            resource: None,
        };
        let mut handles = vec![nameless; shape.num_elements()];
        fill(&mut handles);
        Tensor::from_resources(shape, handles)
    }

    fn modify(tensor: Tensor, change: impl FnOnce(&mut [Self]) -> Result<()>) -> Result<Tensor> {
        let mut handles = tensor.resources()?.to_vec();
        change(&mut handles)?;
        Tensor::from_resources(tensor.shape().clone(), handles)
    }

    fn zero() -> Option<Self> {
        None
    }
}

fn not_plain(tensor: &Tensor) -> Status {
    Status::internal(format!("{} elements of shape {} can't be moved by size", tensor.dtype(), tensor.shape()))
}

/// Runs a body with `E` bound to the [`Movable`] type for a [`DType`].
macro_rules! with_movable {
    ($dtype:expr, $E:ident => $body:expr) => {
        match $dtype {
            ::tensor::DType::Bool => {
                type $E = bool;
                $body
            }
            ::tensor::DType::Complex64 => {
                type $E = ::tensor::Complex32;
                $body
            }
            ::tensor::DType::Complex128 => {
                type $E = ::tensor::Complex64;
                $body
            }
            ::tensor::DType::String => {
                type $E = ::tensor::StringElement;
                $body
            }
            ::tensor::DType::Resource => {
                type $E = ::tensor::ResourceHandle;
                $body
            }
            ::tensor::DType::Variant => {
                type $E = ::tensor::Variant;
                $body
            }
            dtype => match dtype.size() {
                1 => {
                    type $E = u8;
                    $body
                }
                2 => {
                    type $E = u16;
                    $body
                }
                4 => {
                    type $E = u32;
                    $body
                }
                _ => {
                    type $E = u64;
                    $body
                }
            },
        }
    };
}

/// Returns about how many nanoseconds it takes to copy some elements, for splitting loops.
pub(crate) fn copy_cost_ns<E: Movable>(elements: usize) -> f64 {
    const NS_PER_BYTE: f64 = 0.1;
    const NS_PER_CALL: f64 = 2.0;
    NS_PER_CALL + (elements * E::BYTES) as f64 * NS_PER_BYTE
}
