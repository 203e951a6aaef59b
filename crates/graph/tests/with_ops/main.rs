//! Tests of passes, shape inference and the text form with the ops of the crate `ops`.
//!
//! They are not in the crate itself because `ops` depends on it: unit tests would see two copies of every type.

mod dot;
mod inference;
mod optimize;
mod partition;
mod place;
mod prune;
mod random;
mod terminals;
mod text;
