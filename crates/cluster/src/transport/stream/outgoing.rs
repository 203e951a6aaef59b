//! [`Outgoing`]: the queue of frames for a peer. They are counted, and can be dropped with their step as long as none of their
//! bytes has been written.

use super::frame::{OutFrame, Purpose};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::IoSlice;

/// The overhead of a frame besides its bytes: its place in the queue, and the unused space in its first piece.
const FRAME_BYTES: usize = 640;

/// Frames in the order of sending.
#[derive(Default)]
pub(super) struct Outgoing {
    frames: VecDeque<OutFrame>,
    /// The number of pieces of the first frame that are written.
    pieces_gone: usize,
    /// Whether the first frame is partly written, so that the rest must follow.
    has_begun: bool,
    num_pieces: usize,
    bytes: usize,
}

impl Outgoing {
    /// Adds a frame.
    pub fn push(&mut self, frame: OutFrame) {
        self.count(&frame);
        self.frames.push_back(frame);
    }

    /// Adds a frame before all others, none of which may be partly written.
    pub fn push_first(&mut self, frame: OutFrame) {
        self.count(&frame);
        self.frames.push_front(frame);
    }

    fn count(&mut self, frame: &OutFrame) {
        self.num_pieces += frame.pieces.len();
        self.bytes += bytes_of(frame);
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the number of frames.
    pub fn num_frames(&self) -> usize {
        self.frames.len()
    }

    /// Returns the number of pieces.
    pub fn num_pieces(&self) -> usize {
        self.num_pieces
    }

    /// Returns the size of the queue in bytes, including the overhead of each frame.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the next pieces; their number is the result.
    pub fn show<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pieces = self.frames.iter().flat_map(|frame| &frame.pieces).skip(self.pieces_gone);
        slices.iter_mut().zip(pieces).map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    /// Removes written bytes.
    pub fn written(&mut self, mut count: usize) {
        self.has_begun |= count > 0;
        self.bytes = self.bytes.saturating_sub(count);
        while let Some(frame) = self.frames.front_mut() {
            while let Some(piece) = frame.pieces.get_mut(self.pieces_gone) {
                if piece.len() > count {
                    piece.advance(count);
                    return;
                }
                count -= piece.len();
                // Its memory is freed now, not only when the whole frame is written.
                *piece = Bytes::new();
                self.pieces_gone += 1;
                self.num_pieces -= 1;
            }
            self.pop_written();
            self.has_begun = count > 0;
        }
    }

    fn pop_written(&mut self) {
        self.bytes = self.bytes.saturating_sub(FRAME_BYTES);
        self.pieces_gone = 0;
        self.frames.pop_front();
        if self.frames.is_empty() {
            self.bytes = 0;
        }
    }

    /// Removes the frames that are no longer needed, except one that is partly written.
    pub fn take_out(&mut self, is_over: impl Fn(Purpose) -> bool) -> Vec<OutFrame> {
        let first = usize::from(self.has_begun);
        if !self.frames.iter().skip(first).any(|frame| is_over(frame.purpose)) {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for frame in std::mem::take(&mut self.frames) {
            let is_kept = self.frames.len() < first || !is_over(frame.purpose);
            if is_kept {
                self.frames.push_back(frame);
            } else {
                self.num_pieces -= frame.pieces.len();
                self.bytes = self.bytes.saturating_sub(bytes_of(&frame));
                taken.push(frame);
            }
        }
        taken
    }
}

fn bytes_of(frame: &OutFrame) -> usize {
    frame.pieces.iter().map(Bytes::len).sum::<usize>() + FRAME_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(purpose: Purpose, pieces: &[&'static str]) -> OutFrame {
        let pieces = pieces.iter().map(|piece| Bytes::from_static(piece.as_bytes())).collect();
        OutFrame { pieces, purpose, ..OutFrame::default() }
    }

    fn left(outgoing: &Outgoing) -> String {
        let mut slices = [IoSlice::new(&[]); 16];
        let count = outgoing.show(&mut slices);
        slices[..count].iter().map(|slice| String::from_utf8_lossy(slice).into_owned()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn what_was_written_is_gone_whatever_the_system_took() {
        for step in 1..=13 {
            let mut outgoing = Outgoing::default();
            outgoing.push(frame(Purpose::Step(1), &["abc", "", "de"]));
            outgoing.push_first(frame(Purpose::Connection, &["hello"]));
            outgoing.push(frame(Purpose::Step(2), &["fgh"]));
            assert_eq!((outgoing.num_pieces(), outgoing.bytes()), (5, 13 + 3 * FRAME_BYTES));
            let mut seen = String::new();
            while !outgoing.is_empty() {
                let rest = left(&outgoing).replace('|', "");
                let count = step.min(rest.len());
                seen.push_str(&rest[..count]);
                outgoing.written(count);
            }
            assert_eq!(seen, "helloabcdefgh");
            assert_eq!((outgoing.num_pieces(), outgoing.bytes(), outgoing.num_frames()), (0, 0, 0));
        }
    }

    #[test]
    fn a_step_takes_its_frames_along_but_for_the_one_that_has_begun() {
        let steps = |written: usize| {
            let mut outgoing = Outgoing::default();
            for (step, text) in [(1, "aa"), (2, "bb"), (1, "cc")] {
                outgoing.push(frame(Purpose::Step(step), &[text]));
            }
            outgoing.push(frame(Purpose::Call(7, 1), &["dd"]));
            outgoing.push(frame(Purpose::Connection, &["ee"]));
            outgoing.written(written);
            let taken = outgoing.take_out(|purpose| purpose.is_for_step(1));
            let text = left(&outgoing);
            let rest = text.replace('|', "").len();
            outgoing.written(rest);
            assert_eq!((outgoing.num_pieces(), outgoing.bytes()), (0, 0));
            (taken.len(), text)
        };
        assert_eq!(steps(0), (3, "bb|ee".to_owned()));
        assert_eq!(steps(1), (2, "a|bb|ee".to_owned()));
        assert_eq!(steps(2), (2, "bb|ee".to_owned()));
        assert_eq!(steps(3), (2, "b|ee".to_owned()));
        assert_eq!(steps(5), (1, "c|ee".to_owned()));
    }
}
