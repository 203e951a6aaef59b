//! Reading a table: single lookups and walks, block by block.

use super::block::{Block, BlockCursor};
use super::{BLOCK_TRAILER_BYTES, BlockHandle, COMPRESSION_NONE, COMPRESSION_SNAPPY, FOOTER_BYTES, Footer};
use crate::coding::{mask_crc32c, u32_at};
use crate::file_system::RandomAccessFile;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tensor::{Result, Status};

/// An open table. Only its index is in memory; blocks are read when they are needed.
pub struct Table {
    file: Box<dyn RandomAccessFile>,
    file_bytes: u64,
    index: Block,
    /// The blocks that were used last, so that neighbouring lookups don't read and check the same one again.
    recent: Mutex<VecDeque<(u64, Arc<Block>)>>,
}

/// How many blocks stay in memory.
const RECENT_BLOCKS: usize = 16;

/// Snappy copies at most 64 bytes for every 3, so a length beyond this ratio is a lie.
const SNAPPY_MAX_RATIO: usize = 22;

impl Table {
    /// Opens a table and reads its index.
    pub fn open(file: Box<dyn RandomAccessFile>) -> Result<Table> {
        let file_bytes = file.length()?;
        let footer_offset = file_bytes
            .checked_sub(FOOTER_BYTES as u64)
            .ok_or_else(|| Status::data_loss("file is too short to be an sstable"))?;
        let mut footer = [0; FOOTER_BYTES];
        file.read_exact_at(footer_offset, &mut footer)?;
        let footer = Footer::decode(&footer)?;
        let index = read_block(&*file, file_bytes, footer.index)?;
        Ok(Table { file, file_bytes, index, recent: Mutex::new(VecDeque::new()) })
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut iterator = self.iter();
        iterator.seek(key)?;
        Ok(iterator.current().filter(|(found, _)| *found == key).map(|(_, value)| value.to_vec()))
    }

    /// Returns no less than the size of all values together, so that what says that it is larger can be refused.
    pub fn values_bytes_max(&self) -> u64 {
        self.file_bytes.saturating_mul(SNAPPY_MAX_RATIO as u64)
    }

    /// Returns an iterator in front of the first entry.
    pub fn iter(&self) -> TableIterator<'_> {
        TableIterator { table: self, index: BlockCursor::default(), block: None, cursor: BlockCursor::default() }
    }

    #[cfg(test)]
    pub(super) fn index(&self) -> &Block {
        &self.index
    }

    fn block(&self, handle: BlockHandle) -> Result<Arc<Block>> {
        {
            let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, block)) = recent.iter().find(|(offset, _)| *offset == handle.offset) {
                return Ok(block.clone());
            }
        }
        let block = Arc::new(read_block(&*self.file, self.file_bytes, handle)?);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= RECENT_BLOCKS {
            recent.pop_front();
        }
        recent.push_back((handle.offset, block.clone()));
        Ok(block)
    }
}

fn read_block(file: &dyn RandomAccessFile, file_bytes: u64, handle: BlockHandle) -> Result<Block> {
    let end = handle.size.checked_add(BLOCK_TRAILER_BYTES as u64).and_then(|size| size.checked_add(handle.offset));
    if end.is_none_or(|end| end > file_bytes) {
        return Err(Status::data_loss("truncated block read"));
    }
    let size = usize::try_from(handle.size).map_err(|_| Status::data_loss("handle.size() too big"))?;
    let mut data = vec![0; size + BLOCK_TRAILER_BYTES];
    file.read_exact_at(handle.offset, &mut data).map_err(|status| match status.code() {
        tensor::Code::OutOfRange => Status::data_loss("truncated block read"),
        _ => status,
    })?;
    let stored = u32_at(&data, size + 1);
    if stored != Some(mask_crc32c(crc32c::crc32c(&data[..size + 1]))) {
        return Err(Status::data_loss("block checksum mismatch"));
    }
    match data[size] {
        COMPRESSION_NONE => {
            data.truncate(size);
            Block::new(data)
        }
        COMPRESSION_SNAPPY => {
            let corrupted = || Status::data_loss("corrupted compressed block contents");
            let length = snap::raw::decompress_len(&data[..size]).map_err(|_| corrupted())?;
            if length > size.saturating_mul(SNAPPY_MAX_RATIO) {
                return Err(corrupted());
            }
            Block::new(snap::raw::Decoder::new().decompress_vec(&data[..size]).map_err(|_| corrupted())?)
        }
        _ => Err(Status::data_loss("bad block type")),
    }
}

/// A walk through a table in the order of its keys.
pub struct TableIterator<'table> {
    table: &'table Table,
    index: BlockCursor,
    block: Option<Arc<Block>>,
    cursor: BlockCursor,
}

impl TableIterator<'_> {
    /// Goes to the first entry whose key is at or after `target`.
    pub fn seek(&mut self, target: &[u8]) -> Result<()> {
        self.block = None;
        if self.index.seek(&self.table.index, target)? {
            let block = self.load_block()?;
            self.block = Some(block.clone());
            if !self.cursor.seek(&block, target)? {
                // The index's keys lie behind their blocks' last ones, so the entry may start the next block.
                self.advance()?;
            }
        }
        Ok(())
    }

    /// Goes to the next entry, which is the first one after [`Table::iter`], and returns whether there is one.
    pub fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(block) = &self.block
                && self.cursor.advance(block)?
            {
                return Ok(true);
            }
            self.block = None;
            if !self.index.advance(&self.table.index)? {
                return Ok(false);
            }
            self.block = Some(self.load_block()?);
            self.cursor = BlockCursor::behind(&self.cursor);
        }
    }

    /// Returns the key and the value at this place, or `None` in front of the first entry and behind the last.
    pub fn current(&self) -> Option<(&[u8], &[u8])> {
        let block = self.block.as_deref().filter(|_| self.cursor.is_valid())?;
        Some((self.cursor.key(), self.cursor.value(block)))
    }

    /// Returns the block that the index is at.
    fn load_block(&self) -> Result<Arc<Block>> {
        let handle = BlockHandle::decode(&mut self.index.value(&self.table.index))?;
        self.table.block(handle)
    }
}
