//! [`SessionConfig`]: the settings of a session.

use cluster::{ClusterSpec, TlsFiles};
use proto::{ConfigProto, SessionMetadata, optimizer_options::Level};
use std::time::Duration;

/// The settings of a session, as in `tf.ConfigProto`.
///
/// ```
/// use ferroflow::{Graph, Session, SessionConfig};
/// use std::time::Duration;
///
/// let g = Graph::new();
/// let one = g.constant(1);
/// let config = SessionConfig::new().allow_soft_placement(true).operation_timeout(Duration::from_secs(30));
/// assert_eq!(Session::connect_with(&g, "", config)?.eval::<i32>(&one)?, 1);
/// # Ok::<(), ferroflow::Status>(())
/// ```
///
/// `From` converts between this type and TensorFlow's message; settings without a method here are preserved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionConfig(ConfigProto, Option<TlsFiles>);

impl SessionConfig {
    /// Returns the default settings.
    ///
    /// ```
    /// assert_eq!(ferroflow::SessionConfig::new(), ferroflow::SessionConfig::default());
    /// ```
    pub fn new() -> SessionConfig {
        SessionConfig::default()
    }

    /// Sets the tasks that the session may use, such as `/job:ps` and `/job:worker/task:0`. The others needn't be running.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().device_filters(["/job:ps", "/job:worker/task:0"]);
    /// ```
    pub fn device_filters<F: Into<String>>(mut self, filters: impl IntoIterator<Item = F>) -> Self {
        self.0.device_filters = filters.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether a node may run on another device if the requested one doesn't exist. By default that is an error.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().allow_soft_placement(true);
    /// ```
    pub fn allow_soft_placement(mut self, allow: bool) -> Self {
        self.0.allow_soft_placement = allow;
        self
    }

    /// Sets whether the server logs the placement of nodes.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().log_device_placement(true);
    /// ```
    pub fn log_device_placement(mut self, log: bool) -> Self {
        self.0.log_device_placement = log;
        self
    }

    /// Sets the timeout after which a step, or the creation of the session, fails with `DeadlineExceeded`. Its unit is
    /// milliseconds.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let config = ferroflow::SessionConfig::new().operation_timeout(Duration::from_secs(60));
    /// ```
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.0.operation_timeout_in_ms = milliseconds(timeout);
        self
    }

    /// Sets whether the session has its own variables and queues. By default sessions on one server share them.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().isolate_session_state(true);
    /// ```
    pub fn isolate_session_state(mut self, isolate: bool) -> Self {
        self.0.isolate_session_state = isolate;
        self
    }

    /// Sets whether graphs are optimized before they run; by default they are.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().optimize_graphs(false);
    /// ```
    pub fn optimize_graphs(mut self, optimize: bool) -> Self {
        let level = if optimize { Level::L1 } else { Level::L0 };
        self.0.graph_options.get_or_insert_default().optimizer_options.get_or_insert_default().opt_level = level as i32;
        self
    }

    /// Sets the tasks that the session runs on, in place of those of the server's cluster.
    ///
    /// ```
    /// use ferroflow::SessionConfig;
    /// use ferroflow::distributed::ClusterSpec;
    ///
    /// let cluster = ClusterSpec::new().with_job("worker", &["host0:2222", "host1:2222"])?;
    /// let config = SessionConfig::new().cluster(&cluster);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn cluster(mut self, cluster: &ClusterSpec) -> Self {
        self.0.cluster_def = Some(cluster.to_proto());
        self
    }

    /// Sets the session's own certificate, and the authority that it trusts. By default they are those in the environment
    /// variables `FERROFLOW_TLS_CERT`, `FERROFLOW_TLS_KEY` and `FERROFLOW_TLS_CA`; without these, nothing is encrypted.
    ///
    /// ```
    /// use ferroflow::SessionConfig;
    /// use ferroflow::distributed::TlsFiles;
    ///
    /// let files = TlsFiles::new("certs/client-ann.pem", "certs/client-ann.key", "certs/ca.pem");
    /// let config = SessionConfig::new().tls(files);
    /// ```
    pub fn tls(mut self, files: TlsFiles) -> Self {
        self.1 = Some(files);
        self
    }

    /// Sets a token that identifies the client, for servers with `--tokens`. It is sent in `experimental.session_metadata`, and
    /// the server doesn't pass it on. Without encryption, anybody who can read the network traffic can read the token.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().token("3f1c9a52e07b4d68");
    /// ```
    pub fn token(mut self, token: &str) -> Self {
        let name = format!("ferroflow-token:{token}");
        self.0.experimental.get_or_insert_default().session_metadata = Some(SessionMetadata { name, version: 0 });
        self
    }

    /// Returns the session's certificate.
    pub(super) fn tls_files(&self) -> Option<&TlsFiles> {
        self.1.as_ref()
    }
}

impl From<ConfigProto> for SessionConfig {
    fn from(config: ConfigProto) -> SessionConfig {
        SessionConfig(config, None)
    }
}

impl From<&SessionConfig> for SessionConfig {
    fn from(config: &SessionConfig) -> SessionConfig {
        config.clone()
    }
}

impl From<SessionConfig> for ConfigProto {
    fn from(config: SessionConfig) -> ConfigProto {
        config.0
    }
}

/// Returns a timeout in milliseconds, as in TensorFlow's messages, where 0 means none: anything shorter than a millisecond
/// becomes one.
pub(super) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_method_is_kept() {
        let proto = ConfigProto { placement_period: 7, ..Default::default() };
        let config = SessionConfig::from(proto).device_filters(["/job:ps"]).operation_timeout(Duration::from_micros(1));
        let expected = ConfigProto {
            placement_period: 7,
            device_filters: vec!["/job:ps".to_owned()],
            operation_timeout_in_ms: 1,
            ..Default::default()
        };
        assert_eq!(ConfigProto::from(config), expected);
    }

    #[test]
    fn optimization_is_turned_off_and_on() {
        let switches = |config: &SessionConfig| graph::passes::OptimizeSwitches::from_config(&config.0);
        let off = SessionConfig::new().optimize_graphs(false);
        assert_eq!(switches(&off), graph::passes::OptimizeSwitches::NONE);
        assert_eq!(switches(&off.optimize_graphs(true)), graph::passes::OptimizeSwitches::ALL);
    }
}
