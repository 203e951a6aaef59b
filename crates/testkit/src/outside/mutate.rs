//! Mutates bytes in ways that parsers stumble over.

use crate::random_graph::Chooser;

/// Numbers at the limits of types and sizes, and just beyond.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    1 << 20,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    1 << 62,
    i64::MAX as u64,
    u64::MAX,
];

/// Returns one of the inputs with up to six mutations.
pub fn mutated(chooser: &mut Chooser, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = chooser.one_of(inputs).clone();
    for _ in 0..1 + chooser.below(6) {
        change(chooser, inputs, &mut bytes);
    }
    bytes
}

fn change(chooser: &mut Chooser, inputs: &[Vec<u8>], bytes: &mut Vec<u8>) {
    let (at, len) = part(chooser, bytes.len());
    match chooser.below(10) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..at + len)),
        2 => {
            let again = bytes[at..at + len].to_vec();
            bytes.splice(at..at, again);
        }
        3 => {
            let other = chooser.one_of(inputs);
            let (from, len) = part(chooser, other.len());
            bytes.splice(at..at, other[from..from + len].iter().copied());
        }
        4 => {
            let added = (0..1 + chooser.below(8)).map(|_| chooser.draw() as u8).collect::<Vec<u8>>();
            bytes.splice(at..at, added);
        }
        5 | 6 => {
            let number = *chooser.one_of(&NUMBERS);
            let width = *chooser.one_of(&[1, 2, 4, 8]);
            for (byte, value) in bytes[at..].iter_mut().zip(number.to_le_bytes()).take(width) {
                *byte = value;
            }
        }
        7 => {
            // Most lengths and numbers of messages are varints.
            let mut number = *chooser.one_of(&NUMBERS);
            let mut added = Vec::new();
            while number >= 0x80 {
                added.push(number as u8 | 0x80);
                number >>= 7;
            }
            added.push(number as u8);
            let end = (at + 1).min(bytes.len());
            bytes.splice(at..end, added);
        }
        8 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << chooser.below(8);
            }
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = chooser.draw() as u8;
            }
        }
    }
}

/// Returns the start and the length of a random part, mostly a short one.
fn part(chooser: &mut Chooser, len: usize) -> (usize, usize) {
    let at = chooser.below(len + 1);
    let longest = if chooser.once_in(4) { len - at } else { (len - at).min(16) };
    (at, chooser.below(longest + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_follow_from_the_seed_and_take_any_input() {
        let inputs = [Vec::new(), vec![1], (0..200).collect()];
        let mut different = 0;
        for seed in 0..2000 {
            let bytes = mutated(&mut Chooser::new(seed), &inputs);
            assert_eq!(bytes, mutated(&mut Chooser::new(seed), &inputs));
            different += usize::from(!inputs.contains(&bytes));
        }
        assert!(different > 1500, "{different}");
    }
}
