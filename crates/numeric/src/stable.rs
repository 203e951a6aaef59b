//! A hash and a random number generator that give the same values on every machine and in every release: FNV-1a and SplitMix64.
//! Neither is secure: whoever knows some values can compute others.

/// Returns the FNV-1a hash of some bytes.
///
/// ```
/// assert_eq!(numeric::stable::fnv1a(*b"foobar"), 0x8594_4171_f739_67e8);
/// ```
pub fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let bytes = bytes.into_iter();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The random number generator SplitMix64.
///
/// ```
/// let mut random = numeric::stable::SplitMix64::new(0);
/// assert_eq!(random.draw(), 0xe220_a839_7b1d_cdaf);
/// assert!(random.below(6) < 6);
/// ```
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns a generator with a seed.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below a limit, or 0 if the limit is 0. Slightly prefers small numbers.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.draw() % limit.max(1) as u64) as usize
    }
}
