//! Compression of the server's certificates in TLS 1.3 (RFC 8879, `ssl_certificate_compression`).
//!
//! rustls keeps what was compressed, so the best levels cost one handshake each. Compressed
//! certificates of peers are not accepted, as in nginx: to read them would be work that a peer
//! chooses.

use std::io::Write;

use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustls::CertificateCompressionAlgorithm as Algorithm;
use rustls::compress::{CertCompressor, CompressionFailed, CompressionLevel};

/// The algorithms that a server offers, the preferred first; none where the setting is off.
pub(crate) fn compressors(on: bool) -> Vec<&'static dyn CertCompressor> {
    match on {
        true => vec![&Brotli, &Zstd, &Zlib],
        false => Vec::new(),
    }
}

/// The level where the result is kept, and where it is made for one connection.
fn level<T>(level: CompressionLevel, kept: T, once: T) -> T {
    match level {
        CompressionLevel::Amortized => kept,
        CompressionLevel::Interactive => once,
    }
}

#[derive(Debug)]
struct Brotli;

impl CertCompressor for Brotli {
    fn compress(
        &self,
        input: Vec<u8>,
        wanted: CompressionLevel,
    ) -> Result<Vec<u8>, CompressionFailed> {
        let params = BrotliEncoderParams {
            quality: level(wanted, 11, 4),
            // The window of 64 KB is as long as any chain, and takes less memory than the default.
            lgwin: 16,
            size_hint: input.len(),
            ..BrotliEncoderParams::default()
        };
        let mut output = Vec::with_capacity(input.len());
        brotli::BrotliCompress(&mut input.as_slice(), &mut output, &params)
            .map_err(|_| CompressionFailed)?;
        Ok(output)
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::Brotli
    }
}

#[derive(Debug)]
struct Zstd;

impl CertCompressor for Zstd {
    fn compress(
        &self,
        input: Vec<u8>,
        wanted: CompressionLevel,
    ) -> Result<Vec<u8>, CompressionFailed> {
        let mut output = Vec::with_capacity(zstd_safe::compress_bound(input.len()));
        zstd_safe::compress(&mut output, &input, level(wanted, 19, 3))
            .map_err(|_| CompressionFailed)?;
        Ok(output)
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::Zstd
    }
}

#[derive(Debug)]
struct Zlib;

impl CertCompressor for Zlib {
    fn compress(
        &self,
        input: Vec<u8>,
        wanted: CompressionLevel,
    ) -> Result<Vec<u8>, CompressionFailed> {
        let level = level(wanted, Compression::best(), Compression::default());
        let mut encoder = ZlibEncoder::new(Vec::with_capacity(input.len()), level);
        encoder.write_all(&input).map_err(|_| CompressionFailed)?;
        encoder.finish().map_err(|_| CompressionFailed)
    }

    fn algorithm(&self) -> Algorithm {
        Algorithm::Zlib
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustls::compress::{CertDecompressor, DecompressionFailed};
    use rustls::version::{TLS12, TLS13};

    use super::*;
    use crate::tests::pair::{client, connect, server};

    /// A client's decompressor, which counts its calls.
    #[derive(Debug)]
    struct Peer(Algorithm, AtomicUsize);

    impl CertDecompressor for Peer {
        fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let plain = decompress(self.0, input);
            if plain.len() != output.len() {
                return Err(DecompressionFailed);
            }
            output.copy_from_slice(&plain);
            Ok(())
        }

        fn algorithm(&self) -> Algorithm {
            self.0
        }
    }

    fn decompress(algorithm: Algorithm, input: &[u8]) -> Vec<u8> {
        let mut plain = Vec::with_capacity(1 << 20);
        match algorithm {
            Algorithm::Zlib => {
                flate2::read::ZlibDecoder::new(input).read_to_end(&mut plain).unwrap();
            }
            Algorithm::Brotli => {
                brotli::Decompressor::new(input, 4096).read_to_end(&mut plain).unwrap();
            }
            _ => drop(zstd_safe::decompress(&mut plain, input).unwrap()),
        }
        plain
    }

    fn peer(algorithm: Algorithm) -> &'static Peer {
        Box::leak(Box::new(Peer(algorithm, AtomicUsize::new(0))))
    }

    #[test]
    fn clients_take_certificates_of_each_kind() {
        for algorithm in [Algorithm::Brotli, Algorithm::Zstd, Algorithm::Zlib] {
            for (version, on, calls) in [(&TLS13, true, 1), (&TLS13, false, 0), (&TLS12, true, 0)] {
                let peer = peer(algorithm);
                let (mut client, mut server) = (client(version), server(version));
                client.cert_decompressors = vec![peer];
                server.cert_compressors = compressors(on);
                connect(&Arc::new(client), &Arc::new(server));
                let decompressed = peer.1.load(Ordering::Relaxed);
                assert_eq!(decompressed, calls, "{algorithm:?}, {version:?}, {on}");
            }
        }
    }

    #[test]
    fn the_server_s_order_decides() {
        let peers = [Algorithm::Zlib, Algorithm::Zstd, Algorithm::Brotli].map(peer);
        let (mut client, mut server) = (client(&TLS13), server(&TLS13));
        client.cert_decompressors = peers.iter().map(|peer| *peer as _).collect();
        server.cert_compressors = compressors(true);
        connect(&Arc::new(client), &Arc::new(server));
        assert_eq!(peers.map(|peer| peer.1.load(Ordering::Relaxed)), [0, 0, 1]);
    }

    #[test]
    fn inputs_of_all_lengths() {
        for compressor in compressors(true) {
            for len in [0, 1, 100, 4000, 70_000] {
                for level in [CompressionLevel::Amortized, CompressionLevel::Interactive] {
                    let plain: Vec<u8> = (0..len).map(|n| (n / 7) as u8).collect();
                    let short = compressor.compress(plain.clone(), level).unwrap();
                    assert_eq!(decompress(compressor.algorithm(), &short), plain, "{compressor:?}");
                }
            }
        }
    }
}
