//! Communication between tasks in different processes: [`grpc`] implements TensorFlow's protocol, [`stream`] is the faster
//! transport between Ferroflow tasks, [`streamed_worker`] chooses between the two, [`worker_cache`] finds the worker of a task,
//! and [`task_rendezvous`] transfers the tensors of steps.
//!
//! This module uses this task's worker only through the traits `Recipient`, `Transfers` and `PeerLink` of `worker`.

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
