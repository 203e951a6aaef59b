//! Shape inference: the context of shape functions ([`ShapeContext`]), helpers for writing them, and inference over whole graphs
//! ([`infer_shapes`]).

mod constant_value;
mod inference;

pub use inference::{InferredShapes, infer_shapes};

use crate::attr::AttrMap;
use crate::op_def::{OpSchema, TypeSlot};
use std::ops::Range;
use tensor::{DType, DTypeAndShape, PartialShape, Result, Status, Tensor};

/// Computes the shapes of a node's outputs.
pub type ShapeFn = fn(&mut ShapeContext<'_>) -> Result<()>;

/// The inputs of a shape function, and its results.
pub struct ShapeContext<'a> {
    /// The op's definition.
    pub schema: &'a OpSchema,
    /// The node's attributes.
    pub attrs: &'a AttrMap,
    /// The types of the outputs.
    pub output_types: &'a [TypeSlot],
    /// The shapes of the inputs.
    pub inputs: &'a [PartialShape],
    /// The types and shapes of the values behind resource inputs.
    pub input_handles: &'a [Vec<DTypeAndShape>],
    /// Returns an input's value if it is a constant.
    pub constant: &'a dyn Fn(usize) -> Option<Tensor>,
    /// Returns an input's value as a partly known shape, if the input computes a shape.
    pub constant_shape: &'a dyn Fn(usize) -> Option<PartialShape>,
    /// The shapes of the outputs; unknown until set.
    pub outputs: Vec<PartialShape>,
    /// The types and shapes of the values behind resource outputs.
    pub output_handles: Vec<Vec<DTypeAndShape>>,
}

impl ShapeContext<'_> {
    /// Returns the shape of input `index`, which is unknown if there is no such input.
    pub fn input(&self, index: usize) -> PartialShape {
        self.inputs.get(index).cloned().unwrap_or_default()
    }

    /// Returns the number of inputs.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Returns the number of outputs.
    pub fn num_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Returns the inputs of an argument.
    pub fn input_range(&self, name: &str) -> Result<Range<usize>> {
        self.schema.input_range(name, self.attrs)
    }

    /// Returns the value of input `index` if it is a constant.
    pub fn constant(&self, index: usize) -> Option<Tensor> {
        (self.constant)(index)
    }

    /// Returns the value of input `index` as a shape, with the rank and sizes that are known.
    pub fn constant_as_shape(&self, index: usize) -> Result<PartialShape> {
        if let Some(value) = self.constant(index) {
            if !matches!(value.dtype(), DType::Int32 | DType::Int64) {
                return Ok(PartialShape::unknown());
            }
            if value.shape().is_scalar() && value.to_index()? == -1 {
                return Ok(PartialShape::unknown());
            }
            return Ok(PartialShape::from_dims(&value.to_indices()?));
        }
        if let Some(shape) = (self.constant_shape)(index) {
            return Ok(shape);
        }
        let input = self.with_rank(index, 1)?;
        Ok(match input.dim(0) {
            Some(rank) if (0..=254).contains(&rank) => PartialShape::unknown_of_rank(rank as usize),
            _ => PartialShape::unknown(),
        })
    }

    /// Sets the shape of output `index`.
    pub fn set_output(&mut self, index: usize, shape: impl Into<PartialShape>) {
        if let Some(output) = self.outputs.get_mut(index) {
            *output = shape.into();
        }
    }

    /// Returns input `index` after checking that its rank is `rank`.
    pub fn with_rank(&self, index: usize, rank: usize) -> Result<PartialShape> {
        let shape = self.input(index);
        match shape.rank() {
            None => Ok(PartialShape::unknown_of_rank(rank)),
            Some(actual) if actual == rank => Ok(shape),
            Some(actual) => Err(Status::invalid_argument(format!("Shape must be rank {rank} but is rank {actual}"))),
        }
    }

    /// Returns input `index` after checking that its rank is at least `rank`.
    pub fn with_rank_at_least(&self, index: usize, rank: usize) -> Result<PartialShape> {
        let shape = self.input(index);
        match shape.rank() {
            Some(actual) if actual < rank => {
                Err(Status::invalid_argument(format!("Shape must be at least rank {rank} but is rank {actual}")))
            }
            _ => Ok(shape),
        }
    }

    /// Returns input `index` after checking that its rank is at most `rank`.
    pub fn with_rank_at_most(&self, index: usize, rank: usize) -> Result<PartialShape> {
        let shape = self.input(index);
        match shape.rank() {
            Some(actual) if actual > rank => {
                Err(Status::invalid_argument(format!("Shape must be at most rank {rank} but is rank {actual}")))
            }
            _ => Ok(shape),
        }
    }

    /// Returns the merged shape of inputs `a` and `b`, or an error if they contradict each other.
    pub fn merged(&self, a: usize, b: usize) -> Result<PartialShape> {
        self.input(a).merge(&self.input(b))
    }
}

/// Leaves the shapes of all outputs unknown.
pub fn unknown(_: &mut ShapeContext<'_>) -> Result<()> {
    Ok(())
}

/// Makes every output a scalar.
pub fn scalar(c: &mut ShapeContext<'_>) -> Result<()> {
    for index in 0..c.num_outputs() {
        c.set_output(index, PartialShape::scalar());
    }
    Ok(())
}

/// Gives every output the shape and the handle data of the first input.
pub fn unchanged(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.input(0);
    for index in 0..c.num_outputs() {
        c.set_output(index, shape.clone());
        if let Some(handle) = c.input_handles.first() {
            c.output_handles[index] = handle.clone();
        }
    }
    Ok(())
}

/// Merges the shapes of all inputs, and gives every output that shape.
pub fn merged(c: &mut ShapeContext<'_>) -> Result<()> {
    let mut shape = c.input(0);
    for index in 1..c.num_inputs() {
        shape = shape.merge(&c.input(index))?;
    }
    for index in 0..c.num_outputs() {
        c.set_output(index, shape.clone());
    }
    Ok(())
}

/// Gives the output the shape that the first two inputs broadcast to.
pub fn broadcast_binary(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = broadcast(&c.input(0), &c.input(1))?;
    c.set_output(0, shape);
    Ok(())
}

/// Returns the shape that both broadcast to.
pub fn broadcast(a: &PartialShape, b: &PartialShape) -> Result<PartialShape> {
    let (Some(a_dims), Some(b_dims)) = (a.dims(), b.dims()) else {
        return Ok(PartialShape::unknown());
    };
    let rank = a_dims.len().max(b_dims.len());
    let at = |dims: &[Option<i64>], index: usize| {
        let missing = rank - dims.len();
        if index < missing { Some(1) } else { dims[index - missing] }
    };
    let mut dims = Vec::with_capacity(rank);
    for index in 0..rank {
        dims.push(match (at(a_dims, index), at(b_dims, index)) {
            (Some(1), other) | (other, Some(1)) => other,
            (Some(x), Some(y)) if x == y => Some(x),
            (Some(x), Some(y)) => {
                return Err(Status::invalid_argument(format!(
                    "Dimensions must be equal, but are {x} and {y} for shapes {a} and {b}"
                )));
            }
            // One size is unknown and the other is not 1: the unknown one must be equal or 1.
            (Some(x), None) | (None, Some(x)) => Some(x),
            (None, None) => None,
        });
    }
    Ok(PartialShape::new(&dims))
}

/// Gives the output the shape in the attribute `shape`.
pub fn from_shape_attr(c: &mut ShapeContext<'_>) -> Result<()> {
    let shape = c.attrs.shape("shape")?;
    c.set_output(0, shape);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting() {
        let show = |a: &[i64], b: &[i64]| {
            broadcast(&PartialShape::from_dims(a), &PartialShape::from_dims(b)).map(|shape| shape.to_string())
        };
        assert_eq!(show(&[2, 1], &[3]).unwrap(), "[2,3]");
        assert_eq!(show(&[-1, 3], &[1, 3]).unwrap(), "[?,3]");
        assert_eq!(show(&[-1], &[5]).unwrap(), "[5]");
        assert!(show(&[2], &[3]).is_err());
    }
}
