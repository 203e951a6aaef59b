//! The positions of a matrix's diagonals, and their layout in a tensor of diagonals.

use tensor::{Result, Status, Tensor};

/// The alignment of diagonals that are shorter than the longest one: at the left or the right end of their row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Diagonals above the main one are aligned left.
    pub(super) upper_left: bool,
    /// Diagonals below the main one are aligned left.
    pub(super) lower_left: bool,
}

impl Alignment {
    /// The behaviour of ops without the attribute `align`.
    pub(super) const LEFT: Alignment = Alignment { upper_left: true, lower_left: true };

    pub(super) fn from_attrs(attrs: &graph::AttrMap) -> Result<Alignment> {
        if !attrs.contains_key("align") {
            return Ok(Alignment::LEFT);
        }
        let text = attrs.string("align")?;
        match text.split_once('_') {
            Some((upper @ ("LEFT" | "RIGHT"), lower @ ("LEFT" | "RIGHT"))) => {
                Ok(Alignment { upper_left: upper == "LEFT", lower_left: lower == "LEFT" })
            }
            _ => Err(Status::invalid_argument(format!("align '{text}' is not known"))),
        }
    }
}

/// Diagonals `lower..=upper` of a matrix; 0 is the main one, and those above are positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Band {
    pub(super) lower: i64,
    pub(super) upper: i64,
}

impl Band {
    pub(super) const MAIN: Band = Band { lower: 0, upper: 0 };

    /// Reads a diagonal, or a pair of them.
    pub(super) fn from_tensor(k: &Tensor) -> Result<Band> {
        if k.shape().rank() > 1 {
            return Err(Status::invalid_argument(format!(
                "diag_index must be a scalar or vector, received shape: {}",
                k.shape()
            )));
        }
        match k.to_indices()?[..] {
            [only] => Ok(Band { lower: only, upper: only }),
            [lower, upper] if lower <= upper => Ok(Band { lower, upper }),
            [lower, upper] => Err(Status::invalid_argument(format!(
                "lower_diag_index must not be larger than upper_diag_index: {lower} > {upper}"
            ))),
            [] => Err(Status::invalid_argument(
                "diag_index must have at least one element. Expected diag_index to have at least 1 element",
            )),
            _ => Err(Status::invalid_argument(format!(
                "diag_index must have only one or two elements, received {} elements.",
                k.num_elements()
            ))),
        }
    }

    pub(super) fn count(&self) -> i64 {
        self.upper - self.lower + 1
    }

    /// Returns the length of the longest diagonal in a matrix of this size.
    pub(super) fn longest(&self, rows: i64, columns: i64) -> i64 {
        (rows + self.upper.min(0)).min(columns - self.lower.max(0))
    }

    /// Checks that a matrix of this size has these diagonals.
    pub(super) fn check(&self, rows: i64, columns: i64) -> Result<()> {
        for (name, index) in [("lower_diag_index", self.lower), ("upper_diag_index", self.upper)] {
            let inside = (-rows < index && index < columns) || index == 0;
            if !inside {
                return Err(Status::invalid_argument(format!(
                    "{name} is out of bound: {index}. It must be between {} and {columns}",
                    -rows
                )));
            }
        }
        Ok(())
    }

    /// Returns the size of a matrix whose longest diagonal has the length `longest`; -1 is a size that is not given.
    pub(super) fn matrix_size(&self, longest: i64, rows: i64, columns: i64) -> Result<(i64, i64)> {
        let overflow = || Status::invalid_argument("the matrix of the diagonals is too large");
        let rows_min = longest.checked_sub(self.upper.min(0)).ok_or_else(overflow)?;
        let columns_min = longest.checked_add(self.lower.max(0)).ok_or_else(overflow)?;
        let (rows, columns) = match (rows, columns) {
            (-1, -1) => (rows_min.max(columns_min), rows_min.max(columns_min)),
            (-1, columns) => (rows_min, columns),
            (rows, -1) => (rows, columns_min),
            sizes => sizes,
        };
        if rows < rows_min {
            return Err(Status::invalid_argument("The number of rows is too small."));
        }
        if columns < columns_min {
            return Err(Status::invalid_argument("The number of columns is too small."));
        }
        if rows != rows_min && columns != columns_min {
            return Err(Status::invalid_argument(
                "num_rows and num_cols are not consistent with lower_diag_index, upper_diag_index, and the length of the \
                 given diagonals.",
            ));
        }
        Ok((rows, columns))
    }
}

/// A matrix and its diagonals.
pub(super) struct Layout {
    pub(super) band: Band,
    pub(super) rows: i64,
    pub(super) columns: i64,
    pub(super) longest: i64,
    pub(super) alignment: Alignment,
}

impl Layout {
    /// Calls `visit` with the position of each element in the matrix and in the tensor of diagonals.
    pub(super) fn for_each(&self, mut visit: impl FnMut(usize, usize)) {
        for diagonal in self.band.lower..=self.band.upper {
            let len = (self.rows + diagonal.min(0)).min(self.columns - diagonal.max(0));
            if len <= 0 {
                continue;
            }
            let at_left = (diagonal >= 0 && self.alignment.upper_left) || (diagonal <= 0 && self.alignment.lower_left);
            let offset = if at_left { 0 } else { self.longest - len };
            let start = (self.band.upper - diagonal) * self.longest + offset;
            for index in 0..len {
                let (row, column) = (index - diagonal.min(0), index + diagonal.max(0));
                visit((row * self.columns + column) as usize, (start + index) as usize);
            }
        }
    }
}
