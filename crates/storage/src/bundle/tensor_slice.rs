//! [`TensorSlice`]: which part of a tensor, dimension by dimension.

use proto::TensorSliceProto;
use proto::tensor_slice_proto::{self, extent::HasLength};
use std::fmt;
use tensor::{Result, Shape, Status};

/// A run of indices in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// The first index.
    pub start: i64,
    /// How many.
    pub length: i64,
}

/// A box in a tensor: an [`Extent`] for every dimension, or `None` for all of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorSlice {
    extents: Vec<Option<Extent>>,
}

impl TensorSlice {
    /// Returns the slice that is the whole of a tensor.
    pub fn full(rank: usize) -> TensorSlice {
        TensorSlice { extents: vec![None; rank] }
    }

    /// Makes a slice; starts are at least 0, lengths at least 1, and ends fit an `i64`.
    pub fn new(extents: Vec<Option<Extent>>) -> Result<TensorSlice> {
        for &Extent { start, length } in extents.iter().flatten() {
            if start < 0 || length <= 0 {
                return Err(Status::invalid_argument(format!(
                    "Expected non-negative start and positive length but got start = {start}, length = {length}"
                )));
            }
            if start.checked_add(length).is_none() {
                return Err(Status::invalid_argument(format!(
                    "Extent end exceeds the maximum possible size: start = {start}, length = {length}"
                )));
            }
        }
        Ok(TensorSlice { extents })
    }

    /// Reads what [`Display`](fmt::Display) writes, such as `0,5:-` for the first five rows of a matrix.
    pub fn parse(text: &str) -> Result<TensorSlice> {
        let mut extents = Vec::new();
        for item in text.split(':').filter(|item| !item.is_empty()) {
            if item == "-" {
                extents.push(None);
                continue;
            }
            let parts: Vec<&str> = item.split(',').filter(|part| !part.is_empty()).collect();
            let numbers: Option<Vec<i64>> = parts.iter().map(|part| part.trim().parse().ok()).collect();
            let Some(&[start, length]) = numbers.as_deref() else {
                return Err(Status::invalid_argument(format!(
                    "Expected a pair of numbers or '-' but got '{item}': string = {text}"
                )));
            };
            extents.push(Some(Extent { start, length }));
        }
        TensorSlice::new(extents).map_err(|status| status.append(format!(": string = {text}")))
    }

    /// Reads a slice from a checkpoint.
    pub fn from_proto(proto: &TensorSliceProto) -> Result<TensorSlice> {
        let extents = proto.extent.iter().map(|extent| match extent.has_length {
            None if extent.start == 0 => Ok(None),
            None => Err(Status::invalid_argument(format!("Extent without length starts at {}", extent.start))),
            Some(HasLength::Length(length)) => Ok(Some(Extent { start: extent.start, length })),
        });
        TensorSlice::new(extents.collect::<Result<_>>()?)
    }

    /// Returns the slice as a checkpoint stores it.
    pub fn to_proto(&self) -> TensorSliceProto {
        let extent = self.extents.iter().map(|extent| match extent {
            None => tensor_slice_proto::Extent { start: 0, has_length: None },
            Some(Extent { start, length }) => {
                tensor_slice_proto::Extent { start: *start, has_length: Some(HasLength::Length(*length)) }
            }
        });
        TensorSliceProto { extent: extent.collect() }
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.extents.len()
    }

    /// Returns the part of each dimension, `None` for all of it.
    pub fn extents(&self) -> &[Option<Extent>] {
        &self.extents
    }

    /// Returns whether every dimension is written as a whole.
    pub fn is_full(&self) -> bool {
        self.extents.iter().all(Option::is_none)
    }

    /// Returns whether the slice is all of a tensor of this shape, however it is written.
    pub fn covers(&self, shape: &Shape) -> bool {
        self.slice_shape(shape).is_ok_and(|sliced| sliced == *shape)
    }

    /// Returns the shape of the slice of a tensor of shape `shape`, or an error when it reaches beyond that.
    pub fn slice_shape(&self, shape: &Shape) -> Result<Shape> {
        let lengths: Vec<i64> = self.resolve(shape)?.iter().map(|extent| extent.length).collect();
        Shape::new(&lengths)
    }

    /// Returns the extents with those of whole dimensions spelled out.
    pub(crate) fn resolve(&self, shape: &Shape) -> Result<Vec<Extent>> {
        if shape.rank() != self.rank() {
            return Err(Status::invalid_argument(format!("Mismatching ranks: shape = {shape}, slice = {self}")));
        }
        let resolved =
            self.extents.iter().zip(shape.dims()).enumerate().map(|(dimension, (extent, &size))| match extent {
                None => Ok(Extent { start: 0, length: size }),
                Some(extent) if extent.start + extent.length <= size => Ok(*extent),
                Some(_) => Err(Status::invalid_argument(format!(
                    "Extent in dimension {dimension} out of bounds: shape = {shape}, slice = {self}"
                ))),
            });
        resolved.collect()
    }
}

impl fmt::Display for TensorSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, extent) in self.extents.iter().enumerate() {
            if index > 0 {
                f.write_str(":")?;
            }
            match extent {
                None => f.write_str("-")?,
                Some(Extent { start, length }) => write!(f, "{start},{length}")?,
            }
        }
        Ok(())
    }
}

/// Reads the specification that the save and restore ops take, such as `10 20 0,5:-`.
///
/// Returns the shape of the whole tensor, the slice, and the slice's shape.
pub fn parse_shape_and_slice(text: &str) -> Result<(Shape, TensorSlice, Shape)> {
    let Some((dims, slice)) = text.rsplit_once(' ') else {
        return Err(Status::invalid_argument(format!(
            "Need least two elements in shape_and_slice specification: {text}"
        )));
    };
    let slice = TensorSlice::parse(slice)?;
    let dims: Option<Vec<i64>> = dims.split(' ').map(|dim| dim.parse().ok()).collect();
    let dims =
        dims.ok_or_else(|| Status::invalid_argument(format!("Non numerical dimension in shape_and_slice: {text}")))?;
    let shape = Shape::new(&dims)?;
    let sliced = slice.slice_shape(&shape)?;
    Ok((shape, slice, sliced))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::Code;

    #[test]
    fn text_and_proto_and_back() {
        for text in ["-", "0,5:-", "3,2:-:1,1", "-:-", ""] {
            let slice = TensorSlice::parse(text).unwrap();
            assert_eq!(slice.to_string(), text);
            assert_eq!(TensorSlice::from_proto(&slice.to_proto()).unwrap(), slice);
        }
        for text in ["x", "1", "1,2,3", "-1,2", "0,0", "9223372036854775807,1"] {
            assert_eq!(TensorSlice::parse(text).unwrap_err().code(), Code::InvalidArgument, "{text}");
        }
    }

    #[test]
    fn specifications() {
        let (shape, slice, sliced) = parse_shape_and_slice("10 20 0,5:-").unwrap();
        assert_eq!((shape.dims(), sliced.dims()), (&[10, 20][..], &[5, 20][..]));
        assert!(!slice.is_full() && !slice.covers(&shape));
        let (shape, slice, _) = parse_shape_and_slice("10 20 0,10:-").unwrap();
        assert!(!slice.is_full() && slice.covers(&shape));
        for text in ["", "10", "x 0,5", "10 0,11", "10 20 0,5", "10  0,5"] {
            assert_eq!(parse_shape_and_slice(text).unwrap_err().code(), Code::InvalidArgument, "{text}");
        }
    }
}
