//! Data sets.

pub mod example;
pub mod mnist;
