//! numeric.
