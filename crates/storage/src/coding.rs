//! The small encodings that all our file formats share: varints, little-endian numbers and the masked CRC32C.

/// Returns the CRC32C of `data`, masked as it is stored in files.
///
/// A checksum of data that itself holds checksums is weak; the mask makes the stored value differ from the plain one.
pub(crate) fn masked_crc32c(data: &[u8]) -> u32 {
    mask_crc32c(crc32c::crc32c(data))
}

const MASK_DELTA: u32 = 0xa282_ead8;

/// Turns a plain checksum into the stored one.
pub(crate) fn mask_crc32c(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// Turns a stored checksum into the plain one.
pub(crate) fn unmask_crc32c(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(15)
}

/// Appends `value` in seven-bit groups, lowest first.
pub(crate) fn put_varint(output: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        output.push(value as u8 | 0x80);
        value >>= 7;
    }
    output.push(value as u8);
}

/// Takes a varint of at most 64 bits off the front of `input`, or returns `None` when there is none.
pub(crate) fn take_varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (index, &byte) in input.iter().take(10).enumerate() {
        let group = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit only.
        if index == 9 && group > 1 {
            return None;
        }
        value |= group << (7 * index);
        if byte < 0x80 {
            *input = input.get(index + 1..)?;
            return Some(value);
        }
    }
    None
}

/// Takes a varint of at most 32 bits off the front of `input`.
pub(crate) fn take_varint_u32(input: &mut &[u8]) -> Option<u32> {
    take_varint(input).and_then(|value| u32::try_from(value).ok())
}

/// Returns the little-endian `u32` at `offset`, if that is inside `data`.
pub(crate) fn u32_at(data: &[u8], offset: usize) -> Option<u32> {
    let bytes = data.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Returns the little-endian `u64` at `offset`, if that is inside `data`.
pub(crate) fn u64_at(data: &[u8], offset: usize) -> Option<u64> {
    let bytes = data.get(offset..offset.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_mask_is_its_own_way_back() {
        // The check value of CRC32C, from its definition.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        for crc in [0, 1, 0xe306_9283, u32::MAX] {
            assert_eq!(unmask_crc32c(mask_crc32c(crc)), crc);
            assert_ne!(mask_crc32c(crc), crc);
        }
    }

    #[test]
    fn overlong_varints_are_refused() {
        assert_eq!(take_varint(&mut &[0x80; 9][..]), None);
        assert_eq!(take_varint(&mut &[0xff; 11][..]), None);
        assert_eq!(take_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02][..]), None);
        assert_eq!(take_varint_u32(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]), None);
    }

    proptest! {
        #[test]
        fn varints_survive(value: u64, tail: Vec<u8>) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            bytes.extend_from_slice(&tail);
            let mut rest = &bytes[..];
            prop_assert_eq!(take_varint(&mut rest), Some(value));
            prop_assert_eq!(rest, &tail[..]);
        }
    }
}
