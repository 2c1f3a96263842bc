//! The kind and size of an image, read from its first bytes without decoding it.

/// The kinds that are worked on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Jpeg,
    Gif,
    Png,
    WebP,
}

/// The least that is looked at.
const LEAST: usize = 16;

impl Kind {
    /// Recognizes a format by the bytes at the front.
    pub fn of(image: &[u8]) -> Option<Kind> {
        if image.len() < LEAST {
            return None;
        }
        match image {
            [0xff, 0xd8, ..] => Some(Kind::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Kind::Gif),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Kind::Png),
            _ if image.starts_with(b"RIFF") && &image[8..12] == b"WEBP" => Some(Kind::WebP),
            _ => None,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Kind::Jpeg => "image/jpeg",
            Kind::Gif => "image/gif",
            Kind::Png => "image/png",
            Kind::WebP => "image/webp",
        }
    }

    pub fn name(self) -> &'static str {
        &self.content_type()["image/".len()..]
    }
}

/// An image's size in pixels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    pub width: u32,
    pub height: u32,
    /// So much of a JPEG is told about it (Exif and the like) that it is worth being written anew.
    pub padded: bool,
}

/// The size that the header tells.
pub fn measure(kind: Kind, image: &[u8]) -> Option<Size> {
    let (width, height) = match kind {
        Kind::Jpeg => return jpeg(image),
        Kind::Gif => (little(image, 6, 2)?, little(image, 8, 2)?),
        Kind::Png => (big(image, 16, 4)?, big(image, 20, 4)?),
        Kind::WebP => webp(image)?,
    };
    Some(Size { width, height, padded: false })
}

fn little(image: &[u8], at: usize, len: usize) -> Option<u32> {
    let bytes = image.get(at..at + len)?;
    Some(bytes.iter().rev().fold(0, |n, byte| n << 8 | u32::from(*byte)))
}

fn big(image: &[u8], at: usize, len: usize) -> Option<u32> {
    let bytes = image.get(at..at + len)?;
    Some(bytes.iter().fold(0, |n, byte| n << 8 | u32::from(*byte)))
}

/// ITU T.81, annex B: segments, of which those of a frame tell the size.
fn jpeg(image: &[u8]) -> Option<Size> {
    let (mut at, mut told, mut size) = (2, 0, None);
    while let Some(&[0xff, mark]) = image.get(at..at + 2) {
        if mark == 0xff {
            at += 1;
            continue;
        }
        // The scan: nothing but data follows.
        if mark == 0xda {
            break;
        }
        let len = big(image, at + 2, 2)? as usize;
        match mark {
            0xc0..=0xc3 | 0xc9..=0xcb if size.is_none() => {
                size = Some((big(image, at + 7, 2)?, big(image, at + 5, 2)?));
            }
            0xe1..=0xef => told += len,
            _ => {}
        }
        at += 2 + len.max(2);
    }
    let (width, height) = size.filter(|(width, height)| *width > 0 && *height > 0)?;
    Some(Size { width, height, padded: image.len() / 20 < told })
}

/// RFC 9649: a lossy, a lossless or an extended file.
fn webp(image: &[u8]) -> Option<(u32, u32)> {
    match image.get(12..16)? {
        b"VP8 " => {
            // A key frame, and its start code.
            let ok = image.get(20)? & 1 == 0 && image.get(23..26)? == b"\x9d\x01\x2a";
            ok.then_some((little(image, 26, 2)? & 0x3fff, little(image, 28, 2)? & 0x3fff))
        }
        b"VP8L" if *image.get(20)? == 0x2f => {
            let bits = little(image, 21, 4)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => Some((little(image, 24, 3)? + 1, little(image, 27, 3)? + 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u32, height: u32) -> Option<Size> {
        Some(Size { width, height, padded: false })
    }

    #[test]
    fn kinds_and_sizes() {
        let gif = b"GIF89a\x0a\x00\x14\x01\0\0\0\0\0\0";
        assert_eq!(Kind::of(gif), Some(Kind::Gif));
        assert_eq!(measure(Kind::Gif, gif), size(10, 276));
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\x01\0\0";
        assert_eq!(Kind::of(png), Some(Kind::Png));
        assert_eq!(measure(Kind::Png, png), size(256, 65536));
        let jpeg = b"\xff\xd8\xff\xe0\0\x04xx\xff\xff\xc2\0\x0b\x08\0\x10\0\x20\x01\0\0\0\xff\xda";
        assert_eq!(Kind::of(jpeg), Some(Kind::Jpeg));
        assert_eq!(measure(Kind::Jpeg, jpeg), size(32, 16));
        let told =
            b"\xff\xd8\xff\xe1\0\x08Exif\0\0\xff\xc0\0\x0b\x08\0\x10\0\x20\x01\0\0\0\xff\xda";
        assert!(measure(Kind::Jpeg, told).is_some_and(|size| size.padded));
        let mut webp = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x63\0\0\xc7\0\0".to_vec();
        assert_eq!(Kind::of(&webp), Some(Kind::WebP));
        assert_eq!(measure(Kind::WebP, &webp), size(100, 200));
        webp[15] = b'L';
        webp[20] = 0x2f;
        webp[21..25].copy_from_slice(&(99u32 | 199 << 14).to_le_bytes());
        assert_eq!(measure(Kind::WebP, &webp), size(100, 200));
    }

    #[test]
    fn what_is_cut_off_or_no_image() {
        for text in [&b""[..], b"GIF89a", b"<html><body></body></html>", &[0; 100]] {
            assert_eq!(Kind::of(text), None);
        }
        for kind in [Kind::Jpeg, Kind::Gif, Kind::Png, Kind::WebP] {
            for image in [&b""[..], b"\xff\xd8\xff", b"\xff\xd8\xff\xc0\xff\xff", &[0xff; 64]] {
                assert!(kind == Kind::Gif || measure(kind, image).is_none_or(|s| s.width > 0));
            }
        }
    }
}
