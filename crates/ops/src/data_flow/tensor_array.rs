//! [`TensorArray`]: the resource behind the ops of that name, an array of tensors that lives for a step.
//!
//! An array of gradients sums elements that are written twice, and returns zeros for elements that were never written.

use crate::arithmetic::add_to;
use kernel::Resource;
use parking_lot::Mutex;
use tensor::{Charge, DType, PartialShape, Result, Shape, Status, Tensor};

/// An array of tensors.
pub(super) struct TensorArray {
    name: String,
    dtype: DType,
    identical_element_shapes: bool,
    clear_after_read: bool,
    is_gradient: bool,
    state: Mutex<State>,
}

/// The configuration of a new array.
pub(super) struct TensorArrayOptions {
    pub dtype: DType,
    pub size: usize,
    pub element_shape: PartialShape,
    pub dynamic_size: bool,
    pub clear_after_read: bool,
    pub identical_element_shapes: bool,
}

struct State {
    closed: bool,
    dynamic_size: bool,
    /// Whether some element is a sum, whose parts can't be separated.
    aggregated: bool,
    element_shape: PartialShape,
    /// The number of elements that an unpack or split of the first version wrote, which is the number that a pack takes.
    marked_size: Option<usize>,
    elements: Vec<Element>,
    /// The charge for the elements themselves; their contents are charged separately.
    charge: Charge,
}

#[derive(Clone, Default)]
struct Element {
    /// The value; `None` stands for zeros of `shape` if the element counts as written.
    tensor: Option<Tensor>,
    shape: Shape,
    written: bool,
    read: bool,
    cleared: bool,
}

/// The most elements to which a write may grow an array.
const ELEMENTS_MAX: usize = 1 << 28;

/// Refuses more elements than there can be memory for.
pub(super) fn check_count(count: usize) -> Result<()> {
    tensor::check_elements_fit(count, size_of::<Element>())
}

impl TensorArray {
    pub(super) fn new(name: String, options: TensorArrayOptions) -> TensorArray {
        TensorArray {
            name,
            dtype: options.dtype,
            identical_element_shapes: options.identical_element_shapes,
            clear_after_read: options.clear_after_read,
            is_gradient: false,
            state: Mutex::new(State {
                closed: false,
                dynamic_size: options.dynamic_size,
                aggregated: false,
                element_shape: options.element_shape,
                marked_size: None,
                elements: vec![Element::default(); options.size],
                charge: Charge::anyway(options.size * size_of::<Element>()),
            }),
        }
    }

    /// Returns the array of gradients with respect to the elements of this one, which can't grow any more.
    pub(super) fn gradient(&self, name: String, prepended: Option<&Shape>) -> Result<TensorArray> {
        let mut state = self.lock()?;
        state.dynamic_size = false;
        if state.aggregated {
            return Err(Status::invalid_argument(format!(
                "Unable to create a gradients TensorArray for {}.  Perhaps you used the multiple_writes_aggregate flag on \
                 a previous write?  Gradient calculation is impossible when multiple writes are performed to the same \
                 index.",
                self.name
            )));
        }
        let with_prefix = |shape: &Shape| prepended.map_or_else(|| Ok(shape.clone()), |prefix| prefix.concat(shape));
        let element = |element: &Element| -> Result<Element> {
            let shape = if element.written { with_prefix(&element.shape)? } else { Shape::scalar() };
            Ok(Element { written: element.written, shape, ..Element::default() })
        };
        let elements = state.elements.iter().map(element).collect::<Result<Vec<Element>>>()?;
        let element_shape = match prepended {
            Some(prefix) => PartialShape::from(prefix).concat(&state.element_shape),
            None => state.element_shape.clone(),
        };
        Ok(TensorArray {
            name,
            dtype: self.dtype,
            identical_element_shapes: self.identical_element_shapes,
            clear_after_read: true,
            is_gradient: true,
            state: Mutex::new(State {
                closed: false,
                dynamic_size: false,
                aggregated: false,
                element_shape,
                marked_size: state.marked_size,
                charge: Charge::anyway(elements.len() * size_of::<Element>()),
                elements,
            }),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(super) fn size(&self) -> Result<usize> {
        Ok(self.lock()?.elements.len())
    }

    /// Returns the number of elements that a pack or concat takes.
    pub(super) fn pack_size(&self) -> Result<usize> {
        let state = self.lock()?;
        Ok(state.marked_size.unwrap_or(state.elements.len()))
    }

    pub(super) fn is_dynamic(&self) -> bool {
        self.state.lock().dynamic_size
    }

    pub(super) fn mark_size(&self, size: usize) {
        self.state.lock().marked_size = Some(size);
    }

    /// Drops all elements; later uses are errors.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let elements = std::mem::take(&mut state.elements);
        state.charge.set(0);
        drop(state);
        drop(elements);
    }

    /// Merges information about the elements' shape.
    pub(super) fn merge_element_shape(&self, shape: &PartialShape) -> Result<()> {
        let mut state = self.lock()?;
        state.element_shape = state.element_shape.merge(shape)?;
        Ok(())
    }

    /// Writes elements at these indices; if one fails, those before it are written.
    pub(super) fn write(&self, writes: impl Iterator<Item = Result<(i64, Tensor)>>) -> Result<()> {
        let mut state = self.lock()?;
        for write in writes {
            let (index, value) = write?;
            self.write_one(&mut state, index, value)?;
        }
        Ok(())
    }

    fn write_one(&self, state: &mut State, index: i64, value: Tensor) -> Result<()> {
        let could_not = |why: String| {
            let text = format!("TensorArray {}: Could not write to TensorArray index {index} because {why}", self.name);
            Err(Status::invalid_argument(text))
        };
        let size = state.elements.len();
        let place = match usize::try_from(index) {
            Ok(place) if place < size => place,
            Ok(place) if state.dynamic_size && place < ELEMENTS_MAX => {
                state.charge.resize((place + 1) * size_of::<Element>())?;
                state.elements.resize(place + 1, Element::default());
                place
            }
            _ => {
                return Err(Status::invalid_argument(format!(
                    "TensorArray {}: Tried to write to index {index} but array is not resizeable and size is: {size}",
                    self.name
                )));
            }
        };
        if value.dtype() != self.dtype {
            return could_not(format!("the value dtype is {} but TensorArray dtype is {}.", value.dtype(), self.dtype));
        }
        if !state.element_shape.is_compatible_with(value.shape()) {
            return could_not(format!(
                "the value shape is {} which is incompatible with the TensorArray's inferred element shape: {} (consider \
                 setting infer_shape=False).",
                value.shape(),
                state.element_shape
            ));
        }
        if self.identical_element_shapes && !state.element_shape.is_fully_defined() {
            state.element_shape = PartialShape::from(value.shape());
        }
        let element = &mut state.elements[place];
        if element.read {
            return could_not("it has already been read.".to_owned());
        }
        if !element.written {
            *element =
                Element { shape: value.shape().clone(), tensor: Some(value), written: true, ..Element::default() };
            return Ok(());
        }
        if !self.is_gradient {
            return could_not("it has already been written to.".to_owned());
        }
        if *value.shape() != element.shape {
            return Err(Status::invalid_argument(format!(
                "TensorArray {}: Could not aggregate to TensorArray index {index} because the existing shape is {} but the \
                 new input shape is {}.",
                self.name,
                element.shape,
                value.shape()
            )));
        }
        match &mut element.tensor {
            // Only the shape was written, which stands for zeros.
            None => element.tensor = Some(value),
            Some(sum) => {
                add_to(sum, value)?;
                state.aggregated = true;
            }
        }
        Ok(())
    }

    /// Reads elements at these indices.
    pub(super) fn read(&self, indices: impl Iterator<Item = i64>) -> Result<Vec<Tensor>> {
        let mut state = self.lock()?;
        indices.map(|index| self.read_one(&mut state, index)).collect()
    }

    fn read_one(&self, state: &mut State, index: i64) -> Result<Tensor> {
        let size = state.elements.len();
        let place = match usize::try_from(index) {
            Ok(place) if place < size || (self.is_gradient && place < ELEMENTS_MAX) => place,
            _ => {
                let text = format!("Tried to read from index {index} but array size is: {size}");
                return Err(Status::invalid_argument(text));
            }
        };
        if place >= size || !state.elements[place].written {
            let own = state.elements.get(place).filter(|element| self.is_gradient && element.shape.rank() > 0);
            let shape = match own {
                Some(element) => element.shape.clone(),
                None => state.element_shape.to_shape().ok_or_else(|| {
                    Status::invalid_argument(format!(
                        "TensorArray {}: Could not read from TensorArray index {index}.  Furthermore, the element shape is \
                         not fully defined: {}.  It is possible you are working with a resizeable TensorArray and \
                         stop_gradients is not allowing the gradients to be written.  If you set the full element_shape \
                         property on the forward TensorArray, the proper all-zeros tensor will be returned instead of \
                         incurring this error.",
                        self.name, state.element_shape
                    ))
                })?,
            };
            let zeros = Element { shape, written: true, ..Element::default() };
            if place >= size {
                state.charge.resize((place + 1) * size_of::<Element>())?;
                state.elements.resize(place + 1, zeros);
            } else {
                state.elements[place] = zeros;
            }
        }
        let element = &mut state.elements[place];
        if element.cleared {
            return Err(Status::invalid_argument(format!(
                "TensorArray {}: Could not read index {index} twice because it was cleared after a previous read (perhaps \
                 try setting clear_after_read = false?).",
                self.name
            )));
        }
        element.read = true;
        element.cleared = self.clear_after_read;
        let kept = if self.clear_after_read { element.tensor.take() } else { element.tensor.clone() };
        match kept {
            Some(tensor) => Ok(tensor),
            None => Tensor::zeros(self.dtype, element.shape.clone()),
        }
    }

    fn lock(&self) -> Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.closed {
            return Err(Status::invalid_argument(format!("TensorArray {} has already been closed.", self.name)));
        }
        Ok(state)
    }
}

impl Resource for TensorArray {
    fn type_name(&self) -> &'static str {
        "N10tensorflow11TensorArrayE"
    }

    fn describe(&self) -> String {
        format!("tensor array of {}", self.dtype)
    }
}
