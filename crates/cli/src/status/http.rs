//! The part of HTTP/1.1 that the status port needs: one request without a body per connection, and one answer.
//!
//! `httparse` parses the head. A server library would support what this port must not have: requests with bodies, persistent
//! connections, and upgrades, all of which would need bounds.

use super::answer::{Site, answer};
use super::message::{Answer, Body, Head};
use cluster::{ConnectionGate, LogLimit, PeerPolicy, TaskStatus};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The most connections at a time; others wait to be accepted.
const CONNECTIONS_MAX: usize = 64;

/// The most connections of open pages, which receive every change.
const PAGES_MAX: usize = 32;

/// How long a request's head may take to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may go without reading its answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a page receives changes on one connection; then the browser opens another.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(600);

/// The interval at which an open page gets the cluster's state.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// The largest head in bytes, and the most fields in it.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;

/// How long to receive further input after an answer, so that the client reads the answer rather than an error.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// The number of bytes of an answer that are written at once.
const PIECE_BYTES: usize = 64 << 10;

/// The pause after an error in accepting connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The interval at which errors of connections are logged.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Serves connections until the runtime ends.
pub(super) async fn serve(listener: TcpListener, policy: PeerPolicy, bound: SocketAddr, tasks: Vec<TaskStatus>) {
    let gate = Arc::new(ConnectionGate::new(policy, bound));
    let site = Arc::new(Site { tasks, bound, pages: Arc::new(Semaphore::new(PAGES_MAX)) });
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                complain(&format!("can't accept a connection to the status port: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (gate, site) = (gate.clone(), site.clone());
        tokio::spawn(async move {
            let _place = place;
            let own = stream.local_addr().unwrap_or(site.bound);
            match gate.check(peer, own).await {
                Ok(()) => serve_connection(stream, &site).await,
                Err(status) => {
                    complain(&format!("a connection to the status port from {peer} is refused: {}", status.message()))
                }
            }
        });
    }
}

async fn serve_connection(mut stream: TcpStream, site: &Site) {
    let answer = match timeout(HEAD_TIMEOUT, receive(&mut stream)).await {
        Ok(Ok(head)) => answer(site, &head).await,
        Ok(Err(Some(refusal))) => refusal,
        // The client disconnected, or sent nothing.
        Ok(Err(None)) | Err(_) => return,
    };
    if send(&mut stream, answer).await.is_some() && stream.shutdown().await.is_ok() {
        let mut rest = [0; 1024];
        let discard = async { while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
        let _ = timeout(LINGER_TIMEOUT, discard).await;
    }
}

/// Receives the head of a request. An error is the answer to send, if the client is still connected.
async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> Result<Head, Option<Answer>> {
    let mut buffer = Vec::with_capacity(1024);
    loop {
        let mut piece = [0; 1024];
        let count = stream.read(&mut piece).await.map_err(|_| None)?;
        if count == 0 {
            return Err(None);
        }
        buffer.extend_from_slice(&piece[..count]);
        match parse(&buffer) {
            Ok(Some(head)) => return Ok(head),
            Ok(None) if buffer.len() < HEAD_BYTES_MAX => {}
            Ok(None) => return Err(Some(Answer::text(431, format!("a head is at most {HEAD_BYTES_MAX} bytes\n")))),
            Err(refusal) => return Err(Some(refusal)),
        }
    }
}

/// Parses a head; `None` if it is incomplete.
fn parse(buffer: &[u8]) -> Result<Option<Head>, Answer> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(buffer) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Answer::text(431, format!("a head has at most {HEADERS_MAX} fields\n")));
        }
        Err(error) => return Err(Answer::text(400, format!("not a request: {error}\n"))),
    }
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut head =
        Head { method: request.method.unwrap_or_default().to_owned(), path: path.to_owned(), ..Head::default() };
    query.clone_into(&mut head.query);
    for field in request.headers.iter() {
        let value =
            std::str::from_utf8(field.value).map_err(|_| Answer::text(400, "a header is not text\n".to_owned()))?;
        head.fields.push((field.name.to_ascii_lowercase(), value.to_owned()));
    }
    Ok(Some(head))
}

/// Sends an answer; `None` if the client doesn't read it any more.
async fn send(stream: &mut TcpStream, answer: Answer) -> Option<()> {
    let mut head = format!("HTTP/1.1 {} {}\r\nconnection: close\r\n", answer.status, reason(answer.status));
    for (name, value) in &answer.fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match answer.body {
        Body::Text(text) => {
            head.push_str(&format!("content-length: {}\r\n\r\n", text.len()));
            write(stream, head.as_bytes()).await?;
            if !answer.is_for_head {
                write(stream, text.as_bytes()).await?;
            }
            Some(())
        }
        Body::Events(task, _place) => {
            head.push_str("\r\n");
            write(stream, head.as_bytes()).await?;
            // Its duration is bounded, and so is each write: the next state is requested only after this one was sent.
            let tell = async {
                let mut ticks = tokio::time::interval(EVENT_INTERVAL);
                ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    let state = task.cluster().await;
                    // JSON contains no line breaks, which would end an event.
                    write(stream, b"data: ").await?;
                    write(stream, state.as_bytes()).await?;
                    write(stream, b"\n\n").await?;
                }
            };
            timeout(EVENTS_TIMEOUT, tell).await.unwrap_or(Some(()))
        }
    }
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> Option<()> {
    for piece in bytes.chunks(PIECE_BYTES) {
        timeout(WRITE_TIMEOUT, stream.write_all(piece)).await.ok()?.ok()?;
    }
    Some(())
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    }
}

fn complain(what: &str) {
    static LINES: LogLimit = LogLimit::new(LINE_INTERVAL);
    if let Some(count) = LINES.allow() {
        tracing::warn!(target: "ferroflow", "{what}{}", LogLimit::left_out(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(bytes: &[u8]) -> Option<u16> {
        parse(bytes).map_or_else(|refusal| Some(refusal.status), |head| head.map(|_| 200))
    }

    #[test]
    fn heads_are_read_and_refused() {
        let head = parse(b"GET /graph?task=a&session=1 HTTP/1.1\r\nHost: x\r\nX-Y: z\r\n\r\n").ok().flatten().unwrap();
        assert_eq!(
            (head.method.as_str(), head.path.as_str(), head.query.as_str()),
            ("GET", "/graph", "task=a&session=1")
        );
        assert_eq!((head.field("host"), head.field("x-y"), head.field("none")), (Some("x"), Some("z"), None));
        assert_eq!(status_of(b"GET / HTTP/1.1\r\nHost: x\r\n"), None);
        assert_eq!(status_of(b"\x16\x03\x01\x02\x00"), Some(400));
        assert_eq!(status_of(b"GET / HTTP/1.1\r\nX: \xff\r\n\r\n"), Some(400));
        assert_eq!(
            status_of(format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(HEADERS_MAX + 1)).as_bytes()),
            Some(431)
        );
    }

    #[tokio::test]
    async fn a_head_without_end_is_refused() {
        let long = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(2 * HEAD_BYTES_MAX));
        let refused = receive(&mut long.as_bytes()).await;
        assert_eq!(refused.err().flatten().map(|refusal| refusal.status), Some(431));
    }
}
