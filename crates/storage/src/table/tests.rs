//! Tables survive the way through a file, and damage of any kind is an error.

use super::*;
use crate::file_system::{RandomAccessFile, WritableFile};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tensor::Code;

/// Bytes in memory that look like a file, for writing and for reading.
#[derive(Clone, Default)]
struct Memory(Vec<u8>);

impl WritableFile for Memory {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl RandomAccessFile for Memory {
    fn length(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or(&[]);
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn written(entries: &Entries, options: TableOptions) -> Memory {
    let mut file = Memory::default();
    let mut writer = TableWriter::new(&mut file, options);
    for (key, value) in entries {
        writer.add(key, value).unwrap();
    }
    let size = writer.finish().unwrap();
    assert_eq!(size, file.0.len() as u64);
    file
}

fn read_all(table: &Table) -> Result<Entries> {
    let mut iterator = table.iter();
    let mut entries = Entries::new();
    while iterator.advance()? {
        let (key, value) = iterator.current().unwrap();
        entries.insert(key.to_vec(), value.to_vec());
    }
    assert!(iterator.current().is_none() && !iterator.advance()?);
    Ok(entries)
}

fn many_entries() -> Entries {
    (0..2000u32).map(|number| (format!("layer{:04}/kernel", number * 2).into_bytes(), vec![7; 90])).collect()
}

#[test]
fn an_empty_table() {
    let table = Table::open(Box::new(written(&Entries::new(), TableOptions::default()))).unwrap();
    assert_eq!(read_all(&table).unwrap(), Entries::new());
    assert_eq!(table.get(b"x").unwrap(), None);
    assert_eq!(table.get(b"").unwrap(), None);
}

#[test]
fn lookups_in_many_blocks() {
    let entries = many_entries();
    let plain = TableOptions { block_bytes: 1000, ..Default::default() };
    let snappy = TableOptions { snappy: true, ..plain };
    let (plain, snappy) = (written(&entries, plain), written(&entries, snappy));
    assert!(snappy.0.len() < plain.0.len() / 2);
    for file in [plain, snappy] {
        let table = Table::open(Box::new(file)).unwrap();
        assert_eq!(read_all(&table).unwrap(), entries);
        for number in 0..4000u32 {
            let key = format!("layer{number:04}/kernel").into_bytes();
            assert_eq!(table.get(&key).unwrap().as_ref(), entries.get(&key));
            let mut iterator = table.iter();
            iterator.seek(&key).unwrap();
            let expected = entries.range(key..).next().map(|(key, _)| key.as_slice());
            assert_eq!(iterator.current().map(|(key, _)| key), expected);
        }
    }
}

#[test]
fn huge_entries_get_blocks_of_their_own() {
    let entries: Entries = (0..5u8).map(|number| (vec![number], vec![number; 10_000])).collect();
    let options = TableOptions { block_bytes: 100, ..Default::default() };
    let table = Table::open(Box::new(written(&entries, options))).unwrap();
    assert_eq!(read_all(&table).unwrap(), entries);
}

#[test]
fn keys_must_increase() {
    let mut file = Memory::default();
    let mut writer = TableWriter::new(&mut file, TableOptions::default());
    writer.add(b"", b"header").unwrap();
    writer.add(b"b", b"").unwrap();
    for key in [&b"b"[..], b"a", b""] {
        assert_eq!(writer.add(key, b"").unwrap_err().code(), Code::InvalidArgument);
    }
}

#[test]
fn damage_is_told_apart() {
    let file = written(&many_entries(), TableOptions { block_bytes: 1000, ..Default::default() });
    let message = |bytes: Vec<u8>| {
        let status = Table::open(Box::new(Memory(bytes))).and_then(|table| read_all(&table)).unwrap_err();
        assert_eq!(status.code(), Code::DataLoss);
        status.message().to_owned()
    };
    assert_eq!(message(file.0[..20].to_vec()), "file is too short to be an sstable");
    assert_eq!(message(file.0[..file.0.len() - 1].to_vec()), "not an sstable (bad magic number)");
    let mut flipped = file.0.clone();
    flipped[100] ^= 4;
    assert_eq!(message(flipped), "block checksum mismatch");
    // Whole blocks are missing, but the index and the footer are there.
    assert_eq!(message(file.0[10_000..].to_vec()), "truncated block read");
}

#[test]
fn an_index_that_names_a_block_twice_is_damage() {
    // Otherwise the walk through a small file could be endless.
    let mut file = Memory::default();
    let mut writer = TableWriter::new(&mut file, TableOptions { block_bytes: 1, ..Default::default() });
    writer.add(b"a", b"1").unwrap();
    let handle = BlockHandle { offset: 0, size: writer.offset - BLOCK_TRAILER_BYTES as u64 };
    for key in [&b"b"[..], b"c", b"d"] {
        writer.add_to_index(key, handle).unwrap();
    }
    writer.pending = None;
    writer.finish().unwrap();
    let table = Table::open(Box::new(file)).unwrap();
    assert_eq!(read_all(&table).unwrap_err().message(), "bad entry in block");
}

#[test]
fn a_snappy_block_that_claims_too_much_allocates_nothing() {
    let mut content = Vec::new();
    crate::coding::put_varint(&mut content, u64::from(u32::MAX));
    content.push(COMPRESSION_SNAPPY);
    let checksum = crate::coding::masked_crc32c(&content);
    let handle = BlockHandle { offset: 0, size: content.len() as u64 - 1 };
    content.extend_from_slice(&checksum.to_le_bytes());
    content.extend_from_slice(&Footer { metaindex: handle, index: handle }.encode());
    let status = Table::open(Box::new(Memory(content))).err().unwrap();
    assert_eq!(status.message(), "corrupted compressed block contents");
}

fn any_entries() -> impl Strategy<Value = Entries> {
    let key = prop::collection::vec(0u8..4, 0..8);
    prop::collection::btree_map(key, prop::collection::vec(any::<u8>(), 0..40), 0..60)
}

fn any_options() -> impl Strategy<Value = TableOptions> {
    (1usize..300, 1usize..20, any::<bool>()).prop_map(|(block_bytes, restart_interval, snappy)| TableOptions {
        block_bytes,
        restart_interval,
        snappy,
    })
}

/// Replaces every block's checksum by the right one, so that damage gets past it.
fn with_valid_checksums(original: &Memory, mut bytes: Vec<u8>) -> Vec<u8> {
    let table = Table::open(Box::new(original.clone())).unwrap();
    let mut handles =
        vec![Footer::decode(original.0[original.0.len() - FOOTER_BYTES..].try_into().unwrap()).unwrap().index];
    let mut index = block::BlockCursor::default();
    while index.advance(table_index(&table)).unwrap() {
        handles.push(BlockHandle::decode(&mut index.value(table_index(&table))).unwrap());
    }
    for handle in handles {
        let (start, end) = (handle.offset as usize, (handle.offset + handle.size) as usize + 1);
        let checksum = crate::coding::masked_crc32c(&bytes[start..end]).to_le_bytes();
        bytes[end..end + 4].copy_from_slice(&checksum);
    }
    bytes
}

fn table_index(table: &Table) -> &block::Block {
    table.index()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn tables_survive(entries in any_entries(), options in any_options(), probe in prop::collection::vec(0u8..5, 0..8)) {
        let table = Table::open(Box::new(written(&entries, options))).unwrap();
        prop_assert_eq!(&read_all(&table).unwrap(), &entries);
        prop_assert_eq!(table.get(&probe).unwrap(), entries.get(&probe).cloned());
        let mut iterator = table.iter();
        iterator.seek(&probe).unwrap();
        let expected = entries.range(probe..).next().map(|(key, value)| (key.as_slice(), value.as_slice()));
        prop_assert_eq!(iterator.current(), expected);
    }

    #[test]
    fn damage_is_noticed(entries in any_entries(), options in any_options(), position: prop::sample::Index, flip in 1u8..) {
        let mut bytes = written(&entries, options).0;
        let position = position.index(bytes.len());
        bytes[position] ^= flip;
        match Table::open(Box::new(Memory(bytes))).and_then(|table| read_all(&table)) {
            // The metaindex and the footer's padding hold nothing that anybody reads.
            Ok(read) => prop_assert_eq!(read, entries),
            Err(status) => prop_assert_eq!(status.code(), Code::DataLoss),
        }
    }

    #[test]
    fn damage_behind_a_valid_checksum_never_panics(
        entries in any_entries(),
        options in any_options(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        probe in prop::collection::vec(0u8..5, 0..8),
    ) {
        let original = written(&entries, options);
        let mut bytes = original.0.clone();
        for (position, value) in changes {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        let bytes = with_valid_checksums(&original, bytes);
        if let Ok(table) = Table::open(Box::new(Memory(bytes))) {
            let _ = read_all(&table);
            let _ = table.get(&probe);
        }
    }

    #[test]
    fn garbage_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        if let Ok(table) = Table::open(Box::new(Memory(bytes))) {
            let _ = read_all(&table);
        }
    }
}
