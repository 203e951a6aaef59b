//! Decompression of messages from clients whose `rpc_options` name an algorithm. Our own messages are never compressed.

use super::wire::{MESSAGE_BYTES_MAX, malformed, too_large};
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use http::HeaderValue;
use std::io::Read;
use tensor::{Charge, Result, Status};

/// The initial buffer of a message; it doubles as needed.
const FIRST_ROOM_BYTES: usize = 64 << 10;

/// Returns a message decompressed with the algorithm in its headers. Memory is charged before it is used.
pub(crate) fn decompress(bytes: &[u8], encoding: Option<&HeaderValue>, charge: &mut Charge) -> Result<Vec<u8>> {
    match encoding.map(HeaderValue::as_bytes) {
        Some(b"gzip") => read_all(MultiGzDecoder::new(bytes), charge),
        Some(b"deflate") => read_all(ZlibDecoder::new(bytes), charge),
        other => Err(Status::unimplemented(format!(
            "messages compressed with '{}' are not understood; there are gzip and deflate",
            String::from_utf8_lossy(other.unwrap_or_default())
        ))),
    }
}

fn read_all(mut decoder: impl Read, charge: &mut Charge) -> Result<Vec<u8>> {
    // A small message may decompress to a very large one.
    let mut plain = Vec::new();
    let charged = charge.bytes();
    loop {
        let room = plain.len().max(FIRST_ROOM_BYTES);
        let refused = |status: Status| status.context("a compressed message unfolds to more than there is room for");
        charge.resize(charged + plain.len() + room).map_err(refused)?;
        plain.reserve_exact(room);
        let read = decoder.by_ref().take(room as u64).read_to_end(&mut plain).map_err(|_| malformed())?;
        if plain.len() > MESSAGE_BYTES_MAX {
            return Err(too_large("what was sent".to_owned(), plain.len()));
        }
        if read < room {
            charge.set(charged + plain.capacity());
            return Ok(plain);
        }
    }
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
        let decompress =
            |bytes: &[u8], encoding: Option<&HeaderValue>| super::decompress(bytes, encoding, &mut Charge::default());
        assert_eq!(decompress(&gzip, Some(&header("gzip"))).unwrap(), plain);
        assert_eq!(decompress(&deflate, Some(&header("deflate"))).unwrap(), plain);
        assert!(decompress(&gzip[..gzip.len() / 2], Some(&header("gzip"))).is_err());
        assert!(decompress(&gzip, Some(&header("deflate"))).is_err());
        assert!(decompress(&gzip, Some(&header("snappy"))).unwrap_err().message().contains("'snappy'"));
        assert!(decompress(&gzip, None).is_err());
    }

    #[test]
    fn what_unfolds_is_charged_before_it_grows() {
        let account = tensor::Account::open();
        account.set_limit(32 << 20);
        let _scope = account.enter();
        let gzip_of = |len: usize| {
            let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
            gzip.write_all(&vec![0; len]).unwrap();
            gzip.finish().unwrap()
        };
        let gzip = HeaderValue::from_static("gzip");
        let mut charge = Charge::default();
        let fits = decompress(&gzip_of(10 << 20), Some(&gzip), &mut charge).unwrap();
        assert_eq!((fits.len(), charge.bytes()), (10 << 20, fits.capacity()));
        drop((fits, charge));
        let mut charge = Charge::default();
        let status = decompress(&gzip_of(40 << 20), Some(&gzip), &mut charge).unwrap_err();
        assert_eq!(status.code(), tensor::Code::ResourceExhausted);
        assert!(charge.bytes() <= 32 << 20, "{}", charge.bytes());
        drop(charge);
        assert_eq!(account.state().used_bytes, 0);
    }
}
