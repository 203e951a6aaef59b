//! [`Shape`], whose sizes are all known, and [`PartialShape`], whose sizes and rank may not be.

use crate::{Result, Status};
use proto::{TensorShapeProto, tensor_shape_proto::Dim};
use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;

/// The most dimensions a tensor may have.
const MAX_RANK: usize = 254;

/// The size of a tensor in each dimension.
///
/// The number of elements is known to fit in an `i64`, so that multiplying the dimensions can't overflow.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    dims: SmallVec<[i64; 4]>,
}

impl Shape {
    /// Returns the shape of a scalar.
    pub fn scalar() -> Shape {
        Shape::default()
    }

    /// Makes a shape, and fails when a dimension is negative or the number of elements overflows.
    pub fn new(dims: &[i64]) -> Result<Shape> {
        let mut count: i64 = 1;
        if dims.len() > MAX_RANK {
            return Err(Status::invalid_argument(format!("Shape has {} dimensions, more than {MAX_RANK}", dims.len())));
        }
        for &dim in dims {
            if dim < 0 {
                return Err(Status::invalid_argument(format!("Dimension {dim} must be >= 0")));
            }
        }
        // Zero anywhere makes the count zero, but the others must still not overflow on their own.
        for &dim in dims {
            count = count.checked_mul(dim.max(1)).ok_or_else(|| {
                Status::invalid_argument(format!("Shape {} has more than 2**63 - 1 entries", ListOf(dims)))
            })?;
        }
        Ok(Shape { dims: SmallVec::from_slice(dims) })
    }

    /// Makes a shape from sizes that come from existing tensors; fails on overflow only.
    pub fn from_usize(dims: &[usize]) -> Result<Shape> {
        let mut signed: SmallVec<[i64; 8]> = SmallVec::new();
        for &dim in dims {
            signed.push(i64::try_from(dim).map_err(|_| Status::invalid_argument("Dimension is too large"))?);
        }
        Shape::new(&signed)
    }

    /// Returns the shape of a vector of `len` elements.
    pub fn vector(len: usize) -> Shape {
        Shape { dims: SmallVec::from_slice(&[i64::try_from(len).unwrap_or(i64::MAX)]) }
    }

    /// Returns the sizes.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// Returns the sizes as `usize`.
    pub fn to_usize(&self) -> SmallVec<[usize; 6]> {
        self.dims.iter().map(|&dim| dim as usize).collect()
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Returns the number of elements.
    pub fn num_elements(&self) -> usize {
        self.dims.iter().product::<i64>() as usize
    }

    /// Returns the bytes that the elements need, or an error when that overflows.
    pub fn num_bytes(&self, element_size: usize) -> Result<usize> {
        self.num_elements()
            .checked_mul(element_size)
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(|| Status::invalid_argument(format!("a tensor of shape {self} is too large")))
    }

    /// Returns the size of dimension `axis`.
    pub fn dim(&self, axis: usize) -> i64 {
        self.dims[axis]
    }

    /// Returns the size of dimension `axis` as a `usize`.
    pub fn size(&self, axis: usize) -> usize {
        self.dims[axis] as usize
    }

    /// Returns whether this is the shape of a scalar.
    pub fn is_scalar(&self) -> bool {
        self.dims.is_empty()
    }

    /// Returns whether this is the shape of a vector.
    pub fn is_vector(&self) -> bool {
        self.dims.len() == 1
    }

    /// Returns whether this is the shape of a matrix.
    pub fn is_matrix(&self) -> bool {
        self.dims.len() == 2
    }

    /// Returns the shape of dimensions `from..to`.
    pub fn slice(&self, from: usize, to: usize) -> Shape {
        Shape { dims: SmallVec::from_slice(&self.dims[from..to]) }
    }

    /// Returns this shape followed by `other`, or an error when that has too many elements.
    pub fn concat(&self, other: &Shape) -> Result<Shape> {
        let mut dims = self.dims.clone();
        dims.extend_from_slice(&other.dims);
        Shape::new(&dims)
    }

    /// Returns this shape with dimension `axis` replaced, or an error when that is out of bounds.
    pub fn with_dim(&self, axis: usize, size: i64) -> Result<Shape> {
        let mut dims = self.dims.clone();
        dims[axis] = size;
        Shape::new(&dims)
    }

    /// Turns a possibly negative axis into an index, or fails as TensorFlow does.
    pub fn axis(&self, axis: i64) -> Result<usize> {
        let rank = self.rank() as i64;
        if axis < -rank || axis >= rank {
            return Err(Status::invalid_argument(format!(
                "Expected dimension in the range [{}, {rank}), but got {axis}",
                -rank
            )));
        }
        Ok(if axis < 0 { axis + rank } else { axis } as usize)
    }

    /// Returns the shape on the wire.
    pub fn to_proto(&self) -> TensorShapeProto {
        TensorShapeProto {
            dim: self.dims.iter().map(|&size| Dim { size, name: String::new() }).collect(),
            unknown_rank: false,
        }
    }

    /// Reads a shape from the wire; every dimension must be known.
    pub fn from_proto(proto: &TensorShapeProto) -> Result<Shape> {
        if proto.unknown_rank {
            return Err(Status::invalid_argument("Shape must be fully defined, but its rank is unknown"));
        }
        let dims: SmallVec<[i64; 8]> = proto.dim.iter().map(|dim| dim.size).collect();
        Shape::new(&dims)
    }
}

impl Deref for Shape {
    type Target = [i64];
    fn deref(&self) -> &[i64] {
        &self.dims
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ListOf(&self.dims), f)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ListOf(&self.dims), f)
    }
}

/// Writes numbers as TensorFlow writes a shape: `[2,3]`.
struct ListOf<'a>(&'a [i64]);

impl fmt::Display for ListOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, dim) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            if *dim < 0 { f.write_str("?")? } else { write!(f, "{dim}")? }
        }
        f.write_str("]")
    }
}

/// A shape as far as it is known before the graph runs: the rank, some sizes, or nothing.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct PartialShape {
    /// The sizes, `None` each where unknown; the whole is `None` when not even the rank is known.
    dims: Option<SmallVec<[Option<i64>; 4]>>,
}

impl PartialShape {
    /// Returns the shape of which nothing is known.
    pub fn unknown() -> PartialShape {
        PartialShape { dims: None }
    }

    /// Returns a shape of known rank and unknown sizes.
    pub fn unknown_of_rank(rank: usize) -> PartialShape {
        PartialShape { dims: Some(SmallVec::from_elem(None, rank)) }
    }

    /// Returns the shape of a scalar.
    pub fn scalar() -> PartialShape {
        PartialShape { dims: Some(SmallVec::new()) }
    }

    /// Makes a shape from sizes, `None` where unknown.
    pub fn new(dims: &[Option<i64>]) -> PartialShape {
        PartialShape { dims: Some(SmallVec::from_slice(dims)) }
    }

    /// Makes a shape from sizes where a negative number stands for an unknown one.
    pub fn from_dims(dims: &[i64]) -> PartialShape {
        PartialShape { dims: Some(dims.iter().map(|&dim| (dim >= 0).then_some(dim)).collect()) }
    }

    /// Returns the sizes when the rank is known.
    pub fn dims(&self) -> Option<&[Option<i64>]> {
        self.dims.as_deref()
    }

    /// Returns the rank when it is known.
    pub fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(|dims| dims.len())
    }

    /// Returns the size of dimension `axis`, when known.
    pub fn dim(&self, axis: usize) -> Option<i64> {
        self.dims.as_ref().and_then(|dims| dims.get(axis).copied().flatten())
    }

    /// Returns the whole shape when every size is known.
    pub fn to_shape(&self) -> Option<Shape> {
        let dims: Option<SmallVec<[i64; 8]>> = self.dims.as_ref()?.iter().copied().collect();
        Shape::new(&dims?).ok()
    }

    /// Returns whether every size is known.
    pub fn is_fully_defined(&self) -> bool {
        self.dims.as_ref().is_some_and(|dims| dims.iter().all(Option::is_some))
    }

    /// Returns the number of elements, when every size is known.
    pub fn num_elements(&self) -> Option<i64> {
        self.dims.as_ref()?.iter().try_fold(1i64, |product, dim| product.checked_mul((*dim)?))
    }

    /// Returns whether a tensor of shape `shape` may stand here.
    pub fn is_compatible_with(&self, shape: &Shape) -> bool {
        match &self.dims {
            None => true,
            Some(dims) => {
                dims.len() == shape.rank()
                    && dims.iter().zip(shape.dims()).all(|(dim, &size)| dim.is_none_or(|dim| dim == size))
            }
        }
    }

    /// Returns the combination of both shapes, or an error if they contradict each other.
    pub fn merge(&self, other: &PartialShape) -> Result<PartialShape> {
        let (Some(a), Some(b)) = (&self.dims, &other.dims) else {
            return Ok(if self.dims.is_some() { self.clone() } else { other.clone() });
        };
        if a.len() != b.len() {
            return Err(Status::invalid_argument(format!(
                "Shapes must be equal rank, but are {} and {}",
                a.len(),
                b.len()
            )));
        }
        let mut dims = SmallVec::with_capacity(a.len());
        for (index, (&x, &y)) in a.iter().zip(b).enumerate() {
            dims.push(match (x, y) {
                (Some(x), Some(y)) if x != y => {
                    return Err(Status::invalid_argument(format!(
                        "Dimension {index} in both shapes must be equal, but are {x} and {y}. Shapes are {self} and {other}."
                    )));
                }
                (Some(x), _) => Some(x),
                (None, y) => y,
            });
        }
        Ok(PartialShape { dims: Some(dims) })
    }

    /// Returns this shape followed by `other`.
    pub fn concat(&self, other: &PartialShape) -> PartialShape {
        match (&self.dims, &other.dims) {
            (Some(a), Some(b)) => {
                let mut dims = a.clone();
                dims.extend_from_slice(b);
                PartialShape { dims: Some(dims) }
            }
            _ => PartialShape::unknown(),
        }
    }

    /// Returns the shape of dimensions `from..to`, clamped to the rank; unknown when the rank is.
    pub fn slice(&self, from: usize, to: usize) -> PartialShape {
        match &self.dims {
            None => PartialShape::unknown(),
            Some(dims) => {
                let to = to.min(dims.len());
                PartialShape { dims: Some(SmallVec::from_slice(&dims[from.min(to)..to])) }
            }
        }
    }

    /// Returns this shape with dimension `axis` replaced; unknown when the rank is.
    pub fn with_dim(&self, axis: usize, size: Option<i64>) -> PartialShape {
        let mut result = self.clone();
        if let Some(dim) = result.dims.as_mut().and_then(|dims| dims.get_mut(axis)) {
            *dim = size;
        }
        result
    }

    /// Returns the shape on the wire.
    pub fn to_proto(&self) -> TensorShapeProto {
        match &self.dims {
            None => TensorShapeProto { dim: Vec::new(), unknown_rank: true },
            Some(dims) => TensorShapeProto {
                dim: dims.iter().map(|dim| Dim { size: dim.unwrap_or(-1), name: String::new() }).collect(),
                unknown_rank: false,
            },
        }
    }

    /// Reads a shape from the wire, where -1 is an unknown size.
    pub fn from_proto(proto: &TensorShapeProto) -> Result<PartialShape> {
        if proto.unknown_rank {
            return Ok(PartialShape::unknown());
        }
        if proto.dim.len() > MAX_RANK {
            return Err(Status::invalid_argument(format!(
                "Shape has {} dimensions, more than {MAX_RANK}",
                proto.dim.len()
            )));
        }
        let mut dims = SmallVec::with_capacity(proto.dim.len());
        for dim in &proto.dim {
            if dim.size < -1 {
                return Err(Status::invalid_argument(format!("Shape dimension {} must be >= -1", dim.size)));
            }
            dims.push((dim.size >= 0).then_some(dim.size));
        }
        Ok(PartialShape { dims: Some(dims) })
    }
}

impl From<&Shape> for PartialShape {
    fn from(shape: &Shape) -> PartialShape {
        PartialShape { dims: Some(shape.dims().iter().map(|&dim| Some(dim)).collect()) }
    }
}

impl From<Shape> for PartialShape {
    fn from(shape: Shape) -> PartialShape {
        PartialShape::from(&shape)
    }
}

impl From<&PartialShape> for PartialShape {
    fn from(shape: &PartialShape) -> PartialShape {
        shape.clone()
    }
}

/// What can stand for one size of a [`PartialShape`]: a number, where a negative one is unknown, or an `Option` of one.
///
/// ```
/// use tensor::PartialShape;
///
/// assert_eq!(PartialShape::from((None, 784)), PartialShape::from([-1, 784]));
/// assert_eq!(PartialShape::from(()).rank(), Some(0));
/// ```
pub trait Dimension: Copy {
    /// Returns the size when it is known.
    fn size(self) -> Option<i64>;
}

macro_rules! dimensions {
    ($($ty:ty)*) => {$(
        impl Dimension for $ty {
            fn size(self) -> Option<i64> {
                i64::try_from(self).ok().filter(|&size| size >= 0)
            }
        }
    )*};
}

dimensions!(i32 i64 usize u32);

impl Dimension for Option<i64> {
    fn size(self) -> Option<i64> {
        self
    }
}

impl<D: Dimension> From<&[D]> for PartialShape {
    fn from(dims: &[D]) -> PartialShape {
        PartialShape { dims: Some(dims.iter().map(|dim| dim.size()).collect()) }
    }
}

impl<D: Dimension> From<&Vec<D>> for PartialShape {
    fn from(dims: &Vec<D>) -> PartialShape {
        PartialShape::from(&dims[..])
    }
}

impl<D: Dimension, const RANK: usize> From<[D; RANK]> for PartialShape {
    fn from(dims: [D; RANK]) -> PartialShape {
        PartialShape::from(&dims[..])
    }
}

impl<D: Dimension, const RANK: usize> From<&[D; RANK]> for PartialShape {
    fn from(dims: &[D; RANK]) -> PartialShape {
        PartialShape::from(&dims[..])
    }
}

/// The shape of a scalar.
impl From<()> for PartialShape {
    fn from((): ()) -> PartialShape {
        PartialShape::scalar()
    }
}

macro_rules! tuples {
    ($(($($ty:ident $index:tt),*))*) => {$(
        impl<$($ty: Dimension),*> From<($($ty,)*)> for PartialShape {
            fn from(dims: ($($ty,)*)) -> PartialShape {
                PartialShape::new(&[$(dims.$index.size()),*])
            }
        }
    )*};
}

tuples!((A 0)(A 0, B 1)(A 0, B 1, C 2)(A 0, B 1, C 2, D 3)(A 0, B 1, C 2, D 3, E 4)(A 0, B 1, C 2, D 3, E 4, F 5));

impl fmt::Display for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dims {
            None => f.write_str("<unknown>"),
            Some(dims) => {
                let numbers: SmallVec<[i64; 8]> = dims.iter().map(|dim| dim.unwrap_or(-1)).collect();
                fmt::Display::fmt(&ListOf(&numbers), f)
            }
        }
    }
}

impl fmt::Debug for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_is_an_error() {
        assert!(Shape::new(&[i64::MAX, 2]).is_err());
        assert!(Shape::new(&[0, i64::MAX, i64::MAX]).is_err());
        assert!(Shape::new(&[-1]).is_err());
        assert_eq!(Shape::new(&[2, 0, 3]).unwrap().num_elements(), 0);
        assert_eq!(Shape::scalar().num_elements(), 1);
        assert!(Shape::new(&[i64::MAX]).unwrap().num_bytes(4).is_err());
    }

    #[test]
    fn merging_keeps_what_is_known() {
        let a = PartialShape::from_dims(&[-1, 3]);
        let b = PartialShape::from_dims(&[2, -1]);
        assert_eq!(a.merge(&b).unwrap().to_string(), "[2,3]");
        assert!(a.merge(&PartialShape::from_dims(&[2, 4])).is_err());
        assert!(a.merge(&PartialShape::from_dims(&[2])).is_err());
        assert_eq!(a.merge(&PartialShape::unknown()).unwrap(), a);
        assert_eq!(a.to_string(), "[?,3]");
    }

    #[test]
    fn axes_may_be_negative() {
        let shape = Shape::new(&[2, 3]).unwrap();
        assert_eq!(shape.axis(-1).unwrap(), 1);
        assert!(shape.axis(2).is_err());
    }
}
