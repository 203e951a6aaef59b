//! [`ServerVerifier`]: verifies that a server is the intended one.

use super::identity::{Identity, Spiffe};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Accepts a certificate of the authorities if it is that of the intended task.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    pub roots: Arc<RootCertStore>,
    pub algorithms: WebPkiSupportedAlgorithms,
    /// The task; `None` if only its address is known.
    pub task: Option<String>,
    /// The cluster in the own certificate.
    pub cluster: Option<String>,
}

impl ServerVerifier {
    fn check_who(
        &self,
        certificate: &CertificateDer<'_>,
        parsed: &ParsedCertificate<'_>,
        name: &ServerName<'_>,
    ) -> Result<(), Error> {
        let identity = Identity::of(certificate).ok_or(CertificateError::BadEncoding)?;
        let Some(named) = identity.named() else { return verify_server_name(parsed, name) };
        let other = |wanted: &str| {
            let cluster = identity.cluster().unwrap_or_default();
            Error::General(format!("its certificate is that of {named} of the cluster '{cluster}', not {wanted}"))
        };
        if let Some(own) = &self.cluster
            && identity.cluster() != Some(own)
        {
            return Err(other(&format!("of the cluster '{own}'")));
        }
        match (&self.task, named) {
            (Some(task), Spiffe::Task(named)) if task == named => Ok(()),
            (Some(task), _) => Err(other(&format!("that of {task}"))),
            // Any task of the own cluster is acceptable.
            (None, Spiffe::Task(_)) if self.cluster.is_some() => Ok(()),
            (None, Spiffe::Task(_)) => verify_server_name(parsed, name),
            (None, _) => Err(other("that of a task")),
        }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, self.algorithms.all)?;
        self.check_who(end_entity, &parsed, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
