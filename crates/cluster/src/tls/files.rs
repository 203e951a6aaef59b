//! [`TlsFiles`]: the paths of a certificate, its key and the authorities.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tensor::{Result, Status};

/// The environment variables with the default paths.
const CERT_VARIABLE: &str = "FERROFLOW_TLS_CERT";
const KEY_VARIABLE: &str = "FERROFLOW_TLS_KEY";
const CA_VARIABLE: &str = "FERROFLOW_TLS_CA";

static OF_PROCESS: OnceLock<TlsFiles> = OnceLock::new();

/// The files of a certificate, in PEM. They are read again when they change.
///
/// ```
/// use cluster::TlsFiles;
///
/// let files = TlsFiles::new("certs/{job}-{task}.pem", "certs/{job}-{task}.key", "certs/ca.pem").for_task("ps", 1);
/// assert_eq!(files.cert.to_str(), Some("certs/ps-1.pem"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and the intermediate certificates up to an authority.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
    /// The certificates of the trusted authorities.
    pub ca: PathBuf,
}

impl TlsFiles {
    /// Names the files.
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>, ca: impl Into<PathBuf>) -> TlsFiles {
        TlsFiles { cert: cert.into(), key: key.into(), ca: ca.into() }
    }

    /// Returns the given files; all of them or none must be given.
    pub fn from_parts(cert: Option<PathBuf>, key: Option<PathBuf>, ca: Option<PathBuf>) -> Result<Option<TlsFiles>> {
        match (cert, key, ca) {
            (Some(cert), Some(key), Some(ca)) => Ok(Some(TlsFiles { cert, key, ca })),
            (None, None, None) => Ok(None),
            _ => Err(Status::invalid_argument(format!(
                "TLS needs a certificate, its key and the authorities: give all of --tls_cert, --tls_key and --tls_ca, or of \
                 {CERT_VARIABLE}, {KEY_VARIABLE} and {CA_VARIABLE}"
            ))),
        }
    }

    /// Returns the files that the environment variables `FERROFLOW_TLS_CERT`, `FERROFLOW_TLS_KEY` and `FERROFLOW_TLS_CA` name.
    pub fn from_env() -> Result<Option<TlsFiles>> {
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        TlsFiles::from_parts(path(CERT_VARIABLE), path(KEY_VARIABLE), path(CA_VARIABLE))
    }

    /// Sets the default files for sessions of this process; only the first call has an effect.
    pub fn use_in_process(&self) {
        let _ = OF_PROCESS.set(self.clone());
    }

    /// Returns the default files for sessions: those of [`use_in_process`](Self::use_in_process), or of the environment.
    pub fn of_process() -> Result<Option<TlsFiles>> {
        match OF_PROCESS.get() {
            Some(files) => Ok(Some(files.clone())),
            None => TlsFiles::from_env(),
        }
    }

    /// Returns the environment variables that pass these files to another process.
    pub fn to_env(&self) -> [(&'static str, &Path); 3] {
        [(CERT_VARIABLE, &self.cert), (KEY_VARIABLE, &self.key), (CA_VARIABLE, &self.ca)]
    }

    /// Returns the files of one task: `{job}` and `{task}` in the names are replaced by its job and index.
    pub fn for_task(&self, job: &str, task_index: u32) -> TlsFiles {
        let replaced = |path: &PathBuf| match path.to_str() {
            Some(text) => PathBuf::from(text.replace("{job}", job).replace("{task}", &task_index.to_string())),
            None => path.clone(),
        };
        TlsFiles { cert: replaced(&self.cert), key: replaced(&self.key), ca: replaced(&self.ca) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_or_none() {
        let path = || Some(PathBuf::from("x"));
        assert_eq!(TlsFiles::from_parts(None, None, None).unwrap(), None);
        assert!(TlsFiles::from_parts(path(), path(), path()).unwrap().is_some());
        let status = TlsFiles::from_parts(path(), None, path()).unwrap_err();
        assert!(status.message().contains("--tls_key"), "{status}");
    }
}
