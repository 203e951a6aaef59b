//! The flags that name a certificate, its key and the authorities.

use crate::Failure;
use clap::Args;
use cluster::TlsFiles;
use std::path::PathBuf;

/// The certificate of a task or a client, for encrypted connections whose both ends show one.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsFlags {
    /// The certificate, in PEM; it is read again when it changes. '{job}' and '{task}' in the name stand for those of the task. Without
    /// it, FERROFLOW_TLS_CERT.
    #[arg(long = "tls_cert", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate. Without it, FERROFLOW_TLS_KEY.
    #[arg(long = "tls_key", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// The certificates of the authorities that are believed. Without it, FERROFLOW_TLS_CA.
    #[arg(long = "tls_ca", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

impl TlsFlags {
    /// Returns the files that the flags name, or the environment.
    pub fn files(&self) -> Result<Option<TlsFiles>, Failure> {
        let given = TlsFiles::from_parts(self.tls_cert.clone(), self.tls_key.clone(), self.tls_ca.clone())?;
        match given {
            Some(files) => Ok(Some(files)),
            None => Ok(TlsFiles::from_env()?),
        }
    }

    /// Returns the files of one task, which are those of all sessions of this process, too.
    pub fn files_of_task(&self, job: &str, index: u32) -> Result<Option<TlsFiles>, Failure> {
        let files = self.files()?.map(|files| files.for_task(job, index));
        if let Some(files) = &files {
            files.use_in_process();
        }
        Ok(files)
    }
}
