//! Tests of one connection: what is sent when, and what ends with it.

use super::super::frame::{HEADER_BYTES, Header};
use super::*;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;

/// A block of the peer's memory, which is released when it is dropped.
struct Borrowed(Arc<Connection>, u64);

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        b"borrowed"
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.0.releases.add(self.1);
    }
}

fn frame(connection: &Arc<Connection>, token: u64) -> OutFrame {
    let pieces = [Bytes::from_owner(Borrowed(connection.clone(), token))].into_iter().collect();
    OutFrame { pieces, ..OutFrame::default() }
}

/// Runs something on its own thread; if it deadlocks, the test fails instead of hanging.
fn must_end(what: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        what();
        let _ = sender.send(());
    });
    receiver.recv_timeout(Duration::from_secs(60)).expect("it waits for itself, or has failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_may_be_given_back_while_the_frame_that_held_it_is_written() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let connection = Arc::new(Connection::connecting("peer"));
    // Without a socket it is queued; it is sent when there is one.
    connection.send(frame(&connection, 1)).unwrap();
    let to_open = connection.clone();
    let runtime = tokio::runtime::Handle::current();
    must_end(move || {
        let _runtime = runtime.enter();
        to_open.up(Arc::new(Socket::unix(ours).unwrap()), OutFrame::default());
        to_open.send(frame(&to_open, 2)).unwrap();
    });
    assert_eq!(connection.releases.noted(), [2], "the first one went along with the second frame");
    drop(theirs);
}

#[tokio::test]
async fn pushed_tensors_leave_together() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let connection = Connection::connecting("peer");
    connection.up(Arc::new(Socket::unix(ours).unwrap()), OutFrame::default());
    let mut bytes = vec![0; 1 << 20];
    let mut read = || match (&theirs).read(&mut bytes) {
        Ok(count) => bytes[..count].windows(3).filter(|part| part == b"key").count(),
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            0
        }
    };
    let (small, large) = (Tensor::scalar(1f32), Tensor::vector(&[1f32; 10_000]));
    connection.push(1, "key a", &small, false).unwrap();
    connection.push(1, "key b", &small, false).unwrap();
    assert_eq!(read(), 0);
    connection.flush_pushes();
    assert_eq!(read(), 2);
    connection.push(1, "key c", &small, false).unwrap();
    connection.push(1, "key d", &large, false).unwrap();
    assert_eq!(read(), 2, "a large one does not wait");
    connection.push(1, "key e", &small, false).unwrap();
    connection.cleanup(1).unwrap();
    assert_eq!(read(), 1, "another frame takes it along");
    for _ in 0..PUSHED_PIECES_MAX {
        connection.push(1, "key f", &small, false).unwrap();
    }
    assert!(read() > 0, "many do not wait");
}

#[test]
fn memory_may_be_given_back_when_the_connection_breaks() {
    let connection = Arc::new(Connection::connecting("peer"));
    connection.send(frame(&connection, 1)).unwrap();
    let to_break = connection.clone();
    must_end(move || to_break.broken(&Status::new(Code::Unavailable, "the peer is gone")));
    assert_eq!(connection.releases.noted(), [1]);
}

#[tokio::test]
async fn memory_is_given_back_without_another_frame() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (connection, theirs) = (Connection::connecting("peer"), Socket::unix(theirs).unwrap());
    connection.up(Arc::new(Socket::unix(ours).unwrap()), OutFrame::default());
    connection.releases.add(7);
    let mut bytes = [0; 64];
    let count = tokio::select! {
        count = theirs.read(&mut bytes) => count.unwrap(),
        never = connection.give_back() => match never {},
    };
    let header = Header::read(&bytes[..HEADER_BYTES]).unwrap();
    assert!(header.kind == Kind::Release && count == HEADER_BYTES + header.head_len);
    assert_eq!(Fields::new(&bytes[HEADER_BYTES..count]).u64().unwrap(), 7);
}

#[tokio::test]
async fn what_a_socket_does_not_take_at_once_goes_out_as_the_peer_reads() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (ours, theirs) = (Arc::new(Socket::unix(ours).unwrap()), Socket::unix(theirs).unwrap());
    let connection = Connection::connecting("peer");
    connection.up(ours.clone(), OutFrame::default());
    let sent: Vec<u8> = (0..8 << 20).map(|index: usize| (index % 251) as u8).collect();
    let pieces = [sent.clone().into()].into_iter().collect();
    connection.send(OutFrame { pieces, ..OutFrame::default() }).unwrap();
    assert!(!connection.outgoing.lock().queue.is_empty(), "it went out at once");
    let reading = async {
        let mut received = vec![0; sent.len()];
        let mut filled = 0;
        while filled < received.len() {
            filled += theirs.read(&mut received[filled..]).await.unwrap();
        }
        received
    };
    let received = tokio::select! {
        received = reading => received,
        ended = connection.write_the_rest(&ours) => panic!("{ended:?}"),
    };
    assert!(received == sent);
}
