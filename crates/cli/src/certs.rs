//! `ferroflow certs`: creates a certificate authority, and issues the certificates of a cluster's tasks and clients.

use crate::Failure;
use clap::Subcommand;
use cluster::ClusterSpec;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};

/// The files of the authority.
const CA_CERT: &str = "ca.pem";
const CA_KEY: &str = "ca.key";

/// The file with the name of the authority's cluster.
const CLUSTER: &str = "cluster";

/// Certificates are valid from a while ago, since the clocks of machines differ.
const BEFORE_NOW: Duration = Duration::hours(1);

#[derive(Subcommand)]
pub enum Command {
    /// Creates an authority: DIR/ca.pem, which every task and client needs, and DIR/ca.key, which must stay private.
    Init {
        /// The directory.
        #[arg(default_value = "certs")]
        dir: PathBuf,
        /// The name of the cluster, which its certificates contain.
        #[arg(long, default_value = "ferroflow", value_parser = name)]
        cluster: String,
        /// The number of days for which the authority is valid.
        #[arg(long, default_value_t = 3650, value_parser = clap::value_parser!(u16).range(1..))]
        days: u16,
    },
    /// Issues the certificate of every task of a cluster, DIR/JOB-INDEX.pem with the key DIR/JOB-INDEX.key, and those of clients.
    Issue {
        /// The directory with the authority.
        #[arg(default_value = "certs")]
        dir: PathBuf,
        /// The parameter servers: host:port,host:port.
        #[arg(long = "ps_hosts", value_name = "HOSTS")]
        ps_hosts: Option<String>,
        /// The workers: host:port,host:port.
        #[arg(long = "worker_hosts", value_name = "HOSTS")]
        worker_hosts: Option<String>,
        /// The chief: host:port.
        #[arg(long = "chief_hosts", value_name = "HOSTS")]
        chief_hosts: Option<String>,
        /// The whole cluster: 'ps|host:port;host:port,worker|host:port'.
        #[arg(long = "cluster_spec", value_name = "SPEC", conflicts_with_all = ["ps_hosts", "worker_hosts", "chief_hosts"])]
        cluster_spec: Option<String>,
        /// In place of hosts: the number of parameter servers on this machine, as `ferroflow train --processes` starts them.
        #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64),
              conflicts_with_all = ["ps_hosts", "worker_hosts", "chief_hosts", "cluster_spec"])]
        ps: u32,
        /// In place of hosts: the number of workers on this machine.
        #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=64),
              conflicts_with_all = ["ps_hosts", "worker_hosts", "chief_hosts", "cluster_spec"])]
        workers: u32,
        /// A client's name; its certificate is DIR/client-NAME.pem.
        #[arg(long = "client", value_name = "NAME", value_parser = name)]
        clients: Vec<String>,
        /// An admin's name; its certificate is DIR/admin-NAME.pem. Admins may also reset a cluster.
        #[arg(long = "admin", value_name = "NAME", value_parser = name)]
        admins: Vec<String>,
        /// The number of days for which the certificates are valid.
        #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u16).range(1..))]
        days: u16,
        /// Replaces existing certificates. Running servers read the new ones automatically.
        #[arg(long)]
        renew: bool,
    },
}

/// Parses a name that can be part of a file name and of a URI.
fn name(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    match !text.is_empty() && text.len() <= 64 && !text.starts_with('.') && text.chars().all(is_good) {
        true => Ok(text.to_owned()),
        false => Err("a name has 1 to 64 lower case letters, digits, '-', '_' and '.'".to_owned()),
    }
}

/// Runs the command.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Init { dir, cluster, days } => init(dir, cluster, *days),
        Command::Issue {
            dir,
            ps_hosts,
            worker_hosts,
            chief_hosts,
            cluster_spec,
            ps,
            workers,
            clients,
            admins,
            days,
            renew,
        } => {
            let cluster = match cluster_spec {
                Some(spec) => ClusterSpec::parse(spec)?,
                None if ps + workers > 0 => local_cluster(*ps, *workers)?,
                None => ClusterSpec::from_hosts(&[("ps", ps_hosts), ("worker", worker_hosts), ("chief", chief_hosts)])?,
            };
            if cluster.is_empty() && clients.is_empty() && admins.is_empty() {
                return Err(Failure::new("no certificate to issue: name a cluster, a --client or an --admin"));
            }
            let authority = Authority::read(dir, *days, *renew)?;
            for (job, index, address) in cluster.tasks() {
                authority.issue(&format!("{job}-{index}"), &format!("job/{job}/task/{index}"), Some(address))?;
            }
            for (role, names) in [("client", clients), ("admin", admins)] {
                for name in names {
                    authority.issue(&format!("{role}-{name}"), &format!("{role}/{name}"), None)?;
                }
            }
            Ok(())
        }
    }
}

/// Returns a cluster on this machine. Certificates don't contain ports.
fn local_cluster(ps: u32, workers: u32) -> Result<ClusterSpec, Failure> {
    let addresses = |count: u32, from: u32| -> Vec<String> {
        (from..from + count).map(|port| format!("127.0.0.1:{}", port + 1)).collect()
    };
    let mut cluster = ClusterSpec::new();
    for (job, addresses) in [("ps", addresses(ps, 0)), ("worker", addresses(workers, ps))] {
        if !addresses.is_empty() {
            cluster = cluster.with_job(job, &addresses)?;
        }
    }
    Ok(cluster)
}

fn init(dir: &Path, cluster: &str, days: u16) -> Result<(), Failure> {
    std::fs::create_dir_all(dir).map_err(|error| Failure::new(format!("can't create {}: {error}", dir.display())))?;
    let key = KeyPair::generate().map_err(cannot_make)?;
    let certificate = authority_params(cluster, days)?.self_signed(&key).map_err(cannot_make)?;
    // The key is written first: if the certificates exist, so does the key.
    write_new(&dir.join(CA_KEY), &key.serialize_pem(), true)?;
    write_new(&dir.join(CA_CERT), &certificate.pem(), false)?;
    write_new(&dir.join(CLUSTER), cluster, false)?;
    crate::say!("the authority of the cluster '{cluster}' is in {}; keep {CA_KEY} to yourself", dir.display());
    Ok(())
}

fn authority_params(cluster: &str, days: u16) -> Result<CertificateParams, Failure> {
    let mut params = params(&format!("Ferroflow authority of {cluster}"), &format!("spiffe://{cluster}"), days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn params(common_name: &str, uri: &str, days: u16) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.subject_alt_names = vec![SanType::URI(uri.try_into().map_err(cannot_make)?)];
    let now = OffsetDateTime::now_utc();
    (params.not_before, params.not_after) = (now - BEFORE_NOW, now + Duration::days(i64::from(days)));
    Ok(params)
}

/// An authority that issues certificates.
struct Authority<'a> {
    dir: &'a Path,
    cluster: String,
    issuer: Issuer<'static, KeyPair>,
    days: u16,
    renew: bool,
}

impl Authority<'_> {
    fn read(dir: &Path, days: u16, renew: bool) -> Result<Authority<'_>, Failure> {
        let read = |file: &str| {
            let path = dir.join(file);
            std::fs::read_to_string(&path).map_err(|error| {
                let path = path.display();
                Failure::new(format!("can't read {path}: {error}; `ferroflow certs init` makes an authority"))
            })
        };
        let cluster = name(read(CLUSTER)?.trim()).map_err(Failure::new)?;
        let key = KeyPair::from_pem(&read(CA_KEY)?)
            .map_err(|error| Failure::new(format!("{} is not a private key: {error}", dir.join(CA_KEY).display())))?;
        read(CA_CERT)?;
        let issuer = Issuer::new(authority_params(&cluster, days)?, key);
        Ok(Authority { dir, cluster, issuer, days, renew })
    }

    /// Issues a certificate with its key; the address is that of a task.
    fn issue(&self, file: &str, path: &str, address: Option<&str>) -> Result<(), Failure> {
        let mut params = params(file, &format!("spiffe://{}/{path}", self.cluster), self.days)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        if let Some(address) = address {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(ip) => SanType::IpAddress(ip),
                Err(_) => SanType::DnsName(host.try_into().map_err(cannot_make)?),
            });
        }
        let key = KeyPair::generate().map_err(cannot_make)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(cannot_make)?;
        let (key_file, cert_file) = (self.dir.join(format!("{file}.key")), self.dir.join(format!("{file}.pem")));
        for (path, text, is_secret) in [(&key_file, key.serialize_pem(), true), (&cert_file, certificate.pem(), false)]
        {
            match self.renew {
                true => replace(path, &text, is_secret)?,
                false => write_new(path, &text, is_secret)?,
            }
        }
        crate::say!("{} for {path}, {} days", cert_file.display(), self.days);
        Ok(())
    }
}

/// Writes a file that must not exist yet.
fn write_new(path: &Path, text: &str, is_secret: bool) -> Result<(), Failure> {
    let mode = if is_secret { 0o600 } else { 0o644 };
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| {
        let path = path.display();
        Failure::new(match error.kind() {
            ErrorKind::AlreadyExists => format!("{path} exists already, and is left unchanged"),
            _ => format!("can't write {path}: {error}"),
        })
    })
}

/// Replaces a file atomically.
fn replace(path: &Path, text: &str, is_secret: bool) -> Result<(), Failure> {
    let new = path.with_extension("new");
    // Left over from a run that was killed.
    let _ = std::fs::remove_file(&new);
    write_new(&new, text, is_secret)?;
    std::fs::rename(&new, path).map_err(|error| Failure::new(format!("can't replace {}: {error}", path.display())))
}

fn cannot_make(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("can't create a certificate: {error}"))
}
