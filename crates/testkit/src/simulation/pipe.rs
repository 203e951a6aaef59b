//! [`Pipe`]: a stream between two simulated processes. Its bytes arrive in order and in any pieces, late or not at all.

use super::scheduler::{Life, Scheduler};
use cluster::GivenStream;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// The most bytes that are in flight or wait to be read.
const BYTES_MAX: usize = 64 << 10;

/// Decides how the bytes are carried.
pub trait Carrier: Send + Sync {
    /// Returns the time that bytes sent now take, and how many of the given number are sent together.
    fn send_bytes(&self, from: Life, to: Life, count: usize) -> (Duration, usize);

    /// Returns how many of the available bytes a read gets.
    fn read_bytes(&self, count: usize) -> usize;

    /// Returns the scheduler.
    fn scheduler(&self) -> &Arc<Scheduler>;
}

/// A stream between two processes.
pub struct Pipe {
    network: Arc<dyn Carrier>,
    lives: [Life; 2],
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The bytes from the first to the second, and back.
    directions: [Direction; 2],
    /// Whether it has ended, and whether because the connection broke.
    over: Option<bool>,
}

#[derive(Default)]
struct Direction {
    arrived: VecDeque<u8>,
    /// The number of bytes in flight.
    under_way: usize,
    /// The arrival of the last of them: none overtakes another.
    last_arrival: Duration,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Direction {
    fn wakers(&mut self) -> [Option<Waker>; 2] {
        [self.reader.take(), self.writer.take()]
    }
}

impl Pipe {
    /// Returns a stream from one process to another.
    pub fn new(network: Arc<dyn Carrier>, from: Life, to: Life) -> Arc<Pipe> {
        Arc::new(Pipe { network, lives: [from, to], state: Mutex::default() })
    }

    /// Returns the processes.
    pub fn lives(&self) -> (Life, Life) {
        (self.lives[0], self.lives[1])
    }

    /// Returns whether it has ended.
    pub fn is_over(&self) -> bool {
        self.state.lock().over.is_some()
    }

    /// Ends it for both processes.
    pub fn end(&self, is_broken: bool) {
        let wakers: Vec<Waker> = {
            let mut state = self.state.lock();
            state.over.get_or_insert(is_broken);
            state.directions.iter_mut().flat_map(Direction::wakers).flatten().collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn arrive(&self, direction: usize, bytes: &[u8]) {
        let reader = {
            let mut state = self.state.lock();
            let direction = &mut state.directions[direction];
            direction.under_way -= bytes.len();
            direction.arrived.extend(bytes);
            direction.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// One end of a stream.
struct End {
    pipe: Arc<Pipe>,
    /// The direction in which it writes; it reads the other one.
    writes: usize,
    peer: String,
}

/// Returns the ends of a stream to a task.
pub fn ends(pipe: &Arc<Pipe>, task: &str) -> (Box<dyn GivenStream>, Box<dyn GivenStream>) {
    let end = |writes: usize, peer: String| Box::new(End { pipe: pipe.clone(), writes, peer });
    (end(0, task.to_owned()), end(1, "a peer that opened a stream".to_owned()))
}

impl GivenStream for End {
    fn try_write(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let (from, to) = (self.pipe.lives[self.writes], self.pipe.lives[1 - self.writes]);
        let room = {
            let state = self.pipe.state.lock();
            if state.over.is_some() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let direction = &state.directions[self.writes];
            BYTES_MAX - direction.under_way - direction.arrived.len()
        };
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).take(room).collect();
        if bytes.is_empty() {
            return Ok(0);
        }
        let (delay, count) = self.pipe.network.send_bytes(from, to, bytes.len());
        bytes.truncate(count);
        let scheduler = self.pipe.network.scheduler();
        let now = scheduler.time();
        let arrival = {
            let mut state = self.pipe.state.lock();
            let direction = &mut state.directions[self.writes];
            direction.under_way += count;
            direction.last_arrival = direction.last_arrival.max(now + delay);
            direction.last_arrival
        };
        let (pipe, direction) = (Arc::downgrade(&self.pipe), self.writes);
        scheduler.run_in_order_after(arrival - now, move || {
            if let Some(pipe) = pipe.upgrade() {
                pipe.arrive(direction, &bytes);
            }
        });
        Ok(count)
    }

    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.pipe.state.lock();
        let is_over = state.over.is_some();
        let direction = &mut state.directions[self.writes];
        if is_over || direction.under_way + direction.arrived.len() < BYTES_MAX {
            return Poll::Ready(());
        }
        direction.writer = Some(context.waker().clone());
        Poll::Pending
    }

    fn poll_read(&self, context: &mut Context<'_>, bytes: &mut [u8]) -> Poll<io::Result<usize>> {
        let (count, writer) = {
            let mut state = self.pipe.state.lock();
            let over = state.over;
            let direction = &mut state.directions[1 - self.writes];
            let available = direction.arrived.len().min(bytes.len());
            if over == Some(true) {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            if available == 0 {
                if over.is_some() {
                    return Poll::Ready(Ok(0));
                }
                direction.reader = Some(context.waker().clone());
                return Poll::Pending;
            }
            let count = self.pipe.network.read_bytes(available);
            direction.arrived.drain(..count).zip(bytes.iter_mut()).for_each(|(byte, place)| *place = byte);
            (count, direction.writer.take())
        };
        if let Some(writer) = writer {
            writer.wake();
        }
        Poll::Ready(Ok(count))
    }

    fn shut_down(&self) {
        self.pipe.end(false);
    }

    fn describe_peer(&self) -> String {
        self.peer.clone()
    }
}

impl Drop for End {
    /// A process that has ended sends nothing; its machine does, and the network decides when.
    fn drop(&mut self) {
        if self.pipe.network.scheduler().is_alive(self.pipe.lives[self.writes]) {
            self.pipe.end(false);
        }
    }
}
