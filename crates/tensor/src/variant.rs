//! [`Variant`]: an element of a `DT_VARIANT` tensor, which may be any value that knows how to travel.

use crate::Result;
use proto::VariantTensorDataProto;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

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
    Value(Arc<dyn VariantValue>),
    /// A value that arrived over the wire, and that nobody has looked at yet.
    Encoded(Arc<VariantTensorDataProto>),
}

impl Variant {
    /// Wraps a value.
    pub fn new(value: impl VariantValue) -> Variant {
        Variant::Value(Arc::new(value))
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

    /// Returns the value on the wire.
    pub fn encode(&self) -> Result<VariantTensorDataProto> {
        match self {
            Variant::Empty => Ok(VariantTensorDataProto::default()),
            Variant::Value(value) => value.encode(),
            Variant::Encoded(proto) => Ok((**proto).clone()),
        }
    }
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Variant({})", self.type_name())
    }
}
