//! DecodeJSONExample: examples in JSON.

use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use kernel::{BoxedKernel, Gradient, Kernel, KernelDef, Op, OpContext, OpDef, OpFlags, shape};
use prost::Message;
use proto::{BytesList, Example, Feature, Features, FloatList, Int64List, feature::Kind};
use serde_json::{Map, Value};
use tensor::{Result, Status, Tensor};

/// The ops of this file.
pub(super) const OPS: &[Op] = &[Op {
    def: OpDef {
        name: "DecodeJSONExample",
        inputs: &["json_examples: string"],
        outputs: &["binary_examples: string"],
        attrs: &[],
        flags: OpFlags::NONE,
    },
    shape: shape::unchanged,
    gradient: Gradient::NotDifferentiable,
    kernels: &[KernelDef::any(|_| BoxedKernel::new(DecodeJsonExample))],
}];

struct DecodeJsonExample;

impl Kernel for DecodeJsonExample {
    fn compute(&self, context: &mut OpContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let mut examples = Vec::with_capacity(input.num_elements());
        for text in input.strings()? {
            let example =
                read(text).ok_or_else(|| Status::invalid_argument("Error while parsing JSON: it is not an example"))?;
            examples.push(example.encode_to_vec().into());
        }
        context.set_output(0, Tensor::from_strings(input.shape().clone(), examples)?);
        Ok(())
    }
}

fn read(text: &[u8]) -> Option<Example> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let features = match member(value.as_object()?, &["features"])? {
        None => None,
        Some(features) => Some(read_features(features.as_object()?)?),
    };
    Some(Example { features })
}

/// Returns the single member that an object may have, under any of these names; no other is allowed.
fn member<'a>(object: &'a Map<String, Value>, names: &[&str]) -> Option<Option<&'a Value>> {
    match object.iter().all(|(name, _)| names.contains(&name.as_str())) && object.len() <= 1 {
        true => Some(object.values().next().filter(|value| !value.is_null())),
        false => None,
    }
}

fn read_features(object: &Map<String, Value>) -> Option<Features> {
    let mut features = Features::default();
    if let Some(named) = member(object, &["feature"])? {
        for (name, feature) in named.as_object()? {
            features.feature.insert(name.clone(), read_feature(feature.as_object()?)?);
        }
    }
    Some(features)
}

fn read_feature(object: &Map<String, Value>) -> Option<Feature> {
    let mut feature = Feature::default();
    for (name, list) in object {
        if list.is_null() {
            continue;
        }
        if feature.kind.is_some() {
            return None;
        }
        let empty = Vec::new();
        let values = match member(list.as_object()?, &["value"])? {
            Some(values) => values.as_array()?,
            None => &empty,
        };
        feature.kind = Some(match name.as_str() {
            "bytesList" | "bytes_list" => {
                Kind::BytesList(BytesList { value: values.iter().map(bytes).collect::<Option<_>>()? })
            }
            "floatList" | "float_list" => {
                Kind::FloatList(FloatList { value: values.iter().map(float).collect::<Option<_>>()? })
            }
            "int64List" | "int64_list" => {
                Kind::Int64List(Int64List { value: values.iter().map(integer).collect::<Option<_>>()? })
            }
            _ => return None,
        });
    }
    Some(feature)
}

/// Bytes are base64 text in either alphabet.
fn bytes<B: From<Vec<u8>>>(value: &Value) -> Option<B> {
    let lenient = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let engine = GeneralPurpose::new(&base64::alphabet::STANDARD, lenient);
    let text = value.as_str()?.replace('-', "+").replace('_', "/");
    Some(engine.decode(text).ok()?.into())
}

/// Numbers may be strings, and some can't be written otherwise.
fn float(value: &Value) -> Option<f32> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => match text.as_str() {
            "NaN" => return Some(f32::NAN),
            "Infinity" => return Some(f32::INFINITY),
            "-Infinity" => return Some(f32::NEG_INFINITY),
            text => text.parse::<f64>().ok().filter(|number| number.is_finite())?,
        },
        _ => return None,
    };
    Some(number as f32).filter(|number| number.is_finite())
}

fn integer(value: &Value) -> Option<i64> {
    let whole = |number: f64| {
        let fits = number.fract() == 0.0 && (-9223372036854775808.0..9223372036854775808.0).contains(&number);
        fits.then_some(number as i64)
    };
    match value {
        Value::Number(number) if number.is_i64() => number.as_i64(),
        Value::Number(number) if number.is_u64() => None,
        Value::Number(number) => whole(number.as_f64()?),
        Value::String(text) => text.parse().ok().or_else(|| whole(text.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{attrs, run_op};

    fn decoded(json: &str) -> Result<Example> {
        let outputs = run_op("DecodeJSONExample", attrs![], &[Tensor::string(json.as_bytes().to_vec())])?;
        Ok(Example::decode(outputs[0].strings()?[0].clone()).unwrap())
    }

    #[test]
    fn all_kinds_of_features() {
        let json = r#"{"features": {"feature": {"a": {"int64List": {"value": ["3", -4]}},
            "b": {"floatList": {"value": [1.5, "NaN"]}}, "c": {"bytes_list": {"value": ["aGk="]}}, "d": {}}}}"#;
        let features = decoded(json).unwrap().features.unwrap().feature;
        let Some(Kind::Int64List(numbers)) = &features["a"].kind else { panic!() };
        assert_eq!(numbers.value, [3, -4]);
        let Some(Kind::FloatList(numbers)) = &features["b"].kind else { panic!() };
        assert!(numbers.value[0] == 1.5 && numbers.value[1].is_nan());
        let Some(Kind::BytesList(texts)) = &features["c"].kind else { panic!() };
        assert_eq!(texts.value, ["hi"]);
        assert_eq!(features["d"].kind, None);
        assert_eq!(decoded("{}").unwrap().features, None);
    }

    #[test]
    fn mistakes() {
        for json in
            ["", "[]", "{", r#"{"other": 1}"#, r#"{"features": {"feature": {"a": {"int64List": {"value": [1.5]}}}}}"#]
        {
            assert_eq!(decoded(json).unwrap_err().code(), tensor::Code::InvalidArgument, "{json}");
        }
    }
}
