//! [`ResourceHandle`]: the name of a variable, queue or table that lives on a device.

use crate::{DType, PartialShape, Result};
use proto::ResourceHandleProto;
use std::any::Any;
use std::sync::Arc;

/// The type and shape of a resource's values.
#[derive(Clone, Debug, PartialEq)]
pub struct DTypeAndShape {
    /// The type of the elements.
    pub dtype: DType,
    /// What is known of the shape.
    pub shape: PartialShape,
}

/// Names a resource by device, container and name.
///
/// On the task that owns it, the handle may carry the resource itself, so that no lookup is needed.
#[derive(Clone)]
pub struct ResourceHandle {
    /// The device the resource lives on.
    pub device: String,
    /// The container it belongs to.
    pub container: String,
    /// Its name in the container.
    pub name: String,
    /// A number that stands for the resource's type.
    pub hash_code: u64,
    /// The resource's type, for messages.
    pub maybe_type_name: String,
    /// What its values look like, where known.
    pub dtypes_and_shapes: Vec<DTypeAndShape>,
    /// The resource itself, when it lives in this process and the handle never left it.
    pub resource: Option<Arc<dyn Any + Send + Sync>>,
}

impl ResourceHandle {
    /// Returns the handle on the wire.
    pub fn to_proto(&self) -> ResourceHandleProto {
        ResourceHandleProto {
            device: self.device.clone(),
            container: self.container.clone(),
            name: self.name.clone(),
            hash_code: self.hash_code,
            maybe_type_name: self.maybe_type_name.clone(),
            dtypes_and_shapes: self
                .dtypes_and_shapes
                .iter()
                .map(|entry| proto::resource_handle_proto::DtypeAndShape {
                    dtype: entry.dtype as i32,
                    shape: Some(entry.shape.to_proto()),
                })
                .collect(),
        }
    }

    /// Reads a handle from the wire.
    pub fn from_proto(proto: &ResourceHandleProto) -> Result<ResourceHandle> {
        let mut dtypes_and_shapes = Vec::with_capacity(proto.dtypes_and_shapes.len());
        for entry in &proto.dtypes_and_shapes {
            dtypes_and_shapes.push(DTypeAndShape {
                dtype: DType::from_i32(entry.dtype)?,
                shape: match &entry.shape {
                    Some(shape) => PartialShape::from_proto(shape)?,
                    None => PartialShape::scalar(),
                },
            });
        }
        Ok(ResourceHandle {
            device: proto.device.clone(),
            container: proto.container.clone(),
            name: proto.name.clone(),
            hash_code: proto.hash_code,
            maybe_type_name: proto.maybe_type_name.clone(),
            dtypes_and_shapes,
            resource: None,
        })
    }
}

impl PartialEq for ResourceHandle {
    fn eq(&self, other: &Self) -> bool {
        self.device == other.device
            && self.container == other.container
            && self.name == other.name
            && self.hash_code == other.hash_code
    }
}

impl std::fmt::Debug for ResourceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{} on {}", self.maybe_type_name, self.container, self.name, self.device)
    }
}
