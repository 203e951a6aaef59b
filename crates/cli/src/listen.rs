//! The flags of every command that starts a server: where it listens, and whom it serves.

use crate::Failure;
use crate::tls::TlsFlags;
use clap::Args;
use cluster::{PeerPolicy, Quota, ServerConfig};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Where a server listens, and whom it serves.
#[derive(Args, Clone, Debug, Default)]
pub struct ListenFlags {
    /// The address to listen on, in place of what follows from the cluster; 0.0.0.0 means all interfaces.
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Listens on all interfaces where nothing less will do: where the task's address in the cluster is none of this machine's, stands
    /// for loopback while other tasks are elsewhere, or is a name that nobody knows yet. Whoever reaches the port can then run
    /// graphs as this user, and nothing is encrypted. FERROFLOW_INSECURE=1 means the same.
    #[arg(long)]
    insecure: bool,
    /// Serves these users of this machine, too: names or numbers, with commas between them; '*' means all. Without it, only the user
    /// who starts this and root are served.
    #[arg(long = "allow_users", value_name = "USERS")]
    allow_users: Vec<String>,
    /// Knows clients by tokens: a file, for its owner alone, with lines of a role (client, task or admin), a name and a token of 16 characters
    /// or more. A client has its own in its session's settings, or in the metadata of its calls. Read again when it changes.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// How much one client may have at once, such as sessions=4,nodes=100000,memory=2G,calls=64; tasks and admins are not bounded.
    #[arg(long = "client_quota", value_name = "QUOTA")]
    client_quota: Option<Quota>,
    /// Adds a line of JSON to this file for every session, reset, refusal and file written.
    #[arg(long = "audit_log", value_name = "FILE")]
    audit_log: Option<PathBuf>,
    #[command(flatten)]
    pub tls: TlsFlags,
    /// With --tls_cert, serves users of this machine without a certificate, too, as an unmodified TensorFlow client connects.
    #[arg(long = "allow_plain_loopback")]
    allow_plain_loopback: bool,
}

impl ListenFlags {
    /// Returns the file that is told who did what.
    pub fn audit_log(&self) -> Option<&Path> {
        self.audit_log.as_deref()
    }

    /// Tells a server what the flags say.
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

/// Raises the limit of open files as far as the system allows. The default is low, and every connection of a client takes a
/// descriptor.
pub fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the system refuses, the limit stays as it is.
    let _ = setrlimit(Resource::Nofile, limit);
}
