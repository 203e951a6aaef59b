//! Streams from outside: a peer that connects like one of our tasks, with or without a greeting, and then sends arbitrary bytes.
//! The frames are written here independently of the code under test, after the description in
//! `cluster/src/transport/stream/frame.rs`.

use super::server::Served;
use super::{Outcome, Target, summary};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// The time within which the server must close a stream that its peer has closed.
const END_TIME_MAX: Duration = Duration::from_secs(30);

const PREFACE: &[u8] = b"FERROFL2";
const VERSION: u64 = 4;

const HELLO: u8 = 1;
const RUN_GRAPH: u8 = 2;
const RUN_GRAPH_REPLY: u8 = 3;
const ERROR: u8 = 4;
const CANCEL: u8 = 5;
const TENSOR: u8 = 6;
const CLEANUP: u8 = 7;
const RELEASE: u8 = 8;
const MAPPED: u8 = 10;
const PING: u8 = 11;
const ASK_PROGRESS: u8 = 13;
const PROGRESS: u8 = 14;

const HEADER_BYTES: usize = 24;

fn frame(kind: u8, id: u64, num_tensors: u32, head: &[u8], contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 0];
    bytes.extend_from_slice(&num_tensors.to_le_bytes());
    bytes.extend_from_slice(&(head.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&id.to_le_bytes());
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(contents);
    bytes
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn hello(task: &str) -> Vec<u8> {
    let head = [numbers(&[0, 0, 1, 0x1234]), text(task), text("localhost:1"), text("")].concat();
    [PREFACE, &frame(HELLO, VERSION, 0, &head, &[])].concat()
}

/// Returns a vector of two floats as its header and its contents.
fn vector() -> (Vec<u8>, Vec<u8>) {
    let mut head = 1u32.to_le_bytes().to_vec();
    head.extend_from_slice(&[0, 1]);
    head.extend_from_slice(&numbers(&[2, 8]));
    (head, [1.5f32.to_le_bytes(), 2.5f32.to_le_bytes()].concat())
}

/// Streams.
pub struct Streams(Served);

impl Streams {
    /// Starts a server.
    pub fn new() -> Streams {
        Streams(Served::start())
    }

    fn said(&self, input: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.0.address())?;
        stream.set_read_timeout(Some(END_TIME_MAX))?;
        stream.set_write_timeout(Some(END_TIME_MAX))?;
        // The server may close the stream while it is being written.
        let _ = stream.write_all(input).and_then(|()| stream.shutdown(Shutdown::Write));
        let mut said = Vec::new();
        match stream.read_to_end(&mut said) {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(said),
            outcome => outcome.map(|_| said),
        }
    }
}

impl Target for Streams {
    fn seeds(&self) -> Vec<Vec<u8>> {
        let (_, graph_handle) = self.0.signs();
        let (head, contents) = vector();
        let run = |feeds: bool| {
            let mut fields = numbers(&[1, 5]);
            fields.extend([text("outside"), text(&graph_handle)].concat());
            match feeds {
                true => {
                    fields.extend([text("feed"), numbers(&[1]), text("fetch")].concat());
                    frame(RUN_GRAPH, 9, 1, &[head.clone(), fields].concat(), &contents)
                }
                false => {
                    fields.extend(numbers(&[0]));
                    frame(RUN_GRAPH, 9, 0, &fields, &[])
                }
            }
        };
        let key = "/job:localhost/replica:0/task:0/device:CPU:0;1;/job:localhost/replica:0/task:0/device:CPU:0;e;0:0";
        let frames = [
            run(false),
            run(true),
            frame(RUN_GRAPH_REPLY, 9, 1, &[head.clone(), text(""), numbers(&[0])].concat(), &contents),
            frame(ERROR, 9, 0, &[numbers(&[10, 1]), text("why")].concat(), &[]),
            frame(CANCEL, 9, 0, &[], &[]),
            frame(TENSOR, 5, 1, &[head.clone(), text(key)].concat(), &contents),
            frame(CLEANUP, 5, 0, &[], &[]),
            frame(RELEASE, 0, 0, &numbers(&[1, 2]), &[]),
            frame(MAPPED, 0, 0, &[], &[]),
            frame(PING, 0, 0, &[], &[]),
            frame(ASK_PROGRESS, 3, 0, &numbers(&[5, 6]), &[]),
            frame(PROGRESS, 3, 0, &numbers(&[5, 2]), &[]),
        ];
        let greeting = hello("/job:localhost/replica:0/task:7");
        let mut seeds = vec![greeting.clone(), hello("/job:localhost/replica:0/task:0")];
        seeds.extend(frames.iter().map(|frame| [&greeting[..], frame].concat()));
        seeds.push([&greeting[..], &frames.concat()].concat());
        seeds
    }

    fn take(&mut self, input: &[u8]) -> Outcome {
        if let Some(unwell) = self.0.count() {
            return unwell;
        }
        // Anything else is HTTP/2, which is a separate target.
        let mut input = self.0.with_handles(input);
        match input.first_mut() {
            Some(first) => *first = PREFACE[0],
            None => return Outcome::accepted("nothing"),
        }
        match self.said(&input) {
            Ok(said) => heard(&said),
            Err(error) => Outcome::found(format!("a stream that its peer has ended is not ended: {error}")),
        }
    }
}

/// Reads the server's response: the kinds of its frames, and its errors.
fn heard(said: &[u8]) -> Outcome {
    let Some(mut rest) = said.strip_prefix(PREFACE) else { return refused(format!("{} bytes", said.len().min(16))) };
    let mut told = String::new();
    let (mut is_greeted, mut finding) = (false, None);
    while let Some((header, after)) = rest.split_at_checked(HEADER_BYTES) {
        let number = |range: std::ops::Range<usize>| {
            header[range].iter().rev().fold(0, |all, &byte| all << 8 | usize::from(byte))
        };
        let (kind, num_tensors) = (header[0], number(4..8));
        let Some((head, after)) = after.split_at_checked(number(8..12)) else { break };
        is_greeted |= kind == HELLO;
        if told.len() < 200 {
            told.push_str(&format!(" {kind}"));
        }
        if kind == ERROR {
            let message = String::from_utf8_lossy(head.get(20..).unwrap_or_default()).into_owned();
            if head.first() == Some(&13) {
                finding = Some(message.replace('\n', " "));
            }
            told.push_str(&format!(" {:?} {}", head.first(), summary(&message)));
        }
        if num_tensors > 0 {
            // Such a frame is followed by contents, so the frames after it are not read.
            break;
        }
        rest = after;
    }
    Outcome { is_accepted: is_greeted, text: told, finding }
}

fn refused(text: String) -> Outcome {
    Outcome { is_accepted: false, text, finding: None }
}
