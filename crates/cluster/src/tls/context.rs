//! [`Tls`]: makes encrypted connections with certificates from files, which it reads again when they change.

use super::files::TlsFiles;
use super::identity::Identity;
use super::verifier::ServerVerifier;
use crate::cluster_spec::split_address;
use crate::log_limit::LogLimit;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tensor::{Code, Result, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tracing::{info, warn};

/// The largest certificate file.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The interval at which a line says that the files can't be used.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// How many bytes to read from a refused peer, so that it can read the reason before its connection breaks.
const REFUSED_BYTES_MAX: usize = 64 << 10;

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));

/// The protocol of an encrypted connection, on which both ends agree in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// gRPC, which is HTTP/2.
    Http,
    /// A stream between tasks.
    Stream,
}

impl Protocol {
    fn name(self) -> &'static [u8] {
        match self {
            Protocol::Http => b"h2",
            Protocol::Stream => b"ferroflow-stream",
        }
    }
}

/// Makes encrypted connections.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The state of the files when they were last read.
    seen: Seen,
    loaded: Arc<Loaded>,
}

/// Distinguishes versions of the files: the inode, length and modification time of each.
type Seen = [Option<(u64, u64, i64, i64)>; 3];

/// The contents of the files.
#[derive(Debug)]
struct Loaded {
    server: Arc<ServerConfig>,
    roots: Arc<RootCertStore>,
    key: Arc<CertifiedKey>,
    /// The cluster that the certificate names.
    cluster: Option<String>,
}

impl Tls {
    /// Reads the files.
    pub fn new(files: TlsFiles) -> Result<Tls> {
        let seen = look_at(&files);
        let loaded = Arc::new(Loaded::read(&files)?);
        Ok(Tls { files, state: Mutex::new(State { seen, loaded }) })
    }

    /// Returns the current contents of the files. If they can't be used, for example because one was replaced and the other not
    /// yet, the previous contents stay in use.
    fn current(&self) -> Arc<Loaded> {
        static LIMIT: LogLimit = LogLimit::new(LINE_INTERVAL);
        let mut state = self.state.lock();
        // Taken before they are read, so that a change in between is detected the next time.
        let seen = look_at(&self.files);
        if seen != state.seen {
            state.seen = seen;
            match Loaded::read(&self.files) {
                Ok(loaded) => {
                    info!("the certificate in {} was read again", self.files.cert.display());
                    state.loaded = Arc::new(loaded);
                }
                Err(status) => {
                    if let Some(count) = LIMIT.allow() {
                        let left_out = LogLimit::left_out(count);
                        warn!(
                            "new certificates can't be used, and those of before are: {}{left_out}",
                            status.message()
                        );
                    }
                }
            }
        }
        state.loaded.clone()
    }

    /// Performs the handshake of a connection to `address`; `task` is the expected task, if it is known.
    pub async fn connect(
        &self,
        stream: TcpStream,
        task: Option<&str>,
        address: &str,
        protocol: Protocol,
    ) -> io::Result<TlsStream<TcpStream>> {
        let host = split_address(address).map_err(io::Error::other)?.0.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let config = self.current().client(task, protocol).map_err(io::Error::other)?;
        Ok(TlsStream::Client(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
    }

    /// Performs the handshake of a connection from a peer; returns the peer's identity and the protocol.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<(TlsStream<TcpStream>, Identity, Protocol)> {
        let loaded = self.current();
        let stream = match TlsAcceptor::from(loaded.server.clone()).accept(stream).into_fallible().await {
            Ok(stream) => stream,
            Err((error, stream)) => {
                let _ = linger(stream).await;
                return Err(error);
            }
        };
        let (_, connection) = stream.get_ref();
        let is_stream = connection.alpn_protocol() == Some(Protocol::Stream.name());
        let protocol = if is_stream { Protocol::Stream } else { Protocol::Http };
        let stream = TlsStream::Server(stream);
        let identity = Identity::of_peer(&stream).ok_or(io::ErrorKind::InvalidData)?;
        Ok((stream, identity, protocol))
    }

    /// Returns why a peer is refused whose certificate belongs to another cluster.
    pub fn check_cluster(&self, identity: &Identity) -> Result<()> {
        let own = &self.state.lock().loaded.cluster;
        match (own, identity.cluster()) {
            (Some(own), Some(other)) if own != other => Err(Status::permission_denied(format!(
                "the certificate is that of {} of the cluster '{other}', and this is a task of the cluster '{own}'",
                identity.describe()
            ))),
            _ => Ok(()),
        }
    }
}

impl Loaded {
    fn read(files: &TlsFiles) -> Result<Loaded> {
        let chain = certificates(&files.cert)?;
        let key = PrivateKeyDer::from_pem_slice(&contents(&files.key)?);
        let key = key.map_err(|error| unusable(&files.key, "has no private key in PEM", &error))?;
        let mut roots = RootCertStore::empty();
        for authority in certificates(&files.ca)? {
            roots
                .add(authority)
                .map_err(|error| unusable(&files.ca, "has a certificate that can't be used", &error))?;
        }
        let roots = Arc::new(roots);
        let wrong = |error: rustls::Error| unusable(&files.cert, "can't be used", &error);
        let key = CertifiedKey::from_der(chain, key, &PROVIDER).map_err(|error| {
            unusable(&files.cert, &format!("can't be used with the key in {}", files.key.display()), &error)
        })?;
        let key = Arc::new(key);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), PROVIDER.clone()).build();
        let verifier = verifier.map_err(|error| unusable(&files.ca, "can't be used", &error))?;
        let mut server = ServerConfig::builder_with_provider(PROVIDER.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(key.clone())));
        server.alpn_protocols = vec![Protocol::Http.name().to_vec(), Protocol::Stream.name().to_vec()];
        // A resumed session would not be verified again.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let identity = key.end_entity_cert().ok().and_then(Identity::of);
        let identity = identity.ok_or_else(|| {
            Status::invalid_argument(format!("{} can't be read, or names several at once", files.cert.display()))
        })?;
        let cluster = identity.cluster().map(str::to_owned);
        let loaded = Loaded { server: Arc::new(server), roots, key, cluster };
        if let Err(error) = loaded.check_own() {
            warn!("the certificate in {} is not one that others believe: {error}", files.cert.display());
        }
        Ok(loaded)
    }

    /// Returns why peers with the same authorities won't accept the own certificate.
    fn check_own(&self) -> std::result::Result<(), rustls::Error> {
        let parsed = ParsedCertificate::try_from(self.key.end_entity_cert()?)?;
        let algorithms = PROVIDER.signature_verification_algorithms.all;
        let between = self.key.cert.get(1..).unwrap_or_default();
        let checked = rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            between,
            UnixTime::now(),
            algorithms,
        );
        match checked {
            // A client's certificate, which serves nobody.
            Err(rustls::Error::InvalidCertificate(rustls::CertificateError::InvalidPurpose))
            | Err(rustls::Error::InvalidCertificate(rustls::CertificateError::InvalidPurposeContext { .. })) => Ok(()),
            checked => checked,
        }
    }

    fn client(&self, task: Option<&str>, protocol: Protocol) -> std::result::Result<ClientConfig, rustls::Error> {
        let verifier = ServerVerifier {
            roots: self.roots.clone(),
            algorithms: PROVIDER.signature_verification_algorithms,
            task: task.map(str::to_owned),
            cluster: self.cluster.clone(),
        };
        let mut config = ClientConfig::builder_with_provider(PROVIDER.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(self.key.clone())));
        config.alpn_protocols = vec![protocol.name().to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }
}

/// Returns whether a connection error is about certificates, or about one end that speaks plain text, so that a retry is useless.
pub(crate) fn is_about_certificates(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// The prefix of an error with the alert that the peer sent in place of an answer.
const ALERT: &str = "received fatal alert";

/// Returns the error for a connection that the peer has closed because of the own certificate, if it has.
pub(crate) fn refusal_of(error: &io::Error, peer: &str) -> Option<Status> {
    let text = error.to_string();
    let is_refusal = error.kind() == io::ErrorKind::InvalidData && text.contains(ALERT);
    is_refusal.then(|| {
        Status::new(Code::Unauthenticated, format!("{peer} does not take the certificate of this side: {text}"))
    })
}

fn look_at(files: &TlsFiles) -> Seen {
    [&files.cert, &files.key, &files.ca].map(|path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
    })
}

fn contents(path: &Path) -> Result<Vec<u8>> {
    let failed = |error: io::Error| Status::invalid_argument(format!("can't read {}: {error}", path.display()));
    if std::fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(Status::invalid_argument(format!("{} is too large for certificates", path.display())));
    }
    std::fs::read(path).map_err(failed)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = contents(path)?;
    let read: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let read = read.map_err(|error| unusable(path, "is not in PEM", &error))?;
    match read.is_empty() {
        true => Err(Status::invalid_argument(format!("{} has no certificate in PEM", path.display()))),
        false => Ok(read),
    }
}

fn unusable(path: &Path, what: &str, error: &dyn std::fmt::Display) -> Status {
    Status::invalid_argument(format!("{} {what}: {error}", path.display()))
}

/// Reads the remaining input of a refused peer: otherwise what was sent to it could be lost when its connection closes.
async fn linger(mut stream: TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    let mut buffer = [0; 4096];
    let mut received = 0;
    while received < REFUSED_BYTES_MAX {
        match stream.read(&mut buffer).await? {
            0 => break,
            count => received += count,
        }
    }
    Ok(())
}
