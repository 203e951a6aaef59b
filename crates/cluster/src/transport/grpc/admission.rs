//! [`Admission`]: limits a server's connections, and each client's share of them.
//!
//! There are as many places as the process may open files, minus a reserve for other files. A client may hold a multiple of what
//! is free ([`Holdings`]). A connection that has not yet sent anything (the beginning of HTTP/2, or of a stream) can be closed to
//! make room for another one: the oldest first, since a genuine client sends at once.

use crate::client::Client;
use crate::shares::Holdings;
use foldhash::{HashMap, HashMapExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The most connections of a server, however many files it may open.
const CONNECTIONS_MAX: usize = 1 << 14;

/// The number of files reserved for other purposes than client connections.
const RESERVE_MIN: usize = 64;

/// The assumed limit of open files if the system doesn't say.
const FILES_USUAL: usize = 1024;

/// A client may hold this many times what is free: alone, four fifths.
const SHARE_FACTOR: usize = 4;

/// The places of a server.
pub(super) struct Admission {
    state: Mutex<State>,
}

struct State {
    holdings: Holdings,
    /// All connections with a place, by number.
    open: HashMap<u64, Client>,
    /// The silent connections, each with the sender that closes it. The oldest comes first.
    silent: BTreeMap<u64, (Client, oneshot::Sender<()>)>,
    last_number: u64,
}

/// A connection's place, until this is dropped or the connection is closed for another one.
pub(super) struct Admitted {
    admission: Arc<Admission>,
    number: u64,
}

/// Becomes ready when the connection is to be closed for another one.
pub(super) type PutOut = oneshot::Receiver<()>;

impl Admission {
    /// Creates as many places as this process may have.
    pub fn for_this_process() -> Admission {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let files = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Admission::new(places(if files == 0 { FILES_USUAL } else { files }))
    }

    fn new(max: usize) -> Admission {
        let holdings = Holdings::new(max, SHARE_FACTOR);
        let state = State { holdings, open: HashMap::new(), silent: BTreeMap::new(), last_number: 0 };
        Admission { state: Mutex::new(state) }
    }

    /// Takes a place for a connection of a client. If the client has its share, the oldest of its silent connections is closed;
    /// if there is no place at all, the oldest of all silent ones. `None` if there is no such connection.
    pub fn admit(self: &Arc<Self>, client: Client) -> Option<(Admitted, PutOut)> {
        let mut state = self.state.lock();
        if !state.holdings.has_room(client) {
            let mut silent = state.silent.iter();
            let own = silent.find(|(_, (other, _))| *other == client).map(|(number, _)| *number);
            let may_replace = state.holdings.is_full() && state.holdings.held(client) < SHARE_FACTOR;
            let oldest = || state.silent.keys().next().copied().filter(|_| may_replace);
            let number = own.or_else(oldest)?;
            state.put_out(number);
        }
        state.last_number += 1;
        let number = state.last_number;
        state.holdings.add(client);
        state.open.insert(number, client);
        let (sender, put_out) = oneshot::channel();
        state.silent.insert(number, (client, sender));
        Some((Admitted { admission: self.clone(), number }, put_out))
    }

    /// Closes the oldest silent connection, because file descriptors have run out.
    pub fn put_out_one(&self) {
        let mut state = self.state.lock();
        if let Some(number) = state.silent.keys().next().copied() {
            state.put_out(number);
        }
    }

    /// Returns the number of connections with a place.
    #[cfg(test)]
    pub fn open(&self) -> usize {
        self.state.lock().open.len()
    }
}

impl State {
    fn put_out(&mut self, number: u64) {
        if let Some((_, put_out)) = self.silent.remove(&number) {
            let _ = put_out.send(());
        }
        self.close(number);
    }

    fn close(&mut self, number: u64) {
        if let Some(client) = self.open.remove(&number) {
            self.holdings.remove(client);
        }
    }
}

impl Admitted {
    /// Records that the connection has sent its first bytes: it is no longer closed for others.
    pub fn has_spoken(&self) {
        self.admission.state.lock().silent.remove(&self.number);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        state.silent.remove(&self.number);
        state.close(self.number);
    }
}

/// Returns the number of connections for a process with this limit of open files.
fn places(files: usize) -> usize {
    let reserve = (files / 8).max(RESERVE_MIN).min(files / 2);
    (files - reserve).clamp(1, CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Client = Client::User(1);
    const OTHER: Client = Client::User(2);

    #[test]
    fn files_are_left_for_other_things() {
        assert_eq!(places(256), 192);
        assert_eq!(places(1024), 896);
        assert_eq!(places(20), 10);
        assert_eq!(places(1), 1);
        assert_eq!(places(usize::MAX), CONNECTIONS_MAX);
    }

    #[test]
    fn silent_connections_make_room_for_others_of_their_client() {
        let admission = Arc::new(Admission::new(10));
        let mut silent: Vec<_> = (0..8).map(|_| admission.admit(ONE).unwrap()).collect();
        let (_ninth, _) = admission.admit(ONE).expect("the oldest is put out for it");
        assert_eq!(silent[0].1.try_recv(), Ok(()));
        assert!(silent[1].1.try_recv().is_err());
        assert_eq!(admission.open(), 8);
        drop(silent);
        assert_eq!(admission.open(), 1, "one that was put out is not counted twice");
    }

    #[test]
    fn connections_that_are_in_use_are_left_alone() {
        let admission = Arc::new(Admission::new(10));
        let used: Vec<_> = (0..8).map(|_| admission.admit(ONE).unwrap()).collect();
        used.iter().for_each(|(admitted, _)| admitted.has_spoken());
        assert!(admission.admit(ONE).is_none(), "it has its share");
        let (other, _put_out) = admission.admit(OTHER).expect("another client has one, too");
        other.has_spoken();
        drop(used);
        assert_eq!(admission.open(), 1);
        assert!(admission.admit(ONE).is_some());
    }

    #[test]
    fn many_clients_that_are_silent_do_not_keep_one_out() {
        let admission = Arc::new(Admission::new(10));
        let silent: Vec<_> = (0..100).filter_map(|uid| admission.admit(Client::User(uid))).collect();
        assert_eq!(admission.open(), 10);
        assert!(admission.admit(Client::User(1000)).is_some());
        admission.put_out_one();
        assert_eq!(admission.open(), 9 - 1, "one was dropped at once, and one put out");
        drop(silent);
        assert_eq!(admission.open(), 0);
    }
}
