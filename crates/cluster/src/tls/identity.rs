//! [`Identity`]: the identity in a certificate.
//!
//! A certificate states it in a URI, `spiffe://CLUSTER/job/ps/task/0`, `spiffe://CLUSTER/client/NAME` or
//! `spiffe://CLUSTER/admin/NAME`. Without such a URI, a certificate identifies the tasks whose addresses are among its names, or
//! a client if there is no such task.

use crate::ClusterSpec;
use crate::cluster_spec::split_address;
use crate::device::task_name;
use rustls::pki_types::{CertificateDer, ServerName};
use std::fmt;
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;
use webpki::EndEntityCert;

const SCHEME: &str = "spiffe://";

/// The role that a certificate's URI names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spiffe {
    /// A task.
    Task(String),
    /// A client.
    Client(String),
    /// An admin, who may do everything.
    Admin(String),
    /// A name without a known role.
    Other(String),
}

/// The identity in a certificate.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// The cluster and the role in it, if the URI states them.
    named: Option<(String, Spiffe)>,
    certificate: CertificateDer<'static>,
}

impl Spiffe {
    /// Parses a URI; returns the cluster and the role.
    pub fn parse(uri: &str) -> Option<(String, Spiffe)> {
        let (cluster, path) = uri.strip_prefix(SCHEME)?.split_once('/')?;
        let words: Vec<&str> = path.split('/').collect();
        let who = match words[..] {
            ["job", job, "task", index] if !job.is_empty() => match index.parse() {
                Ok(index) => Spiffe::Task(task_name(job, index)),
                Err(_) => Spiffe::Other(path.to_owned()),
            },
            ["client", name] if !name.is_empty() => Spiffe::Client(name.to_owned()),
            ["admin", name] if !name.is_empty() => Spiffe::Admin(name.to_owned()),
            _ => Spiffe::Other(path.to_owned()),
        };
        Some((cluster.to_owned(), who))
    }
}

impl fmt::Display for Spiffe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spiffe::Task(task) => f.write_str(task),
            Spiffe::Client(name) => write!(f, "client {name}"),
            Spiffe::Admin(name) => write!(f, "admin {name}"),
            Spiffe::Other(path) => f.write_str(path),
        }
    }
}

impl Identity {
    /// Parses a verified certificate; `None` if it can't be parsed, or has several identities.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Identity> {
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        let mut uris = parsed.valid_uri_names().filter_map(Spiffe::parse);
        let named = uris.next();
        if uris.next().is_some() {
            return None;
        }
        drop(uris);
        Some(Identity { named, certificate: certificate.clone().into_owned() })
    }

    /// Parses the certificate of the other end of a connection.
    pub fn of_peer(stream: &TlsStream<TcpStream>) -> Option<Identity> {
        stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).and_then(Identity::of)
    }

    /// Returns the cluster that the certificate belongs to, if it states one.
    pub fn cluster(&self) -> Option<&str> {
        self.named.as_ref().map(|(cluster, _)| cluster.as_str())
    }

    /// Returns the role in its URI.
    pub fn named(&self) -> Option<&Spiffe> {
        self.named.as_ref().map(|(_, named)| named)
    }

    /// Returns whether it identifies a task; `address` is the task's address, if it is known.
    pub fn is_task(&self, task: &str, address: Option<&str>) -> bool {
        match self.named() {
            Some(Spiffe::Task(named)) => named == task,
            Some(_) => false,
            None => address.is_some_and(|address| self.has_host_of(address)),
        }
    }

    /// Returns whether it identifies a task of a cluster: with a URI, of any cluster of the same authority.
    pub fn is_any_task(&self, cluster: &ClusterSpec) -> bool {
        match self.named() {
            Some(named) => matches!(named, Spiffe::Task(_)),
            None => cluster.tasks().any(|(_, _, address)| self.has_host_of(address)),
        }
    }

    /// Returns whether an address's host is one of its names.
    pub fn has_host_of(&self, address: &str) -> bool {
        let Ok((host, _)) = split_address(address) else { return false };
        let Ok(name) = ServerName::try_from(host.trim_matches(['[', ']'])) else { return false };
        let parsed = EndEntityCert::try_from(&self.certificate);
        parsed.is_ok_and(|parsed| parsed.verify_is_valid_for_subject_name(&name).is_ok())
    }

    /// Returns the name to display, which is also the caller's name.
    pub fn describe(&self) -> String {
        if let Some(named) = self.named() {
            return named.to_string();
        }
        let names = EndEntityCert::try_from(&self.certificate).ok();
        let first = names.and_then(|parsed| parsed.valid_dns_names().next().map(str::to_owned));
        first.unwrap_or_else(|| "a certificate without a name".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_tasks_clients_and_admins() {
        let read = |uri: &str| Spiffe::parse(uri).map(|(cluster, who)| format!("{cluster}: {who}"));
        assert_eq!(read("spiffe://c/job/ps/task/3").unwrap(), "c: /job:ps/replica:0/task:3");
        assert_eq!(read("spiffe://c/client/ann").unwrap(), "c: client ann");
        assert_eq!(read("spiffe://c/admin/ann").unwrap(), "c: admin ann");
        for strange in ["job/ps/task/-1", "job//task/0", "job/ps/task/0/1", "client/", "ns/default/sa/x"] {
            let (_, who) = Spiffe::parse(&format!("spiffe://c/{strange}")).unwrap();
            assert_eq!(who, Spiffe::Other(strange.to_owned()));
        }
        assert_eq!(read("https://c/job/ps/task/3"), None);
        assert_eq!(read("spiffe://c"), None);
    }
}
