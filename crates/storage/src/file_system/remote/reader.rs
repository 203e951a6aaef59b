//! Reading an object in ranges. For sequential reads, the next range is fetched while the last one is still in use.

use super::Object;
use super::runtime::{self, Pending};
use crate::file_system::RandomAccessFile;
use bytes::Bytes;
use object_store::{GetOptions, GetRange};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tensor::Result;

/// The largest range of one request, and the most that is read ahead. A file keeps at most two such ranges.
const RANGE_BYTES: u64 = 8 << 20;

/// The smallest range of one request: a smaller answer takes as long.
const LEAST_BYTES: u64 = 128 << 10;

/// An object that is open for reading. If the store identifies versions of objects, all ranges are of the same version, until a read
/// at its end: the version at that time continues it.
pub(super) struct ObjectFile {
    object: Object,
    /// Whether the length is the store's last answer, and has not been requested since.
    is_fresh: AtomicBool,
    state: Mutex<State>,
}

struct State {
    length: u64,
    version: Option<String>,
    /// The range that was read last.
    current: Option<Piece>,
    /// The following range, which is being fetched.
    next: Option<(Range<u64>, Pending<Bytes>)>,
    /// Where the last read ended, and how much to fetch from there if the next one continues it.
    end: u64,
    ahead: u64,
}

struct Piece {
    start: u64,
    bytes: Bytes,
}

impl ObjectFile {
    /// Opens an object, which must exist.
    pub(super) fn open(object: Object) -> Result<ObjectFile> {
        let meta = object.head()?;
        let state =
            State { length: meta.size, version: meta.e_tag, current: None, next: None, end: 0, ahead: LEAST_BYTES };
        Ok(ObjectFile { object, is_fresh: AtomicBool::new(true), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests the length and the version from the store, and returns the length.
    fn refresh(&self) -> Result<u64> {
        let meta = self.object.head()?;
        let mut state = self.state();
        if meta.size != state.length || meta.e_tag != state.version {
            (state.length, state.version) = (meta.size, meta.e_tag);
            (state.current, state.next) = (None, None);
        }
        Ok(state.length)
    }

    fn start(&self, version: Option<String>, range: Range<u64>) -> Result<Pending<Bytes>> {
        let (store, key) = (self.object.store.clone(), self.object.key.clone());
        runtime::start(&self.object.path, async move {
            let options =
                GetOptions { range: Some(GetRange::Bounded(range)), if_match: version, ..GetOptions::default() };
            store.get_opts(&key, options).await?.bytes().await
        })
    }

    /// Returns between one and `wanted` bytes from `offset` on, where the object must have some.
    fn piece(&self, offset: u64, wanted: u64) -> Result<Option<Piece>> {
        // A read at the end waits for the object to grow.
        if offset >= self.state().length && offset >= self.refresh()? {
            return Ok(None);
        }
        let mut state = self.state();
        // Another thread may have found the object shorter in the meantime.
        if offset >= state.length {
            return Ok(None);
        }
        if let Some(piece) = &state.current
            && let Some(bytes) = piece.bytes_from(offset)
        {
            return Ok(Some(Piece { start: offset, bytes }));
        }
        // Sequential reads use ever larger ranges.
        let follows = offset == state.end;
        state.ahead = if follows { (state.ahead * 2).min(RANGE_BYTES) } else { LEAST_BYTES };
        let (range, pending) = match state.next.take() {
            Some((range, pending)) if range.contains(&offset) => (range, pending),
            _ => {
                let length = wanted.clamp(state.ahead, RANGE_BYTES);
                let range = offset..state.length.min(offset.saturating_add(length));
                (range.clone(), self.start(state.version.clone(), range)?)
            }
        };
        if follows && range.end < state.length {
            let next = range.end..state.length.min(range.end + state.ahead);
            state.next = Some((next.clone(), self.start(state.version.clone(), next)?));
        }
        drop(state);
        let bytes = pending.wait()?;
        let piece = Piece { start: range.start, bytes };
        let found = piece.bytes_from(offset);
        self.state().current = Some(piece);
        Ok(found.map(|bytes| Piece { start: offset, bytes }))
    }
}

impl Piece {
    /// Returns the bytes from `offset` on, if this range contains it.
    fn bytes_from(&self, offset: u64) -> Option<Bytes> {
        let skipped = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        (skipped < self.bytes.len()).then(|| self.bytes.slice(skipped..))
    }
}

impl RandomAccessFile for ObjectFile {
    fn length(&self) -> Result<u64> {
        // The first request for the length follows the opening; a later one waits for the object to grow.
        if self.is_fresh.swap(false, Ordering::Relaxed) {
            return Ok(self.state().length);
        }
        self.refresh()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let Some(position) = offset.checked_add(filled as u64) else { break };
            let Some(piece) = self.piece(position, (buffer.len() - filled) as u64)? else { break };
            let count = piece.bytes.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&piece.bytes[..count]);
            filled += count;
            self.state().end = offset.saturating_add(filled as u64);
        }
        Ok(filled)
    }
}
