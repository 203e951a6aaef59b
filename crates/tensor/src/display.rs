//! How a tensor prints: as NumPy prints an array, with long ones cut.

use crate::{Complex32, Complex64};
use crate::{DType, Element, Tensor, bf16, f16};
use std::fmt;

/// The most elements that are printed in full, and how many are left at either end of a dimension otherwise; as NumPy's.
const THRESHOLD: usize = 1000;
const EDGE_ITEMS: usize = 3;

/// Prints the elements row by row; more than 1,000 are cut to the first and last three of each dimension.
///
/// ```
/// # use tensor::Tensor;
/// let matrix = Tensor::try_from([[1f32, 2.5], [3.0, 4.0]])?;
/// assert_eq!(matrix.to_string(), "[[1.  2.5]\n [3.  4. ]]");
/// # Ok::<(), tensor::Status>(())
/// ```
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = self.shape().to_usize();
        let is_cut = self.num_elements() > THRESHOLD;
        let mut shown = Vec::new();
        add_shown(&dims, is_cut, 0, &mut shown);
        let texts = self.texts(&shown);
        let width = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
        if dims.is_empty() {
            return f.write_str(texts.first().map_or("", |text| text.trim()));
        }
        let mut texts = texts.iter();
        write_block(f, &dims, is_cut, 0, width, &mut texts)
    }
}

/// Returns the positions along a dimension that are printed; `None` stands for those that are left out.
fn positions(size: usize, is_cut: bool) -> impl Iterator<Item = Option<usize>> {
    let is_cut = is_cut && size > 2 * EDGE_ITEMS;
    let head = if is_cut { EDGE_ITEMS } else { size };
    let tail = if is_cut { size - EDGE_ITEMS } else { size };
    (0..head).map(Some).chain(is_cut.then_some(None)).chain((tail..size).map(Some))
}

/// Collects the indices of the elements that are printed, in order.
fn add_shown(dims: &[usize], is_cut: bool, base: usize, shown: &mut Vec<usize>) {
    let Some((&size, inner)) = dims.split_first() else { return shown.push(base) };
    for position in positions(size, is_cut).flatten() {
        add_shown(inner, is_cut, base * size + position, shown);
    }
}

fn write_block<'a>(
    f: &mut fmt::Formatter<'_>,
    dims: &[usize],
    is_cut: bool,
    depth: usize,
    width: usize,
    texts: &mut impl Iterator<Item = &'a String>,
) -> fmt::Result {
    let Some((&size, inner)) = dims.split_first() else {
        return write!(f, "{:>width$}", texts.next().map_or("", |text| text));
    };
    f.write_str("[")?;
    for (index, position) in positions(size, is_cut).enumerate() {
        if index > 0 && inner.is_empty() {
            f.write_str(" ")?;
        } else if index > 0 {
            // An empty line for every dimension further in, as NumPy sets matrices apart.
            write!(f, "{}{}", "\n".repeat(inner.len()), " ".repeat(depth + 1))?;
        }
        match position {
            Some(_) => write_block(f, inner, is_cut, depth + 1, width, texts)?,
            None => f.write_str("...")?,
        }
    }
    f.write_str("]")
}

impl Tensor {
    /// Returns the texts of some elements.
    fn texts(&self, shown: &[usize]) -> Vec<String> {
        macro_rules! of {
            ($ty:ty, $format:expr) => {
                self.texts_of::<$ty>(shown, $format)
            };
        }
        match self.dtype() {
            DType::Float => floats(&self.values(shown, |value: f32| value)),
            DType::Double => floats(&self.values(shown, |value: f64| value)),
            DType::Half => floats(&self.values(shown, |value: f16| value.to_f32())),
            DType::BFloat16 => floats(&self.values(shown, |value: bf16| value.to_f32())),
            DType::Complex64 => of!(Complex32, |value| format!("{}{:+}j", value.re, value.im)),
            DType::Complex128 => of!(Complex64, |value| format!("{}{:+}j", value.re, value.im)),
            DType::Bool => of!(bool, |value| if value { "True" } else { "False" }.to_owned()),
            DType::UInt8 => of!(u8, |value| value.to_string()),
            DType::UInt16 => of!(u16, |value| value.to_string()),
            DType::UInt32 => of!(u32, |value| value.to_string()),
            DType::UInt64 => of!(u64, |value| value.to_string()),
            DType::Int8 => of!(i8, |value| value.to_string()),
            DType::Int16 => of!(i16, |value| value.to_string()),
            DType::Int32 => of!(i32, |value| value.to_string()),
            DType::Int64 => of!(i64, |value| value.to_string()),
            DType::String => {
                let strings = self.strings().unwrap_or_default();
                let text = |&index: &usize| strings.get(index).map(|bytes| format!("{bytes:?}")).unwrap_or_default();
                shown.iter().map(text).collect()
            }
            dtype => vec![format!("<{dtype}>"); shown.len()],
        }
    }

    fn values<T: Element, R>(&self, shown: &[usize], convert: impl Fn(T) -> R) -> Vec<R> {
        let values = self.as_slice::<T>().unwrap_or_default();
        shown.iter().filter_map(|&index| values.get(index).copied()).map(convert).collect()
    }

    fn texts_of<T: Element>(&self, shown: &[usize], format: impl Fn(T) -> String) -> Vec<String> {
        self.values(shown, format)
    }
}

/// A floating-point number that prints.
trait Float: Copy + Into<f64> + fmt::Display {}
impl Float for f32 {}
impl Float for f64 {}

/// Returns the numbers with as many digits as the one that needs most, at most eight, aligned at the point; with exponents
/// where they are far apart.
fn floats<T: Float>(values: &[T]) -> Vec<String> {
    const DIGITS_MAX: usize = 8;
    let finite = values.iter().map(|&value| value.into().abs()).filter(|value| value.is_finite() && *value != 0.0);
    let (least, most) =
        finite.fold((f64::INFINITY, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
    if most >= 1e8 || (least < 1e-4 && least.is_finite()) || most / least > 1e3 && least < 1.0 && most >= 1e5 {
        return values.iter().map(|&value| special(value).unwrap_or_else(|| exponential(value.into()))).collect();
    }
    let short = |value: &T| {
        special(*value).unwrap_or_else(|| {
            let shortest = value.to_string();
            let digits = shortest.split_once('.').map_or(0, |(_, digits)| digits.len());
            if digits > DIGITS_MAX { format!("{:.DIGITS_MAX$}", (*value).into()) } else { shortest }
        })
    };
    let texts: Vec<String> = values.iter().map(short).collect();
    let digits_of = |text: &String| text.split_once('.').map_or(0, |(_, digits)| digits.trim_end_matches('0').len());
    let digits = texts.iter().map(digits_of).max().unwrap_or(0);
    let aligned = |text: &String| {
        if !text.bytes().any(|byte| byte.is_ascii_digit()) {
            return text.clone();
        }
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        format!("{whole}.{:<digits$}", part.trim_end_matches('0'))
    };
    texts.iter().map(aligned).collect()
}

fn special<T: Float>(value: T) -> Option<String> {
    let value: f64 = value.into();
    match value {
        value if value.is_nan() => Some("nan".to_owned()),
        value if value.is_infinite() => Some(if value > 0.0 { "inf" } else { "-inf" }.to_owned()),
        _ => None,
    }
}

fn exponential(value: f64) -> String {
    let text = format!("{value:.4e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use crate::{IntoTensor, Shape, Tensor};

    #[track_caller]
    fn check(value: impl IntoTensor, printed: &str) {
        assert_eq!(value.into_tensor().unwrap().to_string(), printed);
    }

    #[test]
    fn tensors_print_as_numpy_prints_them() {
        check(3.5f32, "3.5");
        check(7i64, "7");
        check([1f32, 2.0, 10.5], "[ 1.   2.  10.5]");
        check([[1i32, -2], [30, 4]], "[[ 1 -2]\n [30  4]]");
        check([[[1u8, 2]], [[3, 4]]], "[[[1 2]]\n\n [[3 4]]]");
        check([true, false], "[ True False]");
        check(["a", "bc"], "[ b\"a\" b\"bc\"]");
        check([1f32, f32::NAN, f32::INFINITY], "[ 1. nan inf]");
        check([1e-7f32, 1.0], "[1.0000e-07 1.0000e+00]");
        check(Vec::<f32>::new(), "[]");
    }

    #[test]
    fn long_ones_are_cut() {
        let long = Tensor::vector(&(0..2000).collect::<Vec<i32>>());
        assert_eq!(long.to_string(), "[   0    1    2 ... 1997 1998 1999]");
        let tall = Tensor::zeros(crate::DType::Int32, Shape::new(&[1001, 1]).unwrap()).unwrap();
        assert_eq!(tall.to_string(), "[[0]\n [0]\n [0]\n ...\n [0]\n [0]\n [0]]");
    }
}
