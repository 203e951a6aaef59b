//! One block of a table: building it, and walking through it.

use crate::coding::{put_varint, take_varint_u32, u32_at};
use tensor::{Result, Status};

/// Gathers the entries of one block.
pub(super) struct BlockBuilder {
    buffer: Vec<u8>,
    restarts: Vec<u32>,
    entries_since_restart: usize,
    restart_interval: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    pub(super) fn new(restart_interval: usize) -> BlockBuilder {
        BlockBuilder {
            buffer: Vec::new(),
            restarts: vec![0],
            entries_since_restart: 0,
            restart_interval: restart_interval.max(1),
            last_key: Vec::new(),
        }
    }

    /// Appends an entry; keys come in increasing order.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let too_large = || Status::invalid_argument("a table's entries and blocks must be below 4 GiB");
        let shared = if self.entries_since_restart < self.restart_interval {
            self.last_key.iter().zip(key).take_while(|(a, b)| a == b).count()
        } else {
            self.restarts.push(u32::try_from(self.buffer.len()).map_err(|_| too_large())?);
            self.entries_since_restart = 0;
            0
        };
        if u32::try_from(key.len()).is_err() || u32::try_from(value.len()).is_err() {
            return Err(too_large());
        }
        put_varint(&mut self.buffer, shared as u64);
        put_varint(&mut self.buffer, (key.len() - shared) as u64);
        put_varint(&mut self.buffer, value.len() as u64);
        self.buffer.extend_from_slice(&key[shared..]);
        self.buffer.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.entries_since_restart += 1;
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the size that the block will have.
    pub(super) fn size(&self) -> usize {
        self.buffer.len() + self.restarts.len() * 4 + 4
    }

    /// Returns the block's bytes and starts over.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let mut block = std::mem::take(&mut self.buffer);
        for restart in &self.restarts {
            block.extend_from_slice(&restart.to_le_bytes());
        }
        block.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        self.restarts = vec![0];
        self.entries_since_restart = 0;
        self.last_key.clear();
        block
    }
}

/// The bytes of one block, with its restarts found.
pub(super) struct Block {
    data: Vec<u8>,
    /// Where the entries end and the restarts begin.
    restarts_offset: usize,
    restart_count: usize,
}

impl Block {
    pub(super) fn new(data: Vec<u8>) -> Result<Block> {
        let bad = || Status::data_loss("bad block contents");
        let restarts_end = data.len().checked_sub(4).ok_or_else(bad)?;
        let restart_count = u32_at(&data, restarts_end).ok_or_else(bad)? as usize;
        let restarts_offset =
            restart_count.checked_mul(4).and_then(|bytes| restarts_end.checked_sub(bytes)).ok_or_else(bad)?;
        Ok(Block { data, restarts_offset, restart_count })
    }

    fn restart(&self, index: usize) -> Result<usize> {
        u32_at(&self.data, self.restarts_offset + index * 4)
            .map(|offset| offset as usize)
            .filter(|&offset| offset <= self.restarts_offset)
            .ok_or_else(bad_entry)
    }

    /// Decodes the entry at `offset`, or returns `None` behind the last.
    fn entry_at(&self, offset: usize) -> Result<Option<Entry>> {
        let entries = self.data.get(..self.restarts_offset).ok_or_else(bad_entry)?;
        let mut rest = entries.get(offset..).ok_or_else(bad_entry)?;
        if rest.is_empty() {
            return Ok(None);
        }
        let shared = take_varint_u32(&mut rest).ok_or_else(bad_entry)? as usize;
        let unshared = take_varint_u32(&mut rest).ok_or_else(bad_entry)? as usize;
        let value_length = take_varint_u32(&mut rest).ok_or_else(bad_entry)? as usize;
        let key_start = entries.len() - rest.len();
        let value_start = key_start.checked_add(unshared).ok_or_else(bad_entry)?;
        let end = value_start.checked_add(value_length).ok_or_else(bad_entry)?;
        if end > entries.len() {
            return Err(bad_entry());
        }
        Ok(Some(Entry { shared, key_start, value_start, end }))
    }
}

fn bad_entry() -> Status {
    Status::data_loss("bad entry in block")
}

struct Entry {
    shared: usize,
    key_start: usize,
    value_start: usize,
    end: usize,
}

/// A place in a block: in front of its first entry, on an entry, or behind the last.
#[derive(Default)]
pub(super) struct BlockCursor {
    key: Vec<u8>,
    value_start: usize,
    /// Where the next entry starts, which is where this one's value ends.
    next: usize,
    valid: bool,
    /// Whether there is a key before the next one.
    started: bool,
}

impl BlockCursor {
    /// Returns the cursor in front of a block that follows one with this last key.
    pub(super) fn behind(last_key: &BlockCursor) -> BlockCursor {
        BlockCursor { key: last_key.key.clone(), started: last_key.started, ..BlockCursor::default() }
    }

    /// Goes to the next entry and returns whether there is one.
    pub(super) fn advance(&mut self, block: &Block) -> Result<bool> {
        self.valid = false;
        let Some(entry) = block.entry_at(self.next)? else {
            return Ok(false);
        };
        let unshared = &block.data[entry.key_start..entry.value_start];
        // Keys that don't increase mean damage, and could make the walk through a small file endless.
        let previous = self.key.get(entry.shared..).ok_or_else(bad_entry)?;
        if (self.next == 0 && entry.shared != 0) || (self.started && unshared <= previous) {
            return Err(bad_entry());
        }
        self.started = true;
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(unshared);
        self.value_start = entry.value_start;
        self.next = entry.end;
        self.valid = true;
        Ok(true)
    }

    /// Goes to the first entry whose key is at or after `target` and returns whether there is one.
    pub(super) fn seek(&mut self, block: &Block, target: &[u8]) -> Result<bool> {
        let mut low = 0;
        let mut high = block.restart_count.saturating_sub(1);
        // Finds the last restart whose key is before the target.
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            let entry = block.entry_at(block.restart(middle)?)?.filter(|entry| entry.shared == 0);
            let entry = entry.ok_or_else(bad_entry)?;
            if &block.data[entry.key_start..entry.value_start] < target {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        *self = BlockCursor::default();
        if block.restart_count > 0 {
            self.next = block.restart(low)?;
        }
        while self.advance(block)? {
            if self.key.as_slice() >= target {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns whether the cursor is on an entry.
    pub(super) fn is_valid(&self) -> bool {
        self.valid
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(super) fn value<'block>(&self, block: &'block Block) -> &'block [u8] {
        block.data.get(self.value_start..self.next).unwrap_or(&[])
    }
}
