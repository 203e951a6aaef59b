//! [`SocketTable`] on Linux.
//!
//! It asks the kernel for the socket with the connection's addresses in reverse (`NETLINK_SOCK_DIAG`). If that isn't available,
//! it reads the kernel's list of all sockets (`/proc/net/tcp`). The request is encoded by hand: it is one message of fixed
//! layout, for which the crates that implement netlink would bring a dozen dependencies.
//!
//! A socket that its process has closed exists for a while longer, and the kernel reports it without an owner, as uid 0. Taking
//! that for root would admit everybody who writes and closes at once, so such a socket is [`Owner::Gone`].

use super::Owner;
use parking_lot::Mutex;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The sockets of this machine.
pub(in crate::transport::grpc) struct SocketTable {
    /// What answers for one socket; `None` where only the list of all can be read.
    netlink: Option<Netlink>,
}

struct Netlink {
    socket: Mutex<OwnedFd>,
    last_sequence: AtomicU32,
}

/// The kernel answers while it handles the request, so a long wait means an error.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

const HEADER_BYTES: usize = 16;
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
/// The length of the header and of the mandatory part of an answer.
const ANSWER_BYTES: usize = HEADER_BYTES + 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const TCP: u8 = 6;
const LISTEN: u8 = 10;
const ENOENT: i32 = 2;

impl SocketTable {
    /// Opens the table. `listening` is a socket of this process, with which it tests what the kernel answers.
    pub fn open(listening: SocketAddr) -> SocketTable {
        let netlink = Netlink::open().ok().filter(|netlink| {
            let mut known = listening;
            if known.ip().is_unspecified() {
                known.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
            }
            let nobody = SocketAddr::new(known.ip(), 0);
            // A kernel without the TCP module gives the same answer as for a missing socket.
            netlink.find(known, nobody).is_ok_and(|found| found.is_some_and(|found| found.state == LISTEN))
        });
        SocketTable { netlink }
    }

    /// Returns the owner of the socket with these addresses: its own, and that of its peer.
    pub async fn owner(&self, own: SocketAddr, peer: SocketAddr) -> io::Result<Owner> {
        let (own, peer) = (canonical(own), canonical(peer));
        match &self.netlink {
            Some(netlink) => netlink.owner(own, peer),
            // The list can be long.
            None => tokio::task::spawn_blocking(move || listed_owner(own, peer)).await.map_err(io::Error::other)?,
        }
    }
}

/// Returns an address, with IPv4 addresses that a socket of IPv6 reported converted to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// The kernel's answer about a socket.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    state: u8,
    peer_port: u16,
    uid: u32,
    inode: u32,
}

impl Netlink {
    fn open() -> io::Result<Netlink> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
        // To the kernel: messages from other senders are not received.
        rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(Netlink { socket: Mutex::new(socket), last_sequence: AtomicU32::new(0) })
    }

    fn owner(&self, own: SocketAddr, peer: SocketAddr) -> io::Result<Owner> {
        Ok(match self.find(own, peer)? {
            // If there is no connection with these addresses, the kernel reports a socket that listens on the first.
            Some(found) if found.state != LISTEN && found.peer_port == peer.port() => owner(found.uid, found.inode),
            _ => Owner::NotHere,
        })
    }

    fn find(&self, own: SocketAddr, peer: SocketAddr) -> io::Result<Option<Found>> {
        let sequence = self.last_sequence.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let request = request(own, peer, sequence);
        let socket = self.socket.lock();
        rustix::net::send(&*socket, &request, SendFlags::empty())?;
        loop {
            let mut answer = [0; 1024];
            let (_, len) = rustix::net::recv(&*socket, &mut answer, RecvFlags::empty())?;
            // A late answer to an earlier request.
            if let Some(found) = read_answer(&answer[..len.min(answer.len())], sequence)? {
                return Ok(found);
            }
        }
    }
}

fn owner(uid: u32, inode: u32) -> Owner {
    if inode == 0 { Owner::Gone } else { Owner::User(uid) }
}

/// Encodes the request for one socket: `nlmsghdr` and `inet_diag_req_v2` of `linux/inet_diag.h`.
fn request(own: SocketAddr, peer: SocketAddr, sequence: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = Vec::with_capacity(REQUEST_BYTES);
    bytes.extend((REQUEST_BYTES as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend(0u32.to_ne_bytes());
    let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    bytes.extend([family.as_raw() as u8, TCP, 0, 0]);
    // In any state.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(own.port().to_be_bytes());
    bytes.extend(peer.port().to_be_bytes());
    for address in [own, peer] {
        let mut octets = [0; 16];
        match address.ip() {
            IpAddr::V4(ip) => octets[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => octets = ip.octets(),
        }
        bytes.extend(octets);
    }
    let interface = if let SocketAddr::V6(own) = own { own.scope_id() } else { 0 };
    bytes.extend(interface.to_ne_bytes());
    // Any socket, even if it wasn't queried before.
    bytes.extend([0xff; 8]);
    let mut request = [0; REQUEST_BYTES];
    request.copy_from_slice(&bytes);
    request
}

/// Parses an answer; `None` if it is to another request.
fn read_answer(answer: &[u8], sequence: u32) -> io::Result<Option<Option<Found>>> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let word = |at: usize| -> io::Result<[u8; 4]> {
        answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(malformed)
    };
    let number = |at: usize| word(at).map(u32::from_ne_bytes);
    if number(8)? != sequence {
        return Ok(None);
    }
    let [low, high, ..] = word(4)?;
    match u16::from_ne_bytes([low, high]) {
        NLMSG_ERROR => match number(HEADER_BYTES)?.cast_signed().wrapping_neg() {
            ENOENT => Ok(Some(None)),
            code => Err(io::Error::from_raw_os_error(code)),
        },
        SOCK_DIAG_BY_FAMILY if answer.len() >= ANSWER_BYTES => {
            let body = HEADER_BYTES;
            let [_, state, ..] = word(body)?;
            let [_, _, high, low] = word(body + 4)?;
            let peer_port = u16::from_be_bytes([high, low]);
            Ok(Some(Some(Found { state, peer_port, uid: number(body + 64)?, inode: number(body + 68)? })))
        }
        _ => Err(malformed()),
    }
}

/// Searches the list of all sockets.
fn listed_owner(own: SocketAddr, peer: SocketAddr) -> io::Result<Owner> {
    let mut found = Owner::NotHere;
    // An IPv6 socket may be connected to an IPv4 address.
    for (list, is_v6) in [("/proc/self/net/tcp", false), ("/proc/self/net/tcp6", true)] {
        let wanted = (listed_address(own, is_v6), listed_address(peer, is_v6));
        let (Some(wanted_own), Some(wanted_peer)) = wanted else { continue };
        let file = match File::open(list) {
            Ok(file) => file,
            Err(error) if is_v6 && error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).lines() {
            let line = line?;
            let mut words = line.split_ascii_whitespace().skip(1);
            if words.next() != Some(&wanted_own) || words.next() != Some(&wanted_peer) {
                continue;
            }
            // The fields before the owner are the state, the queues, the timer and the retransmissions; the timeout precedes the
            // inode.
            let uid = words.nth(4).and_then(|uid| uid.parse().ok());
            let inode = words.nth(1).and_then(|inode| inode.parse().ok());
            let (Some(uid), Some(inode)) = (uid, inode) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            match owner(uid, inode) {
                Owner::Gone => found = Owner::Gone,
                user => return Ok(user),
            }
        }
    }
    Ok(found)
}

/// Formats an address as in the list of sockets, which uses the processor's byte order; `None` if it isn't of this list's family.
fn listed_address(address: SocketAddr, is_v6: bool) -> Option<String> {
    let octets = match (address.ip(), is_v6) {
        (IpAddr::V4(ip), false) => ip.octets().to_vec(),
        (IpAddr::V4(ip), true) => Ipv6Addr::octets(&ip.to_ipv6_mapped()).to_vec(),
        (IpAddr::V6(ip), true) => ip.octets().to_vec(),
        (IpAddr::V6(_), false) => return None,
    };
    let words = octets.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let words: String = words.map(|word| format!("{word:08X}")).collect();
    Some(format!("{words}:{:04X}", address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    fn own_user() -> Owner {
        Owner::User(rustix::process::geteuid().as_raw())
    }

    /// A connection within this machine: its listener, the client's end and the server's.
    fn connected(ip: &str, to: &str) -> Option<(TcpListener, TcpStream, TcpStream)> {
        let listener = TcpListener::bind((ip.parse::<IpAddr>().unwrap(), 0)).ok()?;
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((to.parse::<IpAddr>().unwrap(), port)).unwrap();
        let server = listener.accept().unwrap().0;
        Some((listener, client, server))
    }

    /// Returns what both methods report about the socket at the other end of a connection.
    async fn owners(listener: &TcpListener, server: &TcpStream) -> Vec<Owner> {
        let (own, peer) = (server.peer_addr().unwrap(), server.local_addr().unwrap());
        let mut owners = vec![SocketTable { netlink: None }.owner(own, peer).await.unwrap()];
        let table = SocketTable::open(listener.local_addr().unwrap());
        if table.netlink.is_none() {
            eprintln!("NETLINK_SOCK_DIAG is not available here: only the list of sockets is tested");
        } else {
            owners.push(table.owner(own, peer).await.unwrap());
        }
        owners
    }

    #[tokio::test]
    async fn the_owner_of_the_other_socket_is_found() {
        let mapped = "::ffff:127.0.0.1";
        for (ip, to) in
            [("127.0.0.1", "127.0.0.1"), ("127.0.0.1", mapped), ("::1", "::1"), ("::", "127.0.0.1"), ("::", "::1")]
        {
            let Some((listener, _client, server)) = connected(ip, to) else {
                eprintln!("{ip} is not available here");
                continue;
            };
            assert!(owners(&listener, &server).await.iter().all(|owner| *owner == own_user()), "{ip} {to}");
        }
    }

    /// A client may send its request and close at once: its socket still exists, without an owner.
    #[tokio::test]
    async fn a_socket_that_was_closed_is_nobodys() {
        let (listener, mut client, server) = connected("127.0.0.1", "127.0.0.1").unwrap();
        client.write_all(b"do it").unwrap();
        drop(client);
        assert!(owners(&listener, &server).await.iter().all(|owner| *owner == Owner::Gone));
    }

    #[tokio::test]
    async fn a_socket_that_is_not_here_is_not_found() {
        let (listener, _client, server) = connected("127.0.0.1", "127.0.0.1").unwrap();
        let (own, peer) = (server.peer_addr().unwrap(), server.local_addr().unwrap());
        let elsewhere = SocketAddr::new("198.51.100.7".parse().unwrap(), own.port());
        let table = SocketTable::open(listener.local_addr().unwrap());
        assert_eq!(table.owner(elsewhere, peer).await.unwrap(), Owner::NotHere);
        // That socket is listening; it isn't connected.
        assert_eq!(table.owner(peer, elsewhere).await.unwrap(), Owner::NotHere);
        assert_eq!(listed_owner(elsewhere, peer).unwrap(), Owner::NotHere);
    }

    #[tokio::test]
    async fn another_user_is_told_from_this_one() {
        let (listener, client, server) = connected("127.0.0.1", "127.0.0.1").unwrap();
        const NOBODY: u32 = 65534;
        if let Err(error) = rustix::fs::fchown(&client, Some(rustix::fs::Uid::from_raw(NOBODY)), None) {
            eprintln!("skipped: only root can give a socket to another user ({error})");
            return;
        }
        assert!(owners(&listener, &server).await.iter().all(|owner| *owner == Owner::User(NOBODY)));
    }

    #[test]
    fn answers_that_make_no_sense_are_errors() {
        assert!(read_answer(&[], 1).is_err());
        assert!(read_answer(&[0; 12], 0).is_err());
        assert_eq!(read_answer(&[0; 16], 7).unwrap(), None);
        let mut error = [0; 20];
        error[4] = NLMSG_ERROR as u8;
        error[16..].copy_from_slice(&(-13i32).to_ne_bytes());
        assert_eq!(read_answer(&error, 0).unwrap_err().raw_os_error(), Some(13));
        error[16..].copy_from_slice(&(-ENOENT).to_ne_bytes());
        assert_eq!(read_answer(&error, 0).unwrap(), Some(None));
        let mut short = [0; 40];
        short[4] = SOCK_DIAG_BY_FAMILY as u8;
        assert!(read_answer(&short, 0).is_err());
    }
}
