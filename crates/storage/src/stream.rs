//! Files and bytes as streams, decompressed on the way.

use crate::file_system::{RandomAccessFile, status_from_io};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use tensor::{Result, Status, check_elements_fit, check_interrupt};

/// A stream of bytes from front to back.
pub type ByteStream = Box<dyn BufRead + Send>;

/// How a whole file is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionType {
    /// Not at all.
    #[default]
    None,
    /// As a zlib stream.
    Zlib,
    /// As a gzip file.
    Gzip,
}

impl CompressionType {
    /// Returns the type that TensorFlow calls `""`, `"NONE"`, `"ZLIB"` or `"GZIP"`.
    pub fn from_name(name: &str) -> Result<CompressionType> {
        match name {
            "" | "NONE" => Ok(CompressionType::None),
            "ZLIB" => Ok(CompressionType::Zlib),
            "GZIP" => Ok(CompressionType::Gzip),
            _ => Err(Status::invalid_argument(format!("Unsupported compression_type: {name}"))),
        }
    }
}

/// Returns the content of a file as a stream. Its errors turn into what they were with [`stream_status`].
pub fn open_stream(file: Box<dyn RandomAccessFile>, compression: CompressionType, buffer_bytes: usize) -> ByteStream {
    let capacity = buffer_bytes.max(1);
    let source = BufReader::with_capacity(capacity, FileRead::new(file.into()));
    match compression {
        CompressionType::None => Box::new(source),
        CompressionType::Zlib => Box::new(BufReader::with_capacity(capacity, ZlibDecoder::new(source))),
        CompressionType::Gzip => Box::new(BufReader::with_capacity(capacity, MultiGzDecoder::new(source))),
    }
}

/// Returns what a stream's error means: damage, unless the file itself couldn't be read.
pub fn stream_status(path: &str, error: &io::Error) -> Status {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Status>()) {
        Some(status) => status.clone(),
        None if error.raw_os_error().is_some() => status_from_io(path, error),
        None => Status::data_loss(format!("{path}: {error}")),
    }
}

/// Returns compressed bytes as they were before. More than `limit_bytes` of them is an error, so that a small input can't
/// take all memory.
pub fn decompress(data: &[u8], compression: CompressionType, limit_bytes: u64) -> Result<Vec<u8>> {
    let mut output = Vec::new();
    let limit = limit_bytes.saturating_add(1);
    let read = match compression {
        CompressionType::None => data.take(limit).read_to_end(&mut output),
        CompressionType::Zlib => ZlibDecoder::new(data).take(limit).read_to_end(&mut output),
        CompressionType::Gzip => MultiGzDecoder::new(data).take(limit).read_to_end(&mut output),
    };
    read.map_err(|error| Status::data_loss(format!("inflate() failed: {error}")))?;
    if output.len() as u64 > limit_bytes {
        return Err(Status::resource_exhausted(format!("more than {limit_bytes} bytes when decompressed")));
    }
    Ok(output)
}

/// How much of a stream is read between two looks at whether it is still wanted, and fits.
const PIECE_BYTES: usize = 1 << 20;

/// Appends up to `count` bytes of a stream to `output`, and returns how many there were: fewer only at its end. The length of a
/// stream is unknown in advance, so one that is too large for a tensor is refused once that much of it has been read.
pub fn read_bounded(stream: &mut impl Read, output: &mut Vec<u8>, count: usize) -> io::Result<usize> {
    let start = output.len();
    while output.len() - start < count {
        check_interrupt()?;
        let piece = PIECE_BYTES.min(count - (output.len() - start));
        check_elements_fit(output.len() + piece, 1)?;
        if stream.by_ref().take(piece as u64).read_to_end(output)? < piece {
            break;
        }
    }
    Ok(output.len() - start)
}

/// Appends a stream's bytes up to and with `end` to `output`, bounded as [`read_bounded`] is; returns how many there were.
pub fn read_until_bounded(stream: &mut impl BufRead, end: u8, output: &mut Vec<u8>) -> io::Result<usize> {
    let start = output.len();
    loop {
        let available = match stream.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let found = memchr::memchr(end, available);
        let count = found.map_or(available.len(), |position| position + 1);
        if output.len() + count > PIECE_BYTES {
            check_interrupt()?;
            check_elements_fit(output.len() + count, 1)?;
        }
        output.extend_from_slice(&available[..count]);
        stream.consume(count);
        if found.is_some() || count == 0 {
            return Ok(output.len() - start);
        }
    }
}

/// Passes over up to `count` bytes of a stream, and returns how many there were.
pub fn skip_bytes(stream: &mut impl BufRead, count: u64) -> io::Result<u64> {
    let mut left = count;
    while left > 0 {
        check_interrupt()?;
        let skipped = io::copy(&mut stream.by_ref().take(left.min(PIECE_BYTES as u64)), &mut io::sink())?;
        if skipped == 0 {
            break;
        }
        left -= skipped;
    }
    Ok(count - left)
}

/// Lets decompressors, which want `io::Read`, read a file of ours.
pub(crate) struct FileRead {
    file: Arc<dyn RandomAccessFile>,
    position: u64,
}

impl FileRead {
    pub(crate) fn new(file: Arc<dyn RandomAccessFile>) -> FileRead {
        FileRead { file, position: 0 }
    }
}

impl Read for FileRead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(self.position, buffer)?;
        self.position = self.position.saturating_add(count as u64);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_system::{FileSystem, LocalFileSystem};
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use std::io::Write;

    fn zlib(data: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn files_come_out_as_they_were() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x").to_str().unwrap().to_owned();
        let data: Vec<u8> = (0..5000u32).flat_map(u32::to_le_bytes).collect();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(&data).unwrap();
        for (compression, content) in [
            (CompressionType::None, data.clone()),
            (CompressionType::Zlib, zlib(&data)),
            (CompressionType::Gzip, gzip.finish().unwrap()),
        ] {
            std::fs::write(&path, content).unwrap();
            let mut read = Vec::new();
            let file = LocalFileSystem.open(&path).unwrap();
            open_stream(file, compression, 100).read_to_end(&mut read).unwrap();
            assert_eq!(read, data, "{compression:?}");
        }
        let error = open_stream(LocalFileSystem.open(&path).unwrap(), CompressionType::Zlib, 10).read(&mut [0; 4]);
        assert_eq!(stream_status(&path, &error.unwrap_err()).code(), tensor::Code::DataLoss);
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let packed = zlib(&[7; 1000]);
        assert_eq!(decompress(&packed, CompressionType::Zlib, 1000).unwrap(), vec![7; 1000]);
        let status = decompress(&packed, CompressionType::Zlib, 999).unwrap_err();
        assert_eq!(status.code(), tensor::Code::ResourceExhausted);
        assert_eq!(decompress(b"xx", CompressionType::Gzip, 9).unwrap_err().code(), tensor::Code::DataLoss);
        assert_eq!(decompress(b"abc", CompressionType::None, 9).unwrap(), b"abc");
    }
}
