//! Op definitions: the literal in an op's file ([`OpDef`]) and its parsed form ([`OpSchema`]).
//!
//! The strings have the notation of TensorFlow's op registrations: `"values: N * T"`, `"ref: Ref(T)"`,
//! `"T: {float, double} = DT_FLOAT"`, `"N: int >= 1"`.

mod parse;

use crate::attr::AttrMap;
use proto::attr_value::Value;
use proto::op_def::{ArgDef, AttrDef};
use std::ops::Range;
use std::sync::Arc;
use tensor::{DType, Result, Status};

/// The definition of an op, as a literal.
#[derive(Clone, Copy, Debug)]
pub struct OpDef {
    /// The op's name, such as `MatMul`.
    pub name: &'static str,
    /// The inputs, such as `"a: T"`.
    pub inputs: &'static [&'static str],
    /// The outputs, such as `"product: T"`.
    pub outputs: &'static [&'static str],
    /// The attributes, such as `"transpose_a: bool = false"`.
    pub attrs: &'static [&'static str],
    /// Other properties, such as statefulness.
    pub flags: OpFlags,
}

/// Properties of an op beside its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpFlags(u8);

impl OpFlags {
    /// None of the properties.
    pub const NONE: OpFlags = OpFlags(0);
    /// The op has state or side effects, so it is neither folded nor shared.
    pub const STATEFUL: OpFlags = OpFlags(1);
    /// The op's two inputs can be swapped.
    pub const COMMUTATIVE: OpFlags = OpFlags(2);
    /// The op combines any number of inputs of one type.
    pub const AGGREGATE: OpFlags = OpFlags(4);
    /// The op accepts a variable that is not initialized.
    pub const ALLOWS_UNINITIALIZED_INPUT: OpFlags = OpFlags(8);
    /// The op communicates with other tasks.
    pub const DISTRIBUTED_COMMUNICATION: OpFlags = OpFlags(16);

    /// Returns the union of both.
    pub const fn union(self, other: OpFlags) -> OpFlags {
        OpFlags(self.0 | other.0)
    }

    /// Returns whether all of `other`'s flags are set.
    pub const fn contains(self, other: OpFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The parsed definition of an op or the signature of a function.
#[derive(Clone, Debug)]
pub struct OpSchema {
    /// The op's name.
    pub name: String,
    /// The inputs.
    pub inputs: Vec<Arg>,
    /// The outputs.
    pub outputs: Vec<Arg>,
    /// The attributes, in the order of the definition.
    pub attrs: Vec<AttrDef>,
    /// The names of the attributes, for nodes to share.
    pub attr_names: Vec<Arc<str>>,
    /// The op's properties.
    pub flags: OpFlags,
}

/// One input or output of an op, which may stand for several tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct Arg {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: ArgType,
    /// Whether it is a reference to a variable rather than a value.
    pub is_ref: bool,
}

/// How the types of an argument follow from the node's attributes.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgType {
    /// A fixed type.
    Fixed(DType),
    /// The type in an attribute.
    Attr(String),
    /// Several tensors of one type; an attribute has their number.
    Repeated {
        /// The attribute with the number.
        count: String,
        /// The type of each.
        ty: Box<ArgType>,
    },
    /// One tensor for each type in an attribute.
    List(String),
}

/// The type of one input or output of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeSlot {
    /// The type of its elements.
    pub dtype: DType,
    /// Whether the edge carries a reference to a variable rather than a value.
    pub is_ref: bool,
}

impl OpSchema {
    /// Parses a definition.
    pub fn parse(def: &OpDef) -> Result<OpSchema> {
        parse::schema(def)
    }

    /// Reads a definition from a message, such as a function's signature.
    pub fn from_proto(def: &proto::OpDef) -> Result<OpSchema> {
        let mut flags = OpFlags::NONE;
        for (set, flag) in [
            (def.is_stateful, OpFlags::STATEFUL),
            (def.is_commutative, OpFlags::COMMUTATIVE),
            (def.is_aggregate, OpFlags::AGGREGATE),
            (def.allows_uninitialized_input, OpFlags::ALLOWS_UNINITIALIZED_INPUT),
            (def.is_distributed_communication, OpFlags::DISTRIBUTED_COMMUNICATION),
        ] {
            if set {
                flags = flags.union(flag);
            }
        }
        Ok(OpSchema {
            name: def.name.clone(),
            inputs: def.input_arg.iter().map(Arg::from_proto).collect::<Result<_>>()?,
            outputs: def.output_arg.iter().map(Arg::from_proto).collect::<Result<_>>()?,
            attrs: def.attr.clone(),
            attr_names: attr_names(&def.attr),
            flags,
        })
    }

    /// Returns the definition as a message.
    pub fn to_proto(&self) -> proto::OpDef {
        proto::OpDef {
            name: self.name.clone(),
            input_arg: self.inputs.iter().map(Arg::to_proto).collect(),
            output_arg: self.outputs.iter().map(Arg::to_proto).collect(),
            attr: self.attrs.clone(),
            is_stateful: self.flags.contains(OpFlags::STATEFUL),
            is_commutative: self.flags.contains(OpFlags::COMMUTATIVE),
            is_aggregate: self.flags.contains(OpFlags::AGGREGATE),
            allows_uninitialized_input: self.flags.contains(OpFlags::ALLOWS_UNINITIALIZED_INPUT),
            is_distributed_communication: self.flags.contains(OpFlags::DISTRIBUTED_COMMUNICATION),
            ..Default::default()
        }
    }

    /// Returns whether the op has state or side effects.
    pub fn is_stateful(&self) -> bool {
        self.flags.contains(OpFlags::STATEFUL)
    }

    /// Returns the types of the inputs of a node with these attributes.
    pub fn input_types(&self, attrs: &AttrMap) -> Result<Vec<TypeSlot>> {
        expand(&self.inputs, attrs)
    }

    /// Returns the types of the outputs of a node with these attributes.
    pub fn output_types(&self, attrs: &AttrMap) -> Result<Vec<TypeSlot>> {
        expand(&self.outputs, attrs)
    }

    /// Returns which of a node's inputs belong to the argument `name`.
    pub fn input_range(&self, name: &str, attrs: &AttrMap) -> Result<Range<usize>> {
        range(&self.inputs, name, attrs)
    }

    /// Returns which of a node's outputs belong to the argument `name`.
    pub fn output_range(&self, name: &str, attrs: &AttrMap) -> Result<Range<usize>> {
        range(&self.outputs, name, attrs)
    }

    /// Returns the definition of an attribute.
    pub fn attr(&self, name: &str) -> Option<&AttrDef> {
        self.attrs.iter().find(|attr| attr.name == name)
    }

    /// Fills in defaults, then checks that every attribute is set, of the right type and within its bounds.
    pub fn complete_attrs(&self, attrs: &mut AttrMap) -> Result<()> {
        for (def, name) in self.attrs.iter().zip(&self.attr_names) {
            match (attrs.get(&def.name), &def.default_value) {
                (Some(value), _) => check_attr(def, value)?,
                (None, Some(default)) => {
                    attrs.insert(name.clone(), default.clone());
                }
                (None, None) => {
                    return Err(Status::invalid_argument(format!(
                        "NodeDef missing attr '{}' from Op<{}>",
                        def.name, self.name
                    )));
                }
            }
        }
        Ok(())
    }
}

impl Arg {
    fn from_proto(def: &ArgDef) -> Result<Arg> {
        let single = || {
            Ok(if def.type_attr.is_empty() {
                ArgType::Fixed(DType::from_i32(def.r#type)?)
            } else {
                ArgType::Attr(def.type_attr.clone())
            })
        };
        let ty = if !def.number_attr.is_empty() {
            ArgType::Repeated { count: def.number_attr.clone(), ty: Box::new(single()?) }
        } else if !def.type_list_attr.is_empty() {
            ArgType::List(def.type_list_attr.clone())
        } else {
            single()?
        };
        Ok(Arg { name: def.name.clone(), ty, is_ref: def.is_ref })
    }

    fn to_proto(&self) -> ArgDef {
        let mut def = ArgDef { name: self.name.clone(), is_ref: self.is_ref, ..Default::default() };
        let mut single = |ty: &ArgType| match ty {
            ArgType::Fixed(dtype) => def.r#type = *dtype as i32,
            ArgType::Attr(attr) => def.type_attr = attr.clone(),
            _ => {}
        };
        match &self.ty {
            ArgType::Repeated { count, ty } => {
                single(ty);
                def.number_attr = count.clone();
            }
            ArgType::List(attr) => def.type_list_attr = attr.clone(),
            other => single(other),
        }
        def
    }

    pub(crate) fn types(&self, attrs: &AttrMap, into: &mut Vec<TypeSlot>) -> Result<()> {
        /// The most tensors that one argument may consist of.
        const REPEATED_MAX: i64 = 1 << 20;
        let single = |ty: &ArgType| match ty {
            ArgType::Fixed(dtype) => Ok(*dtype),
            ArgType::Attr(attr) => attrs.dtype(attr),
            _ => Err(Status::invalid_argument("nested argument lists")),
        };
        match &self.ty {
            ArgType::Repeated { count, ty } => {
                let slot = TypeSlot { dtype: single(ty)?, is_ref: self.is_ref };
                let count = attrs.int(count)?;
                if !(0..=REPEATED_MAX).contains(&count) {
                    return Err(Status::invalid_argument(format!(
                        "argument '{}' can't stand for {count} tensors",
                        self.name
                    )));
                }
                into.extend(std::iter::repeat_n(slot, count as usize));
            }
            ArgType::List(attr) => {
                into.extend(attrs.dtypes(attr)?.into_iter().map(|dtype| TypeSlot { dtype, is_ref: self.is_ref }));
            }
            other => into.push(TypeSlot { dtype: single(other)?, is_ref: self.is_ref }),
        }
        Ok(())
    }
}

fn attr_names(attrs: &[AttrDef]) -> Vec<Arc<str>> {
    attrs.iter().map(|attr| attr.name.as_str().into()).collect()
}

fn expand(args: &[Arg], attrs: &AttrMap) -> Result<Vec<TypeSlot>> {
    let mut types = Vec::with_capacity(args.len());
    for arg in args {
        arg.types(attrs, &mut types)?;
    }
    Ok(types)
}

fn range(args: &[Arg], name: &str, attrs: &AttrMap) -> Result<Range<usize>> {
    let mut types = Vec::new();
    for arg in args {
        let start = types.len();
        arg.types(attrs, &mut types)?;
        if arg.name == name {
            return Ok(start..types.len());
        }
    }
    Err(Status::internal(format!("no argument is named '{name}'")))
}

/// Checks that a value has the attribute's type and is within its bounds.
fn check_attr(def: &AttrDef, value: &proto::AttrValue) -> Result<()> {
    let wrong = |what: &str| Err(Status::invalid_argument(format!("AttrValue for attr '{}' {what}", def.name)));
    let Some(value) = &value.value else {
        return wrong("has no value");
    };
    if matches!(value, Value::Placeholder(_)) {
        return wrong("is a placeholder");
    }
    let right_type = match (def.r#type.as_str(), value) {
        ("string", Value::S(_))
        | ("int", Value::I(_))
        | ("float", Value::F(_))
        | ("bool", Value::B(_))
        | ("type", Value::Type(_))
        | ("shape", Value::Shape(_))
        | ("tensor", Value::Tensor(_))
        | ("func", Value::Func(_)) => true,
        (list, Value::List(values)) if list.starts_with("list(") => {
            let count = [
                ("list(string)", values.s.len()),
                ("list(int)", values.i.len()),
                ("list(float)", values.f.len()),
                ("list(bool)", values.b.len()),
                ("list(type)", values.r#type.len()),
                ("list(shape)", values.shape.len()),
                ("list(tensor)", values.tensor.len()),
                ("list(func)", values.func.len()),
            ];
            let total: usize = count.iter().map(|(_, len)| len).sum();
            let own = count.iter().find(|(name, _)| *name == list).map_or(0, |(_, len)| *len);
            if def.has_minimum && (own as i64) < def.minimum {
                return wrong(&format!("has {own} values, fewer than the minimum of {}", def.minimum));
            }
            own == total
        }
        _ => false,
    };
    if !right_type {
        return wrong(&format!("had the wrong type; expected '{}'", def.r#type));
    }
    if let Value::I(number) = value
        && def.has_minimum
        && *number < def.minimum
    {
        return wrong(&format!("has {number}, which is less than the minimum of {}", def.minimum));
    }
    let Some(allowed) = def.allowed_values.as_ref().and_then(|allowed| allowed.value.as_ref()) else {
        return Ok(());
    };
    let Value::List(allowed) = allowed else {
        return Ok(());
    };
    let (types, strings): (Vec<i32>, Vec<&[u8]>) = match value {
        Value::Type(number) => (vec![*number], vec![]),
        Value::S(text) => (vec![], vec![text]),
        Value::List(values) => (values.r#type.clone(), values.s.iter().map(|text| text.as_ref()).collect()),
        _ => return Ok(()),
    };
    for number in types {
        if !allowed.r#type.contains(&number) {
            let name = |number: i32| DType::from_i32(number).map_or("invalid", DType::name);
            let list: Vec<_> = allowed.r#type.iter().map(|&number| name(number)).collect();
            return wrong(&format!("of {} is not in the list of allowed values: {}", name(number), list.join(", ")));
        }
    }
    for text in strings {
        if !allowed.s.iter().any(|one| one.as_ref() == text) {
            let list: Vec<_> = allowed.s.iter().map(|one| format!("\"{}\"", String::from_utf8_lossy(one))).collect();
            let text = String::from_utf8_lossy(text);
            return wrong(&format!("of \"{text}\" is not in the list of allowed values: {}", list.join(", ")));
        }
    }
    Ok(())
}
