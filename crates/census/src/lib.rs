//! The rows of the Adult census set, as gzipped comma-separated values inside the program.
//!
//! `ferroflow::data::census::Census::builtin` reads them, with `ferroflow`'s feature `census`.
#![deny(missing_docs)]

/// The rows with a header. The first 16,281 are the set's test rows.
pub const ADULT: &[u8] = include_bytes!("../adult.csv.gz");
