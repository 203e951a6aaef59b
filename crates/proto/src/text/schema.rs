//! [`Schema`]: the fields of this crate's messages, read from [`crate::DESCRIPTORS`].

use prost::Message;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The messages and enums, by full names with a leading dot (`.tensorflow.GraphDef`).
pub(crate) struct Schema {
    messages: BTreeMap<String, MessageSchema>,
    enums: BTreeMap<String, Vec<EnumValue>>,
}

/// The fields of a message.
pub(crate) struct MessageSchema {
    pub(crate) fields: Vec<Field>,
    /// Whether it is a map entry, which is always written with both fields.
    pub(crate) is_map_entry: bool,
}

impl Schema {
    /// Returns the schema of this crate's messages.
    pub(crate) fn get() -> &'static Schema {
        static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
            let files = FileSet::decode(crate::DESCRIPTORS).expect("descriptors.bin is held to be valid by a test");
            let mut schema = Schema { messages: BTreeMap::new(), enums: BTreeMap::new() };
            for file in files.file {
                let scope = if file.package.is_empty() { String::new() } else { format!(".{}", file.package) };
                schema.add(&scope, file.message, file.enums);
            }
            schema
        });
        &SCHEMA
    }

    fn add(&mut self, scope: &str, messages: Vec<MessageType>, enums: Vec<EnumType>) {
        for item in enums {
            self.enums.insert(format!("{scope}.{}", item.name), item.value);
        }
        for item in messages {
            let name = format!("{scope}.{}", item.name);
            self.add(&name, item.nested, item.enums);
            let is_map_entry = item.options.is_some_and(|options| options.map_entry);
            self.messages.insert(name, MessageSchema { fields: item.field, is_map_entry });
        }
    }

    /// Returns the message with this full name, which has a leading dot.
    pub(crate) fn message(&self, name: &str) -> Option<&MessageSchema> {
        self.messages.get(name)
    }

    /// Returns the full names of all messages, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.messages.keys().map(String::as_str)
    }

    /// Returns the number of an enum value.
    pub(crate) fn enum_number(&self, name: &str, value: &str) -> Option<i32> {
        self.enums.get(name)?.iter().find(|item| item.name == value).map(|item| item.number)
    }

    /// Returns the first name of a number in an enum.
    pub(crate) fn enum_name(&self, name: &str, number: i32) -> Option<&str> {
        self.enums.get(name)?.iter().find(|item| item.number == number).map(|item| &*item.name)
    }
}

impl MessageSchema {
    /// Returns the field with this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Returns the field with this number.
    pub(crate) fn numbered(&self, number: u32) -> Option<&Field> {
        self.fields.iter().find(|field| field.number == number)
    }
}

/// The type of a field, numbered as in descriptor.proto.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Kind {
    Double = 1,
    Float = 2,
    Int64 = 3,
    Uint64 = 4,
    Int32 = 5,
    Fixed64 = 6,
    Fixed32 = 7,
    Bool = 8,
    String = 9,
    Message = 11,
    Bytes = 12,
    Uint32 = 13,
    Enum = 14,
    Sfixed32 = 15,
    Sfixed64 = 16,
    Sint32 = 17,
    Sint64 = 18,
}

/// descriptor.proto's label of a repeated field.
const REPEATED: i32 = 3;

/// The parts of descriptor.proto's FieldDescriptorProto that are used here.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Field {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(uint32, tag = "3")]
    pub(crate) number: u32,
    #[prost(int32, tag = "4")]
    label: i32,
    #[prost(int32, tag = "5")]
    type_number: i32,
    /// The full name of the message or enum.
    #[prost(string, tag = "6")]
    pub(crate) type_name: String,
    #[prost(int32, optional, tag = "9")]
    pub(crate) oneof: Option<i32>,
}

impl Field {
    /// Returns the type, or `None` for types that our files do not use, such as groups.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::try_from(self.type_number).ok()
    }

    /// Returns whether the field is repeated.
    pub(crate) fn is_repeated(&self) -> bool {
        self.label == REPEATED
    }
}

#[derive(Clone, PartialEq, Message)]
struct FileSet {
    #[prost(message, repeated, tag = "1")]
    file: Vec<File>,
}

#[derive(Clone, PartialEq, Message)]
struct File {
    #[prost(string, tag = "2")]
    package: String,
    #[prost(message, repeated, tag = "4")]
    message: Vec<MessageType>,
    #[prost(message, repeated, tag = "5")]
    enums: Vec<EnumType>,
}

#[derive(Clone, PartialEq, Message)]
struct MessageType {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    field: Vec<Field>,
    #[prost(message, repeated, tag = "3")]
    nested: Vec<MessageType>,
    #[prost(message, repeated, tag = "4")]
    enums: Vec<EnumType>,
    #[prost(message, optional, tag = "7")]
    options: Option<MessageOptions>,
}

#[derive(Clone, PartialEq, Message)]
struct MessageOptions {
    #[prost(bool, tag = "7")]
    map_entry: bool,
}

#[derive(Clone, PartialEq, Message)]
struct EnumType {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    value: Vec<EnumValue>,
}

#[derive(Clone, PartialEq, Message)]
struct EnumValue {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int32, tag = "2")]
    number: i32,
}
