//! [`unused_addresses`]: addresses for tasks that a program starts on its own machine.
//!
//! A port that the kernel picks may be picked again, for an outgoing connection of any process, just before a task listens on it
//! or while the task is restarted. So these ports are below the range that the kernel picks from.

use std::io::Result;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lower ports are often used by well-known services.
const LOWEST: u32 = 16_000;

/// The kernel's default, if it doesn't report its range.
const USUAL_LOWEST_PICKED: u32 = 32_768;

/// With fewer ports, two programs would likely choose the same ones.
const ENOUGH: u32 = 1_000;

/// Returns loopback addresses with ports that are free now, and that this process hasn't returned lately.
pub fn unused_addresses(count: usize) -> Result<Vec<String>> {
    let highest = lowest_picked();
    // All are open at once, so no two are the same.
    let listeners = match highest.saturating_sub(LOWEST) {
        span if span >= ENOUGH => (0..count).map(|_| open_from(span)).collect::<Result<Vec<_>>>()?,
        _ => (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<Result<Vec<_>>>()?,
    };
    listeners.iter().map(|listener| listener.local_addr().map(|address| address.to_string())).collect()
}

/// Opens the next free port of the range.
fn open_from(span: u32) -> Result<TcpListener> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut failed = None;
    for _ in 0..span {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(start());
        match TcpListener::bind(("127.0.0.1", (LOWEST + offset % span) as u16)) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into()))
}

/// Returns the start of this process's search: programs that start at the same time search from different ports.
fn start() -> u32 {
    static START: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *START.get_or_init(|| crate::RandomIds::from_system().next() as u32 >> 1)
}

/// Returns the lowest port that the kernel picks itself.
fn lowest_picked() -> u32 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
    let lowest = range.as_deref().and_then(|text| text.split_whitespace().next()).and_then(|port| port.parse().ok());
    lowest.unwrap_or(USUAL_LOWEST_PICKED).min(u32::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ_and_lie_where_the_kernel_picks_none() {
        let taken = unused_addresses(20).unwrap();
        let more = unused_addresses(20).unwrap();
        let mut ports: Vec<u32> = taken.iter().chain(&more).map(|one| one[10..].parse().unwrap()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 40);
        if lowest_picked() >= LOWEST + ENOUGH {
            assert!(ports.iter().all(|port| (LOWEST..lowest_picked()).contains(port)), "{ports:?}");
        }
        taken.iter().for_each(|address| drop(TcpListener::bind(address).unwrap()));
    }
}
