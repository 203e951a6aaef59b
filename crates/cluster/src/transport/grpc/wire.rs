//! The protobuf wire format for the messages that carry tensors: a reader over bytes, and a writer that shares the bytes of large
//! tensors instead of copying them.

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{encode_varint, encoded_len_varint};
use tensor::{Buffer, DType, Result, Shape, Status, Tensor};

/// Tensors below this size are copied behind their headers, because another segment costs more than the copy.
const SHARED_BYTES_MIN: usize = 8 << 10;

/// The largest message that protobuf allows; TensorFlow refuses larger ones.
pub(crate) const MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// The value of one field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Field<'a> {
    /// An integer, a flag or an enum.
    Varint(u64),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
    /// Four or eight bytes, which none of these messages uses.
    Fixed,
}

impl<'a> Field<'a> {
    /// Returns an integer; another kind of value is an error.
    pub fn varint(self) -> Result<u64> {
        match self {
            Field::Varint(value) => Ok(value),
            _ => Err(malformed()),
        }
    }

    /// Returns the bytes; another kind of value is an error.
    pub fn bytes(self) -> Result<&'a [u8]> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            _ => Err(malformed()),
        }
    }

    /// Returns text; anything else is an error.
    pub fn text(self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| malformed())
    }

    /// Decodes a nested message of a rare kind.
    pub fn message<M: prost::Message + Default>(self) -> Result<M> {
        M::decode(self.bytes()?).map_err(|_| malformed())
    }
}

/// Reads fields one after the other.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Makes a reader over a message.
    pub fn new(message: &'a [u8]) -> Reader<'a> {
        Reader { rest: message }
    }

    /// Returns the next field's number and value, or `None` at the end.
    pub fn next(&mut self) -> Result<Option<(u32, Field<'a>)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| malformed())?;
        let field = match tag & 7 {
            0 => Field::Varint(self.varint()?),
            1 => self.take(8).map(|_| Field::Fixed)?,
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| malformed())?;
                Field::Bytes(self.take(len)?)
            }
            5 => self.take(4).map(|_| Field::Fixed)?,
            _ => return Err(malformed()),
        };
        Ok(Some((number, field)))
    }

    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(malformed())
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// The error for invalid bytes.
pub(crate) fn malformed() -> Status {
    Status::invalid_argument("a message could not be parsed")
}

/// Reads a tensor. `content` is the contents that the transport has already split off, if it has.
pub(crate) fn read_tensor(message: &[u8], content: Option<Buffer>) -> Result<Tensor> {
    let mut dtype = 0i32;
    let mut shape = None;
    let mut inline: &[u8] = &[];
    let mut reader = Reader::new(message);
    let mut is_packed = true;
    while let Some((number, field)) = reader.next()? {
        match number {
            1 => dtype = field.varint()? as i32,
            2 => shape = Some(read_shape(field.bytes()?)?),
            3 => {}
            4 => inline = field.bytes()?,
            _ => is_packed = false,
        }
    }
    let shape = shape.unwrap_or_else(Shape::scalar);
    if is_packed
        && !DType::number_is_ref(dtype)
        && let Some(dtype) = DType::from_i32(dtype).ok().filter(|dtype| dtype.is_plain())
    {
        if let Some(content) = content {
            return Tensor::from_buffer(dtype, shape, content);
        }
        // No content at all means zeros, which the general decoder handles.
        if !inline.is_empty() {
            let mut buffer = Buffer::new(inline.len())?;
            if let Some(bytes) = buffer.bytes_mut() {
                bytes.copy_from_slice(inline);
            }
            return Tensor::from_buffer(dtype, shape, buffer);
        }
    }
    let mut proto = <proto::TensorProto as prost::Message>::decode(message).map_err(|_| malformed())?;
    if let Some(content) = content {
        proto.tensor_content = Bytes::from_owner(content);
    }
    tensor::tensor_from_proto(&proto)
}

fn read_shape(message: &[u8]) -> Result<Shape> {
    let mut dims = smallvec::SmallVec::<[i64; 6]>::new();
    let mut reader = Reader::new(message);
    while let Some((number, field)) = reader.next()? {
        match number {
            2 => {
                let mut size = 0;
                let mut dim = Reader::new(field.bytes()?);
                while let Some((number, field)) = dim.next()? {
                    if number == 1 {
                        size = field.varint()? as i64;
                    }
                }
                dims.push(size);
            }
            3 if field.varint()? != 0 => {
                return Err(Status::invalid_argument("a tensor's rank must be known"));
            }
            _ => {}
        }
    }
    Shape::new(&dims)
}

/// An encoded message in pieces; the large ones are shared with their tensors.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// The pieces in order; the first one begins with space for gRPC's prefix.
    pub pieces: smallvec::SmallVec<[Bytes; 2]>,
}

/// The length of the prefix of a gRPC message: a flag and the length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// Writes a message as [`Segments`].
pub(crate) struct Writer {
    done: smallvec::SmallVec<[Bytes; 2]>,
    done_bytes: usize,
    current: BytesMut,
}

impl Writer {
    /// Makes a writer with room for `capacity` bytes besides large tensors.
    pub fn new(capacity: usize) -> Writer {
        let mut current = BytesMut::with_capacity(capacity + PREFIX_BYTES);
        current.put_bytes(0, PREFIX_BYTES);
        Writer { done: Default::default(), done_bytes: 0, current }
    }

    /// Writes a number, unless it is 0.
    pub fn varint(&mut self, number: u32, value: u64) {
        if value != 0 {
            encode_varint(u64::from(number << 3), &mut self.current);
            encode_varint(value, &mut self.current);
        }
    }

    /// Writes a string or bytes, unless they are empty.
    pub fn bytes(&mut self, number: u32, value: &[u8]) {
        if !value.is_empty() {
            self.field(number, value.len());
            self.current.put_slice(value);
        }
    }

    /// Writes an element of a repeated string field, even if it is empty.
    pub fn element(&mut self, number: u32, value: &[u8]) {
        self.field(number, value.len());
        self.current.put_slice(value);
    }

    /// Writes a message.
    pub fn message(&mut self, number: u32, message: &impl prost::Message) {
        self.field(number, message.encoded_len());
        // A `BytesMut` grows as needed, so this can't fail.
        let _ = message.encode(&mut self.current);
    }

    /// Begins a field of `len` bytes that the caller writes next.
    pub fn field(&mut self, number: u32, len: usize) {
        encode_varint(u64::from(number << 3 | 2), &mut self.current);
        encode_varint(len as u64, &mut self.current);
    }

    /// Writes a tensor as a field.
    pub fn tensor(&mut self, number: u32, tensor: &EncodedTensor) {
        self.field(number, tensor.len());
        self.current.put_slice(&tensor.head);
        match &tensor.content {
            Some(content) if content.len() < SHARED_BYTES_MIN => self.current.put_slice(content.bytes()),
            Some(content) => {
                self.done_bytes += self.current.len() + content.len();
                self.done.push(self.current.split().freeze());
                self.done.push(Bytes::from_owner(content.clone()));
            }
            None => {}
        }
    }

    /// Writes a `NamedTensorProto` as a field.
    pub fn named_tensor(&mut self, number: u32, name: &str, tensor: &EncodedTensor) {
        let tensor_len = tensor.len();
        let name_len = if name.is_empty() { 0 } else { 1 + encoded_len_varint(name.len() as u64) + name.len() };
        self.field(number, name_len + 1 + encoded_len_varint(tensor_len as u64) + tensor_len);
        self.bytes(1, name.as_bytes());
        self.tensor(2, tensor);
    }

    /// Returns the message with its gRPC prefix; `what` names it in the error if it is too large.
    pub fn finish(mut self, what: impl FnOnce() -> String) -> Result<Segments> {
        let total = self.done_bytes + self.current.len() - PREFIX_BYTES;
        if total > MESSAGE_BYTES_MAX {
            return Err(too_large(what(), total));
        }
        let mut pieces = self.done;
        let length = (total as u32).to_be_bytes();
        match pieces.first_mut() {
            None => self.current[1..PREFIX_BYTES].copy_from_slice(&length),
            Some(first) => {
                let mut head = BytesMut::from(std::mem::take(first));
                head[1..PREFIX_BYTES].copy_from_slice(&length);
                *first = head.freeze();
            }
        }
        if !self.current.is_empty() {
            pieces.push(self.current.freeze());
        }
        Ok(Segments { pieces })
    }
}

/// Returns the error for a message that exceeds protobuf's limit.
pub(crate) fn too_large(what: String, bytes: usize) -> Status {
    Status::invalid_argument(format!(
        "{what} takes {bytes} bytes, and a message can have at most {MESSAGE_BYTES_MAX} (2 GiB)"
    ))
}

impl Segments {
    /// Encodes a message of a rare kind.
    pub fn from_message(message: &impl prost::Message, what: impl FnOnce() -> String) -> Result<Segments> {
        let len = message.encoded_len();
        if len > MESSAGE_BYTES_MAX {
            return Err(too_large(what(), len));
        }
        let mut bytes = BytesMut::with_capacity(len + PREFIX_BYTES);
        bytes.put_u8(0);
        bytes.put_u32(len as u32);
        message.encode(&mut bytes).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Segments { pieces: smallvec::smallvec![bytes.freeze()] })
    }

    #[cfg(test)]
    pub fn to_vec(&self) -> Vec<u8> {
        self.pieces.concat()
    }
}

/// A tensor that is ready to be written: everything except its plain elements is encoded, and those are shared.
pub(crate) struct EncodedTensor {
    head: smallvec::SmallVec<[u8; 64]>,
    content: Option<Buffer>,
}

impl EncodedTensor {
    /// Encodes a tensor.
    pub fn new(tensor: &Tensor) -> Result<EncodedTensor> {
        let mut head = smallvec::SmallVec::<[u8; 64]>::new();
        let Some(buffer) = tensor.buffer() else {
            let proto = tensor::tensor_to_proto_inline(tensor)?;
            let bytes = prost::Message::encode_to_vec(&proto);
            return Ok(EncodedTensor { head: smallvec::SmallVec::from_vec(bytes), content: None });
        };
        head.push(1 << 3);
        put_varint(&mut head, tensor.dtype() as u64);
        let dims = tensor.dims();
        let dim_len = |&dim: &i64| if dim == 0 { 0 } else { 1 + encoded_len_varint(dim as u64) };
        let shape_len: usize = dims.iter().map(|dim| 2 + dim_len(dim)).sum();
        head.push(2 << 3 | 2);
        put_varint(&mut head, shape_len as u64);
        for dim in dims {
            head.push(2 << 3 | 2);
            head.push(dim_len(dim) as u8);
            if *dim != 0 {
                head.push(1 << 3);
                put_varint(&mut head, *dim as u64);
            }
        }
        if buffer.is_empty() {
            return Ok(EncodedTensor { head, content: None });
        }
        head.push(4 << 3 | 2);
        put_varint(&mut head, buffer.len() as u64);
        Ok(EncodedTensor { head, content: Some(buffer.clone()) })
    }

    /// Returns the length of the encoded message.
    pub fn len(&self) -> usize {
        self.head.len() + self.content.as_ref().map_or(0, Buffer::len)
    }
}

fn put_varint(bytes: &mut smallvec::SmallVec<[u8; 64]>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    fn check_round_trip(tensor: &Tensor) {
        let mut writer = Writer::new(16);
        writer.named_tensor(3, "name", &EncodedTensor::new(tensor).unwrap());
        writer.varint(11, 7);
        let bytes = writer.finish(String::new).unwrap().to_vec();
        assert_eq!(u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize, bytes.len() - PREFIX_BYTES);
        let request = proto::RunGraphRequest::decode(&bytes[PREFIX_BYTES..]).unwrap();
        assert_eq!(request.request_id, 7);
        assert_eq!(request.send[0].name, "name");
        let encoded = request.send[0].tensor.clone().unwrap();
        for back in [tensor::tensor_from_proto(&encoded).unwrap(), read_tensor(&encoded.encode_to_vec(), None).unwrap()]
        {
            assert_eq!(back.dtype(), tensor.dtype());
            assert_eq!(back.shape(), tensor.shape());
            assert_eq!(back.buffer().map(Buffer::bytes), tensor.buffer().map(Buffer::bytes));
            if tensor.dtype() == DType::String {
                assert_eq!(back.strings().unwrap(), tensor.strings().unwrap());
            }
        }
    }

    #[test]
    fn tensors_are_what_protobuf_says() {
        check_round_trip(&Tensor::scalar(1.5f32));
        check_round_trip(&Tensor::vector(&vec![3i64; 5000]));
        check_round_trip(&Tensor::from_slice(&[300, 2], &[1.0f64; 600]).unwrap());
        check_round_trip(&Tensor::zeros(DType::Int32, Shape::new(&[0, 4]).unwrap()).unwrap());
        check_round_trip(&Tensor::from_strings(Shape::vector(2), vec!["a".into(), vec![0u8; 300].into()]).unwrap());
        check_round_trip(&Tensor::vector(&[true, false]));
    }

    #[test]
    fn large_tensors_are_shared() {
        let tensor = Tensor::vector(&vec![1f32; 1 << 20]);
        let mut writer = Writer::new(16);
        writer.tensor(1, &EncodedTensor::new(&tensor).unwrap());
        let segments = writer.finish(String::new).unwrap();
        let shared = segments.pieces.iter().any(|piece| piece.as_ptr() == tensor.buffer().unwrap().bytes().as_ptr());
        assert!(shared);
    }

    #[test]
    fn what_is_cut_is_an_error() {
        let mut writer = Writer::new(16);
        writer.tensor(1, &EncodedTensor::new(&Tensor::scalar(1.5f32)).unwrap());
        let bytes = writer.finish(String::new).unwrap().to_vec();
        for end in PREFIX_BYTES + 1..bytes.len() {
            let mut reader = Reader::new(&bytes[PREFIX_BYTES..end]);
            assert!(reader.next().is_err());
        }
        assert!(read_tensor(&[0xff; 11], None).is_err());
        assert!(read_tensor(&[8, 101], None).is_err(), "a reference type");
    }
}
