//! gRPC's health service (`grpc.health.v1`), for load balancers and probes. A server that is stopping says so.

use super::body::Message;
use super::wire::Segments;
use tensor::{Result, Status};

/// The services with a health status, which is that of the whole server; the empty name means the server.
const SERVICES: [&str; 3] = ["", "tensorflow.MasterService", "tensorflow.WorkerService"];

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

/// The question.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

/// The answer.
#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(int32, tag = "1")]
    status: i32,
}

/// Answers a question.
pub(super) fn check(message: Message, is_stopping: bool) -> Result<Segments> {
    let request: HealthCheckRequest = message.decode()?;
    if !SERVICES.contains(&request.service.as_str()) {
        return Err(Status::not_found("there is no such service"));
    }
    let status = if is_stopping { NOT_SERVING } else { SERVING };
    Segments::from_message(&HealthCheckResponse { status }, || "the health of the server".to_owned())
}
