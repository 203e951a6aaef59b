//! Graphs as text, for people and tests, one node per line: `name = Op(input, other:1, ^control) {attr=value} @device`.
//!
//! Attributes with their default value are omitted, and so are types and counts that follow from the inputs.

mod dot;
mod parse;

use crate::attr::AttrMap;
use crate::op_def::ArgType;
use crate::{Node, NodeGraph, OpSchema, TypeSlot};
use proto::attr_value::{ListValue, Value};
use proto::{AttrValue, NameAttrList, TensorProto};
use std::fmt::Write;
use tensor::{DType, PartialShape, Tensor};

/// Tensors with more elements than this are abbreviated, so that a dump stays readable.
const ELEMENTS_MAX: usize = 64;

impl NodeGraph {
    /// Returns the graph as text, one node per line.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (_, node) in self.iter() {
            text.push_str(&self.node_text(node));
            text.push('\n');
        }
        text
    }

    /// Returns one node's line.
    pub fn node_text(&self, node: &Node) -> String {
        let mut inputs: Vec<String> = Vec::with_capacity(node.inputs.len() + node.control_inputs.len());
        let name = |id| self.get(id).map_or("?", |node| node.name.as_str());
        for edge in &node.inputs {
            let source = name(edge.node);
            inputs.push(if edge.port == 0 { source.to_owned() } else { format!("{source}:{}", edge.port) });
        }
        inputs.extend(node.control_inputs.iter().map(|&control| format!("^{}", name(control))));
        let mut text = format!("{} = {}({})", node.name, node.op(), inputs.join(", "));
        let inferred = inferred_attrs(&node.schema, &node.input_types);
        let shown: Vec<String> = node
            .attrs
            .iter()
            .filter(|(name, value)| {
                let default = node.schema.attr(name).and_then(|def| def.default_value.as_ref());
                default != Some(value) && inferred.get(name) != Some(value)
            })
            .map(|(name, value)| format!("{name}={}", attr_text(value)))
            .collect();
        if !shown.is_empty() {
            let _ = write!(text, " {{{}}}", shown.join(", "));
        }
        if !node.device.is_empty() {
            let _ = write!(text, " @{}", node.device);
        }
        text
    }
}

/// Returns the attributes that follow from the types of a node's inputs by the op's signature.
fn inferred_attrs(schema: &OpSchema, types: &[TypeSlot]) -> AttrMap {
    let mut attrs = AttrMap::default();
    // With more than one argument of variable length, the boundary between them is unknown.
    let open = schema.inputs.iter().filter(|arg| matches!(arg.ty, ArgType::Repeated { .. } | ArgType::List(_))).count();
    if open > 1 || types.len() + open < schema.inputs.len() {
        return attrs;
    }
    let open_len = types.len() + open - schema.inputs.len();
    let mut at = 0;
    for arg in &schema.inputs {
        match &arg.ty {
            ArgType::Fixed(_) => at += 1,
            ArgType::Attr(name) => {
                if let Some(slot) = types.get(at) {
                    attrs.set(name, slot.dtype);
                }
                at += 1;
            }
            ArgType::Repeated { count, ty } => {
                attrs.set(count, open_len as i64);
                if let (ArgType::Attr(name), Some(slot)) = (ty.as_ref(), types.get(at).filter(|_| open_len > 0)) {
                    attrs.set(name, slot.dtype);
                }
                at += open_len;
            }
            ArgType::List(name) => {
                let list: Vec<DType> = types.iter().skip(at).take(open_len).map(|slot| slot.dtype).collect();
                attrs.set(name, list.as_slice());
                at += open_len;
            }
        }
    }
    attrs
}

fn attr_text(attr: &AttrValue) -> String {
    match &attr.value {
        None => "none".to_owned(),
        Some(Value::S(text)) => string_text(text),
        Some(Value::I(number)) => number.to_string(),
        Some(Value::F(number)) => format!("{number:?}"),
        Some(Value::B(flag)) => flag.to_string(),
        Some(Value::Type(number)) => type_text(*number),
        Some(Value::Shape(shape)) => shape_text(shape),
        Some(Value::Tensor(tensor)) => tensor_text(tensor),
        Some(Value::Func(function)) => function_text(function),
        Some(Value::Placeholder(name)) => format!("${name}"),
        Some(Value::List(list)) => list_text(list),
    }
}

fn string_text(text: &[u8]) -> String {
    format!("\"{}\"", text.escape_ascii())
}

fn type_text(number: i32) -> String {
    DType::from_i32(number).map_or_else(|_| number.to_string(), |dtype| dtype.name().to_owned())
}

fn shape_text(shape: &proto::TensorShapeProto) -> String {
    match PartialShape::from_proto(shape) {
        Ok(shape) if shape.rank().is_none() => "?".to_owned(),
        Ok(shape) => shape.to_string(),
        Err(_) => "invalid".to_owned(),
    }
}

fn function_text(function: &NameAttrList) -> String {
    let attrs: Vec<String> = function.attr.iter().map(|(name, value)| format!("{name}={}", attr_text(value))).collect();
    if attrs.is_empty() { format!("&{}", function.name) } else { format!("&{}{{{}}}", function.name, attrs.join(", ")) }
}

fn list_text(list: &ListValue) -> String {
    let mut items: Vec<String> = Vec::new();
    items.extend(list.s.iter().map(|text| string_text(text)));
    items.extend(list.i.iter().map(i64::to_string));
    items.extend(list.f.iter().map(|number| format!("{number:?}")));
    items.extend(list.b.iter().map(bool::to_string));
    items.extend(list.r#type.iter().map(|&number| type_text(number)));
    items.extend(list.shape.iter().map(shape_text));
    items.extend(list.tensor.iter().map(tensor_text));
    items.extend(list.func.iter().map(function_text));
    format!("[{}]", items.join(", "))
}

fn tensor_text(proto: &TensorProto) -> String {
    let Ok(tensor) = tensor::tensor_from_proto(proto) else { return "invalid".to_owned() };
    let elements = element_texts(&tensor);
    let more = if tensor.num_elements() > ELEMENTS_MAX { ", ..." } else { "" };
    format!("{}{}({}{more})", tensor.dtype(), tensor.shape(), elements.join(", "))
}

fn element_texts(tensor: &Tensor) -> Vec<String> {
    macro_rules! numbers {
        ($($dtype:ident => $ty:ty),*) => {
            match tensor.dtype() {
                $(DType::$dtype => {
                    let elements = tensor.as_slice::<$ty>().unwrap_or_default();
                    elements.iter().take(ELEMENTS_MAX).map(|element| format!("{element:?}")).collect()
                })*
                DType::String => {
                    let elements = tensor.strings().unwrap_or_default();
                    elements.iter().take(ELEMENTS_MAX).map(|element| string_text(element)).collect()
                }
                _ => vec!["...".to_owned()],
            }
        };
    }
    numbers!(Float => f32, Double => f64, Int32 => i32, Int64 => i64, UInt8 => u8, UInt16 => u16, UInt32 => u32,
        UInt64 => u64, Int8 => i8, Int16 => i16, Bool => bool)
}
