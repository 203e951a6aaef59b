//! `ferroflow checkpoint ls|show`: prints the contents of a checkpoint.

use crate::Failure;
use clap::Subcommand;
use std::sync::Arc;
use storage::bundle::BundleReader;
use storage::file_system::{FileSystem, FileSystems};
use tensor::{DType, Tensor};

/// A command on a checkpoint.
#[derive(Subcommand)]
pub enum Command {
    /// Lists the tensors of a checkpoint.
    Ls {
        /// A checkpoint's prefix (`model.ckpt-100`), or a directory for its latest checkpoint.
        path: String,
    },
    /// Prints a tensor of a checkpoint.
    Show {
        /// A checkpoint's prefix, or a directory.
        path: String,
        /// The tensor's name.
        tensor: String,
    },
}

/// Runs the command.
pub fn run(command: &Command) -> Result<(), Failure> {
    let files: Arc<dyn FileSystem> = Arc::new(FileSystems::local());
    match command {
        Command::Ls { path } => {
            let reader = open(&files, path)?;
            let mut total = 0;
            for info in reader.list()? {
                crate::say!("{:<60} {:<8} {:<20} {} bytes", info.name, info.dtype, info.shape.to_string(), info.bytes);
                total += info.bytes;
            }
            crate::say!("{total} bytes in {} data file(s)", reader.num_shards());
        }
        Command::Show { path, tensor } => {
            let value = open(&files, path)?.lookup(tensor)?;
            crate::say!("{tensor}: {} {}", value.dtype(), value.shape());
            print_values(&value);
        }
    }
    Ok(())
}

fn open(files: &Arc<dyn FileSystem>, path: &str) -> Result<BundleReader, Failure> {
    let prefix = match storage::checkpoint_state::latest_checkpoint(&**files, path, None) {
        Ok(Some(prefix)) => prefix,
        _ => prefix_of(path).to_owned(),
    };
    Ok(BundleReader::open(files.clone(), &prefix)?)
}

/// Returns the prefix of a checkpoint. The name of one of its files is accepted too, since shells complete those.
fn prefix_of(path: &str) -> &str {
    if let Some(prefix) = [".index", ".meta"].into_iter().find_map(|ending| path.strip_suffix(ending)) {
        return prefix;
    }
    match path.rsplit_once(".data-") {
        Some((prefix, shard)) if shard.bytes().all(|byte| byte.is_ascii_digit() || b"-of".contains(&byte)) => prefix,
        _ => path,
    }
}

/// Prints the elements, one line per row of the innermost dimension, truncated to fit the screen.
fn print_values(value: &Tensor) {
    const ROWS: usize = 20;
    const COLUMNS: usize = 10;
    let columns = value.dims().last().map_or(1, |&columns| columns.max(1) as usize);
    macro_rules! rows {
        ($values:expr) => {{
            let values = $values;
            for row in values.chunks(columns).take(ROWS) {
                let shown: Vec<String> = row.iter().take(COLUMNS).map(|value| format!("{value:?}")).collect();
                crate::say!("{}{}", shown.join(" "), if row.len() > COLUMNS { " …" } else { "" });
            }
            if values.len() > ROWS * columns {
                crate::say!("…");
            }
        }};
    }
    macro_rules! by_type {
        ($($dtype:ident => $rust:ty),*) => {
            match value.dtype() {
                $(DType::$dtype => if let Ok(values) = value.as_slice::<$rust>() { rows!(values) },)*
                DType::String => if let Ok(values) = value.strings() { rows!(values) },
                other => crate::say!("({other} values are not shown)"),
            }
        };
    }
    by_type!(Float => f32, Double => f64, Int32 => i32, Int64 => i64, Bool => bool, UInt8 => u8, Int8 => i8, Int16 => i16,
        UInt16 => u16, UInt32 => u32, UInt64 => u64, Half => tensor::f16, BFloat16 => tensor::bf16);
}
