//! The meaning of `begin`, `end`, `strides` and the masks of a strided slice for a tensor of a given shape.

use smallvec::SmallVec;
use tensor::{PartialShape, Result, Shape, Status};

/// The masks of a strided slice: bit `i` applies to entry `i` of `begin`, `end` and `strides`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SliceMasks {
    /// The slice starts at the edge.
    pub(super) begin: i64,
    /// The slice ends at the edge.
    pub(super) end: i64,
    /// The entry is an ellipsis: it stands for all remaining dimensions.
    pub(super) ellipsis: i64,
    /// The entry is a new dimension of size 1.
    pub(super) new_axis: i64,
    /// The entry is an index, which removes its dimension.
    pub(super) shrink_axis: i64,
}

impl SliceMasks {
    pub(super) fn from_attrs(attrs: &graph::AttrMap) -> Result<SliceMasks> {
        Ok(SliceMasks {
            begin: attrs.int("begin_mask")?,
            end: attrs.int("end_mask")?,
            ellipsis: attrs.int("ellipsis_mask")?,
            new_axis: attrs.int("new_axis_mask")?,
            shrink_axis: attrs.int("shrink_axis_mask")?,
        })
    }
}

/// One dimension of a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SliceRange {
    /// The first index.
    pub(super) begin: i64,
    /// The step.
    pub(super) stride: i64,
    /// The number of elements.
    pub(super) len: i64,
}

/// A slice of a tensor whose shape is known.
#[derive(Debug)]
pub(super) struct SliceSpec {
    /// One range for each dimension of the tensor.
    pub(super) ranges: SmallVec<[SliceRange; 8]>,
    /// The shape of the result.
    pub(super) shape: Shape,
}

/// The effect of an entry on the result's shape.
#[derive(Clone, Copy)]
enum Place {
    Dimension(usize),
    NewAxis,
}

/// An entry for each dimension of the tensor.
#[derive(Clone, Copy)]
struct Entry {
    begin: Option<i64>,
    end: Option<i64>,
    stride: i64,
    begin_masked: bool,
    end_masked: bool,
    shrinks: bool,
}

impl SliceSpec {
    /// Resolves a slice of a tensor of this shape.
    pub(super) fn new(
        shape: &Shape,
        begin: &[i64],
        end: &[i64],
        strides: &[i64],
        masks: SliceMasks,
    ) -> Result<SliceSpec> {
        if begin.len() != end.len() || begin.len() != strides.len() {
            return Err(Status::invalid_argument(format!(
                "Expected begin, end, and strides to be 1D equal size tensors, but got {}, {} and {} elements",
                begin.len(),
                end.len(),
                strides.len()
            )));
        }
        let (entries, places) = dense(shape.rank(), Some(begin), Some(end), strides, masks)?;
        let mut ranges: SmallVec<[SliceRange; 8]> = SmallVec::with_capacity(entries.len());
        for (axis, entry) in entries.iter().enumerate() {
            let range = range(entry, shape.dim(axis), axis)?;
            ranges.push(range.ok_or_else(|| Status::internal("a slice of a known shape is unknown"))?);
        }
        let dims: SmallVec<[i64; 8]> = places
            .iter()
            .map(|place| match place {
                Place::Dimension(axis) => ranges[*axis].len,
                Place::NewAxis => 1,
            })
            .collect();
        Ok(SliceSpec { ranges, shape: Shape::new(&dims)? })
    }

    /// Returns whether the slice is the whole tensor.
    pub(super) fn is_everything(&self, shape: &Shape) -> bool {
        self.ranges.iter().enumerate().all(|(axis, range)| covers(range, shape.dim(axis)))
    }

    /// Returns the rows of axis 0 if the slice consists of whole consecutive rows.
    pub(super) fn rows(&self, shape: &Shape) -> Option<(usize, usize)> {
        let (first, rest) = self.ranges.split_first()?;
        let whole = rest.iter().enumerate().all(|(axis, range)| covers(range, shape.dim(axis + 1)));
        let in_order = first.stride == 1 || first.len <= 1;
        (whole && in_order).then_some((first.begin as usize, (first.begin + first.len) as usize))
    }
}

fn covers(range: &SliceRange, size: i64) -> bool {
    range.len == size && (range.stride == 1 || size <= 1)
}

/// Infers the shape of a slice of a tensor whose shape is partly unknown.
pub(super) fn sliced_shape(
    shape: &PartialShape,
    begin: Option<&[i64]>,
    end: Option<&[i64]>,
    strides: &[i64],
    masks: SliceMasks,
) -> Result<PartialShape> {
    let Some(dims) = shape.dims() else { return Ok(PartialShape::unknown()) };
    let (entries, places) = dense(dims.len(), begin, end, strides, masks)?;
    let mut sizes: SmallVec<[Option<i64>; 8]> = SmallVec::new();
    for (axis, entry) in entries.iter().enumerate() {
        sizes.push(match dims[axis] {
            Some(size) => range(entry, size, axis)?.map(|range| range.len),
            None => None,
        });
    }
    let result: SmallVec<[Option<i64>; 8]> = places
        .iter()
        .map(|place| match place {
            Place::Dimension(axis) => sizes[*axis],
            Place::NewAxis => Some(1),
        })
        .collect();
    Ok(PartialShape::new(&result))
}

/// Assigns the entries to the dimensions of a tensor.
fn dense(
    rank: usize,
    begin: Option<&[i64]>,
    end: Option<&[i64]>,
    strides: &[i64],
    masks: SliceMasks,
) -> Result<(SmallVec<[Entry; 8]>, SmallVec<[Place; 8]>)> {
    /// The masks have no more bits.
    const ENTRIES_MAX: usize = 62;
    let count = strides.len();
    if count > ENTRIES_MAX {
        return Err(Status::invalid_argument(format!("a slice has {count} entries, more than {ENTRIES_MAX}")));
    }
    let is_set = |mask: i64, entry: usize| mask >> entry & 1 == 1;
    let ellipses = (0..count).filter(|&entry| is_set(masks.ellipsis, entry)).count();
    if ellipses > 1 {
        return Err(Status::invalid_argument("Multiple ellipses in slice spec not allowed"));
    }
    let is_new = |entry: usize| is_set(masks.new_axis, entry) && !is_set(masks.ellipsis, entry);
    let whole = Entry { begin: Some(0), end: Some(0), stride: 1, begin_masked: true, end_masked: true, shrinks: false };
    let mut entries: SmallVec<[Entry; 8]> = SmallVec::new();
    let mut places: SmallVec<[Place; 8]> = SmallVec::new();
    // Without an ellipsis there is an implicit one after the last entry.
    for entry in 0..count + usize::from(ellipses == 0) {
        if entry == count || is_set(masks.ellipsis, entry) {
            let behind = (entry + 1..count).filter(|&entry| !is_new(entry)).count();
            while entries.len() + behind < rank {
                places.push(Place::Dimension(entries.len()));
                entries.push(whole);
            }
        } else if is_new(entry) {
            places.push(Place::NewAxis);
        } else {
            if entries.len() >= rank {
                return Err(Status::invalid_argument(format!(
                    "Index out of range using input dim {}; input has only {rank} dims",
                    entries.len()
                )));
            }
            let shrinks = is_set(masks.shrink_axis, entry);
            if !shrinks {
                places.push(Place::Dimension(entries.len()));
            }
            let value = |values: Option<&[i64]>| values.and_then(|values| values.get(entry).copied());
            entries.push(Entry {
                begin: value(begin),
                end: value(end),
                stride: strides[entry],
                begin_masked: is_set(masks.begin, entry),
                end_masked: is_set(masks.end, entry),
                shrinks,
            });
        }
    }
    Ok((entries, places))
}

/// Returns the range of an entry in a dimension of `size`, if its bounds are known.
fn range(entry: &Entry, size: i64, axis: usize) -> Result<Option<SliceRange>> {
    let Entry { stride, .. } = *entry;
    if stride == 0 {
        return Err(Status::invalid_argument(format!("strides[{axis}] must be non-zero")));
    }
    if entry.shrinks {
        if stride <= 0 {
            return Err(Status::invalid_argument("only stride 1 allowed on non-range indexing."));
        }
        let Some(index) = entry.begin else {
            return Ok(None);
        };
        let forward = if index < 0 { index.saturating_add(size) } else { index };
        if forward < 0 || forward >= size {
            return Err(Status::invalid_argument(format!("slice index {index} of dimension {axis} out of bounds.")));
        }
        return Ok(Some(SliceRange { begin: forward, stride: 1, len: 1 }));
    }
    let (low, high) = if stride > 0 { (0, size) } else { (-1, size - 1) };
    let bound = |value: Option<i64>, masked: bool, edge: i64| {
        if masked {
            return Some(edge);
        }
        value.map(|value| (if value < 0 { value.saturating_add(size) } else { value }).clamp(low, high))
    };
    let (first_edge, last_edge) = if stride > 0 { (low, high) } else { (high, low) };
    let (Some(begin), Some(end)) =
        (bound(entry.begin, entry.begin_masked, first_edge), bound(entry.end, entry.end_masked, last_edge))
    else {
        return Ok(None);
    };
    let distance = end - begin;
    let len = if distance == 0 || (distance < 0) != (stride < 0) {
        0
    } else {
        distance / stride + i64::from(distance % stride != 0)
    };
    // An empty range may start beyond the edge; its start is never used.
    Ok(Some(SliceRange { begin: if len == 0 { 0 } else { begin }, stride: if len <= 1 { 1 } else { stride }, len }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(dims: &[i64], entries: &[(i64, i64, i64)], masks: SliceMasks) -> Result<SliceSpec> {
        let column = |pick: fn(&(i64, i64, i64)) -> i64| entries.iter().map(pick).collect::<Vec<_>>();
        SliceSpec::new(&Shape::new(dims)?, &column(|e| e.0), &column(|e| e.1), &column(|e| e.2), masks)
    }

    #[test]
    fn ranges_are_clamped() {
        let lens = |entries: &[(i64, i64, i64)]| spec(&[5], entries, SliceMasks::default()).unwrap().shape.dim(0);
        assert_eq!(lens(&[(1, 4, 1)]), 3);
        assert_eq!(lens(&[(-100, 100, 2)]), 3);
        assert_eq!(lens(&[(4, -6, -1)]), 5);
        assert_eq!(lens(&[(3, 1, 1)]), 0);
        assert_eq!(lens(&[(i64::MIN, i64::MAX, 1)]), 5);
        assert_eq!(lens(&[(i64::MAX, i64::MIN, -1)]), 5);
        assert_eq!(lens(&[(0, 5, i64::MAX)]), 1);
        assert_eq!(lens(&[(4, -6, i64::MIN)]), 1);
    }

    #[test]
    fn masks_and_ellipses() {
        let masks = SliceMasks { ellipsis: 1, new_axis: 2, ..Default::default() };
        let spec_of = spec(&[2, 3, 4], &[(0, 0, 1), (0, 0, 1), (0, 2, 1)], masks).unwrap();
        assert_eq!(spec_of.shape.dims(), [2, 3, 1, 2]);
        let masks = SliceMasks { shrink_axis: 1, ..Default::default() };
        let spec_of = spec(&[2, 3], &[(-1, 0, 1)], masks).unwrap();
        assert_eq!((spec_of.shape.dims(), spec_of.ranges[0].begin), (&[3i64][..], 1));
        let shape = Shape::new(&[2, 3]).unwrap();
        assert_eq!(spec_of.rows(&shape), Some((1, 2)));
        let masks = SliceMasks { begin: 1, end: 1, ..Default::default() };
        assert!(spec(&[2, 3], &[(7, 7, 1)], masks).unwrap().is_everything(&shape));
        assert_eq!(spec(&[3], &[(7, 7, -2)], masks).unwrap().ranges[0], SliceRange { begin: 2, stride: -2, len: 2 });
    }

    #[test]
    fn what_is_wrong() {
        assert!(spec(&[2], &[(0, 1, 0)], SliceMasks::default()).is_err());
        assert!(spec(&[2], &[(0, 1, 1), (0, 1, 1)], SliceMasks::default()).is_err());
        let shrink = SliceMasks { shrink_axis: 1, ..Default::default() };
        assert!(spec(&[2], &[(2, 3, 1)], shrink).is_err());
        assert!(spec(&[2], &[(-3, 0, 1)], shrink).is_err());
        assert!(spec(&[2], &[(0, 1, -1)], shrink).is_err());
        let two = SliceMasks { ellipsis: 3, ..Default::default() };
        assert!(spec(&[2, 2], &[(0, 1, 1), (0, 1, 1)], two).is_err());
    }

    #[test]
    fn unknown_sizes_stay_unknown() {
        let shape = PartialShape::from_dims(&[-1, 4]);
        let shown = |begin: Option<&[i64]>, end: Option<&[i64]>, masks: SliceMasks| {
            sliced_shape(&shape, begin, end, &[1, 1], masks).unwrap().to_string()
        };
        assert_eq!(shown(Some(&[0, 1]), Some(&[2, 3]), SliceMasks::default()), "[?,2]");
        assert_eq!(shown(None, Some(&[2, 3]), SliceMasks::default()), "[?,?]");
        assert_eq!(shown(None, None, SliceMasks { shrink_axis: 1, begin: 2, end: 2, ..Default::default() }), "[4]");
    }
}
