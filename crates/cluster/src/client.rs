//! [`Client`]: the client that a call is made for. Shares of a server's resources are counted by client, however many connections
//! it opens.
//!
//! A connection belongs to a client from the moment it is accepted, and every call over it runs with that client as its
//! [`caller`], which all code that the call runs can look up.

use crate::access::Principal;
use parking_lot::Mutex;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// A user of a server, as far as it can be identified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// The process of the server itself.
    Process,
    /// A user of this machine, who owns the other end of the socket.
    User(u32),
    /// A machine, or a network that belongs to one owner.
    Address(IpAddr),
    /// The holder of a certificate, from any address.
    Principal(PrincipalId),
}

/// The name of a principal; its beginning can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PrincipalId {
    hash: u64,
    shown: [u8; SHOWN_BYTES],
}

/// The length of a principal's name that is shown.
const SHOWN_BYTES: usize = 40;

impl Client {
    /// Returns the client at an address of another machine. The owner of one IPv6 address has the 2^64 of its network, so these
    /// are one client.
    pub fn at(ip: IpAddr) -> Client {
        Client::Address(match ip.to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
            ip => ip,
        })
    }

    /// Returns the client of a principal.
    pub fn of(principal: &Principal) -> Client {
        let hash = foldhash::fast::FixedState::default().hash_one(&principal.name);
        let mut shown = [0; SHOWN_BYTES];
        shown.iter_mut().zip(principal.name.bytes()).for_each(|(shown, byte)| *shown = byte);
        Client::Principal(PrincipalId { hash, shown })
    }
}

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Client::Process => f.write_str("this process"),
            Client::User(uid) => write!(f, "user {}", crate::peer_policy::user_name(*uid)),
            Client::Address(ip @ IpAddr::V6(_)) => write!(f, "{ip}/64"),
            Client::Address(ip) => ip.fmt(f),
            Client::Principal(id) => f.write_str(String::from_utf8_lossy(&id.shown).trim_end_matches('\0')),
        }
    }
}

/// The origin of a call.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The connection; 0 is this process.
    pub connection: u64,
    /// The client of the connection.
    pub client: Client,
    /// Its principal, if it is known; without one everything is allowed.
    pub principal: Option<Arc<Principal>>,
    /// The principals whose tokens came over its connection, if the server accepts tokens.
    pub presented: Option<Arc<Presented>>,
}

/// The principals whose tokens came over a connection. Their sessions may be used over it from then on: TensorFlow's client sends
/// the token only when it opens a session, and several sessions of a program share one connection.
#[derive(Debug, Default)]
pub(crate) struct Presented(Mutex<Vec<Arc<Principal>>>);

/// The most principals of a connection.
const PRESENTED_MAX: usize = 16;

impl Presented {
    /// Adds a principal, and drops the oldest one if there are too many.
    pub fn add(&self, principal: Arc<Principal>) {
        let mut known = self.0.lock();
        if known.contains(&principal) {
            return;
        }
        if known.len() >= PRESENTED_MAX {
            known.remove(0);
        }
        known.push(principal);
    }
}

impl Caller {
    /// Returns whether the condition holds for the caller's principal, or for one whose token it has presented; true if no
    /// principal is known.
    pub fn is_anyone(&self, is_it: impl Fn(&Principal) -> bool) -> bool {
        let Some(principal) = &self.principal else { return true };
        is_it(principal) || self.presented.as_ref().is_some_and(|known| known.0.lock().iter().any(|one| is_it(one)))
    }
}

tokio::task_local! {
    static CALLER: Caller;
}

/// Runs a call with the given origin.
pub(crate) async fn called_by<F: Future>(caller: Caller, call: F) -> F::Output {
    CALLER.scope(caller, call).await
}

/// Returns the origin of the call that runs in this task; by default this process.
pub(crate) fn caller() -> Caller {
    CALLER.try_with(Caller::clone).unwrap_or(Caller {
        connection: 0,
        client: Client::Process,
        principal: None,
        presented: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_one_owner_is_one_client() {
        let at = |text: &str| Client::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
        assert_ne!(at("192.0.2.2"), at("192.0.2.1"));
        assert_eq!(at("2001:db8::1").to_string(), "2001:db8::/64");
    }

    #[tokio::test]
    async fn a_call_knows_its_caller() {
        assert_eq!(caller().client, Client::Process);
        let from = Caller { connection: 7, client: Client::User(1000), principal: None, presented: None };
        assert_eq!(called_by(from, async { (caller().connection, caller().client) }).await, (7, Client::User(1000)));
    }
}
