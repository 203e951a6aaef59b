//! [`Position`]: the position of an iterator, in the form in which a checkpoint stores it.
//!
//! A position holds the state of its iterator, in the order in which the iterator writes it, and the positions of inner
//! iterators. It names the dataset, so that a position of another pipeline is refused.

use super::base::{Dataset, DatasetIterator, Element, Nesting};
use bytes::Bytes;
use kernel::Step;
use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use tensor::{Code, DType, Result, Shape, Status, Tensor, Variant, VariantValue, tensor_from_proto, tensor_to_proto};

/// A future of a position.
pub(super) type Saving<'a> = Pin<Box<dyn Future<Output = Result<Position>> + Send + 'a>>;

/// Completes when an iterator has moved to a position.
pub(super) type Restoring<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// The name of TensorFlow's positions in variants.
const TYPE_NAME: &str = "tensorflow::Iterator";

/// The most nested positions: iterators may be 256 deep, and some hold two levels each.
const DEPTH_MAX: usize = 1024;

/// The position of an iterator.
#[derive(Debug, Default)]
pub(super) struct Position {
    owner: String,
    values: Vec<Tensor>,
    inner: Vec<Position>,
}

impl Position {
    /// Starts the position of an iterator.
    pub(super) fn of<T: ?Sized>() -> Position {
        Position { owner: owner::<T>(), values: Vec::new(), inner: Vec::new() }
    }

    pub(super) fn number(mut self, number: i64) -> Position {
        self.values.push(Tensor::scalar(number));
        self
    }

    pub(super) fn size(self, size: usize) -> Position {
        self.number(size as i64)
    }

    pub(super) fn flag(self, flag: bool) -> Position {
        self.number(i64::from(flag))
    }

    pub(super) fn bytes(mut self, bytes: impl Into<Bytes>) -> Position {
        self.values.push(Tensor::string(bytes.into()));
        self
    }

    pub(super) fn element(self, element: &Element) -> Position {
        let mut position = self.size(element.len());
        position.values.extend(element.iter().cloned());
        position
    }

    pub(super) fn elements<'a>(self, elements: impl ExactSizeIterator<Item = &'a Element>) -> Position {
        let position = self.size(elements.len());
        elements.fold(position, Position::element)
    }

    /// Adds an element, its end, or the error in its place.
    pub(super) fn result(self, result: &Result<Option<Element>>) -> Position {
        match result {
            Ok(Some(element)) => self.number(0).element(element),
            Ok(None) => self.number(-1),
            Err(status) => self.number(status.code() as i64).bytes(status.message().to_owned()),
        }
    }

    /// Adds the position of an inner iterator.
    pub(super) async fn within(mut self, iterator: &mut dyn DatasetIterator, step: &Arc<Step>) -> Result<Position> {
        self.inner.push(iterator.save(step).await?);
        Ok(self)
    }

    /// Adds the position of an inner iterator, if there is one.
    pub(super) async fn within_maybe(
        self,
        iterator: &mut Option<Box<dyn DatasetIterator>>,
        step: &Arc<Step>,
    ) -> Result<Position> {
        match iterator {
            Some(iterator) => self.flag(true).within(&mut **iterator, step).await,
            None => Ok(self.flag(false)),
        }
    }

    /// Adds a position as it is.
    #[cfg(test)]
    fn part(mut self, position: Position) -> Position {
        self.inner.push(position);
        self
    }

    /// Parses what an iterator has written.
    pub(super) fn read<T: ?Sized>(&self) -> Result<PositionReader<'_>> {
        let expected = owner::<T>();
        if self.owner != expected {
            return Err(Status::failed_precondition(format!(
                "the saved position is that of a {}, but the iterator now goes over a {expected}: restore it with the pipeline \
                 that it was saved with",
                self.owner
            )));
        }
        Ok(PositionReader { position: self, values: self.values.iter(), inner: self.inner.iter() })
    }

    fn collect<'a>(&'a self, structure: &mut String, tensors: &mut Vec<&'a Tensor>) {
        structure.push_str(&format!("{} {} {}\n", self.owner, self.values.len(), self.inner.len()));
        tensors.extend(&self.values);
        for inner in &self.inner {
            inner.collect(structure, tensors);
        }
    }

    fn rebuild<'a>(
        lines: &mut impl Iterator<Item = &'a str>,
        tensors: &mut impl Iterator<Item = Tensor>,
        depth: usize,
    ) -> Option<Position> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut words = lines.next()?.split(' ');
        let owner = words.next()?.to_owned();
        let (num_values, num_inner): (usize, usize) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let mut position = Position { owner, values: Vec::new(), inner: Vec::new() };
        for _ in 0..num_values {
            position.values.push(tensors.next()?);
        }
        for _ in 0..num_inner {
            position.inner.push(Position::rebuild(lines, tensors, depth + 1)?);
        }
        Some(position)
    }

    /// Returns the position as a tensor to save.
    pub(super) fn into_tensor(self) -> Result<Tensor> {
        let state = Variant::new(IteratorState(Arc::new(self)));
        Tensor::from_variants(Shape::vector(1), vec![state])
    }

    /// Returns the position in a tensor.
    pub(super) fn from_tensor(tensor: &Tensor) -> Result<Arc<Position>> {
        let [state] = tensor.variants()? else {
            return Err(Status::invalid_argument("the state of an iterator is a vector of one variant"));
        };
        if let Some(state) = state.downcast_ref::<IteratorState>() {
            return Ok(state.0.clone());
        }
        let not_ours = || {
            Status::invalid_argument(
                "the input is not the state of an iterator that was saved here; states that TensorFlow saved can't be restored",
            )
        };
        let Variant::Encoded(encoded) = state else { return Err(not_ours()) };
        if encoded.type_name != TYPE_NAME {
            return Err(not_ours());
        }
        let structure = std::str::from_utf8(&encoded.metadata).map_err(|_| not_ours())?;
        let tensors = encoded.tensors.iter().map(tensor_from_proto).collect::<Result<Vec<_>>>()?;
        let rebuilt = Position::rebuild(&mut structure.lines(), &mut tensors.into_iter(), 0);
        rebuilt.map(Arc::new).ok_or_else(not_ours)
    }
}

/// Returns the name of the iterator's dataset.
pub(super) fn owner<T: ?Sized>() -> String {
    let name = std::any::type_name::<T>();
    let name = name.split('<').next().unwrap_or(name);
    let name = name.rsplit("::").next().unwrap_or(name);
    let name = name.strip_suffix("Iterator").unwrap_or(name);
    format!("{}Dataset", name.strip_suffix("Dataset").unwrap_or(name))
}

/// Reads a position in the order in which it was written.
pub(super) struct PositionReader<'a> {
    position: &'a Position,
    values: std::slice::Iter<'a, Tensor>,
    inner: std::slice::Iter<'a, Position>,
}

impl<'a> PositionReader<'a> {
    fn damaged(&self) -> Status {
        Status::data_loss(format!("the saved position of a {} is damaged", self.position.owner))
    }

    fn value(&mut self) -> Result<&'a Tensor> {
        self.values.next().ok_or_else(|| self.damaged())
    }

    pub(super) fn number(&mut self) -> Result<i64> {
        let value = self.value()?;
        match value.dtype() {
            DType::Int64 if value.num_elements() == 1 => value.to_scalar(),
            _ => Err(self.damaged()),
        }
    }

    pub(super) fn size(&mut self) -> Result<usize> {
        let number = self.number()?;
        usize::try_from(number).map_err(|_| self.damaged())
    }

    pub(super) fn flag(&mut self) -> Result<bool> {
        Ok(self.number()? != 0)
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes> {
        match self.value()?.strings() {
            Ok([bytes]) => Ok(bytes.clone()),
            _ => Err(self.damaged()),
        }
    }

    pub(super) fn element(&mut self) -> Result<Element> {
        let count = self.size()?;
        (0..count).map(|_| self.value().cloned()).collect()
    }

    pub(super) fn elements(&mut self) -> Result<Vec<Element>> {
        let count = self.size()?;
        (0..count).map(|_| self.element()).collect()
    }

    pub(super) fn result(&mut self) -> Result<Result<Option<Element>>> {
        Ok(match self.number()? {
            0 => Ok(Some(self.element()?)),
            -1 => Ok(None),
            code => {
                let message = self.bytes()?;
                let code = i32::try_from(code).map_or(Code::Unknown, Code::from_i32);
                Err(Status::new(code, String::from_utf8_lossy(&message).into_owned()))
            }
        })
    }

    /// Returns the position of the next inner iterator.
    pub(super) fn part(&mut self) -> Result<&'a Position> {
        self.inner.next().ok_or_else(|| self.damaged())
    }

    /// Moves an iterator, which must be at its start, to its saved position.
    pub(super) async fn within(&mut self, iterator: &mut dyn DatasetIterator, step: &Arc<Step>) -> Result<()> {
        iterator.restore(self.part()?, step).await
    }

    /// Creates an iterator at a saved position, if there was one.
    pub(super) async fn within_maybe(
        &mut self,
        dataset: &dyn Dataset,
        nesting: &Nesting,
        step: &Arc<Step>,
    ) -> Result<Option<Box<dyn DatasetIterator>>> {
        if !self.flag()? {
            return Ok(None);
        }
        let mut iterator = dataset.iterator(nesting.deeper()?)?;
        self.within(&mut *iterator, step).await?;
        Ok(Some(iterator))
    }

    /// Moves an iterator to its saved position, or drops it if it had ended.
    pub(super) async fn within_or_ended(
        &mut self,
        iterator: &mut Option<Box<dyn DatasetIterator>>,
        step: &Arc<Step>,
    ) -> Result<()> {
        if !self.flag()? {
            *iterator = None;
            return Ok(());
        }
        let part = self.part()?;
        match iterator {
            Some(iterator) => iterator.restore(part, step).await,
            None => Err(self.damaged()),
        }
    }
}

/// A position in a variant tensor.
struct IteratorState(Arc<Position>);

impl VariantValue for IteratorState {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn encode(&self) -> Result<proto::VariantTensorDataProto> {
        let (mut structure, mut tensors) = (String::new(), Vec::new());
        self.0.collect(&mut structure, &mut tensors);
        Ok(proto::VariantTensorDataProto {
            type_name: TYPE_NAME.to_owned(),
            metadata: structure.into_bytes().into(),
            tensors: tensors.into_iter().map(tensor_to_proto).collect::<Result<_>>()?,
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct SomeIterator;
    struct OtherDataset;

    #[test]
    fn a_position_reads_as_it_was_written_also_after_a_journey() {
        let inner = Position::of::<OtherDataset>().bytes("x").result(&Err(Status::aborted("no"))).result(&Ok(None));
        let element = vec![Tensor::scalar(1.5f32), Tensor::vector(&[1i32, 2])];
        let position = Position::of::<SomeIterator>().number(-3).elements([&element, &vec![]].into_iter()).part(inner);
        let tensor = position.into_tensor().unwrap();
        let journey = tensor_from_proto(&tensor_to_proto(&tensor).unwrap()).unwrap();
        for tensor in [tensor, journey] {
            let position = Position::from_tensor(&tensor).unwrap();
            let mut reader = position.read::<SomeIterator>().unwrap();
            assert_eq!(reader.number().unwrap(), -3);
            let elements = reader.elements().unwrap();
            assert_eq!(elements[0][0].to_scalar::<f32>().unwrap(), 1.5);
            assert!(elements[1].is_empty());
            assert_eq!(reader.number().unwrap_err().code(), Code::DataLoss);
            let mut reader = reader.part().unwrap().read::<OtherDataset>().unwrap();
            assert_eq!(reader.bytes().unwrap(), "x");
            assert_eq!(reader.result().unwrap().unwrap_err().code(), Code::Aborted);
            assert!(reader.result().unwrap().unwrap().is_none());
            assert_eq!(position.read::<OtherDataset>().err().unwrap().code(), Code::FailedPrecondition);
        }
    }

    #[test]
    fn what_is_no_position_is_refused() {
        for metadata in ["", "a", "a 1 0", "a 0 1", "a 99999999999999999999 0", "a 0 3\nb 0 0\nb 0 0"] {
            let encoded = proto::VariantTensorDataProto {
                type_name: TYPE_NAME.to_owned(),
                metadata: metadata.as_bytes().to_vec().into(),
                tensors: Vec::new(),
            };
            let tensor = Tensor::variant(Variant::Encoded(Arc::new(encoded)));
            assert_eq!(Position::from_tensor(&tensor).unwrap_err().code(), Code::InvalidArgument, "{metadata}");
        }
    }
}
