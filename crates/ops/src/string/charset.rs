//! [`Charset`]: decodes the characters of an encoding one by one, with their positions.

use encoding_rs::{DecoderResult, Encoding};

/// An encoding of text.
pub(super) enum Charset {
    Utf8,
    Latin1,
    Ascii,
    /// Two-byte units, big-endian unless a byte order mark says otherwise.
    Utf16 {
        little: bool,
        marked: bool,
    },
    Utf32 {
        little: bool,
        marked: bool,
    },
    Other(&'static Encoding),
}

impl Charset {
    /// Returns the encoding with a name; case, hyphens and underscores don't matter.
    pub(super) fn named(name: &str) -> Option<Charset> {
        let plain: String =
            name.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).map(|c| c.to_ascii_lowercase()).collect();
        Some(match plain.as_str() {
            "utf8" => Charset::Utf8,
            "latin1" | "iso88591" | "l1" => Charset::Latin1,
            "ascii" | "usascii" | "ansix3.41968" => Charset::Ascii,
            "utf16" => Charset::Utf16 { little: false, marked: true },
            "utf16be" => Charset::Utf16 { little: false, marked: false },
            "utf16le" => Charset::Utf16 { little: true, marked: false },
            "utf32" => Charset::Utf32 { little: false, marked: true },
            "utf32be" => Charset::Utf32 { little: false, marked: false },
            "utf32le" => Charset::Utf32 { little: true, marked: false },
            other => Charset::Other(match other {
                // Names that ICU knows and the web does not.
                "cp932" | "ms932" | "ibm943" => encoding_rs::SHIFT_JIS,
                "cp936" | "ms936" | "windows936" => encoding_rs::GBK,
                "euccn" | "hp15cn" => encoding_rs::GBK,
                "cp949" | "ms949" | "windows949" | "xeuckr" => encoding_rs::EUC_KR,
                "cp950" | "ms950" | "windows950" => encoding_rs::BIG5,
                "ujis" | "eucjis" | "xeucjp" => encoding_rs::EUC_JP,
                "macroman" | "macosroman" => encoding_rs::MACINTOSH,
                "cp874" | "ibm874" | "tis620" => encoding_rs::WINDOWS_874,
                _ => Encoding::for_label(name.as_bytes())?,
            }),
        })
    }

    /// Calls `visit` with the start of each character, and the character, or `None` if it is invalid.
    pub(super) fn decode(&self, text: &[u8], mut visit: impl FnMut(usize, Option<char>)) {
        match self {
            Charset::Utf8 => {
                let mut at = 0;
                for chunk in text.utf8_chunks() {
                    for (offset, character) in chunk.valid().char_indices() {
                        visit(at + offset, Some(character));
                    }
                    at += chunk.valid().len();
                    if !chunk.invalid().is_empty() {
                        visit(at, None);
                        at += chunk.invalid().len();
                    }
                }
            }
            Charset::Latin1 => text.iter().enumerate().for_each(|(at, &byte)| visit(at, Some(char::from(byte)))),
            Charset::Ascii => {
                let character = |byte: u8| byte.is_ascii().then(|| char::from(byte));
                text.iter().enumerate().for_each(|(at, &byte)| visit(at, character(byte)));
            }
            &Charset::Utf16 { little, marked } => {
                let (little, start) = match text {
                    [0xff, 0xfe, ..] if marked => (true, 2),
                    [0xfe, 0xff, ..] if marked => (false, 2),
                    _ => (little, 0),
                };
                decode_utf16(text, start, little, &mut visit);
            }
            &Charset::Utf32 { little, marked } => {
                let (little, start) = match text {
                    [0xff, 0xfe, 0, 0, ..] if marked => (true, 4),
                    [0, 0, 0xfe, 0xff, ..] if marked => (false, 4),
                    _ => (little, 0),
                };
                for (index, unit) in text[start..].chunks(4).enumerate() {
                    let code = <[u8; 4]>::try_from(unit)
                        .ok()
                        .map(|unit| if little { u32::from_le_bytes(unit) } else { u32::from_be_bytes(unit) });
                    visit(start + 4 * index, code.and_then(char::from_u32));
                }
            }
            Charset::Other(encoding) => decode_bytewise(encoding, text, &mut visit),
        }
    }
}

fn decode_utf16(text: &[u8], start: usize, little: bool, visit: &mut impl FnMut(usize, Option<char>)) {
    let units = text[start..].chunks_exact(2).map(|unit| {
        if little { u16::from_le_bytes([unit[0], unit[1]]) } else { u16::from_be_bytes([unit[0], unit[1]]) }
    });
    let mut at = start;
    let mut is_open = false;
    for character in char::decode_utf16(units) {
        let length = character.as_ref().map_or(2, |character| 2 * character.len_utf16());
        is_open = character.as_ref().is_err_and(|error| error.unpaired_surrogate() < 0xdc00);
        visit(at, character.ok());
        at += length;
    }
    // Half a unit is an error, unless it belongs to a pair as its second unit.
    if at < text.len() && !is_open {
        visit(at, None);
    }
}

/// Feeds a decoder byte by byte, so that the end of each character is known.
fn decode_bytewise(encoding: &'static Encoding, text: &[u8], visit: &mut impl FnMut(usize, Option<char>)) {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut start = 0;
    let mut buffer = [0u8; 32];
    for at in 0..=text.len() {
        let last = at == text.len();
        let mut rest = if last { &[][..] } else { &text[at..at + 1] };
        loop {
            let (result, read, written) = decoder.decode_to_utf8_without_replacement(rest, &mut buffer, last);
            rest = &rest[read..];
            for character in std::str::from_utf8(&buffer[..written]).unwrap_or_default().chars() {
                visit(start, Some(character));
                start = at + 1;
            }
            match result {
                DecoderResult::Malformed(..) => {
                    visit(start, None);
                    // Bytes that weren't read belong to the next character.
                    start = if rest.is_empty() { at + 1 } else { at };
                }
                DecoderResult::InputEmpty | DecoderResult::OutputFull => break,
            }
            if last && rest.is_empty() {
                break;
            }
        }
    }
}
