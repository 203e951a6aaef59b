//! Indices of rows and slices of a tensor: checks, and copies of the indexed rows.

use numeric::parallel;
use std::fmt::Write;
use tensor::{Buffer, DType, Result, Shape, Status, Tensor};

/// Returns the elements of an index tensor, each of which must be in `0..rows`.
pub(crate) fn row_indices(indices: &Tensor, rows: usize) -> Result<Vec<usize>> {
    let checked = |position: usize, index: i64| match usize::try_from(index) {
        Ok(row) if row < rows => Ok(row),
        _ => Err(Status::invalid_argument(format!(
            "indices{} = {index} is not in [0, {rows})",
            position_text(indices.dims(), position)
        ))),
    };
    match indices.dtype() {
        DType::Int32 => {
            let indices = indices.as_slice::<i32>()?;
            indices.iter().enumerate().map(|(position, &index)| checked(position, i64::from(index))).collect()
        }
        _ => indices.as_slice::<i64>()?.iter().enumerate().map(|(position, &index)| checked(position, index)).collect(),
    }
}

/// The slices of a tensor that the last dimension of an index tensor refers to.
pub(crate) struct NdSlices {
    /// The indices of the slices in the tensor.
    pub slices: Vec<usize>,
    /// The number of elements of a slice.
    pub slice_len: usize,
    /// The number of the tensor's dimensions that an index covers.
    pub depth: usize,
}

/// Returns the slices of a tensor of shape `shape` at `indices`; errors refer to the shape as `whose`.
pub(crate) fn nd_slices(shape: &Shape, indices: &Tensor, whose: &str) -> Result<NdSlices> {
    let depth = indices.dims().last().copied().unwrap_or(1) as usize;
    if depth > shape.rank() {
        return Err(Status::invalid_argument(format!(
            "index innermost dimension length must be <= params rank; saw: {depth} vs. {}",
            shape.rank()
        )));
    }
    let slice_len = shape.slice(depth, shape.rank()).num_elements();
    let count = indices.shape().slice(0, indices.shape().rank().saturating_sub(1)).num_elements();
    let values = indices.to_indices()?;
    let mut slices = Vec::with_capacity(count);
    for position in 0..count {
        let index = &values[position * depth..(position + 1) * depth];
        let mut slice = 0usize;
        for (&part, &size) in index.iter().zip(shape.dims()) {
            if part < 0 || part >= size {
                let outer = &indices.dims()[..indices.dims().len().saturating_sub(1)];
                let index: Vec<String> = index.iter().map(|part| part.to_string()).collect();
                return Err(Status::invalid_argument(format!(
                    "indices{} = [{}] does not index into {whose} {shape}",
                    position_text(outer, position),
                    index.join(", ")
                )));
            }
            slice = slice * size as usize + part as usize;
        }
        slices.push(slice);
    }
    Ok(NdSlices { slices, slice_len, depth })
}

/// Returns a tensor of slices of `slice_len` elements of `table`, by index; of any type.
pub(crate) fn gather_slices(table: &Tensor, slices: &[usize], slice_len: usize, shape: Shape) -> Result<Tensor> {
    let ranges = || slices.iter().map(|&slice| slice * slice_len..(slice + 1) * slice_len);
    match table.dtype() {
        DType::String => {
            let from = table.strings()?;
            Tensor::from_strings(shape, ranges().flat_map(|range| from[range].iter().cloned()).collect())
        }
        DType::Variant => {
            let from = table.variants()?;
            Tensor::from_variants(shape, ranges().flat_map(|range| from[range].iter().cloned()).collect())
        }
        DType::Resource => {
            let from = table.resources()?;
            Tensor::from_resources(shape, ranges().flat_map(|range| from[range].iter().cloned()).collect())
        }
        dtype => {
            let from = table.buffer().ok_or_else(|| Status::internal("a plain tensor without a buffer"))?.bytes();
            let mut buffer = Buffer::new(shape.num_bytes(dtype.size())?)?;
            if let Some(to) = buffer.bytes_mut()
                && !to.is_empty()
            {
                gather_bytes(from, slices, slice_len * dtype.size(), to);
            }
            Tensor::from_buffer(dtype, shape, buffer)
        }
    }
}

fn gather_bytes(from: &[u8], slices: &[usize], slice_bytes: usize, to: &mut [u8]) {
    /// A cache miss and the copy's overhead.
    const SLICE_NS: f64 = 15.0;
    const BYTE_NS: f64 = 0.1;
    parallel::for_each_chunk_mut(to, slice_bytes, SLICE_NS + BYTE_NS * slice_bytes as f64, |first, run| {
        let slices = &slices[first..];
        match slice_bytes {
            4 => gather_fixed::<4>(from, slices, run),
            8 => gather_fixed::<8>(from, slices, run),
            _ => {
                for (to, &slice) in run.chunks_exact_mut(slice_bytes).zip(slices) {
                    to.copy_from_slice(&from[slice * slice_bytes..][..slice_bytes]);
                }
            }
        }
    });
}

fn gather_fixed<const N: usize>(from: &[u8], slices: &[usize], to: &mut [u8]) {
    let (from, to) = (from.as_chunks::<N>().0, to.as_chunks_mut::<N>().0);
    for (to, &slice) in to.iter_mut().zip(slices) {
        *to = from[slice];
    }
}

/// Formats the index of the `position`th element of a tensor with these dimensions as in TensorFlow's messages: `[1,2]`.
pub(crate) fn position_text(dims: &[i64], position: usize) -> String {
    let mut rest = position;
    let mut parts = vec![0; dims.len()];
    for (part, &dim) in parts.iter_mut().zip(dims).rev() {
        let dim = (dim as usize).max(1);
        *part = rest % dim;
        rest /= dim;
    }
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        // Writing to a string can't fail.
        let _ = write!(text, "{}{part}", if index == 0 { "[" } else { "," });
    }
    if !parts.is_empty() {
        text.push(']');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_out_of_range_are_named() {
        let indices = Tensor::from_slice(&[1, 2], &[0i32, 7]).unwrap();
        assert_eq!(row_indices(&indices, 3).unwrap_err().message(), "indices[0,1] = 7 is not in [0, 3)");
        assert_eq!(row_indices(&Tensor::scalar(-1i64), 3).unwrap_err().message(), "indices = -1 is not in [0, 3)");
        let indices = Tensor::from_slice(&[2, 1], &[0i64, 7]).unwrap();
        let status = nd_slices(&Shape::new(&[3]).unwrap(), &indices, "shape").err().unwrap();
        assert_eq!(status.message(), "indices[1] = [7] does not index into shape [3]");
    }

    #[test]
    fn slices_of_any_type() {
        let shape = Shape::new(&[2, 2]).unwrap();
        let numbers = Tensor::from_slice(&[3, 2], &[1u8, 2, 3, 4, 5, 6]).unwrap();
        let rows = gather_slices(&numbers, &[2, 0], 2, shape.clone()).unwrap();
        assert_eq!(rows.as_slice::<u8>().unwrap(), &[5, 6, 1, 2]);
        let words: Vec<_> = ["a", "b", "c", "d"].iter().map(|word| bytes::Bytes::from(*word)).collect();
        let words = Tensor::from_strings(shape.clone(), words).unwrap();
        let rows = gather_slices(&words, &[1, 1], 2, shape).unwrap();
        assert_eq!(rows.strings().unwrap(), ["c", "d", "c", "d"]);
    }
}
