//! Statuses in gRPC's headers and trailers.

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};
use http::{HeaderMap, HeaderName, HeaderValue};
use prost::Message;
use proto::distributed_runtime::GrpcPayloadContainer;
use proto::service::payload::DERIVED_STATUS;
use tensor::{Code, Result, Status};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_STATUS_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// Headers have a bounded size at both ends, so TensorFlow truncates messages to this length, and so do we.
const MESSAGE_BYTES_MAX: usize = 3 << 10;

/// Peers write binary headers with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Adds the status of a call to its trailers.
pub(crate) fn write(outcome: &Result<()>, headers: &mut HeaderMap) {
    let status = match outcome {
        Ok(()) => {
            headers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
            return;
        }
        Err(status) => status,
    };
    headers.insert(GRPC_STATUS, HeaderValue::from(status.code() as i32));
    if let Ok(value) = HeaderValue::from_str(&percent_encode(cut(status.message()))) {
        headers.insert(GRPC_MESSAGE, value);
    }
    if status.is_derived() {
        let payloads = [(DERIVED_STATUS.to_owned(), bytes::Bytes::new())].into();
        let container = GrpcPayloadContainer { payloads }.encode_to_vec();
        if let Ok(value) = HeaderValue::from_str(&BASE64.encode(container)) {
            headers.insert(GRPC_STATUS_DETAILS, value);
        }
    }
}

/// Returns the status in headers or trailers, or `None` if they contain none.
pub(crate) fn read(headers: &HeaderMap) -> Option<Result<()>> {
    let code = headers.get(GRPC_STATUS)?.to_str().ok().and_then(|code| code.parse().ok()).unwrap_or(2i32);
    if code == 0 {
        return Some(Ok(()));
    }
    let message = headers.get(GRPC_MESSAGE).map(|value| percent_decode(value.as_bytes())).unwrap_or_default();
    let status = Status::new(Code::from_i32(code), message);
    let is_derived = headers.get(GRPC_STATUS_DETAILS).is_some_and(|value| is_derived(value.as_bytes()));
    Some(Err(if is_derived { status.derived() } else { status }))
}

fn is_derived(value: &[u8]) -> bool {
    // A leading zero byte means that the message itself follows, which peers may negotiate.
    let decoded = match value.split_first() {
        Some((0, raw)) => raw.to_vec(),
        _ => match BASE64.decode(value).or_else(|_| general_purpose::URL_SAFE_NO_PAD.decode(value)) {
            Ok(decoded) => decoded,
            Err(_) => return false,
        },
    };
    GrpcPayloadContainer::decode(&decoded[..]).is_ok_and(|container| container.payloads.contains_key(DERIVED_STATUS))
}

/// Returns the longest prefix that fits, cut between characters.
fn cut(message: &str) -> &str {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(byte as char),
            _ => {
                encoded.push('%');
                for digit in [byte >> 4, byte & 15] {
                    encoded.push(char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase());
                }
            }
        }
    }
    encoded
}

fn percent_decode(text: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) if byte == b'%' => {
                decoded.push(value);
                rest = &tail[2..];
            }
            _ => {
                decoded.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(outcome: Result<()>) -> Result<()> {
        let mut headers = HeaderMap::new();
        write(&outcome, &mut headers);
        read(&headers).unwrap()
    }

    #[test]
    fn statuses_survive() {
        assert_eq!(round_trip(Ok(())), Ok(()));
        let status = Status::invalid_argument("100% wröng\n\t [[{{node a}}]]");
        assert_eq!(round_trip(Err(status.clone())), Err(status));
        let derived = Status::cancelled("because").derived();
        assert_eq!(round_trip(Err(derived.clone())), Err(derived));
    }

    #[test]
    fn long_messages_are_cut() {
        let status = round_trip(Err(Status::internal("ä".repeat(5000)))).unwrap_err();
        assert_eq!(status.message().len(), MESSAGE_BYTES_MAX);
    }

    #[test]
    fn odd_headers_are_understood() {
        let mut headers = HeaderMap::new();
        assert!(read(&headers).is_none());
        headers.insert(GRPC_STATUS, HeaderValue::from_static("10"));
        headers.insert(GRPC_MESSAGE, HeaderValue::from_static("50% a%2"));
        let mut raw = vec![0];
        raw.extend(GrpcPayloadContainer { payloads: [(DERIVED_STATUS.to_owned(), "".into())].into() }.encode_to_vec());
        headers.insert(GRPC_STATUS_DETAILS, HeaderValue::from_bytes(b"!!!").unwrap());
        assert_eq!(read(&headers), Some(Err(Status::aborted("50% a%2"))));
        assert!(is_derived(&raw));
    }
}
