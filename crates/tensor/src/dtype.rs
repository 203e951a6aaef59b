//! [`DType`]: the element types, with TensorFlow's numbers and names.

use crate::{Result, Status};
use std::fmt;

macro_rules! dtypes {
    ($($variant:ident = $number:literal, $name:literal, $size:literal;)*) => {
        /// The type of a tensor's elements. Whether an edge is a reference is not part of it.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i32)]
        #[allow(missing_docs)]
        pub enum DType {
            $($variant = $number,)*
        }

        impl DType {
            /// All the types, in the order of their numbers.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// Returns the type for a number on the wire, without its reference bit.
            pub fn from_i32(number: i32) -> Result<DType> {
                match base_number(number) {
                    $($number => Ok(DType::$variant),)*
                    _ => Err(Status::invalid_argument(format!("invalid data type {number}"))),
                }
            }

            /// Returns TensorFlow's name, such as `float` or `int32`.
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Returns the size of an element in bytes, and 0 for types whose elements aren't plain bytes.
            pub fn size(self) -> usize {
                match self { $(DType::$variant => $size,)* }
            }

            /// Returns the type with TensorFlow's name, such as `float` or `DT_FLOAT`.
            pub fn from_name(name: &str) -> Option<DType> {
                let name = name.strip_prefix("DT_").map(str::to_ascii_lowercase).unwrap_or_else(|| name.to_owned());
                match name.as_str() { $($name => Some(DType::$variant),)* _ => None }
            }
        }
    };
}

dtypes! {
    Float = 1, "float", 4;
    Double = 2, "double", 8;
    Int32 = 3, "int32", 4;
    UInt8 = 4, "uint8", 1;
    Int16 = 5, "int16", 2;
    Int8 = 6, "int8", 1;
    String = 7, "string", 0;
    Complex64 = 8, "complex64", 8;
    Int64 = 9, "int64", 8;
    Bool = 10, "bool", 1;
    QInt8 = 11, "qint8", 1;
    QUInt8 = 12, "quint8", 1;
    QInt32 = 13, "qint32", 4;
    BFloat16 = 14, "bfloat16", 2;
    QInt16 = 15, "qint16", 2;
    QUInt16 = 16, "quint16", 2;
    UInt16 = 17, "uint16", 2;
    Complex128 = 18, "complex128", 16;
    Half = 19, "half", 2;
    Resource = 20, "resource", 0;
    Variant = 21, "variant", 0;
    UInt32 = 22, "uint32", 4;
    UInt64 = 23, "uint64", 8;
    Float8E5M2 = 24, "float8_e5m2", 1;
    Float8E4M3Fn = 25, "float8_e4m3fn", 1;
    Int4 = 29, "int4", 1;
    UInt4 = 30, "uint4", 1;
}

/// Reference types carry their base type's number plus this.
const REF_OFFSET: i32 = 100;

fn base_number(number: i32) -> i32 {
    if number > REF_OFFSET { number - REF_OFFSET } else { number }
}

impl DType {
    /// Returns whether a number on the wire stands for a reference type.
    pub fn number_is_ref(number: i32) -> bool {
        number > REF_OFFSET
    }

    /// Returns the number on the wire of the reference type over this one.
    pub fn ref_number(self) -> i32 {
        self as i32 + REF_OFFSET
    }

    /// Returns whether the elements are plain bytes that can be copied as memory.
    pub fn is_plain(self) -> bool {
        self.size() != 0
    }

    /// Returns whether this is a real floating-point type.
    pub fn is_floating(self) -> bool {
        use DType::*;
        matches!(self, Float | Double | Half | BFloat16 | Float8E5M2 | Float8E4M3Fn)
    }

    /// Returns whether this is a complex type.
    pub fn is_complex(self) -> bool {
        matches!(self, DType::Complex64 | DType::Complex128)
    }

    /// Returns whether this is an integer type; quantized types are not.
    pub fn is_integer(self) -> bool {
        use DType::*;
        matches!(self, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Int4 | UInt4)
    }

    /// Returns whether this is a quantized type.
    pub fn is_quantized(self) -> bool {
        use DType::*;
        matches!(self, QInt8 | QUInt8 | QInt32 | QInt16 | QUInt16)
    }

    /// Returns the element type of the parts of a complex type, and the type itself otherwise.
    pub fn real(self) -> DType {
        match self {
            DType::Complex64 => DType::Float,
            DType::Complex128 => DType::Double,
            other => other,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_references() {
        for &dtype in DType::ALL {
            assert_eq!(DType::from_i32(dtype as i32).unwrap(), dtype);
            assert_eq!(DType::from_i32(dtype.ref_number()).unwrap(), dtype);
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        }
        assert_eq!(DType::from_name("DT_FLOAT"), Some(DType::Float));
        assert!(DType::from_i32(0).is_err());
        assert!(DType::from_i32(100).is_err());
        assert!(DType::number_is_ref(101));
    }
}
