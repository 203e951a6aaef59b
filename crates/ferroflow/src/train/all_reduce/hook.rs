//! [`AllReduceHook`]: gives all workers the same variables whenever a session is made.

use super::Members;
use super::broadcast::Broadcast;
use super::elastic::Elastic;
use super::waiting::Waiting;
use crate::session::Session;
use crate::train::{Coordinator, RunArgs, RunContext, RunValues, SessionRunHook};
use crate::worker_group::WorkerGroup;
use graph::Graph;
use std::time::Duration;
use tensor::{Result, Status};

/// How long a worker waits for others by default.
const MAX_WAIT: Duration = Duration::from_secs(7200);

/// Gives the variables of all workers the chief's values whenever a session is made.
///
/// In an elastic group, the worker also asks the chief to take part, and asks again whenever a worker was lost or another one joins. All
/// then get the variables of the worker with the highest global step.
///
/// ```
/// use ferroflow::distributed::WorkerGroup;
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// # let g = Graph::new();
/// # let (step, w) = (create_global_step(&g), Variable::new(&g, "w", &g.constant(4f32)));
/// let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(0.1), &WorkerGroup::alone());
/// let train = optimizer.minimize(&w.value().square(), Some(&step))?;
/// let hook: AllReduceHook = optimizer.make_session_run_hook(true)?;
/// let mut session = MonitoredSession::training(&g).hook(hook).build()?;
/// session.run(&RunArgs::new().target(&train))?;
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct AllReduceHook {
    group: WorkerGroup,
    members: Members,
    is_chief: bool,
    broadcast: Option<Broadcast>,
    elastic: Option<Elastic>,
    waiting: Waiting,
}

impl AllReduceHook {
    pub(super) fn new(group: WorkerGroup, members: Members, is_chief: bool) -> AllReduceHook {
        let waiting = Waiting { task: group.device().to_owned(), stop: Coordinator::new(), max_wait: Some(MAX_WAIT) };
        let elastic = Elastic::of(&group, &members);
        AllReduceHook { group, members, is_chief, broadcast: None, elastic, waiting }
    }

    /// Sets the coordinator that can stop the worker while it waits for others.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(0.1), &WorkerGroup::alone());
    /// let train = optimizer.minimize(&w.value().square(), None)?;
    /// let stop = Coordinator::new();
    /// let hook = optimizer.make_session_run_hook(true)?.stop(&stop);
    /// let session = MonitoredSession::training(&g).hook(hook).stop(&stop).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn stop(mut self, stop: &Coordinator) -> Self {
        self.waiting.stop = stop.clone();
        self
    }

    /// Sets how long the worker waits for others, such as for the chief's variables; `None` means forever.
    ///
    /// ```
    /// use ferroflow::distributed::WorkerGroup;
    /// use ferroflow::{prelude::*, train::*};
    /// # let g = Graph::new();
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let optimizer = AllReduceOptimizer::new(GradientDescentOptimizer::new(0.1), &WorkerGroup::alone());
    /// let train = optimizer.minimize(&w.value().square(), None)?;
    /// let hook = optimizer.make_session_run_hook(true)?.max_wait_secs(Some(60));
    /// let session = MonitoredSession::training(&g).hook(hook).build()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn max_wait_secs(mut self, secs: Option<u64>) -> Self {
        self.waiting.max_wait = secs.map(Duration::from_secs);
        self
    }

    /// Sends or receives the variables; in an elastic group, once the chief has said who takes part.
    fn meet(&mut self, session: &Session) -> Result<()> {
        let Some(broadcast) = &self.broadcast else {
            return Err(Status::failed_precondition("AllReduceHook has no operations: begin() was not called"));
        };
        if let Some(elastic) = &mut self.elastic {
            return elastic.enter(session, broadcast, &self.waiting);
        }
        let chief = self.group.device_of(0).unwrap_or_default();
        let (op, what) = match self.is_chief {
            true => (&broadcast.send, "the other workers, who take over its variables".to_owned()),
            false => (&broadcast.receive, format!("the chief, {chief}, and the other workers")),
        };
        self.waiting.run(session, &what, || session.run_ops(&[op]))
    }
}

impl SessionRunHook for AllReduceHook {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.broadcast = Some(Broadcast::build(graph, &self.group, &self.members)?);
        self.elastic.as_mut().map_or(Ok(()), |elastic| elastic.begin(graph))
    }

    fn after_create_session(&mut self, session: &Session, _coordinator: &Coordinator) -> Result<()> {
        self.meet(session)
    }

    fn before_run(&mut self, context: &RunContext<'_>) -> Result<RunArgs> {
        if self.elastic.as_ref().is_some_and(Elastic::is_called) {
            self.meet(context.session())?;
        }
        match &mut self.elastic {
            Some(elastic) => elastic.before_run(context.session().graph(), context.original_args()),
            None => Ok(RunArgs::new()),
        }
    }

    fn after_run(&mut self, context: &RunContext<'_>, values: &RunValues) -> Result<()> {
        match &mut self.elastic {
            Some(elastic) => elastic.after_run(context.session(), &values.results),
            None => Ok(()),
        }
    }

    fn keeps_variables(&self) -> bool {
        self.elastic.as_ref().is_some_and(Elastic::keeps_variables)
    }

    fn end(&mut self, session: &Session) -> Result<()> {
        if let Some(elastic) = &self.elastic {
            elastic.leave(session);
        }
        Ok(())
    }
}
