//! storage.
