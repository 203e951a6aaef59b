//! `ferroflow server`: one task of a cluster as a process.

use crate::Failure;
use crate::attached::Attached;
use crate::files::FileFlags;
use crate::listen::ListenFlags;
use clap::Args;
use cluster::{ClusterSpec, Server, ServerConfig, TfConfig, Transport};
use ferroflow::distributed::done;
use std::ffi::OsString;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// The longest that a server may take to stop: three times the time that it gives to pending calls.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The task to run. Without any of these flags it is a cluster of one, with the job `localhost`.
#[derive(Args, Debug, Default)]
pub struct Flags {
    /// The parameter servers: host:port,host:port.
    #[arg(long = "ps_hosts", value_name = "HOSTS")]
    ps_hosts: Option<String>,
    /// The workers: host:port,host:port.
    #[arg(long = "worker_hosts", value_name = "HOSTS")]
    worker_hosts: Option<String>,
    /// The chief: host:port.
    #[arg(long = "chief_hosts", value_name = "HOSTS")]
    chief_hosts: Option<String>,
    /// The whole cluster: 'ps|host:port;host:port,worker|host:port'.
    #[arg(long = "cluster_spec", value_name = "SPEC")]
    cluster_spec: Option<String>,
    /// A JSON file with the cluster: {"ps": ["host:port"], "worker": {"0": "host:port"}}.
    #[arg(long = "cluster_file", value_name = "FILE")]
    cluster_file: Option<PathBuf>,
    /// A file with a ServerDef, binary or text.
    #[arg(long = "server_def", value_name = "FILE")]
    server_def: Option<PathBuf>,
    /// The job of this task.
    #[arg(long = "job_name", value_name = "JOB")]
    job_name: Option<String>,
    /// The index of this task in its job.
    #[arg(long = "task_index", value_name = "INDEX")]
    task_index: Option<u32>,
    /// The port to listen on, in place of the one in the cluster; without a cluster, the port of a cluster of one.
    #[arg(long)]
    port: Option<u16>,
    #[command(flatten)]
    listen: ListenFlags,
    /// The transport to other Ferroflow tasks: auto, shm, unix, tcp or grpc.
    #[arg(long, value_name = "TRANSPORT", default_value = "auto")]
    transport: Transport,
    /// The number of CPU devices of the task.
    #[arg(long = "device_count", value_name = "COUNT")]
    device_count: Option<u32>,
    /// The most sessions that clients may have open. One client always leaves an eighth of them to others.
    #[arg(long = "max_sessions", value_name = "COUNT", default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..))]
    max_sessions: u32,
    /// Ends a session that has not been used for this many seconds and whose client's connection is closed; 0 means never.
    #[arg(long = "session_gc_seconds", value_name = "SECONDS", default_value_t = 0)]
    session_gc_seconds: u64,
    /// Exits when all of the cluster's `ferroflow train` workers have reported that they are done.
    #[arg(long = "exit_when_done")]
    exit_when_done: bool,
    /// Follows the program that has started this server: it writes `done` to the standard input when it has finished.
    #[arg(long, hide = true)]
    attached: bool,
    /// The number of threads that serve calls and run short steps; by default half the number of cores. Expensive nodes run on as
    /// many threads as there are cores. Each peer on this machine adds a thread of its own.
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    #[command(flatten)]
    status: crate::status::StatusFlags,
    #[command(flatten)]
    memory: crate::memory::MemoryFlags,
    #[command(flatten)]
    files: FileFlags,
}

/// Runs the task until it is told to stop.
pub fn run(flags: &Flags) -> Result<(), Failure> {
    crate::log::start("info", flags.status.log_format)?;
    let tf_config = tf_config()?;
    let config = flags.config(tf_config.as_deref())?;
    flags.memory.apply()?;
    flags.files.apply(flags.listen.audit_log())?;
    let runtime = cluster::serving_runtime(flags.threads)
        .map_err(|error| Failure::new(format!("can't start the server's threads: {error}")))?;
    let (job, index) = (config.job.clone(), config.task_index);
    // A worker's server has only one worker.
    let workers = if job == "worker" { 1 } else { done::trainers(&config.cluster) };
    let (cluster, allowed_users) = (config.cluster.clone(), config.allowed_users.clone());
    let server = Arc::new(Server::start(config, ops::registry(), runtime.handle().clone())?);
    flags.status.serve(vec![server.status()], allowed_users, runtime.handle())?;
    let grace = if flags.attached { done::GRACE_OF_PROGRAMS } else { done::GRACE };
    // Attached workers tell the parameter servers themselves when their program is done.
    let mut over = match flags.exit_when_done && (job == "ps" || !flags.attached) {
        true => Some(done::watch(server.clone(), &job, index, workers, grace)?),
        false => None,
    };
    let mut program = match flags.attached {
        true => {
            let tells_parameter_servers = flags.exit_when_done;
            let attached =
                Attached { server: server.clone(), cluster, job: job.clone(), index, tells_parameter_servers };
            Some(attached.follow(tf_config.as_deref())?)
        }
        false => None,
    };
    let signals = wait_for_signals()?;
    let bound = bound_elsewhere(&server);
    // One line, at once, for whoever started this and waits for it.
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "ferroflow server ready: /job:{job}/task:{index} at {}{bound}", server.address());
    let _ = written.and_then(|()| out.flush());
    drop(out);
    runtime.handle().spawn(tell_when_asked(server.clone()));
    let status = server.status();
    runtime.block_on(async {
        let all_done = async {
            match &mut over {
                Some(over) => drop(over.await),
                None => std::future::pending().await,
            }
            Ok("all workers are done")
        };
        let program_ended = async {
            let why = match &mut program {
                Some(program) => program.await,
                None => std::future::pending().await,
            };
            Ok(why.unwrap_or("nobody follows the program any more"))
        };
        let stop = tokio::select! {
            told = signals => told.unwrap_or_else(|_| Err(std::io::Error::other("their thread has ended"))),
            told = all_done => told,
            told = program_ended => told,
            () = status.told_to_stop() => Ok("`ferroflow stop`"),
        };
        match stop {
            Ok(signal) => tracing::info!("{signal}: stopping once pending calls have ended"),
            Err(error) => tracing::error!("signals can't be received: {error}"),
        }
        server.stop().await;
    });
    runtime.shutdown_background();
    Ok(())
}

/// Returns the value of `TF_CONFIG`, if it is set.
pub fn tf_config() -> Result<Option<String>, Failure> {
    match std::env::var("TF_CONFIG") {
        Ok(text) => Ok(Some(text).filter(|text| !text.trim().is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Failure::new("TF_CONFIG is not text in UTF-8")),
    }
}

/// Describes where the server listens, if the task's address in the cluster doesn't say it.
fn bound_elsewhere(server: &Server) -> String {
    let Some(first) = server.bound().first() else { return String::new() };
    let (host, port) = server.address().rsplit_once(':').unwrap_or((server.address(), ""));
    let is_same_port = port == first.port().to_string();
    if server.is_on_all_interfaces() {
        let on_port = if is_same_port { String::new() } else { format!(", port {}", first.port()) };
        return format!(" (listening on all interfaces{on_port})");
    }
    let named: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    let is_same_host = match named {
        Some(named) => named == first.ip() || (named.is_loopback() && first.ip().is_loopback()),
        None => host == "localhost" && first.ip().is_loopback(),
    };
    if is_same_host && is_same_port { String::new() } else { format!(" (listening on {first})") }
}

/// Waits for a stop signal on a separate thread, which receives it whatever the other threads do. If they don't stop after that,
/// the process exits anyway.
fn wait_for_signals() -> Result<oneshot::Receiver<std::io::Result<&'static str>>, Failure> {
    let failed = |error| Failure::new(format!("signals can't be received: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    // Before this returns, since a signal may arrive as soon as the server is reported ready.
    let listening = runtime.block_on(async { StopSignals::listen() }).map_err(failed)?;
    let (sender, receiver) = oneshot::channel();
    let wait = move || {
        let told = runtime.block_on(listening.told_to_stop());
        let was_told = told.is_ok();
        let _ = sender.send(told);
        if was_told {
            runtime.block_on(async { tokio::time::sleep(STOP_TIMEOUT).await });
            eprintln!("calls that can't be stopped are still under way: ending without them");
            std::process::exit(1);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(failed)?;
    Ok(receiver)
}

/// Logs the state of the server on SIGUSR1.
async fn tell_when_asked(server: Arc<Server>) {
    let mut asked = match signal(SignalKind::user_defined1()) {
        Ok(asked) => asked,
        Err(error) => return tracing::warn!("SIGUSR1 can't be received: {error}"),
    };
    while asked.recv().await.is_some() {
        for (client, latency) in server.latencies() {
            tracing::info!("steps of {client}: {latency}");
        }
        // The last line, so that a reader knows that the output is complete.
        tracing::info!("{}", cluster::memory_state());
    }
}

/// The signals that stop a server.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Starts to receive the signals.
    fn listen() -> std::io::Result<StopSignals> {
        Ok(StopSignals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one of them, and returns its name.
    async fn told_to_stop(mut self) -> std::io::Result<&'static str> {
        tokio::select! {
            _ = self.terminate.recv() => {
                crate::exit::note_sigterm();
                Ok("SIGTERM")
            }
            _ = self.interrupt.recv() => Ok("SIGINT"),
        }
    }
}

impl Flags {
    /// Determines the task to run. Flags override `TF_CONFIG`.
    fn config(&self, tf_config: Option<&str>) -> Result<ServerConfig, Failure> {
        let read = |path: &PathBuf| {
            std::fs::read(path).map_err(|error| Failure::new(format!("can't read {}: {error}", path.display())))
        };
        let mut sources: Vec<&str> = Vec::new();
        let by_hosts = self.ps_hosts.is_some() || self.worker_hosts.is_some() || self.chief_hosts.is_some();
        for (is_given, name) in [
            (by_hosts, "--*_hosts"),
            (self.cluster_spec.is_some(), "--cluster_spec"),
            (self.cluster_file.is_some(), "--cluster_file"),
            (self.server_def.is_some(), "--server_def"),
        ] {
            if is_given {
                sources.push(name);
            }
        }
        if sources.len() > 1 {
            return Err(Failure::new(format!("the cluster is given more than once: {}", sources.join(" and "))));
        }
        if tf_config.is_some() {
            tracing::info!("{}", self.what_is_used(sources.first().copied()));
        }
        let mut config = if let Some(path) = &self.server_def {
            let config = ServerConfig::from_server_def_bytes(&read(path)?);
            config.map_err(|status| status.context(path.display().to_string()))?
        } else if let Some(cluster) = self.cluster(&read)? {
            let job = self.job_name.as_deref().ok_or_else(|| Failure::new("--job_name is missing"))?;
            ServerConfig::new(cluster, job, self.task_index.unwrap_or(0))?
        } else if let Some(text) = tf_config {
            TfConfig::parse_with_task(text, self.job_name.as_deref(), self.task_index)?.server_config()?
        } else {
            return self.finish(ServerConfig::local(self.port.unwrap_or(0))?, None);
        };
        if self.server_def.is_some() {
            if let Some(job) = &self.job_name {
                config.job = job.clone();
            }
            if let Some(index) = self.task_index {
                config.task_index = index;
            }
            config.cluster.task_address(&config.job, config.task_index)?;
        }
        self.finish(config, self.port)
    }

    /// Logs which parts of `TF_CONFIG` are used, beside flags.
    fn what_is_used(&self, source: Option<&str>) -> String {
        match (source, self.job_name.is_some() || self.task_index.is_some()) {
            (Some(flag), _) => format!("the cluster is that of {flag}; TF_CONFIG is set, too, and not used"),
            (None, true) => "the cluster is that of TF_CONFIG; flags say which task this is".to_owned(),
            (None, false) => "the cluster and the task are those of TF_CONFIG".to_owned(),
        }
    }

    fn finish(&self, mut config: ServerConfig, port: Option<u16>) -> Result<ServerConfig, Failure> {
        config.port = port.or(config.port);
        self.listen.apply(&mut config)?;
        config.transport = self.transport;
        config.max_sessions = Some(self.max_sessions as usize);
        config.session_gc = (self.session_gc_seconds > 0).then(|| Duration::from_secs(self.session_gc_seconds));
        if let Some(count) = self.device_count {
            config.set_device_count(i64::from(count))?;
        }
        Ok(config)
    }

    fn cluster(&self, read: &dyn Fn(&PathBuf) -> Result<Vec<u8>, Failure>) -> Result<Option<ClusterSpec>, Failure> {
        if let Some(spec) = &self.cluster_spec {
            return Ok(Some(ClusterSpec::parse(spec)?));
        }
        if let Some(path) = &self.cluster_file {
            let text = String::from_utf8_lossy(&read(path)?).into_owned();
            let cluster = ClusterSpec::from_json(&text).map_err(|status| status.context(path.display().to_string()))?;
            return Ok(Some(cluster));
        }
        let hosts = [("ps", &self.ps_hosts), ("worker", &self.worker_hosts), ("chief", &self.chief_hosts)];
        let cluster = ClusterSpec::from_hosts(&hosts)?;
        Ok((!cluster.is_empty()).then_some(cluster))
    }
}

/// Returns the arguments of `server` with `_` in the names of flags, which can be written with `-` as well.
pub fn with_underscores(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let arguments: Vec<OsString> = arguments.collect();
    if arguments.get(1).is_none_or(|command| command != "server") {
        return arguments;
    }
    let spelled = |argument: OsString| match argument.to_str().and_then(|text| text.strip_prefix("--")) {
        Some(flag) => {
            let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let name = name.replace('-', "_");
            value.map_or(format!("--{name}"), |value| format!("--{name}={value}")).into()
        }
        None => argument,
    };
    arguments.into_iter().map(spelled).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(arguments: &[&str], tf_config: Option<&str>) -> Result<ServerConfig, String> {
        #[derive(clap::Parser)]
        struct Whole {
            #[command(flatten)]
            flags: Flags,
        }
        let words = ["ferroflow", "server"].iter().chain(arguments).map(OsString::from);
        let mut words = with_underscores(words);
        words.remove(1);
        let whole = <Whole as clap::Parser>::try_parse_from(words).map_err(|error| error.to_string())?;
        whole.flags.config(tf_config).map_err(|failure| failure.message)
    }

    #[test]
    fn the_flags_of_tensorflow_scripts() {
        let flags = ["--ps_hosts=a:1,b:2", "--worker-hosts", "c:3", "--job-name=ps", "--task_index=1"];
        let config = config(&flags, None).unwrap();
        assert_eq!((config.job.as_str(), config.task_index), ("ps", 1));
        assert_eq!(config.cluster, ClusterSpec::parse("ps|a:1;b:2,worker|c:3").unwrap());
    }

    #[test]
    fn a_cluster_of_one_without_flags() {
        let config = config(&["--port=2222", "--device_count=3"], None).unwrap();
        assert_eq!(config.cluster.address("localhost", 0), Some("localhost:2222"));
        assert_eq!((config.port, config.device_count), (None, 3));
    }

    #[test]
    fn tf_config_is_used_when_no_flag_names_a_cluster() {
        let tf_config = r#"{"cluster": {"ps": ["a:1", "b:2"]}, "task": {"type": "ps", "index": 0}}"#;
        assert_eq!(config(&[], Some(tf_config)).unwrap().task_index, 0);
        assert_eq!(config(&["--task_index=1"], Some(tf_config)).unwrap().task_index, 1);
        assert_eq!(config(&["--ps_hosts=c:3", "--job_name=ps"], Some(tf_config)).unwrap().cluster.num_tasks("ps"), 1);
        assert!(config(&["--task_index=7"], Some(tf_config)).unwrap_err().contains("no task 7"));
        let alone = r#"{"cluster": {"chief": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}"#;
        assert_eq!(config(&[], Some(alone)).unwrap().cluster.address("evaluator", 0), Some("localhost:0"));
    }

    #[test]
    fn who_is_served_is_said_by_flags() {
        let usual = config(&[], None).unwrap();
        assert!(!usual.is_insecure && usual.bind.is_none());
        assert_eq!(usual.allowed_users, cluster::PeerPolicy::own_user());
        let told =
            config(&["--insecure", "--allow-users=65534,root", "--allow_users", "7", "--bind=::1"], None).unwrap();
        assert!(told.is_insecure && [7, 65534].into_iter().all(|uid| told.allowed_users.allows(uid)));
        assert!(!told.allowed_users.allows(8));
        assert_eq!(told.bind, Some("::1".parse().unwrap()));
        assert!(config(&["--allow_users=*"], None).unwrap().allowed_users.allows(8));
        assert!(config(&["--allow_users=no-such-user"], None).unwrap_err().contains("no user 'no-such-user'"));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(config(&["--ps_hosts=a:1"], None).unwrap_err().contains("--job_name"));
        assert!(config(&["--ps_hosts=a:1", "--job_name=x"], None).unwrap_err().contains("no job 'x'"));
        assert!(config(&["--ps_hosts=a:1,a:1", "--job_name=ps"], None).unwrap_err().contains("task 1 of job 'ps'"));
        let twice = config(&["--ps_hosts=a:1", "--cluster_spec=ps|a:1", "--job_name=ps"], None).unwrap_err();
        assert!(twice.contains("more than once"));
        assert!(config(&["--server_def=/no/such/file"], None).unwrap_err().contains("/no/such/file"));
    }
}
