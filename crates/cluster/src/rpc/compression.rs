//! Compressed messages, as clients send them whose `rpc_options` name an algorithm. What we send is never compressed.

use super::wire::{MESSAGE_BYTES_MAX, malformed, too_large};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::HeaderValue;
use std::io::Read;
use tensor::{Result, Status};

/// Returns a message as it was before it was compressed with the algorithm that its headers name.
pub(crate) fn decompress(bytes: &[u8], encoding: Option<&HeaderValue>) -> Result<Vec<u8>> {
    match encoding.map(HeaderValue::as_bytes) {
        Some(b"gzip") => read_all(MultiGzDecoder::new(bytes)),
        Some(b"deflate") => read_all(ZlibDecoder::new(bytes)),
        other => Err(Status::unimplemented(format!(
            "messages compressed with '{}' are not understood; there are gzip and deflate",
            String::from_utf8_lossy(other.unwrap_or_default())
        ))),
    }
}

fn read_all(decoder: impl Read) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    // A small message may unfold to a very large one.
    decoder.take(MESSAGE_BYTES_MAX as u64 + 1).read_to_end(&mut plain).map_err(|_| malformed())?;
    if plain.len() > MESSAGE_BYTES_MAX {
        return Err(too_large("what was sent".to_owned(), plain.len()));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use std::io::Write;

    #[test]
    fn what_was_compressed_comes_back() {
        let plain = b"many words, many words, many words".repeat(100);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(&plain).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut deflate = ZlibEncoder::new(Vec::new(), Compression::default());
        deflate.write_all(&plain).unwrap();
        let deflate = deflate.finish().unwrap();
        let header = HeaderValue::from_static;
        assert_eq!(decompress(&gzip, Some(&header("gzip"))).unwrap(), plain);
        assert_eq!(decompress(&deflate, Some(&header("deflate"))).unwrap(), plain);
        assert!(decompress(&gzip[..gzip.len() / 2], Some(&header("gzip"))).is_err());
        assert!(decompress(&gzip, Some(&header("deflate"))).is_err());
        assert!(decompress(&gzip, Some(&header("snappy"))).unwrap_err().message().contains("'snappy'"));
        assert!(decompress(&gzip, None).is_err());
    }
}
