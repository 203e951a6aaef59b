//! ferroflow.
