//! [`CheckpointSaverListener`]: is notified of every checkpoint that is saved.

use crate::session::Session;
use graph::Graph;
use tensor::Result;

/// Is notified of every checkpoint that a [`CheckpointSaverHook`](super::CheckpointSaverHook) saves. By default the methods do
/// nothing.
///
/// ```
/// use ferroflow::{prelude::*, train::*, variable::create_global_step};
/// # let directory = tempfile::tempdir().unwrap();
/// # let logdir = directory.path().to_str().unwrap();
///
/// /// Ends the training with the first checkpoint from step 3 on.
/// struct Enough;
///
/// impl CheckpointSaverListener for Enough {
///     fn after_save(&mut self, _session: &Session, step: i64) -> ferroflow::Result<bool> {
///         Ok(step >= 3)
///     }
/// }
///
/// let g = Graph::new();
/// let step = create_global_step(&g);
/// let w = Variable::new(&g, "w", &g.constant(4f32));
/// let train = GradientDescentOptimizer::new(0.1).minimize(&w.value().square(), Some(&step))?;
/// let builder = MonitoredSession::training(&g).checkpoint_dir(logdir).save_checkpoint(Some(Every::Steps(2)));
/// builder.saving_listener(Enough).build()?.run_until_stopped(|session| session.run(&RunArgs::new().target(&train)).map(drop))?;
/// assert_eq!(latest_checkpoint(logdir)?, Some(format!("{logdir}/model.ckpt-4")));
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub trait CheckpointSaverListener: Send {
    /// Called once, while nodes can still be added to the graph.
    fn begin(&mut self, _graph: &Graph) -> Result<()> {
        Ok(())
    }

    /// Called before the checkpoint of this global step is written.
    fn before_save(&mut self, _session: &Session, _step: i64) -> Result<()> {
        Ok(())
    }

    /// Called after a checkpoint was written; returns whether training should end.
    fn after_save(&mut self, _session: &Session, _step: i64) -> Result<bool> {
        Ok(false)
    }

    /// Called at the end, after the last checkpoint, unless training failed.
    fn end(&mut self, _session: &Session, _step: i64) -> Result<()> {
        Ok(())
    }
}

impl<L: CheckpointSaverListener + ?Sized> CheckpointSaverListener for Box<L> {
    fn begin(&mut self, graph: &Graph) -> Result<()> {
        (**self).begin(graph)
    }

    fn before_save(&mut self, session: &Session, step: i64) -> Result<()> {
        (**self).before_save(session, step)
    }

    fn after_save(&mut self, session: &Session, step: i64) -> Result<bool> {
        (**self).after_save(session, step)
    }

    fn end(&mut self, session: &Session, step: i64) -> Result<()> {
        (**self).end(session, step)
    }
}
