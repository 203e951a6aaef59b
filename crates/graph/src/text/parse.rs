//! Parses the text form of graphs.

use super::inferred_attrs;
use crate::import::parse_tensor_name;
use crate::{Edge, FunctionLibrary, Node, NodeGraph, NodeId, OpLookup, OpSchema, TypeSlot};
use foldhash::{HashMap, HashMapExt};
use proto::attr_value::{ListValue, Value};
use proto::{AttrValue, NameAttrList};
use std::sync::Arc;
use tensor::{DType, PartialShape, Result, Shape, Status, Tensor};

/// The deepest nesting of values.
const DEPTH_MAX: usize = 16;

impl NodeGraph {
    /// Parses a graph from the text that [`NodeGraph::to_text`] writes. Skips empty lines and lines that start with `#`.
    pub fn from_text(text: &str, ops: &dyn OpLookup) -> Result<NodeGraph> {
        let mut lines: Vec<(usize, Line)> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                let parsed = Line::parse(line).map_err(|status| at_line(status, index))?;
                lines.push((index, parsed));
            }
        }
        build(&lines, ops)
    }
}

fn at_line(status: Status, index: usize) -> Status {
    status.context(format!("line {}", index + 1))
}

struct Line {
    name: String,
    op: String,
    inputs: Vec<String>,
    attrs: Vec<(String, Literal)>,
    device: String,
}

/// A value; the op's definition decides its type.
#[derive(Clone, Debug)]
enum Literal {
    /// A number, `true`, a type, or `?`.
    Word(String),
    Text(Vec<u8>),
    List(Vec<Literal>),
    Tensor(Tensor),
    Function(String, Vec<(String, Literal)>),
}

fn build(lines: &[(usize, Line)], ops: &dyn OpLookup) -> Result<NodeGraph> {
    let mut by_name: HashMap<&str, usize> = HashMap::new();
    for (place, (_, line)) in lines.iter().enumerate() {
        by_name.insert(&line.name, place);
    }
    let mut schemas: Vec<Arc<OpSchema>> = Vec::with_capacity(lines.len());
    for (index, line) in lines {
        let info = ops.op(&line.op);
        let missing = || Status::not_found(format!("Op type not registered '{}'", line.op));
        schemas.push(info.ok_or_else(missing).map_err(|status| at_line(status, *index))?.schema.clone());
    }
    // Types may depend on nodes further down, so each node is built as soon as its inputs' types are known.
    let mut nodes: Vec<Option<Node>> = lines.iter().map(|_| None).collect();
    let mut made = 0;
    while made < lines.len() {
        let before = made;
        for (place, (index, line)) in lines.iter().enumerate() {
            if nodes[place].is_none() {
                let node = make(line, &schemas[place], &nodes, &by_name).map_err(|status| at_line(status, *index))?;
                made += usize::from(node.is_some());
                nodes[place] = node;
            }
        }
        if made == before {
            let stuck = nodes.iter().position(Option::is_none).unwrap_or(0);
            let message = format!("the types of '{}' can't be worked out", lines[stuck].1.name);
            return Err(at_line(Status::invalid_argument(message), lines[stuck].0));
        }
    }
    let mut graph = NodeGraph::new(Arc::new(FunctionLibrary::default()));
    for node in nodes.into_iter().flatten() {
        graph.add(node)?;
    }
    for (_, node) in graph.iter() {
        graph.check_inputs(node)?;
    }
    graph.topological_order()?;
    Ok(graph)
}

/// Builds a node, unless it needs the types of inputs that are not known yet.
fn make(
    line: &Line,
    schema: &Arc<OpSchema>,
    nodes: &[Option<Node>],
    by_name: &HashMap<&str, usize>,
) -> Result<Option<Node>> {
    let find = |name: &str| {
        let place = by_name.get(name).copied();
        place.ok_or_else(|| Status::invalid_argument(format!("Node '{}': Unknown input node '{name}'", line.name)))
    };
    let (mut inputs, mut controls) = (Vec::new(), Vec::new());
    let mut types: Vec<TypeSlot> = Vec::new();
    let mut all_known = true;
    for input in &line.inputs {
        if let Some(name) = input.strip_prefix('^') {
            controls.push(NodeId(find(name)? as u32));
            continue;
        }
        let (name, port) = parse_tensor_name(input)?;
        let place = find(name)?;
        inputs.push(Edge { node: NodeId(place as u32), port });
        match &nodes[place] {
            Some(node) => types.push(node.output_type(port)?),
            None => all_known = false,
        }
    }
    // All inputs of a `Merge` have the same type, and that of a loop's back edge is not known before the `Merge` is built.
    let is_loop = matches!(schema.name.as_str(), "Merge" | "RefMerge") && !types.is_empty();
    if !all_known && !is_loop {
        return Ok(None);
    }
    if is_loop && let Some(&first) = types.first() {
        types.resize(inputs.len(), first);
    }
    let mut attrs = inferred_attrs(schema, &types);
    for (name, literal) in &line.attrs {
        let ty = schema.attr(name).map(|def| def.r#type.as_str());
        let value = match ty {
            Some(ty) => typed(ty, literal).ok_or_else(|| {
                Status::invalid_argument(format!("attribute {name} of '{}' is not a valid {ty}", line.name))
            })?,
            None => untyped(literal),
        };
        attrs.insert(name.clone(), value);
    }
    let mut node = Node::new(line.name.clone(), schema.clone(), line.device.clone(), attrs)?;
    node.inputs = inputs;
    node.control_inputs = controls;
    Ok(Some(node))
}

fn typed(ty: &str, literal: &Literal) -> Option<AttrValue> {
    let attr = match (ty, literal) {
        ("string", Literal::Text(text)) => Value::S(text.clone().into()),
        ("int", Literal::Word(word)) => Value::I(word.parse().ok()?),
        ("float", Literal::Word(word)) => Value::F(word.parse().ok()?),
        ("bool", Literal::Word(word)) => Value::B(word.parse().ok()?),
        ("type", Literal::Word(word)) => Value::Type(DType::from_name(word)? as i32),
        ("shape", literal) => Value::Shape(shape(literal)?.to_proto()),
        ("tensor", Literal::Tensor(tensor)) => Value::Tensor(Box::new(tensor::tensor_to_proto(tensor).ok()?)),
        ("func", Literal::Function(name, attrs)) => Value::Func(Box::new(function(name, attrs))),
        (list, Literal::List(items)) => {
            let inner = list.strip_prefix("list(")?.strip_suffix(')')?;
            let mut values = ListValue::default();
            for item in items {
                match typed(inner, item)?.value? {
                    Value::S(value) => values.s.push(value),
                    Value::I(value) => values.i.push(value),
                    Value::F(value) => values.f.push(value),
                    Value::B(value) => values.b.push(value),
                    Value::Type(value) => values.r#type.push(value),
                    Value::Shape(value) => values.shape.push(value),
                    Value::Tensor(value) => values.tensor.push(*value),
                    Value::Func(value) => values.func.push(*value),
                    Value::List(_) | Value::Placeholder(_) => return None,
                }
            }
            Value::List(Box::new(values))
        }
        _ => return None,
    };
    Some(AttrValue { value: Some(attr) })
}

/// Guesses the type of a value from its form, for attributes that are not in the definition.
fn untyped(literal: &Literal) -> AttrValue {
    let guess = |literal: &Literal| match literal {
        Literal::Text(_) => "string",
        Literal::Word(word) if word.parse::<i64>().is_ok() => "int",
        Literal::Word(word) if word.parse::<bool>().is_ok() => "bool",
        Literal::Word(word) if word.parse::<f32>().is_ok() => "float",
        Literal::Word(word) if word == "?" => "shape",
        Literal::Word(_) => "type",
        Literal::List(_) => "shape",
        Literal::Tensor(_) => "tensor",
        Literal::Function(..) => "func",
    };
    let ty = match literal {
        Literal::List(items) => format!("list({})", items.first().map_or("string", guess)),
        other => guess(other).to_owned(),
    };
    typed(&ty, literal).unwrap_or_default()
}

fn shape(literal: &Literal) -> Option<PartialShape> {
    let Literal::List(items) = literal else {
        return matches!(literal, Literal::Word(word) if word == "?").then(PartialShape::unknown);
    };
    let mut dims = Vec::with_capacity(items.len());
    for item in items {
        let Literal::Word(word) = item else { return None };
        dims.push(if word == "?" { None } else { Some(word.parse().ok().filter(|&size: &i64| size >= 0)?) });
    }
    Some(PartialShape::new(&dims))
}

fn function(name: &str, attrs: &[(String, Literal)]) -> NameAttrList {
    let attr = attrs.iter().map(|(name, literal)| (name.clone(), untyped(literal))).collect();
    NameAttrList { name: name.to_owned(), attr }
}

impl Line {
    fn parse(text: &str) -> Result<Line> {
        let mut reader = Reader { rest: text };
        let name = reader.word()?;
        reader.expect("=")?;
        let op = reader.word()?;
        reader.expect("(")?;
        let mut inputs = Vec::new();
        while !reader.accept(")") {
            let caret = if reader.accept("^") { "^" } else { "" };
            inputs.push(format!("{caret}{}", reader.word()?));
            if !reader.accept(",") {
                reader.expect(")")?;
                break;
            }
        }
        let attrs = if reader.accept("{") { reader.attrs(DEPTH_MAX)? } else { Vec::new() };
        let device = if reader.accept("@") { reader.word()? } else { String::new() };
        if !reader.rest.is_empty() {
            return Err(reader.unexpected());
        }
        Ok(Line { name, op, inputs, attrs, device })
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn unexpected(&self) -> Status {
        let rest: String = self.rest.chars().take(20).collect();
        Status::invalid_argument(format!("unexpected text at '{rest}'"))
    }

    fn accept(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.accept(token) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn word(&mut self) -> Result<String> {
        self.rest = self.rest.trim_start();
        let is_word = |c: char| c.is_ascii_alphanumeric() || "_./:-+?*\\>".contains(c);
        let end = self.rest.find(|c: char| !is_word(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.unexpected());
        }
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        Ok(word.to_owned())
    }

    fn attrs(&mut self, depth: usize) -> Result<Vec<(String, Literal)>> {
        let mut attrs = Vec::new();
        while !self.accept("}") {
            let name = self.word()?;
            self.expect("=")?;
            attrs.push((name, self.literal(depth)?));
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(attrs)
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Literal>> {
        let mut items = Vec::new();
        while !self.accept("]") {
            items.push(self.literal(depth)?);
            if !self.accept(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(items)
    }

    fn literal(&mut self, depth: usize) -> Result<Literal> {
        let depth = depth.checked_sub(1).ok_or_else(|| Status::invalid_argument("nested too deeply"))?;
        if self.rest.starts_with('"') {
            return Ok(Literal::Text(self.text()?));
        }
        if self.accept("[") {
            return Ok(Literal::List(self.list(depth)?));
        }
        if self.accept("&") {
            let name = self.word()?;
            let attrs = if self.accept("{") { self.attrs(depth)? } else { Vec::new() };
            return Ok(Literal::Function(name, attrs));
        }
        let word = self.word()?;
        if let Some(dtype) = DType::from_name(&word)
            && self.accept("[")
        {
            return Ok(Literal::Tensor(self.tensor(dtype, depth)?));
        }
        Ok(Literal::Word(word))
    }

    fn tensor(&mut self, dtype: DType, depth: usize) -> Result<Tensor> {
        let invalid = || Status::invalid_argument(format!("not a valid tensor of {dtype}"));
        let dims = shape(&Literal::List(self.list(depth)?)).and_then(|shape| shape.to_shape()).ok_or_else(invalid)?;
        self.expect("(")?;
        let mut elements = Vec::new();
        while !self.accept(")") {
            elements.push(self.literal(depth)?);
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        tensor(dtype, dims, &elements).ok_or_else(invalid)
    }

    fn text(&mut self) -> Result<Vec<u8>> {
        let bytes = self.rest.as_bytes();
        let mut text = Vec::new();
        let mut at = 1;
        loop {
            match bytes.get(at) {
                None => return Err(Status::invalid_argument("a string doesn't end")),
                Some(b'"') => break,
                Some(b'\\') => {
                    let (byte, len) = escape(&bytes[at + 1..]).ok_or_else(|| self.unexpected())?;
                    text.push(byte);
                    at += 1 + len;
                }
                Some(&byte) => {
                    text.push(byte);
                    at += 1;
                }
            }
        }
        self.rest = self.rest.get(at + 1..).unwrap_or("").trim_start();
        Ok(text)
    }
}

fn escape(bytes: &[u8]) -> Option<(u8, usize)> {
    match bytes {
        [b'n', ..] => Some((b'\n', 1)),
        [b't', ..] => Some((b'\t', 1)),
        [b'r', ..] => Some((b'\r', 1)),
        [b'x', rest @ ..] => {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            Some((u8::from_str_radix(digits, 16).ok()?, 3))
        }
        [byte @ (b'"' | b'\\' | b'\''), ..] => Some((*byte, 1)),
        _ => None,
    }
}

fn tensor(dtype: DType, shape: Shape, elements: &[Literal]) -> Option<Tensor> {
    macro_rules! numbers {
        ($($dtype:ident => $ty:ty),*) => {
            match dtype {
                $(DType::$dtype => {
                    let parse = |element: &Literal| match element {
                        Literal::Word(word) => word.parse::<$ty>().ok(),
                        _ => None,
                    };
                    let values: Option<Vec<$ty>> = elements.iter().map(parse).collect();
                    Tensor::from_slice(shape.dims(), &values?).ok()
                })*
                DType::String => {
                    let parse = |element: &Literal| match element {
                        Literal::Text(text) => Some(text.clone().into()),
                        _ => None,
                    };
                    let values: Option<Vec<_>> = elements.iter().map(parse).collect();
                    Tensor::from_strings(shape, values?).ok()
                }
                _ => None,
            }
        };
    }
    numbers!(Float => f32, Double => f64, Int32 => i32, Int64 => i64, UInt8 => u8, UInt16 => u16, UInt32 => u32,
        UInt64 => u64, Int8 => i8, Int16 => i16, Bool => bool)
}
