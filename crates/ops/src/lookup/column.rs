//! The storage of a table's keys and values: a [`Column`] of rows, and the [`Key`] by which a row is found.

use bytes::Bytes;
use tensor::{Buffer, DType, Result, Shape, StringElement, Tensor};

/// A key: a plain one by its bits, others by their bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Plain(u64),
    Bytes(Bytes),
}

/// Elements of one type, with a fixed number per row.
pub(super) struct Column {
    pub(super) dtype: DType,
    pub(super) per_row: usize,
    elements: Elements,
}

enum Elements {
    Plain(Vec<u8>),
    Strings(Vec<StringElement>),
}

impl Column {
    pub(super) fn new(dtype: DType, per_row: usize) -> Column {
        let elements = match dtype {
            DType::String => Elements::Strings(Vec::new()),
            _ => Elements::Plain(Vec::new()),
        };
        Column { dtype, per_row, elements }
    }

    /// Returns an empty column of the same kind.
    pub(super) fn without_rows(&self) -> Column {
        Column::new(self.dtype, self.per_row)
    }

    pub(super) fn from_tensor(tensor: &Tensor, per_row: usize) -> Result<Column> {
        let elements = match tensor.buffer() {
            Some(buffer) => Elements::Plain(buffer.bytes().to_vec()),
            None => Elements::Strings(tensor.strings()?.to_vec()),
        };
        Ok(Column { dtype: tensor.dtype(), per_row, elements })
    }

    fn row_bytes(&self) -> usize {
        self.per_row * self.dtype.size()
    }

    pub(super) fn rows(&self) -> usize {
        let count = match &self.elements {
            Elements::Plain(bytes) => bytes.len().checked_div(self.row_bytes()),
            Elements::Strings(strings) => strings.len().checked_div(self.per_row),
        };
        count.unwrap_or(0)
    }

    pub(super) fn reserve(&mut self, rows: usize) {
        let row_bytes = self.row_bytes();
        match &mut self.elements {
            Elements::Plain(bytes) => bytes.reserve(rows.saturating_mul(row_bytes)),
            Elements::Strings(strings) => strings.reserve(rows.saturating_mul(self.per_row)),
        }
    }

    fn plain_row(&self, row: usize) -> &[u8] {
        let size = self.row_bytes();
        match &self.elements {
            Elements::Plain(bytes) => bytes.get(row * size..(row + 1) * size).unwrap_or(&[]),
            Elements::Strings(_) => &[],
        }
    }

    fn string_row(&self, row: usize) -> &[StringElement] {
        match &self.elements {
            Elements::Strings(strings) => strings.get(row * self.per_row..(row + 1) * self.per_row).unwrap_or(&[]),
            Elements::Plain(_) => &[],
        }
    }

    pub(super) fn push_row(&mut self, from: &Column, row: usize) {
        match &mut self.elements {
            Elements::Plain(bytes) => bytes.extend_from_slice(from.plain_row(row)),
            Elements::Strings(strings) => strings.extend_from_slice(from.string_row(row)),
        }
    }

    /// Returns this many rows of zeros, or of empty strings.
    pub(super) fn fill_with_zeros(&mut self, rows: usize) {
        let size = self.row_bytes();
        match &mut self.elements {
            Elements::Plain(bytes) => *bytes = vec![0; rows * size],
            Elements::Strings(strings) => *strings = vec![Bytes::new(); rows * self.per_row],
        }
    }

    /// Returns this many rows of one key.
    pub(super) fn fill_with_key(&mut self, key: &Key, rows: usize) {
        self.fill_with_zeros(0);
        self.reserve(rows);
        (0..rows).for_each(|_| self.push_key(key));
    }

    /// Replaces a key.
    pub(super) fn set_key(&mut self, row: usize, key: &Key) {
        let (size, per_row) = (self.row_bytes(), self.per_row);
        match (&mut self.elements, key) {
            (Elements::Plain(bytes), key) => {
                let Some(place) = bytes.get_mut(row * size..(row + 1) * size) else { return };
                match key {
                    Key::Plain(bits) => place.iter_mut().zip(bits.to_le_bytes()).for_each(|(to, from)| *to = from),
                    Key::Bytes(key) => place.iter_mut().zip(key).for_each(|(to, from)| *to = *from),
                }
            }
            (Elements::Strings(strings), Key::Bytes(key)) => {
                if let Some(place) = strings.get_mut(row * per_row) {
                    place.clone_from(key);
                }
            }
            (Elements::Strings(_), Key::Plain(_)) => {}
        }
    }

    /// Returns the hash with which TensorFlow chooses the bucket of a key of this column.
    pub(super) fn hash(&self, key: &Key) -> u64 {
        match key {
            Key::Plain(bits) => *bits,
            Key::Bytes(bytes) if self.dtype == DType::String => crate::string::murmur64(bytes),
            Key::Bytes(bytes) => bytes.chunks(self.dtype.size().max(1)).fold(0, |hash: u64, element| {
                let element = self.extended(element);
                hash ^ element.wrapping_add(0x9e37_79b9_7f4a_7800).wrapping_add(hash << 10).wrapping_add(hash >> 4)
            }),
        }
    }

    /// Returns an element's bits in eight bytes; signed numbers are sign-extended, as in TensorFlow's buckets.
    fn extended(&self, bytes: &[u8]) -> u64 {
        let is_negative = self.dtype.is_integer() && bytes.last().is_some_and(|&top| top > 127);
        let mut bits = [if is_negative { 255 } else { 0 }; 8];
        bits.iter_mut().zip(bytes).for_each(|(bit, byte)| *bit = *byte);
        u64::from_le_bytes(bits)
    }

    pub(super) fn set_row(&mut self, row: usize, from: &Column, from_row: usize) {
        let (size, per_row) = (self.row_bytes(), self.per_row);
        match &mut self.elements {
            Elements::Plain(bytes) => {
                if let Some(place) = bytes.get_mut(row * size..(row + 1) * size) {
                    place.copy_from_slice(from.plain_row(from_row));
                }
            }
            Elements::Strings(strings) => {
                if let Some(place) = strings.get_mut(row * per_row..(row + 1) * per_row) {
                    place.clone_from_slice(from.string_row(from_row));
                }
            }
        }
    }

    pub(super) fn same_row(&self, row: usize, other: &Column, other_row: usize) -> bool {
        self.plain_row(row) == other.plain_row(other_row) && self.string_row(row) == other.string_row(other_row)
    }

    pub(super) fn swap_remove(&mut self, row: usize) {
        let last = self.rows() - 1;
        let (size, per_row) = (self.row_bytes(), self.per_row);
        match &mut self.elements {
            Elements::Plain(bytes) => {
                bytes.copy_within(last * size.., row * size);
                bytes.truncate(last * size);
            }
            Elements::Strings(strings) => {
                for element in 0..per_row {
                    strings.swap(row * per_row + element, last * per_row + element);
                }
                strings.truncate(last * per_row);
            }
        }
    }

    pub(super) fn key(&self, row: usize) -> Key {
        match &self.elements {
            Elements::Strings(_) => Key::Bytes(self.string_row(row).first().cloned().unwrap_or_default()),
            Elements::Plain(_) => {
                let bytes = self.plain_row(row);
                if self.per_row != 1 || bytes.len() > 8 {
                    return Key::Bytes(Bytes::copy_from_slice(bytes));
                }
                Key::Plain(self.extended(bytes))
            }
        }
    }

    pub(super) fn push_key(&mut self, key: &Key) {
        let size = self.row_bytes();
        match (&mut self.elements, key) {
            (Elements::Plain(bytes), Key::Plain(bits)) => bytes.extend_from_slice(&bits.to_le_bytes()[..size.min(8)]),
            (Elements::Plain(bytes), Key::Bytes(key)) => bytes.extend_from_slice(key),
            (Elements::Strings(strings), Key::Bytes(key)) => strings.push(key.clone()),
            (Elements::Strings(_), Key::Plain(_)) => {}
        }
    }

    pub(super) fn to_tensor(&self, shape: Shape) -> Result<Tensor> {
        match &self.elements {
            Elements::Plain(bytes) => {
                Tensor::from_buffer(self.dtype, shape, Buffer::foreign(Bytes::copy_from_slice(bytes)))
            }
            Elements::Strings(strings) => Tensor::from_strings(shape, strings.clone()),
        }
    }

    pub(super) fn into_tensor(self, shape: Shape) -> Result<Tensor> {
        match self.elements {
            Elements::Plain(bytes) => Tensor::from_buffer(self.dtype, shape, Buffer::foreign(Bytes::from(bytes))),
            Elements::Strings(strings) => Tensor::from_strings(shape, strings),
        }
    }

    /// Formats the first element of a row.
    pub(super) fn text(&self, row: usize) -> String {
        if let Some(text) = self.string_row(row).first() {
            return String::from_utf8_lossy(text).into_owned();
        }
        let bytes = self.plain_row(row);
        match (self.dtype, self.key(row)) {
            (DType::Float, Key::Plain(bits)) => f32::from_bits(bits as u32).to_string(),
            (DType::Double, Key::Plain(bits)) => f64::from_bits(bits).to_string(),
            (_, Key::Plain(bits)) => (bits as i64).to_string(),
            _ => format!("{bytes:?}"),
        }
    }
}
