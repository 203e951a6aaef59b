//! The entries of a slice: numbers, ranges and tuples of them, as between brackets in Python.

use std::ops::{Range, RangeFrom, RangeFull, RangeTo};

/// One entry of a slice, as written between brackets in Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceIndex {
    /// `i`: removes the dimension.
    At(i32),
    /// `begin:end`, either of which may be omitted.
    Range(Option<i32>, Option<i32>),
    /// `begin:end:stride`, where the bounds may be omitted.
    Strided(Option<i32>, Option<i32>, i32),
    /// `...`
    Ellipsis,
    /// `tf.newaxis`
    NewAxis,
}

/// `i`: removes the dimension. A negative one counts from the end.
impl From<i32> for SliceIndex {
    fn from(at: i32) -> SliceIndex {
        SliceIndex::At(at)
    }
}

/// `begin..end`, either of which may be negative.
impl From<Range<i32>> for SliceIndex {
    fn from(range: Range<i32>) -> SliceIndex {
        SliceIndex::Range(Some(range.start), Some(range.end))
    }
}

/// `begin..`
impl From<RangeFrom<i32>> for SliceIndex {
    fn from(range: RangeFrom<i32>) -> SliceIndex {
        SliceIndex::Range(Some(range.start), None)
    }
}

/// `..end`
impl From<RangeTo<i32>> for SliceIndex {
    fn from(range: RangeTo<i32>) -> SliceIndex {
        SliceIndex::Range(None, Some(range.end))
    }
}

/// `..`: the whole dimension.
impl From<RangeFull> for SliceIndex {
    fn from(_: RangeFull) -> SliceIndex {
        SliceIndex::Range(None, None)
    }
}

/// The entries of a slice: one of them, a tuple, or an array or slice of [`SliceIndex`].
///
/// ```
/// use ops::array::{IntoSliceIndices, SliceIndex};
///
/// assert_eq!((0, 1..-1).slice_indices(), [SliceIndex::At(0), SliceIndex::Range(Some(1), Some(-1))]);
/// assert_eq!((SliceIndex::Ellipsis, 2..).slice_indices()[1], SliceIndex::Range(Some(2), None));
/// assert_eq!((..3).slice_indices(), [SliceIndex::Range(None, Some(3))]);
/// ```
pub trait IntoSliceIndices {
    /// Returns the entries.
    fn slice_indices(self) -> Vec<SliceIndex>;
}

impl IntoSliceIndices for &[SliceIndex] {
    fn slice_indices(self) -> Vec<SliceIndex> {
        self.to_vec()
    }
}

impl<const COUNT: usize> IntoSliceIndices for [SliceIndex; COUNT] {
    fn slice_indices(self) -> Vec<SliceIndex> {
        self.to_vec()
    }
}

macro_rules! single {
    ($($ty:ty),*) => {$(
        impl IntoSliceIndices for $ty {
            fn slice_indices(self) -> Vec<SliceIndex> {
                vec![self.into()]
            }
        }
    )*};
}

single!(i32, Range<i32>, RangeFrom<i32>, RangeTo<i32>, RangeFull, SliceIndex);

macro_rules! tuples {
    ($($($ty:ident $index:tt),*;)*) => {$(
        impl<$($ty: Into<SliceIndex>),*> IntoSliceIndices for ($($ty,)*) {
            fn slice_indices(self) -> Vec<SliceIndex> {
                vec![$(self.$index.into()),*]
            }
        }
    )*};
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
}
