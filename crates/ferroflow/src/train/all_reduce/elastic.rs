//! [`Elastic`]: how a worker takes part in a group whose members change. It asks the chief through a queue of questions in the chief's
//! task, which also has a queue of answers for each worker; the chief answers all members of an epoch at once.

use super::broadcast::Broadcast;
use super::membership::{ASK_NUMBERS, Ask, Epoch, Membership};
use super::reduce::on;
use super::waiting::Waiting;
use super::{Call, Members};
use crate::session::Session;
use crate::train::{Queue, RunArgs};
use crate::variable::get_global_step;
use crate::worker_group::WorkerGroup;
use graph::{Graph, Operation, Output};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};
use tensor::{DType, PartialShape, Result, Status, Tensor};

/// The interval at which a waiting chief checks for questions.
const LOOKING: Duration = Duration::from_millis(20);

/// The most runs of a session for which it is cached whether they train.
const RUNS_MAX: usize = 64;

/// A worker's state in an elastic group.
pub(super) struct Elastic {
    group: WorkerGroup,
    members: Members,
    call: Call,
    talk: Option<Talk>,
    /// The chief's view of the workers; `None` for the others.
    desk: Option<Membership>,
    epoch: Option<Epoch>,
    /// Whether the variables have the group's values.
    has_values: bool,
    /// Whether the chief has called all members to meet.
    is_called: bool,
    /// Whether a run reduces gradients, by the names of its fetches and targets.
    runs: HashMap<Vec<String>, bool>,
}

/// The operations by which a worker and the chief communicate.
struct Talk {
    given: Output,
    step: Output,
    side: Side,
}

enum Side {
    Chief { size: Output, question: Output, answers: Vec<Operation> },
    Other { ask: Operation, answer: Output },
}

impl Elastic {
    /// Returns what a worker of an elastic group has; nothing for any other group.
    pub(super) fn of(group: &WorkerGroup, members: &Members) -> Option<Elastic> {
        let ((min, max), call) = (group.bounds()?, members.call.clone()?);
        Some(Elastic {
            group: group.clone(),
            members: members.clone(),
            call,
            talk: None,
            desk: group.is_chief().then(|| Membership::new(min, max, group.size())),
            epoch: None,
            has_values: false,
            is_called: false,
            runs: HashMap::new(),
        })
    }

    /// Adds the operations to the graph.
    pub(super) fn begin(&mut self, graph: &Graph) -> Result<()> {
        let step = get_global_step(graph)?.ok_or_else(|| {
            Status::failed_precondition(
                "an elastic group needs a global step: it tells who of the workers has come furthest",
            )
        })?;
        let chief = self.group.device_of(0).unwrap_or_default();
        let talk = graph.in_name_scope("", |graph| {
            graph.name_scope("all_reduce_members", |graph| {
                on(graph, chief, |graph| {
                    let given = graph.op("Placeholder").attr("dtype", DType::Int64);
                    let given = given.attr("shape", PartialShape::unknown()).output();
                    let questions = queue(graph, "questions", &PartialShape::from([ASK_NUMBERS as i64]));
                    let answers = |rank: usize| queue(graph, &format!("answers_{rank}"), &PartialShape::from([-1]));
                    let side = if self.group.is_chief() {
                        let size = graph.op("QueueSizeV2").input(questions.handle()).output();
                        let question = questions.dequeue(&[DType::Int64]).output(0);
                        let answers = (0..self.group.size()).map(|rank| answers(rank).enqueue(&[given.clone()]));
                        Side::Chief { size, question, answers: answers.collect() }
                    } else {
                        let answer = answers(self.group.rank()).dequeue(&[DType::Int64]).output(0);
                        Side::Other { ask: questions.enqueue(&[given.clone()]), answer }
                    };
                    Talk { given, step: step.value().clone(), side }
                })
            })
        });
        graph.finish()?;
        self.talk = Some(talk);
        Ok(())
    }

    /// Returns whether the variables keep their values when a session is made again.
    pub(super) fn keeps_variables(&self) -> bool {
        self.has_values
    }

    /// Returns whether the chief has called all members to meet before the next step.
    pub(super) fn is_called(&self) -> bool {
        self.is_called
    }

    /// Waits until the next epoch begins, and gives or takes the variables.
    pub(super) fn enter(&mut self, session: &Session, broadcast: &Broadcast, waiting: &Waiting) -> Result<()> {
        let own = Ask {
            rank: self.group.rank(),
            nonce: RandomState::new().hash_one(0) as i64,
            joins: true,
            step: self.own_step(session)?,
            epoch: self.epoch.as_ref().map_or(0, |epoch| epoch.number),
        };
        let epoch = match self.group.is_chief() {
            true => self.decide(session, own, waiting)?,
            false => self.ask(session, &own, waiting)?,
        };
        self.is_called = false;
        let is_source = epoch.source == self.group.rank();
        let source = self.group.device_of(epoch.source).unwrap_or_default();
        tracing::info!(
            "{}: epoch {} begins with {} worker(s): {}; {} gives the variables",
            self.group.device(),
            epoch.number,
            epoch.members.len(),
            self.names(&epoch.members),
            if is_source { "this one" } else { source },
        );
        self.epoch = Some(epoch);
        // A worker that fails while it receives them has some old and some new ones.
        self.has_values = is_source;
        let run = session.runner().target(if is_source { &broadcast.send } else { &broadcast.receive });
        let run = self.names_of_group().into_iter().fold(run, |run, (output, value)| run.feed(&output, value));
        waiting.run(session, &format!("the variables of {source}"), || run.run().map(drop))?;
        self.has_values = true;
        Ok(())
    }

    /// Adds to a step that trains what tells the members of an epoch from others, and whether another one should begin.
    pub(super) fn before_run(&mut self, graph: &Graph, original: &RunArgs) -> Result<RunArgs> {
        let args =
            self.names_of_group().into_iter().fold(RunArgs::new(), |args, (output, value)| args.feed(&output, value));
        let mean = self.call.mean.lock().clone();
        let Some(mean) = mean.filter(|mean| self.trains(graph, original, mean)) else { return Ok(args) };
        let args = args.fetch(&mean);
        let (Some(desk), Some(Talk { side: Side::Chief { size, .. }, .. })) = (&self.desk, &self.talk) else {
            return Ok(args);
        };
        let call = if desk.wants_change() { 1f32 } else { 0.0 };
        Ok(args.feed(&self.call.given, Tensor::scalar(call)).fetch(size))
    }

    /// Takes what `before_run` has asked for.
    pub(super) fn after_run(&mut self, session: &Session, results: &[Tensor]) -> Result<()> {
        if let Some(mean) = results.first() {
            self.is_called |= mean.to_scalar::<f32>()? > 0.0;
        }
        if let Some(size) = results.get(1) {
            self.hear(session, size.to_scalar::<i32>()?)?;
        }
        Ok(())
    }

    /// Tells the chief that this worker leaves. It isn't waited for then.
    pub(super) fn leave(&self, session: &Session) {
        let Some(Talk { given, side: Side::Other { ask, .. }, .. }) = &self.talk else { return };
        let epoch = self.epoch.as_ref().map_or(0, |epoch| epoch.number);
        let own = Ask { rank: self.group.rank(), nonce: 0, joins: false, step: None, epoch };
        if let Err(status) = session.runner().feed(given, own.to_tensor()).target(ask).run() {
            tracing::debug!("the chief can't be told that {} leaves: {status}", self.group.device());
        }
    }

    /// Returns the global step of a worker whose variables have values: the chief has set or restored them.
    fn own_step(&self, session: &Session) -> Result<Option<i64>> {
        match &self.talk {
            Some(talk) if self.has_values || self.group.is_chief() => session.eval_index(&talk.step).map(Some),
            _ => Ok(None),
        }
    }

    /// Waits, as the chief, until an epoch can begin, and tells the others who its members are.
    fn decide(&mut self, session: &Session, own: Ask, waiting: &Waiting) -> Result<Epoch> {
        if let Some(desk) = &mut self.desk {
            desk.take(own);
        }
        let began = Instant::now();
        let mut waits = waiting.begin();
        loop {
            let Some(Talk { given, side: Side::Chief { size, answers, .. }, .. }) = &self.talk else {
                return Err(not_begun());
            };
            let (given, answers) = (given.clone(), answers.clone());
            let size = session.eval::<i32>(size)?;
            self.hear(session, size)?;
            let desk = self.desk.as_mut().ok_or_else(not_begun)?;
            if let Some((epoch, told)) = desk.decide(began.elapsed()) {
                for ask in told.iter().filter(|ask| ask.rank != 0) {
                    let run = session.runner().feed(&given, epoch.to_tensor(ask.nonce));
                    run.target(answers.get(ask.rank).ok_or_else(not_begun)?).run()?;
                }
                return Ok(epoch);
            }
            let (missing, lacking) = (desk.missing(), desk.lacking());
            let missing = self.names(&missing);
            waits.pause(LOOKING, || match lacking {
                0 => format!("{missing}, who took part before"),
                _ => format!("{lacking} more worker(s), without whom there are too few: {missing}"),
            })?;
        }
    }

    /// Handles the questions in the chief's queue.
    fn hear(&mut self, session: &Session, count: i32) -> Result<()> {
        let (Some(desk), Some(Talk { side: Side::Chief { question, .. }, .. })) = (&mut self.desk, &self.talk) else {
            return Ok(());
        };
        for _ in 0..count {
            match session.run(&[question])?.first().map(Ask::from_tensor).transpose() {
                Ok(ask) => ask.into_iter().for_each(|ask| desk.take(ask)),
                Err(status) => tracing::warn!("a question to the chief is dropped: {status}"),
            }
        }
        Ok(())
    }

    /// Asks the chief to take part, and waits until it answers with an epoch.
    fn ask(&self, session: &Session, own: &Ask, waiting: &Waiting) -> Result<Epoch> {
        let Some(Talk { given, side: Side::Other { ask, answer }, .. }) = &self.talk else { return Err(not_begun()) };
        let chief = self.group.device_of(0).unwrap_or_default();
        let what =
            format!("the chief, {chief}, which decides who takes part; without it training waits until it is back");
        let epoch = waiting.run(session, &what, || {
            session.runner().feed(given, own.to_tensor()).target(ask).run()?;
            loop {
                let answers = session.run(&[answer])?;
                let (nonce, epoch) = Epoch::from_tensor(answers.first().ok_or_else(not_begun)?)?;
                // Any other answer is to an earlier process of this task.
                if nonce == own.nonce {
                    return Ok(epoch);
                }
            }
        })?;
        if !epoch.members.contains(&own.rank) || self.group.device_of(epoch.source).is_none() {
            return Err(Status::internal(format!("{chief} begins an epoch with workers that don't exist")));
        }
        Ok(epoch)
    }

    /// Returns the feeds of this epoch's collective ops.
    fn names_of_group(&self) -> Vec<(Output, Tensor)> {
        let Some(epoch) = &self.epoch else { return Vec::new() };
        // A collision with other groups in the same servers is unlikely, since TensorFlow's keys are small numbers.
        let base = self.members.group_key.wrapping_mul(0x0100_0193);
        let key = base.wrapping_add(epoch.number as i32) & i32::MAX;
        let size = Tensor::scalar(epoch.members.len() as i32);
        vec![(self.members.size.clone(), size), (self.members.key.clone(), Tensor::scalar(key))]
    }

    /// Returns whether a run reduces gradients. Other runs concern this worker only.
    fn trains(&mut self, graph: &Graph, args: &RunArgs, mean: &Output) -> bool {
        let roots: Vec<String> = args.targets.iter().chain(&args.fetches).cloned().collect();
        if let Some(&trains) = self.runs.get(&roots) {
            return trains;
        }
        let trains = needs(graph, &roots, &mean.op);
        if self.runs.len() >= RUNS_MAX {
            self.runs.clear();
        }
        self.runs.insert(roots, trains);
        trains
    }

    fn names(&self, ranks: &[usize]) -> String {
        ranks.iter().filter_map(|&rank| self.group.device_of(rank)).collect::<Vec<_>>().join(", ")
    }
}

/// Returns whether one of these outputs and operations depends on the given operation.
fn needs(graph: &Graph, roots: &[String], needed: &Operation) -> bool {
    let mut left: Vec<Operation> = roots
        .iter()
        .filter_map(|name| graph.operation(name.split_once(':').map_or(name.as_str(), |(name, _)| name)))
        .collect();
    let mut seen = HashSet::new();
    while let Some(op) = left.pop() {
        if op.name() == needed.name() {
            return true;
        }
        if seen.insert(op.name()) {
            left.extend(op.inputs().into_iter().map(|input| input.op));
            left.extend(op.control_inputs());
        }
    }
    false
}

/// Adds a queue in the chief's task.
fn queue(graph: &Graph, name: &str, shape: &PartialShape) -> Queue {
    let types: &[DType] = &[DType::Int64];
    let op = graph.op("FIFOQueueV2").name(name).attr("component_types", types).attr("capacity", -1i64);
    let op = match shape.to_shape() {
        Some(_) => op.attr("shapes", std::slice::from_ref(shape)),
        None => op,
    };
    Queue::new(op.attr("shared_name", format!("ferroflow_members_{name}")).output())
}

fn not_begun() -> Status {
    Status::failed_precondition("AllReduceHook has no operations: begin() was not called")
}
