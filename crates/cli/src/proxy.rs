//! `ferroflow proxy`: forwards clients that speak plain text only, such as TensorFlow's, to servers that require TLS.

use crate::Failure;
use crate::tls::TlsFlags;
use clap::Args;
use cluster::{PeerPolicy, Proxy};
use std::io::Write;
use tokio::signal::unix::{SignalKind, signal};

/// The servers to forward to, and the certificate to use.
#[derive(Args, Debug)]
pub struct Flags {
    /// The servers: host:port.
    #[arg(required = true, value_name = "HOST:PORT")]
    servers: Vec<String>,
    /// The port on loopback for the first server; the others get the following ones. By default, ports that are free.
    #[arg(long, default_value_t = 0)]
    port: u16,
    #[command(flatten)]
    tls: TlsFlags,
    /// Also serves these users of this machine: names or numbers, separated by commas; '*' means all.
    #[arg(long = "allow_users", value_name = "USERS")]
    allow_users: Vec<String>,
    /// Exits when its standard input closes.
    #[arg(long, hide = true)]
    attached: bool,
}

/// Forwards connections until it is told to stop.
pub fn run(flags: &Flags) -> Result<(), Failure> {
    crate::log::start("info", crate::log::LogFormat::default())?;
    let files = flags.tls.files()?.ok_or_else(|| {
        Failure::new("a proxy needs a certificate: --tls_cert, --tls_key and --tls_ca, or FERROFLOW_TLS_CERT and so on")
    })?;
    let allowed = PeerPolicy::own_user().allow_users(&flags.allow_users);
    let allowed = allowed.map_err(|status| status.context("--allow_users"))?;
    let runtime = cluster::serving_runtime(None)
        .map_err(|error| Failure::new(format!("can't start the proxy's threads: {error}")))?;
    let mut proxies = Vec::new();
    for (number, server) in flags.servers.iter().enumerate() {
        let port = match flags.port {
            0 => 0,
            first => u16::try_from(usize::from(first) + number)
                .map_err(|_| Failure::new(format!("there is no port for {server}: the first one is {first}")))?,
        };
        let proxy = Proxy::start(server, port, files.clone(), allowed.clone(), runtime.handle().clone())?;
        crate::say!("ferroflow proxy ready: {} for {server}", proxy.target());
        proxies.push(proxy);
    }
    let _ = std::io::stdout().flush();
    if flags.attached {
        std::io::stdin().lines().map_while(Result::ok).for_each(drop);
    } else {
        let stopped = runtime.block_on(async {
            let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
            tokio::select! {
                _ = terminate.recv() => crate::exit::note_sigterm(),
                _ = interrupt.recv() => {}
            }
            Ok::<(), std::io::Error>(())
        });
        stopped.map_err(|error| Failure::new(format!("signals can't be received: {error}")))?;
    }
    drop(proxies);
    runtime.shutdown_background();
    Ok(())
}
