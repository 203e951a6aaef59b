//! An authority whose certificates tests use, good ones and others.

use cluster::TlsFiles;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use std::path::Path;
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};

/// An authority with a directory for the files.
pub struct Authority {
    pub dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority.
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { dir, issuer: Issuer::new(params, key) }
    }

    /// Issues a certificate for 127.0.0.1 with a URI; returns where it is.
    pub fn issue(&self, name: &str, uri: &str) -> TlsFiles {
        self.issue_for(name, uri, Duration::hours(1))
    }

    /// As [`issue`](Self::issue), with how long the certificate is good from now on.
    pub fn issue_for(&self, name: &str, uri: &str, rest: Duration) -> TlsFiles {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
        if !uri.is_empty() {
            params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let now = OffsetDateTime::now_utc();
        (params.not_before, params.not_after) = (now - Duration::hours(2), now + rest);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let path = |ending: &str| self.dir.path().join(format!("{name}.{ending}"));
        replace(&path("key"), &key.serialize_pem());
        replace(&path("pem"), &certificate.pem());
        TlsFiles::new(path("pem"), path("key"), self.dir.path().join("ca.pem"))
    }
}

/// Writes a file in one go.
pub fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}
