//! Mutual TLS between tasks, clients and servers: [`TlsFiles`] names the certificate, its key and the authorities; [`Tls`] makes
//! connections with them, and reads them again when they change; [`Identity`] is whom a certificate stands for.
//!
//! Only TLS 1.3 is spoken, both ends show a certificate, and nothing of a connection is kept for the next one, so that every connection
//! is checked against the certificates and the time of its beginning.

mod context;
mod files;
mod identity;
mod session;
mod verifier;
mod wire;

pub(crate) use context::{Protocol, Tls, is_about_certificates, refusal_of};
pub use files::TlsFiles;
pub(crate) use identity::{Identity, Spiffe};
pub(crate) use session::TlsSession;
pub(crate) use wire::Wire;
