//! The flags of all commands that start a server: where it listens, and whom it serves.

use crate::Failure;
use crate::tls::TlsFlags;
use clap::Args;
use cluster::{PeerPolicy, Quota, ServerConfig};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Where a server listens, and whom it serves.
#[derive(Args, Clone, Debug, Default)]
pub struct ListenFlags {
    /// The address to listen on, in place of the one derived from the cluster; 0.0.0.0 means all interfaces.
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Listens on all interfaces if necessary: if the task's address in the cluster isn't one of this machine's, is loopback
    /// while other tasks are elsewhere, or is a name that can't be resolved yet. Anybody who can reach the port can then run
    /// graphs as this user, and nothing is encrypted. FERROFLOW_INSECURE=1 has the same effect.
    #[arg(long)]
    insecure: bool,
    /// Also serves these users of this machine: names or numbers, separated by commas; '*' means all. By default only the user
    /// who starts the server and root are served.
    #[arg(long = "allow_users", value_name = "USERS")]
    allow_users: Vec<String>,
    /// Identifies clients by tokens. The file must be accessible only to its owner; each line has a role (client, task or admin),
    /// a name and a token of 16 characters or more. A client sends its token in its session's settings, or in the metadata of its
    /// calls. The file is read again when it changes.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Limits what one client may use at a time, such as sessions=4,nodes=100000,memory=2G,calls=64; tasks and admins are not
    /// limited.
    #[arg(long = "client_quota", value_name = "QUOTA")]
    client_quota: Option<Quota>,
    /// Appends a line of JSON to this file for every session, reset, refusal and file change.
    #[arg(long = "audit_log", value_name = "FILE")]
    audit_log: Option<PathBuf>,
    #[command(flatten)]
    pub tls: TlsFlags,
    /// With --tls_cert, also serves users of this machine that connect without a certificate, as an unmodified TensorFlow client
    /// does.
    #[arg(long = "allow_plain_loopback")]
    allow_plain_loopback: bool,
}

impl ListenFlags {
    /// Opens the audit log, if there is one.
    pub fn audit_log(&self) -> Option<&Path> {
        self.audit_log.as_deref()
    }

    /// Applies the flags to a server's configuration.
    pub fn apply(&self, config: &mut ServerConfig) -> Result<(), Failure> {
        config.bind = self.bind;
        config.is_insecure = self.insecure;
        let allowed = PeerPolicy::own_user().allow_users(&self.allow_users);
        config.allowed_users = allowed.map_err(|status| status.context("--allow_users"))?;
        config.tls = self.tls.files_of_task(&config.job, config.task_index)?;
        config.audit_log.clone_from(&self.audit_log);
        config.tokens.clone_from(&self.tokens);
        config.client_quota = self.client_quota.unwrap_or_default();
        config.allows_plain_loopback = self.allow_plain_loopback;
        Ok(())
    }
}

/// Raises the limit of open files as far as the system allows. The default is low, and every client connection takes a
/// descriptor.
pub fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the system refuses, the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, limit);
}
