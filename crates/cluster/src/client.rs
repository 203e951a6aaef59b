//! [`Client`]: whom a call is for. Shares of what a server has are counted by client, whatever number of connections it opens.
//!
//! A connection belongs to a client from the moment it is accepted, and every call that comes over it runs with that client as its
//! [`caller`], which whatever the call does can ask for.

use crate::access::Principal;
use parking_lot::Mutex;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Who uses a server, as far as it can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    /// The process of the server itself.
    Process,
    /// A user of this machine, whose socket is at the other end.
    User(u32),
    /// A machine, or a network that belongs to one owner.
    Address(IpAddr),
    /// Who has shown a certificate, from wherever.
    Principal(PrincipalId),
}

/// The name of a principal, of which the beginning can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PrincipalId {
    hash: u64,
    shown: [u8; SHOWN_BYTES],
}

/// How much of the name of a principal is shown.
const SHOWN_BYTES: usize = 40;

impl Client {
    /// Returns the client at an address of another machine. Whoever has one address of IPv6 has the 2^64 of its network, so that these
    /// are one client.
    pub fn at(ip: IpAddr) -> Client {
        Client::Address(match ip.to_canonical() {
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
            ip => ip,
        })
    }

    /// Returns the client who is a principal.
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

/// Where a call came from.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The connection; 0 is this process.
    pub connection: u64,
    /// Whose connection it is.
    pub client: Client,
    /// Who it is, where that is known; without it everything is allowed.
    pub principal: Option<Arc<Principal>>,
    /// Whose tokens came over its connection, where the server takes tokens.
    pub presented: Option<Arc<Presented>>,
}

/// Those whose tokens came over a connection, whose sessions may be used over it from then on: TensorFlow's client tells the token
/// when it opens a session, and several sessions of a program share one connection.
#[derive(Debug, Default)]
pub(crate) struct Presented(Mutex<Vec<Arc<Principal>>>);

/// How many there may be.
const PRESENTED_MAX: usize = 16;

impl Presented {
    /// Adds one, in place of the oldest where there are too many.
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
    /// Returns whether it is, or has presented the token of, somebody of whom this is true; true where nobody is known.
    pub fn is_anyone(&self, is_it: impl Fn(&Principal) -> bool) -> bool {
        let Some(principal) = &self.principal else { return true };
        is_it(principal) || self.presented.as_ref().is_some_and(|known| known.0.lock().iter().any(|one| is_it(one)))
    }
}

tokio::task_local! {
    static CALLER: Caller;
}

/// Runs a call that came from somewhere else.
pub(crate) async fn called_by<F: Future>(caller: Caller, call: F) -> F::Output {
    CALLER.scope(caller, call).await
}

/// Returns where the call that runs in this task came from: without one, from this process.
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
