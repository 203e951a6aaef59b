//! Sends a server's answers over HTTP/2.

use super::wire::Segments;
use super::{body, status};
use bytes::Bytes;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use tensor::{Result, Status};
use tracing::debug;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Sends an answer.
pub(super) fn respond_with(respond: &mut SendResponse<Bytes>, segments: Segments) -> Result<(), h2::Error> {
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    let mut stream = respond.send_response(response, false)?;
    body::send(&mut stream, segments, false)?;
    let mut trailers = HeaderMap::with_capacity(1);
    status::write(&Ok(()), &mut trailers);
    stream.send_trailers(trailers)
}

/// Answers with an error.
pub(super) fn respond_with_error(respond: &mut SendResponse<Bytes>, error: Status) {
    let mut response = Response::new(());
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    status::write(&Err(error), response.headers_mut());
    if let Err(error) = respond.send_response(response, true) {
        debug!("an error could not be sent: {error}");
    }
}
