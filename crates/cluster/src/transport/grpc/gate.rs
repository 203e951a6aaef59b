//! [`Gate`]: determines who opened a connection, whether it is served, and the error if it isn't.
//!
//! On one machine the kernel knows who owns the other end of a socket ([`SocketTable`]), even if the connection goes to an
//! address that other machines could use as well. A user that the server doesn't serve gets an error in answer to its first call.
//! A connection from this machine whose owner can't be determined is refused, too.

use super::admission::{Admission, Admitted, PutOut};
use super::respond::respond_with_error;
use super::socket_owner::{Owner, SocketTable};
use crate::access::Principal;
use crate::audit::{AuditLog, Event};
use crate::client::Client;
use crate::clock::timeout;
use crate::listen::is_own;
use crate::log_limit::LogLimit;
use crate::peer_policy::{PeerPolicy, user_name};
use crate::tls::{Identity, Tls, Wire};
use crate::tokens::Tokens;
use crate::{ClusterSpec, ServerConfig};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tensor::Status;
use tokio::sync::Semaphore;
use tracing::warn;

/// The most refused connections that get an error at the same time; more are closed silently.
const REFUSALS_MAX: usize = 16;

/// How long a refused connection may take to make its first call and to read the answer.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The most calls of such a connection that are answered.
const REFUSED_CALLS_MAX: u32 = 8;

/// The most bytes of such a call that are received.
const REFUSED_BYTES_MAX: usize = 65_535;

/// The interval at which a line says that connections are refused.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Decides on new connections.
pub(crate) struct Gate {
    policy: PeerPolicy,
    /// TLS, if it is required; then all connections are encrypted except those that may be plain text.
    pub(super) tls: Option<Arc<Tls>>,
    allows_plain_loopback: bool,
    /// The tokens.
    pub(super) tokens: Option<Arc<Tokens>>,
    /// The audit log, which records refused connections and opened sessions.
    pub(super) audit: Option<Arc<AuditLog>>,
    /// The cluster, by whose addresses the tasks among the certificate holders are recognised.
    cluster: ClusterSpec,
    table: SocketTable,
    admission: Arc<Admission>,
    refusals: Arc<Semaphore>,
}

/// A connection that is served.
pub(super) struct Entered {
    /// Its client.
    pub client: Client,
    /// Its place.
    pub admitted: Admitted,
    /// Becomes ready when the connection must be closed for another one.
    pub put_out: PutOut,
}

impl Gate {
    /// Returns the gate of another port of this process: it checks users only, and no certificates.
    pub fn of_users(policy: PeerPolicy, listening: SocketAddr) -> Gate {
        Gate {
            policy,
            tls: None,
            allows_plain_loopback: false,
            tokens: None,
            audit: None,
            cluster: ClusterSpec::default(),
            table: SocketTable::open(listening),
            admission: Arc::new(Admission::for_this_process()),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
        }
    }

    /// Returns the gate of a server; an address that it listens on is among the arguments.
    pub fn new(
        config: &ServerConfig,
        tls: Option<Arc<Tls>>,
        tokens: Option<Arc<Tokens>>,
        audit: Option<Arc<AuditLog>>,
        listening: SocketAddr,
    ) -> Gate {
        Gate {
            policy: config.allowed_users.clone(),
            tls,
            allows_plain_loopback: config.allows_plain_loopback,
            tokens,
            audit,
            cluster: config.cluster.clone(),
            table: SocketTable::open(listening),
            admission: Arc::new(Admission::for_this_process()),
            refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
        }
    }

    /// Determines the client of a new connection and gives it a place; the error says why it is refused.
    pub(super) async fn enter(&self, peer: SocketAddr, own: SocketAddr) -> Result<Entered, Status> {
        let client = self.identify(peer, own).await?;
        match self.admission.admit(client) {
            Some((admitted, put_out)) => Ok(Entered { client, admitted, put_out }),
            None => Err(Status::resource_exhausted(format!(
                "{client} has as many connections to this server as it may have, and others need some, too"
            ))),
        }
    }

    /// Returns the principal of a connection without a certificate; the error says why it is refused.
    pub(super) fn plain(&self, client: Client) -> Result<Option<Arc<Principal>>, Status> {
        match client {
            _ if self.tls.is_none() && self.tokens.is_none() => Ok(None),
            Client::User(uid) if self.allows_plain_loopback || self.tls.is_none() => {
                let is_own = PeerPolicy::own_user().allows(uid);
                Ok(Some(Arc::new(Principal::of_user(client.to_string(), is_own, self.tokens.is_some()))))
            }
            _ if self.tls.is_none() => Err(Status::unauthenticated(
                "this server wants tokens, and takes them over TLS or from users of its machine only, since the network would read them: \
                 start it with --tls_cert",
            )),
            Client::User(_) => Err(Status::unauthenticated(
                "this server takes connections over TLS only, with a certificate: connect through `ferroflow proxy`, or start it with \
                 --allow_plain_loopback to serve users of this machine without one",
            )),
            _ => Err(Status::unauthenticated("this server takes connections over TLS only, with a certificate")),
        }
    }

    /// Returns the principal of a connection with a certificate; the error says why it is refused.
    pub(super) fn certified(&self, identity: &Identity) -> Result<Option<Arc<Principal>>, Status> {
        if let Some(tls) = &self.tls {
            tls.check_cluster(identity)?;
        }
        Ok(Some(Arc::new(Principal::of(identity, &self.cluster))))
    }

    /// Closes a silent connection because file descriptors have run out.
    pub(super) fn files_ran_out(&self) {
        self.admission.put_out_one();
    }

    /// Determines the client of a connection; the error says why it is refused.
    pub(crate) async fn identify(&self, peer: SocketAddr, own: SocketAddr) -> Result<Client, Status> {
        let is_here = || {
            let ip = peer.ip().to_canonical();
            ip.is_loopback() || ip == own.ip().to_canonical() || (!may_have_foreign_addresses(ip) && is_own(peer))
        };
        let why = match self.table.owner(peer, own).await {
            Ok(Owner::User(uid)) if self.policy.allows(uid) => return Ok(Client::User(uid)),
            Ok(Owner::User(uid)) => {
                let name = user_name(uid);
                return Err(Status::permission_denied(format!(
                    "this server serves {}, not {name}: start it with --allow_users={name} to serve this user, too",
                    self.policy
                )));
            }
            Ok(Owner::NotHere) if !is_here() => return Ok(Client::at(peer.ip())),
            Ok(Owner::NotHere | Owner::Gone) => String::new(),
            Err(_) if !is_here() => return Ok(Client::at(peer.ip())),
            Err(error) => format!(" ({error})"),
        };
        if self.policy.allows_all() {
            return Ok(Client::at(peer.ip()));
        }
        Err(Status::permission_denied(format!(
            "this server serves {}, and whose connection this is can't be found out{why}: it comes from {peer}, which is this machine, \
             but perhaps from another network namespace of it. Start the server with --allow_users='*' to serve it all the same",
            self.policy
        )))
    }

    /// Records the refusal of a connection.
    pub(super) fn note_refusal(&self, peer: SocketAddr, status: &Status) {
        if let Some(audit) = &self.audit {
            audit.write(Event::Refusal, "", peer, "", &Err(status.clone()));
        }
    }

    /// Tells a refused connection the reason, as the error of its calls, and closes it. This takes a short while at most.
    pub(super) fn refuse(&self, stream: Wire, peer: SocketAddr, status: Status) {
        static LIMIT: LogLimit = LogLimit::new(LINE_INTERVAL);
        if let Some(count) = LIMIT.allow() {
            let left_out = LogLimit::left_out(count);
            warn!("a connection from {peer} is not served: {}{left_out}", status.message());
        }
        self.note_refusal(peer, &status);
        let Ok(permit) = self.refusals.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            let _ = timeout(REFUSAL_TIMEOUT, answer_with(stream, status)).await;
            drop(permit);
        });
    }
}

/// Answers the calls of a connection with an error, and closes it after the first.
async fn answer_with(stream: Wire, status: Status) -> Result<(), h2::Error> {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(REFUSED_CALLS_MAX).initial_window_size(REFUSED_BYTES_MAX as u32);
    let mut connection = builder.handshake::<_, bytes::Bytes>(stream).await?;
    while let Some(call) = connection.accept().await {
        let (request, mut respond) = call?;
        let (mut body, status) = (request.into_body(), status.clone());
        tokio::spawn(async move {
            let mut received = 0;
            // A client that is still sending could take the answer for a broken connection. It may send this much, and no more.
            while received < REFUSED_BYTES_MAX
                && let Some(Ok(data)) = body.data().await
            {
                received += data.len();
            }
            respond_with_error(&mut respond, status);
        });
        connection.graceful_shutdown();
    }
    Ok(())
}

/// Returns whether sockets of this machine may have addresses of others, so that an address proves nothing.
fn may_have_foreign_addresses(ip: IpAddr) -> bool {
    let setting = match ip {
        IpAddr::V4(_) => "/proc/sys/net/ipv4/ip_nonlocal_bind",
        IpAddr::V6(_) => "/proc/sys/net/ipv6/ip_nonlocal_bind",
    };
    std::fs::read_to_string(setting).is_ok_and(|text| text.trim() == "1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Role;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use tensor::Code;

    fn allow(users: &[&str]) -> PeerPolicy {
        PeerPolicy::own_user().allow_users(users).unwrap()
    }

    fn gate(policy: PeerPolicy, listening: SocketAddr) -> Gate {
        Gate::new(&ServerConfig::local(0).unwrap().allowed_users(policy), None, None, None, listening)
    }

    /// The kernel reports such a socket as root's, and root is served.
    #[tokio::test]
    async fn who_sends_and_closes_at_once_is_not_taken_for_root() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(bound).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let usual = gate(allow(&[]), bound);
        assert!(usual.enter(peer, server.local_addr().unwrap()).await.is_ok(), "its own user");
        client.write_all(b"do it").unwrap();
        drop(client);
        let Err(refused) = usual.enter(peer, server.local_addr().unwrap()).await else { panic!("it was let in") };
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(refused.message().contains("--allow_users='*'"), "{refused}");
        let open = gate(allow(&["*"]), bound);
        assert!(open.enter(peer, server.local_addr().unwrap()).await.is_ok());
    }

    #[test]
    fn where_there_are_tokens_others_of_this_machine_need_one_and_other_machines_need_encryption() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        std::fs::write(&path, "client ann 0123456789abcdef\n").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let tokens = Some(Arc::new(Tokens::open(&path).unwrap()));
        let config = ServerConfig::local(0).unwrap().allowed_users(allow(&["*"]));
        let gate = Gate::new(&config, None, tokens, None, "127.0.0.1:0".parse().unwrap());
        let role = |client| gate.plain(client).map(|principal| principal.unwrap().role);
        assert_eq!(role(Client::User(rustix::process::geteuid().as_raw())).unwrap(), Role::Admin);
        assert_eq!(role(Client::User(4_000_000_000)).unwrap(), Role::Nobody);
        let status = role(Client::at("203.0.113.7".parse().unwrap())).unwrap_err();
        assert!(status.code() == Code::Unauthenticated && status.message().contains("--tls_cert"), "{status}");
    }

    #[tokio::test]
    async fn other_machines_are_clients_by_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = listener.local_addr().unwrap();
        let gate = gate(allow(&[]), bound);
        let far: SocketAddr = "203.0.113.7:5000".parse().unwrap();
        let entered = gate.enter(far, bound).await.unwrap();
        assert_eq!(entered.client, Client::at(far.ip()));
        // The kernel doesn't know this socket, but loopback is certainly this machine.
        let here: SocketAddr = "127.0.0.1:1".parse().unwrap();
        assert!(gate.enter(here, bound).await.is_err());
    }
}
