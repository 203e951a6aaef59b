//! Addresses of streams: the offer that a task makes in the description of its devices, and the address that another task derives
//! from it, depending on whether both are on one machine.

use super::frame::VERSION;
use crate::Transport;
use crate::device::is_ours;
use proto::DeviceAttributes;
use std::fmt;
use tensor::{Result, Status};

/// The prefix of an offer, which is followed by the protocol version. The first release had no version there.
const OFFER: &str = "stream";

/// A task's offer to its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamOffer {
    /// Identifies the machine, or the network namespace of it whose sockets can reach each other.
    pub host: String,
    /// The name of the task's Unix socket; empty if it has none.
    pub unix: String,
}

impl StreamOffer {
    /// Returns the offer of a task; `None` if it uses gRPC only.
    pub fn new(transport: Transport, incarnation: u64) -> Option<StreamOffer> {
        match transport {
            Transport::Grpc => None,
            Transport::Tcp => Some(StreamOffer::default()),
            Transport::Auto | Transport::SharedMemory | Transport::Unix => Some(match host() {
                Some(host) => StreamOffer { host, unix: unix_name(incarnation) },
                None => StreamOffer::default(),
            }),
        }
    }

    /// Writes the offer for the description of a device.
    pub fn to_text(&self) -> String {
        format!(" {OFFER}{VERSION} host={} unix={}", self.host, self.unix)
    }

    /// Returns how a device's task accepts streams of this version; `None` if it doesn't.
    pub fn of(device: &DeviceAttributes) -> Option<StreamOffer> {
        if is_ours(device) { StreamOffer::from_text(&device.physical_device_desc) } else { None }
    }

    /// Returns the other stream version that a device's task uses, if it does.
    pub fn other_version(device: &DeviceAttributes) -> Option<u64> {
        let offered = device.physical_device_desc.split(' ').find_map(version_of).filter(|_| is_ours(device));
        offered.filter(|&version| version != VERSION)
    }

    /// Parses the offer in the description of a device.
    fn from_text(description: &str) -> Option<StreamOffer> {
        let mut words = description.split(' ').skip_while(|word| version_of(word) != Some(VERSION)).skip(1);
        let host = words.next()?.strip_prefix("host=")?.to_owned();
        let unix = words.next()?.strip_prefix("unix=")?.to_owned();
        Some(StreamOffer { host, unix })
    }

    /// Returns the address at which a task with the offer `self` reaches one with the offer `other`, which is `task` at `address`
    /// in the cluster and whose first device has this incarnation.
    pub fn address_of(&self, other: &StreamOffer, task: &str, address: &str, incarnation: u64) -> String {
        if !self.unix.is_empty() && !other.unix.is_empty() && self.host == other.host {
            format!("unix:{}#{incarnation:016x}@{task}", other.unix)
        } else {
            format!("tcp:{address}#{incarnation:016x}@{task}")
        }
    }
}

/// Parses the prefix of an offer.
fn version_of(word: &str) -> Option<u64> {
    match word.strip_prefix(OFFER)? {
        "" => Some(1),
        version => version.parse().ok(),
    }
}

/// Returns the name of a task's Unix socket.
pub(super) fn unix_name(incarnation: u64) -> String {
    format!("ferroflow-{incarnation:016x}")
}

/// Returns an identifier of this machine: its boot, and its sockets' network namespace. Only Linux reports these, and has the sockets
/// that a task offers to others on its machine.
fn host() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let network = std::fs::read_link("/proc/self/ns/net").ok()?;
    let number: String = network.to_str()?.chars().filter(char::is_ascii_digit).collect();
    Some(format!("{}-{number}", boot.trim()))
}

/// An address at which a task accepts streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamAddress<'a> {
    /// The endpoint.
    pub place: Place<'a>,
    /// The incarnation of the task's first device, which distinguishes it from its successor after a restart.
    pub incarnation: u64,
    /// The task's name, for messages; empty if it isn't known.
    pub task: &'a str,
}

impl fmt::Display for StreamAddress<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let task = if self.task.is_empty() { "the task" } else { self.task };
        match self.place {
            Place::Tcp(address) => write!(formatter, "{task} at {address}"),
            Place::Unix(name) => write!(formatter, "{task} at the socket {name} of this machine"),
        }
    }
}

/// The endpoint of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// `host:port`.
    Tcp(&'a str),
    /// The name of a Unix socket in the abstract namespace.
    Unix(&'a str),
}

impl<'a> StreamAddress<'a> {
    /// Reads an address.
    pub fn parse(text: &'a str) -> Result<StreamAddress<'a>> {
        let malformed = || Status::invalid_argument(format!("'{text}' is no address of a stream"));
        let (place, rest) = text.rsplit_once('#').ok_or_else(malformed)?;
        let (incarnation, task) = rest.split_once('@').unwrap_or((rest, ""));
        let incarnation = u64::from_str_radix(incarnation, 16).map_err(|_| malformed())?;
        let place = match place.split_once(':') {
            Some(("tcp", address)) => Place::Tcp(address),
            Some(("unix", name)) => Place::Unix(name),
            _ => return Err(malformed()),
        };
        Ok(StreamAddress { place, incarnation, task })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_machine_means_a_unix_socket() {
        let offer = |host: &str, unix: &str| StreamOffer { host: host.to_owned(), unix: unix.to_owned() };
        let (one, two, far, tcp) = (offer("h", "a"), offer("h", "b"), offer("x", "c"), StreamOffer::default());
        assert_eq!(one.address_of(&two, "/job:a/task:1", "m:1", 255), "unix:b#00000000000000ff@/job:a/task:1");
        assert_eq!(one.address_of(&far, "t", "m:1", 255), "tcp:m:1#00000000000000ff@t");
        assert_eq!(one.address_of(&tcp, "t", "m:1", 255), "tcp:m:1#00000000000000ff@t");
        assert_eq!(tcp.address_of(&tcp, "t", "m:1", 255), "tcp:m:1#00000000000000ff@t");
        for offer in [one, tcp] {
            assert_eq!(StreamOffer::from_text(&format!("ferroflow 0.1.0{}", offer.to_text())), Some(offer));
        }
        assert_eq!(StreamOffer::from_text("ferroflow 0.1.0"), None);
        let of_before = "ferroflow 0.1.0 stream host=h unix=a";
        assert_eq!(StreamOffer::from_text(of_before), None, "a task of another release would not be understood");
        let address = StreamAddress::parse("tcp:[::1]:22#ff").unwrap();
        assert_eq!(address, StreamAddress { place: Place::Tcp("[::1]:22"), incarnation: 255, task: "" });
        assert_eq!(address.to_string(), "the task at [::1]:22");
        let address = StreamAddress::parse("unix:b#ff@/job:a/replica:0/task:1").unwrap();
        assert_eq!(address.to_string(), "/job:a/replica:0/task:1 at the socket b of this machine");
        assert!(StreamAddress::parse("tcp:x").is_err());
        assert!(StreamAddress::parse("udp:x#1").is_err());
    }
}
