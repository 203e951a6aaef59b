//! [`RandomIds`]: the only source of step ids, request ids, incarnations and session handles.
//!
//! A handle gives its holder all rights to a session, so it is 128 bits of the system's generator. An incarnation is public, so
//! it comes from the system's generator, too, and reveals nothing about any other number. Step and request ids are drawn in each
//! step, where a system call would be expensive: they are a keyed function (SipHash-2-4) of a counter. Without the key, which
//! never leaves the process, ids don't reveal the following ones.

use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// Draws ids that can't be guessed, and that no other task draws.
pub struct RandomIds {
    keyed: SipHasher24,
    counter: AtomicU64,
    /// Whether handles and incarnations are derived from the key as well, so that a test is reproducible.
    is_seeded: bool,
}

/// Step ids leave the upper bits free, as TensorFlow's do.
const STEP_ID_BITS: u32 = 56;

impl RandomIds {
    /// Returns a source with a fixed seed, for reproducible tests. Whoever knows the seed knows all ids.
    pub fn with_seed(seed: u64) -> RandomIds {
        RandomIds { keyed: SipHasher24::new_with_keys(seed, !seed), counter: AtomicU64::new(0), is_seeded: true }
    }

    /// Returns a source whose key comes from the operating system.
    pub fn from_system() -> RandomIds {
        let keyed = SipHasher24::new_with_keys(system_bits(), system_bits());
        RandomIds { keyed, counter: AtomicU64::new(0), is_seeded: false }
    }

    /// Returns 64 random bits that must stay private.
    pub fn next(&self) -> u64 {
        let mut keyed = self.keyed;
        keyed.write_u64(self.counter.fetch_add(1, Ordering::Relaxed));
        keyed.finish()
    }

    /// Returns a step id: positive, and random because several masters share a worker.
    pub fn next_step_id(&self) -> i64 {
        loop {
            let id = (self.next() >> (64 - STEP_ID_BITS)) as i64;
            if id != 0 {
                return id;
            }
        }
    }

    /// Returns a request id, which is never 0.
    pub fn next_request_id(&self) -> i64 {
        loop {
            let id = self.next() as i64;
            if id != 0 {
                return id;
            }
        }
    }

    /// Returns an incarnation, which is never 0 and is public.
    pub fn next_incarnation(&self) -> u64 {
        loop {
            let incarnation = self.independent();
            if incarnation != 0 {
                return incarnation;
            }
        }
    }

    /// Returns a secret of 32 hexadecimal digits: whoever knows it has the rights that it stands for.
    ///
    /// It is looked up in hash maps, which compare it with another one only if their hashes are equal, so the time of a look-up
    /// doesn't reveal how many digits of a guess are right.
    pub fn next_handle(&self) -> String {
        format!("{:016x}{:016x}", self.independent(), self.independent())
    }

    /// Returns bits that are independent of all other numbers drawn here.
    fn independent(&self) -> u64 {
        if self.is_seeded { self.next() } else { system_bits() }
    }
}

/// Returns a secret of 32 hexadecimal digits from the system's generator.
pub(crate) fn system_secret() -> String {
    format!("{:016x}{:016x}", system_bits(), system_bits())
}

/// Returns bits of the system's generator, or of the simulation that this runs in.
fn system_bits() -> u64 {
    if let Some(environment) = executor::environment::current() {
        return environment.random_bits();
    }
    // It fails only on systems that refuse random numbers altogether. A server with handles that can be guessed would be worse
    // than none.
    getrandom::u64().expect("the operating system gives no random numbers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_are_positive_and_differ() {
        let ids = RandomIds::from_system();
        let drawn: HashSet<i64> = (0..1000).map(|_| ids.next_step_id()).collect();
        assert!(drawn.iter().all(|&id| id > 0 && id < 1 << STEP_ID_BITS));
        assert_eq!(drawn.len(), 1000);
        assert_eq!(RandomIds::with_seed(1).next_handle(), RandomIds::with_seed(1).next_handle());
        assert_ne!(RandomIds::with_seed(1).next_handle(), RandomIds::with_seed(2).next_handle());
    }

    /// A regression test: the previous generator could be run backwards from one output, such as a public incarnation.
    #[test]
    fn an_incarnation_does_not_tell_what_is_drawn_next() {
        let ids = RandomIds::from_system();
        let unmixed = |mut bits: u64| {
            bits = (bits ^ (bits >> 31) ^ (bits >> 62)).wrapping_mul(0x3196_42b2_d24d_8ec3);
            bits = (bits ^ (bits >> 27) ^ (bits >> 54)).wrapping_mul(0x96de_1b17_3f11_9089);
            bits ^ (bits >> 30) ^ (bits >> 60)
        };
        let mixed = |state: u64| {
            let mut bits = state;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^ (bits >> 31)
        };
        assert_eq!(mixed(unmixed(12345)), 12345, "this does predict the old generator");
        let state = unmixed(ids.next_incarnation());
        let predicted: HashSet<u64> =
            (1..64u64).map(|n| mixed(state.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))).collect();
        for _ in 0..64 {
            assert!(!predicted.contains(&ids.next()));
            assert!(!predicted.iter().any(|bits| ids.next_handle().contains(&format!("{bits:016x}"))));
        }
    }

    #[test]
    fn a_handle_has_128_bits() {
        let ids = RandomIds::from_system();
        let handles: HashSet<String> = (0..1000).map(|_| ids.next_handle()).collect();
        assert_eq!(handles.len(), 1000);
        assert!(handles.iter().all(|handle| handle.len() == 32 && handle.bytes().all(|b| b.is_ascii_hexdigit())));
        // Every digit takes every value somewhere: none is constant.
        for place in 0..32 {
            let digits: HashSet<u8> = handles.iter().map(|handle| handle.as_bytes()[place]).collect();
            assert_eq!(digits.len(), 16, "digit {place}");
        }
    }
}
