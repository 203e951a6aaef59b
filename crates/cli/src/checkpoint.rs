//! `ferroflow checkpoint ls|show`: prints the contents of a checkpoint.

use crate::Failure;
use clap::Subcommand;
use std::path::Path;
use std::sync::Arc;
use storage::bundle::BundleReader;
use storage::file_system::{FileSystem, FileSystems};
use tensor::{DType, Tensor};

/// A command on a checkpoint.
#[derive(Subcommand)]
pub enum Command {
    /// Lists the tensors of a checkpoint.
    Ls {
        /// A checkpoint's prefix (`model.ckpt-100`), one of its files, or a directory, whose latest checkpoint is taken.
        path: String,
    },
    /// Prints a tensor of a checkpoint.
    Show {
        /// A checkpoint's prefix, one of its files, or a directory.
        path: String,
        /// The tensor's name.
        tensor: String,
    },
}

/// Runs the command.
pub fn run(command: &Command) -> Result<(), Failure> {
    let files: Arc<dyn FileSystem> = Arc::new(FileSystems::all());
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
    let prefix = match directory_of(path) {
        Some(directory) => {
            let latest = storage::checkpoint_state::latest_checkpoint(&**files, &directory, None)?;
            latest.ok_or_else(|| Failure::new(format!("there is no checkpoint in {directory}")))?
        }
        // A directory that isn't local, such as in an object store, or a prefix.
        None => match storage::checkpoint_state::latest_checkpoint(&**files, path, None) {
            Ok(Some(prefix)) => prefix,
            _ => prefix_of(path).to_owned(),
        },
    };
    Ok(BundleReader::open(files.clone(), &prefix)?)
}

/// Returns the directory, if a directory or its state file is named: then its latest checkpoint is meant.
fn directory_of(path: &str) -> Option<String> {
    let named = Path::new(path);
    let is_state = named.file_name().is_some_and(|name| name == "checkpoint") && named.is_file();
    let directory = match named.parent().filter(|_| is_state) {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => named,
    };
    directory.is_dir().then(|| directory.display().to_string())
}

/// Returns the prefix of a checkpoint, one of whose files may be named instead, as a shell completes it.
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
