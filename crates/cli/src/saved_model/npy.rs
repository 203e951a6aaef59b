//! NumPy's file format for arrays (`.npy`): a header that is a Python dictionary, and the elements.

use tensor::{DType, Shape, Tensor, bf16, f16};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The alignment to which the header is padded.
const ALIGNMENT: usize = 64;

/// Returns whether a file's content is a NumPy array.
pub fn is_array(content: &[u8]) -> bool {
    content.starts_with(MAGIC)
}

/// Parses an array.
pub fn read(content: &[u8]) -> Result<Tensor, String> {
    let cut = || "the file is cut off".to_owned();
    let version = *content.get(MAGIC.len()).ok_or_else(cut)?;
    // The length is two bytes in the first version and four in later ones.
    let (start, len) = match version {
        1 => (10, content.get(8..10).map(|bytes| usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))),
        2 | 3 => {
            let len = content.get(8..12).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
            (12, len.map(|len| len as usize))
        }
        other => return Err(format!("version {other} of the format is unknown")),
    };
    let end = len.and_then(|len| len.checked_add(start)).ok_or_else(cut)?;
    let header = content.get(start..end).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| "the header is not text".to_owned())?;
    let descr = quoted(header, "descr")?;
    if value_of(header, "fortran_order")?.starts_with("True") {
        return Err("it is in Fortran's order: save numpy.ascontiguousarray of it".to_owned());
    }
    let dims = dims_of(header)?;
    let shape = Shape::new(&dims).map_err(|status| status.message().to_owned())?;
    elements(&descr, shape, &content[end..])
}

/// Returns the file content for an array.
pub fn write(tensor: &Tensor) -> Result<Vec<u8>, String> {
    macro_rules! by_type {
        ($($name:ident => $rust:ty, $descr:literal;)*) => {
            match tensor.dtype() {
                $(DType::$name => {
                    let values = tensor.as_slice::<$rust>().map_err(|status| status.message().to_owned())?;
                    ($descr.to_owned(), values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
                })*
                DType::Bool => {
                    let values = tensor.as_slice::<bool>().map_err(|status| status.message().to_owned())?;
                    ("|b1".to_owned(), values.iter().map(|&value| u8::from(value)).collect())
                }
                DType::BFloat16 => {
                    // NumPy has no bfloat16; every value of it is also a float.
                    let values = tensor.as_slice::<bf16>().map_err(|status| status.message().to_owned())?;
                    ("<f4".to_owned(), values.iter().flat_map(|value| value.to_f32().to_le_bytes()).collect())
                }
                DType::String => {
                    let values = tensor.strings().map_err(|status| status.message().to_owned())?;
                    let width = values.iter().map(|value| value.len()).max().unwrap_or(0).max(1);
                    let padded = values.iter().flat_map(|value| {
                        value.iter().copied().chain(std::iter::repeat_n(0, width - value.len()))
                    });
                    (format!("|S{width}"), padded.collect())
                }
                other => return Err(format!("{other} has no type of NumPy's")),
            }
        };
    }
    let (descr, data) = by_type! {
        Float => f32, "<f4"; Double => f64, "<f8"; Half => f16, "<f2";
        Int8 => i8, "|i1"; Int16 => i16, "<i2"; Int32 => i32, "<i4"; Int64 => i64, "<i8";
        UInt8 => u8, "|u1"; UInt16 => u16, "<u2"; UInt32 => u32, "<u4"; UInt64 => u64, "<u8";
    };
    let dims: Vec<String> = tensor.dims().iter().map(|size| format!("{size},")).collect();
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}", dims.join(" "));
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    header.push('\n');
    let len = u16::try_from(header.len()).map_err(|_| "its shape is too long".to_owned())?;
    Ok([MAGIC, &[1, 0], &len.to_le_bytes(), header.as_bytes(), &data].concat())
}

/// Parses the elements, whose type NumPy names with its byte order and size.
fn elements(descr: &str, shape: Shape, data: &[u8]) -> Result<Tensor, String> {
    let (count, dims) = (shape.num_elements(), shape.dims().to_vec());
    let (order, kind) = descr.split_at_checked(1).ok_or_else(|| format!("'{descr}' is no type"))?;
    let check = |size: usize| match count.checked_mul(size) {
        Some(bytes) if bytes == data.len() => Ok(()),
        _ => Err(format!("{} bytes for {count} elements of type {descr}", data.len())),
    };
    macro_rules! by_type {
        ($($kind:literal => $rust:ty;)*) => {
            match kind {
                $($kind => {
                    const SIZE: usize = size_of::<$rust>();
                    check(SIZE)?;
                    let value = |bytes: &[u8]| {
                        let mut array = [0; SIZE];
                        array.copy_from_slice(bytes);
                        if order == ">" { <$rust>::from_be_bytes(array) } else { <$rust>::from_le_bytes(array) }
                    };
                    let values: Vec<$rust> = data.chunks_exact(SIZE).map(value).collect();
                    Tensor::from_slice(&dims, &values).map_err(|status| status.message().to_owned())
                })*
                "b1" => {
                    check(1)?;
                    let values: Vec<bool> = data.iter().map(|&byte| byte != 0).collect();
                    Tensor::from_slice(&dims, &values).map_err(|status| status.message().to_owned())
                }
                _ => strings(order, kind, shape, data, check),
            }
        };
    }
    by_type! {
        "f4" => f32; "f8" => f64; "f2" => f16; "i1" => i8; "i2" => i16; "i4" => i32; "i8" => i64;
        "u1" => u8; "u2" => u16; "u4" => u32; "u8" => u64;
    }
}

/// Parses fixed-length strings, of bytes or of characters with four bytes each, padded with zeros.
fn strings(
    order: &str,
    kind: &str,
    shape: Shape,
    data: &[u8],
    check: impl Fn(usize) -> Result<(), String>,
) -> Result<Tensor, String> {
    let unknown = || format!("arrays of type '{order}{kind}' can't be read");
    let (letter, len) = kind.split_at_checked(1).ok_or_else(unknown)?;
    let len: usize = len.parse().map_err(|_| unknown())?;
    let width = match letter {
        "S" => len,
        "U" => len.checked_mul(4).ok_or_else(unknown)?,
        _ => return Err(unknown()),
    };
    check(width)?;
    let characters = |bytes: &[u8]| -> Result<Vec<u8>, String> {
        let codes = bytes.chunks_exact(4).map(|code| {
            let code = [code[0], code[1], code[2], code[3]];
            if order == ">" { u32::from_be_bytes(code) } else { u32::from_le_bytes(code) }
        });
        let text: Option<String> = codes.map(char::from_u32).collect();
        let text = text.ok_or_else(|| "a string with what is no character".to_owned())?;
        Ok(text.trim_end_matches('\0').to_owned().into_bytes())
    };
    let trimmed = |bytes: &[u8]| {
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        Ok(bytes[..end].to_vec())
    };
    let empty = vec![&[][..]; if width == 0 { shape.num_elements() } else { 0 }];
    let pieces = empty.into_iter().chain(data.chunks_exact(width.max(1)));
    let values = pieces.map(|bytes| if letter == "U" { characters(bytes) } else { trimmed(bytes) }.map(Into::into));
    let values = values.collect::<Result<_, String>>()?;
    Tensor::from_strings(shape, values).map_err(|status| status.message().to_owned())
}

/// Returns the text after a key of the header.
fn value_of<'a>(header: &'a str, key: &str) -> Result<&'a str, String> {
    let (_, rest) = header.split_once(&format!("'{key}':")).ok_or_else(|| format!("the header has no '{key}'"))?;
    Ok(rest.trim_start())
}

fn quoted(header: &str, key: &str) -> Result<String, String> {
    let value = value_of(header, key)?;
    let text = value.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    text.map(|(text, _)| text.to_owned()).ok_or_else(|| "arrays with fields can't be read".to_owned())
}

fn dims_of(header: &str) -> Result<Vec<i64>, String> {
    let value = value_of(header, "shape")?;
    let inner = value.strip_prefix('(').and_then(|rest| rest.split_once(')')).map(|(inner, _)| inner);
    let sizes = inner.ok_or_else(|| "the header's shape is no tuple".to_owned())?;
    let sizes = sizes.split(',').map(str::trim).filter(|size| !size.is_empty());
    sizes.map(|size| size.parse().map_err(|_| format!("'{size}' in the shape is no size"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tensor: &Tensor) {
        let written = write(tensor).unwrap();
        assert!(is_array(&written) && written.len() >= ALIGNMENT);
        let read = read(&written).unwrap();
        assert_eq!((read.dtype(), read.dims()), (tensor.dtype(), tensor.dims()));
        assert_eq!(read.to_string(), tensor.to_string());
    }

    #[test]
    fn what_is_written_is_read_again() {
        check(&Tensor::from_slice(&[2, 3], &[1f32, -2.0, 0.1, 4.0, 5.0, f32::INFINITY]).unwrap());
        check(&Tensor::scalar(7i64));
        check(&Tensor::vector(&[true, false]));
        check(&Tensor::vector(&[f16::from_f32(0.5)]));
        check(&Tensor::vector::<u8>(&[]));
        check(&Tensor::from_strings(Shape::vector(3), vec!["a".into(), "".into(), "longer".into()]).unwrap());
    }

    #[test]
    fn damaged_files_are_refused() {
        let whole = write(&Tensor::vector(&[1f32, 2.0])).unwrap();
        for len in [MAGIC.len(), 9, 20, whole.len() - 1] {
            assert!(read(&whole[..len]).is_err(), "{len} bytes");
        }
        let text = String::from_utf8_lossy(&whole[10..64]).into_owned();
        for (from, to) in [("<f4", "|O8"), ("False", "True "), ("(2,)", "(x,)"), ("(2,)", "(3,)"), ("descr", "DESCR")] {
            let mut changed = whole.clone();
            changed[10..64].copy_from_slice(text.replace(from, to).as_bytes());
            assert!(read(&changed).is_err(), "{to}");
        }
    }
}
