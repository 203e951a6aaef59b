//! Converts wire bytes to text.

use super::schema::{Field, Kind, MessageSchema, Schema};
use super::{DEPTH_MAX, Error, too_deep};
use prost::bytes::Buf;
use prost::encoding::{self, DecodeContext, WireType};
use std::fmt::{Debug, Write};

/// Returns the text form of a message, given its wire form.
pub(super) fn from_wire(schema: &Schema, message: &MessageSchema, wire: &[u8]) -> Result<String, Error> {
    let mut printer = Printer { schema, text: String::new() };
    printer.fields(message, wire, 0)?;
    Ok(printer.text)
}

struct Printer<'a> {
    schema: &'a Schema,
    text: String,
}

impl Printer<'_> {
    fn fields(&mut self, message: &MessageSchema, mut wire: &[u8], depth: usize) -> Result<(), Error> {
        let mut missing: Vec<&Field> = if message.is_map_entry { message.fields.iter().collect() } else { Vec::new() };
        while wire.has_remaining() {
            let (number, wire_type) = encoding::decode_key(&mut wire)?;
            let known = message.numbered(number).and_then(|field| field.kind().map(|kind| (field, kind)));
            let Some((field, kind)) = known else {
                encoding::skip_field(wire_type, number, &mut wire, DecodeContext::default())?;
                continue;
            };
            missing.retain(|other| other.number != number);
            if kind.wire_type() != WireType::LengthDelimited && wire_type == WireType::LengthDelimited {
                let mut packed = take(&mut wire)?;
                while packed.has_remaining() {
                    self.scalar(field, kind, &mut packed, depth)?;
                }
            } else {
                if kind.wire_type() != wire_type {
                    return Err(Error::new(format_args!("'{}' has another type in the message", field.name)));
                }
                self.scalar(field, kind, &mut wire, depth)?;
            }
        }
        for field in missing {
            self.default_of(field, depth);
        }
        Ok(())
    }

    /// Writes a value, which is a scalar, a string or a message.
    fn scalar(&mut self, field: &Field, kind: Kind, wire: &mut &[u8], depth: usize) -> Result<(), Error> {
        match kind {
            Kind::Message => {
                let unknown = || Error::new(format_args!("the message {} is not known", field.type_name));
                let message = self.schema.message(&field.type_name).ok_or_else(unknown)?;
                self.message(field, message, take(wire)?, depth)?;
            }
            Kind::String | Kind::Bytes => {
                let text = quoted(take(wire)?);
                self.line(field, depth, &text);
            }
            Kind::Double => self.line(field, depth, &float(fixed(wire, 8)?.get_f64_le())),
            Kind::Float => self.line(field, depth, &float(fixed(wire, 4)?.get_f32_le())),
            Kind::Fixed32 => self.line(field, depth, &fixed(wire, 4)?.get_u32_le().to_string()),
            Kind::Fixed64 => self.line(field, depth, &fixed(wire, 8)?.get_u64_le().to_string()),
            Kind::Sfixed32 => self.line(field, depth, &fixed(wire, 4)?.get_i32_le().to_string()),
            Kind::Sfixed64 => self.line(field, depth, &fixed(wire, 8)?.get_i64_le().to_string()),
            _ => {
                let value = encoding::decode_varint(wire)?;
                let zigzag = (value >> 1) as i64 ^ -((value & 1) as i64);
                let text = match kind {
                    Kind::Bool => (value != 0).to_string(),
                    Kind::Int32 => (value as i32).to_string(),
                    Kind::Int64 => (value as i64).to_string(),
                    Kind::Uint32 => (value as u32).to_string(),
                    Kind::Sint32 => (zigzag as i32).to_string(),
                    Kind::Sint64 => zigzag.to_string(),
                    Kind::Enum => match self.schema.enum_name(&field.type_name, value as i32) {
                        Some(name) => name.to_owned(),
                        None => (value as i32).to_string(),
                    },
                    _ => value.to_string(),
                };
                self.line(field, depth, &text);
            }
        }
        Ok(())
    }

    fn message(&mut self, field: &Field, message: &MessageSchema, wire: &[u8], depth: usize) -> Result<(), Error> {
        if depth >= DEPTH_MAX {
            return Err(too_deep());
        }
        self.indent(depth);
        self.text.push_str(&field.name);
        self.text.push_str(" {\n");
        self.fields(message, wire, depth + 1)?;
        self.indent(depth);
        self.text.push_str("}\n");
        Ok(())
    }

    /// Writes a field of a map entry that is not in the bytes because it has its default value.
    fn default_of(&mut self, field: &Field, depth: usize) {
        let text = match field.kind() {
            Some(Kind::Message) => {
                self.indent(depth);
                let _ = writeln!(self.text, "{} {{", field.name);
                self.indent(depth);
                self.text.push_str("}\n");
                return;
            }
            Some(Kind::String | Kind::Bytes) => "\"\"",
            Some(Kind::Bool) => "false",
            Some(Kind::Double | Kind::Float) => "0.0",
            Some(Kind::Enum) => self.schema.enum_name(&field.type_name, 0).unwrap_or("0"),
            _ => "0",
        };
        self.line(field, depth, text);
    }

    fn line(&mut self, field: &Field, depth: usize, value: &str) {
        self.indent(depth);
        // Writing to a string can't fail.
        let _ = writeln!(self.text, "{}: {value}", field.name);
    }

    fn indent(&mut self, depth: usize) {
        for _ in 0..depth {
            self.text.push_str("  ");
        }
    }
}

impl Kind {
    fn wire_type(self) -> WireType {
        match self {
            Kind::Message | Kind::String | Kind::Bytes => WireType::LengthDelimited,
            Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => WireType::SixtyFourBit,
            Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => WireType::ThirtyTwoBit,
            _ => WireType::Varint,
        }
    }
}

/// Takes a length-delimited run of bytes.
fn take<'a>(wire: &mut &'a [u8]) -> Result<&'a [u8], Error> {
    let len = usize::try_from(encoding::decode_varint(wire)?).unwrap_or(usize::MAX);
    fixed(wire, len)
}

fn fixed<'a>(wire: &mut &'a [u8], len: usize) -> Result<&'a [u8], Error> {
    wire.split_off(..len).ok_or_else(|| Error::new("the message ends inside a field"))
}

/// Returns the shortest decimal number that parses to the same value.
fn float(value: impl Debug + Into<f64> + Copy) -> String {
    let wide: f64 = value.into();
    if wide.is_nan() { "nan".to_owned() } else { format!("{value:?}") }
}

/// Returns bytes in quotes, with everything but printable ASCII as octal escapes.
fn quoted(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 2);
    text.push('"');
    for &byte in bytes {
        match byte {
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'"' | b'\'' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            // Writing to a string can't fail.
            _ => drop(write!(text, "\\{byte:03o}")),
        }
    }
    text.push('"');
    text
}
