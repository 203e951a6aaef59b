//! The reports of a worker while it trains.

use super::progress::Steps;
use std::sync::Arc;

/// Receives a worker's reports.
pub type Listener = Arc<dyn Fn(News) + Send + Sync>;

/// A report of a worker.
pub enum News {
    /// The steps that it has done.
    Steps(Steps),
    /// A line for people.
    Line(String),
}
