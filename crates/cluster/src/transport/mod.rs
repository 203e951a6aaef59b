//! How tasks in different processes reach each other: [`grpc`] speaks TensorFlow's protocol, [`stream`] is the faster way between
//! tasks of ours, [`streamed_worker`] chooses between the two, [`worker_cache`] finds the worker of a task, wherever it is, and [`task_rendezvous`] carries the tensors of steps.
//!
//! The worker of this task is known here by the traits `Recipient`, `Transfers` and `PeerLink` of `worker`, and never by its name.

mod connector;
pub(crate) mod grpc;
pub(crate) mod stream;
mod streamed_worker;
mod task_rendezvous;
mod tcp;
mod worker_cache;

pub(crate) use connector::GrpcConnector;
pub(crate) use streamed_worker::StreamedWorker;
pub(crate) use task_rendezvous::TaskTransfers;
pub(crate) use worker_cache::{Connector, WorkerCache};
