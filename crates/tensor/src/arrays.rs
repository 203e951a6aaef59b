//! Between `ndarray`'s arrays and tensors, with the feature `ndarray`.

use crate::{Element, Result, Scalar, Shape, Status, Tensor};
use ndarray::{Array, ArrayBase, ArrayD, ArrayView, ArrayViewD, Data, Dimension, IxDyn};

fn of_array<T: Scalar + Clone, S: Data<Elem = T>, D: Dimension>(array: &ArrayBase<S, D>) -> Result<Tensor> {
    let shape = Shape::from_usize(array.shape())?;
    match array.as_slice() {
        Some(elements) => T::tensor(shape, elements),
        // Transposed, sliced or reversed: an array iterates in row-major order, however its elements lie.
        None => T::tensor(shape, &array.iter().cloned().collect::<Vec<T>>()),
    }
}

/// Copies an array of numbers, `bool`s or strings, whatever the order of its elements in memory.
///
/// ```
/// use ndarray::array;
/// use tensor::Tensor;
///
/// let tensor = Tensor::try_from(array![[1f32, 2.0, 3.0], [4.0, 5.0, 6.0]].t())?;
/// assert_eq!(tensor.dims(), [3, 2]);
/// assert_eq!(tensor.to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// # Ok::<(), tensor::Status>(())
/// ```
impl<T: Scalar + Clone, S: Data<Elem = T>, D: Dimension> TryFrom<ArrayBase<S, D>> for Tensor {
    type Error = Status;
    fn try_from(array: ArrayBase<S, D>) -> Result<Tensor> {
        of_array(&array)
    }
}

/// Copies an array, as for one that is given away.
impl<T: Scalar + Clone, S: Data<Elem = T>, D: Dimension> TryFrom<&ArrayBase<S, D>> for Tensor {
    type Error = Status;
    fn try_from(array: &ArrayBase<S, D>) -> Result<Tensor> {
        of_array(array)
    }
}

/// Copies the elements; an error when the type or the number of dimensions is another.
///
/// ```
/// use ndarray::{Array2, array};
/// use tensor::Tensor;
///
/// let tensor = Tensor::try_from([[1, 2], [3, 4]])?;
/// assert_eq!(Array2::<i32>::try_from(&tensor)?, array![[1, 2], [3, 4]]);
/// assert!(Array2::<f32>::try_from(&tensor).is_err());
/// # Ok::<(), tensor::Status>(())
/// ```
impl<T: Element, D: Dimension> TryFrom<&Tensor> for Array<T, D> {
    type Error = Status;
    fn try_from(tensor: &Tensor) -> Result<Array<T, D>> {
        Ok(tensor.ndarray_view()?.to_owned())
    }
}

/// Copies the elements; an error when the type or the number of dimensions is another.
impl<T: Element, D: Dimension> TryFrom<Tensor> for Array<T, D> {
    type Error = Status;
    fn try_from(tensor: Tensor) -> Result<Array<T, D>> {
        Array::try_from(&tensor)
    }
}

impl Tensor {
    /// Returns a copy as an array of any number of dimensions.
    ///
    /// ```
    /// use tensor::Tensor;
    ///
    /// let array = Tensor::try_from([[1, 2], [3, 4]])?.to_ndarray::<i32>()?;
    /// assert_eq!(array.shape(), [2, 2]);
    /// assert_eq!(array.sum(), 10);
    /// # Ok::<(), tensor::Status>(())
    /// ```
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        ArrayD::try_from(self)
    }

    /// Returns the elements as an array, without copying them.
    ///
    /// ```
    /// use ndarray::{Axis, Ix2};
    /// use tensor::Tensor;
    ///
    /// let tensor = Tensor::try_from([[1f32, 2.0], [3.0, 4.0]])?;
    /// let columns = tensor.ndarray_view::<f32, Ix2>()?.sum_axis(Axis(0));
    /// assert_eq!(columns.to_vec(), [4.0, 6.0]);
    /// # Ok::<(), tensor::Status>(())
    /// ```
    pub fn ndarray_view<T: Element, D: Dimension>(&self) -> Result<ArrayView<'_, T, D>> {
        let view = ArrayViewD::from_shape(IxDyn(&self.shape().to_usize()), self.as_slice::<T>()?);
        let view = view.map_err(|error| Status::internal(format!("shape {}: {error}", self.shape())))?;
        view.into_dimensionality().map_err(|_| {
            let expected = D::NDIM.map_or_else(String::new, |rank| format!("{rank} dimensions expected, but "));
            Status::invalid_argument(format!("{expected}the shape is {}", self.shape()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, IntoTensor, f16};
    use ndarray::{Array0, Array1, Array2, Array3, array, s};

    #[test]
    fn arrays_become_tensors_in_row_major_order() {
        let matrix = Array2::from_shape_fn((3, 4), |(row, column)| (row * 4 + column) as f64);
        let every_other = Tensor::try_from(matrix.slice(s![..;-1, ..;2])).unwrap();
        assert_eq!(every_other.dims(), [3, 2]);
        assert_eq!(every_other.to_vec::<f64>().unwrap(), [8.0, 10.0, 4.0, 6.0, 0.0, 2.0]);
        let columns_first = Array2::from_shape_vec(ndarray::ShapeBuilder::f((2, 2)), vec![1, 2, 3, 4]).unwrap();
        assert_eq!(Tensor::try_from(&columns_first).unwrap().to_vec::<i32>().unwrap(), [1, 3, 2, 4]);
        assert_eq!(Tensor::try_from(Array0::from_elem((), true)).unwrap().to_scalar::<bool>(), Ok(true));
        assert_eq!(Tensor::try_from(Array3::<u8>::zeros((2, 0, 3))).unwrap().dims(), [2, 0, 3]);
        let words = array![["a", "bc"]].into_tensor().unwrap();
        assert_eq!((words.dtype(), words.dims()), (DType::String, &[1, 2][..]));
        assert_eq!(words.strings().unwrap()[1], "bc");
    }

    #[test]
    fn tensors_become_arrays() {
        let halves = [[f16::ONE, f16::ZERO]];
        let tensor = Tensor::try_from(halves).unwrap();
        assert_eq!(Array2::<f16>::try_from(&tensor).unwrap(), Array2::from(halves.to_vec()));
        assert_eq!(tensor.to_ndarray::<f16>().unwrap().shape(), [1, 2]);
        let wrong_rank = Array1::<f16>::try_from(&tensor).unwrap_err();
        assert_eq!(wrong_rank.message(), "1 dimensions expected, but the shape is [1,2]");
        assert!(Array2::<f32>::try_from(tensor).unwrap_err().message().contains("half"));
    }
}
