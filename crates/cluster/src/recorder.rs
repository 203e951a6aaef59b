//! [`Recorder`]: the flight recorder. It keeps the last steps, partitions and transfers of a task in memory of a fixed size, and
//! is always on.
//!
//! Writers never wait: each claims the next slot of a ring and fills it with relaxed stores; an event is dropped if its slot is
//! still being written. A sequence number in each slot tells readers whether it was rewritten while they read it; if so, they
//! skip it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The number of events kept, of 48 bytes each.
pub(crate) const EVENTS_MAX: usize = 1 << 12;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A step that the master ran; the subject is the session's number.
    Step = 0,
    /// A partition that the worker ran.
    Partition = 1,
    /// A tensor that was sent; the subject is the peer's index among the tasks.
    Sent = 2,
    /// A tensor that was received.
    Received = 3,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The kind.
    pub kind: Kind,
    /// The status code if it failed, otherwise 0.
    pub code: u32,
    /// The subject, which depends on the kind.
    pub subject: u32,
    /// The step.
    pub step_id: i64,
    /// When it began, in microseconds since the epoch.
    pub start_micros: u64,
    /// How long it took.
    pub took_micros: u64,
    /// The size of the tensor.
    pub bytes: u64,
}

/// The last events.
pub(crate) struct Recorder {
    slots: Box<[Slot]>,
    /// The number of events so far.
    next: AtomicU64,
}

#[derive(Default)]
struct Slot {
    /// Twice the event's number plus one while it is being written, plus two when it is complete; 0 in an unused slot.
    sequence: AtomicU64,
    what: AtomicU64,
    step_id: AtomicU64,
    start_micros: AtomicU64,
    took_micros: AtomicU64,
    bytes: AtomicU64,
}

/// The environment variable that turns the recorder off (`off`), to measure its cost.
const SWITCH: &str = "FERROFLOW_RECORDER";

impl Default for Recorder {
    fn default() -> Recorder {
        let is_off = std::env::var_os(SWITCH).is_some_and(|value| value == "off");
        Recorder::with_slots(if is_off { 0 } else { EVENTS_MAX })
    }
}

impl Recorder {
    fn with_slots(count: usize) -> Recorder {
        Recorder { slots: (0..count).map(|_| Slot::default()).collect(), next: AtomicU64::new(0) }
    }

    /// Records an event over the oldest one.
    pub fn record(&self, event: Event) {
        if self.slots.is_empty() {
            return;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let slot = &self.slots[number as usize % EVENTS_MAX];
        // A writer that was delayed for a whole round of the ring still owns the slot, or detects that it is too late.
        let seen = slot.sequence.load(Ordering::Relaxed);
        let (begun, written) = (2 * number + 1, 2 * number + 2);
        if seen % 2 == 1
            || seen > begun
            || slot.sequence.compare_exchange(seen, begun, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        fence(Ordering::Release);
        let what = (event.kind as u64) << 40 | u64::from(event.code.min(255)) << 32 | u64::from(event.subject);
        slot.what.store(what, Ordering::Relaxed);
        slot.step_id.store(event.step_id as u64, Ordering::Relaxed);
        slot.start_micros.store(event.start_micros, Ordering::Relaxed);
        slot.took_micros.store(event.took_micros, Ordering::Relaxed);
        slot.bytes.store(event.bytes, Ordering::Relaxed);
        slot.sequence.store(written, Ordering::Release);
    }

    /// Returns the last events, at most `count`, oldest first.
    pub fn last(&self, count: usize) -> Vec<Event> {
        let next = self.next.load(Ordering::Acquire);
        let first = next.saturating_sub(count.min(EVENTS_MAX) as u64);
        (first..next).filter_map(|number| self.read(number)).collect()
    }

    fn read(&self, number: u64) -> Option<Event> {
        let slot = &self.slots[number as usize % EVENTS_MAX];
        let before = slot.sequence.load(Ordering::Acquire);
        let what = slot.what.load(Ordering::Relaxed);
        let event = Event {
            kind: match what >> 40 {
                0 => Kind::Step,
                1 => Kind::Partition,
                2 => Kind::Sent,
                _ => Kind::Received,
            },
            code: (what >> 32) as u32 & 255,
            subject: what as u32,
            step_id: slot.step_id.load(Ordering::Relaxed) as i64,
            start_micros: slot.start_micros.load(Ordering::Relaxed),
            took_micros: slot.took_micros.load(Ordering::Relaxed),
            bytes: slot.bytes.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        let after = slot.sequence.load(Ordering::Relaxed);
        (before == 2 * number + 2 && after == before).then_some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> Event {
        Event {
            kind: Kind::Received,
            code: 14,
            subject: number as u32,
            step_id: -(number as i64),
            start_micros: number,
            took_micros: number,
            bytes: number,
        }
    }

    #[test]
    fn the_last_events_are_kept() {
        let recorder = Recorder::default();
        assert!(recorder.last(10).is_empty());
        (0..EVENTS_MAX as u64 + 5).for_each(|number| recorder.record(event(number)));
        assert_eq!(recorder.last(2), [event(EVENTS_MAX as u64 + 3), event(EVENTS_MAX as u64 + 4)]);
        let all = recorder.last(usize::MAX);
        assert_eq!((all.len(), all[0]), (EVENTS_MAX, event(5)));
    }

    #[test]
    fn a_recorder_that_is_off_has_no_events() {
        let recorder = Recorder::with_slots(0);
        recorder.record(event(1));
        assert!(recorder.last(usize::MAX).is_empty());
    }

    #[test]
    fn a_reader_sees_no_event_that_is_half_written() {
        let recorder = Recorder::default();
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let recorder = &recorder;
                scope.spawn(move || (0..50_000).for_each(|number| recorder.record(event(2 * number + thread))));
            }
            for _ in 0..20 {
                for seen in recorder.last(usize::MAX) {
                    assert_eq!(seen, event(seen.start_micros));
                }
            }
        });
    }
}
