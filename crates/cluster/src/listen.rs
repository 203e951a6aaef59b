//! [`listen`]: the addresses that a task listens on.
//!
//! A port is never more widely open than the cluster's own addresses need, and all interfaces are opened only on request:
//!
//! - An address or name in the cluster is the user's choice. If it is a non-loopback address of this machine, exactly this
//!   address is bound; if all tasks are on loopback, loopback is.
//! - Otherwise the task is reached in a way that this machine can't see: through a service's address, a name that means loopback
//!   here while other tasks are elsewhere, or one that can't be resolved yet. Then all interfaces are necessary, and the user has
//!   to allow it.
//!
//! Starting never waits for a name server: a name that isn't resolved within a second counts as unknown.

use crate::ClusterSpec;
use crate::clock::now;
use crate::cluster_spec::split_address;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tensor::{Result, Status};

/// The environment variable that allows all interfaces if necessary; its value is `1`.
pub(crate) const INSECURE_VARIABLE: &str = "FERROFLOW_INSECURE";

/// How long to look up names before they count as unknown.
const NAMES_TIMEOUT: Duration = Duration::from_secs(1);

/// The backlog of connections.
const BACKLOG: i32 = 1024;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LOOPBACK_V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// The sockets of a task.
pub(crate) struct Listening {
    /// At least one.
    pub listeners: Vec<TcpListener>,
    /// The port of all of them.
    pub port: u16,
}

/// Configuration of where to listen, besides the task's address in the cluster.
#[derive(Clone, Copy, Default)]
pub(crate) struct Choice {
    /// Exactly this address.
    pub bind: Option<IpAddr>,
    /// All interfaces, if they are necessary.
    pub is_insecure: bool,
}

/// Opens the sockets of the task at `host` in a cluster.
pub(crate) fn listen(host: &str, port: u16, cluster: &ClusterSpec, choice: Choice) -> Result<Listening> {
    listen_with(host, port, cluster, choice, &resolve)
}

/// Looks up names until the deadline: returns the addresses of each, or none if it is unknown.
type Resolver<'a> = &'a dyn Fn(&[String], Instant) -> Vec<Vec<IpAddr>>;

fn listen_with(
    host: &str,
    port: u16,
    cluster: &ClusterSpec,
    choice: Choice,
    resolve: Resolver<'_>,
) -> Result<Listening> {
    if let Some(ip) = choice.bind {
        return bind_all(&[ip], port);
    }
    let deadline = now() + NAMES_TIMEOUT;
    if let Some(ip) = literal(host) {
        if ip == LOOPBACK || ip == LOOPBACK_V6 {
            return on_loopback(port);
        }
        return match open(ip, port) {
            Ok(listener) => Listening::of(vec![listener]),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                all_interfaces_if(choice, host, port, &format!("{ip} is no address of this machine"))
            }
            Err(error) => Err(cannot_bind(ip, port, &error)),
        };
    }
    let found = resolve(&[host.to_owned()], deadline).pop().unwrap_or_default();
    let own: Vec<IpAddr> =
        found.iter().copied().filter(|ip| !ip.is_loopback() && is_own(SocketAddr::new(*ip, 0))).collect();
    if !own.is_empty() {
        return bind_all(&own, port);
    }
    let why = match found.first() {
        None => format!("no address is known for the name '{host}'"),
        Some(_) if found.iter().all(IpAddr::is_loopback) => {
            if all_on_loopback(cluster, host, deadline, resolve) {
                return on_loopback(port);
            }
            format!("on this machine the name '{host}' stands for loopback, and other tasks are elsewhere")
        }
        Some(ip) => format!("the name '{host}' stands for {ip}, which is no address of this machine"),
    };
    all_interfaces_if(choice, host, port, &why)
}

/// Returns whether loopback reaches all tasks of a cluster, given that `own_host` is on loopback.
fn all_on_loopback(cluster: &ClusterSpec, own_host: &str, deadline: Instant, resolve: Resolver<'_>) -> bool {
    let mut names = Vec::new();
    for (_, _, address) in cluster.tasks() {
        let host = split_address(address).map_or("", |(host, _)| host);
        match literal(host) {
            Some(ip) if ip.is_loopback() => {}
            Some(_) => return false,
            None if host == own_host => {}
            None => names.push(host.to_owned()),
        }
    }
    names.sort_unstable();
    names.dedup();
    let is_there = |found: &Vec<IpAddr>| !found.is_empty() && found.iter().all(IpAddr::is_loopback);
    names.is_empty() || resolve(&names, deadline).iter().all(is_there)
}

/// Returns the address that a host denotes without a look-up.
fn literal(host: &str) -> Option<IpAddr> {
    if host.eq_ignore_ascii_case("localhost") { Some(LOOPBACK) } else { host.parse().ok() }
}

/// Looks up names on a separate thread, which is abandoned after the deadline: the system's look-up can take minutes.
fn resolve(names: &[String], deadline: Instant) -> Vec<Vec<IpAddr>> {
    let mut found = vec![Vec::new(); names.len()];
    let (sender, receiver) = channel();
    let names = names.to_vec();
    let look_up = move || {
        for (index, name) in names.into_iter().enumerate() {
            let addresses = (name.as_str(), 0).to_socket_addrs().map(|all| all.map(|one| one.ip()).collect());
            if sender.send((index, addresses.unwrap_or_default())).is_err() {
                return;
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("ferroflow-names".to_owned()).spawn(look_up) {
        tracing::warn!("no thread to look up names: {error}");
        return found;
    }
    while let Ok((index, addresses)) = receiver.recv_timeout(deadline.saturating_duration_since(now())) {
        found[index] = addresses;
    }
    found
}

/// Returns whether an address is one of this machine's, by binding it; the port doesn't matter.
pub(crate) fn is_own(mut address: SocketAddr) -> bool {
    address.set_ip(address.ip().to_canonical());
    address.set_port(0);
    UdpSocket::bind(address).is_ok()
}

fn all_interfaces_if(choice: Choice, host: &str, port: u16, why: &str) -> Result<Listening> {
    if choice.is_insecure {
        return all_interfaces(port);
    }
    let bind = own_address().map_or(String::new(), |ip| format!(", or --bind={ip} to listen on this address only"));
    Err(Status::failed_precondition(format!(
        "{why}. Others could reach the task at '{host}:{port}' only if it listened on all interfaces of this machine, and whoever \
         reaches the port can run any graph as this user: it is neither encrypted nor protected by a password. If that is meant, add \
         --insecure or set {INSECURE_VARIABLE}=1{bind}"
    )))
}

/// Returns the address by which this machine reaches others, for a suggestion. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // Any outside address works. This one is reserved for examples.
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

/// Binds both loopback addresses.
fn on_loopback(port: u16) -> Result<Listening> {
    let mut listening = bind_all(&[LOOPBACK], port)?;
    match open(LOOPBACK_V6, listening.port) {
        Ok(listener) => listening.listeners.push(listener),
        // Machines without IPv6 have no such address.
        Err(error) if error.kind() != ErrorKind::AddrInUse => {}
        // A port that the system chose may be taken on the other address; nobody has been told about it yet.
        Err(_) if port == 0 => {}
        Err(error) => return Err(cannot_bind(LOOPBACK_V6, port, &error)),
    }
    Ok(listening)
}

/// Binds these addresses and no others, all with the same port.
fn bind_all(ips: &[IpAddr], mut port: u16) -> Result<Listening> {
    let mut listeners = Vec::new();
    for &ip in ips {
        let listener = open(ip, port).map_err(|error| cannot_bind(ip, port, &error))?;
        port = port_of(&listener)?;
        listeners.push(listener);
    }
    Listening::of(listeners)
}

impl Listening {
    fn of(listeners: Vec<TcpListener>) -> Result<Listening> {
        let first = listeners.first().ok_or_else(|| Status::internal("there is no address to listen on"))?;
        Ok(Listening { port: port_of(first)?, listeners })
    }
}

fn all_interfaces(port: u16) -> Result<Listening> {
    let both = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match open(both, port) {
        Ok(listener) => Listening::of(vec![listener]),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(cannot_bind(both, port, &error)),
        Err(_) => bind_all(&[IpAddr::V4(Ipv4Addr::UNSPECIFIED)], port),
    }
}

fn open(ip: IpAddr, port: u16) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(SocketAddr::new(ip, port)), Type::STREAM, Some(Protocol::TCP))?;
    if ip.is_ipv6() {
        // The address of all interfaces takes IPv4 too; any other one is itself only.
        socket.set_only_v6(!ip.is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(ip, port).into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn port_of(listener: &TcpListener) -> Result<u16> {
    let address =
        listener.local_addr().map_err(|error| Status::internal(format!("a socket without a port: {error}")))?;
    Ok(address.port())
}

fn cannot_bind(ip: IpAddr, port: u16, error: &std::io::Error) -> Status {
    let address = SocketAddr::new(ip, port);
    match error.kind() {
        ErrorKind::AddrInUse => {
            Status::failed_precondition(format!("port {port} is in use by another process (binding {address})"))
        }
        _ => Status::failed_precondition(format!("binding {address}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREIGN: &str = "203.0.113.7";
    const INSECURE: Choice = Choice { bind: None, is_insecure: true };

    /// Resolves a few names, and no others.
    fn names(names: &[String], _deadline: Instant) -> Vec<Vec<IpAddr>> {
        let look_up = |name: &String| match name.as_str() {
            "here" | "debian" => vec!["127.0.1.1".parse().unwrap()],
            "service" => vec![FOREIGN.parse().unwrap()],
            "machine" => own_address().into_iter().collect(),
            _ => Vec::new(),
        };
        names.iter().map(look_up).collect()
    }

    fn bound(host: &str, others: &[&str], choice: Choice) -> Result<Vec<IpAddr>> {
        let addresses: Vec<String> = others.iter().map(|other| format!("{other}:1")).collect();
        let cluster = ClusterSpec::new().with_job("worker", &addresses)?;
        let listening = listen_with(host, 0, &cluster, choice, &names)?;
        Ok(listening.listeners.iter().map(|listener| listener.local_addr().unwrap().ip()).collect())
    }

    fn refusal(host: &str, others: &[&str]) -> String {
        let status = bound(host, others, Choice::default()).unwrap_err();
        assert_eq!(status.code(), tensor::Code::FailedPrecondition);
        assert!(
            status.message().contains("--insecure") && status.message().contains("FERROFLOW_INSECURE=1"),
            "{status}"
        );
        status.message().to_owned()
    }

    #[test]
    fn a_port_in_use_is_said_to_be() {
        let cluster = ClusterSpec::new();
        let first = listen("localhost", 0, &cluster, Choice::default()).unwrap();
        let status = listen("127.0.0.1", first.port, &cluster, Choice::default()).err().unwrap();
        assert!(status.message().contains(&format!("port {} is in use", first.port)), "{status}");
    }

    #[test]
    fn a_cluster_on_loopback_is_not_reached_from_elsewhere() {
        for (host, others) in [
            ("localhost", &["localhost"][..]),
            ("127.0.0.1", &["127.0.0.1", "LocalHost"]),
            ("here", &["here", "localhost", "debian", "[::1]"]),
        ] {
            let ips = bound(host, others, Choice::default()).unwrap();
            assert!(ips.iter().all(IpAddr::is_loopback), "{host}: {ips:?}");
        }
    }

    #[test]
    fn all_interfaces_are_asked_for() {
        assert!(refusal("debian", &["debian", "192.0.2.9"]).contains("stands for loopback"));
        assert!(refusal("debian", &["debian", "unknown"]).contains("stands for loopback"));
        assert!(refusal("service", &["service"]).contains(FOREIGN));
        assert!(refusal("unknown", &["unknown", "localhost"]).contains("no address is known for the name 'unknown'"));
        assert!(refusal(FOREIGN, &[FOREIGN]).contains("no address of this machine"));
        for host in ["debian", "service", "unknown", FOREIGN] {
            let ips = bound(host, &[host, "192.0.2.9"], INSECURE).unwrap();
            assert!(ips.iter().all(IpAddr::is_unspecified), "{host}: {ips:?}");
            let choice = Choice { bind: Some(LOOPBACK), is_insecure: false };
            assert_eq!(bound(host, &[host], choice).unwrap(), [LOOPBACK]);
        }
    }

    #[test]
    fn an_address_of_this_machine_is_bound_exactly() {
        let Some(own) = own_address() else {
            eprintln!("skipped: this machine has no address but loopback");
            return;
        };
        assert!(is_own(SocketAddr::new(own, 7)) && !is_own(SocketAddr::new(FOREIGN.parse().unwrap(), 7)));
        // The user's own choice stays narrow, whatever is allowed.
        for choice in [Choice::default(), INSECURE] {
            assert_eq!(bound(&own.to_string(), &["192.0.2.9"], choice).unwrap(), [own]);
            assert_eq!(bound("machine", &["machine", "192.0.2.9"], choice).unwrap(), [own]);
        }
    }

    #[test]
    fn a_name_server_that_is_silent_holds_nothing_up() {
        let late = |names: &[String], deadline: Instant| {
            assert!(deadline <= Instant::now() + NAMES_TIMEOUT);
            vec![Vec::new(); names.len()]
        };
        let cluster = ClusterSpec::new().with_job("worker", &["slow:1"]).unwrap();
        assert!(listen_with("slow", 0, &cluster, Choice::default(), &late).is_err());
        // A deadline that has passed ends the look-up, whatever the name server does.
        assert_eq!(resolve(&["slow.invalid".to_owned()], Instant::now()), [Vec::<IpAddr>::new()]);
    }
}
