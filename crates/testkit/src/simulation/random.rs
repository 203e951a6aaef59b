//! [`Random`]: the random numbers of a seed.

/// Draws the same numbers from the same seed, on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns the generator of a seed; `what` names its purpose, so that two parts of a simulation draw different numbers.
    pub fn new(seed: u64, what: &str) -> Random {
        let mixed = what.bytes().fold(seed, |mixed, byte| (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut random = Random(mixed);
        random.bits();
        random
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end.max(1) as u64) as usize
    }

    /// Returns a number from `low` to `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.bits() % (high - low + 1)
    }

    /// Returns true in this many of a thousand cases.
    pub fn one_of_thousand(&mut self, cases: u64) -> bool {
        self.bits() % 1000 < cases
    }

    /// Returns a number from `low` to `high`; all orders of magnitude are equally likely.
    pub fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(1));
        let bits = self.between(u64::from(low.ilog2()), u64::from(high.ilog2()));
        (1u64 << bits).saturating_add(self.bits() % (1u64 << bits)).clamp(low, high)
    }
}
