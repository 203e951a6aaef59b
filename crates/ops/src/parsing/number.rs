//! Parsing of numbers as in TensorFlow: surrounding blanks are allowed, integers have no plus sign.

use std::str::{FromStr, from_utf8};

/// A type that can be parsed from text.
pub(crate) trait FromText: Sized {
    /// Returns the number, or `None` if the text isn't one.
    fn from_text(text: &[u8]) -> Option<Self>;
}

macro_rules! from_text {
    ($($ty:ty => $parse:ident),*) => {$(
        impl FromText for $ty {
            fn from_text(text: &[u8]) -> Option<$ty> {
                $parse(text.trim_ascii())
            }
        }
    )*};
}

from_text!(f32 => float, f64 => float, i32 => integer, i64 => integer, u32 => integer, u64 => integer);

fn integer<T: FromStr>(text: &[u8]) -> Option<T> {
    match text.first() {
        Some(b'+') | None => None,
        Some(_) => from_utf8(text).ok()?.parse().ok(),
    }
}

fn float<
    T: FromStr + From<u8> + std::ops::Neg<Output = T> + std::ops::Mul<Output = T> + std::ops::Add<Output = T> + Copy,
>(
    text: &[u8],
) -> Option<T> {
    let text = from_utf8(text).ok()?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let Some(hexadecimal) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) else {
        return text.parse().ok();
    };
    if hexadecimal.is_empty() {
        return None;
    }
    let mut value = T::from(0);
    for digit in hexadecimal.chars() {
        value = value * T::from(16) + T::from(digit.to_digit(16)? as u8);
    }
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tensorflow_takes() {
        assert_eq!(f32::from_text(b" 3 "), Some(3.0));
        assert_eq!(f32::from_text(b"1e40"), Some(f32::INFINITY));
        assert_eq!(f64::from_text(b"0x10"), Some(16.0));
        assert_eq!(f64::from_text(b"-0xf"), Some(-15.0));
        assert_eq!(f32::from_text(b"+5"), Some(5.0));
        assert!(f32::from_text(b"nan").unwrap().is_nan());
        assert_eq!(i32::from_text(b" -7 "), Some(-7));
        for text in ["x", "", "1 2", "1_0", "0x", " "] {
            assert_eq!(f32::from_text(text.as_bytes()), None, "{text}");
        }
        for text in ["1.5", "+5", "0x10", "99999999999999999999", "", "x"] {
            assert_eq!(i64::from_text(text.as_bytes()), None, "{text}");
        }
    }
}
