//! Entropy decoding of a scan: Huffman codes, and the blocks that they encode.

use super::ZIGZAG;

/// The number of bits per table look-up.
const LOOKUP_BITS: u32 = 9;

/// A Huffman table.
#[derive(Clone, Default)]
pub(super) struct Huffman {
    /// Length and symbol for each prefix; length zero if the code is longer.
    lookup: Vec<(u8, u8)>,
    /// For each length the first code beyond those of that length, left-aligned in 17 bits.
    past: [u32; 17],
    /// For each length the offset from a code to its symbol.
    offset: [i32; 17],
    symbols: Vec<u8>,
}

impl Huffman {
    pub(super) fn new(counts: &[u8], symbols: &[u8], is_dc: bool) -> Option<Huffman> {
        if symbols.len() > 256 || (is_dc && symbols.iter().any(|&symbol| symbol > 15)) {
            return None;
        }
        let mut table = Huffman {
            lookup: vec![(0, 0); 1 << LOOKUP_BITS],
            past: [0; 17],
            offset: [0; 17],
            symbols: symbols.to_vec(),
        };
        let (mut code, mut next) = (0u32, 0usize);
        for length in 1..=16u32 {
            let count = u32::from(*counts.get(length as usize - 1)?);
            table.offset[length as usize] = next as i32 - code as i32;
            if code + count > 1 << length {
                return None;
            }
            for _ in 0..count {
                if length <= LOOKUP_BITS {
                    let spare = LOOKUP_BITS - length;
                    let start = (code << spare) as usize;
                    table.lookup[start..start + (1 << spare)].fill((length as u8, symbols[next]));
                }
                (code, next) = (code + 1, next + 1);
            }
            table.past[length as usize] = code;
            code <<= 1;
        }
        Some(table)
    }

    fn read(&self, bits: &mut Bits<'_>) -> u8 {
        let Some(&(length, symbol)) = self.lookup.get(bits.peek(LOOKUP_BITS) as usize) else { return 0 };
        if length > 0 {
            bits.skip(u32::from(length));
            return symbol;
        }
        for length in LOOKUP_BITS + 1..=16 {
            let code = bits.peek(length);
            if code < self.past[length as usize] {
                bits.skip(length);
                let place = code as i32 + self.offset[length as usize];
                return self.symbols.get(place as usize).copied().unwrap_or(0);
            }
        }
        // There is no such code: a zero does the least harm.
        bits.skip(17);
        0
    }
}

/// The bits between two markers, followed by zeros.
pub(super) struct Bits<'a> {
    data: &'a [u8],
    position: usize,
    /// The next bits, in the highest positions.
    buffer: u64,
    count: u32,
    at_marker: bool,
    exhausted: bool,
    ended: bool,
}

impl<'a> Bits<'a> {
    pub(super) fn new(data: &'a [u8], position: usize) -> Bits<'a> {
        Bits { data, position, buffer: 0, count: 0, at_marker: false, exhausted: false, ended: false }
    }

    /// Whether more bits were read than there are.
    pub(super) fn exhausted(&self) -> bool {
        self.exhausted
    }

    /// Whether the file ended before a marker did.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Returns the position of the next marker, or what precedes it.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    fn fill(&mut self) {
        while self.count <= 56 && !self.at_marker {
            let Some(&byte) = self.data.get(self.position) else {
                (self.at_marker, self.ended) = (true, true);
                return;
            };
            if byte == 0xff {
                let mut after = self.position + 1;
                while self.data.get(after) == Some(&0xff) {
                    after += 1;
                }
                match self.data.get(after) {
                    Some(0) => self.position = after + 1,
                    Some(_) => {
                        self.at_marker = true;
                        return;
                    }
                    None => {
                        (self.at_marker, self.ended) = (true, true);
                        return;
                    }
                }
            } else {
                self.position += 1;
            }
            self.buffer |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
    }

    fn peek(&mut self, count: u32) -> u32 {
        if self.count < 32 {
            self.fill();
        }
        (self.buffer >> (64 - count)) as u32
    }

    fn skip(&mut self, count: u32) {
        if count > self.count {
            self.exhausted = true;
            (self.buffer, self.count) = (0, 0);
        } else {
            self.buffer <<= count;
            self.count -= count;
        }
    }

    fn take(&mut self, count: u32) -> u32 {
        if count == 0 {
            return 0;
        }
        let value = self.peek(count);
        self.skip(count);
        value
    }

    /// Reads a number of this many bits; the lower half of the range encodes negative numbers.
    fn number(&mut self, count: u32) -> i32 {
        let value = self.take(count) as i32;
        match count {
            0 => 0,
            _ if value < 1 << (count - 1) => value - (1 << count) + 1,
            _ => value,
        }
    }

    /// Continues after the next restart marker and returns whether there is one.
    fn restart(&mut self) -> bool {
        let Some(found) = self
            .data
            .get(self.position..)
            .and_then(|rest| rest.windows(2).position(|pair| pair[0] == 0xff && !matches!(pair[1], 0 | 0xff)))
        else {
            return false;
        };
        let marker = self.position + found;
        if !(0xd0..=0xd7).contains(&self.data[marker + 1]) {
            return false;
        }
        *self = Bits::new(self.data, marker + 2);
        true
    }
}

/// Decodes the blocks of a scan.
pub(super) struct Blocks<'a> {
    pub bits: Bits<'a>,
    pub progressive: bool,
    pub start: usize,
    pub end: usize,
    pub refining: bool,
    pub low: u32,
    /// The number of blocks without further coefficients in this scan.
    pub run: u32,
}

impl Blocks<'_> {
    /// Continues after the next restart marker and returns whether there is one.
    pub(super) fn restart(&mut self) -> bool {
        self.run = 0;
        self.bits.restart()
    }

    pub(super) fn read(&mut self, block: &mut [i16; 64], dc: &Huffman, ac: &Huffman, prediction: &mut i32) {
        match (self.progressive, self.start, self.refining) {
            (false, ..) => self.read_sequential(block, dc, ac, prediction),
            (true, 0, false) => {
                let size = dc.read(&mut self.bits);
                *prediction = prediction.wrapping_add(self.bits.number(u32::from(size)));
                block[0] = prediction.wrapping_shl(self.low) as i16;
            }
            (true, 0, true) => block[0] |= (self.bits.take(1) << self.low) as i16,
            (true, _, false) => self.read_first(block, ac),
            (true, _, true) => self.refine(block, ac),
        }
    }

    fn read_sequential(&mut self, block: &mut [i16; 64], dc: &Huffman, ac: &Huffman, prediction: &mut i32) {
        let size = dc.read(&mut self.bits);
        *prediction = prediction.wrapping_add(self.bits.number(u32::from(size)));
        block[0] = *prediction as i16;
        let mut index = 1;
        while index < 64 {
            let symbol = ac.read(&mut self.bits);
            let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run != 15 {
                    break;
                }
                index += 16;
            } else {
                index += run;
                block[place(index)] = self.bits.number(size) as i16;
                index += 1;
            }
        }
    }

    fn read_first(&mut self, block: &mut [i16; 64], ac: &Huffman) {
        if self.run > 0 {
            self.run -= 1;
            return;
        }
        let mut index = self.start;
        while index <= self.end {
            let symbol = ac.read(&mut self.bits);
            let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run != 15 {
                    self.run = (1 << run) + self.bits.take(run) - 1;
                    break;
                }
                index += 16;
            } else {
                index += run as usize;
                block[place(index)] = self.bits.number(size).wrapping_shl(self.low) as i16;
                index += 1;
            }
        }
    }

    fn refine(&mut self, block: &mut [i16; 64], ac: &Huffman) {
        let (plus, minus) = (1i16 << self.low, -1i16 << self.low);
        let mut index = self.start;
        if self.run == 0 {
            while index <= self.end {
                let symbol = ac.read(&mut self.bits);
                let (mut run, size) = (u32::from(symbol >> 4), symbol & 15);
                let mut value = 0;
                if size != 0 {
                    value = if self.bits.take(1) == 1 { plus } else { minus };
                } else if run != 15 {
                    self.run = (1 << run) + self.bits.take(run);
                    break;
                }
                // The run counts coefficients that are still zero; the others on the way get one more bit.
                while index <= self.end {
                    let coefficient = &mut block[place(index)];
                    if *coefficient != 0 {
                        correct(coefficient, &mut self.bits, plus, minus);
                    } else if run == 0 {
                        break;
                    } else {
                        run -= 1;
                    }
                    index += 1;
                }
                if value != 0 {
                    block[place(index)] = value;
                }
                index += 1;
            }
        }
        if self.run > 0 {
            while index <= self.end {
                let coefficient = &mut block[place(index)];
                if *coefficient != 0 {
                    correct(coefficient, &mut self.bits, plus, minus);
                }
                index += 1;
            }
            self.run -= 1;
        }
    }
}

fn correct(coefficient: &mut i16, bits: &mut Bits<'_>, plus: i16, minus: i16) {
    if bits.take(1) == 1 && *coefficient & plus == 0 {
        *coefficient = coefficient.wrapping_add(if *coefficient >= 0 { plus } else { minus });
    }
}

/// Returns the position of a coefficient; a damaged file may count beyond the last.
fn place(index: usize) -> usize {
    ZIGZAG.get(index).map_or(63, |&place| usize::from(place))
}
