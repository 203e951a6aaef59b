//! [`Quota`]: the limits of one client of a server, and [`Quotas`], which counts usage.
//!
//! Shares (`shares`, `turns`) leave something for everybody automatically; a quota is configured. Tasks, admins and this process
//! have none.

use crate::access::Role;
use crate::client::{Caller, Client};
use foldhash::HashMap;
use parking_lot::Mutex;
use proto::service::master;
use std::sync::{Arc, Weak};
use tensor::{MemoryGroup, Result, Status, parse_memory_limit};

/// The limits of one client. What isn't set is not limited.
///
/// ```
/// use cluster::Quota;
///
/// let quota: Quota = "sessions=4,nodes=100000,memory=2G,calls=64".parse()?;
/// assert_eq!((quota.sessions, quota.memory_bytes), (Some(4), Some(2 << 30)));
/// # Ok::<(), tensor::Status>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Open sessions.
    pub sessions: Option<usize>,
    /// Nodes in the graphs of all of its sessions.
    pub nodes: Option<usize>,
    /// The memory of its sessions in the process that it is connected to.
    pub memory_bytes: Option<usize>,
    /// Pending calls.
    pub calls: Option<usize>,
}

impl std::str::FromStr for Quota {
    type Err = Status;

    fn from_str(text: &str) -> Result<Quota> {
        let mut quota = Quota::default();
        for part in text.split(',') {
            let wrong = |why: &str| Status::invalid_argument(format!("'{part}' in a quota: {why}"));
            let (name, value) = part.split_once('=').ok_or_else(|| wrong("NAME=COUNT is expected"))?;
            let count = || match value.trim().parse() {
                Ok(count) if count > 0 => Ok(count),
                _ => Err(wrong("a count is a number above 0")),
            };
            let place = match name.trim() {
                "sessions" => &mut quota.sessions,
                "nodes" => &mut quota.nodes,
                "memory" => &mut quota.memory_bytes,
                "calls" => &mut quota.calls,
                _ => return Err(wrong("there are sessions, nodes, memory and calls")),
            };
            let amount = if name.trim() == "memory" { parse_memory_limit(value.trim())? } else { count()? };
            if place.replace(amount).is_some() {
                return Err(wrong("it stands there twice"));
            }
        }
        Ok(quota)
    }
}

/// Counts the clients' usage.
pub(crate) struct Quotas {
    quota: Quota,
    clients: Mutex<HashMap<Client, Held>>,
    /// The accounts of each client's sessions, as long as something is charged to one: variables remain when a session is closed.
    memory: Mutex<HashMap<Client, Weak<MemoryGroup>>>,
}

#[derive(Default)]
struct Held {
    sessions: usize,
    nodes: usize,
    calls: usize,
}

/// The usage of a session, until this is dropped.
pub(crate) struct SessionShare {
    quotas: Option<(Arc<Quotas>, Client)>,
    nodes: usize,
    /// The key of the session's account.
    pub memory: Option<Arc<MemoryGroup>>,
}

/// A pending call, until this is dropped.
pub(crate) struct CallShare(Option<(Arc<Quotas>, Client)>);

impl Quotas {
    /// Makes the count of a server.
    pub fn new(quota: Quota) -> Arc<Quotas> {
        Arc::new(Quotas { quota, clients: Mutex::default(), memory: Mutex::default() })
    }

    /// Counts a session with a graph of this many nodes.
    pub fn open_session(self: &Arc<Self>, caller: &Caller, nodes: usize) -> Result<SessionShare> {
        if !self.applies_to(caller) {
            return Ok(SessionShare { quotas: None, nodes, memory: None });
        }
        let client = caller.client;
        let mut clients = self.clients.lock();
        let held = clients.entry(client).or_default();
        let fits = within(client, "sessions", held.sessions, 1, self.quota.sessions)
            .and_then(|()| within(client, "nodes", held.nodes, nodes, self.quota.nodes));
        if let Err(status) = fits {
            forget_if_empty(&mut clients, client);
            return Err(status);
        }
        held.sessions += 1;
        held.nodes += nodes;
        drop(clients);
        let memory = self.quota.memory_bytes.map(|limit| self.memory_of(client, limit));
        Ok(SessionShare { quotas: Some((self.clone(), client)), nodes, memory })
    }

    /// Counts a call. Only calls of the master service count, since without certificates tasks can't be told from clients, and no
    /// call that ends others counts.
    pub fn begin_call(self: &Arc<Self>, caller: &Caller, path: &str) -> Result<CallShare> {
        let counts = master::ALL.contains(&path) && path != master::CLOSE_SESSION && path != master::RESET;
        if self.quota.calls.is_none() || !counts || !self.applies_to(caller) {
            return Ok(CallShare(None));
        }
        let client = caller.client;
        let mut clients = self.clients.lock();
        let held = clients.entry(client).or_default();
        within(client, "calls under way", held.calls, 1, self.quota.calls)?;
        held.calls += 1;
        Ok(CallShare(Some((self.clone(), client))))
    }

    fn memory_of(&self, client: Client, limit_bytes: usize) -> Arc<MemoryGroup> {
        let mut memory = self.memory.lock();
        if let Some(group) = memory.get(&client).and_then(Weak::upgrade) {
            return group;
        }
        memory.retain(|_, group| group.strong_count() > 0);
        let group = MemoryGroup::new(&client.to_string(), limit_bytes);
        memory.insert(client, Arc::downgrade(&group));
        group
    }

    fn applies_to(&self, caller: &Caller) -> bool {
        let is_privileged =
            caller.principal.as_ref().is_some_and(|principal| matches!(principal.role, Role::Task | Role::Admin));
        self.quota != Quota::default() && caller.client != Client::Process && !is_privileged
    }

    fn give_back(&self, client: Client, give: impl FnOnce(&mut Held)) {
        let mut clients = self.clients.lock();
        if let Some(held) = clients.get_mut(&client) {
            give(held);
        }
        forget_if_empty(&mut clients, client);
    }
}

impl SessionShare {
    /// Counts nodes that are added to the session's graph.
    pub fn add_nodes(&mut self, nodes: usize) -> Result<()> {
        if let Some((quotas, client)) = &self.quotas {
            let mut clients = quotas.clients.lock();
            let held = clients.entry(*client).or_default();
            within(*client, "nodes", held.nodes, nodes, quotas.quota.nodes)?;
            held.nodes += nodes;
        }
        self.nodes += nodes;
        Ok(())
    }

    /// Returns the nodes that could not be added.
    pub fn remove_nodes(&mut self, nodes: usize) {
        self.nodes -= nodes;
        if let Some((quotas, client)) = &self.quotas {
            quotas.give_back(*client, |held| held.nodes -= nodes);
        }
    }
}

impl Drop for SessionShare {
    fn drop(&mut self) {
        if let Some((quotas, client)) = &self.quotas {
            quotas.give_back(*client, |held| {
                held.sessions -= 1;
                held.nodes -= self.nodes;
            });
        }
    }
}

impl Drop for CallShare {
    fn drop(&mut self) {
        if let Some((quotas, client)) = &self.0 {
            quotas.give_back(*client, |held| held.calls -= 1);
        }
    }
}

/// Removes the entry of a client that uses nothing.
fn forget_if_empty(clients: &mut HashMap<Client, Held>, client: Client) {
    if clients.get(&client).is_some_and(|held| (held.sessions, held.nodes, held.calls) == (0, 0, 0)) {
        clients.remove(&client);
    }
}

fn within(client: Client, what: &str, held: usize, more: usize, most: Option<usize>) -> Result<()> {
    match most {
        Some(most) if held.saturating_add(more) > most => Err(Status::resource_exhausted(format!(
            "{client} has {held} {what} and asks for {more} more: a client of this server may have {most} (--client_quota)"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Principal;
    use proto::service::worker;
    use tensor::Code;

    fn caller(client: Client, role: Option<Role>) -> Caller {
        let principal = role.map(|role| Arc::new(Principal { role, name: "x".to_owned() }));
        Caller { connection: 1, client, principal, presented: None }
    }

    #[test]
    fn quotas_are_read() {
        let quota: Quota = "sessions=4, nodes=10,memory=1M,calls=2".parse().unwrap();
        let told = (quota.sessions, quota.nodes, quota.memory_bytes, quota.calls);
        assert_eq!(told, (Some(4), Some(10), Some(1 << 20), Some(2)));
        for wrong in ["", "sessions", "sessions=0", "sessions=x", "threads=1", "calls=1,calls=2", "memory=lots"] {
            assert!(wrong.parse::<Quota>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn clients_have_what_they_may_and_get_it_back() {
        let quotas = Quotas::new("sessions=2,nodes=10,calls=1".parse().unwrap());
        let (ann, bob) = (caller(Client::User(1), None), caller(Client::User(2), Some(Role::Client)));
        let mut first = quotas.open_session(&ann, 6).unwrap();
        let too_large = quotas.open_session(&ann, 5).err().unwrap();
        assert_eq!(too_large.code(), Code::ResourceExhausted);
        assert!(too_large.message().contains("has 6 nodes and asks for 5 more"), "{too_large}");
        first.add_nodes(3).unwrap();
        assert!(first.add_nodes(2).is_err());
        first.remove_nodes(3);
        let second = quotas.open_session(&ann, 4).unwrap();
        assert!(quotas.open_session(&ann, 0).err().unwrap().message().contains("2 sessions"));
        assert!(quotas.open_session(&bob, 10).is_ok(), "another client has a quota of its own");
        drop((first, second));
        assert!(quotas.open_session(&ann, 10).is_ok());
        let call = quotas.begin_call(&ann, master::RUN_STEP).unwrap();
        assert!(quotas.begin_call(&ann, master::LIST_DEVICES).is_err());
        for free in [master::CLOSE_SESSION, worker::RUN_GRAPH] {
            assert!(quotas.begin_call(&ann, free).is_ok(), "{free}");
        }
        drop(call);
        assert!(quotas.begin_call(&ann, master::RUN_STEP).is_ok());
        assert!(quotas.clients.lock().is_empty(), "nothing is kept of clients that have nothing");
    }

    #[test]
    fn tasks_admins_and_this_process_have_no_quota() {
        let quotas = Quotas::new("sessions=1,nodes=1,calls=1".parse().unwrap());
        for free in [
            caller(Client::Process, None),
            caller(Client::User(1), Some(Role::Task)),
            caller(Client::User(1), Some(Role::Admin)),
        ] {
            let _held = [quotas.open_session(&free, 5).unwrap(), quotas.open_session(&free, 5).unwrap()];
            let _calls = [(); 2].map(|()| quotas.begin_call(&free, master::RUN_STEP).unwrap());
        }
    }
}
