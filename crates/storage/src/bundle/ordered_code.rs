//! The keys of slices: encodings of strings and numbers whose bytes sort as the values do.

use super::TensorSlice;
use super::tensor_slice::Extent;
use tensor::{Result, Status};

/// Returns the key under which a slice of a tensor is stored.
///
/// It starts with a zero byte, which no tensor's name does.
pub fn encode_tensor_name_slice(name: &str, slice: &TensorSlice) -> Vec<u8> {
    let mut key = Vec::new();
    write_unsigned(&mut key, 0);
    write_string(&mut key, name.as_bytes());
    write_unsigned(&mut key, slice.rank() as u64);
    for extent in slice.extents() {
        let (start, length) = extent.map_or((0, FULL_LENGTH), |extent| (extent.start, extent.length));
        write_signed(&mut key, start);
        write_signed(&mut key, length);
    }
    key
}

/// Takes a slice's key apart again.
pub fn decode_tensor_name_slice(key: &[u8]) -> Result<(String, TensorSlice)> {
    let bad = || Status::data_loss(format!("\"{}\" is no key of a tensor's slice", key.escape_ascii()));
    let mut rest = key;
    if read_unsigned(&mut rest) != Some(0) {
        return Err(bad());
    }
    let name = read_string(&mut rest).and_then(|name| String::from_utf8(name).ok()).ok_or_else(bad)?;
    let rank = read_unsigned(&mut rest).and_then(|rank| usize::try_from(rank).ok()).ok_or_else(bad)?;
    let mut extents = Vec::new();
    // Every extent takes two bytes at least, so a rank that lies ends with the input.
    for _ in 0..rank {
        let (start, length) = read_signed(&mut rest).zip(read_signed(&mut rest)).ok_or_else(bad)?;
        extents.push((length >= 0).then_some(Extent { start, length }));
    }
    if !rest.is_empty() {
        return Err(bad());
    }
    Ok((name, TensorSlice::new(extents)?))
}

/// Stands for all of a dimension.
const FULL_LENGTH: i64 = -1;

/// Writes the number of bytes, then the bytes, highest first, without leading zeros.
fn write_unsigned(output: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    let significant = &bytes[value.leading_zeros() as usize / 8..];
    output.push(significant.len() as u8);
    output.extend_from_slice(significant);
}

fn read_unsigned(input: &mut &[u8]) -> Option<u64> {
    let (&length, rest) = input.split_first()?;
    let length = usize::from(length);
    if length > 8 {
        return None;
    }
    let value = rest.get(..length)?.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
    *input = rest.get(length..)?;
    Some(value)
}

/// Writes the bytes and a terminator that sorts before anything a longer string could go on with: bytes 0 and 255 are
/// followed by one that tells them from it.
fn write_string(output: &mut Vec<u8>, string: &[u8]) {
    for &byte in string {
        output.push(byte);
        match byte {
            0x00 => output.push(0xff),
            0xff => output.push(0x00),
            _ => {}
        }
    }
    output.extend_from_slice(&[0x00, 0x01]);
}

fn read_string(input: &mut &[u8]) -> Option<Vec<u8>> {
    let mut string = Vec::new();
    let mut bytes = input.iter();
    loop {
        let byte = *bytes.next()?;
        match byte {
            0x00 | 0xff => match (byte, *bytes.next()?) {
                (0x00, 0x01) => break,
                (0x00, 0xff) | (0xff, 0x00) => string.push(byte),
                _ => return None,
            },
            _ => string.push(byte),
        }
    }
    *input = bytes.as_slice();
    Some(string)
}

/// The longest signed number.
const SIGNED_BYTES_MAX: usize = 10;

/// Writes a number in two's complement, highest byte first. Of its leading bits, which all equal the sign, the first is
/// inverted, and as many after it as there are further bytes.
fn write_signed(output: &mut Vec<u8>, value: i64) {
    let length = signed_length(value);
    let mut bytes = i128::from(value).to_be_bytes();
    let start = bytes.len() - length;
    let encoded = &mut bytes[start..];
    for (byte, header) in encoded.iter_mut().zip(header_bits(length)) {
        *byte ^= header;
    }
    output.extend_from_slice(encoded);
}

fn read_signed(input: &mut &[u8]) -> Option<i64> {
    let negative = input.first()? & 0x80 == 0;
    let sign = if negative { 0xff } else { 0x00 };
    let bit_count = |byte: Option<&u8>| byte.map_or(0, |byte| (byte ^ sign).leading_ones() as usize);
    let mut length = bit_count(input.first());
    if length == 8 {
        length += bit_count(input.get(1));
    }
    if length > SIGNED_BYTES_MAX {
        return None;
    }
    let encoded = input.get(..length)?;
    let mut value: i128 = if negative { -1 } else { 0 };
    for (&byte, header) in encoded.iter().zip(header_bits(length)) {
        value = value << 8 | i128::from(byte ^ header);
    }
    let value = i64::try_from(value).ok()?;
    // One number, one encoding: otherwise two keys could name one slice.
    if signed_length(value) != length {
        return None;
    }
    *input = &input[length..];
    Some(value)
}

/// Returns how many bytes a number takes: the first n bytes have n header bits, and one bit more is the sign.
fn signed_length(value: i64) -> usize {
    let magnitude = if value < 0 { !value } else { value };
    let bits = 64 - magnitude.leading_zeros() as usize + 1;
    bits.div_ceil(7)
}

/// Returns the bits that a number of `length` bytes has inverted: the first `length` of them.
fn header_bits(length: usize) -> [u8; SIGNED_BYTES_MAX] {
    let bits = !(u128::MAX >> length);
    let mut header = [0; SIGNED_BYTES_MAX];
    header.copy_from_slice(&bits.to_be_bytes()[..SIGNED_BYTES_MAX]);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn signed(value: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_signed(&mut bytes, value);
        bytes
    }

    #[test]
    fn known_encodings() {
        assert_eq!(signed(0), [0x80]);
        assert_eq!(signed(-1), [0x7f]);
        assert_eq!(signed(63), [0xbf]);
        assert_eq!(signed(-64), [0x40]);
        assert_eq!(signed(64), [0xc0, 0x40]);
        assert_eq!(signed(0x424242), [0xf0, 0x42, 0x42, 0x42]);
        assert_eq!(signed(-0x800), [0x38, 0x00]);
        assert_eq!(signed(i64::MAX).len(), 10);
        let slice = TensorSlice::parse("3,2:-").unwrap();
        assert_eq!(encode_tensor_name_slice("w", &slice), b"\x00w\x00\x01\x01\x02\x83\x82\x80\x7f");
    }

    proptest! {
        #[test]
        fn numbers_survive_and_sort(a: i64, b: i64, shift in 0u32..64) {
            let (a, b) = (a >> shift, b >> shift);
            prop_assert_eq!(read_signed(&mut signed(a).as_slice()), Some(a));
            prop_assert_eq!(a.cmp(&b), signed(a).cmp(&signed(b)));
            let unsigned = |value: i64| { let mut bytes = Vec::new(); write_unsigned(&mut bytes, value as u64); bytes };
            prop_assert_eq!(read_unsigned(&mut unsigned(a).as_slice()), Some(a as u64));
            prop_assert_eq!((a as u64).cmp(&(b as u64)), unsigned(a).cmp(&unsigned(b)));
        }

        #[test]
        fn keys_survive(name in "[a-z\u{0}/é]{0,12}", extents in prop::collection::vec(prop::option::of((0i64..1 << 40, 1i64..1 << 40)), 1..5)) {
            let extents = extents.into_iter().map(|extent| extent.map(|(start, length)| Extent { start, length }));
            let slice = TensorSlice::new(extents.collect()).unwrap();
            let key = encode_tensor_name_slice(&name, &slice);
            prop_assert_eq!(decode_tensor_name_slice(&key).unwrap(), (name, slice));
        }

        #[test]
        fn garbage_never_panics(key: Vec<u8>) {
            if let Ok((name, slice)) = decode_tensor_name_slice(&key) {
                let _ = encode_tensor_name_slice(&name, &slice);
            }
        }
    }
}
