//! [`AllReduceHook`]: what each worker does when it has a session.

use super::Members;
use super::broadcast::Broadcast;
use crate::session::Session;
use crate::train::{Coordinator, SessionRunHook};
use crate::worker_group::WorkerGroup;
use graph::Graph;
use tensor::{Result, Status};

/// Gives the variables of all workers the chief's values, whenever a session is made.
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
}

impl AllReduceHook {
    pub(super) fn new(group: WorkerGroup, members: Members, is_chief: bool) -> AllReduceHook {
        AllReduceHook { group, members, is_chief, broadcast: None }
    }
}

impl SessionRunHook for AllReduceHook {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        self.broadcast = Some(Broadcast::build(graph, &self.group, &self.members)?);
        Ok(())
    }

    fn after_create_session(&mut self, session: &Session, _coordinator: &Coordinator) -> Result<()> {
        let Some(Broadcast { send, receive }) = &self.broadcast else {
            return Err(Status::failed_precondition("AllReduceHook has no operations: begin() was not called"));
        };
        session.run_ops(&[if self.is_chief { send } else { receive }])
    }
}
