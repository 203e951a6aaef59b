//! Converts text to wire bytes.

use super::schema::{Field, Kind, MessageSchema, Schema};
use super::{DEPTH_MAX, Error, too_deep};
use prost::encoding::{self, WireType};
use std::fmt::Display;

/// The fields of `google.protobuf.Any`: the type URL and the bytes of the message.
const ANY_TYPE: u32 = 1;
const ANY_VALUE: u32 = 2;

/// Returns the wire form of a message, given its text form.
pub(super) fn to_wire(schema: &Schema, message: &MessageSchema, text: &str) -> Result<Vec<u8>, Error> {
    let mut parser = Parser { schema, text: text.as_bytes(), position: 0 };
    let mut wire = Vec::new();
    parser.skip_space();
    parser.fields(message, None, 0, &mut wire)?;
    Ok(wire)
}

struct Parser<'a> {
    schema: &'a Schema,
    text: &'a [u8],
    position: usize,
}

impl<'a> Parser<'a> {
    /// Reads fields up to the closing bracket of their message, or to the end of the text at the top level.
    fn fields(
        &mut self,
        message: &MessageSchema,
        close: Option<u8>,
        depth: usize,
        wire: &mut Vec<u8>,
    ) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(too_deep());
        }
        let mut seen: Vec<&Field> = Vec::new();
        loop {
            match self.peek() {
                None if close.is_none() => return Ok(()),
                None => return Err(self.error("the text ends inside a message")),
                Some(byte) if Some(byte) == close => {
                    self.advance(1);
                    return Ok(());
                }
                Some(b'[') => self.any(depth, wire)?,
                Some(_) => {
                    let start = self.position;
                    let name = self.word().ok_or_else(|| self.error("a field's name is expected"))?;
                    let unknown = || self.error_at(format_args!("there is no field '{name}' here"), start);
                    let field = message.named(name).ok_or_else(unknown)?;
                    if let Some(earlier) = seen.iter().find(|other| clash(field, other)) {
                        let what = format_args!("'{name}' can't be given after '{}'", earlier.name);
                        return Err(self.error_at(what, start));
                    }
                    seen.push(field);
                    self.field(field, depth, wire)?;
                }
            }
            if let Some(b',' | b';') = self.peek() {
                self.advance(1);
            }
        }
    }

    /// Reads the part after a field's name: a value or a list of values.
    fn field(&mut self, field: &Field, depth: usize, wire: &mut Vec<u8>) -> Result<(), Error> {
        let kind = field.kind().ok_or_else(|| self.error(format_args!("'{}' has no text form", field.name)))?;
        if !self.eat(b':') && kind != Kind::Message {
            return Err(self.error(format_args!("a colon is expected after '{}'", field.name)));
        }
        if !(field.is_repeated() && self.eat(b'[')) {
            return self.value(field, kind, depth, wire);
        }
        if self.eat(b']') {
            return Ok(());
        }
        loop {
            self.value(field, kind, depth, wire)?;
            if self.eat(b']') {
                return Ok(());
            }
            if !self.eat(b',') {
                return Err(self.error("a comma or the end of the list is expected"));
            }
        }
    }

    /// Reads a value, and writes it with its field's number.
    fn value(&mut self, field: &Field, kind: Kind, depth: usize, wire: &mut Vec<u8>) -> Result<(), Error> {
        let number = field.number;
        match kind {
            Kind::Message => {
                let missing = || self.error(format_args!("the message {} is not known", field.type_name));
                let message = self.schema.message(&field.type_name).ok_or_else(missing)?;
                let mut inner = Vec::new();
                self.message(message, depth, &mut inner)?;
                write_bytes(number, &inner, wire);
            }
            Kind::String => {
                let start = self.position;
                let bytes = self.string()?;
                let text = String::from_utf8(bytes).map_err(|_| self.error_at("the text is not UTF-8", start))?;
                encoding::string::encode(number, &text, wire);
            }
            Kind::Bytes => write_bytes(number, &self.string()?, wire),
            Kind::Double => encoding::double::encode(number, &self.float()?, wire),
            Kind::Float => encoding::float::encode(number, &(self.float()? as f32), wire),
            Kind::Bool => encoding::bool::encode(number, &self.boolean()?, wire),
            Kind::Enum => encoding::int32::encode(number, &self.enumeration(&field.type_name)?, wire),
            Kind::Int32 => encoding::int32::encode(number, &self.integer()?, wire),
            Kind::Int64 => encoding::int64::encode(number, &self.integer()?, wire),
            Kind::Uint32 => encoding::uint32::encode(number, &self.integer()?, wire),
            Kind::Uint64 => encoding::uint64::encode(number, &self.integer()?, wire),
            Kind::Sint32 => encoding::sint32::encode(number, &self.integer()?, wire),
            Kind::Sint64 => encoding::sint64::encode(number, &self.integer()?, wire),
            Kind::Fixed32 => encoding::fixed32::encode(number, &self.integer()?, wire),
            Kind::Fixed64 => encoding::fixed64::encode(number, &self.integer()?, wire),
            Kind::Sfixed32 => encoding::sfixed32::encode(number, &self.integer()?, wire),
            Kind::Sfixed64 => encoding::sfixed64::encode(number, &self.integer()?, wire),
        }
        Ok(())
    }

    /// Reads a message in its brackets.
    fn message(&mut self, message: &MessageSchema, depth: usize, wire: &mut Vec<u8>) -> Result<(), Error> {
        let close = match self.peek() {
            Some(b'{') => b'}',
            Some(b'<') => b'>',
            _ => return Err(self.error("'{' is expected")),
        };
        self.advance(1);
        self.fields(message, Some(close), depth + 1, wire)
    }

    /// Reads the content of an `Any`, with its type URL in front: `[type.googleapis.com/tensorflow.ServerDef] { … }`.
    fn any(&mut self, depth: usize, wire: &mut Vec<u8>) -> Result<(), Error> {
        let start = self.position;
        let rest = &self.text[start..];
        let end = rest.iter().position(|&byte| byte == b']').ok_or_else(|| self.error("']' is missing"))?;
        let url = String::from_utf8_lossy(&rest[1..end]).trim().to_owned();
        let name = url.rsplit_once('/').map(|(_, name)| format!(".{name}")).unwrap_or_default();
        let unknown = || self.error_at(format_args!("the type '{url}' is not known"), start);
        let message = self.schema.message(&name).ok_or_else(unknown)?;
        self.advance(end + 1);
        self.eat(b':');
        let mut inner = Vec::new();
        self.message(message, depth, &mut inner)?;
        encoding::string::encode(ANY_TYPE, &url, wire);
        write_bytes(ANY_VALUE, &inner, wire);
        Ok(())
    }

    /// Reads a string, which may consist of several adjacent literals.
    fn string(&mut self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let Some(b'"' | b'\'') = self.peek() else { return Err(self.error("a text in quotes is expected")) };
        while let Some(quote @ (b'"' | b'\'')) = self.peek() {
            self.position += 1;
            loop {
                match self.text.get(self.position) {
                    None | Some(b'\n') => return Err(self.error("the closing quote is missing")),
                    Some(b'\\') => {
                        self.position += 1;
                        self.escape(&mut bytes)?;
                    }
                    Some(&byte) => {
                        self.position += 1;
                        if byte == quote {
                            break;
                        }
                        bytes.push(byte);
                    }
                }
            }
            self.skip_space();
        }
        Ok(bytes)
    }

    /// Reads the part of an escape after the backslash.
    fn escape(&mut self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let start = self.position;
        let kind = self.text.get(start).copied().unwrap_or_default();
        self.position += 1;
        match kind {
            b'a' => bytes.push(0x07),
            b'b' => bytes.push(0x08),
            b'f' => bytes.push(0x0c),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'v' => bytes.push(0x0b),
            b'\\' | b'\'' | b'"' | b'?' => bytes.push(kind),
            b'0'..=b'7' => {
                self.position = start;
                let value = self.digits(8, 1, 3).and_then(|value| u8::try_from(value).ok());
                bytes.push(value.ok_or_else(|| self.error_at("this is no byte", start))?);
            }
            b'x' | b'X' => {
                let value = self.digits(16, 1, 2).and_then(|value| u8::try_from(value).ok());
                bytes.push(value.ok_or_else(|| self.error_at("this is no byte", start))?);
            }
            b'u' | b'U' => {
                let count = if kind == b'u' { 4 } else { 8 };
                let value = self.digits(16, count, count).and_then(char::from_u32);
                let value = value.ok_or_else(|| self.error_at("this is no Unicode character", start))?;
                bytes.extend_from_slice(value.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => return Err(self.error_at("this character can't follow a backslash", start)),
        }
        Ok(())
    }

    /// Reads between `least` and `most` digits.
    fn digits(&mut self, radix: u32, least: usize, most: usize) -> Option<u32> {
        let mut value = 0u32;
        let mut count = 0;
        while count < most
            && let Some(digit) = self.text.get(self.position).and_then(|&byte| char::from(byte).to_digit(radix))
        {
            value = value.checked_mul(radix)?.checked_add(digit)?;
            self.position += 1;
            count += 1;
        }
        (count >= least).then_some(value)
    }

    fn integer<T: TryFrom<i128>>(&mut self) -> Result<T, Error> {
        let start = self.position;
        let (negative, word) = self.number()?;
        let magnitude = integer(word).map(|value| if negative { -value } else { value });
        let value = magnitude.and_then(|value| T::try_from(value).ok());
        value.ok_or_else(|| self.error_at("an integer in the field's range is expected", start))
    }

    fn float(&mut self) -> Result<f64, Error> {
        let start = self.position;
        let (negative, word) = self.number()?;
        let lower = word.to_ascii_lowercase();
        let value = match &*lower {
            "inf" | "infinity" => Some(f64::INFINITY),
            "nan" => Some(f64::NAN),
            _ if !lower.starts_with(|first: char| first.is_ascii_digit() || first == '.') => None,
            _ if lower.starts_with("0x") => integer(word).map(|value| value as f64),
            _ => lower.strip_suffix('f').unwrap_or(&lower).parse().ok(),
        };
        let value = value.ok_or_else(|| self.error_at("a number is expected", start))?;
        Ok(if negative { -value } else { value })
    }

    fn boolean(&mut self) -> Result<bool, Error> {
        let start = self.position;
        match self.word() {
            Some("true" | "True" | "t" | "1") => Ok(true),
            Some("false" | "False" | "f" | "0") => Ok(false),
            _ => Err(self.error_at("'true' or 'false' is expected", start)),
        }
    }

    fn enumeration(&mut self, type_name: &str) -> Result<i32, Error> {
        let start = self.position;
        if let Some(b'-' | b'0'..=b'9') = self.peek() {
            return self.integer();
        }
        let name = self.word().unwrap_or_default();
        let unknown = || self.error_at(format_args!("{} has no value '{name}'", &type_name[1..]), start);
        self.schema.enum_number(type_name, name).ok_or_else(unknown)
    }

    /// Reads a number's sign and its digits, or a name such as `inf`.
    fn number(&mut self) -> Result<(bool, &'a str), Error> {
        let start = self.position;
        let negative = self.eat(b'-');
        let word = self.word().ok_or_else(|| self.error_at("a number is expected", start))?;
        Ok((negative, word))
    }

    /// Reads a name or a number, or returns `None` if neither follows.
    fn word(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.position..];
        let is_number = rest.first().is_some_and(|first| first.is_ascii_digit() || *first == b'.');
        let mut len = 0;
        while let Some(&byte) = rest.get(len) {
            let exponent_sign = matches!(byte, b'+' | b'-')
                && len > 0
                && matches!(rest[len - 1], b'e' | b'E')
                && !rest.starts_with(b"0x");
            let in_number = is_number && (byte == b'.' || exponent_sign);
            if !(byte.is_ascii_alphanumeric() || byte == b'_' || in_number) {
                break;
            }
            len += 1;
        }
        if len == 0 {
            return None;
        }
        self.advance(len);
        std::str::from_utf8(&rest[..len]).ok()
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        if is_next {
            self.advance(1);
        }
        is_next
    }

    /// Advances by some bytes, and past the white space and comments after them.
    fn advance(&mut self, len: usize) {
        self.position += len;
        self.skip_space();
    }

    fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            if byte == b'#' {
                let rest = &self.text[self.position..];
                self.position += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            } else if byte.is_ascii_whitespace() || byte == 0x0b {
                self.position += 1;
            } else {
                break;
            }
        }
    }

    fn error(&self, what: impl Display) -> Error {
        self.error_at(what, self.position)
    }

    fn error_at(&self, what: impl Display, position: usize) -> Error {
        let before = &self.text[..position.min(self.text.len())];
        let line_start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        let column = 1 + String::from_utf8_lossy(&before[line_start..]).chars().count();
        Error::at(what, line, column)
    }
}

/// Returns whether two fields exclude each other: the same singular field twice, or two members of a oneof.
fn clash(field: &Field, earlier: &Field) -> bool {
    !field.is_repeated() && (field.number == earlier.number || (field.oneof.is_some() && field.oneof == earlier.oneof))
}

/// Parses a decimal, octal or hexadecimal number.
fn integer(word: &str) -> Option<i128> {
    let (digits, radix) = match word.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&word[2..], 16),
        [b'0', _, ..] => (&word[1..], 8),
        _ => (word, 10),
    };
    u64::from_str_radix(digits, radix).ok().map(i128::from)
}

fn write_bytes(number: u32, bytes: &[u8], wire: &mut Vec<u8>) {
    encoding::encode_key(number, WireType::LengthDelimited, wire);
    encoding::encode_varint(bytes.len() as u64, wire);
    wire.extend_from_slice(bytes);
}
