//! The one error type, [`Status`], with TensorFlow's codes.

use std::fmt;

/// The result of anything that can fail.
pub type Result<T, E = Status> = std::result::Result<T, E>;

/// TensorFlow's error codes, which are also gRPC's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Code {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    /// Returns the code for a number on the wire; numbers nobody defined become `Unknown`.
    pub fn from_i32(code: i32) -> Code {
        use Code::*;
        const CODES: [Code; 16] = [
            Cancelled,
            Unknown,
            InvalidArgument,
            DeadlineExceeded,
            NotFound,
            AlreadyExists,
            PermissionDenied,
            ResourceExhausted,
            FailedPrecondition,
            Aborted,
            OutOfRange,
            Unimplemented,
            Internal,
            Unavailable,
            DataLoss,
            Unauthenticated,
        ];
        usize::try_from(code).ok().and_then(|code| CODES.get(code.wrapping_sub(1)).copied()).unwrap_or(Unknown)
    }

    /// Returns the name as TensorFlow writes it, such as `INVALID_ARGUMENT`.
    pub fn name(self) -> &'static str {
        match self {
            Code::Cancelled => "CANCELLED",
            Code::Unknown => "UNKNOWN",
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Code::NotFound => "NOT_FOUND",
            Code::AlreadyExists => "ALREADY_EXISTS",
            Code::PermissionDenied => "PERMISSION_DENIED",
            Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Code::FailedPrecondition => "FAILED_PRECONDITION",
            Code::Aborted => "ABORTED",
            Code::OutOfRange => "OUT_OF_RANGE",
            Code::Unimplemented => "UNIMPLEMENTED",
            Code::Internal => "INTERNAL",
            Code::Unavailable => "UNAVAILABLE",
            Code::DataLoss => "DATA_LOSS",
            Code::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

/// An error: a code, a message, and whether another error caused it.
#[derive(Clone, PartialEq, Eq)]
pub struct Status(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    code: Code,
    message: String,
    derived: bool,
    /// The name of the node that failed, once the executor has said it.
    node: Option<String>,
}

macro_rules! constructors {
    ($($name:ident => $code:ident),* $(,)?) => {$(
        #[doc = concat!("Makes an error with the code `", stringify!($code), "`.")]
        pub fn $name(message: impl Into<String>) -> Status {
            Status::new(Code::$code, message)
        }
    )*};
}

impl Status {
    /// Makes an error.
    pub fn new(code: Code, message: impl Into<String>) -> Status {
        Status(Box::new(Inner { code, message: message.into(), derived: false, node: None }))
    }

    constructors! {
        cancelled => Cancelled,
        unknown => Unknown,
        invalid_argument => InvalidArgument,
        deadline_exceeded => DeadlineExceeded,
        not_found => NotFound,
        already_exists => AlreadyExists,
        permission_denied => PermissionDenied,
        resource_exhausted => ResourceExhausted,
        failed_precondition => FailedPrecondition,
        aborted => Aborted,
        out_of_range => OutOfRange,
        unimplemented => Unimplemented,
        internal => Internal,
        unavailable => Unavailable,
        data_loss => DataLoss,
        unauthenticated => Unauthenticated,
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns whether another error caused this one, so that it isn't what the user should read.
    pub fn is_derived(&self) -> bool {
        self.0.derived
    }

    /// Marks the error as caused by another.
    #[must_use]
    pub fn derived(mut self) -> Status {
        self.0.derived = true;
        self
    }

    /// Returns the node at which the error happened, once the executor has attached it.
    pub fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// Attaches the failing node's name, once: an error that already names its node stays as it is.
    #[must_use]
    pub fn with_node(mut self, name: &str) -> Status {
        if self.0.node.is_none() {
            self.0.message = format!("{}\n\t [[{{{{node {name}}}}}]]", self.0.message);
            self.0.node = Some(name.to_owned());
        }
        self
    }

    /// Puts `context` in front of the message.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Status {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// Appends `text` to the message.
    #[must_use]
    pub fn append(mut self, text: impl fmt::Display) -> Status {
        self.0.message = format!("{}{text}", self.0.message);
        self
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.name(), self.0.message)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Status {}

impl From<Status> for std::io::Error {
    fn from(status: Status) -> Self {
        std::io::Error::other(status)
    }
}

/// Adds context to errors on their way up.
pub trait ResultExt<T> {
    /// Puts `context()` in front of the error's message.
    fn context<D: fmt::Display>(self, context: impl FnOnce() -> D) -> Result<T>;
}

impl<T> ResultExt<T> for Result<T> {
    fn context<D: fmt::Display>(self, context: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|status| status.context(context()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_wire() {
        for number in 1..=16 {
            assert_eq!(Code::from_i32(number) as i32, number);
        }
        assert_eq!(Code::from_i32(0), Code::Unknown);
        assert_eq!(Code::from_i32(-3), Code::Unknown);
        assert_eq!(Code::from_i32(99), Code::Unknown);
    }

    #[test]
    fn the_node_is_named_once() {
        let status = Status::invalid_argument("bad").with_node("a/b").with_node("outer");
        assert_eq!(status.message(), "bad\n\t [[{{node a/b}}]]");
        assert_eq!(status.node(), Some("a/b"));
    }
}
