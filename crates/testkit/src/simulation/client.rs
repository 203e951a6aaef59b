//! [`Client`]: a client of a simulated cluster. It checks that every call ends, and that clients may see its error.

use super::cluster::SimulatedCluster;
use super::random::Random;
use cluster::{Answer, MasterInterface, RunStepCall};
use proto::{ConfigProto, CreateSessionRequest, GraphDef};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tensor::{Code, Result, Status, Tensor};

/// A client with at most one session.
pub struct Client {
    /// The cluster.
    pub cluster: Arc<SimulatedCluster>,
    /// Its random numbers.
    pub random: Random,
    name: String,
    master: Arc<dyn MasterInterface>,
    graph: Arc<GraphDef>,
    session: Option<String>,
    /// Sessions that it could not close.
    unclosed: Vec<String>,
    timeout: Option<Duration>,
    /// The calls in a thousand that it cancels before their end.
    gives_up: u64,
}

impl Client {
    /// Returns a client of a task's master, with a graph for its sessions.
    pub fn new(
        cluster: &Arc<SimulatedCluster>,
        seed: u64,
        number: usize,
        task: usize,
        graph: &Arc<GraphDef>,
    ) -> Client {
        let name = format!("client {number}");
        Client {
            cluster: cluster.clone(),
            random: Random::new(seed, &name),
            name,
            master: cluster.master(task),
            graph: graph.clone(),
            session: None,
            unclosed: Vec::new(),
            timeout: None,
            gives_up: 0,
        }
    }

    /// Sets the time limit of steps in further sessions.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Client {
        self.timeout = Some(timeout);
        self
    }

    /// Makes it cancel this many calls in a thousand.
    #[must_use]
    pub fn giving_up(mut self, cases: u64) -> Client {
        self.gives_up = cases;
        self
    }

    /// Waits for some time.
    pub async fn sleep(&self, duration: Duration) {
        self.cluster.scheduler.sleep(duration).await;
    }

    /// Waits for the answer to a call, and checks its error.
    async fn call<T>(&mut self, what: &str, answer: Answer<T>) -> Result<T> {
        let calling = self.cluster.calling(format!("{}: {what}", self.name));
        self.cluster.count("calls of clients");
        let patience = self.random.one_of_thousand(self.gives_up).then(|| self.random.magnitude(50, 3_000_000));
        let outcome = match patience {
            None => answer.await,
            Some(micros) => {
                let over = self.cluster.scheduler.sleep(Duration::from_micros(micros));
                let (mut answer, mut over) = (answer, pin!(over));
                poll_fn(|context| {
                    if let Poll::Ready(outcome) = answer.as_mut().poll(context) {
                        return Poll::Ready(outcome);
                    }
                    over.as_mut().poll(context).map(|()| Err(Status::cancelled("Session: the client gave the call up")))
                })
                .await
            }
        };
        drop(calling);
        if let Err(status) = &outcome {
            self.cluster.count("calls that ended with an error");
            if let Some(why) = objection(status) {
                self.cluster.finding(format!("{}: {what} ended with {status:?}, which {why}", self.name));
            }
        }
        outcome
    }

    /// Opens a session unless there is one, and returns its handle.
    pub async fn session(&mut self) -> Result<String> {
        if let Some(session) = &self.session {
            return Ok(session.clone());
        }
        let timeout_ms = self.timeout.map_or(0, |timeout| timeout.as_millis() as i64);
        let request = CreateSessionRequest {
            graph_def: Some((*self.graph).clone()),
            config: Some(ConfigProto { operation_timeout_in_ms: timeout_ms, ..ConfigProto::default() }),
            ..CreateSessionRequest::default()
        };
        let answer = self.master.create_session(request);
        let handle = self.call("create_session", answer).await?.session_handle;
        self.session = Some(handle.clone());
        Ok(handle)
    }

    /// Ends the session, if there is one.
    pub async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            let answer = self.master.close_session(session.clone());
            if self.call("close_session", answer).await.is_err() {
                self.unclosed.push(session);
            }
        }
    }

    /// Closes its sessions, also those that it could not close before, and cancels no more calls.
    pub async fn finish(&mut self) {
        self.gives_up = 0;
        self.close().await;
        for session in std::mem::take(&mut self.unclosed) {
            let answer = self.master.close_session(session);
            let _ = self.call("close_session", answer).await;
        }
    }

    /// Runs a step.
    pub async fn run(&mut self, feeds: &[(&str, Tensor)], fetches: &[&str], targets: &[&str]) -> Result<Vec<Tensor>> {
        let session_handle = self.session().await?;
        self.run_call(RunStepCall { session_handle, ..step(feeds, fetches, targets) }).await
    }

    async fn run_call(&mut self, call: RunStepCall) -> Result<Vec<Tensor>> {
        let what = format!("run_step of {:?} {:?}", call.fetches, call.targets);
        let answer = self.master.run_step(call);
        let outcome = self.call(&what, answer).await;
        self.leave_after(outcome.as_ref().err()).await;
        Ok(outcome?.tensors.into_iter().map(|(_, tensor)| tensor).collect())
    }

    /// Leaves a session that an error has made useless, as programs do.
    async fn leave_after(&mut self, error: Option<&Status>) {
        if error.is_some_and(|status| matches!(status.code(), Code::Aborted | Code::Unavailable | Code::Cancelled)) {
            self.close().await;
        }
    }

    /// Prepares a partial run.
    pub async fn partial_run_setup(&mut self, feeds: &[&str], fetches: &[&str]) -> Result<String> {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let session_handle = self.session().await?;
        let request = proto::PartialRunSetupRequest {
            session_handle,
            feed: own(feeds),
            fetch: own(fetches),
            ..Default::default()
        };
        let answer = self.master.partial_run_setup(request);
        let outcome = self.call("partial_run_setup", answer).await;
        self.leave_after(outcome.as_ref().err()).await;
        outcome
    }

    /// Runs a part of a partial run.
    pub async fn run_part(&mut self, handle: &str, feeds: &[(&str, Tensor)], fetches: &[&str]) -> Result<Vec<Tensor>> {
        let session_handle = self.session().await?;
        let call = RunStepCall { session_handle, partial_run_handle: handle.to_owned(), ..step(feeds, fetches, &[]) };
        self.run_call(call).await
    }

    /// Prepares a callable.
    pub async fn make_callable(&mut self, feeds: &[&str], fetches: &[&str]) -> Result<i64> {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let session_handle = self.session().await?;
        let options = proto::CallableOptions { feed: own(feeds), fetch: own(fetches), ..Default::default() };
        let request = proto::MakeCallableRequest { session_handle, options: Some(options), ..Default::default() };
        let answer = self.master.make_callable(request);
        let outcome = self.call("make_callable", answer).await;
        self.leave_after(outcome.as_ref().err()).await;
        outcome
    }

    /// Runs a callable.
    pub async fn run_callable(&mut self, handle: i64, feeds: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let session_handle = self.session().await?;
        let answer = self.master.run_callable(cluster::RunCallableCall { session_handle, handle, feeds });
        let outcome = self.call("run_callable", answer).await;
        self.leave_after(outcome.as_ref().err()).await;
        Ok(outcome?.fetches)
    }

    /// Drops a callable.
    pub async fn release_callable(&mut self, handle: i64) -> Result<()> {
        let session_handle = self.session().await?;
        let request = proto::ReleaseCallableRequest { session_handle, handle };
        let answer = self.master.release_callable(request);
        self.call("release_callable", answer).await
    }
}

fn step(feeds: &[(&str, Tensor)], fetches: &[&str], targets: &[&str]) -> RunStepCall {
    let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    RunStepCall {
        feeds: feeds.iter().map(|(name, tensor)| ((*name).to_owned(), tensor.clone())).collect(),
        fetches: own(fetches),
        targets: own(targets),
        ..RunStepCall::default()
    }
}

/// Returns the problem with an error that a client sees, if there is one: it must have a code that says what to do, and name a task, a
/// session or the time.
fn objection(status: &Status) -> Option<&'static str> {
    let is_expected = matches!(
        status.code(),
        Code::Unavailable
            | Code::Aborted
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::NotFound
            | Code::DataLoss
            | Code::InvalidArgument
    );
    if !is_expected {
        return Some("no fault explains");
    }
    let names = ["/job:", "ession", "Timed out", "artial", "callable", "node "];
    (!names.iter().any(|name| status.message().contains(name))).then_some("names no cause")
}
