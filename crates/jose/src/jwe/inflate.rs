//! Compressed plaintexts (RFC 7516 section 4.1.3). Only those whose tag was right get here.

use flate2::{Decompress, FlushDecompress, Status};

use crate::Error;

/// The plaintext without compression, of at most `max` bytes.
///
/// # Errors
/// The bytes are no whole DEFLATE stream (RFC 1951), or the plaintext would be longer.
pub(super) fn inflate(compressed: &[u8], max: usize) -> Result<Vec<u8>, Error> {
    // With room for a byte too many, a plaintext of exactly the limit ends like any other.
    let room = max.saturating_add(1);
    let mut out = Vec::with_capacity(room.min(compressed.len().saturating_mul(4).max(64)));
    let mut stream = Decompress::new(false);
    loop {
        let rest = compressed.get(stream.total_in() as usize..).unwrap_or_default();
        match stream.decompress_vec(rest, &mut out, FlushDecompress::Finish) {
            Ok(Status::StreamEnd)
                if stream.total_in() as usize == compressed.len() && out.len() <= max =>
            {
                return Ok(out);
            }
            // It goes on as long as there is room to give.
            Ok(Status::Ok | Status::BufError)
                if out.len() == out.capacity() && out.len() < room =>
            {
                out.reserve_exact(out.len().min(room - out.len()));
            }
            _ => return Err(Error::Compressed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::DeflateEncoder;

    use super::inflate;
    use crate::Error;

    fn deflated(text: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn plaintexts_up_to_the_limit_are_made_and_no_byte_more() {
        for n in [0, 1, 63, 64, 65, 1000, 4096] {
            let text = vec![b'a'; n];
            assert_eq!(inflate(&deflated(&text), 4096).unwrap(), text, "{n}");
        }
        // A million bytes come from a thousand.
        for n in [4097, 1 << 20] {
            assert_eq!(inflate(&deflated(&vec![b'a'; n]), 4096), Err(Error::Compressed), "{n}");
        }
    }

    #[test]
    fn only_a_whole_stream_is_accepted() {
        let whole = deflated(b"a plaintext that is compressed");
        for n in 0..whole.len() {
            assert_eq!(inflate(&whole[..n], 4096), Err(Error::Compressed), "{n}");
        }
        let longer = [&whole[..], b"x"].concat();
        assert_eq!(inflate(&longer, 4096), Err(Error::Compressed));
        assert_eq!(inflate(b"\xff\xff\xff", 4096), Err(Error::Compressed));
    }
}
