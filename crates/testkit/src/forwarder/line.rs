//! The packets in flight to a host, in order, each with the time at which it arrives.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most bytes in flight to a host; further packets are dropped, as by the full buffer of a router.
const BYTES_MAX: usize = 256 << 20;

/// Packets in flight.
#[derive(Debug, Default)]
pub struct Line {
    packets: VecDeque<(Instant, Vec<u8>)>,
    num_bytes: usize,
}

impl Line {
    /// Adds a packet that arrives after a delay, and never before one that was sent earlier. Returns whether there was room for it.
    pub fn push(&mut self, now: Instant, delay: Duration, packet: &[u8]) -> bool {
        if self.num_bytes + packet.len() > BYTES_MAX {
            return false;
        }
        let due = self.packets.back().map_or(now + delay, |(last, _)| (*last).max(now + delay));
        self.num_bytes += packet.len();
        self.packets.push_back((due, packet.to_vec()));
        true
    }

    /// Removes and returns the next packet if it has arrived.
    pub fn pop(&mut self, now: Instant) -> Option<Vec<u8>> {
        let (due, _) = self.packets.front()?;
        if *due > now {
            return None;
        }
        let (_, packet) = self.packets.pop_front()?;
        self.num_bytes -= packet.len();
        Some(packet)
    }

    /// Returns how long it is until the next packet arrives, or `None` if there is none.
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.packets.front().map(|(due, _)| due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn packets_arrive_after_their_delay_and_in_order() {
        let (mut line, start) = (Line::default(), Instant::now());
        assert!(line.push(start, 5 * MS, b"first"));
        // The delay has become shorter in the meantime.
        assert!(line.push(start + MS, MS, b"second"));
        assert_eq!(line.wait(start), Some(5 * MS));
        assert_eq!(line.pop(start + 4 * MS), None);
        assert_eq!(line.pop(start + 5 * MS).as_deref(), Some(&b"first"[..]));
        assert_eq!(line.pop(start + 5 * MS).as_deref(), Some(&b"second"[..]));
        assert_eq!((line.pop(start + 9 * MS), line.wait(start)), (None, None));
    }

    #[test]
    fn a_full_line_drops_packets_until_some_have_arrived() {
        let (mut line, start, packet) = (Line::default(), Instant::now(), vec![0; 64 << 20]);
        assert!((0..4).all(|_| line.push(start, MS, &packet)));
        assert!(!line.push(start, MS, b"x"));
        assert!(line.pop(start + MS).is_some());
        assert!(line.push(start, MS, b"x"));
    }
}
