//! What a worker says while it trains.

use super::progress::Steps;
use std::sync::Arc;

/// Receives what a worker says.
pub type Listener = Arc<dyn Fn(News) + Send + Sync>;

/// What a worker says while it works.
pub enum News {
    /// Steps that it has done.
    Steps(Steps),
    /// A line for people.
    Line(String),
}
