//! Attributes of nodes: [`AttrMap`] with typed getters, and [`IntoAttr`] for values to set.

use bytes::Bytes;
use proto::attr_value::{ListValue, Value};
use proto::{AttrValue, NameAttrList};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// A node's attributes by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttrMap(pub BTreeMap<String, AttrValue>);

impl Deref for AttrMap {
    type Target = BTreeMap<String, AttrValue>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for AttrMap {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident -> $out:ty, $variant:ident($value:ident) => $convert:expr, $kind:literal;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, name: &str) -> Result<$out> {
            match self.value(name)? {
                Value::$variant($value) => $convert,
                _ => Err(wrong_type(name, $kind)),
            }
        }
    )*};
}

impl AttrMap {
    getters! {
        /// Returns a `type` attribute.
        dtype -> DType, Type(number) => DType::from_i32(*number), "type";
        /// Returns an `int` attribute.
        int -> i64, I(number) => Ok(*number), "int";
        /// Returns a `float` attribute.
        float -> f32, F(number) => Ok(*number), "float";
        /// Returns a `bool` attribute.
        bool -> bool, B(flag) => Ok(*flag), "bool";
        /// Returns a `string` attribute's bytes.
        bytes -> &Bytes, S(text) => Ok(text), "string";
        /// Returns a `shape` attribute.
        shape -> PartialShape, Shape(shape) => PartialShape::from_proto(shape), "shape";
        /// Returns a `tensor` attribute.
        tensor -> Tensor, Tensor(proto) => tensor::tensor_from_proto(proto), "tensor";
        /// Returns a `func` attribute.
        func -> &NameAttrList, Func(function) => Ok(function), "func";
        /// Returns a `list(type)` attribute.
        dtypes -> Vec<DType>, List(list) => list.r#type.iter().map(|&number| DType::from_i32(number)).collect(), "list(type)";
        /// Returns a `list(int)` attribute.
        ints -> &[i64], List(list) => Ok(&list.i[..]), "list(int)";
        /// Returns a `list(float)` attribute.
        floats -> &[f32], List(list) => Ok(&list.f[..]), "list(float)";
        /// Returns a `list(bool)` attribute.
        bools -> &[bool], List(list) => Ok(&list.b[..]), "list(bool)";
        /// Returns a `list(string)` attribute.
        strings -> &[Bytes], List(list) => Ok(&list.s[..]), "list(string)";
        /// Returns a `list(shape)` attribute.
        shapes -> Vec<PartialShape>, List(list) => list.shape.iter().map(PartialShape::from_proto).collect(), "list(shape)";
        /// Returns a `list(func)` attribute.
        funcs -> &[NameAttrList], List(list) => Ok(&list.func[..]), "list(func)";
    }

    /// Returns a `string` attribute as text; bytes that aren't UTF-8 are replaced.
    pub fn string(&self, name: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(self.bytes(name)?).into_owned())
    }

    /// Returns an attribute's value.
    pub fn value(&self, name: &str) -> Result<&Value> {
        self.get(name)
            .and_then(|attr| attr.value.as_ref())
            .ok_or_else(|| Status::invalid_argument(format!("No attr named '{name}' in NodeDef")))
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: &str, value: impl IntoAttr) {
        self.insert(name.to_owned(), value.into_attr());
    }

    /// Returns the colocation groups of `_class` (the part behind `loc:@`).
    pub fn colocation(&self) -> Vec<String> {
        let Ok(classes) = self.strings("_class") else { return Vec::new() };
        let groups = classes.iter().filter_map(|class| class.strip_prefix(b"loc:@"));
        groups.map(|group| String::from_utf8_lossy(group).into_owned()).collect()
    }
}

fn wrong_type(name: &str, kind: &str) -> Status {
    Status::invalid_argument(format!("AttrValue for attr '{name}' had the wrong type; expected '{kind}'"))
}

/// A value that can be an attribute.
pub trait IntoAttr {
    /// Returns the value on the wire.
    fn into_attr(self) -> AttrValue;
}

macro_rules! into_attr {
    ($($ty:ty, $value:ident => $convert:expr;)*) => {$(
        impl IntoAttr for $ty {
            fn into_attr(self) -> AttrValue {
                let $value = self;
                AttrValue { value: Some($convert) }
            }
        }
    )*};
}

into_attr! {
    DType, dtype => Value::Type(dtype as i32);
    i64, number => Value::I(number);
    f32, number => Value::F(number);
    bool, flag => Value::B(flag);
    &str, text => Value::S(Bytes::copy_from_slice(text.as_bytes()));
    String, text => Value::S(text.into());
    Bytes, text => Value::S(text);
    Shape, shape => Value::Shape(shape.to_proto());
    PartialShape, shape => Value::Shape(shape.to_proto());
    &[i64], numbers => Value::List(ListValue { i: numbers.to_vec(), ..Default::default() });
    &[f32], numbers => Value::List(ListValue { f: numbers.to_vec(), ..Default::default() });
    &[bool], flags => Value::List(ListValue { b: flags.to_vec(), ..Default::default() });
    &[DType], types => Value::List(ListValue { r#type: types.iter().map(|&ty| ty as i32).collect(), ..Default::default() });
    &[PartialShape], shapes =>
        Value::List(ListValue { shape: shapes.iter().map(PartialShape::to_proto).collect(), ..Default::default() });
    &[String], texts =>
        Value::List(ListValue { s: texts.iter().map(|text| Bytes::from(text.clone())).collect(), ..Default::default() });
    &[Bytes], texts => Value::List(ListValue { s: texts.to_vec(), ..Default::default() });
    &[&str], texts => Value::List(ListValue {
        s: texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect(),
        ..Default::default()
    });
    NameAttrList, function => Value::Func(function);
    proto::TensorProto, tensor => Value::Tensor(tensor);
    ListValue, list => Value::List(list);
}

impl IntoAttr for AttrValue {
    fn into_attr(self) -> AttrValue {
        self
    }
}
