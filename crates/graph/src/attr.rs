//! Attributes of nodes: [`AttrMap`] with typed getters, and [`IntoAttr`] for values to set.

use bytes::Bytes;
use foldhash::HashSet;
use proto::attr_value::{ListValue, Value};
use proto::{AttrValue, NameAttrList};
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// A node's attributes by name.
///
/// The attributes are sorted by name in one block, which clones share until one of them changes: a server keeps several graphs
/// made of the same nodes, and each node has few attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttrMap {
    entries: Arc<Vec<(Arc<str>, AttrValue)>>,
}

impl AttrMap {
    /// Returns the attributes of a NodeDef. Shares the strings of names with the op's definition (`defined`), and those of other
    /// names through `names`.
    pub fn from_def(attrs: &BTreeMap<String, AttrValue>, defined: &[Arc<str>], names: &mut AttrNames) -> AttrMap {
        let known = |name: &str| defined.iter().find(|known| ***known == *name).cloned();
        let shared =
            |(name, value): (&String, &AttrValue)| (known(name).unwrap_or_else(|| names.shared(name)), value.clone());
        AttrMap { entries: Arc::new(attrs.iter().map(shared).collect()) }
    }

    /// Returns the attributes as they are in a NodeDef.
    pub fn to_def(&self) -> BTreeMap<String, AttrValue> {
        self.iter().map(|(name, value)| (name.to_string(), value.clone())).collect()
    }

    /// Returns the attribute of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&AttrValue> {
        let index = self.find(name).ok()?;
        self.entries.get(index).map(|(_, value)| value)
    }

    /// Returns whether there is an attribute of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Sets an attribute, replacing the old value if there is one.
    pub fn insert(&mut self, name: impl Into<Arc<str>>, value: AttrValue) {
        let name = name.into();
        match self.find(&name) {
            Ok(index) => Arc::make_mut(&mut self.entries)[index].1 = value,
            Err(index) => Arc::make_mut(&mut self.entries).insert(index, (name, value)),
        }
    }

    /// Sets an attribute unless it is set already.
    pub fn insert_if_absent(&mut self, name: impl Into<Arc<str>>, value: impl FnOnce() -> AttrValue) {
        let name = name.into();
        if let Err(index) = self.find(&name) {
            Arc::make_mut(&mut self.entries).insert(index, (name, value()));
        }
    }

    /// Removes an attribute, and returns it if it was set.
    pub fn remove(&mut self, name: &str) -> Option<AttrValue> {
        let index = self.find(name).ok()?;
        Some(Arc::make_mut(&mut self.entries).remove(index).1)
    }

    /// Returns the attributes, sorted by name.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Arc<str>, &AttrValue)> + ExactSizeIterator {
        self.entries.iter().map(|(name, value)| (name, value))
    }

    /// Returns the names, sorted.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &Arc<str>> + ExactSizeIterator {
        self.entries.iter().map(|(name, _)| name)
    }

    /// Returns the values, sorted by name.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &AttrValue> + ExactSizeIterator {
        self.entries.iter().map(|(_, value)| value)
    }

    /// Returns mutable references to the values.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut AttrValue> {
        Arc::make_mut(&mut self.entries).iter_mut().map(|(_, value)| value)
    }

    /// Returns the number of attributes.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find(&self, name: &str) -> std::result::Result<usize, usize> {
        self.entries.binary_search_by(|(known, _)| (**known).cmp(name))
    }
}

impl From<&BTreeMap<String, AttrValue>> for AttrMap {
    fn from(attrs: &BTreeMap<String, AttrValue>) -> AttrMap {
        let entry = |(name, value): (&String, &AttrValue)| (name.as_str().into(), value.clone());
        AttrMap { entries: Arc::new(attrs.iter().map(entry).collect()) }
    }
}

impl<N: Into<Arc<str>>> FromIterator<(N, AttrValue)> for AttrMap {
    fn from_iter<I: IntoIterator<Item = (N, AttrValue)>>(entries: I) -> AttrMap {
        let mut attrs = AttrMap::default();
        for (name, value) in entries {
            attrs.insert(name, value);
        }
        attrs
    }
}

impl IntoIterator for AttrMap {
    type Item = (Arc<str>, AttrValue);
    type IntoIter = std::vec::IntoIter<(Arc<str>, AttrValue)>;

    fn into_iter(self) -> Self::IntoIter {
        Arc::unwrap_or_clone(self.entries).into_iter()
    }
}

/// Interns the names of attributes, so that nodes share them.
#[derive(Default)]
pub struct AttrNames(HashSet<Arc<str>>);

impl AttrNames {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return known.clone();
        }
        let made: Arc<str> = name.into();
        self.0.insert(made.clone());
        made
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
        self.insert(name, value.into_attr());
    }

    /// Returns the colocation groups of `_class` (the part after `loc:@`).
    pub fn colocation(&self) -> Vec<String> {
        let Ok(classes) = self.strings("_class") else { return Vec::new() };
        let groups = classes.iter().filter_map(|class| class.strip_prefix(b"loc:@"));
        groups.map(|group| String::from_utf8_lossy(group).into_owned()).collect()
    }
}

fn wrong_type(name: &str, kind: &str) -> Status {
    Status::invalid_argument(format!("AttrValue for attr '{name}' had the wrong type; expected '{kind}'"))
}

/// A value that an attribute can be set to.
pub trait IntoAttr {
    /// Returns the message.
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

fn list(values: ListValue) -> Value {
    Value::List(Box::new(values))
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
    &[i64], numbers => list(ListValue { i: numbers.to_vec(), ..Default::default() });
    &[f32], numbers => list(ListValue { f: numbers.to_vec(), ..Default::default() });
    &[bool], flags => list(ListValue { b: flags.to_vec(), ..Default::default() });
    &[DType], types => list(ListValue { r#type: types.iter().map(|&ty| ty as i32).collect(), ..Default::default() });
    &[PartialShape], shapes =>
        list(ListValue { shape: shapes.iter().map(PartialShape::to_proto).collect(), ..Default::default() });
    &[String], texts =>
        list(ListValue { s: texts.iter().map(|text| Bytes::from(text.clone())).collect(), ..Default::default() });
    &[Bytes], texts => list(ListValue { s: texts.to_vec(), ..Default::default() });
    &[&str], texts => list(ListValue {
        s: texts.iter().map(|text| Bytes::copy_from_slice(text.as_bytes())).collect(),
        ..Default::default()
    });
    NameAttrList, function => Value::Func(Box::new(function));
    proto::TensorProto, tensor => Value::Tensor(Box::new(tensor));
    ListValue, values => list(values);
}

impl IntoAttr for AttrValue {
    fn into_attr(self) -> AttrValue {
        self
    }
}
