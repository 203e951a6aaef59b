//! [`SimulatedTask`]: one task of a cluster whose spawner, random numbers and network come from a simulation. Its master, worker,
//! sessions, rendezvous and streams are the real ones.

use crate::ServerConfig;
use crate::interface::{Answer, MasterInterface, WorkerInterface};
use crate::master::WeakMaster;
use crate::random::RandomIds;
use crate::server::TaskServices;
use crate::spawner::Spawner;
use crate::transport::stream::{ConfirmStreamRequest, ConfirmStreamResponse, Dialer, GivenStream, Socket, StreamHub};
use crate::transport::{Connector, StreamedWorker};
use crate::worker::{TracingLogger, Worker};
use kernel::OpRegistry;
use std::sync::{Arc, Weak};
use tensor::{Result, Status};

/// A task's network.
pub trait Network: Send + Sync {
    /// Returns the worker of a task at an address. Nothing needs to be connected yet.
    fn worker(&self, task: &str, address: &str) -> Result<Arc<dyn WorkerInterface>>;

    /// Asks a task whether it is opening a stream with a secret to the task with this incarnation;
    /// [`SimulatedTask::confirm_stream`] answers.
    fn confirm_stream(&self, task: &str, address: &str, secret: String, receiver: u64) -> Answer<Vec<u64>>;
}

/// One task of a cluster in a simulation. When the last clone is dropped it ends at once, like a killed process.
#[derive(Clone)]
pub struct SimulatedTask {
    services: Arc<TaskServices>,
    spawner: Spawner,
}

/// The state that a task holds for steps and sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// The steps that have a rendezvous.
    pub steps: usize,
    /// The requests that wait for tensors.
    pub waiting_requests: usize,
    /// The partial runs of its worker.
    pub partial_steps: usize,
    /// The sessions that masters have open at its worker.
    pub worker_sessions: usize,
    /// The sessions that clients have open at its master.
    pub sessions: usize,
}

/// Detects whether anything of a task is left in memory.
pub struct Trace {
    worker: Weak<Worker>,
    master: WeakMaster,
    streams: Option<Weak<StreamHub>>,
}

impl Trace {
    /// Returns the parts of the task that are still referenced.
    pub fn held(&self) -> Vec<&'static str> {
        let parts = [
            ("its worker", self.worker.strong_count() > 0),
            ("its master", self.master.is_held()),
            ("its streams", self.streams.as_ref().is_some_and(|streams| streams.strong_count() > 0)),
        ];
        parts.into_iter().filter_map(|(part, is_held)| is_held.then_some(part)).collect()
    }
}

/// Makes the workers of other tasks over a given network.
struct GivenConnector(Arc<dyn Network>);

impl Connector for GivenConnector {
    fn connect(&self, task: &str, address: &str, streams: Option<&Arc<StreamHub>>) -> Result<Arc<dyn WorkerInterface>> {
        let worker = self.0.worker(task, address)?;
        Ok(match streams {
            Some(streams) => Arc::new(StreamedWorker::new(worker, task, address, streams)),
            None => worker,
        })
    }

    fn is_in_process(&self) -> bool {
        false
    }

    fn confirm_stream(
        &self,
        task: &str,
        address: &str,
        request: ConfirmStreamRequest,
    ) -> Answer<ConfirmStreamResponse> {
        let answer = self.0.confirm_stream(task, address, request.secret, request.receiver);
        Box::pin(async move { answer.await.map(|incarnations| ConfirmStreamResponse { incarnations }) })
    }
}

impl SimulatedTask {
    /// Starts a task. It uses streams if a dialer is given.
    pub fn start(
        config: &ServerConfig,
        registry: &'static OpRegistry,
        spawner: &Spawner,
        ids: Arc<RandomIds>,
        network: Arc<dyn Network>,
        streams: Option<Arc<dyn Dialer>>,
    ) -> Result<SimulatedTask> {
        let connector = Arc::new(GivenConnector(network));
        let (cluster, logger) = (config.cluster.clone(), Arc::new(TracingLogger));
        let streams = streams.map(|dialer| (config.transport, Some(dialer)));
        let services = TaskServices::new(config, cluster, registry, spawner, &ids, connector, streams, logger, None)?;
        Ok(SimulatedTask { services: Arc::new(services), spawner: spawner.clone() })
    }

    /// Returns the master.
    pub fn master(&self) -> Arc<dyn MasterInterface> {
        Arc::new(self.services.master.clone())
    }

    /// Returns the worker.
    pub fn worker(&self) -> Arc<dyn WorkerInterface> {
        self.services.worker.clone()
    }

    /// Confirms that this task opens a stream, and returns the incarnations of its devices.
    pub fn confirm_stream(&self, secret: String, receiver: u64) -> Result<Vec<u64>> {
        let none = || Status::permission_denied("this task opens no streams");
        let streams = self.services.streams.as_ref().ok_or_else(none)?;
        streams.confirm(&ConfirmStreamRequest { secret, receiver }).map(|confirmed| confirmed.incarnations)
    }

    /// Takes a stream that another task has opened.
    pub fn accept(&self, stream: Box<dyn GivenStream>) {
        if let Some(streams) = &self.services.streams {
            let accepting = streams.clone().accept(Socket::given(stream));
            drop(self.spawner.spawn(accepting));
        }
    }

    /// Returns the state that the task holds for steps and sessions.
    pub fn remains(&self) -> Remains {
        let worker = self.services.worker.survey();
        Remains {
            steps: worker.num_steps,
            waiting_requests: worker.num_waiting_requests,
            partial_steps: self.services.worker.num_partial_steps(),
            worker_sessions: worker.num_sessions,
            sessions: self.services.master.num_sessions(),
        }
    }

    /// Returns a detector of what is left of the task after its end.
    pub fn trace(&self) -> Trace {
        Trace {
            worker: Arc::downgrade(&self.services.worker),
            master: self.services.master.downgrade(),
            streams: self.services.streams.as_ref().map(Arc::downgrade),
        }
    }
}
