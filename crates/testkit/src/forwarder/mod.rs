//! Forwards packets between hosts, which are network namespaces with a TUN device each, and delays, loses or withholds them. The
//! kernel's `netem` does that, too, but not every kernel has it. Conditions are set for each host and direction, and can change while
//! packets flow.

mod conditions;
mod line;
mod tun;

pub use conditions::{Change, Conditions, Directions};

use line::Line;
use std::fs::File;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The length of the longest packet with offload, and of its header.
const PACKET_BYTES_MAX: usize = (64 << 10) + tun::OFFLOAD_HEADER_BYTES;

/// The position of the destination in an IPv4 packet.
const DESTINATION: std::ops::Range<usize> = 16..20;

/// How long a thread waits before it checks again, if no packet is in flight.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);

/// A host, and the packets in flight to it.
struct Host {
    name: String,
    address: Ipv4Addr,
    device: File,
    directions: Directions,
    line: Mutex<Line>,
    /// The number of packets in the line, and the one that is being delivered, so that none overtakes them.
    num_waiting: AtomicUsize,
    has_packets: Condvar,
    counts: Counts,
}

/// Counts the packets that hosts sent, by what became of them.
#[derive(Default)]
struct Counts {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    cut: AtomicU64,
    overflowed: AtomicU64,
}

/// A forwarder between hosts. Its threads run until the process ends.
pub struct Forwarder {
    hosts: Arc<Vec<Host>>,
}

impl Forwarder {
    /// Makes a device for each host, in the network namespace of the calling thread, with the host's name; they may be moved from there to the
    /// namespaces of the hosts. With offload, up to 64 kB of a connection are forwarded at once, and lost at once. The seed decides
    /// which packets are lost.
    pub fn start(hosts: &[(String, Ipv4Addr)], has_offload: bool, seed: u64) -> std::io::Result<Forwarder> {
        let made = hosts.iter().map(|(name, address)| {
            Ok(Host {
                name: name.clone(),
                address: *address,
                device: tun::open(name, has_offload)?,
                directions: Directions::default(),
                line: Mutex::default(),
                num_waiting: AtomicUsize::new(0),
                has_packets: Condvar::new(),
                counts: Counts::default(),
            })
        });
        let hosts: Arc<Vec<Host>> = Arc::new(made.collect::<std::io::Result<_>>()?);
        let header_bytes = if has_offload { tun::OFFLOAD_HEADER_BYTES } else { 0 };
        for number in 0..hosts.len() {
            let (reading, delivering) = (hosts.clone(), hosts.clone());
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number as u64 + 1);
            std::thread::spawn(move || forward(&reading, number, header_bytes, seed));
            std::thread::spawn(move || deliver(&delivering[number]));
        }
        Ok(Forwarder { hosts })
    }

    /// Runs a command, and returns its answer: `set HOST in|out|both [delay_ms=N] [loss=PART] [cut=yes|no]`, or `counts`.
    pub fn command(&self, text: &str) -> Result<String, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["set", name, rest @ ..] => {
                let host = self.hosts.iter().find(|host| host.name == *name);
                let host = host.ok_or_else(|| format!("there is no host `{name}`"))?;
                Change::parse(rest)?.apply(&host.directions);
                Ok("ok".to_owned())
            }
            ["counts"] => Ok(self.hosts.iter().map(Host::counted).collect::<Vec<_>>().join("; ")),
            _ => Err(format!("`{text}` is none of `set HOST …` and `counts`")),
        }
    }
}

impl Host {
    fn counted(&self) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { packets, bytes, lost, cut, overflowed } = &self.counts;
        format!(
            "{}: {} packets, {} bytes, {} lost, {} cut, {} overflowed",
            self.name,
            of(packets),
            of(bytes),
            of(lost),
            of(cut),
            of(overflowed)
        )
    }

    /// Delivers a packet now, or after the delay and the packets before it.
    fn take(&self, packet: &[u8], delay: Duration) -> bool {
        if delay.is_zero() && self.num_waiting.load(Ordering::Acquire) == 0 {
            // A device that is down refuses packets, as a host that is down would.
            let _ = (&self.device).write(packet);
            return true;
        }
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = line.push(Instant::now(), delay, packet);
        if has_room && self.num_waiting.fetch_add(1, Ordering::AcqRel) == 0 {
            self.has_packets.notify_one();
        }
        has_room
    }
}

/// Reads the packets that a host sends, and passes each on to its destination.
fn forward(hosts: &[Host], number: usize, header_bytes: usize, seed: u64) {
    let host = &hosts[number];
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    let mut random = seed;
    loop {
        // Reading fails while the device is down.
        let Ok(len) = (&host.device).read(&mut buffer) else {
            std::thread::yield_now();
            continue;
        };
        let packet = &buffer[..len];
        let Some(to) = destination(&packet[header_bytes.min(len)..])
            .and_then(|address| hosts.iter().find(|host| host.address == address))
        else {
            continue;
        };
        let (out, inward, counts) = (&host.directions.outward, &to.directions.inward, &host.counts);
        let loses = |conditions: &Conditions, random: &mut u64| {
            *random = next(*random);
            conditions.loses(*random)
        };
        if out.is_cut() || inward.is_cut() {
            counts.cut.fetch_add(1, Ordering::Relaxed);
        } else if loses(out, &mut random) || loses(inward, &mut random) {
            counts.lost.fetch_add(1, Ordering::Relaxed);
        } else if to.take(packet, out.delay() + inward.delay()) {
            counts.packets.fetch_add(1, Ordering::Relaxed);
            counts.bytes.fetch_add(len as u64, Ordering::Relaxed);
        } else {
            counts.overflowed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Delivers the packets to a host when they are due.
fn deliver(host: &Host) {
    let mut line = host.line.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = Instant::now();
        match line.pop(now) {
            Some(packet) => {
                drop(line);
                let _ = (&host.device).write(&packet);
                host.num_waiting.fetch_sub(1, Ordering::AcqRel);
                line = host.line.lock().unwrap_or_else(PoisonError::into_inner);
            }
            None => {
                let wait = line.wait(now).unwrap_or(IDLE_TIME_MAX);
                (line, _) = host.has_packets.wait_timeout(line, wait).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// Returns the destination of an IPv4 packet.
fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let is_version_4 = packet.first()? >> 4 == 4;
    let bytes: [u8; 4] = packet.get(DESTINATION)?.try_into().ok()?;
    is_version_4.then(|| Ipv4Addr::from(bytes))
}

/// Returns the next number of a random sequence (SplitMix64).
fn next(state: u64) -> u64 {
    let mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_that_of_a_packet_of_ipv4() {
        let mut packet = vec![0u8; 20];
        packet[0] = 0x45;
        packet[DESTINATION].copy_from_slice(&[10, 9, 0, 3]);
        assert_eq!(destination(&packet), Some(Ipv4Addr::new(10, 9, 0, 3)));
        assert_eq!(destination(&packet[..19]), None);
        packet[0] = 0x60;
        assert_eq!(destination(&packet), None);
        assert_eq!(destination(&[]), None);
    }

    #[test]
    fn losses_come_as_often_as_they_should() {
        let host = Directions::default();
        Change::parse(&["out", "loss=0.1"]).unwrap().apply(&host);
        let mut random = 7;
        let num_lost = (0..10_000)
            .filter(|_| {
                random = next(random);
                host.outward.loses(random)
            })
            .count();
        assert!((850..1150).contains(&num_lost), "{num_lost}");
    }
}
