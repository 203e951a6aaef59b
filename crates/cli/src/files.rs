//! `--file_root` and `--read_only`: which files the ops that clients send may touch.

use crate::Failure;
use clap::Args;
use storage::file_system::{FileRoot, FileSystems};

/// Which files ops may touch. With none of these: all that the server's user may.
#[derive(Args, Debug, Default)]
pub struct FileFlags {
    /// A directory that ops may use, with everything beneath it; DIR:ro to read only. May be given several times. Every other path
    /// is then PERMISSION_DENIED.
    #[arg(long = "file_root", value_name = "DIR[:ro]")]
    file_root: Vec<FileRoot>,
    /// Refuses every op that would change a file.
    #[arg(long = "read_only")]
    read_only: bool,
}

impl FileFlags {
    /// Confines the ops of this process.
    pub fn apply(&self) -> Result<(), Failure> {
        if self.file_root.is_empty() && !self.read_only {
            return Ok(());
        }
        let files =
            FileSystems::confined(&self.file_root, self.read_only).map_err(|status| status.context("--file_root"))?;
        ops::io::set_file_system(files)?;
        for root in &self.file_root {
            tracing::info!("ops reach files beneath {root}");
        }
        if self.read_only {
            tracing::info!("ops change no files");
        }
        Ok(())
    }
}
