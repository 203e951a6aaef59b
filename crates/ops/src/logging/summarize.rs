//! Display of values: the first elements of a tensor in nested brackets, with numbers as TensorFlow writes them.

use tensor::{DType, Element, Result, Tensor, bf16, f16};

/// Returns the first `max_entries` elements of a tensor, or all if it is negative: `[1 2 3][4...]...`.
pub(crate) fn summarize_value(tensor: &Tensor, max_entries: i64) -> Result<String> {
    let count = tensor.num_elements();
    let limit = usize::try_from(max_entries).map_or(count, |limit| limit.min(count));
    macro_rules! list {
        ($($variant:ident => $rust:ty, $show:expr);* $(;)?) => {
            match tensor.dtype() {
                $(DType::$variant => {
                    let show: fn(&$rust) -> String = $show;
                    elements::<$rust>(tensor, limit, show)?
                })*
                DType::String => tensor
                    .strings()?
                    .iter()
                    .take(limit)
                    .map(|text| escape(text))
                    .collect(),
                DType::Resource => vec!["<resource>".to_owned(); limit],
                _ => vec!["?".to_owned(); limit.min(1)],
            }
        };
    }
    let shown: Vec<String> = list!(
        Float => f32, |value| float_text(*value);
        Double => f64, |value| double_text(*value);
        Half => f16, |value| float_text(value.to_f32());
        BFloat16 => bf16, |value| float_text(value.to_f32());
        Int8 => i8, i8::to_string;
        Int16 => i16, i16::to_string;
        Int32 => i32, i32::to_string;
        Int64 => i64, i64::to_string;
        UInt8 => u8, u8::to_string;
        UInt16 => u16, u16::to_string;
        UInt32 => u32, u32::to_string;
        UInt64 => u64, u64::to_string;
        QInt8 => i8, i8::to_string;
        QUInt8 => u8, u8::to_string;
        QInt16 => i16, i16::to_string;
        QUInt16 => u16, u16::to_string;
        QInt32 => i32, i32::to_string;
        Bool => bool, |value| u8::from(*value).to_string();
    );
    let dims = tensor.shape().to_usize();
    let mut text = String::new();
    if dims.is_empty() {
        text.push_str(shown.first().map_or("", String::as_str));
    } else {
        let mut next = 0;
        write_axis(&dims, &shown, &mut next, true, &mut text);
    }
    if count > limit {
        text.push_str("...");
    }
    Ok(text)
}

fn elements<T: Element>(tensor: &Tensor, limit: usize, show: fn(&T) -> String) -> Result<Vec<String>> {
    Ok(tensor.as_slice::<T>()?.iter().take(limit).map(show).collect())
}

/// Writes one axis: elements separated by spaces, or each slice in brackets; a truncated slice is marked.
fn write_axis(dims: &[usize], shown: &[String], next: &mut usize, is_outer: bool, text: &mut String) {
    if *next >= shown.len() {
        return;
    }
    let Some((&size, inner)) = dims.split_first() else { return };
    if inner.is_empty() {
        for index in 0..size {
            let Some(element) = shown.get(*next) else {
                if !is_outer {
                    text.push_str("...");
                }
                return;
            };
            if index > 0 {
                text.push(' ');
            }
            text.push_str(element);
            *next += 1;
        }
        return;
    }
    for _ in 0..size {
        let opens = *next < shown.len();
        if opens {
            text.push('[');
        }
        write_axis(inner, shown, next, false, text);
        if opens {
            text.push(']');
        } else {
            return;
        }
    }
}

fn escape(text: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for &byte in text {
        match byte {
            b'\n' => escaped.push_str("\\n"),
            b'\r' => escaped.push_str("\\r"),
            b'\t' => escaped.push_str("\\t"),
            b'"' => escaped.push_str("\\\""),
            b'\'' => escaped.push_str("\\'"),
            b'\\' => escaped.push_str("\\\\"),
            0x20..=0x7e => escaped.push(char::from(byte)),
            other => escaped.push_str(&format!("\\{other:03o}")),
        }
    }
    escaped
}

/// Returns a number with as few digits as single precision usually needs, or all if those don't suffice.
pub(crate) fn float_text(value: f32) -> String {
    let short = general(f64::from(value), 6);
    if short.parse() == Ok(value) { short } else { general(f64::from(value), 9) }
}

/// Returns a number with as few digits as double precision usually needs, or all if those don't suffice.
pub(crate) fn double_text(value: f64) -> String {
    let short = general(value, 15);
    if short.parse() == Ok(value) { short } else { general(value, 17) }
}

/// Writes a number with `digits` significant digits, as C's `%g` does.
fn general(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan".to_owned() } else { "nan".to_owned() };
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| -> String {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    trim(&format!("{value:.decimals$}"))
}

/// Calls `f` with every element of a tensor of numbers; other tensors have none.
pub(crate) fn for_each_number(tensor: &Tensor, mut f: impl FnMut(f64)) -> Result<()> {
    macro_rules! visit {
        ($($variant:ident => $rust:ty),* $(,)?) => {
            match tensor.dtype() {
                $(DType::$variant => tensor.as_slice::<$rust>()?.iter().for_each(|&value| f(value as f64)),)*
                DType::Half => tensor.as_slice::<f16>()?.iter().for_each(|value| f(value.to_f64())),
                DType::BFloat16 => tensor.as_slice::<bf16>()?.iter().for_each(|value| f(value.to_f64())),
                _ => {}
            }
        };
    }
    visit!(
        Float => f32, Double => f64, Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64, UInt8 => u8, UInt16 => u16,
        UInt32 => u32, UInt64 => u64,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensor::Shape;

    fn show(tensor: Tensor, limit: i64) -> String {
        summarize_value(&tensor, limit).unwrap()
    }

    /// The expected texts come from TensorFlow.
    #[test]
    fn nested_brackets() {
        assert_eq!(show(Tensor::vector(&[1i32, 2, 3, 4, 5]), 3), "1 2 3...");
        let matrix = || Tensor::from_slice(&[2, 2], &[1.5f32, 2., 3., 4.]).unwrap();
        assert_eq!(show(matrix(), 3), "[1.5 2][3...]...");
        assert_eq!(show(matrix(), 10), "[1.5 2][3 4]");
        let cube = || Tensor::from_slice(&[2, 3, 4], &(0..24).collect::<Vec<i32>>()).unwrap();
        assert_eq!(show(cube(), 7), "[[0 1 2 3][4 5 6...]]...");
        assert!(show(cube(), -1).ends_with("[20 21 22 23]]"));
        assert_eq!(show(Tensor::from_slice::<f32>(&[0, 3], &[]).unwrap(), 3), "");
        assert_eq!(show(Tensor::vector(&[true, false]), 3), "1 0");
        let words = Tensor::from_strings(Shape::vector(4), ["x", "y", "z", "w"].map(Into::into).to_vec()).unwrap();
        assert_eq!(show(words, 3), "x y z...");
    }

    #[test]
    fn numbers() {
        assert_eq!(float_text(1e20), "1e+20");
        assert_eq!(float_text(1.234_567_9), "1.23456788");
        assert_eq!(float_text(1e-5), "1e-05");
        assert_eq!(float_text(100000.0), "100000");
        assert_eq!(float_text(-0.5), "-0.5");
        assert_eq!(double_text(1.0 / 3.0), "0.33333333333333331");
        assert_eq!(double_text(f64::INFINITY), "inf");
        assert_eq!(double_text(0.0), "0");
    }
}
