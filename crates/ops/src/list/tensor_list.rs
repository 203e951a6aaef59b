//! [`TensorList`]: the value of a list, an element of a variant tensor.

use prost::Message;
use proto::{TensorShapeProto, VariantTensorDataProto};
use std::any::Any;
use std::sync::Arc;
use tensor::{
    Charge, DType, PartialShape, Result, Shape, Status, Tensor, Variant, VariantValue, tensor_from_proto,
    tensor_to_proto,
};

const TYPE_NAME: &str = "tensorflow::TensorList";

/// The longest list.
pub(super) const MAX_ELEMENTS: usize = 1 << 28;

/// A list of tensors of one type.
#[derive(Clone)]
pub(super) struct TensorList {
    pub dtype: DType,
    /// The shape that every element must be compatible with.
    pub element_shape: PartialShape,
    /// The most elements; a negative number means no limit.
    pub max_num_elements: i64,
    /// Elements that were never set are `None`, and read as zeros.
    pub elements: Vec<Option<Tensor>>,
    /// The charge for the list itself; its elements are charged separately.
    pub charge: Charge,
}

/// Shared by all copies of the list, so that a sole owner may change it in place.
struct ListVariant(Arc<TensorList>);

/// Returns TensorFlow's description of a variant that isn't a list.
fn described(variant: &Variant) -> String {
    match variant {
        Variant::Empty => "Variant<type: int value: 0>".to_owned(),
        other => other.type_name().to_owned(),
    }
}

/// Refuses more elements than there can be memory for.
pub(super) fn check_count(count: usize) -> Result<()> {
    tensor::check_elements_fit(count, size_of::<Option<Tensor>>())
}

impl TensorList {
    pub(super) fn new(dtype: DType, element_shape: PartialShape, elements: Vec<Option<Tensor>>) -> TensorList {
        TensorList { dtype, element_shape, max_num_elements: -1, elements, charge: Charge::default() }
    }

    /// Returns a list of elements that were never set.
    pub(super) fn reserved(dtype: DType, element_shape: PartialShape, count: i64) -> Result<TensorList> {
        let count = usize::try_from(count).ok().filter(|&count| count <= MAX_ELEMENTS).ok_or_else(|| {
            Status::invalid_argument(format!(
                "The num_elements to reserve must be a non negative number, but got {count}"
            ))
        })?;
        check_count(count)?;
        Ok(TensorList::new(dtype, element_shape, vec![None; count]))
    }

    pub(super) fn into_tensor(self) -> Tensor {
        Tensor::variant(self.into_variant())
    }

    pub(super) fn into_variant(mut self) -> Variant {
        self.charge.set(size_of::<TensorList>() + self.elements.len() * size_of::<Option<Tensor>>());
        Variant::new(ListVariant(Arc::new(self)))
    }

    /// Returns the list in a scalar, for reading.
    pub(super) fn of(tensor: &Tensor) -> Result<Arc<TensorList>> {
        if !tensor.shape().is_scalar() {
            return Err(Status::invalid_argument(format!("Input list must be a scalar saw: {}", tensor.shape())));
        }
        let variant = tensor.variants()?.first().ok_or_else(|| Status::internal("a scalar without an element"))?;
        TensorList::of_variant(variant)
    }

    pub(super) fn of_variant(variant: &Variant) -> Result<Arc<TensorList>> {
        match variant {
            Variant::Encoded(encoded) if encoded.type_name == TYPE_NAME => Ok(Arc::new(decoded(encoded)?)),
            other => match other.downcast_ref::<ListVariant>() {
                Some(list) => Ok(list.0.clone()),
                None => {
                    Err(Status::invalid_argument(format!("Input handle is not a list. Saw: '{}'", described(other))))
                }
            },
        }
    }

    /// Takes the list in a scalar, for writing; it is copied only if it is shared.
    pub(super) fn take(mut tensor: Tensor) -> Result<TensorList> {
        let shared = TensorList::of(&tensor)?;
        if tensor.is_unique() {
            tensor.variants_mut()?.clear();
        }
        drop(tensor);
        Ok(Arc::try_unwrap(shared).unwrap_or_else(|shared| (*shared).clone()))
    }

    pub(super) fn check_dtype(&self, dtype: DType) -> Result<()> {
        if self.dtype == dtype {
            return Ok(());
        }
        Err(Status::invalid_argument(format!(
            "Invalid data types; op elements {dtype} but list elements {}",
            self.dtype
        )))
    }

    /// Returns the merged element shape of the list and a requested shape.
    pub(super) fn declared_shape(&self, wanted: &PartialShape) -> Result<PartialShape> {
        merged(wanted, &self.element_shape)
    }

    /// Returns the element shape, merged with those of the elements that are set.
    pub(super) fn merged_shape(
        &self,
        wanted: &PartialShape,
        indices: impl IntoIterator<Item = usize>,
    ) -> Result<PartialShape> {
        let mut shape = self.declared_shape(wanted)?;
        if !self.element_shape.is_fully_defined() {
            for index in indices {
                if let Some(Some(element)) = self.elements.get(index) {
                    shape = merged(&shape, &PartialShape::from(element.shape()))?;
                }
            }
        }
        Ok(shape)
    }

    /// Returns an element; `shape` is its shape if it was never set.
    pub(super) fn element_or_zeros(&self, index: usize, shape: &Shape) -> Result<Tensor> {
        match self.elements.get(index).and_then(Option::as_ref) {
            Some(element) => Ok(element.clone()),
            None => Tensor::zeros(self.dtype, shape.clone()),
        }
    }

    pub(super) fn check_element(&self, element: &Tensor) -> Result<()> {
        if self.element_shape.is_compatible_with(element.shape()) {
            return Ok(());
        }
        Err(Status::invalid_argument(format!(
            "Tried to set a tensor with incompatible shape at a list index. Item element shape: {} list shape: {}",
            element.shape(),
            self.element_shape
        )))
    }
}

/// Returns the merged information of two shapes, or TensorFlow's error if they are incompatible.
pub(super) fn merged(a: &PartialShape, b: &PartialShape) -> Result<PartialShape> {
    a.merge(b).map_err(|_| {
        Status::invalid_argument(match (a.rank(), b.rank()) {
            (Some(one), Some(other)) if one != other => {
                format!("PartialTensorShape: Incompatible ranks during merge: {one} vs. {other}")
            }
            _ => format!("PartialTensorShape: Incompatible shapes during merge: {a} vs. {b}"),
        })
    })
}

impl VariantValue for ListVariant {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn encode(&self) -> Result<VariantTensorDataProto> {
        let list = &*self.0;
        let unset: Vec<u64> = (0..list.elements.len())
            .filter(|&index| list.elements[index].is_none())
            .map(|index| index as u64)
            .collect();
        let mut metadata = Vec::new();
        for number in [unset.len() as u64].into_iter().chain(unset) {
            prost::encoding::encode_varint(number, &mut metadata);
        }
        prost::encoding::encode_varint(list.dtype as u64, &mut metadata);
        prost::encoding::encode_varint(list.max_num_elements as u64, &mut metadata);
        metadata.extend(list.element_shape.to_proto().encode_to_vec());
        let tensors = list.elements.iter().flatten().map(tensor_to_proto).collect::<Result<_>>()?;
        Ok(VariantTensorDataProto { type_name: TYPE_NAME.to_owned(), metadata: metadata.into(), tensors })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn decoded(encoded: &VariantTensorDataProto) -> Result<TensorList> {
    let malformed = || Status::invalid_argument("a malformed TensorList");
    let mut metadata = &encoded.metadata[..];
    let mut number = || prost::encoding::decode_varint(&mut metadata).map_err(|_| malformed());
    let count = number()?;
    if count > MAX_ELEMENTS as u64 {
        return Err(malformed());
    }
    check_count(count as usize)?;
    let mut unset = Vec::new();
    for _ in 0..count {
        unset.push(number()?);
    }
    let dtype = DType::from_i32(i32::try_from(number()?).map_err(|_| malformed())?)?;
    let max_num_elements = number()? as i64;
    let shape = TensorShapeProto::decode(metadata).map_err(|_| malformed())?;
    let mut elements = Vec::new();
    let (mut unset, mut tensors) = (unset.into_iter().peekable(), encoded.tensors.iter());
    loop {
        if unset.next_if_eq(&(elements.len() as u64)).is_some() {
            elements.push(None);
        } else if let Some(tensor) = tensors.next() {
            elements.push(Some(tensor_from_proto(tensor)?));
        } else {
            break;
        }
    }
    if unset.next().is_some() {
        return Err(malformed());
    }
    Ok(TensorList {
        dtype,
        element_shape: PartialShape::from_proto(&shape)?,
        max_num_elements,
        elements,
        charge: Charge::default(),
    })
}
