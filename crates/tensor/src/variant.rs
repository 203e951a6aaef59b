//! [`Variant`]: an element of a `DT_VARIANT` tensor, which may be any value that knows how to travel.

use crate::{Result, Status};
use proto::VariantTensorDataProto;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// How deeply nested values can be and still be sent: each level nests messages two deeper, and readers give up at a hundred.
const ENCODED_NESTING_MAX: usize = 40;

/// How many values that lie within each other end one inside the other; those further in wait until the stack is short again.
const NESTED_DROPS_MAX: usize = 32;

/// A value that may be an element of a `DT_VARIANT` tensor.
pub trait VariantValue: Any + Send + Sync {
    /// Returns the name under which the value travels.
    fn type_name(&self) -> &str;
    /// Returns the value on the wire, or why it can't travel.
    fn encode(&self) -> Result<VariantTensorDataProto>;
    /// Returns the value for a downcast.
    fn as_any(&self) -> &dyn Any;
}

/// An element of a `DT_VARIANT` tensor; cloning shares the value.
#[derive(Clone)]
pub enum Variant {
    /// No value.
    Empty,
    /// A value of this process.
    Value(SharedValue),
    /// A value that arrived over the wire and hasn't been decoded yet.
    Encoded(Arc<VariantTensorDataProto>),
}

impl Variant {
    /// Wraps a value.
    pub fn new(value: impl VariantValue) -> Variant {
        Variant::Value(SharedValue { value: Some(Arc::new(value)) })
    }

    /// Returns the value when it is a `T` of this process.
    pub fn downcast_ref<T: 'static>(&self) -> Option<&T> {
        match self {
            Variant::Value(value) => value.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// Returns the name under which the value travels.
    pub fn type_name(&self) -> &str {
        match self {
            Variant::Empty => "",
            Variant::Value(value) => value.type_name(),
            Variant::Encoded(proto) => &proto.type_name,
        }
    }

    /// Returns the value as it is sent. Values that are nested too deeply for a reader are refused.
    pub fn encode(&self) -> Result<VariantTensorDataProto> {
        match self {
            Variant::Empty => Ok(VariantTensorDataProto::default()),
            Variant::Value(value) => {
                let _level = EncodedLevel::enter(value.type_name())?;
                value.encode()
            }
            Variant::Encoded(proto) => Ok((**proto).clone()),
        }
    }
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Variant({})", self.type_name())
    }
}

/// A value that any number of variants hold. However deep values lie within each other, the end of the outermost takes only so
/// much of the stack.
#[derive(Clone)]
pub struct SharedValue {
    /// There until this is dropped.
    value: Option<Arc<dyn VariantValue>>,
}

impl Deref for SharedValue {
    type Target = dyn VariantValue;

    fn deref(&self) -> &(dyn VariantValue + 'static) {
        match &self.value {
            Some(value) => &**value,
            None => &Gone,
        }
    }
}

impl Drop for SharedValue {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        let mut value = Some(value);
        // A thread that ends has no such list any more, and few variants.
        let _ = ENDING.try_with(|ending| ending.end(&mut value));
    }
}

/// Takes the place of a value that is being dropped.
struct Gone;

impl VariantValue for Gone {
    fn type_name(&self) -> &str {
        ""
    }

    fn encode(&self) -> Result<VariantTensorDataProto> {
        Ok(VariantTensorDataProto::default())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

thread_local! {
    static ENDING: Ending = const { Ending { depth: Cell::new(0), waiting: RefCell::new(Vec::new()) } };
    static ENCODED_LEVELS: Cell<usize> = const { Cell::new(0) };
}

/// The values that end on a thread.
struct Ending {
    /// How many lie within each other on the stack.
    depth: Cell<usize>,
    /// Values that are too deeply nested to be dropped on the stack.
    waiting: RefCell<Vec<Arc<dyn VariantValue>>>,
}

impl Ending {
    fn end(&self, value: &mut Option<Arc<dyn VariantValue>>) {
        let depth = self.depth.get();
        if depth >= NESTED_DROPS_MAX {
            self.waiting.borrow_mut().extend(value.take());
            return;
        }
        let _level = Level::enter(&self.depth);
        *value = None;
        if depth == 0 {
            // The list is not borrowed while a value ends, since that may put more into it.
            while let Some(next) = { self.waiting.borrow_mut().pop() } {
                drop(next);
            }
        }
    }
}

/// Counts a level as long as it is there.
struct Level<'a>(&'a Cell<usize>);

impl<'a> Level<'a> {
    fn enter(levels: &'a Cell<usize>) -> Level<'a> {
        levels.set(levels.get() + 1);
        Level(levels)
    }
}

impl Drop for Level<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Counts a value that is being encoded.
struct EncodedLevel;

impl EncodedLevel {
    fn enter(type_name: &str) -> Result<EncodedLevel> {
        let levels = ENCODED_LEVELS.get();
        if levels >= ENCODED_NESTING_MAX {
            return Err(Status::invalid_argument(format!(
                "a {type_name} lies within more than {ENCODED_NESTING_MAX} other variants: it can't leave its task"
            )));
        }
        ENCODED_LEVELS.set(levels + 1);
        Ok(EncodedLevel)
    }
}

impl Drop for EncodedLevel {
    fn drop(&mut self) {
        ENCODED_LEVELS.set(ENCODED_LEVELS.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Code, Tensor, tensor_to_proto};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Holds another, and counts those that ended.
    struct Nested(Option<Tensor>, Arc<AtomicUsize>);

    impl VariantValue for Nested {
        fn type_name(&self) -> &str {
            "Nested"
        }

        fn encode(&self) -> Result<VariantTensorDataProto> {
            let tensors = self.0.iter().map(tensor_to_proto).collect::<Result<_>>()?;
            Ok(VariantTensorDataProto { type_name: "Nested".to_owned(), tensors, ..Default::default() })
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    impl Drop for Nested {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn nested(levels: usize, ended: &Arc<AtomicUsize>) -> Tensor {
        let wrap = |inner: Option<Tensor>| Tensor::variant(Variant::new(Nested(inner, ended.clone())));
        (1..levels).fold(wrap(None), |inner, _| wrap(Some(inner)))
    }

    #[test]
    fn values_end_however_deep_they_lie_within_each_other() {
        let body = || {
            let ended = Arc::new(AtomicUsize::new(0));
            drop(nested(1_000_000, &ended));
            assert_eq!(ended.load(Ordering::Relaxed), 1_000_000);
        };
        std::thread::Builder::new().stack_size(256 << 10).spawn(body).unwrap().join().unwrap();
    }

    #[test]
    fn what_lies_too_deep_can_not_travel() {
        let ended = Arc::default();
        assert!(tensor_to_proto(&nested(ENCODED_NESTING_MAX, &ended)).is_ok());
        let status = tensor_to_proto(&nested(100_000, &ended)).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        // Having been refused leaves nothing behind.
        let proto = tensor_to_proto(&nested(ENCODED_NESTING_MAX, &ended)).unwrap();
        let bytes = prost::Message::encode_to_vec(&proto);
        <proto::TensorProto as prost::Message>::decode(&bytes[..]).unwrap();
    }
}
