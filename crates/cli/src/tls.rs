//! The flags for a certificate, its key and the authorities.

use crate::Failure;
use clap::Args;
use cluster::TlsFiles;
use std::path::PathBuf;

/// The certificate of a task or client, for mutually authenticated, encrypted connections.
#[derive(Args, Clone, Debug, Default)]
pub struct TlsFlags {
    /// The certificate, in PEM; it is read again when it changes. '{job}' and '{task}' in the name are replaced by those of the
    /// task. The default is FERROFLOW_TLS_CERT.
    #[arg(long = "tls_cert", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate. The default is FERROFLOW_TLS_KEY.
    #[arg(long = "tls_key", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// The certificates of the trusted authorities. The default is FERROFLOW_TLS_CA.
    #[arg(long = "tls_ca", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
}

impl TlsFlags {
    /// Returns the files given by the flags or the environment.
    pub fn files(&self) -> Result<Option<TlsFiles>, Failure> {
        let given = TlsFiles::from_parts(self.tls_cert.clone(), self.tls_key.clone(), self.tls_ca.clone())?;
        match given {
            Some(files) => Ok(Some(files)),
            None => Ok(TlsFiles::from_env()?),
        }
    }

    /// Returns the files of one task, which all sessions of this process use, too.
    pub fn files_of_task(&self, job: &str, index: u32) -> Result<Option<TlsFiles>, Failure> {
        let files = self.files()?.map(|files| files.for_task(job, index));
        if let Some(files) = &files {
            files.use_in_process();
        }
        Ok(files)
    }
}
