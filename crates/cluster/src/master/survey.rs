//! A master's sessions, for monitoring.

use super::{Master, Shared};
use graph::NodeGraph;
use kernel::OpRegistry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// A session at one moment.
pub(crate) struct SessionSurvey {
    /// Its number in log lines.
    pub number: u32,
    /// Its client.
    pub client: String,
    /// When it was opened, in microseconds since the epoch.
    pub opened_micros: u64,
    /// When its last step ended, or 0.
    pub last_step_micros: u64,
    /// The number of its steps.
    pub steps: u64,
    /// The last loss that it fetched.
    pub loss: Option<f32>,
    /// The last global step that it fetched.
    pub global_step: Option<u64>,
    /// The memory that it holds.
    pub memory_bytes: usize,
    /// The nodes of its graph.
    pub num_nodes: usize,
}

/// A master that may have stopped.
#[derive(Clone)]
pub(crate) struct WeakMaster(Weak<Shared>);

impl Master {
    /// Returns a handle that doesn't keep the master alive.
    pub fn downgrade(&self) -> WeakMaster {
        WeakMaster(Arc::downgrade(&self.shared))
    }
}

impl WeakMaster {
    /// Returns whether the master still exists.
    pub fn is_held(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Returns the graph of the session with this number, with devices if the whole graph could be placed, and its op registry.
    pub fn graph(&self, number: u64) -> Option<(Arc<NodeGraph>, &'static OpRegistry)> {
        let shared = self.0.upgrade()?;
        let sessions = shared.sessions.read();
        let session = sessions.values().find(|session| u64::from(session.progress.number) == number)?.clone();
        drop(sessions);
        Some((session.shown_graph(), shared.registry))
    }

    /// Returns its sessions, in the order in which they were opened.
    pub fn survey(&self) -> Vec<SessionSurvey> {
        let Some(shared) = self.0.upgrade() else { return Vec::new() };
        let sessions: Vec<_> = shared.sessions.read().values().cloned().collect();
        let survey = |session: &Arc<super::MasterSession>| {
            let progress = &session.progress;
            SessionSurvey {
                number: progress.number,
                client: progress.client.clone(),
                opened_micros: progress.opened_micros,
                last_step_micros: progress.last_step_micros.load(Ordering::Relaxed),
                steps: progress.steps.load(Ordering::Relaxed),
                loss: progress.loss(),
                global_step: progress.global_step(),
                memory_bytes: session.memory_bytes(),
                num_nodes: session.graph().len(),
            }
        };
        let mut all: Vec<SessionSurvey> = sessions.iter().map(survey).collect();
        all.sort_by_key(|session| session.number);
        all
    }
}
