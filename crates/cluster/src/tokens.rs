//! [`Tokens`]: a file with the tokens of clients that can't present a certificate of their own.
//!
//! A token is sent in a session's settings (`ConfigProto.experimental.session_metadata`), which TensorFlow's client passes
//! through unchanged, or in the metadata of any call. Tokens are kept as hashes, so that the time of a look-up reveals nothing
//! about them.

use crate::access::{Principal, Role};
use crate::log_limit::LogLimit;
use foldhash::{HashMap, HashMapExt};
use parking_lot::Mutex;
use proto::ConfigProto;
use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tensor::{Result, Status};

/// The prefix of a token in `session_metadata`. Names without it are the client's own business.
const METADATA_PREFIX: &str = "ferroflow-token:";

/// The prefix of a token in a call's metadata.
const BEARER: &str = "Bearer ";

/// The shortest token; a shorter one could be guessed.
const TOKEN_CHARS_MIN: usize = 16;

/// The largest token file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The interval at which a line says that the file can't be read.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The tokens of a file, which is read again when it changes.
pub(crate) struct Tokens {
    path: PathBuf,
    known: Mutex<Known>,
}

struct Known {
    stamp: Stamp,
    principals: HashMap<[u8; 32], Arc<Principal>>,
}

/// Detects that the file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    inode: u64,
    len: u64,
}

impl Tokens {
    /// Reads the file: lines of a role (`client`, `task` or `admin`), a name and a token.
    pub fn open(path: &Path) -> Result<Tokens> {
        Ok(Tokens { path: path.to_owned(), known: Mutex::new(read(path)?) })
    }

    /// Returns the owner of a token.
    pub fn principal(&self, token: &str) -> Result<Arc<Principal>> {
        static LIMIT: LogLimit = LogLimit::new(LINE_INTERVAL);
        let mut known = self.known.lock();
        if stamp_of(&self.path).ok() != Some(known.stamp) {
            match read(&self.path) {
                Ok(read) => *known = read,
                Err(status) => {
                    if let Some(count) = LIMIT.allow() {
                        let left_out = LogLimit::left_out(count);
                        tracing::warn!("{}; the tokens that were known stay{left_out}", status.message());
                    }
                }
            }
        }
        let found = known.principals.get(&hash(token)).cloned();
        found.ok_or_else(|| Status::unauthenticated("this server doesn't know the token of the call"))
    }
}

/// Removes the token from a session's settings, so that other tasks and the log never see it.
pub(crate) fn take(config: &mut ConfigProto) -> Option<String> {
    let experimental = config.experimental.as_mut()?;
    let token = experimental.session_metadata.as_ref()?.name.strip_prefix(METADATA_PREFIX)?.to_owned();
    experimental.session_metadata = None;
    Some(token)
}

/// Returns the token in the metadata of a call (`authorization: Bearer TOKEN`).
pub(crate) fn of_metadata(value: &[u8]) -> Result<&str> {
    let text = std::str::from_utf8(value).ok().and_then(|text| text.strip_prefix(BEARER));
    text.ok_or_else(|| Status::unauthenticated("the metadata 'authorization' is not 'Bearer TOKEN'"))
}

fn stamp_of(path: &Path) -> std::io::Result<Stamp> {
    let metadata = std::fs::metadata(path)?;
    Ok(Stamp { modified: metadata.modified().ok(), inode: metadata.ino(), len: metadata.len() })
}

fn read(path: &Path) -> Result<Known> {
    let wrong = |why: String| Status::invalid_argument(format!("the tokens in {}: {why}", path.display()));
    let cannot = |error: std::io::Error| wrong(format!("can't be read: {error}"));
    // Taken before the file is read: if it changes in between, it is read again.
    let stamp = stamp_of(path).map_err(cannot)?;
    if stamp.len > FILE_BYTES_MAX {
        return Err(wrong(format!("the file has more than {FILE_BYTES_MAX} bytes")));
    }
    let mode = std::fs::metadata(path).map_err(cannot)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(wrong(format!("other users may use the file (mode {mode:03o}); `chmod 600` keeps it from them")));
    }
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    let mut principals = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (principal, token) = parse(line).map_err(|why| wrong(format!("line {}: {why}", index + 1)))?;
        if principals.insert(hash(token), Arc::new(principal)).is_some() {
            return Err(wrong(format!("line {}: the token stands above already", index + 1)));
        }
    }
    Ok(Known { stamp, principals })
}

/// Parses a line. Errors don't contain the token.
fn parse(line: &str) -> std::result::Result<(Principal, &str), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [role, name, token] = words[..] else {
        return Err(format!("it has {} words, not a role, a name and a token", words.len()));
    };
    let role_of = match role {
        "client" => Role::Client,
        "task" => Role::Task,
        "admin" => Role::Admin,
        _ => return Err(format!("'{role}' is none of client, task and admin")),
    };
    if token.chars().count() < TOKEN_CHARS_MIN {
        return Err(format!("a token has at least {TOKEN_CHARS_MIN} characters"));
    }
    Ok((Principal { role: role_of, name: format!("token of {role} {name}") }, token))
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tensor::Code;

    const ANN: &str = "0123456789abcdef";
    const ROOT: &str = "fedcba9876543210";

    fn file(directory: &tempfile::TempDir, text: &str, mode: u32) -> PathBuf {
        let (new, path) = (directory.path().join("new"), directory.path().join("tokens"));
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(new, &path).unwrap();
        path
    }

    #[test]
    fn a_file_says_whose_tokens_there_are_also_after_it_has_changed() {
        let directory = tempfile::tempdir().unwrap();
        let path = file(&directory, &format!("# people\nclient ann {ANN}\n\n  admin root\t{ROOT}\n"), 0o600);
        let tokens = Tokens::open(&path).unwrap();
        let ann = tokens.principal(ANN).unwrap();
        assert_eq!((ann.role, ann.name.as_str()), (Role::Client, "token of client ann"));
        assert_eq!(tokens.principal(ROOT).unwrap().role, Role::Admin);
        let status = tokens.principal("0123456789abcdeF").unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
        assert!(!status.message().contains("0123"), "{status}");
        file(&directory, &format!("task ps {ROOT}\n"), 0o600);
        assert_eq!(tokens.principal(ROOT).unwrap().role, Role::Task);
        assert!(tokens.principal(ANN).is_err(), "a token that was taken out");
        file(&directory, "nonsense", 0o600);
        assert_eq!(tokens.principal(ROOT).unwrap().role, Role::Task, "a file that is wrong changes nothing");
    }

    #[test]
    fn files_that_are_wrong_are_refused_without_showing_a_token() {
        let directory = tempfile::tempdir().unwrap();
        for (text, mode, why) in [
            (format!("client ann {ANN}"), 0o640, "chmod 600"),
            (format!("guest ann {ANN}"), 0o600, "line 1: 'guest' is none of"),
            (format!("\nclient {ANN}"), 0o600, "line 2: it has 2 words"),
            ("client ann short".to_owned(), 0o600, "at least 16 characters"),
            (format!("client ann {ANN}\nadmin root {ANN}"), 0o600, "line 2: the token stands above already"),
        ] {
            let status = Tokens::open(&file(&directory, &text, mode)).err().unwrap();
            assert!(status.message().contains(why) && !status.message().contains(ANN), "{status}");
        }
        assert!(Tokens::open(Path::new("/no/such/file")).is_err());
    }

    #[test]
    fn a_token_is_taken_out_of_the_settings_and_other_names_stay() {
        let with = |name: &str| {
            let session_metadata = Some(proto::SessionMetadata { name: name.to_owned(), version: 1 });
            let experimental = proto::config_proto::Experimental { session_metadata, ..Default::default() };
            ConfigProto { experimental: Some(experimental), ..Default::default() }
        };
        let mut config = with("ferroflow-token:abc");
        assert_eq!(take(&mut config).as_deref(), Some("abc"));
        assert!(config.experimental.unwrap().session_metadata.is_none());
        let mut own = with("model");
        assert_eq!(take(&mut own), None);
        assert_eq!(own, with("model"));
        assert_eq!(of_metadata(b"Bearer abc").unwrap(), "abc");
        assert!(of_metadata(b"Basic abc").is_err() && of_metadata(&[0xff]).is_err());
    }
}
