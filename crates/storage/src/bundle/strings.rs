//! String tensors in a data file: the lengths as varints, a checksum of the lengths, then the bytes of all strings.
//!
//! Both checksums are over the lengths as fixed-size numbers, 4 bytes for what fits and 8 for what doesn't, not over the
//! varints; the one in the index covers the lengths, their checksum and the strings.

use crate::coding::{mask_crc32c, put_varint, take_varint, u32_at, unmask_crc32c};
use bytes::Bytes;
use tensor::{Result, Status, StringElement};

/// Returns the lengths with their checksum, which come in front of the strings, and the checksum so far.
pub(super) fn encode_lengths(strings: &[StringElement]) -> (Vec<u8>, u32) {
    let mut encoded = Vec::with_capacity(strings.len() + 4);
    let mut checksum = 0;
    for string in strings {
        put_varint(&mut encoded, string.len() as u64);
        checksum = append_length(checksum, string.len() as u64);
    }
    let stored = mask_crc32c(checksum).to_le_bytes();
    encoded.extend_from_slice(&stored);
    (encoded, crc32c::crc32c_append(checksum, &stored))
}

fn append_length(checksum: u32, length: u64) -> u32 {
    match u32::try_from(length) {
        Ok(length) => crc32c::crc32c_append(checksum, &length.to_le_bytes()),
        Err(_) => crc32c::crc32c_append(checksum, &length.to_le_bytes()),
    }
}

/// Returns the strings, which share the memory of `data`, and the checksum over everything.
pub(super) fn decode(data: &Bytes, count: usize) -> Result<(Vec<StringElement>, u32)> {
    if data.is_empty() && count == 0 {
        return Ok((Vec::new(), 0));
    }
    // A length takes at least a byte, so a count that lies is noticed before anything is allocated for it.
    if count > data.len() {
        return Err(Status::data_loss(format!("{count} strings can't be in {} bytes", data.len())));
    }
    let mut rest = &data[..];
    let mut lengths = Vec::with_capacity(count);
    let mut checksum = 0;
    for _ in 0..count {
        let length = take_varint(&mut rest).ok_or_else(|| Status::data_loss("String lengths longer than expected"))?;
        checksum = append_length(checksum, length);
        lengths.push(length);
    }
    let stored = u32_at(rest, 0).ok_or_else(|| Status::data_loss("The length checksum is missing"))?;
    if unmask_crc32c(stored) != checksum {
        return Err(Status::data_loss(format!(
            "The length checksum does not match: expected {:08} but actual is {checksum:08}",
            unmask_crc32c(stored)
        )));
    }
    let start = data.len() - rest.len();
    checksum = crc32c::crc32c_append(checksum, &data[start..]);
    let mut offset = start + 4;
    let mut strings = Vec::with_capacity(count);
    for length in lengths {
        let end = usize::try_from(length).ok().and_then(|length| offset.checked_add(length));
        let end = end.filter(|&end| end <= data.len()).ok_or_else(wrong_total)?;
        strings.push(data.slice(offset..end));
        offset = end;
    }
    if offset != data.len() {
        return Err(wrong_total());
    }
    Ok((strings, checksum))
}

fn wrong_total() -> Status {
    Status::data_loss("The lengths of the strings do not add up to the size of the entry")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(strings: &[Bytes]) -> (Vec<u8>, u32) {
        let (mut data, mut checksum) = encode_lengths(strings);
        for string in strings {
            data.extend_from_slice(string);
            checksum = crc32c::crc32c_append(checksum, string);
        }
        (data, checksum)
    }

    fn any_strings() -> impl Strategy<Value = Vec<Bytes>> {
        let string = prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
        prop::collection::vec(string, 0..20)
    }

    proptest! {
        #[test]
        fn strings_survive(strings in any_strings()) {
            let (data, checksum) = encode(&strings);
            let decoded = decode(&Bytes::from(data), strings.len()).unwrap();
            prop_assert_eq!(decoded, (strings, checksum));
        }

        #[test]
        fn damage_is_noticed(strings in any_strings(), position: prop::sample::Index, flip in 1u8..) {
            let (mut data, checksum) = encode(&strings);
            let position = position.index(data.len());
            data[position] ^= flip;
            if let Ok((_, found)) = decode(&Bytes::from(data), strings.len()) {
                prop_assert_ne!(found, checksum);
            }
        }

        #[test]
        fn garbage_never_panics(data: Vec<u8>, count: usize) {
            let _ = decode(&Bytes::from(data.clone()), count);
            let _ = decode(&Bytes::from(data), count % 16);
        }
    }
}
