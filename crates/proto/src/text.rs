//! The text form of messages, as in `graph.pbtxt`: [`parse()`] and [`format()`].
//!
//! Both convert between text and the bytes of a message, guided by the descriptors. TensorFlow reads what this writes, and the
//! other way round.
//!
//! Written by hand: the text form of `prost-reflect` decodes every message into a tree of dynamic values first, which for a
//! graph takes several times the memory of this one pass. The tests compare with it.

mod format;
mod parse;
pub(crate) mod schema;

use prost::{DecodeError, Message};
use schema::{MessageSchema, Schema};
use std::fmt;

/// The deepest nesting of messages, as in other implementations.
const DEPTH_MAX: usize = 100;

/// Parses the text form of a message whose full name is `name`, such as `tensorflow.ServerDef`.
///
/// ```
/// let def: proto::ServerDef = proto::text::parse("tensorflow.ServerDef", "job_name: 'ps' task_index: 1")?;
/// assert_eq!((&*def.job_name, def.task_index), ("ps", 1));
/// # Ok::<(), proto::text::Error>(())
/// ```
pub fn parse<M: Message + Default>(name: &str, text: &str) -> Result<M, Error> {
    let bytes = parse::to_wire(Schema::get(), message(name)?, text)?;
    Ok(M::decode(&*bytes)?)
}

/// Returns the text form of a message whose full name is `name`, such as `tensorflow.GraphDef`.
///
/// ```
/// let def = proto::ServerDef { job_name: "ps".to_owned(), ..Default::default() };
/// assert_eq!(proto::text::format("tensorflow.ServerDef", &def)?, "job_name: \"ps\"\n");
/// # Ok::<(), proto::text::Error>(())
/// ```
pub fn format(name: &str, value: &impl Message) -> Result<String, Error> {
    format::from_wire(Schema::get(), message(name)?, &value.encode_to_vec())
}

fn message(name: &str) -> Result<&'static MessageSchema, Error> {
    let missing = || Error::new(format_args!("there is no message {name}"));
    Schema::get().message(&format!(".{name}")).ok_or_else(missing)
}

/// Why a text is not the text form of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    what: String,
    /// The line and column, from 1.
    at: Option<(usize, usize)>,
}

impl Error {
    fn new(what: impl fmt::Display) -> Error {
        Error { what: what.to_string(), at: None }
    }

    fn at(what: impl fmt::Display, line: usize, column: usize) -> Error {
        Error { what: what.to_string(), at: Some((line, column)) }
    }
}

fn too_deep() -> Error {
    Error::new(format_args!("more than {DEPTH_MAX} messages are inside each other"))
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Error {
        Error::new(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at {
            Some((line, column)) => write!(f, "{line}:{column}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for Error {}
