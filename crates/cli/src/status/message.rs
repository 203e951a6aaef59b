//! The HTTP messages of the status port: the head of a request, and an answer.

use cluster::TaskStatus;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

const PLAIN: &str = "text/plain; charset=utf-8";

/// The page may load content from this port only, and no page may embed it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The head of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query: the text after the question mark.
    pub query: String,
    /// The header fields, with lower-case names.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// Returns the value of a field; the first one if it is repeated.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The answer to a request.
pub(super) struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// The header fields.
    pub fields: Vec<(&'static str, String)>,
    /// The body.
    pub body: Body,
    /// Whether only the head is sent.
    pub is_for_head: bool,
}

/// The body of an answer.
pub(super) enum Body {
    /// Text.
    Text(Arc<str>),
    /// Repeated events with the state of the cluster; holds a place among the open pages.
    Events(TaskStatus, OwnedSemaphorePermit),
}

impl Answer {
    /// Returns an answer with plain text.
    pub fn text(status: u16, text: String) -> Answer {
        Answer::new(status, PLAIN, Body::Text(text.into()))
    }

    /// Returns an answer with a content type.
    pub fn new(status: u16, kind: &str, body: Body) -> Answer {
        let fields = [
            ("content-type", kind),
            ("cache-control", "no-store"),
            ("content-security-policy", CONTENT_SECURITY_POLICY),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("referrer-policy", "no-referrer"),
            ("x-content-type-options", "nosniff"),
        ];
        let fields = fields.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        Answer { status, fields, body, is_for_head: false }
    }
}
