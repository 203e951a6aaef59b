//! Tensors as JSON: nested arrays of numbers, booleans and strings. Bytes that aren't text are `{"b64": "…"}`, as in TensorFlow
//! Serving, and numbers that JSON can't represent are the strings `NaN`, `Infinity` and `-Infinity`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use tensor::{DType, Shape, Tensor, bf16, f16};

/// Parses a tensor of the given type, or of the type that the first element suggests.
pub fn read(text: &str, dtype: Option<DType>) -> Result<Tensor, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let (mut dims, mut elements) = (Vec::new(), Vec::new());
    flatten(&value, 0, &mut dims, &mut elements)?;
    let dtype = dtype.unwrap_or_else(|| match elements.first() {
        Some(Value::Bool(_)) => DType::Bool,
        Some(Value::String(_) | Value::Object(_)) => DType::String,
        Some(Value::Number(number)) if number.is_i64() => DType::Int64,
        _ => DType::Float,
    });
    macro_rules! numbers {
        ($($name:ident => $rust:ty, $read:ident;)*) => {
            match dtype {
                $(DType::$name => {
                    let values: Result<Vec<$rust>, String> = elements.iter().map(|value| $read::<$rust>(value, dtype)).collect();
                    Tensor::from_slice(&dims, &values?).map_err(|status| status.message().to_owned())
                })*
                DType::Half => floats(&dims, &elements, dtype, |number| f16::from_f64(number)),
                DType::BFloat16 => floats(&dims, &elements, dtype, |number| bf16::from_f64(number)),
                DType::Float => floats(&dims, &elements, dtype, |number| number as f32),
                DType::Double => floats(&dims, &elements, dtype, |number| number),
                DType::Bool => {
                    let values = elements.iter().map(|value| value.as_bool().ok_or_else(|| not_a(value, dtype)));
                    let values: Vec<bool> = values.collect::<Result<_, _>>()?;
                    Tensor::from_slice(&dims, &values).map_err(|status| status.message().to_owned())
                }
                DType::String => {
                    let values = elements.iter().map(|value| bytes(value).map(Into::into)).collect::<Result<_, _>>()?;
                    let shape = Shape::new(&dims).map_err(|status| status.message().to_owned())?;
                    Tensor::from_strings(shape, values).map_err(|status| status.message().to_owned())
                }
                other => Err(format!("{other} can't be given as JSON")),
            }
        };
    }
    numbers! {
        Int8 => i8, integer; Int16 => i16, integer; Int32 => i32, integer; Int64 => i64, integer;
        UInt8 => u8, integer; UInt16 => u16, integer; UInt32 => u32, integer; UInt64 => u64, integer;
    }
}

/// Returns an object with a member for each tensor.
pub fn object(tensors: &BTreeMap<String, Tensor>) -> Value {
    let members: Map<String, Value> = tensors.iter().map(|(name, value)| (name.clone(), to_json(value))).collect();
    Value::Object(members)
}

/// Collects the elements row by row, and determines the shape, which must be the same in all rows.
fn flatten<'a>(
    value: &'a Value,
    depth: usize,
    dims: &mut Vec<i64>,
    elements: &mut Vec<&'a Value>,
) -> Result<(), String> {
    let Value::Array(items) = value else {
        if depth < dims.len() {
            return Err(format!("the arrays don't form a rectangle: {value} stands where an array is expected"));
        }
        elements.push(value);
        return Ok(());
    };
    let len = i64::try_from(items.len()).map_err(|_| "too many elements".to_owned())?;
    if depth == dims.len() {
        if !elements.is_empty() {
            return Err(format!("the arrays don't form a rectangle: {value} stands where a number is expected"));
        }
        dims.push(len);
    } else if dims[depth] != len {
        return Err(format!("the arrays don't form a rectangle: one has {len} elements, others {}", dims[depth]));
    }
    items.iter().try_for_each(|item| flatten(item, depth + 1, dims, elements))
}

fn not_a(value: &Value, dtype: DType) -> String {
    format!("{value} is not a value of type {dtype}")
}

fn integer<T: TryFrom<i128>>(value: &Value, dtype: DType) -> Result<T, String> {
    let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| not_a(value, dtype))
}

fn floats<T: tensor::Element>(
    dims: &[i64],
    elements: &[&Value],
    dtype: DType,
    from: impl Fn(f64) -> T,
) -> Result<Tensor, String> {
    let number = |value: &&Value| match value {
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        other => other.as_f64(),
    };
    let values = elements.iter().map(|value| number(value).map(&from).ok_or_else(|| not_a(value, dtype)));
    let values: Vec<T> = values.collect::<Result<_, _>>()?;
    Tensor::from_slice(dims, &values).map_err(|status| status.message().to_owned())
}

fn bytes(value: &Value) -> Result<Vec<u8>, String> {
    match value {
        Value::String(text) => Ok(text.clone().into_bytes()),
        Value::Object(members) => match members.get("b64") {
            Some(Value::String(text)) if members.len() == 1 => {
                STANDARD.decode(text).map_err(|error| format!("{value} is not base64: {error}"))
            }
            _ => Err(not_a(value, DType::String)),
        },
        _ => Err(not_a(value, DType::String)),
    }
}

fn to_json(tensor: &Tensor) -> Value {
    macro_rules! by_type {
        ($($name:ident => $rust:ty),*) => {
            match tensor.dtype() {
                $(DType::$name => tensor.as_slice::<$rust>().map(|values| values.iter().map(|&value| Value::from(value)).collect()),)*
                DType::Float => tensor.as_slice::<f32>().map(|values| values.iter().map(|&value| from_f32(value)).collect()),
                DType::Double => tensor.as_slice::<f64>().map(|values| values.iter().map(|&value| from_f64(value)).collect()),
                DType::Half => tensor.as_slice::<f16>().map(|values| values.iter().map(|value| from_f32(value.to_f32())).collect()),
                DType::BFloat16 => tensor.as_slice::<bf16>().map(|values| values.iter().map(|value| from_f32(value.to_f32())).collect()),
                DType::String => tensor.strings().map(|values| values.iter().map(|value| from_bytes(value)).collect()),
                other => Ok(vec![Value::from(format!("({other} values are not shown)")); tensor.num_elements()]),
            }
        };
    }
    let elements: Vec<Value> =
        by_type!(Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64, UInt8 => u8, UInt16 => u16,
        UInt32 => u32, UInt64 => u64, Bool => bool)
        .unwrap_or_default();
    nest(tensor.dims(), &mut elements.into_iter())
}

/// Arranges elements in nested arrays of a shape.
fn nest(dims: &[i64], elements: &mut impl Iterator<Item = Value>) -> Value {
    match dims.split_first() {
        Some((&size, inner)) => Value::Array((0..size).map(|_| nest(inner, elements)).collect()),
        None => elements.next().unwrap_or_default(),
    }
}

/// Returns the shortest decimal number that parses to this `f32`.
fn from_f32(value: f32) -> Value {
    from_f64(value.to_string().parse().unwrap_or(f64::from(value)))
}

fn from_f64(value: f64) -> Value {
    match serde_json::Number::from_f64(value) {
        Some(number) => Value::Number(number),
        None if value.is_nan() => Value::from("NaN"),
        None => Value::from(if value > 0.0 { "Infinity" } else { "-Infinity" }),
    }
}

fn from_bytes(value: &[u8]) -> Value {
    match std::str::from_utf8(value) {
        Ok(text) => Value::from(text),
        Err(_) => Value::Object([("b64".to_owned(), Value::from(STANDARD.encode(value)))].into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, dtype: DType, dims: &[i64]) {
        let tensor = read(text, Some(dtype)).unwrap();
        assert_eq!((tensor.dtype(), tensor.dims()), (dtype, dims));
        assert_eq!(to_json(&tensor), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn what_is_read_is_written_again() {
        check("[[1.5,-2.0],[0.10000000149011612,3e10]]", DType::Double, &[2, 2]);
        check("[[0.1,\"NaN\"],[\"Infinity\",\"-Infinity\"]]", DType::Float, &[2, 2]);
        check("[0.5,2.0]", DType::Half, &[2]);
        check("[0.5,2.0]", DType::BFloat16, &[2]);
        check("-128", DType::Int8, &[]);
        check("[18446744073709551615]", DType::UInt64, &[1]);
        check("[[true],[false]]", DType::Bool, &[2, 1]);
        check("[\"déjà\",{\"b64\":\"/w==\"}]", DType::String, &[2]);
        check("[[],[]]", DType::Float, &[2, 0]);
    }

    #[test]
    fn what_does_not_fit_is_told() {
        for (text, dtype, part) in [
            ("[1,", DType::Float, "not JSON"),
            ("[[1,2],[3]]", DType::Float, "one has 1 elements, others 2"),
            ("[1,[2]]", DType::Float, "stands where a number is expected"),
            ("[[1],2]", DType::Float, "stands where an array is expected"),
            ("[1.5]", DType::Int32, "1.5 is not a value of type int32"),
            ("[300]", DType::UInt8, "300 is not a value of type uint8"),
            ("[\"a\"]", DType::Float, "\"a\" is not a value of type float"),
            ("[1]", DType::String, "1 is not a value of type string"),
            ("[{\"b64\":\"?\"}]", DType::String, "is not base64"),
            ("[1]", DType::Complex64, "complex64 can't be given as JSON"),
        ] {
            let why = read(text, Some(dtype)).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
