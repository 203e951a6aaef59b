//! Pins the layout of frames, so that nobody changes it without incrementing the version, and the first bytes of the last
//! release, so that they continue to be recognised.

use super::decoder::{Decoder, Event, InFrame};
use super::frame::{FrameWriter, HEADER_BYTES, Header, Kind, OutFrame, VERSION, check_preface};
use super::hello::Hello;
use super::messages::{
    read_error, read_recv_part, read_run_graph, write_error, write_progress, write_recv_part, write_reply,
    write_run_graph,
};
use super::{PREFACE, StreamOffer};
use crate::interface::{RunGraphCall, RunGraphReply};
use crate::worker::StepProgress;
use proto::DeviceAttributes;
use std::sync::Arc;
use tensor::{Code, Result, Status, Tensor};

fn hex(frame: Result<OutFrame>) -> String {
    frame.unwrap().pieces.concat().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn push(step_id: i64, tensor: &Tensor, is_dead: bool) -> Result<OutFrame> {
    let mut writer = FrameWriter::new(Kind::Tensor, step_id as u64, [(tensor, is_dead)].into_iter(), &|_| None)?;
    writer.text(b"k");
    writer.finish()
}

const RUN_GRAPH: &str = "020000000100000053000000000000000b00000000000000010000000001020000000000000008000000000000000b00\
     0000000000000c000000000000000700000073657373696f6e0500000067726170680400000066656564010000000000\
     00000500000066657463680000c03f0000c03f";

const ERROR: &str = "040000000000000017000000000000000b000000000000000a00000000000000010000000000000003000000776879";

const RECV_PART: &str = "0f000000000000000d000000000000000b000000000000000c00000000000000010000006b";

/// Reads a kept frame as a peer does.
fn read(frame: &str) -> InFrame {
    let frame = (0..frame.len()).step_by(2).map(|at| u8::from_str_radix(&frame[at..at + 2], 16).unwrap());
    let bytes: Vec<u8> = PREFACE.iter().copied().chain(frame).collect();
    let (mut decoder, mut rest) = (Decoder::new(), bytes.as_slice());
    decoder.greeted();
    loop {
        match decoder.next().unwrap() {
            Some(Event::Frame(frame)) => return frame,
            Some(Event::Preface) => continue,
            None => {}
        }
        let space = decoder.space();
        let count = space.len().min(rest.len());
        assert!(count > 0, "the frame is not all there");
        space[..count].copy_from_slice(&rest[..count]);
        decoder.filled(count);
        rest = &rest[count..];
    }
}

/// If a line here must change, increase `VERSION`.
#[test]
fn frames_of_version_5_stay_as_they_are() {
    assert_eq!((VERSION, PREFACE), (5, b"FERROFL2"));
    let hello = Hello::write(7, true, &[8, 9], "/job:a/task:0", "h:1", "s");
    assert_eq!(
        hex(hello),
        "010000000000000045000000000000000500000000000000070000000000000001000000000000000200000000000000\
         080000000000000009000000000000000d0000002f6a6f623a612f7461736b3a3003000000683a310100000073"
    );
    assert_eq!(
        hex(push(-3, &Tensor::scalar(1.5f32), false)),
        "06000000010000001300000000000000fdffffffffffffff0100000000000400000000000000010000006b0000c03f"
    );
    assert_eq!(
        hex(push(5, &Tensor::vector::<f32>(&[]), true)),
        "06000000010000001b000000000000000500000000000000010000000101000000000000000000000000000000000100\
         00006b"
    );
    let lent = Tensor::scalar(1.5f32);
    let mut writer = FrameWriter::new(Kind::Tensor, 5, [(&lent, false)].into_iter(), &|_| Some((4096, 9))).unwrap();
    writer.text(b"k");
    assert_eq!(
        hex(writer.finish()),
        "06000000010000002300000000000000050000000000000001000000040004000000000000000010000000000000\
         0900000000000000010000006b"
    );
    let call = RunGraphCall {
        session_handle: "session".into(),
        create_worker_session_called: true,
        graph_handle: "graph".into(),
        step_id: 12,
        sends: vec![("feed".into(), Tensor::vector(&[1.5f32, 1.5]))],
        receives: [Arc::<str>::from("fetch")].into(),
        options: proto::ExecutorOpts { record_timeline: true, ..Default::default() },
        is_partial: false,
        is_last_partial_run: false,
        cleans_itself: true,
    };
    assert_eq!(hex(write_run_graph(11, &call, &|_| None)), RUN_GRAPH);
    let reply = RunGraphReply { received: vec![Tensor::scalar(1.5f32)], ..RunGraphReply::default() };
    assert_eq!(
        hex(write_reply(11, Ok(reply), &|_| None)),
        "03000000010000001a000000000000000b00000000000000010000000000040000000000000000000000000000000000\
         00000000c03f"
    );
    assert_eq!(hex(write_error(11, &Status::aborted("why").derived())), ERROR);
    assert_eq!(hex(FrameWriter::plain(Kind::Cancel, 11).finish()), "050000000000000000000000000000000b00000000000000");
    assert_eq!(hex(write_recv_part(11, 12, "k")), RECV_PART);
    let asked = 12u64.to_le_bytes();
    assert_eq!(
        hex(write_progress(2, super::frame::Fields::new(&asked), |_| StepProgress::Over)),
        "0e00000000000000100000000000000002000000000000000c000000000000000200000000000000"
    );
}

#[test]
fn kinds_of_version_5_keep_their_numbers() {
    let kinds = [
        Kind::Hello,
        Kind::RunGraph,
        Kind::RunGraphReply,
        Kind::Error,
        Kind::Cancel,
        Kind::Tensor,
        Kind::Cleanup,
        Kind::Release,
        Kind::Memory,
        Kind::Mapped,
        Kind::Ping,
        Kind::Pong,
        Kind::AskProgress,
        Kind::Progress,
        Kind::RecvPart,
    ];
    let mut frame = FrameWriter::plain(Kind::Ping, 1).finish().unwrap().pieces.concat();
    for number in 0..=u8::MAX {
        frame[0] = number;
        let found = Header::read(&frame).ok().map(|header| header.kind);
        assert_eq!(found, usize::from(number).checked_sub(1).and_then(|index| kinds.get(index).copied()), "{number}");
    }
}

#[test]
fn frames_of_version_5_are_read_as_what_they_say() {
    let call = read_run_graph(&mut read(RUN_GRAPH)).unwrap();
    assert_eq!((&*call.session_handle, &*call.graph_handle, call.step_id), ("session", "graph", 12));
    assert_eq!((&*call.sends[0].0, call.sends[0].1.to_vec::<f32>().unwrap()), ("feed", vec![1.5, 1.5]));
    assert_eq!((call.sends.len(), &*call.receives), (1, &[Arc::<str>::from("fetch")][..]));
    assert!(call.create_worker_session_called && call.options.record_timeline && call.cleans_itself);
    assert!(!call.options.record_costs && !call.options.record_partition_graphs && !call.is_partial);
    let frame = read(ERROR);
    assert_eq!((frame.kind, frame.id), (Kind::Error, 11));
    let status = read_error(frame.fields()).unwrap();
    assert_eq!((status.code(), status.message(), status.is_derived()), (Code::Aborted, "why", true));
    assert_eq!(read_recv_part(read(RECV_PART).fields()).unwrap(), (12, "k".into()));
}

/// The first bytes of the last release, whose streams had version 2, when it opens one.
const LAST_RELEASE: &[u8] = b"FERROFL1\
\x01\0\0\0\0\0\0\0\x31\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\
\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\x0d\0\0\0/job:a/task:0";

#[test]
fn the_last_release_is_told_from_what_is_no_stream() {
    let (preface, hello) = LAST_RELEASE.split_at(PREFACE.len());
    let status = check_preface(preface).unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("another version") && status.message().contains("gRPC"), "{status}");
    assert_eq!(check_preface(b"GET / HT").unwrap_err().code(), Code::InvalidArgument);
    let header = Header::read(&hello[..HEADER_BYTES]).unwrap();
    assert_eq!((header.kind, header.id, header.head_len), (Kind::Hello, 2, hello.len() - HEADER_BYTES));
}

#[test]
fn what_another_release_offers_is_not_taken_and_known_for_what_it_is() {
    let device = |text: &str| DeviceAttributes { physical_device_desc: text.to_owned(), ..DeviceAttributes::default() };
    let offer = StreamOffer { host: "h".to_owned(), unix: "a".to_owned() };
    let own = device(&format!("ferroflow 0.2.0{}", offer.to_text()));
    assert_eq!((StreamOffer::of(&own), StreamOffer::other_version(&own)), (Some(offer), None));
    for (text, version) in [
        ("ferroflow 0.1.0 stream host=h unix=a", Some(1)),
        ("ferroflow 0.1.0 stream3 host=h unix=a", Some(3)),
        ("ferroflow 9.0.0 stream77 host=h unix=a", Some(77)),
        ("ferroflow 0.1.0", None),
        ("streams of another program", None),
        ("another stream host=h unix=a", None),
    ] {
        let device = device(text);
        assert_eq!((StreamOffer::of(&device), StreamOffer::other_version(&device)), (None, version), "{text}");
    }
}
