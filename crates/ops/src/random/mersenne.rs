//! The 64-bit Mersenne Twister and the shuffle of C++'s standard library with it, for ops whose order of records is that of
//! TensorFlow's C++.

const STATE_WORDS: usize = 312;
const MIDDLE: usize = 156;
const MATRIX: u64 = 0xb502_6f5a_a966_19e9;
const UPPER_MASK: u64 = 0xffff_ffff_8000_0000;
const LOWER_MASK: u64 = 0x7fff_ffff;
const SEED_MULTIPLIER: u64 = 6_364_136_223_846_793_005;

/// MT19937-64.
pub(crate) struct MersenneTwister {
    state: [u64; STATE_WORDS],
    next: usize,
}

impl MersenneTwister {
    /// Starts from a seed.
    pub(crate) fn new(seed: u64) -> MersenneTwister {
        let mut state = [seed; STATE_WORDS];
        for index in 1..STATE_WORDS {
            let last = state[index - 1];
            state[index] = SEED_MULTIPLIER.wrapping_mul(last ^ last >> 62).wrapping_add(index as u64);
        }
        MersenneTwister { state, next: STATE_WORDS }
    }

    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        if self.next == STATE_WORDS {
            self.refill();
        }
        let mut number = self.state[self.next];
        self.next += 1;
        number ^= number >> 29 & 0x5555_5555_5555_5555;
        number ^= number << 17 & 0x71d6_7fff_eda6_0000;
        number ^= number << 37 & 0xfff7_eee0_0000_0000;
        number ^ number >> 43
    }

    /// Shuffles elements as `std::shuffle` does.
    pub(crate) fn shuffle<T>(&mut self, elements: &mut [T]) {
        let count = elements.len();
        if count < 2 {
            return;
        }
        // One number gives two positions, so an odd number of swaps starts with a single one.
        let mut place = 1;
        if count.is_multiple_of(2) {
            elements.swap(1, self.below(2) as usize);
            place = 2;
        }
        while place < count {
            let (first, second) = (place as u64 + 1, place as u64 + 2);
            let both = self.below(first * second);
            elements.swap(place, (both / second) as usize);
            elements.swap(place + 1, (both % second) as usize);
            place += 2;
        }
    }

    /// Returns a number below `bound`, as `std::uniform_int_distribution` does.
    fn below(&mut self, bound: u64) -> u64 {
        let scaling = u64::MAX / bound;
        loop {
            let number = self.next();
            if number < bound * scaling {
                return number / scaling;
            }
        }
    }

    fn refill(&mut self) {
        for index in 0..STATE_WORDS {
            let following = self.state[(index + 1) % STATE_WORDS];
            let joined = self.state[index] & UPPER_MASK | following & LOWER_MASK;
            let twist = if joined & 1 == 0 { 0 } else { MATRIX };
            self.state[index] = self.state[(index + MIDDLE) % STATE_WORDS] ^ joined >> 1 ^ twist;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_thousandth_number_is_the_one_that_the_standard_names() {
        let mut generator = MersenneTwister::new(5489);
        let last = (0..10_000).map(|_| generator.next()).last();
        assert_eq!(last, Some(9_981_545_732_273_789_042));
    }

    #[test]
    fn a_shuffle_keeps_every_element() {
        for count in 0..20 {
            let mut elements: Vec<usize> = (0..count).collect();
            MersenneTwister::new(7).shuffle(&mut elements);
            elements.sort_unstable();
            assert_eq!(elements, (0..count).collect::<Vec<_>>());
        }
    }
}
