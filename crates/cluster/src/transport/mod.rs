//! How tasks in different processes reach each other: [`grpc`] speaks TensorFlow's protocol, [`stream`] is the faster way between
//! tasks of ours, and [`worker_cache`] finds the worker of a task, wherever it is.

pub(crate) mod grpc;
pub(crate) mod stream;
pub(crate) mod worker_cache;
