//! Records survive the way through a file, and damage of any kind is an error.

use super::*;
use crate::file_system::{FileSystem, FileSystems, RandomAccessFile};
use proptest::prelude::*;
use tensor::Code;
use tensor::Result;

const COMPRESSIONS: [CompressionType; 3] = [CompressionType::None, CompressionType::Zlib, CompressionType::Gzip];

/// Bytes in memory that look like a file.
struct Memory(Vec<u8>);

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

fn written(records: &[Vec<u8>], compression: CompressionType) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = format!("{}/records", directory.path().display());
    let fs = FileSystems::local();
    let mut writer = RecordWriter::new(fs.create(&path).unwrap(), compression);
    for record in records {
        writer.write_record(record).unwrap();
    }
    let expected: usize = records.iter().map(|record| record.len() + 16).sum();
    assert_eq!(writer.bytes_written(), expected as u64);
    writer.close().unwrap();
    fs.read(&path).unwrap()
}

fn reader(file: Vec<u8>, compression: CompressionType, buffer_bytes: usize) -> RecordReader {
    RecordReader::new(Box::new(Memory(file)), RecordReaderOptions { compression, buffer_bytes })
}

fn read_all(reader: &mut RecordReader) -> Result<Vec<Vec<u8>>> {
    std::iter::from_fn(|| reader.next_record().transpose()).collect()
}

#[test]
fn the_bytes_are_those_of_the_format() {
    let file = written(&[b"abc".to_vec()], CompressionType::None);
    assert_eq!(file.len(), 19);
    assert_eq!(&file[..8], &[3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&file[12..15], b"abc");
}

#[test]
fn truncated_and_corrupted_records() {
    let file = written(&[b"first".to_vec(), b"second".to_vec()], CompressionType::None);
    let second = 16 + 5;
    for (length, expected) in [
        (0, Ok(0)),
        (3, Err("truncated record at 0")),
        (12, Err("truncated record at 0")),
        (second, Ok(1)),
        (second + 1, Err("truncated record at 21")),
        (file.len() - 1, Err("truncated record at 21")),
        (file.len(), Ok(2)),
    ] {
        let mut reader = reader(file[..length].to_vec(), CompressionType::None, 7);
        match (read_all(&mut reader), expected) {
            (Ok(records), Ok(count)) => assert_eq!(records.len(), count),
            (Err(status), Err(message)) => {
                assert_eq!((status.code(), status.message()), (Code::DataLoss, message));
            }
            (read, expected) => panic!("{length}: {read:?} instead of {expected:?}"),
        }
    }
    for (position, message) in [(second, "corrupted record at 21"), (second + 13, "corrupted record at 33")] {
        let mut file = file.clone();
        file[position] ^= 1;
        let status = read_all(&mut reader(file, CompressionType::None, 1024)).unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::DataLoss, message));
    }
}

#[test]
fn a_length_beyond_the_file_allocates_nothing() {
    let length = (u64::MAX >> 8).to_le_bytes();
    let mut file = length.to_vec();
    file.extend_from_slice(&crate::coding::masked_crc32c(&length).to_le_bytes());
    file.extend_from_slice(b"some data");
    let status = reader(file, CompressionType::None, 1024).next_record().unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::DataLoss, "truncated record at 0"));
}

#[test]
fn reading_resumes_at_an_offset() {
    let records: Vec<Vec<u8>> = (0..50u8).map(|index| vec![index; usize::from(index) * 7]).collect();
    for compression in COMPRESSIONS {
        let file = written(&records, compression);
        let mut first = reader(file.clone(), compression, 64);
        for record in &records[..20] {
            assert_eq!(first.next_record().unwrap().as_ref(), Some(record));
        }
        let mut second = reader(file, compression, 64);
        second.seek(first.offset());
        assert_eq!(read_all(&mut second).unwrap(), records[20..]);
        second.seek(0);
        assert_eq!(second.next_record().unwrap().as_ref(), Some(&records[0]));
        second.seek(1 << 40);
        assert_eq!(second.next_record().unwrap(), None);
    }
}

#[test]
fn a_reader_catches_up_with_the_writer() {
    let directory = tempfile::tempdir().unwrap();
    let path = format!("{}/records", directory.path().display());
    let fs = FileSystems::local();
    let mut file = fs.create(&path).unwrap();
    let complete = written(&[b"one".to_vec(), b"two".to_vec()], CompressionType::None);
    file.append(&complete[..25]).unwrap();
    file.flush().unwrap();
    let mut reader = RecordReader::new(fs.open(&path).unwrap(), RecordReaderOptions::default());
    assert_eq!(reader.next_record().unwrap().unwrap(), b"one");
    assert_eq!(reader.next_record().unwrap_err().code(), Code::DataLoss);
    file.append(&complete[25..]).unwrap();
    file.flush().unwrap();
    assert_eq!(reader.next_record().unwrap().unwrap(), b"two");
    assert_eq!(reader.next_record().unwrap(), None);
}

#[test]
fn a_flushed_compressed_file_is_readable_before_it_is_closed() {
    for compression in [CompressionType::Zlib, CompressionType::Gzip] {
        let directory = tempfile::tempdir().unwrap();
        let path = format!("{}/records", directory.path().display());
        let fs = FileSystems::local();
        let mut writer = RecordWriter::new(fs.create(&path).unwrap(), compression);
        writer.write_record(b"one").unwrap();
        writer.sync().unwrap();
        let mut reader = RecordReader::new(fs.open(&path).unwrap(), RecordReaderOptions::compressed(compression));
        assert_eq!(reader.next_record().unwrap().unwrap(), b"one");
        // The end of the stream is missing, so that records may be, too.
        assert_eq!(reader.next_record().unwrap_err().code(), Code::DataLoss);
        writer.write_record(b"two").unwrap();
        writer.close().unwrap();
        assert_eq!(reader.next_record().unwrap().unwrap(), b"two");
        assert_eq!(reader.next_record().unwrap(), None);
    }
}

#[test]
fn an_empty_file_has_no_records() {
    for compression in COMPRESSIONS {
        assert_eq!(reader(Vec::new(), compression, 64).next_record().unwrap(), None);
        assert_eq!(reader(written(&[], compression), compression, 64).next_record().unwrap(), None);
    }
}

#[test]
fn a_file_that_is_not_compressed_is_data_loss_to_a_decompressor() {
    let file = written(&[vec![7; 100]], CompressionType::None);
    for compression in [CompressionType::Zlib, CompressionType::Gzip] {
        assert_eq!(reader(file.clone(), compression, 64).next_record().unwrap_err().code(), Code::DataLoss);
    }
}

#[test]
fn names_of_compressions() {
    assert_eq!(CompressionType::from_name("").unwrap(), CompressionType::None);
    assert_eq!(CompressionType::from_name("GZIP").unwrap(), CompressionType::Gzip);
    assert_eq!(CompressionType::from_name("ZLIB").unwrap(), CompressionType::Zlib);
    assert_eq!(CompressionType::from_name("LZ4").unwrap_err().code(), Code::InvalidArgument);
}

fn any_compression() -> impl Strategy<Value = CompressionType> {
    prop::sample::select(&COMPRESSIONS[..])
}

fn any_records() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_survive(records in any_records(), compression in any_compression(), buffer in 1usize..600) {
        let mut reader = reader(written(&records, compression), compression, buffer);
        prop_assert_eq!(read_all(&mut reader).unwrap(), records);
    }

    #[test]
    fn damage_gives_a_prefix_and_data_loss(
        records in any_records(),
        compression in any_compression(),
        position: prop::sample::Index,
        flip in 1u8..,
    ) {
        let mut file = written(&records, compression);
        prop_assume!(!file.is_empty());
        let position = position.index(file.len());
        file[position] ^= flip;
        let mut reader = reader(file, compression, 128);
        for expected in &records {
            match reader.next_record() {
                Ok(Some(record)) => prop_assert_eq!(&record, expected),
                // Some bits of a compressor's header mean nothing, or that the stream ends here.
                Ok(None) => prop_assert!(compression != CompressionType::None),
                Err(status) => {
                    prop_assert_eq!(status.code(), Code::DataLoss);
                    return Ok(());
                }
            }
        }
    }

    #[test]
    fn garbage_never_panics(file: Vec<u8>, compression in any_compression(), offset in 0u64..50) {
        let mut reader = reader(file, compression, 16);
        reader.seek(offset);
        while let Ok(Some(_)) = reader.next_record() {}
    }
}
