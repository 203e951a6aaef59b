//! [`Shares`]: limits what each client may hold of a bounded resource of the server, such as sessions.
//!
//! A fixed share would be too small for hundreds of workers of one user on one machine, and too large if there are many clients.
//! So it depends on what is left: a client may hold at most a multiple of what is free. Alone it gets nearly everything; the more
//! others hold, the less it gets; and something is always left for a newcomer.

use crate::client::Client;
use foldhash::{HashMap, HashMapExt};
use parking_lot::Mutex;
use std::sync::Arc;

/// Counts what each client holds.
pub(crate) struct Holdings {
    max: usize,
    /// A client may hold at most this many times what is free.
    factor: usize,
    total: usize,
    by_client: HashMap<Client, usize>,
}

impl Holdings {
    /// Returns the count of `max` items, all of them free. A client that is alone gets `factor / (factor + 1)` of them.
    pub fn new(max: usize, factor: usize) -> Holdings {
        Holdings { max, factor, total: 0, by_client: HashMap::new() }
    }

    /// Returns whether a client may take one more.
    pub fn has_room(&self, client: Client) -> bool {
        self.held(client) < self.max.saturating_sub(self.total).saturating_mul(self.factor)
    }

    /// Returns how many a client holds.
    pub fn held(&self, client: Client) -> usize {
        self.by_client.get(&client).copied().unwrap_or(0)
    }

    /// Returns whether none is free.
    pub fn is_full(&self) -> bool {
        self.total >= self.max
    }

    /// Counts one more.
    pub fn add(&mut self, client: Client) {
        self.total += 1;
        *self.by_client.entry(client).or_default() += 1;
    }

    /// Counts one less.
    pub fn remove(&mut self, client: Client) {
        self.total = self.total.saturating_sub(1);
        if let Some(held) = self.by_client.get_mut(&client) {
            *held -= 1;
            if *held == 0 {
                self.by_client.remove(&client);
            }
        }
    }
}

/// A bounded number of places, held by clients.
pub(crate) struct Shares {
    max: usize,
    holdings: Mutex<Holdings>,
}

/// A client's place, until this is dropped.
pub(crate) struct Place {
    shares: Arc<Shares>,
    client: Client,
}

impl Shares {
    /// Returns `max` places, of which a client that is alone gets `factor / (factor + 1)`.
    pub fn new(max: usize, factor: usize) -> Arc<Shares> {
        Arc::new(Shares { max, holdings: Mutex::new(Holdings::new(max, factor)) })
    }

    /// Takes a place; `None` if the client has its share, or none is free.
    pub fn take(self: &Arc<Self>, client: Client) -> Option<Place> {
        let mut holdings = self.holdings.lock();
        if !holdings.has_room(client) {
            return None;
        }
        holdings.add(client);
        Some(Place { shares: self.clone(), client })
    }

    /// Returns how many places there are.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Returns how many places are taken.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.holdings.lock().total
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shares.holdings.lock().remove(self.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(shares: &Arc<Shares>, client: Client) -> Vec<Place> {
        std::iter::from_fn(|| shares.take(client)).collect()
    }

    #[test]
    fn a_client_alone_gets_nearly_all_and_leaves_something() {
        let shares = Shares::new(1 << 14, 7);
        let first = take_all(&shares, Client::User(1));
        assert_eq!(first.len(), (1 << 14) / 8 * 7);
        let second = take_all(&shares, Client::User(2));
        assert!(second.len() > 1000, "{}", second.len());
        assert!(shares.take(Client::User(3)).is_some(), "a third one still gets something");
        assert!(shares.take(Client::User(1)).is_none());
        drop(first);
        assert!(shares.take(Client::User(2)).is_some(), "what one gives back, others may have");
        drop(second);
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn there_are_never_more_than_there_may_be() {
        let shares = Shares::new(10, 100);
        let held: Vec<_> = (0..20).flat_map(|uid| take_all(&shares, Client::User(uid))).collect();
        assert_eq!((held.len(), shares.taken()), (10, 10));
    }
}
