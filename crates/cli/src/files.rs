//! `--file_root` and `--read_only`: the files that ops of clients may access.

use crate::Failure;
use clap::Args;
use cluster::AuditLog;
use std::path::Path;
use std::sync::Arc;
use storage::file_system::{FileRoot, FileSystems, ObservedFileSystem, Observer};

/// Restrictions on the files that ops may access. Without them, ops may access all files that the server's user may.
#[derive(Args, Debug, Default)]
pub struct FileFlags {
    /// A directory that ops may use, with everything beneath it; DIR:ro to read only. May be given several times. Every other path
    /// is then PERMISSION_DENIED. Also the URL of a directory in a store, such as s3://bucket/dir.
    #[arg(long = "file_root", value_name = "DIR[:ro]")]
    file_root: Vec<FileRoot>,
    /// Refuses every op that would change a file.
    #[arg(long = "read_only")]
    read_only: bool,
}

impl FileFlags {
    /// Confines the ops of this process, and writes their changes to the audit log if there is one.
    pub fn apply(&self, audit_log: Option<&Path>) -> Result<(), Failure> {
        if self.file_root.is_empty() && !self.read_only && audit_log.is_none() {
            return Ok(());
        }
        let files = match self.file_root.is_empty() && !self.read_only {
            true => FileSystems::all(),
            false => FileSystems::confined(&self.file_root, self.read_only)
                .map_err(|status| status.context("--file_root"))?,
        };
        match audit_log {
            None => ops::io::set_file_system(files)?,
            Some(path) => {
                let log = AuditLog::open(path)?;
                let observer: Observer =
                    Arc::new(move |change, path, outcome| log.write_file(&change.to_string(), path, &outcome));
                ops::io::set_file_system(ObservedFileSystem::new(Arc::new(files), observer))?;
            }
        }
        for root in &self.file_root {
            tracing::info!("ops reach files beneath {root}");
        }
        if self.read_only {
            tracing::info!("ops change no files");
        }
        Ok(())
    }
}
