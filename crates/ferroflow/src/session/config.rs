//! [`SessionConfig`]: the settings of a session.

use cluster::{ClusterSpec, TlsFiles};
use proto::{ConfigProto, SessionMetadata, optimizer_options::Level};
use std::time::Duration;

/// The settings of a session, as `tf.ConfigProto` has them.
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
/// It is TensorFlow's message in another form: `From` leads both ways, and settings that have no method here are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionConfig(ConfigProto, Option<TlsFiles>);

impl SessionConfig {
    /// Returns the settings that a session has when nothing is set.
    ///
    /// ```
    /// assert_eq!(ferroflow::SessionConfig::new(), ferroflow::SessionConfig::default());
    /// ```
    pub fn new() -> SessionConfig {
        SessionConfig::default()
    }

    /// Sets which tasks of the cluster the session sees, such as `/job:ps` and `/job:worker/task:0`. The others needn't be there.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().device_filters(["/job:ps", "/job:worker/task:0"]);
    /// ```
    pub fn device_filters<F: Into<String>>(mut self, filters: impl IntoIterator<Item = F>) -> Self {
        self.0.device_filters = filters.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether a node runs elsewhere when the device that it asks for isn't there. Otherwise that is an error.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().allow_soft_placement(true);
    /// ```
    pub fn allow_soft_placement(mut self, allow: bool) -> Self {
        self.0.allow_soft_placement = allow;
        self
    }

    /// Sets whether the server logs where each node runs.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().log_device_placement(true);
    /// ```
    pub fn log_device_placement(mut self, log: bool) -> Self {
        self.0.log_device_placement = log;
        self
    }

    /// Sets after which time a step, or making the session, fails with `DeadlineExceeded`. It counts in milliseconds.
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

    /// Sets whether the session's variables and queues are its own. Sessions on one server share them otherwise.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().isolate_session_state(true);
    /// ```
    pub fn isolate_session_state(mut self, isolate: bool) -> Self {
        self.0.isolate_session_state = isolate;
        self
    }

    /// Sets whether graphs are optimized before they run; they are unless told otherwise.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().optimize_graphs(false);
    /// ```
    pub fn optimize_graphs(mut self, optimize: bool) -> Self {
        let level = if optimize { Level::L1 } else { Level::L0 };
        self.0.graph_options.get_or_insert_default().optimizer_options.get_or_insert_default().opt_level = level as i32;
        self
    }

    /// Sets the tasks that the session runs on, in place of those of the server's own cluster.
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

    /// Sets the certificate that the session shows to its server, and whose certificates it believes. Without it, they are those that
    /// the environment variables `FERROFLOW_TLS_CERT`, `FERROFLOW_TLS_KEY` and `FERROFLOW_TLS_CA` name; without these, nothing is
    /// encrypted.
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

    /// Tells the server who opens the session by a token, where the server knows clients by tokens (`--tokens`). It stands in
    /// `experimental.session_metadata`, and the server passes it on to nobody. Without encryption whoever can read the network has it.
    ///
    /// ```
    /// let config = ferroflow::SessionConfig::new().token("3f1c9a52e07b4d68");
    /// ```
    pub fn token(mut self, token: &str) -> Self {
        let name = format!("ferroflow-token:{token}");
        self.0.experimental.get_or_insert_default().session_metadata = Some(SessionMetadata { name, version: 0 });
        self
    }

    /// Returns the certificate that the session shows.
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

/// Returns a time as TensorFlow's messages have it, where 0 means for ever: what is shorter than a millisecond becomes one.
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
