//! Converts a store's errors to TensorFlow's codes.
//!
//! The text of a store's error may quote the request, and with it keys, signatures and tokens. Only the kind of the error, the HTTP
//! status and the store's own code are passed on.

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error as StdError;
use std::io;
use tensor::{Code, Status};

/// The longest error code of a store that is passed on.
const STORE_CODE_BYTES: usize = 64;

/// Returns the error for a failed request about `path`.
pub(super) fn status(path: &str, error: &Error) -> Status {
    let (code, reason) = match error {
        Error::NotFound { source, .. } => match store_code(source.as_ref()) {
            Some(text) if text == "NoSuchBucket" || text == "ContainerNotFound" => {
                (Code::NotFound, "There is no such bucket".to_owned())
            }
            _ => (Code::NotFound, "No such file or directory".to_owned()),
        },
        Error::AlreadyExists { .. } => (Code::AlreadyExists, "File exists".to_owned()),
        Error::Precondition { .. } | Error::NotModified { .. } => {
            (Code::Aborted, "The object was changed meanwhile".to_owned())
        }
        Error::PermissionDenied { source, .. } => {
            (Code::PermissionDenied, with_code("The store refuses it", source.as_ref()))
        }
        Error::Unauthenticated { source, .. } => {
            (Code::Unauthenticated, with_code("The store does not accept the credentials", source.as_ref()))
        }
        Error::NotSupported { .. } | Error::NotImplemented { .. } => {
            (Code::Unimplemented, "The store has no such operation".to_owned())
        }
        Error::InvalidPath { .. } => (Code::InvalidArgument, "Not a name that a store can have".to_owned()),
        Error::UnknownConfigurationKey { key, .. } => {
            (Code::InvalidArgument, format!("The setting {key} is unknown to the store's client"))
        }
        Error::Generic { source, .. } => generic(source.as_ref()),
        _ => (Code::Unknown, "The request to the store failed".to_owned()),
    };
    Status::new(code, format!("{path}; {reason}"))
}

/// Returns the code and the text for an error that the store's client doesn't classify.
fn generic(error: &(dyn StdError + 'static)) -> (Code, String) {
    if let Some(http_status) = http_status(error) {
        let code = match http_status {
            400 | 411 | 414 | 431 => Code::InvalidArgument,
            // A redirect comes from a bucket of another region.
            300..=399 => Code::FailedPrecondition,
            404 | 410 => Code::NotFound,
            405 | 501 => Code::Unimplemented,
            408 | 504 => Code::DeadlineExceeded,
            413 | 507 => Code::ResourceExhausted,
            416 => Code::OutOfRange,
            _ => Code::Unavailable,
        };
        return (code, with_code(&format!("The store answered with HTTP status {http_status}"), error));
    }
    // Without credentials in the environment, the client asks the machine's metadata service for some.
    if error.to_string().contains("//169.254.") {
        return (Code::Unauthenticated, "There are no credentials for the store in the environment".to_owned());
    }
    let transport = chain(error).find_map(|error| error.downcast_ref::<HttpError>()).map(HttpError::kind);
    let system = chain(error)
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .find_map(io::Error::raw_os_error)
        .map(io::Error::from_raw_os_error);
    let system = system.map_or(String::new(), |error| format!(": {error}"));
    match transport {
        Some(HttpErrorKind::Timeout) => (Code::Unavailable, "The store did not answer in time".to_owned()),
        Some(HttpErrorKind::Connect) => (Code::Unavailable, format!("The store can't be reached{system}")),
        Some(_) => (Code::Unavailable, format!("The connection to the store broke{system}")),
        // Errors before the first request: unusable settings or credentials.
        None => (
            Code::FailedPrecondition,
            "The store's client can't be used: check its settings and credentials in the environment".to_owned(),
        ),
    }
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn with_code(reason: &str, error: &(dyn StdError + 'static)) -> String {
    store_code(error).map_or_else(|| reason.to_owned(), |code| format!("{reason} ({code})"))
}

/// Returns the number in `status code: 403 Forbidden`, which only the text contains.
fn http_status(error: &(dyn StdError + 'static)) -> Option<u16> {
    let text = error.to_string();
    let number = &text[text.find("status code: ")? + "status code: ".len()..];
    number.get(..3)?.parse().ok()
}

/// Returns the content of `<Code>…</Code>` in an answer, such as `AccessDenied`.
fn store_code(error: &(dyn StdError + 'static)) -> Option<String> {
    let text = error.to_string();
    let code = &text[text.find("<Code>")? + "<Code>".len()..];
    let code = &code[..code.find("</Code>")?];
    let is_word = !code.is_empty() && code.len() <= STORE_CODE_BYTES && code.bytes().all(|c| c.is_ascii_alphanumeric());
    is_word.then(|| code.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(error: Error, code: Code, text: &str) {
        let status = status("s3://b/x", &error);
        assert_eq!((status.code(), status.message()), (code, text));
    }

    #[test]
    fn codes_and_texts_without_what_was_sent() {
        let body = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code>\
                    <AWSAccessKeyId>AKIASECRET</AWSAccessKeyId></Error>";
        check(
            Error::PermissionDenied { path: "x".into(), source: body.into() },
            Code::PermissionDenied,
            "s3://b/x; The store refuses it (SignatureDoesNotMatch)",
        );
        check(
            Error::Generic { store: "S3", source: body.replace("403", "503").into() },
            Code::Unavailable,
            "s3://b/x; The store answered with HTTP status 503 (SignatureDoesNotMatch)",
        );
        let refused = HttpError::new(HttpErrorKind::Connect, io::Error::from_raw_os_error(111));
        check(
            Error::Generic { store: "S3", source: Box::new(refused) },
            Code::Unavailable,
            "s3://b/x; The store can't be reached: Connection refused (os error 111)",
        );
        check(
            Error::Generic { store: "S3", source: "secret".into() },
            Code::FailedPrecondition,
            "s3://b/x; The store's client can't be used: check its settings and credentials in the environment",
        );
        let missing = |text: &str| Error::NotFound { path: "x".into(), source: text.into() };
        check(missing(""), Code::NotFound, "s3://b/x; No such file or directory");
        check(missing("<Code>NoSuchBucket</Code>"), Code::NotFound, "s3://b/x; There is no such bucket");
        check(missing("<Code>no word</Code>"), Code::NotFound, "s3://b/x; No such file or directory");
    }
}
