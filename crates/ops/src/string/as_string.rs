//! AsString: formats values.

use super::number_format::{Flag, Format, Notation};
use bytes::Bytes;
use graph::Output;
use kernel::{BoxedKernel, Gradient, Kernel, KernelBuilder, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use tensor::{Complex32, Complex64, DType, Element, Result, Status, StringElement, Tensor, bf16, f16};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "AsString",
        inputs: &["input: T"],
        outputs: &["output: string"],
        attrs: &[
            "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, complex64, complex128, bool, variant, string}",
            "precision: int = -1",
            "scientific: bool = false",
            "shortest: bool = false",
            "width: int = -1",
            "fill: string = ''",
        ],
        flags: OpFlags::NONE,
    },
    shape: shape::unchanged,
    gradient: Gradient::NotDifferentiable,
    kernels: &[KernelDef::any(AsString::create)],
}];

/// Formats each value.
#[track_caller]
pub fn as_string(input: &Output) -> Output {
    input.graph().op("AsString").input(input).output()
}

struct AsString {
    format: Format,
    has_width: bool,
}

impl AsString {
    fn create(builder: &KernelBuilder<'_>) -> Result<BoxedKernel> {
        /// The largest width. Wider text is refused, since a small graph could create large strings with it.
        const SIZE_MAX: i64 = 1 << 16;
        let attrs = builder.attrs();
        let (precision, width) = (attrs.int("precision")?, attrs.int("width")?);
        let (scientific, shortest) = (attrs.bool("scientific")?, attrs.bool("shortest")?);
        let dtype = builder.input_dtype(0);
        let has_digits = dtype.is_floating() || dtype.is_complex();
        let is_text = matches!(dtype, DType::String | DType::Variant);
        if !has_digits && !is_text {
            if scientific || shortest {
                return Err(Status::invalid_argument(format!(
                    "scientific and shortest format not supported for datatype {dtype}"
                )));
            }
            if precision >= 0 {
                return Err(Status::invalid_argument(format!("precision not supported for datatype {dtype}")));
            }
        }
        if scientific && shortest {
            return Err(Status::invalid_argument("Cannot select both scientific and shortest notation"));
        }
        if precision > SIZE_MAX || width > SIZE_MAX {
            return Err(Status::invalid_argument(format!("precision and width must be at most {SIZE_MAX}")));
        }
        let flag = match attrs.string("fill")?.as_str() {
            "" => Flag::None,
            " " => Flag::Space,
            "+" => Flag::Plus,
            "-" => Flag::Left,
            "0" => Flag::Zero,
            "#" => Flag::Hash,
            other if other.len() > 1 => {
                return Err(Status::invalid_argument("Fill string must be one or fewer characters"));
            }
            other => return Err(Status::invalid_argument(format!("Fill argument not supported: \"{other}\""))),
        };
        let notation = match (scientific, shortest) {
            (true, _) => Notation::Scientific,
            (_, true) => Notation::Shortest,
            _ => Notation::Fixed,
        };
        let format = Format {
            notation,
            flag,
            width: usize::try_from(width).unwrap_or(0),
            precision: usize::try_from(precision).ok(),
        };
        BoxedKernel::new(AsString { format, has_width: width > 0 })
    }

    fn map<T: Element>(&self, input: &Tensor, write: impl Fn(T) -> String) -> Result<Vec<StringElement>> {
        Ok(input.as_slice::<T>()?.iter().map(|&value| Bytes::from(write(value))).collect())
    }

    fn complex(&self, re: f64, im: f64) -> String {
        format!("({},{})", self.format.float(re), self.format.float(im))
    }
}

impl Kernel for AsString {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let format = &self.format;
        macro_rules! integers {
            ($($dtype:ident => $rust:ty, $signed:literal),* $(,)?) => {
                match input.dtype() {
                    $(DType::$dtype => self.map(input, |value: $rust| {
                        let wide = i128::from(value);
                        format.integer(wide.unsigned_abs() as u64, wide < 0, $signed)
                    }),)*
                    DType::Float => self.map(input, |value: f32| format.float(f64::from(value))),
                    DType::Double => self.map(input, |value: f64| format.float(value)),
                    DType::Half => self.map(input, |value: f16| format.float(value.to_f64())),
                    DType::BFloat16 => self.map(input, |value: bf16| format.float(value.to_f64())),
                    DType::Complex64 => {
                        self.map(input, |value: Complex32| self.complex(f64::from(value.re), f64::from(value.im)))
                    }
                    DType::Complex128 => self.map(input, |value: Complex64| self.complex(value.re, value.im)),
                    DType::Bool => self.map(input, |value: bool| value.to_string()),
                    DType::String if !self.has_width => Ok(input.strings()?.to_vec()),
                    DType::String => Ok(input.strings()?.iter().map(|text| format.text(text).into()).collect()),
                    DType::Variant => {
                        Ok(input.variants()?.iter().map(|value| format!("{value:?}").into()).collect())
                    }
                    other => Err(Status::invalid_argument(format!("Type not supported: {other}"))),
                }
            };
        }
        let values = integers!(
            Int8 => i8, true, Int16 => i16, true, Int32 => i32, true, Int64 => i64, true,
            UInt8 => u8, false, UInt16 => u16, false, UInt32 => u32, false, UInt64 => u64, false,
        )?;
        let output = Tensor::from_strings(input.shape().clone(), values)?;
        context.set_output(0, output);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{attrs, run_op};
    use graph::AttrMap;
    use tensor::{Complex32, Result, Tensor, bf16, f16};

    fn shown(attrs: AttrMap, input: Tensor) -> Result<Vec<String>> {
        let y = run_op("AsString", attrs, &[input])?;
        Ok(y[0].strings()?.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
    }

    /// The texts in these tests are TensorFlow's.
    #[test]
    fn numbers_with_digits() {
        let x = || Tensor::vector(&[1.5f32, -2.25, 1e10, f32::INFINITY, f32::NAN, 1e-7, 0.0, 123456789.0]);
        for (attrs, expected) in [
            (attrs![], "1.500000|-2.250000|10000000000.000000|inf|nan|0.000000|0.000000|123456792.000000"),
            (attrs![("precision", 2i64)], "1.50|-2.25|10000000000.00|inf|nan|0.00|0.00|123456792.00"),
            (
                attrs![("scientific", true)],
                "1.500000e+00|-2.250000e+00|1.000000e+10|inf|nan|1.000000e-07|0.000000e+00|1.234568e+08",
            ),
            (attrs![("shortest", true)], "1.5|-2.25|1e+10|inf|nan|1e-07|0|1.23457e+08"),
            (attrs![("shortest", true), ("precision", 3i64)], "1.5|-2.25|1e+10|inf|nan|1e-07|0|1.23e+08"),
            (
                attrs![("width", 8i64), ("fill", "0")],
                "1.500000|-2.250000|10000000000.000000|     inf|     nan|0.000000|0.000000|123456792.000000",
            ),
            (
                attrs![("width", 12i64), ("fill", "+"), ("precision", 3i64), ("scientific", true)],
                "  +1.500e+00|  -2.250e+00|  +1.000e+10|        +inf|        +nan|  +1.000e-07|  +0.000e+00|  +1.235e+08",
            ),
        ] {
            assert_eq!(shown(attrs, x()).unwrap().join("|"), expected);
        }
        let x = Tensor::vector(&[0.1f64, 1e22, 1.0 / 3.0, 100000.0, 1000000.0, 0.0001, 0.00001]);
        assert_eq!(
            shown(attrs![("shortest", true)], x).unwrap().join("|"),
            "0.1|1e+22|0.333333|100000|1e+06|0.0001|1e-05"
        );
        assert_eq!(shown(attrs![], Tensor::scalar(f16::from_f32(0.1))).unwrap(), ["0.099976"]);
        assert_eq!(shown(attrs![], Tensor::scalar(bf16::from_f32(0.1))).unwrap(), ["0.100098"]);
        let x = Tensor::scalar(Complex32::new(-1.5, -0.25));
        assert_eq!(shown(attrs![("precision", 2i64)], x).unwrap(), ["(-1.50,-0.25)"]);
    }

    #[test]
    fn other_values() {
        let x = || Tensor::vector(&[1i32, -2, 100]);
        assert_eq!(shown(attrs![("width", 6i64), ("fill", "0")], x()).unwrap(), ["000001", "-00002", "000100"]);
        assert_eq!(shown(attrs![("width", 6i64), ("fill", "-")], x()).unwrap(), ["1     ", "-2    ", "100   "]);
        assert_eq!(shown(attrs![("fill", "+")], x()).unwrap(), ["+1", "-2", "+100"]);
        assert_eq!(shown(attrs![("fill", "+"), ("width", 4i64)], Tensor::scalar(1u64)).unwrap(), ["   1"]);
        assert_eq!(shown(attrs![], Tensor::scalar(i64::MIN)).unwrap(), ["-9223372036854775808"]);
        assert_eq!(shown(attrs![("width", 6i64)], Tensor::vector(&[true, false])).unwrap(), ["true", "false"]);
        assert_eq!(shown(attrs![("width", 4i64), ("fill", "0")], Tensor::string("ab")).unwrap(), ["  ab"]);
        for bad in [
            attrs![("precision", 2i64)],
            attrs![("shortest", true)],
            attrs![("scientific", true)],
            attrs![("fill", "xx")],
            attrs![("fill", "x")],
        ] {
            assert!(shown(bad, x()).is_err());
        }
        assert!(shown(attrs![("scientific", true), ("shortest", true)], Tensor::scalar(1f32)).is_err());
    }
}
