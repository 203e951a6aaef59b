//! [`SyncReplicasHook`]: prepares each worker's session for synchronous training.

use super::session_run_hook::SessionRunHook;
use super::{Coordinator, Optimizer, QueueRunner, SyncReplicasOptimizer};
use crate::session::Session;
use graph::{Graph, Operation, Output};
use tensor::{Result, Status};

/// Sets the local step to the global one; on the chief, also enqueues the initial tokens and starts to apply gradients.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// # let g = Graph::new();
/// # let step = create_global_step(&g);
/// # let w = Variable::new(&g, "w", &g.constant(4f32));
/// let optimizer = SyncReplicasOptimizer::new(GradientDescentOptimizer::new(0.1), 1, Some(1))?;
/// let train = optimizer.minimize(&w.value().square(), Some(&step))?;
/// let hook: SyncReplicasHook = optimizer.make_session_run_hook(true, None)?;
/// let mut session = MonitoredSession::training(&g).hook(hook).build()?;
/// session.run(&RunArgs::new().target(&train))?;
/// session.close()?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct SyncReplicasHook {
    local_init: Operation,
    ready: Output,
    chief: Option<(Operation, QueueRunner)>,
}

impl<O: Optimizer> SyncReplicasOptimizer<O> {
    /// Returns the hook for a worker of a monitored session; call it after `apply_gradients`. By default there are as many
    /// initial tokens as gradients are averaged.
    ///
    /// ```
    /// use ferroflow::{prelude::*, train::*, variable::create_global_step};
    /// # let g = Graph::new();
    /// # let step = create_global_step(&g);
    /// # let w = Variable::new(&g, "w", &g.constant(4f32));
    /// let optimizer = SyncReplicasOptimizer::new(GradientDescentOptimizer::new(0.1), 1, Some(1))?;
    /// let train = optimizer.minimize(&w.value().square(), Some(&step))?;
    /// let task_index = 1;
    /// let hook = optimizer.make_session_run_hook(task_index == 0, None)?;
    /// let session = MonitoredSession::training(&g).is_chief(task_index == 0).hook(hook).build()?;
    /// session.close()?;
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn make_session_run_hook(&self, is_chief: bool, num_tokens: Option<i32>) -> Result<SyncReplicasHook> {
        let ready = self.ready_for_local_init_op()?;
        if !is_chief {
            return Ok(SyncReplicasHook { local_init: self.local_step_init_op()?, ready, chief: None });
        }
        let chief = Some((self.init_tokens_op(num_tokens)?, self.chief_queue_runner()?));
        Ok(SyncReplicasHook { local_init: self.chief_init_op()?, ready, chief })
    }
}

impl SessionRunHook for SyncReplicasHook {
    fn begin(&mut self, _graph: &Graph) -> Result<()> {
        Ok(())
    }

    fn after_create_session(&mut self, session: &Session, coordinator: &Coordinator) -> Result<()> {
        let missing = session.run(&[&self.ready])?;
        if missing.iter().any(|names| names.num_elements() > 0) {
            return Err(Status::failed_precondition(
                "Init operations did not make model ready for the local steps of SyncReplicasOptimizer",
            ));
        }
        session.run_ops(&[&self.local_init])?;
        if let Some((tokens, runner)) = &self.chief {
            session.run_ops(&[tokens])?;
            runner.create_threads(session, coordinator)?;
        }
        Ok(())
    }
}
