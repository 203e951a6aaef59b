//! Whole clusters in one process: sessions on them, and what happens when their tasks fail.

mod common;
mod faults;
mod sessions;
