//! Writing a table.

use super::block::BlockBuilder;
use super::{BLOCK_TRAILER_BYTES, BlockHandle, COMPRESSION_NONE, COMPRESSION_SNAPPY, Footer};
use crate::coding::mask_crc32c;
use crate::file_system::WritableFile;
use tensor::{Result, Status};

/// How a table is laid out.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// A block is ended when it has reached this size.
    pub block_bytes: usize,
    /// How many keys share a full one.
    pub restart_interval: usize,
    /// Whether blocks are compressed where that makes them smaller by an eighth.
    pub snappy: bool,
}

impl Default for TableOptions {
    /// Returns TensorFlow's choices for a checkpoint's index.
    fn default() -> Self {
        TableOptions { block_bytes: 256 << 10, restart_interval: 16, snappy: false }
    }
}

/// Writes a table to a file.
pub struct TableWriter<'file> {
    file: &'file mut dyn WritableFile,
    options: TableOptions,
    pub(super) offset: u64,
    data_block: BlockBuilder,
    index_block: BlockBuilder,
    last_key: Option<Vec<u8>>,
    /// The block that was written last, whose index entry waits for the first key of the next one, since a short key
    /// between the two is all that the index needs.
    pub(super) pending: Option<BlockHandle>,
}

impl<'file> TableWriter<'file> {
    /// Writes to a file that is empty so far.
    pub fn new(file: &'file mut dyn WritableFile, options: TableOptions) -> TableWriter<'file> {
        TableWriter {
            file,
            options,
            offset: 0,
            data_block: BlockBuilder::new(options.restart_interval),
            index_block: BlockBuilder::new(1),
            last_key: None,
            pending: None,
        }
    }

    /// Appends an entry, whose key must come after the one before it.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(last) = &self.last_key {
            if key <= last.as_slice() {
                return Err(Status::invalid_argument(format!(
                    "the keys of a table must increase: \"{}\" after \"{}\"",
                    key.escape_ascii(),
                    last.escape_ascii()
                )));
            }
            // A huge entry gets a block of its own, so that its neighbours are found without reading it.
            if key.len() + value.len() >= 2 * self.options.block_bytes {
                self.flush_block()?;
            }
        }
        if let (Some(handle), Some(last)) = (self.pending.take(), &self.last_key) {
            self.add_to_index(&separator(last, key), handle)?;
        }
        self.data_block.add(key, value)?;
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        if self.data_block.size() >= self.options.block_bytes {
            self.flush_block()?;
        }
        Ok(())
    }

    /// Writes what is left, the index and the footer, and returns the size of the table.
    pub fn finish(mut self) -> Result<u64> {
        self.flush_block()?;
        let metaindex = BlockBuilder::new(1).finish();
        let metaindex = self.write_block(metaindex)?;
        if let (Some(handle), Some(last)) = (self.pending.take(), &self.last_key) {
            self.add_to_index(&successor(last), handle)?;
        }
        let index = self.index_block.finish();
        let index = self.write_block(index)?;
        let footer = Footer { metaindex, index }.encode();
        self.file.append(&footer)?;
        Ok(self.offset + footer.len() as u64)
    }

    fn flush_block(&mut self) -> Result<()> {
        if !self.data_block.is_empty() {
            let block = self.data_block.finish();
            self.pending = Some(self.write_block(block)?);
        }
        Ok(())
    }

    pub(super) fn add_to_index(&mut self, key: &[u8], handle: BlockHandle) -> Result<()> {
        let mut encoded = Vec::new();
        handle.encode(&mut encoded);
        self.index_block.add(key, &encoded)
    }

    fn write_block(&mut self, block: Vec<u8>) -> Result<BlockHandle> {
        let (content, compression) = self.compressed(block);
        let handle = BlockHandle { offset: self.offset, size: content.len() as u64 };
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&content), &[compression]);
        let mut trailer = [compression; BLOCK_TRAILER_BYTES];
        trailer[1..].copy_from_slice(&mask_crc32c(checksum).to_le_bytes());
        self.file.append(&content)?;
        self.file.append(&trailer)?;
        self.offset += (content.len() + trailer.len()) as u64;
        Ok(handle)
    }

    fn compressed(&self, block: Vec<u8>) -> (Vec<u8>, u8) {
        if self.options.snappy
            && let Ok(compressed) = snap::raw::Encoder::new().compress_vec(&block)
            && compressed.len() < block.len() - block.len() / 8
        {
            return (compressed, COMPRESSION_SNAPPY);
        }
        (block, COMPRESSION_NONE)
    }
}

/// Returns a short key that is at or after `last` and before `next`.
fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let shared = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    match (last.get(shared), next.get(shared)) {
        (Some(&a), Some(&b)) if u32::from(a) + 1 < u32::from(b) => {
            let mut key = last[..shared].to_vec();
            key.push(a + 1);
            key
        }
        _ => last.to_vec(),
    }
}

/// Returns a short key that is at or after `last`.
fn successor(last: &[u8]) -> Vec<u8> {
    match last.iter().position(|&byte| byte != u8::MAX) {
        Some(position) => {
            let mut key = last[..=position].to_vec();
            key[position] += 1;
            key
        }
        None => last.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_keys_for_the_index() {
        assert_eq!(separator(b"the quick brown fox", b"the who"), b"the r");
        assert_eq!(separator(b"abc", b"abd"), b"abc");
        assert_eq!(separator(b"ab", b"abc"), b"ab");
        assert_eq!(separator(b"a\xff", b"b"), b"a\xff");
        assert_eq!(successor(b"abc"), b"b");
        assert_eq!(successor(b"\xff\xffa"), b"\xff\xffb");
        assert_eq!(successor(b"\xff"), b"\xff");
        assert_eq!(successor(b""), b"");
    }
}
