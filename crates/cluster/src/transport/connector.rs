//! [`GrpcConnector`]: creates the workers of tasks in other processes, which use gRPC and, if both ends support it, a stream.

use super::grpc::{Channel, RemoteWorker, Secured, WeakChannel, confirm_stream};
use super::stream::{ConfirmStreamRequest, ConfirmStreamResponse, StreamHub};
use super::streamed_worker::StreamedWorker;
use super::worker_cache::Connector;
use crate::PeerTimes;
use crate::interface::{Answer, WorkerInterface};
use crate::random::RandomIds;
use crate::tls::Tls;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use tensor::Result;

/// Connects over gRPC. All sessions of a server share one connection to each peer, which closes with the last of them.
pub(crate) struct GrpcConnector {
    runtime: tokio::runtime::Handle,
    ids: Arc<RandomIds>,
    times: PeerTimes,
    tls: Option<Arc<Tls>>,
    channels: Mutex<Channels>,
}

/// The channels in use, by the names and addresses of their peers.
#[derive(Default)]
struct Channels {
    known: HashMap<(String, String), WeakChannel>,
    /// The number of entries at which the unused ones are swept.
    sweep_at: usize,
}

/// The fewest entries that are worth a sweep.
const SWEEP_MIN: usize = 16;

impl GrpcConnector {
    /// Returns a connector without connections.
    pub fn new(
        runtime: tokio::runtime::Handle,
        ids: Arc<RandomIds>,
        times: PeerTimes,
        tls: Option<Arc<Tls>>,
    ) -> GrpcConnector {
        GrpcConnector { runtime, ids, times, tls, channels: Mutex::default() }
    }
}

impl Connector for GrpcConnector {
    fn connect(&self, task: &str, address: &str, streams: Option<&Arc<StreamHub>>) -> Result<Arc<dyn WorkerInterface>> {
        let channel = self.channel(task, address)?;
        let worker = Arc::new(RemoteWorker::new(channel, self.ids.clone()));
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
        match self.channel(task, address) {
            Ok(channel) => confirm_stream(&channel, request),
            Err(status) => Box::pin(std::future::ready(Err(status))),
        }
    }
}

impl GrpcConnector {
    /// Returns the channel to a task, which all its users share.
    fn channel(&self, task: &str, address: &str) -> Result<Channel> {
        let mut channels = self.channels.lock();
        let key = (task.to_owned(), address.to_owned());
        let channel = match channels.known.get(&key).and_then(WeakChannel::upgrade) {
            Some(channel) => channel,
            None => {
                let secured = self.tls.clone().map(|tls| Secured { tls, task: Some(task.to_owned()) });
                let channel = Channel::new(task, address, self.runtime.clone(), self.times, secured)?;
                channels.insert(key, channel.downgrade());
                channel
            }
        };
        Ok(channel)
    }
}

impl Channels {
    fn insert(&mut self, key: (String, String), channel: WeakChannel) {
        if self.known.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.known.retain(|_, channel| channel.is_used());
            // Twice the number in use, so that the sweep's cost per insertion is small.
            self.sweep_at = 2 * self.known.len();
        }
        self.known.insert(key, channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_channel_ends_with_its_last_user() {
        let runtime = tokio::runtime::Handle::current();
        let connector = GrpcConnector::new(runtime, Arc::new(RandomIds::with_seed(1)), PeerTimes::default(), None);
        let kept = connector.connect("/job:ps/replica:0/task:0", "127.0.0.1:1", None).unwrap();
        for index in 0..1000 {
            connector.connect(&format!("/job:j{index}/replica:0/task:0"), "127.0.0.1:1", None).unwrap();
        }
        let channels = connector.channels.lock();
        assert_eq!(channels.known.values().filter(|channel| channel.is_used()).count(), 1);
        assert!(channels.known.len() <= SWEEP_MIN + 1, "{} names are kept for nobody", channels.known.len());
        drop(kept);
    }
}
