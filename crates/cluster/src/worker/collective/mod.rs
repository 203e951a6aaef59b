//! Collective ops on this task. [`CollectiveMgr`] finds the members of groups through the leader (`group`, `instance`), and runs
//! each op with the other members (`execute`): along rings (`ring`) and trees (`tree`), or, for reductions among Ferroflow tasks,
//! directly between all members (`direct`). Parts of tensors go through `RecvBuf` to TensorFlow's tasks, and between Ferroflow
//! tasks over the stream and by position in shared memory (`exchange`).

mod direct;
mod exchange;
mod execute;
mod failed_steps;
mod group;
mod instance;
mod ring;
mod tree;

use super::rendezvous_mgr::{RendezvousMgr, WaitingRequest};
use super::step_log::now_micros;
use super::step_state::Transfers;
use crate::clock::{sleep, timeout};
use crate::interface::Answer;
use crate::random::RandomIds;
use crate::spawner::Spawner;
use bytes::Bytes;
use exchange::Exchange;
use execute::execute;
use failed_steps::FailedSteps;
use group::{Group, Groups, Joined, Outcome};
use instance::{InstanceKey, Instances, Participant, Source, Wanted, kind};
use kernel::{CollectiveCall, CollectiveDone, CollectiveGroup, CollectiveKind, Collectives, RendezvousKey, Step};
use parking_lot::Mutex;
use prost::Message;
use proto::DeviceAttributes;
use std::future::{pending, ready};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tensor::{Code, Result, Shape, Status, Tensor};
use tokio::sync::oneshot;

/// The type URL of the bytes of a buffer.
const BUFFER_TYPE: &str = "type.googleapis.com/tensorflow.RecvBufRespExtra";

/// The collective ops of a task.
pub(crate) struct CollectiveMgr {
    itself: Weak<CollectiveMgr>,
    /// The leader, which assembles groups; `None` if it is this task.
    leader: Option<String>,
    devices: Vec<DeviceAttributes>,
    transfers: Arc<dyn Transfers>,
    steps: Arc<RendezvousMgr>,
    spawner: Spawner,
    ids: Arc<RandomIds>,
    /// The interval at which to check whether awaited members are still running.
    check: Duration,
    groups: Groups,
    instances: Instances,
    failed: Mutex<FailedSteps>,
}

impl CollectiveMgr {
    /// Returns the manager of a task with these devices. Without a leader, the task is its own.
    pub fn new(
        leader: Option<String>,
        devices: Vec<DeviceAttributes>,
        transfers: Arc<dyn Transfers>,
        steps: Arc<RendezvousMgr>,
        spawner: Spawner,
        ids: Arc<RandomIds>,
        check: Duration,
    ) -> Arc<CollectiveMgr> {
        let leader = leader.filter(|leader| leader != transfers.task());
        Arc::new_cyclic(|itself| CollectiveMgr {
            itself: itself.clone(),
            leader,
            devices,
            transfers,
            steps,
            spawner,
            ids,
            check,
            groups: Groups::default(),
            instances: Instances::default(),
            failed: Mutex::default(),
        })
    }

    /// Adds a device to a group, for a task that calls this one as the leader.
    pub fn complete_group(&self, request: proto::CompleteGroupRequest) -> Answer<proto::CompleteGroupResponse> {
        let joined = self.join_as_asked(request);
        Box::pin(async move {
            let group = complete(joined?).await?;
            Ok(proto::CompleteGroupResponse {
                group_key: group.key,
                group_size: group.members.len() as i32,
                device_type: group.device_type.clone(),
                num_tasks: group.tasks().len() as i32,
                communicator_key: Default::default(),
                device_attributes: group.members.iter().map(|member| member.attributes.clone()).collect(),
            })
        })
    }

    fn join_as_asked(&self, request: proto::CompleteGroupRequest) -> Result<Outcome> {
        self.check_leads("CompleteGroup")?;
        let attributes = request.device_attributes.ok_or_else(|| {
            Status::internal(
                "CompleteGroupRequest device_attributes is not set. Make sure you're running the same version of \
                 Tensorflow on all workers.",
            )
        })?;
        let size = usize::try_from(request.group_size).unwrap_or_default();
        self.groups.join(request.group_key, size, &request.device_type, Joined { attributes, rank: None })
    }

    /// Adds a member to an instance, for a task that calls this one as the leader.
    pub fn complete_instance(
        &self,
        request: proto::CompleteInstanceRequest,
    ) -> Answer<proto::CompleteInstanceResponse> {
        let joined = self.join_instance_as_asked(&request);
        Box::pin(async move {
            let source = known(joined?).await?;
            Ok(proto::CompleteInstanceResponse {
                instance_key: request.instance_key,
                source_rank: source.map_or(-1, |rank| rank as i32),
            })
        })
    }

    fn join_instance_as_asked(&self, request: &proto::CompleteInstanceRequest) -> Result<Source> {
        self.check_leads("CompleteInstance")?;
        let group = self.groups.find(request.group_key).ok_or_else(|| {
            let key = request.group_key;
            Status::failed_precondition(format!("group {key} not found. This normally means the server has restarted"))
        })?;
        let shape = Shape::from_proto(&request.shape.clone().unwrap_or_default())?;
        let wanted = Wanted::new(request.r#type, request.data_type, &shape, group.is_ours());
        let participant = Participant {
            device: &request.device,
            rank: group.position(&request.device)?,
            is_source: request.is_source,
            group_size: group.members.len(),
        };
        self.instances.join((request.group_key, request.step_id, request.instance_key), &wanted, &participant)
    }

    fn check_leads(&self, call: &str) -> Result<()> {
        match &self.leader {
            None => Ok(()),
            Some(leader) => Err(Status::internal(format!(
                "{call} was called at {}, which doesn't lead the collective groups: {leader} does",
                self.transfers.task()
            ))),
        }
    }

    /// Returns a part of a tensor that a member has requested.
    pub fn recv_buf(&self, request: proto::RecvBufRequest) -> Answer<proto::RecvBufResponse> {
        let key = request.buf_rendezvous_key;
        let part = self.part(request.step_id, request.src_incarnation, &request.src_device, &key);
        Box::pin(async move {
            let tensor = part.await?;
            let bytes = tensor.buffer().map(tensor::Buffer::bytes).unwrap_or_default();
            if i64::try_from(bytes.len()) != Ok(request.num_bytes) {
                return Err(Status::internal(format!(
                    "RecvBuf of '{key}' asks for {} bytes, but there are {}",
                    request.num_bytes,
                    bytes.len()
                )));
            }
            let extra = proto::RecvBufRespExtra { tensor_content: vec![Bytes::copy_from_slice(bytes)] };
            let mut response = proto::RecvBufResponse {
                num_bytes: request.num_bytes,
                send_start_micros: now_micros(),
                ..Default::default()
            };
            let packed = response.transport_options.get_or_insert_default();
            packed.type_url = BUFFER_TYPE.to_owned();
            packed.value = extra.encode_to_vec().into();
            Ok(response)
        })
    }

    /// Returns the part that a rendezvous key of one of our members requests; `None` if it isn't such a key.
    pub fn part_by_key(&self, step_id: i64, key: &RendezvousKey) -> Option<Answer<Tensor>> {
        let buffer = exchange::buffer_of(key)?;
        Some(self.part(step_id, key.source_incarnation(), key.source_device(), buffer))
    }

    fn part(&self, step_id: i64, incarnation: u64, device: &str, key: &str) -> Answer<Tensor> {
        let begun = self.begin_part(step_id, incarnation, device, key);
        Box::pin(async move {
            let (part, waiting) = begun?;
            let tensor = part.await.unwrap_or_else(|_| Err(Status::cancelled("the step is over").derived()));
            drop(waiting);
            tensor
        })
    }

    fn begin_part(
        &self,
        step_id: i64,
        incarnation: u64,
        device: &str,
        key: &str,
    ) -> Result<(oneshot::Receiver<Result<Tensor>>, WaitingRequest)> {
        // Not by name, which may differ in a session's own cluster.
        if !self.devices.iter().any(|known| known.incarnation == incarnation) {
            return Err(Status::failed_precondition(format!(
                "RecvBuf expects a different device incarnation: {incarnation} vs. {}. Your worker job that contains the \
                 device (\"{device}\") was probably restarted. Check your worker job for the reason why it was restarted.",
                self.devices.first().map_or(0, |device| device.incarnation)
            )));
        }
        let why_over = |status: Status| self.failed.lock().why(step_id).unwrap_or(status);
        let step = self.steps.find_or_create(step_id).map_err(why_over)?;
        let waiting = self.steps.wait_in(&step)?;
        Ok((step.buffers.consume(key)?, waiting))
    }

    /// Finds the members of a group.
    async fn group(&self, device: &DeviceAttributes, wanted: &CollectiveGroup, kind: i32) -> Result<Arc<Group>> {
        let (key, size) = (wanted.key, wanted.size);
        let Some(leader) = &self.leader else {
            if !wanted.joins {
                return self.groups.find(key).ok_or_else(|| not_initialized(key));
            }
            let joined = Joined { attributes: device.clone(), rank: wanted.rank };
            return complete(self.groups.join(key, size, &device.device_type, joined)?).await;
        };
        if let Some(group) = self.groups.find(key) {
            if group.members.len() != size {
                return Err(Status::internal(format!(
                    "Device {} is joining a group with size {size}, but that group has size {} (group_key={key})",
                    device.name,
                    group.members.len()
                )));
            }
            group.position(&device.name)?;
            return Ok(group);
        }
        if !wanted.joins {
            return Err(not_initialized(key));
        }
        let request = proto::CompleteGroupRequest {
            group_key: key,
            group_size: i32::try_from(size).unwrap_or(i32::MAX),
            device_type: device.device_type.clone(),
            collective_type: kind,
            device_attributes: Some(device.clone()),
        };
        let told = self.transfers.worker(leader)?.complete_group(request).await;
        let told = told.map_err(|status| self.asking(leader, status))?;
        if told.device_attributes.len() != size {
            return Err(Status::internal(format!(
                "{leader} told of {} members of group {key}, which has {size}",
                told.device_attributes.len()
            )));
        }
        let joined = told.device_attributes.into_iter().map(|attributes| Joined { attributes, rank: None });
        let group = Arc::new(Group::new(key, &told.device_type, joined.collect())?);
        group.position(&device.name)?;
        self.groups.keep(&group)?;
        Ok(group)
    }

    /// Checks that all members agree, and determines the source of a broadcast.
    async fn source(&self, call: &CollectiveCall, group: &Group, own: usize) -> Result<Option<usize>> {
        let wanted = Wanted::new(kind_of(&call.kind), call.dtype as i32, &call.shape, group.is_ours());
        let key: InstanceKey = (group.key, 0, call.instance_key);
        let is_source = matches!(call.kind, CollectiveKind::Broadcast { is_source: true });
        let device = &*call.step.device;
        let Some(leader) = &self.leader else {
            let participant = Participant { device, rank: own, is_source, group_size: group.members.len() };
            return known(self.instances.join(key, &wanted, &participant)?).await;
        };
        if let Some(source) = self.instances.find(key, &wanted, device) {
            return source;
        }
        let subdiv_offset = match &call.kind {
            CollectiveKind::Reduce(plan) | CollectiveKind::ReduceScatter(plan) => plan.subdiv_offsets.clone(),
            _ => Vec::new(),
        };
        let request = proto::CompleteInstanceRequest {
            name: call.node_name.clone(),
            r#type: wanted.kind,
            data_type: wanted.dtype,
            shape: Some(call.shape.to_proto()),
            group_key: group.key,
            group_size: group.members.len() as i32,
            instance_key: call.instance_key,
            device_type: group.device_type.clone(),
            subdiv_offset,
            device: device.to_owned(),
            is_source,
            step_id: 0,
        };
        let told = self.transfers.worker(leader)?.complete_instance(request).await;
        let told = told.map_err(|status| self.asking(leader, status))?;
        let source = usize::try_from(told.source_rank).ok().filter(|_| wanted.kind == kind::BROADCAST);
        self.instances.keep(key, &wanted, source);
        Ok(source)
    }

    fn asking(&self, leader: &str, status: Status) -> Status {
        match status.code() {
            Code::Unavailable => {
                status.context(format!("{} asks {leader}, which leads the collective groups", self.transfers.task()))
            }
            // A restarted leader knows none of the groups.
            Code::FailedPrecondition => Status::unavailable(format!(
                "{} asks {leader}, which leads the collective groups: {}",
                self.transfers.task(),
                status.message()
            )),
            _ => status,
        }
    }

    fn device(&self, name: &str) -> Result<&DeviceAttributes> {
        self.devices.iter().find(|device| device.name == name).ok_or_else(|| {
            Status::failed_precondition(format!(
                "collective ops run in the cluster that the servers were started with, in which this task has no device {name}"
            ))
        })
    }

    async fn run_call(self: Arc<Self>, call: &CollectiveCall) -> Result<Tensor> {
        let timeout = call.group.timeout;
        let device = self.device(&call.step.device)?;
        let resolving = async {
            let group = self.group(device, &call.group, kind_of(&call.kind)).await?;
            let own = group.position(&device.name)?;
            let source = self.source(call, &group, own).await?;
            Ok((group, own, source))
        };
        let waiting = "Collective has timed out waiting for other workers.";
        let (group, own, source) = within(timeout, waiting, resolving).await?;
        let state = self.steps.find(call.step.id);
        let state = state.ok_or_else(|| Status::cancelled("the step is over").derived())?;
        let exchange = Exchange::new(&self.transfers, &self.ids, state, group.clone(), own, call);
        let executing = async {
            tokio::select! {
                biased;
                outcome = execute(&exchange, call, source) => outcome,
                status = self.member_lost(&group, call) => Err(status),
            }
        };
        within(timeout, "Collective has timed out during execution.", executing).await
    }

    /// Waits until a member of a group is lost; returns which. A member that only provides parts would not notice otherwise.
    async fn member_lost(&self, group: &Group, call: &CollectiveCall) -> Status {
        let own = self.transfers.task();
        let others: Vec<&group::Member> =
            group.tasks().iter().map(|task| &group.members[task.start]).filter(|member| member.task != own).collect();
        if others.is_empty() {
            return pending().await;
        }
        loop {
            sleep(self.check).await;
            for member in &others {
                let Ok(worker) = self.transfers.worker(&member.task) else { continue };
                let (task, node) = (&member.task, &call.node_name);
                let is_member = |device: &DeviceAttributes| device.incarnation == member.attributes.incarnation;
                // A silent one may have been suspended for a while.
                match timeout(self.check, worker.get_status()).await {
                    Ok(Ok(devices)) if !devices.iter().any(is_member) => {
                        return Status::unavailable(format!("{own} waits in '{node}' for {task}, which was restarted"));
                    }
                    Ok(Err(status)) if status.code() == Code::Unavailable => {
                        return status.context(format!("{own} waits in '{node}' for {task}"));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Records that a collective op has failed: members that ask late get the error, and the group is requested again.
    fn note_failure(&self, step_id: i64, group_key: i32, status: &Status) {
        if self.leader.is_some() {
            self.groups.forget(group_key);
            self.instances.forget_group(group_key);
        }
        self.failed.lock().note(step_id, status);
    }

    /// Runs work that is cancelled with its step.
    fn spawn<T: Send + 'static>(
        &self,
        step: &Arc<Step>,
        group_key: i32,
        work: impl Future<Output = Result<T>> + Send + 'static,
        done: Box<dyn FnOnce(Result<T>) + Send>,
    ) {
        let Some(manager) = self.itself.upgrade() else {
            return done(Err(Status::unavailable("the task is stopping")));
        };
        let (cancel, cancelled) = oneshot::channel();
        let token = match step.cancellation.register(move |status| drop(cancel.send(status))) {
            Ok(token) => token,
            Err(status) => return done(Err(status)),
        };
        let step = step.clone();
        self.spawner.spawn(async move {
            let outcome = tokio::select! {
                biased;
                Ok(status) = cancelled => Err(status),
                outcome = work => outcome,
            };
            step.cancellation.deregister(token);
            if let Err(status) = &outcome {
                manager.note_failure(step.id, group_key, status);
            }
            done(outcome);
        });
    }
}

impl Collectives for CollectiveMgr {
    fn join_group(&self, step: &Arc<Step>, group: CollectiveGroup, done: Box<dyn FnOnce(Result<()>) + Send>) {
        let Some(manager) = self.itself.upgrade() else {
            return done(Err(Status::unavailable("the task is stopping")));
        };
        let device = step.device.clone();
        let key = group.key;
        let work = async move {
            let joining = async { manager.group(manager.device(&device)?, &group, kind::REDUCTION).await };
            within(group.timeout, "Collective has timed out waiting for other workers.", joining).await.map(drop)
        };
        self.spawn(step, key, work, done);
    }

    fn run(&self, call: CollectiveCall, done: CollectiveDone) {
        let Some(manager) = self.itself.upgrade() else {
            return done(Err(Status::unavailable("the task is stopping")));
        };
        let (step, key) = (call.step.clone(), call.group.key);
        self.spawn(&step, key, async move { manager.run_call(&call).await }, done);
    }
}

/// Waits until a group is complete.
async fn complete(mut outcome: Outcome) -> Result<Arc<Group>> {
    let outcome = outcome.wait_for(Option::is_some).await;
    outcome.ok().and_then(|outcome| outcome.clone()).unwrap_or_else(|| Err(Status::aborted("the group was given up")))
}

/// Waits until the source is known.
async fn known(mut source: Source) -> Result<Option<usize>> {
    let source = source.wait_for(Option::is_some).await;
    source.ok().and_then(|source| source.clone()).unwrap_or_else(|| Err(Status::aborted("the instance was given up")))
}

/// Waits for work, with a timeout.
async fn within<T>(timeout: Option<Duration>, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout {
        None => work.await,
        Some(timeout) => match crate::clock::timeout(timeout, work).await {
            Ok(outcome) => outcome,
            Err(_) => ready(Err(Status::deadline_exceeded(what))).await,
        },
    }
}

fn kind_of(call: &CollectiveKind) -> i32 {
    match call {
        CollectiveKind::Reduce(_) => kind::REDUCTION,
        CollectiveKind::ReduceScatter(_) => kind::REDUCE_SCATTER,
        CollectiveKind::Gather => kind::GATHER,
        CollectiveKind::Broadcast { .. } => kind::BROADCAST,
        CollectiveKind::AllToAll => kind::ALL_TO_ALL,
    }
}

fn not_initialized(key: i32) -> Status {
    Status::invalid_argument(format!(
        "Group {key} is not initialized. Please call group initialization op first before invoking collective op."
    ))
}
