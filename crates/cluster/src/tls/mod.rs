//! Mutual TLS between tasks, clients and servers: [`TlsFiles`] names the certificate, its key and the authorities; [`Tls`] makes
//! connections with them, and reads them again when they change; [`Identity`] is the identity in a certificate.
//!
//! Only TLS 1.3 is supported, both ends present a certificate, and sessions are not resumed, so that every connection is verified
//! against the current certificates and time.

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
