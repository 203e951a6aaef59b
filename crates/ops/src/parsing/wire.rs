//! Reads the features of an `Example` from its bytes, without decoding messages first.
//!
//! No value is copied before its final destination. Bytes that aren't an `Example` give `None`.

use bytes::Bytes;
use tensor::DType;

/// An undecoded feature of an example.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawFeature<'a> {
    /// The type of the values, and the message with their list; `None` if no kind was set.
    list: Option<(DType, &'a [u8])>,
}

/// The values of a feature in all examples of a batch.
#[derive(Clone, Debug)]
pub(super) enum Values {
    Float(Vec<f32>),
    Int64(Vec<i64>),
    Bytes(Vec<Bytes>),
}

/// Calls `visit` with the name of each feature in an `Example`, and the feature.
pub(super) fn visit_example<'a>(example: &'a [u8], mut visit: impl FnMut(&'a [u8], RawFeature<'a>)) -> Option<()> {
    let mut fields = Fields(example);
    while let Some(field) = fields.next()? {
        if let Field::Bytes(1, features) = field {
            visit_features(features, &mut visit)?;
        }
    }
    Some(())
}

/// Calls `visit` with the name of each feature list in a `SequenceExample`, and the bytes of the list.
pub(super) fn visit_feature_lists<'a>(
    example: &'a [u8],
    visit: &mut impl FnMut(&'a [u8], &'a [u8]) -> Option<()>,
) -> Option<()> {
    let mut fields = Fields(example);
    while let Some(field) = fields.next()? {
        if let Field::Bytes(2, lists) = field {
            visit_map(lists, visit)?;
        }
    }
    Some(())
}

/// Returns the features of a `FeatureList`.
pub(super) fn features_of_list(list: &[u8]) -> Option<Vec<RawFeature<'_>>> {
    let mut features = Vec::new();
    let mut fields = Fields(list);
    while let Some(field) = fields.next()? {
        if let Field::Bytes(1, feature) = field {
            features.push(RawFeature::parse(feature)?);
        }
    }
    Some(features)
}

/// Calls `visit` with the name of each feature in `Features`, and the feature.
pub(super) fn visit_features<'a>(features: &'a [u8], visit: &mut impl FnMut(&'a [u8], RawFeature<'a>)) -> Option<()> {
    visit_map(features, &mut |name, feature| {
        visit(name, RawFeature::parse(feature)?);
        Some(())
    })
}

/// Calls `visit` with the key and the value of each entry of the map in field 1.
pub(super) fn visit_map<'a>(map: &'a [u8], visit: &mut impl FnMut(&'a [u8], &'a [u8]) -> Option<()>) -> Option<()> {
    let mut entries = Fields(map);
    while let Some(field) = entries.next()? {
        if let Field::Bytes(1, entry) = field {
            let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
            let mut parts = Fields(entry);
            while let Some(part) = parts.next()? {
                match part {
                    Field::Bytes(1, found) => key = found,
                    Field::Bytes(2, found) => value = found,
                    _ => {}
                }
            }
            visit(key, value)?;
        }
    }
    Some(())
}

impl<'a> RawFeature<'a> {
    /// Determines the kind of list in a `Feature`.
    pub(super) fn parse(feature: &'a [u8]) -> Option<RawFeature<'a>> {
        let mut fields = Fields(feature);
        while let Some(field) = fields.next()? {
            let list = match field {
                Field::Bytes(1, list) => (DType::String, list),
                Field::Bytes(2, list) => (DType::Float, list),
                Field::Bytes(3, list) => (DType::Int64, list),
                _ => continue,
            };
            return Some(RawFeature { list: Some(list) });
        }
        Some(RawFeature { list: None })
    }

    /// Returns the type of the values, or `None` if no kind was set.
    pub(super) fn dtype(&self) -> Option<DType> {
        self.list.map(|(dtype, _)| dtype)
    }

    /// Appends the values, which are in `whole` and have the type of `values`; returns their number.
    pub(super) fn append_to(&self, values: &mut Values, whole: &Bytes) -> Option<usize> {
        let Some((_, list)) = self.list else { return Some(0) };
        let before = values.len();
        let mut fields = Fields(list);
        while let Some(field) = fields.next()? {
            match (&mut *values, field) {
                (Values::Float(values), Field::Bytes(1, packed)) => {
                    let (numbers, []) = packed.as_chunks::<4>() else { return None };
                    values.extend(numbers.iter().map(|number| f32::from_le_bytes(*number)));
                }
                (Values::Float(values), Field::Fixed32(1, bits)) => values.push(f32::from_bits(bits)),
                (Values::Int64(values), Field::Bytes(1, packed)) => {
                    let mut rest = Fields(packed);
                    while !rest.0.is_empty() {
                        values.push(rest.varint()? as i64);
                    }
                }
                (Values::Int64(values), Field::Varint(1, number)) => values.push(number as i64),
                (Values::Bytes(values), Field::Bytes(1, text)) => values.push(part_of(whole, text)),
                _ => {}
            }
        }
        Some(values.len() - before)
    }
}

/// Returns a part of a string. A large part shares its memory; a small one is copied, since it might outlive the whole.
pub(super) fn part_of(whole: &Bytes, part: &[u8]) -> Bytes {
    if part.len() >= whole.len() / 4 && !part.is_empty() { whole.slice_ref(part) } else { Bytes::copy_from_slice(part) }
}

impl Values {
    pub(super) fn new(dtype: DType) -> Option<Values> {
        match dtype {
            DType::Float => Some(Values::Float(Vec::new())),
            DType::Int64 => Some(Values::Int64(Vec::new())),
            DType::String => Some(Values::Bytes(Vec::new())),
            _ => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Values::Float(values) => values.len(),
            Values::Int64(values) => values.len(),
            Values::Bytes(values) => values.len(),
        }
    }

    pub(super) fn truncate(&mut self, len: usize) {
        match self {
            Values::Float(values) => values.truncate(len),
            Values::Int64(values) => values.truncate(len),
            Values::Bytes(values) => values.truncate(len),
        }
    }
}

/// A field of a message.
enum Field<'a> {
    Varint(u64, u64),
    Fixed64,
    Bytes(u64, &'a [u8]),
    Fixed32(u64, u32),
}

/// The remaining fields of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the next field, `Some(None)` at the end, or `None` if the bytes aren't a message.
    fn next(&mut self) -> Option<Option<Field<'a>>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 {
            return None;
        }
        Some(Some(match tag & 7 {
            0 => Field::Varint(number, self.varint()?),
            1 => {
                self.take(8)?;
                Field::Fixed64
            }
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(number, self.take(length)?)
            }
            5 => Field::Fixed32(number, u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        }))
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for (index, &byte) in self.0.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.0 = &self.0[index + 1..];
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use proto::{Example, Feature, Features, FloatList, Int64List, feature::Kind};

    fn example(features: Vec<(&str, Option<Kind>)>) -> Vec<u8> {
        let feature = features.into_iter().map(|(name, kind)| (name.to_owned(), Feature { kind })).collect();
        Example { features: Some(Features { feature }) }.encode_to_vec()
    }

    #[test]
    fn values_of_each_kind() {
        let bytes = Bytes::from(example(vec![
            ("a", Some(Kind::Int64List(Int64List { value: vec![1, -2, 300] }))),
            ("b", Some(Kind::FloatList(FloatList { value: vec![0.5] }))),
            ("c", None),
        ]));
        let mut seen = Vec::new();
        visit_example(&bytes, |name, feature| seen.push((name.to_vec(), feature))).unwrap();
        let mut values = Values::Int64(vec![7]);
        assert_eq!(seen[0].1.append_to(&mut values, &bytes), Some(3));
        assert!(matches!(&values, Values::Int64(values) if *values == [7, 1, -2, 300]));
        assert_eq!(seen[1].1.dtype(), Some(DType::Float));
        assert_eq!(seen[2].1.dtype(), None);
        // Unpacked lists, as older writers create them.
        let feature = RawFeature::parse(&[0x1a, 4, 8, 5, 8, 6]).unwrap();
        assert_eq!(feature.append_to(&mut values, &bytes), Some(2));
        let feature = RawFeature::parse(&[0x12, 5, 0x0d, 0, 0, 0xc0, 0x3f]).unwrap();
        let mut values = Values::Float(Vec::new());
        assert_eq!(feature.append_to(&mut values, &bytes), Some(1));
        assert!(matches!(&values, Values::Float(values) if *values == [1.5]));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let whole = example(vec![("a", Some(Kind::Int64List(Int64List { value: vec![1 << 40, 2] })))]);
        for length in 0..whole.len() {
            for flipped in 0..8 {
                let mut bytes = whole[..length].to_vec();
                if let Some(last) = bytes.last_mut() {
                    *last ^= 1 << flipped;
                }
                let bytes = Bytes::from(bytes);
                let mut values = Values::Int64(Vec::new());
                let mut counted = 0;
                let visited = visit_example(&bytes, |_, feature| {
                    counted += feature.append_to(&mut values, &bytes).unwrap_or(0);
                });
                assert!(counted <= 2 && (visited.is_some() || length < whole.len()));
            }
        }
        assert!(visit_example(b"garbage!", |_, _| {}).is_none());
    }
}
