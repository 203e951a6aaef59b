//! [`Target`]: where a session's graph runs, for code that creates several sessions.

use super::{Session, SessionConfig};
use cluster::{MasterInterface, Server};
use graph::Graph;
use std::fmt;
use std::sync::Arc;
use tensor::Result;

/// Where a session's graph runs.
///
/// ```
/// use ferroflow::distributed::create_local_server;
/// use ferroflow::session::Target;
///
/// let server = create_local_server()?;
/// let targets = [Target::Local, Target::from(server.target()), Target::from(&server)];
/// assert_eq!(format!("{:?}", targets[0]), "this process");
/// assert_eq!(format!("{:?}", targets[1]), server.target());
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Default)]
pub enum Target {
    /// In this process, without a cluster.
    #[default]
    Local,
    /// On the server at `grpc://host:port`.
    Address(String),
    /// On a master in this process.
    Master(Arc<dyn MasterInterface>),
}

impl Target {
    /// Returns a session on this target.
    ///
    /// ```
    /// use ferroflow::Graph;
    /// use ferroflow::session::Target;
    ///
    /// let g = Graph::new();
    /// let one = g.constant(1f32);
    /// let session = Target::Local.session(&g, &Default::default())?;
    /// assert_eq!(session.eval::<f32>(&one)?, 1.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn session(&self, graph: &Graph, config: &SessionConfig) -> Result<Session> {
        match self {
            Target::Local => Session::connect_with(graph, "", config),
            Target::Address(address) => Session::connect_with(graph, address, config),
            Target::Master(master) => Session::on_master(graph, master.clone(), config),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Target::Local => "this process",
            Target::Address(address) => address,
            Target::Master(_) => "a master in this process",
        })
    }
}

impl From<&str> for Target {
    fn from(address: &str) -> Target {
        if address.is_empty() { Target::Local } else { Target::Address(address.to_owned()) }
    }
}

impl From<String> for Target {
    fn from(address: String) -> Target {
        Target::from(address.as_str())
    }
}

impl From<&Target> for Target {
    fn from(target: &Target) -> Target {
        target.clone()
    }
}

impl From<Arc<dyn MasterInterface>> for Target {
    fn from(master: Arc<dyn MasterInterface>) -> Target {
        Target::Master(master)
    }
}

impl From<&Server> for Target {
    fn from(server: &Server) -> Target {
        Target::Master(server.master())
    }
}
