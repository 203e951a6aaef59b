//! Variant tensors in a data file: for each element its length as a varint, its message, and a checksum of all so far.
//!
//! The checksums are over the lengths as numbers of 8 bytes, not over the varints.

use crate::coding::{mask_crc32c, put_varint, take_varint, u32_at, unmask_crc32c};
use prost::Message;
use proto::VariantTensorDataProto;
use std::sync::Arc;
use tensor::{Result, Status, Variant};

/// Returns the elements as they are stored, and the checksum over everything.
pub(super) fn encode(elements: &[Variant]) -> Result<(Vec<u8>, u32)> {
    let (mut data, mut checksum) = (Vec::new(), 0);
    for element in elements {
        let message = element.encode()?.encode_to_vec();
        put_varint(&mut data, message.len() as u64);
        data.extend_from_slice(&message);
        checksum = crc32c::crc32c_append(checksum, &(message.len() as u64).to_le_bytes());
        checksum = crc32c::crc32c_append(checksum, &message);
        let stored = mask_crc32c(checksum).to_le_bytes();
        data.extend_from_slice(&stored);
        checksum = crc32c::crc32c_append(checksum, &stored);
    }
    Ok((data, checksum))
}

/// Returns the elements, as nobody has looked at them yet, and the checksum over everything.
pub(super) fn decode(data: &[u8], count: usize) -> Result<(Vec<Variant>, u32)> {
    if count > data.len() {
        return Err(Status::data_loss(format!("{count} variants can't be in {} bytes", data.len())));
    }
    let mut rest = data;
    let (mut elements, mut checksum) = (Vec::with_capacity(count), 0);
    for _ in 0..count {
        let length = take_varint(&mut rest).ok_or_else(wrong_total)?;
        let message = usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or_else(wrong_total)?;
        rest = &rest[message.len()..];
        checksum = crc32c::crc32c_append(checksum, &length.to_le_bytes());
        checksum = crc32c::crc32c_append(checksum, message);
        let stored = u32_at(rest, 0).ok_or_else(wrong_total)?;
        if unmask_crc32c(stored) != checksum {
            return Err(Status::data_loss("The checksum of a variant does not match"));
        }
        checksum = crc32c::crc32c_append(checksum, &stored.to_le_bytes());
        rest = &rest[4..];
        let proto = VariantTensorDataProto::decode(message)
            .map_err(|error| Status::data_loss(format!("a variant can't be read: {error}")))?;
        elements.push(Variant::Encoded(Arc::new(proto)));
    }
    match rest {
        [] => Ok((elements, checksum)),
        _ => Err(wrong_total()),
    }
}

fn wrong_total() -> Status {
    Status::data_loss("The lengths of the variants do not add up to the size of the entry")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_survive_and_damage_is_noticed() {
        let proto = |name: &str| VariantTensorDataProto { type_name: name.to_owned(), ..Default::default() };
        let elements = ["a", "bcd"].map(|name| Variant::Encoded(Arc::new(proto(name))));
        let (data, checksum) = encode(&elements).unwrap();
        let (decoded, found) = decode(&data, 2).unwrap();
        assert_eq!(found, checksum);
        assert_eq!(decoded.iter().map(Variant::type_name).collect::<Vec<_>>(), ["a", "bcd"]);
        for position in 0..data.len() {
            let mut damaged = data.clone();
            damaged[position] ^= 1;
            assert!(decode(&damaged, 2).is_err(), "byte {position}");
        }
        for length in 0..data.len() {
            assert!(decode(&data[..length], 2).is_err());
        }
        assert!(decode(&data, 1).is_err() && decode(&data, usize::MAX).is_err());
    }
}
