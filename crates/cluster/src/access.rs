//! [`Principal`]: the identity at the other end of a connection, and what it may call.
//!
//! Without certificates no identity is known, and everybody who may connect may call everything.

use crate::ClusterSpec;
use crate::task_question::ASK;
use crate::tls::{Identity, Spiffe};
use proto::service::{master, worker};
use std::fmt;
use tensor::{Result, Status};

/// The permissions of a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing, except to identify itself with a token.
    Nobody,
    /// To run graphs.
    Client,
    /// To run graphs, and to make the calls between tasks of a cluster.
    Task,
    /// Everything.
    Admin,
}

/// The identity at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    pub role: Role,
    /// Its name, for people.
    pub name: String,
}

impl Principal {
    /// Returns the principal of a certificate, in a cluster if the certificate doesn't name one itself.
    pub fn of(identity: &Identity, cluster: &ClusterSpec) -> Principal {
        let role = match identity.named() {
            Some(Spiffe::Admin(_)) => Role::Admin,
            _ if identity.is_any_task(cluster) => Role::Task,
            _ => Role::Client,
        };
        Principal { role, name: identity.describe() }
    }

    /// Returns the principal of a plain-text connection from this machine. If there are tokens, another user needs one; the
    /// server's own user could read the file anyway.
    pub fn of_user(name: String, is_own: bool, needs_token: bool) -> Principal {
        let role = match (is_own, needs_token) {
            (true, _) => Role::Admin,
            (false, false) => Role::Client,
            (false, true) => Role::Nobody,
        };
        Principal { role, name }
    }

    /// Checks that the principal may make a call. A call that isn't one of TensorFlow's belongs to another service.
    pub fn may_call(&self, path: &str) -> Result<()> {
        if self.role == Role::Nobody {
            return match path {
                // The session's settings may have a token.
                master::CREATE_SESSION | HEALTH_CHECK => Ok(()),
                _ => Err(self.needs_token()),
            };
        }
        let needed = match path {
            master::RESET => &[Role::Admin][..],
            // Clients use it to ask whether a server is still running; its answer has nothing that `ListDevices` doesn't have.
            worker::GET_STATUS => return Ok(()),
            // A master uses it to reset other tasks.
            _ if worker::ALL.contains(&path) || path == CONFIRM_STREAM || path == ASK => &[Role::Task, Role::Admin],
            _ => return Ok(()),
        };
        if needed.contains(&self.role) {
            return Ok(());
        }
        let needed: Vec<String> = needed.iter().map(Role::to_string).collect();
        Err(Status::permission_denied(format!(
            "{self} may not call {path}: that takes the certificate of {}",
            needed.join(" or ")
        )))
    }
}

impl Principal {
    /// Returns the error for a caller that must identify itself with a token.
    pub fn needs_token(&self) -> Status {
        Status::unauthenticated(format!(
            "this server wants a token of {}: set the name of experimental.session_metadata in the session's ConfigProto to \
             'ferroflow-token:TOKEN'",
            self.name
        ))
    }
}

/// gRPC's health check.
pub(crate) const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// The call by which one of our tasks confirms that it is opening a stream. TensorFlow's tasks never make it.
pub(crate) const CONFIRM_STREAM: &str = "/ferroflow.StreamService/Confirm";

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Nobody => "without a token",
            Role::Client => "a client",
            Role::Task => "a task",
            Role::Admin => "an admin",
        })
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_its_calls() {
        let may = |role, path: &str| Principal { role, name: "x".to_owned() }.may_call(path).is_ok();
        for path in master::ALL.iter().filter(|path| **path != master::RESET) {
            assert!([Role::Client, Role::Task, Role::Admin].into_iter().all(|role| may(role, path)), "{path}");
        }
        assert!(
            may(Role::Admin, master::RESET) && !may(Role::Task, master::RESET) && !may(Role::Client, master::RESET)
        );
        for path in worker::ALL.iter().filter(|path| **path != worker::GET_STATUS).chain([&CONFIRM_STREAM, &ASK]) {
            assert!(may(Role::Task, path) && may(Role::Admin, path) && !may(Role::Client, path), "{path}");
        }
        assert!(may(Role::Client, worker::GET_STATUS));
        let of_nobody: Vec<&&str> = master::ALL
            .iter()
            .chain(worker::ALL)
            .chain([&CONFIRM_STREAM, &ASK])
            .filter(|path| may(Role::Nobody, path))
            .collect();
        assert_eq!(of_nobody, [&master::CREATE_SESSION]);
    }
}
