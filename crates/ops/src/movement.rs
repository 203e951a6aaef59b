//! Copying and rearranging elements of any type.
//!
//! Ops that copy, split and concatenate tensors depend only on the size of an element. [`Movable`] is a view of a tensor's
//! elements for copying, and `with_movable!(dtype, E => …)` selects the one for a type: plain elements by their size; strings,
//! resource handles and variants as they are.

use tensor::{
    Complex32, Complex64, DType, Element, ResourceHandle, Result, Shape, Status, StringElement, Tensor, Variant,
};

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

/// A view of elements for copying.
pub(crate) trait Movable: Clone + Send + Sync + 'static {
    /// Returns a tensor's elements.
    fn view(tensor: &Tensor) -> Result<&[Self]>;

    /// Creates a tensor by filling its elements, which start out unspecified; every one must be set.
    fn build(dtype: DType, shape: Shape, fill: impl FnOnce(&mut [Self])) -> Result<Tensor>;

    /// Changes a tensor's elements: in place if they aren't shared, otherwise in a copy.
    fn modify(tensor: Tensor, change: impl FnOnce(&mut [Self]) -> Result<()>) -> Result<Tensor>;

    /// Returns the zero element: zero, `false`, the empty string; handles have none.
    fn zero() -> Option<Self>;

    /// Copies elements from one place to another as `rearrangement` says.
    fn rearrange(rearrangement: &impl Rearrangement, from: &[Self], to: &mut [Self]);

    /// Gathers rows of a shape `[outer, axis, inner]`; the indices must be checked.
    fn gather_rows<I: Element + TryInto<usize>>(from: &[Self], sizes: [usize; 3], indices: &[I], to: &mut [Self]);

    /// Returns the size of an element in bytes, for estimates.
    const BYTES: usize = size_of::<Self>();
}

/// A copy in an order that doesn't depend on the elements. Elements that it doesn't write keep their values.
pub(crate) trait Rearrangement {
    /// Copies plain elements.
    fn apply<T: Copy + Send + Sync>(&self, from: &[T], to: &mut [T]);
}

/// Returns a tensor of another shape whose elements, all of them, are copied from `input`.
pub(crate) fn rearranged(input: &Tensor, shape: Shape, rearrangement: &impl Rearrangement) -> Result<Tensor> {
    with_movable!(input.dtype(), E => {
        let from = E::view(input)?;
        E::build(input.dtype(), shape, |to| E::rearrange(rearrangement, from, to))
    })
}

/// Sets all elements to one value.
pub(crate) fn fill<E: Clone>(elements: &mut [E], value: &E) {
    elements.fill(value.clone());
}

/// Copies elements that aren't plain: computes where each goes, then clones it there.
fn rearrange_by_position<E: Clone>(rearrangement: &impl Rearrangement, from: &[E], to: &mut [E]) {
    const NOT_WRITTEN: u64 = u64::MAX;
    let sources: Vec<u64> = (0..from.len() as u64).collect();
    let mut positions = vec![NOT_WRITTEN; to.len()];
    rearrangement.apply(&sources, &mut positions);
    for (to, position) in to.iter_mut().zip(positions) {
        if let Some(from) = from.get(position as usize) {
            to.clone_from(from);
        }
    }
}

/// Types whose elements are viewed as another type of the same size.
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
                Tensor::build_as(dtype, shape, fill)
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

            fn rearrange(rearrangement: &impl Rearrangement, from: &[Self], to: &mut [Self]) {
                rearrangement.apply(from, to);
            }

            fn gather_rows<I: Element + TryInto<usize>>(
                from: &[Self],
                sizes: [usize; 3],
                indices: &[I],
                to: &mut [Self],
            ) {
                numeric::slice_copy::gather_rows(from, sizes, indices, to);
            }
        }
    )*};
}

/// Types whose elements are viewed as they are.
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

            fn rearrange(rearrangement: &impl Rearrangement, from: &[Self], to: &mut [Self]) {
                rearrangement.apply(from, to);
            }

            fn gather_rows<I: Element + TryInto<usize>>(
                from: &[Self],
                sizes: [usize; 3],
                indices: &[I],
                to: &mut [Self],
            ) {
                numeric::slice_copy::gather_rows(from, sizes, indices, to);
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

    fn rearrange(rearrangement: &impl Rearrangement, from: &[Self], to: &mut [Self]) {
        rearrange_by_position(rearrangement, from, to);
    }

    fn gather_rows<I: Element + TryInto<usize>>(from: &[Self], sizes: [usize; 3], indices: &[I], to: &mut [Self]) {
        gather_clones(from, sizes, indices, to);
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

    fn rearrange(rearrangement: &impl Rearrangement, from: &[Self], to: &mut [Self]) {
        rearrange_by_position(rearrangement, from, to);
    }

    fn gather_rows<I: Element + TryInto<usize>>(from: &[Self], sizes: [usize; 3], indices: &[I], to: &mut [Self]) {
        gather_clones(from, sizes, indices, to);
    }
}

impl Movable for ResourceHandle {
    fn view(tensor: &Tensor) -> Result<&[Self]> {
        tensor.resources()
    }

    fn build(_: DType, shape: Shape, fill: impl FnOnce(&mut [Self])) -> Result<Tensor> {
        tensor::check_elements_fit(shape.num_elements(), size_of::<ResourceHandle>())?;
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

    fn rearrange(rearrangement: &impl Rearrangement, from: &[Self], to: &mut [Self]) {
        rearrange_by_position(rearrangement, from, to);
    }

    fn gather_rows<I: Element + TryInto<usize>>(from: &[Self], sizes: [usize; 3], indices: &[I], to: &mut [Self]) {
        gather_clones(from, sizes, indices, to);
    }
}

/// Gathers rows of elements that aren't plain.
fn gather_clones<E: Clone, I: Element + TryInto<usize>>(
    from: &[E],
    [_, axis, inner]: [usize; 3],
    indices: &[I],
    to: &mut [E],
) {
    if to.is_empty() {
        return;
    }
    for (place, row) in to.chunks_exact_mut(inner).enumerate() {
        let (part, index) = (place / indices.len(), indices[place % indices.len()].try_into().unwrap_or(0));
        let start = (part * axis + index) * inner;
        row.clone_from_slice(&from[start..start + inner]);
    }
}

fn not_plain(tensor: &Tensor) -> Status {
    Status::internal(format!("{} elements of shape {} can't be moved by size", tensor.dtype(), tensor.shape()))
}

/// Returns the approximate time in nanoseconds to copy some elements, for splitting loops.
pub(crate) fn copy_cost_ns<E: Movable>(elements: usize) -> f64 {
    const NS_PER_BYTE: f64 = 0.1;
    const NS_PER_CALL: f64 = 2.0;
    NS_PER_CALL + (elements * E::BYTES) as f64 * NS_PER_BYTE
}
