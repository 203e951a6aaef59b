//! [`Network`]: carries the calls between the tasks of a simulated cluster, and those of clients, as gRPC connections do.
//!
//! A call takes some time in each direction, and may overtake others. A direction that is cut holds messages back; after a while, both
//! ends notice that the connection is broken, and its calls fail. The end of a process is noticed at once if its machine keeps running,
//! and after a while otherwise. A cancelled call may have been served already, in part, or not at all.

use super::pipe::{self, Carrier, Pipe};
use super::random::Random;
use super::scheduler::{Life, OUTSIDE, Scheduler};
use cluster::{Answer, Dialer, GivenStream, MasterInterface, SimulatedTask, WorkerInterface};
use futures_util::future::BoxFuture;
use futures_util::future::{AbortHandle, Abortable};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::future::{pending, ready};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tensor::{Result, Status, Tensor};
use tokio::sync::oneshot;

/// A machine, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(pub usize);

/// The time after which both ends of a connection notice that nothing gets through.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long the other end of a new connection may take to send its first byte.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Carries calls.
pub struct Network {
    scheduler: Arc<Scheduler>,
    state: Mutex<State>,
}

struct State {
    random: Random,
    /// The machine of each life.
    hosts: BTreeMap<Life, Host>,
    endpoints: BTreeMap<String, Endpoint>,
    calls: BTreeMap<u64, Call>,
    next_call: u64,
    /// The time until which a direction is cut.
    cuts: BTreeMap<(Host, Host), Duration>,
    /// The factor by which a direction is slowed down.
    slowness: BTreeMap<(Host, Host), u64>,
    /// The connections that have answered.
    connected: BTreeSet<(Life, Life)>,
    /// The open streams.
    streams: Vec<Weak<Pipe>>,
    counts: Counts,
}

/// The statistics of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that were made.
    pub calls: u64,
    /// Calls that failed because of the network or of a process that ended.
    pub broken: u64,
    /// Calls that their callers cancelled.
    pub given_up: u64,
    /// Streams that were opened, and those of them that broke.
    pub streams: u64,
    pub broken_streams: u64,
    /// Bytes that went over streams.
    pub stream_bytes: u64,
}

/// The services at an address.
#[derive(Clone)]
pub struct Endpoint {
    /// The process.
    pub life: Life,
    /// Its services.
    pub services: SimulatedTask,
}

struct Call {
    from: Life,
    to: Option<Life>,
    task: String,
    address: String,
    method: &'static str,
    has_begun: bool,
    serving: Option<AbortHandle>,
    fail: Box<dyn FnOnce(Status) + Send>,
}

impl Network {
    /// Returns a network without processes.
    pub fn new(seed: u64, scheduler: Arc<Scheduler>) -> Arc<Network> {
        let state = State {
            random: Random::new(seed, "network"),
            hosts: BTreeMap::new(),
            endpoints: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_call: 0,
            cuts: BTreeMap::new(),
            slowness: BTreeMap::new(),
            connected: BTreeSet::new(),
            streams: Vec::new(),
            counts: Counts::default(),
        };
        Arc::new(Network { scheduler, state: Mutex::new(state) })
    }

    /// Sets the machine of a life.
    pub fn place(&self, life: Life, host: Host) {
        self.state.lock().hosts.insert(life, host);
    }

    /// Opens the port of a process.
    pub fn open(&self, address: &str, endpoint: Endpoint) {
        self.state.lock().endpoints.insert(address.to_owned(), endpoint);
    }

    /// Returns the statistics.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Returns the calls that wait for an answer: the callee and the method.
    pub fn waiting(&self) -> Vec<String> {
        let state = self.state.lock();
        state.calls.values().map(|call| format!("{} of {}", call.method, call.task)).collect()
    }

    /// Cuts one direction for some time.
    pub fn cut(self: &Arc<Network>, from: Host, to: Host, duration: Duration) {
        let until = self.scheduler.time() + duration;
        self.state.lock().cuts.insert((from, to), until);
        if duration > SILENCE_MAX {
            let network = self.clone();
            self.scheduler.run_after(SILENCE_MAX, move || {
                network.break_between(|one, other| (one, other) == (from, to) || (other, one) == (from, to));
            });
        }
    }

    /// Resets the connections between two machines, as a device between them may.
    pub fn reset(&self, from: Host, to: Host) {
        self.break_between(|one, other| (one, other) == (from, to) || (other, one) == (from, to));
    }

    /// Slows one direction down, or restores its speed.
    pub fn slow(&self, from: Host, to: Host, factor: u64) {
        self.state.lock().slowness.insert((from, to), factor);
    }

    /// Records the end of a process. If its machine keeps running, it reports the end to connected processes.
    pub fn life_ended(self: &Arc<Network>, life: Life, is_told: bool) {
        {
            let mut state = self.state.lock();
            state.endpoints.retain(|_, endpoint| endpoint.life != life);
            state.connected.retain(|(from, to)| *from != life && *to != life);
        }
        let network = self.clone();
        let noticed = if is_told { Duration::from_micros(200) } else { SILENCE_MAX };
        self.scheduler.run_after(noticed, move || {
            let ids: Vec<u64> = {
                let state = network.state.lock();
                let concerned = |call: &Call| call.from == life || call.to == Some(life);
                state.calls.iter().filter(|(_, call)| concerned(call)).map(|(id, _)| *id).collect()
            };
            network.break_calls(&ids);
            network.break_streams(|one, other| one == life || other == life);
        });
    }

    /// Ends the connections between some hosts.
    fn break_between(&self, is_concerned: impl Fn(Host, Host) -> bool) {
        let ids: Vec<u64> = {
            let mut state = self.state.lock();
            let hosts = state.hosts.clone();
            let between = |from: &Life, to: &Life| match (hosts.get(from), hosts.get(to)) {
                (Some(from), Some(to)) => is_concerned(*from, *to),
                _ => false,
            };
            state.connected.retain(|(from, to)| !between(from, to));
            let calls = state.calls.iter();
            calls.filter(|(_, call)| call.to.is_some_and(|to| between(&call.from, &to))).map(|(id, _)| *id).collect()
        };
        self.break_calls(&ids);
        let hosts = self.state.lock().hosts.clone();
        self.break_streams(|one, other| match (hosts.get(&one), hosts.get(&other)) {
            (Some(one), Some(other)) => is_concerned(*one, *other),
            _ => false,
        });
    }

    fn break_calls(&self, ids: &[u64]) {
        for id in ids {
            let call = {
                let mut state = self.state.lock();
                let call = state.calls.remove(id);
                state.counts.broken += u64::from(call.is_some());
                call
            };
            if let Some(call) = call {
                if let Some(serving) = call.serving {
                    serving.abort();
                }
                let what = format!("{} of {} at {}: the connection was lost", call.method, call.task, call.address);
                (call.fail)(Status::unavailable(what));
            }
        }
    }

    /// Returns the time that a message sent now takes.
    fn delay(&self, from: Life, to: Option<Life>) -> Duration {
        let now = self.scheduler.time();
        let mut state = self.state.lock();
        let (from, to) = (state.hosts.get(&from).copied(), to.and_then(|to| state.hosts.get(&to).copied()));
        let direction = from.zip(to);
        let usual = match direction {
            Some((from, to)) if from == to => state.random.magnitude(5, 60),
            _ => state.random.magnitude(30, 2000),
        };
        let factor = direction.and_then(|direction| state.slowness.get(&direction).copied()).unwrap_or(1);
        let held = direction
            .and_then(|direction| state.cuts.get(&direction))
            .map_or(Duration::ZERO, |until| until.saturating_sub(now));
        held + Duration::from_micros(usual * factor)
    }

    /// Makes a call. The request is on its way when this returns.
    fn call<T: Send + 'static>(
        self: &Arc<Network>,
        from: Life,
        task: &str,
        address: &str,
        method: &'static str,
        serve: impl FnOnce(&Endpoint) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        if !self.scheduler.is_alive(from) {
            return Box::pin(pending());
        }
        let (sender, outcome) = oneshot::channel::<Result<T>>();
        let sender = Arc::new(Mutex::new(Some(sender)));
        let failing = sender.clone();
        let fail = Box::new(move |status| {
            if let Some(sender) = failing.lock().take() {
                let _ = sender.send(Err(status));
            }
        });
        let (id, to) = {
            let mut state = self.state.lock();
            let id = state.next_call;
            state.next_call += 1;
            state.counts.calls += 1;
            let to = state.endpoints.get(address).map(|endpoint| endpoint.life);
            let (task, address) = (task.to_owned(), address.to_owned());
            let call = Call { from, to, task, address, method, has_begun: false, serving: None, fail };
            state.calls.insert(id, call);
            (id, to)
        };
        self.scheduler.note(id);
        let network = self.clone();
        let delay = self.delay(from, to);
        self.scheduler.run_after(delay, move || network.deliver(id, serve, sender));
        Box::pin(Waiting { id, network: self.clone(), outcome, is_over: false })
    }

    fn deliver<T: Send + 'static>(
        self: &Arc<Network>,
        id: u64,
        serve: impl FnOnce(&Endpoint) -> Answer<T> + Send + 'static,
        sender: Arc<Mutex<Option<oneshot::Sender<Result<T>>>>>,
    ) {
        let (endpoint, is_new) = {
            let mut state = self.state.lock();
            let Some(call) = state.calls.get(&id) else { return };
            let (from, expected) = (call.from, call.to);
            // The process at the address now may not be the one to which the connection was opened.
            let found = state.endpoints.get(&call.address).cloned();
            let found = found.filter(|endpoint| expected.is_none_or(|life| life == endpoint.life));
            match found {
                Some(endpoint) => {
                    let is_new = !state.connected.contains(&(from, endpoint.life));
                    if let Some(call) = state.calls.get_mut(&id) {
                        call.to = Some(endpoint.life);
                    }
                    (Some(endpoint), is_new)
                }
                None => (None, true),
            }
        };
        let Some(endpoint) = endpoint else {
            let network = self.clone();
            self.scheduler.run_after(Duration::from_micros(100), move || network.refuse(id));
            return;
        };
        let (abort, registration) = AbortHandle::new_pair();
        if let Some(call) = self.state.lock().calls.get_mut(&id) {
            call.serving = Some(abort);
        }
        let network = self.clone();
        let life = endpoint.life;
        let serving = async move {
            network.begun(id);
            let outcome = serve(&endpoint).await;
            drop(endpoint);
            network.answer(id, outcome, sender);
        };
        self.scheduler.spawn_in(
            life,
            Box::pin(async move {
                let _ = Abortable::new(serving, registration).await;
            }),
        );
        if is_new {
            let network = self.clone();
            self.scheduler.run_after(CONNECT_MAX, move || {
                let has_begun = network.state.lock().calls.get(&id).is_none_or(|call| call.has_begun);
                if !has_begun {
                    network.break_calls(&[id]);
                }
            });
        }
    }

    fn begun(&self, id: u64) {
        let mut state = self.state.lock();
        let Some(call) = state.calls.get_mut(&id) else { return };
        call.has_begun = true;
        if let (from, Some(to)) = (call.from, call.to) {
            state.connected.insert((from, to));
        }
    }

    fn refuse(&self, id: u64) {
        let call = {
            let mut state = self.state.lock();
            let call = state.calls.remove(&id);
            state.counts.broken += u64::from(call.is_some());
            call
        };
        if let Some(call) = call {
            let what = format!("can't connect to {} at {}: connection refused", call.task, call.address);
            (call.fail)(Status::unavailable(what));
        }
    }

    fn answer<T: Send + 'static>(
        self: &Arc<Network>,
        id: u64,
        outcome: Result<T>,
        sender: Arc<Mutex<Option<oneshot::Sender<Result<T>>>>>,
    ) {
        let Some((from, to)) = self.state.lock().calls.get(&id).map(|call| (call.from, call.to)) else { return };
        let delay = self.delay(to.unwrap_or(OUTSIDE), Some(from));
        let network = self.clone();
        self.scheduler.run_after(delay, move || {
            if network.state.lock().calls.remove(&id).is_some()
                && let Some(sender) = sender.lock().take()
            {
                let _ = sender.send(outcome);
            }
        });
    }

    /// Cancels a call: the process that serves it hears of that later, if ever.
    fn give_up(self: &Arc<Network>, id: u64) {
        let (is_lost, delay) = {
            let mut state = self.state.lock();
            if !state.calls.contains_key(&id) {
                return;
            }
            state.counts.given_up += 1;
            (state.random.one_of_thousand(500), state.calls.get(&id).map(|call| (call.from, call.to)))
        };
        let Some((from, to)) = delay else { return };
        // A process that has ended sends nothing.
        if !self.scheduler.is_alive(from) {
            return;
        }
        let has_begun = self.state.lock().calls.get(&id).is_some_and(|call| call.serving.is_some());
        if is_lost && !has_begun {
            // It was cancelled before it was sent.
            drop(self.state.lock().calls.remove(&id));
            return;
        }
        let delay = self.delay(from, to);
        let network = self.clone();
        self.scheduler.run_after(delay, move || {
            let call = network.state.lock().calls.remove(&id);
            if let Some(serving) = call.and_then(|call| call.serving) {
                serving.abort();
            }
        });
    }

    /// Opens a stream to the process at an address.
    async fn dial(self: Arc<Network>, from: Life, task: &str, address: &str) -> io::Result<Box<dyn GivenStream>> {
        let expected = self.state.lock().endpoints.get(address).map(|endpoint| endpoint.life);
        self.scheduler.sleep(self.delay(from, expected)).await;
        let endpoint = self.state.lock().endpoints.get(address).cloned();
        let Some(endpoint) = endpoint.filter(|_| self.scheduler.is_alive(from)) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let pipe = Pipe::new(self.clone(), from, endpoint.life);
        {
            let mut state = self.state.lock();
            state.counts.streams += 1;
            state.streams.retain(|stream| stream.strong_count() > 0);
            state.streams.push(Arc::downgrade(&pipe));
        }
        let (here, there) = pipe::ends(&pipe, task);
        self.scheduler.within(endpoint.life, || endpoint.services.accept(there));
        let life = endpoint.life;
        self.scheduler.within(life, || drop(endpoint));
        self.scheduler.sleep(self.delay(life, Some(from))).await;
        Ok(here)
    }

    /// Ends the streams between some lives.
    fn break_streams(&self, is_concerned: impl Fn(Life, Life) -> bool) {
        let streams: Vec<Arc<Pipe>> = {
            let mut state = self.state.lock();
            let streams = state.streams.iter().filter_map(Weak::upgrade);
            let broken: Vec<Arc<Pipe>> =
                streams.filter(|pipe| !pipe.is_over() && is_concerned(pipe.lives().0, pipe.lives().1)).collect();
            state.counts.broken_streams += broken.len() as u64;
            broken
        };
        streams.iter().for_each(|pipe| pipe.end(true));
    }

    /// Returns the worker of a task, for calls by a process.
    pub fn worker(self: &Arc<Network>, from: Life, task: &str, address: &str) -> Arc<dyn WorkerInterface> {
        Arc::new(Peer { network: self.clone(), from, task: task.to_owned(), address: address.to_owned() })
    }

    /// Returns the master of a task, for calls by a process.
    pub fn master(self: &Arc<Network>, from: Life, task: &str, address: &str) -> Arc<dyn MasterInterface> {
        Arc::new(Peer { network: self.clone(), from, task: task.to_owned(), address: address.to_owned() })
    }
}

impl Carrier for Network {
    fn send_bytes(&self, from: Life, to: Life, count: usize) -> (Duration, usize) {
        let delay = self.delay(from, Some(to));
        let mut state = self.state.lock();
        let sent = if state.random.one_of_thousand(150) { 1 + state.random.below(count) } else { count };
        state.counts.stream_bytes += sent as u64;
        (delay, sent)
    }

    fn read_bytes(&self, count: usize) -> usize {
        let mut state = self.state.lock();
        if state.random.one_of_thousand(150) { 1 + state.random.below(count) } else { count }
    }

    fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }
}

/// A pending answer; dropping it cancels the call.
struct Waiting<T> {
    id: u64,
    network: Arc<Network>,
    outcome: oneshot::Receiver<Result<T>>,
    is_over: bool,
}

impl<T> Future for Waiting<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let outcome = std::task::ready!(Pin::new(&mut self.outcome).poll(context));
        self.is_over = true;
        Poll::Ready(outcome.unwrap_or_else(|_| Err(Status::unavailable("the call was lost"))))
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        if !self.is_over {
            self.network.give_up(self.id);
        }
    }
}

/// A process at an address, for calls by another one.
struct Peer {
    network: Arc<Network>,
    from: Life,
    task: String,
    address: String,
}

impl Peer {
    fn call<T: Send + 'static>(
        &self,
        method: &'static str,
        serve: impl FnOnce(&Endpoint) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        self.network.call(self.from, &self.task, &self.address, method, serve)
    }
}

/// Passes calls on to the service at the other end.
macro_rules! pass_on {
    ($service:ident: $($name:ident($($argument:ident: $kind:ty)?) -> $reply:ty;)*) => {
        $(fn $name(&self $(, $argument: $kind)?) -> Answer<$reply> {
            self.call(stringify!($name), move |endpoint| endpoint.services.$service().$name($($argument)?))
        })*
    };
}

impl WorkerInterface for Peer {
    pass_on! { worker:
        get_status() -> Vec<proto::DeviceAttributes>;
        create_worker_session(request: proto::CreateWorkerSessionRequest) -> ();
        delete_worker_session(session_handle: String) -> ();
        deregister_graph(request: proto::DeregisterGraphRequest) -> ();
        run_graph(call: cluster::RunGraphCall) -> cluster::RunGraphReply;
        cleanup_graph(step_id: i64) -> ();
        cleanup_all(containers: Vec<String>) -> ();
        recv_tensor(call: cluster::RecvTensorCall) -> cluster::ReceivedTensor;
        mark_recv_finished(request_id: i64) -> ();
        logging(request: proto::LoggingRequest) -> proto::LoggingResponse;
        tracing(request: proto::TracingRequest) -> proto::TracingResponse;
        recv_buf(request: proto::RecvBufRequest) -> proto::RecvBufResponse;
        complete_group(request: proto::CompleteGroupRequest) -> proto::CompleteGroupResponse;
        complete_instance(request: proto::CompleteInstanceRequest) -> proto::CompleteInstanceResponse;
        get_step_sequence(request: proto::GetStepSequenceRequest) -> proto::GetStepSequenceResponse;
        ask(question: cluster::TaskQuestion) -> cluster::TaskAnswer;
    }

    fn recv_part(&self, call: cluster::RecvTensorCall, from: &proto::DeviceAttributes) -> Answer<Tensor> {
        let from = from.clone();
        self.call("recv_part", move |endpoint| endpoint.services.worker().recv_part(call, &from))
    }

    fn register_graph(&self, call: cluster::RegisterGraphCall) -> Answer<cluster::RegisterGraphReply> {
        // Between processes, a graph is sent as a message.
        let graph = match call.graph {
            cluster::PartitionGraph::Graph(graph) => cluster::PartitionGraph::Def(graph.to_graph_def()),
            def => def,
        };
        let call = cluster::RegisterGraphCall { graph, ..call };
        let registered = self.call("register_graph", move |endpoint| endpoint.services.worker().register_graph(call));
        Box::pin(async move {
            let reply = registered.await?;
            Ok(cluster::RegisterGraphReply { local: None, ..reply })
        })
    }
}

impl MasterInterface for Peer {
    pass_on! { master:
        create_session(request: proto::CreateSessionRequest) -> proto::CreateSessionResponse;
        extend_session(request: proto::ExtendSessionRequest) -> proto::ExtendSessionResponse;
        partial_run_setup(request: proto::PartialRunSetupRequest) -> String;
        run_step(call: cluster::RunStepCall) -> cluster::RunStepReply;
        close_session(session_handle: String) -> ();
        list_devices(session_handle: String) -> proto::ListDevicesResponse;
        reset(request: proto::ResetRequest) -> ();
        make_callable(request: proto::MakeCallableRequest) -> i64;
        run_callable(call: cluster::RunCallableCall) -> cluster::RunCallableReply;
        release_callable(request: proto::ReleaseCallableRequest) -> ();
    }
}

/// The network for one process.
pub struct NetworkOf {
    network: Arc<Network>,
    life: Life,
}

impl NetworkOf {
    /// Returns the network for a process.
    pub fn new(network: Arc<Network>, life: Life) -> Arc<NetworkOf> {
        Arc::new(NetworkOf { network, life })
    }
}

impl Dialer for NetworkOf {
    fn dial(&self, task: &str, address: &str) -> BoxFuture<'static, io::Result<Box<dyn GivenStream>>> {
        let (network, life, task, address) = (self.network.clone(), self.life, task.to_owned(), address.to_owned());
        Box::pin(async move { network.dial(life, &task, &address).await })
    }
}

impl cluster::Network for NetworkOf {
    fn confirm_stream(&self, task: &str, address: &str, secret: String, receiver: u64) -> Answer<Vec<u64>> {
        self.network.call(self.life, task, address, "confirm_stream", move |endpoint| {
            Box::pin(ready(endpoint.services.confirm_stream(secret, receiver)))
        })
    }

    fn worker(&self, task: &str, address: &str) -> Result<Arc<dyn WorkerInterface>> {
        Ok(self.network.worker(self.life, task, address))
    }
}
