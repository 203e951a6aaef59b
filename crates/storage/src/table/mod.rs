//! Sorted tables: an immutable map from byte strings to byte strings, in the layout that LevelDB made known and that
//! TensorFlow keeps the index of a checkpoint in.
//!
//! A file is a sequence of blocks, each followed by its compression (1 byte) and a masked CRC32C over both; then an
//! index block, which maps a key at or after the last one of each block to the block's place; then a footer of 48 bytes
//! with the places of the (empty) metaindex and of the index, and a magic number. In a block a key is stored as what
//! differs from the key before it; every so many keys one is stored in full, and the offsets of these restarts end the
//! block.

mod block;
mod reader;
mod writer;

pub use reader::{Table, TableIterator};
pub use writer::{TableOptions, TableWriter};

use crate::coding::{put_varint, take_varint, u64_at};
use tensor::{Result, Status};

/// The last eight bytes of every table.
const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// The compression and the checksum behind every block.
const BLOCK_TRAILER_BYTES: usize = 5;
/// Two block handles, padded to their longest, and the magic number.
const FOOTER_BYTES: usize = 48;

const COMPRESSION_NONE: u8 = 0;
const COMPRESSION_SNAPPY: u8 = 1;

/// Where a block is, without its trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockHandle {
    offset: u64,
    size: u64,
}

impl BlockHandle {
    fn encode(self, output: &mut Vec<u8>) {
        put_varint(output, self.offset);
        put_varint(output, self.size);
    }

    fn decode(input: &mut &[u8]) -> Result<BlockHandle> {
        take_varint(input)
            .zip(take_varint(input))
            .map(|(offset, size)| BlockHandle { offset, size })
            .ok_or_else(|| Status::data_loss("bad block handle"))
    }
}

/// The end of the file.
struct Footer {
    metaindex: BlockHandle,
    index: BlockHandle,
}

impl Footer {
    fn encode(&self) -> Vec<u8> {
        let mut output = Vec::with_capacity(FOOTER_BYTES);
        self.metaindex.encode(&mut output);
        self.index.encode(&mut output);
        output.resize(FOOTER_BYTES - 8, 0);
        output.extend_from_slice(&MAGIC.to_le_bytes());
        output
    }

    fn decode(bytes: &[u8; FOOTER_BYTES]) -> Result<Footer> {
        if u64_at(bytes, FOOTER_BYTES - 8) != Some(MAGIC) {
            return Err(Status::data_loss("not an sstable (bad magic number)"));
        }
        let mut input = &bytes[..FOOTER_BYTES - 8];
        Ok(Footer { metaindex: BlockHandle::decode(&mut input)?, index: BlockHandle::decode(&mut input)? })
    }
}

#[cfg(test)]
mod tests;
