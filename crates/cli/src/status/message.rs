//! The two messages of HTTP as the status port has them: the head of a request, and an answer.

use cluster::TaskStatus;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

const PLAIN: &str = "text/plain; charset=utf-8";

/// What the page may load, and who may show it: only this port, and nobody.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The head of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// What is to be done.
    pub method: String,
    /// With what, without the query.
    pub path: String,
    /// What stands behind the question mark.
    pub query: String,
    /// The fields, with lower-case names.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// Returns the value of a field; of a repeated one the first.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What a request is answered with.
pub(super) struct Answer {
    /// The code of HTTP.
    pub status: u16,
    /// The fields of its head.
    pub fields: Vec<(&'static str, String)>,
    /// What follows.
    pub body: Body,
    /// Whether only the head is wanted.
    pub is_for_head: bool,
}

/// The body of an answer.
pub(super) enum Body {
    /// A text.
    Text(Arc<str>),
    /// How the cluster of a task is, again and again, with a place among the open pages.
    Events(TaskStatus, OwnedSemaphorePermit),
}

impl Answer {
    /// Makes an answer of plain text.
    pub fn text(status: u16, text: String) -> Answer {
        Answer::new(status, PLAIN, Body::Text(text.into()))
    }

    /// Makes an answer of a type of content.
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
