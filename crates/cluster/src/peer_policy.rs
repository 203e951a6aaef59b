//! [`PeerPolicy`]: which users of this machine a server serves.

/// Says which users may connect. The kernel proves who they are (`SO_PEERCRED`), so a peer can't claim to be another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPolicy {
    /// The user as whom the server runs.
    own_user: u32,
}

/// The user who may read and change every process anyway.
const ROOT: u32 = 0;

impl PeerPolicy {
    /// Serves the server's own user and root.
    pub fn own_user() -> PeerPolicy {
        PeerPolicy { own_user: rustix::process::geteuid().as_raw() }
    }

    /// Returns whether a user may connect.
    pub fn allows(&self, uid: u32) -> bool {
        uid == self.own_user || uid == ROOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_user_and_root_are_served() {
        let policy = PeerPolicy { own_user: 1000 };
        assert!(policy.allows(1000));
        assert!(policy.allows(ROOT));
        assert!(!policy.allows(1001));
        assert!(!policy.allows(u32::MAX));
        assert!(PeerPolicy::own_user().allows(rustix::process::geteuid().as_raw()));
    }
}
