//! [`PeerPolicy`]: the users of this machine that a server serves.

use tensor::{Result, Status};

/// Decides which users may connect. The kernel reports who they are (`SO_PEERCRED` for a Unix socket, the owner of the other
/// socket for TCP on one machine), so a peer can't claim to be another user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPolicy {
    /// The user that the server runs as.
    own_user: u32,
    others: Others,
}

/// Users that are served besides the server's own.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Others {
    /// These users.
    Users(Vec<u32>),
    /// Every user of this machine.
    All,
}

/// The user who may read and change every process in any case.
const ROOT: u32 = 0;

/// Stands for all users.
const ALL: &str = "*";

impl Default for PeerPolicy {
    fn default() -> PeerPolicy {
        PeerPolicy::own_user()
    }
}

impl PeerPolicy {
    /// Serves the server's own user and root.
    pub fn own_user() -> PeerPolicy {
        PeerPolicy { own_user: rustix::process::geteuid().as_raw(), others: Others::Users(Vec::new()) }
    }

    /// Also serves other users: names or numbers, separated by commas; `*` means all.
    pub fn allow_users<S: AsRef<str>>(mut self, users: &[S]) -> Result<PeerPolicy> {
        let words = users.iter().flat_map(|text| text.as_ref().split(',')).map(str::trim);
        for word in words.filter(|word| !word.is_empty()) {
            if word == ALL {
                self.others = Others::All;
            } else if let Others::Users(allowed) = &mut self.others {
                allowed.push(user_number(word)?);
            }
        }
        Ok(self)
    }

    /// Returns whether a user may connect.
    pub fn allows(&self, uid: u32) -> bool {
        uid == self.own_user
            || uid == ROOT
            || match &self.others {
                Others::Users(allowed) => allowed.contains(&uid),
                Others::All => true,
            }
    }

    /// Returns whether every user may connect, even one that can't be determined.
    pub fn allows_all(&self) -> bool {
        self.others == Others::All
    }
}

impl std::fmt::Display for PeerPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut users = match &self.others {
            Others::All => return f.write_str("all users of this machine"),
            Others::Users(allowed) => allowed.clone(),
        };
        users.extend([self.own_user, ROOT]);
        users.sort_unstable();
        users.dedup();
        let names: Vec<String> = users.into_iter().map(user_name).collect();
        match names.split_last() {
            Some((last, [])) => write!(f, "only {last}"),
            Some((last, others)) => write!(f, "only {} and {last}", others.join(", ")),
            None => Ok(()),
        }
    }
}

/// Returns a user's name, or the number if it has none.
pub(crate) fn user_name(uid: u32) -> String {
    let known = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid));
    known.ok().flatten().map_or_else(|| uid.to_string(), |user| user.name)
}

fn user_number(text: &str) -> Result<u32> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    match nix::unistd::User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(Status::invalid_argument(format!("this machine has no user '{text}'"))),
        Err(error) => Err(Status::invalid_argument(format!("the user '{text}' can't be looked up: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> PeerPolicy {
        PeerPolicy { own_user: 1000, ..PeerPolicy::own_user() }
    }

    #[test]
    fn only_the_own_user_and_root_are_served() {
        let policy = policy();
        assert!(policy.allows(1000));
        assert!(policy.allows(ROOT));
        assert!(!policy.allows(1001));
        assert!(!policy.allows(u32::MAX));
        assert!(PeerPolicy::own_user().allows(rustix::process::geteuid().as_raw()));
    }

    #[test]
    fn others_are_served_when_they_are_named() {
        let some = policy().allow_users(&["1001, root", "1002"]).unwrap();
        assert!([0, 1000, 1001, 1002].into_iter().all(|uid| some.allows(uid)));
        assert!(!some.allows(1003) && !some.allows_all());
        let all = policy().allow_users(&["1001", "*"]).unwrap();
        assert!(all.allows(1003) && all.allows_all());
        assert_eq!(policy().allow_users::<&str>(&[]).unwrap(), policy());
        let status = policy().allow_users(&["no-such-user"]).unwrap_err();
        assert!(status.message().contains("no user 'no-such-user'"), "{status}");
    }

    #[test]
    fn a_policy_is_said_in_words() {
        let some = policy().allow_users(&["1001"]).unwrap().to_string();
        assert!(some.starts_with("only root, ") && some.contains(" and "), "{some}");
        assert_eq!(policy().allow_users(&["*"]).unwrap().to_string(), "all users of this machine");
    }
}
