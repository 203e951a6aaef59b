//! Parses the notation of op definitions.

use super::{Arg, ArgType, OpDef, OpSchema};
use bytes::Bytes;
use proto::attr_value::{ListValue, Value};
use proto::op_def::AttrDef;
use proto::{AttrValue, TensorShapeProto};
use tensor::{DType, Result, Status};

/// The types that `numbertype` stands for, in TensorFlow's order.
const NUMBER_TYPES: &[DType] = &[
    DType::Float,
    DType::Double,
    DType::Int32,
    DType::UInt8,
    DType::Int16,
    DType::Int8,
    DType::Complex64,
    DType::Int64,
    DType::QInt8,
    DType::QUInt8,
    DType::QInt32,
    DType::BFloat16,
    DType::QInt16,
    DType::QUInt16,
    DType::UInt16,
    DType::Complex128,
    DType::Half,
    DType::UInt32,
    DType::UInt64,
];

/// Parses a definition.
pub(super) fn schema(def: &OpDef) -> Result<OpSchema> {
    let bad = |text: &str, status: Status| status.context(format!("op {}, \"{text}\"", def.name));
    let attrs: Vec<AttrDef> =
        def.attrs.iter().map(|text| attr(text).map_err(|e| bad(text, e))).collect::<Result<_>>()?;
    let args = |texts: &[&str]| -> Result<Vec<Arg>> {
        texts.iter().map(|text| arg(text, &attrs).map_err(|e| bad(text, e))).collect()
    };
    Ok(OpSchema {
        name: def.name.to_owned(),
        inputs: args(def.inputs)?,
        outputs: args(def.outputs)?,
        flags: def.flags,
        attr_names: super::attr_names(&attrs),
        attrs,
    })
}

fn malformed(what: &str) -> Status {
    Status::internal(format!("malformed op definition: {what}"))
}

fn arg(text: &str, attrs: &[AttrDef]) -> Result<Arg> {
    let (name, ty) = text.split_once(':').ok_or_else(|| malformed("no ':'"))?;
    let ty = ty.trim();
    let (ty, is_ref) = match ty.strip_prefix("Ref(").and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => (inner.trim(), true),
        None => (ty, false),
    };
    let single = |name: &str| match DType::from_name(name) {
        Some(dtype) => Ok(ArgType::Fixed(dtype)),
        None => match attrs.iter().find(|attr| attr.name == name) {
            Some(attr) if attr.r#type == "list(type)" => Ok(ArgType::List(name.to_owned())),
            Some(_) => Ok(ArgType::Attr(name.to_owned())),
            None => Err(malformed("no such type or attribute")),
        },
    };
    let (ty, is_ref) = match ty.split_once('*') {
        Some((count, ty)) => {
            let ty = ty.trim();
            let (ty, inner_ref) = match ty.strip_prefix("Ref(").and_then(|inner| inner.strip_suffix(')')) {
                Some(inner) => (inner.trim(), true),
                None => (ty, is_ref),
            };
            (ArgType::Repeated { count: count.trim().to_owned(), ty: Box::new(single(ty)?) }, inner_ref)
        }
        None => (single(ty)?, is_ref),
    };
    Ok(Arg { name: name.trim().to_owned(), ty, is_ref })
}

fn attr(text: &str) -> Result<AttrDef> {
    let (name, rest) = text.split_once(':').ok_or_else(|| malformed("no ':'"))?;
    let mut def = AttrDef { name: name.trim().to_owned(), ..Default::default() };
    let (mut ty, default) = split_default(rest);
    if let Some((before, minimum)) = ty.split_once(">=") {
        def.has_minimum = true;
        def.minimum = minimum.trim().parse().map_err(|_| malformed("minimum"))?;
        ty = before.trim();
    }
    let (inner, is_list) = match ty.strip_prefix("list(").and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => (inner.trim(), true),
        None => (ty, false),
    };
    let base = match inner {
        "string" | "int" | "float" | "bool" | "type" | "shape" | "tensor" | "func" => inner,
        "numbertype" | "numerictype" => {
            def.allowed_values = Some(type_list(NUMBER_TYPES.iter().copied()));
            "type"
        }
        "quantizedtype" => {
            use DType::*;
            def.allowed_values = Some(type_list([QInt8, QUInt8, QInt32, QInt16, QUInt16]));
            "type"
        }
        "realnumbertype" | "realnumerictype" => {
            let real = NUMBER_TYPES.iter().copied().filter(|dtype| !dtype.is_complex() && !dtype.is_quantized());
            def.allowed_values = Some(type_list(real));
            "type"
        }
        set => allowed(set, &mut def)?,
    };
    def.r#type = if is_list { format!("list({base})") } else { base.to_owned() };
    if let Some(default) = default {
        def.default_value = Some(value(&def.r#type, default)?);
    }
    Ok(def)
}

/// Splits `type = default` at the `=` that is not part of `>=` or inside braces or quotes.
fn split_default(text: &str) -> (&str, Option<&str>) {
    let bytes = text.as_bytes();
    let (mut depth, mut quoted) = (0, false);
    for (index, &byte) in bytes.iter().enumerate() {
        match byte {
            b'\'' => quoted = !quoted,
            b'{' | b'(' if !quoted => depth += 1,
            b'}' | b')' if !quoted => depth -= 1,
            b'=' if !quoted && depth == 0 && (index == 0 || bytes[index - 1] != b'>') => {
                return (text[..index].trim(), Some(text[index + 1..].trim()));
            }
            _ => {}
        }
    }
    (text.trim(), None)
}

/// Reads `{float, double}` or `{'SAME', 'VALID'}` and returns the attribute's type.
fn allowed(set: &str, def: &mut AttrDef) -> Result<&'static str> {
    let inner =
        set.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(|| malformed("attribute type"))?;
    let items: Vec<&str> = inner.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    if items.iter().all(|item| item.starts_with('\'')) {
        let s = items.iter().map(|item| unquote(item)).collect::<Result<_>>()?;
        def.allowed_values = Some(list(ListValue { s, ..Default::default() }));
        return Ok("string");
    }
    let types: Result<Vec<DType>> =
        items.iter().map(|item| DType::from_name(item).ok_or_else(|| malformed("type name"))).collect();
    def.allowed_values = Some(type_list(types?));
    Ok("type")
}

fn type_list(types: impl IntoIterator<Item = DType>) -> AttrValue {
    list(ListValue { r#type: types.into_iter().map(|dtype| dtype as i32).collect(), ..Default::default() })
}

fn list(values: ListValue) -> AttrValue {
    AttrValue { value: Some(Value::List(Box::new(values))) }
}

fn unquote(text: &str) -> Result<Bytes> {
    let inner = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).ok_or_else(|| malformed("quotes"))?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.as_bytes();
    while let [byte, behind @ ..] = rest {
        rest = behind;
        if *byte != b'\\' {
            bytes.push(*byte);
            continue;
        }
        rest = match rest {
            // TensorFlow prints bytes that are not printable as three octal digits.
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', behind @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                behind
            }
            [b'n', behind @ ..] => {
                bytes.push(b'\n');
                behind
            }
            [b't', behind @ ..] => {
                bytes.push(b'\t');
                behind
            }
            [other, behind @ ..] => {
                bytes.push(*other);
                behind
            }
            [] => rest,
        };
    }
    Ok(bytes.into())
}

/// Reads a default value of the given type.
fn value(ty: &str, text: &str) -> Result<AttrValue> {
    let value = match ty {
        "string" => Value::S(unquote(text)?),
        "int" => Value::I(text.parse().map_err(|_| malformed("int"))?),
        "float" => Value::F(float(text)?),
        "bool" => Value::B(text == "true"),
        "type" => Value::Type(DType::from_name(text).ok_or_else(|| malformed("type"))? as i32),
        "shape" => Value::Shape(shape(text)?),
        "func" => Value::Func(Box::new(proto::NameAttrList { name: function_name(text)?, ..Default::default() })),
        "tensor" => Value::Tensor(Box::new(tensor_proto(text)?)),
        _ => Value::List(Box::new(list_value(ty, text)?)),
    };
    Ok(AttrValue { value: Some(value) })
}

fn float(text: &str) -> Result<f32> {
    text.parse().map_err(|_| malformed("float"))
}

fn function_name(text: &str) -> Result<String> {
    match text.strip_prefix('{') {
        Some(inner) => {
            let name = inner.trim_end_matches('}').trim().strip_prefix("name:").unwrap_or("").trim();
            Ok(name.trim_matches(|c| c == '"' || c == '\'').to_owned())
        }
        None => Ok(String::from_utf8_lossy(&unquote(text)?).into_owned()),
    }
}

/// Reads `{ unknown_rank: true }`, `{}` or `{ dim { size: 2 } }`.
fn shape(text: &str) -> Result<TensorShapeProto> {
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(|| malformed("shape"))?;
    let mut shape = TensorShapeProto { unknown_rank: inner.contains("unknown_rank: true"), ..Default::default() };
    for part in inner.split("size:").skip(1) {
        let digits = part.trim_start().split(|c: char| c != '-' && !c.is_ascii_digit()).next().unwrap_or("");
        let size = digits.parse().map_err(|_| malformed("dimension"))?;
        shape.dim.push(proto::tensor_shape_proto::Dim { size, name: String::new() });
    }
    Ok(shape)
}

/// Reads a tensor default of integers: its type, its shape and the numbers. TensorFlow's definitions have no others.
fn tensor_proto(text: &str) -> Result<proto::TensorProto> {
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).ok_or_else(|| malformed("tensor"))?;
    let mut tensor = proto::TensorProto::default();
    let mut words = inner.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or_else(|| malformed("tensor"));
        match word {
            "dtype:" => {
                let name = words.next().ok_or_else(|| malformed("tensor type"))?;
                tensor.dtype = DType::from_name(name).ok_or_else(|| malformed("tensor type"))? as i32;
            }
            "tensor_shape" => tensor.tensor_shape = Some(Default::default()),
            "size:" => {
                let size = number()?;
                let shape = tensor.tensor_shape.get_or_insert_default();
                shape.dim.push(proto::tensor_shape_proto::Dim { size, name: String::new() });
            }
            "int_val:" => tensor.int_val.push(number()? as i32),
            "dim" | "{" | "}" => {}
            _ => return Err(malformed("tensor")),
        }
    }
    Ok(tensor)
}

fn list_value(ty: &str, text: &str) -> Result<ListValue> {
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).ok_or_else(|| malformed("list"))?;
    let items: Vec<&str> = inner.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    let mut values = ListValue::default();
    for item in items {
        match ty {
            "list(string)" => values.s.push(unquote(item)?),
            "list(int)" => values.i.push(item.parse().map_err(|_| malformed("int"))?),
            "list(float)" => values.f.push(float(item)?),
            "list(bool)" => values.b.push(item == "true"),
            "list(type)" => values.r#type.push(DType::from_name(item).ok_or_else(|| malformed("type"))? as i32),
            "list(shape)" => values.shape.push(shape(item)?),
            _ => return Err(malformed("list type")),
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::super::{OpDef, OpFlags, OpSchema};
    use super::*;

    #[test]
    fn a_definition_with_everything() {
        let schema = OpSchema::parse(&OpDef {
            name: "Everything",
            inputs: &["ref: Ref(T)", "values: N * T", "parts: Tparts", "flag: bool", "handles: N * Ref(T)"],
            outputs: &["out: T"],
            attrs: &[
                "T: {float, double} = DT_FLOAT",
                "N: int >= 2",
                "Tparts: list(type) >= 0 = []",
                "padding: {'SAME', 'VALID'} = 'SAME'",
                "strides: list(int) = [1, 2]",
                "shape: shape = { unknown_rank: true }",
                "rate: float = 0.5",
                "name: string = ''",
                "delimiter: string = '\\011'",
                "color: tensor = { dtype: DT_UINT8 tensor_shape { dim { size: 2 } } int_val: 255 int_val: 0 }",
            ],
            flags: OpFlags::STATEFUL,
        })
        .unwrap();
        assert!(schema.inputs[0].is_ref && schema.inputs[4].is_ref);
        assert_eq!(schema.inputs[2].ty, ArgType::List("Tparts".into()));
        let attr = |name: &str| schema.attr(name).unwrap();
        assert_eq!(attr("N").minimum, 2);
        assert_eq!(attr("T").default_value, Some(AttrValue { value: Some(Value::Type(1)) }));
        assert_eq!(attr("padding").r#type, "string");
        assert_eq!(attr("rate").default_value, Some(AttrValue { value: Some(Value::F(0.5)) }));
        assert_eq!(attr("delimiter").default_value, Some(AttrValue { value: Some(Value::S("\t".into())) }));
        let Some(Value::Tensor(color)) = attr("color").default_value.clone().unwrap().value else { panic!() };
        assert_eq!((color.tensor_shape.unwrap().dim[0].size, color.int_val), (2, vec![255, 0]));
        let Some(Value::Shape(shape)) = attr("shape").default_value.clone().unwrap().value else { panic!() };
        assert!(shape.unknown_rank);
        assert_eq!(OpSchema::from_proto(&schema.to_proto()).unwrap().inputs, schema.inputs);
    }
}
