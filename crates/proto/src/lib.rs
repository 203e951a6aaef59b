//! The messages that TensorFlow's tasks, clients and files exchange, generated from `proto/*.proto` (`tests/generated.rs`).
//!
//! Names, field numbers and types are those on the wire. The messages of package `tensorflow` are at the root of this crate
//! (`proto::TensorProto`, `proto::attr_value::Value`); the packages below it are modules (`proto::error::Code`,
//! `proto::data::Options`). Maps are ordered, and `bytes` fields are [`bytes::Bytes`]: a message that is decoded from `Bytes`
//! shares them with the received buffer.
//!
//! The only logic here is the [`text`] form of messages and the [`size`] of decoded messages. There is no service code, but
//! [`service`] has the paths of the calls.

pub mod service;
pub mod size;
pub mod text;

pub use generated::core::platform as core_platform;
pub use generated::{google, tensorflow};
pub use prost::{self, Message};
pub use tensorflow::*;

/// The serialized `FileDescriptorSet` of all messages in this crate, imports included.
pub const DESCRIPTORS: &[u8] = include_bytes!("../generated/descriptors.bin");

/// The generated code refers to other packages by relative paths, so its modules nest as the packages do.
#[allow(clippy::all, missing_docs, rustdoc::all)]
mod generated {
    /// Package `tensorflow` and those below it.
    pub mod tensorflow {
        include!("../generated/tensorflow.rs");

        /// Package `tensorflow.error`.
        pub mod error {
            include!("../generated/tensorflow.error.rs");
        }

        /// Package `tensorflow.distributed_runtime`.
        pub mod distributed_runtime {
            include!("../generated/tensorflow.distributed_runtime.rs");
        }

        /// Package `tensorflow.eager`.
        pub mod eager {
            include!("../generated/tensorflow.eager.rs");
        }

        /// Package `tensorflow.data`.
        pub mod data {
            include!("../generated/tensorflow.data.rs");

            /// Package `tensorflow.data.model`.
            pub mod model {
                include!("../generated/tensorflow.data.model.rs");
            }
        }
    }

    /// Package `tensorflow.core.platform`, which refers to no other. It is not in `tensorflow`, since a module `core` at the
    /// root of the crate would hide the standard one from glob imports.
    pub mod core {
        pub mod platform {
            include!("../generated/tensorflow.core.platform.rs");
        }
    }

    /// Google's well-known types.
    pub mod google {
        /// Package `google.protobuf`.
        pub mod protobuf {
            include!("../generated/google.protobuf.rs");
        }
    }
}
