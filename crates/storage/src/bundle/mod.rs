//! The tensor bundle: TensorFlow's checkpoint format V2.
//!
//! A checkpoint PREFIX is the file `PREFIX.index`, a [table](crate::table) from tensor names to where their bytes are,
//! and the files `PREFIX.data-SSSSS-of-NNNNN`, which hold nothing but the bytes. The entry under the empty name tells
//! how many data files there are. A partitioned variable has one entry that lists its slices and one for each slice.
//!
//! A checkpoint is put in place so that a kill or a power cut at any moment leaves the old or the new one complete. First, data and
//! index are on stable storage under temporary names. Then the data files get their names, which differ from those of a replaced
//! checkpoint. Finally the rename of the index replaces the checkpoint. Checksums are verified whenever something is read. The
//! leftovers of a killed saver are deleted by the next saver in the same directory.

mod index;
mod merge;
mod ordered_code;
mod reader;
mod region;
mod strings;
mod sweep;
mod tensor_slice;
mod variants;
mod writer;

pub use index::is_part;
pub use merge::{MergeOptions, merge_bundles};
pub use ordered_code::{decode_tensor_name_slice, encode_tensor_name_slice};
pub use reader::{BundleReader, TensorInfo};
pub use tensor_slice::{Extent, TensorSlice, parse_shape_and_slice};
pub use writer::{BundleWriter, BundleWriterOptions, HeldPart};

// The older format has the same slices, keys and versions.
pub(crate) use index::check_version;
pub(crate) use region::{Run, Runs, covering_runs};

/// Returns the path of a checkpoint's index.
pub fn meta_filename(prefix: &str) -> String {
    format!("{prefix}.index")
}

/// Returns the path of one of a checkpoint's data files.
pub fn data_filename(prefix: &str, shard: usize, num_shards: usize) -> String {
    format!("{prefix}.data-{shard:05}-of-{num_shards:05}")
}

#[cfg(test)]
mod sweep_tests;
#[cfg(test)]
mod tests;
