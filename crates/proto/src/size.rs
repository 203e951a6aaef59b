//! Bounds the memory of a decoded message from its bytes alone.
//!
//! Two bytes of a message can become a structure of hundreds, so messages from outside are scanned before they are decoded. The
//! scan reads every tag once and allocates nothing. The bound includes the overhead of the allocator and of lists that grow by
//! doubling.

use crate::text::schema::{Field, Kind, MessageSchema, Schema};
use prost::encoding::decode_varint;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The deepest nesting of messages; the decoder has the same bound.
const DEPTH_MAX: usize = 100;

/// The most that the allocator adds to a block, including rounding.
const BLOCK_BYTES: u64 = 16;

/// Pairs in a leaf of a `BTreeMap`, which is allocated as a whole.
const LEAF_PAIRS: u64 = 11;

/// The fields that `tests/generated.rs` boxes.
const BOXED: [(&str, &str); 5] = [
    (".tensorflow.AttrValue", "list"),
    (".tensorflow.AttrValue", "tensor"),
    (".tensorflow.AttrValue", "func"),
    (".tensorflow.NodeDef", "experimental_debug_info"),
    (".tensorflow.NodeDef", "experimental_type"),
];

/// The size of a decoded message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecodedSize {
    /// The bytes of memory, without those of `bytes` fields, which are shared with the message.
    pub bytes: u64,
    /// The number of nodes in graphs and functions.
    pub nodes: u64,
}

/// Why the size of a message is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeError {
    /// The bytes are not a message.
    Malformed,
    /// Messages nest too deeply.
    TooDeep,
}

/// Returns the decoded size of a message of the package `tensorflow`. An unknown name is malformed.
pub fn decoded_size(message: &str, bytes: &[u8]) -> Result<DecodedSize, SizeError> {
    let table = Table::get();
    let &index = table.by_name.get(message).ok_or(SizeError::Malformed)?;
    let mut size = DecodedSize { bytes: table.messages[index].bytes, nodes: 0 };
    table.add(index, bytes, 0, &mut size)?;
    Ok(size)
}

/// All messages, with the cost of each of their fields.
struct Table {
    messages: Vec<Message>,
    /// The messages of the package `tensorflow` by their short names.
    by_name: BTreeMap<String, usize>,
}

struct Message {
    /// The size of the structure itself.
    bytes: u64,
    is_node: bool,
    /// By number.
    fields: Vec<(u32, Cost)>,
}

#[derive(Clone, Copy)]
enum Cost {
    /// A number: 0, or the size of an element if repeated, and the fewest bytes of one in a packed list.
    Number { element: u64, packed: u64 },
    /// Text: 0, or the size of an element if repeated.
    Text { element: u64 },
    /// Bytes: likewise.
    Bytes { element: u64 },
    /// A message: its cost beside the structure that contains it.
    Message { index: usize, own: u64 },
    /// An entry of a map: its message, and the size of a pair.
    Entry { index: usize, pair: u64 },
}

impl Table {
    fn get() -> &'static Table {
        static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new(Schema::get()));
        &TABLE
    }

    fn new(schema: &Schema) -> Table {
        let names: BTreeMap<&str, usize> = schema.names().enumerate().map(|(index, name)| (name, index)).collect();
        let mut sizes = Sizes { schema, known: BTreeMap::new() };
        let mut messages = Vec::with_capacity(names.len());
        for &name in names.keys() {
            let message = schema.message(name);
            let fields = message.map_or(&[][..], |message| &message.fields);
            let cost = |field: &Field| Some((field.number, sizes.cost(name, field, &names)?));
            let mut fields: Vec<(u32, Cost)> = fields.iter().filter_map(cost).collect();
            fields.sort_by_key(|(number, _)| *number);
            messages.push(Message { bytes: 0, is_node: name == ".tensorflow.NodeDef", fields });
        }
        for (&name, &index) in &names {
            messages[index].bytes = sizes.of(name);
        }
        let short = |(name, index): (&&str, &usize)| Some((name.strip_prefix(".tensorflow.")?.to_owned(), *index));
        Table { by_name: names.iter().filter_map(short).collect(), messages }
    }

    /// Adds the cost of a message's fields beside its structure.
    fn add(&self, index: usize, bytes: &[u8], depth: usize, size: &mut DecodedSize) -> Result<(), SizeError> {
        if depth > DEPTH_MAX {
            return Err(SizeError::TooDeep);
        }
        let message = &self.messages[index];
        size.nodes += u64::from(message.is_node);
        let mut maps_seen = 0u64;
        let mut rest = bytes;
        while !rest.is_empty() {
            let tag = varint(&mut rest)?;
            let number = u32::try_from(tag >> 3).map_err(|_| SizeError::Malformed)?;
            let value: &[u8] = match tag & 7 {
                0 => {
                    varint(&mut rest)?;
                    &[]
                }
                1 => take(&mut rest, 8)?,
                5 => take(&mut rest, 4)?,
                2 => {
                    let len = varint(&mut rest)?;
                    take(&mut rest, len)?
                }
                _ => return Err(SizeError::Malformed),
            };
            let is_long = tag & 7 == 2;
            let Ok(found) = message.fields.binary_search_by_key(&number, |(number, _)| *number) else { continue };
            match message.fields[found].1 {
                Cost::Number { element, packed } if is_long => {
                    size.bytes += 2 * element * (value.len() as u64 / packed)
                }
                Cost::Number { element, .. } => size.bytes += 2 * element,
                Cost::Text { element } => size.bytes += 2 * element + heap(value.len() as u64),
                Cost::Bytes { element } => size.bytes += 2 * element,
                Cost::Message { index, own } if is_long => {
                    size.bytes += own;
                    self.add(index, value, depth + 1, size)?;
                }
                Cost::Entry { index, pair } if is_long => {
                    let bit = 1u64 << (number % 64);
                    size.bytes += if maps_seen & bit == 0 { heap(LEAF_PAIRS * pair) } else { 2 * pair };
                    maps_seen |= bit;
                    self.add(index, value, depth + 1, size)?;
                }
                // The decoder rejects it.
                Cost::Message { .. } | Cost::Entry { .. } => return Err(SizeError::Malformed),
            }
        }
        Ok(())
    }
}

/// Returns the memory that an allocation of this many bytes takes.
fn heap(len: u64) -> u64 {
    if len == 0 { 0 } else { len + BLOCK_BYTES }
}

fn varint(rest: &mut &[u8]) -> Result<u64, SizeError> {
    decode_varint(rest).map_err(|_| SizeError::Malformed)
}

fn take<'a>(rest: &mut &'a [u8], len: u64) -> Result<&'a [u8], SizeError> {
    let len = usize::try_from(len).map_err(|_| SizeError::Malformed)?;
    let (taken, after) = rest.split_at_checked(len).ok_or(SizeError::Malformed)?;
    *rest = after;
    Ok(taken)
}

/// Computes the sizes of structures from their fields.
struct Sizes<'a> {
    schema: &'a Schema,
    /// 0 while it is being computed: a message within one of the same type is boxed.
    known: BTreeMap<String, u64>,
}

const POINTER: u64 = 8;
const LIST: u64 = 24;
const TEXT: u64 = 24;
const BYTES: u64 = 32;

impl Sizes<'_> {
    fn of(&mut self, name: &str) -> u64 {
        if let Some(&known) = self.known.get(name) {
            return known;
        }
        self.known.insert(name.to_owned(), 0);
        let schema = self.schema;
        let fields = schema.message(name).map_or(&[][..], |message| &message.fields);
        let mut choices: BTreeMap<i32, u64> = BTreeMap::new();
        let mut total = 0;
        for field in fields {
            let bytes = self.field(name, field);
            match field.oneof {
                // The largest member of a oneof, and its discriminant.
                Some(choice) => {
                    let largest = choices.entry(choice).or_default();
                    *largest = (*largest).max(bytes + POINTER);
                }
                None => total += bytes,
            }
        }
        total += choices.values().sum::<u64>();
        self.known.insert(name.to_owned(), total);
        total
    }

    /// Returns the size of a field within its structure.
    fn field(&mut self, message: &str, field: &Field) -> u64 {
        match field.kind() {
            _ if field.is_repeated() => LIST,
            Some(Kind::String) => TEXT,
            Some(Kind::Bytes) => BYTES,
            Some(Kind::Message) if is_boxed(message, field) => POINTER,
            Some(Kind::Message) => match self.of(&field.type_name) {
                0 => POINTER,
                bytes => bytes + POINTER,
            },
            _ => 8,
        }
    }

    fn cost(&mut self, message: &str, field: &Field, names: &BTreeMap<&str, usize>) -> Option<Cost> {
        let element = |bytes: u64| if field.is_repeated() { bytes } else { 0 };
        Some(match field.kind()? {
            Kind::String => Cost::Text { element: element(TEXT) },
            Kind::Bytes => Cost::Bytes { element: element(BYTES) },
            Kind::Message => {
                let index = *names.get(field.type_name.as_str())?;
                let schema = self.schema;
                let entry = schema.message(&field.type_name).filter(|message| message.is_map_entry);
                if let Some(entry) = entry {
                    return Some(Cost::Entry { index, pair: self.pair(&field.type_name, entry) });
                }
                let bytes = self.of(&field.type_name);
                let own = match (field.is_repeated(), is_boxed(message, field)) {
                    (true, _) => 2 * bytes,
                    (false, true) => heap(bytes),
                    (false, false) => 0,
                };
                Cost::Message { index, own }
            }
            Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => Cost::Number { element: element(8), packed: 8 },
            Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => Cost::Number { element: element(4), packed: 4 },
            Kind::Int64 | Kind::Uint64 | Kind::Sint64 => Cost::Number { element: element(8), packed: 1 },
            Kind::Bool => Cost::Number { element: element(1), packed: 1 },
            Kind::Int32 | Kind::Uint32 | Kind::Sint32 | Kind::Enum => Cost::Number { element: element(4), packed: 1 },
        })
    }

    fn pair(&mut self, name: &str, entry: &MessageSchema) -> u64 {
        entry.fields.iter().map(|field| self.field(name, field)).sum()
    }
}

fn is_boxed(message: &str, field: &Field) -> bool {
    BOXED.contains(&(message, field.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr_value::{ListValue, Value};
    use crate::{AttrValue, CreateSessionRequest, FunctionDef, GraphDef, NodeDef, OpDef, TensorProto};
    use prost::Message as _;

    fn size_of_empty(name: &str) -> u64 {
        decoded_size(name, &[]).unwrap().bytes
    }

    #[test]
    fn structures_are_as_large_as_they_are() {
        for (name, actual) in [
            ("NodeDef", size_of::<NodeDef>()),
            ("AttrValue", size_of::<AttrValue>()),
            ("AttrValue.ListValue", size_of::<ListValue>()),
            ("TensorProto", size_of::<TensorProto>()),
            ("FunctionDef", size_of::<FunctionDef>()),
            ("OpDef", size_of::<OpDef>()),
            ("CreateSessionRequest", size_of::<CreateSessionRequest>()),
        ] {
            let estimated = size_of_empty(name);
            assert!(estimated >= actual as u64 && estimated < 2 * actual as u64, "{name}: {estimated} for {actual}");
        }
    }

    #[test]
    fn empty_nodes_cost_what_they_become() {
        let graph = GraphDef { node: vec![NodeDef::default(); 1000], ..Default::default() };
        let request = CreateSessionRequest { graph_def: Some(graph), ..Default::default() };
        let bytes = request.encode_to_vec();
        assert!(bytes.len() < 2100);
        let size = decoded_size("CreateSessionRequest", &bytes).unwrap();
        assert_eq!(size.nodes, 1000);
        assert!(size.bytes >= 1000 * size_of::<NodeDef>() as u64);
    }

    #[test]
    fn lists_maps_and_texts_are_counted() {
        let list = ListValue { i: vec![1; 100], ..Default::default() };
        let value = AttrValue { value: Some(Value::List(Box::new(list))) };
        let attr = (0..20).map(|index| (format!("attribute {index}"), value.clone())).collect();
        let node = NodeDef { name: "n".repeat(500), input: vec![String::new(); 50], attr, ..Default::default() };
        let size = decoded_size("NodeDef", &node.encode_to_vec()).unwrap();
        let least = size_of::<NodeDef>() + 500 + 50 * 24 + 20 * (24 + 11 + size_of::<AttrValue>() + 100 * 8);
        assert!(size.bytes >= least as u64 && size.bytes < 4 * least as u64, "{} for {least}", size.bytes);
    }

    #[test]
    fn what_is_cut_nested_or_unknown_is_told() {
        let node = NodeDef { name: "name".to_owned(), ..Default::default() }.encode_to_vec();
        assert_eq!(decoded_size("NodeDef", &node[..node.len() - 1]), Err(SizeError::Malformed));
        assert_eq!(decoded_size("NodeDef", &[0xff; 11]), Err(SizeError::Malformed));
        assert_eq!(decoded_size("No such message", &[]), Err(SizeError::Malformed));
        // Functions nested in the attributes of functions.
        let mut value = AttrValue::default().encode_to_vec();
        for _ in 0..60 {
            let field = |number: u8, bytes: &[u8]| {
                let mut field = vec![number << 3 | 2];
                prost::encoding::encode_varint(bytes.len() as u64, &mut field);
                field.extend_from_slice(bytes);
                field
            };
            value = field(10, &field(2, &[field(1, b"a"), field(2, &value)].concat()));
        }
        assert_eq!(decoded_size("AttrValue", &value), Err(SizeError::TooDeep));
    }
}
