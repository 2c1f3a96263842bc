//! Codecs: their parameters in the sample descriptions (`stsd`), and their samples as elementary
//! streams. H.264 becomes a byte stream (ISO/IEC 14496-10, Annex B), AAC gets ADTS headers.

use super::super::atom::{atoms, u32_at};
use super::super::{Fault, too_small};

/// A codec with its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Codec {
    H264(H264),
    Aac(Aac),
    Mp3 { rate: u32 },
}

/// H.264's parameters (`avcC`, ISO/IEC 14496-15).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct H264 {
    /// Bytes of the length before each NAL unit: 1 to 4.
    length_size: usize,
    /// The parameter sets, with start codes.
    sets: Vec<u8>,
}

/// The fields of an ADTS header that all frames share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Aac {
    /// The object type minus 1.
    profile: u8,
    /// The index of the sampling rate.
    rate: u8,
    channels: u8,
}

const START_CODE: [u8; 4] = [0, 0, 0, 1];
/// An access unit delimiter for any type of slice.
const DELIMITER: [u8; 6] = [0, 0, 0, 1, 9, 0xf0];
/// The type of NAL units that delimit access units.
const DELIMITER_TYPE: u8 = 9;
/// ISO/IEC 14496-3, table 1.18.
const RATES: [u32; 13] =
    [96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350];
/// An ADTS frame has a length of 13 bits.
const ADTS_MAX: usize = (1 << 13) - 1;

/// The codec of the first sample description.
///
/// # Errors
/// The description is malformed, or has another codec.
pub(super) fn read(stsd: &[u8]) -> Result<Codec, Fault> {
    let entry = match atoms(stsd.get(8..).unwrap_or_default()).next() {
        Some(entry) => entry?,
        None => return Err(too_small("stsd")),
    };
    match &entry.name {
        b"avc1" | b"avc3" => H264::read(entry.data).map(Codec::H264),
        b"mp4a" => audio(entry.data),
        b".mp3" => Ok(Codec::Mp3 { rate: rate_of(entry.data) }),
        name => {
            let name = name.escape_ascii();
            Err(Fault::of_file(format!("has the codec {name}, which hls does not support")))
        }
    }
}

impl H264 {
    fn read(entry: &[u8]) -> Result<H264, Fault> {
        // The fields of a visual sample entry, before its atoms.
        let config = child(entry, 78, b"avcC")?.ok_or_else(|| too_small("avcC"))?;
        let length_size = config.get(4).map_or(0, |byte| usize::from(byte & 3) + 1);
        let (mut sets, mut rest) = (Vec::new(), config.get(5..).unwrap_or_default());
        for mask in [31, 255] {
            let (count, mut behind) = rest.split_first().ok_or_else(|| too_small("avcC"))?;
            for _ in 0..count & mask {
                let set = behind.split_first_chunk().and_then(|(len, behind)| {
                    behind.split_at_checked(usize::from(u16::from_be_bytes(*len)))
                });
                let (set, next) = set.ok_or_else(|| too_small("avcC"))?;
                sets.extend_from_slice(&START_CODE);
                sets.extend_from_slice(set);
                behind = next;
            }
            rest = behind;
        }
        if length_size == 3 {
            return Err(Fault::in_file("NAL units with lengths of 3 bytes"));
        }
        Ok(H264 { length_size, sets })
    }

    /// Appends a sample as an access unit.
    pub fn write(&self, sample: &[u8], key: bool, out: &mut Vec<u8>) -> Result<(), Fault> {
        out.extend_from_slice(&DELIMITER);
        if key {
            // A player may begin here.
            out.extend_from_slice(&self.sets);
        }
        let mut rest = sample;
        while !rest.is_empty() {
            let unit = rest.split_at_checked(self.length_size).and_then(|(len, behind)| {
                let len = len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
                behind.split_at_checked(len)
            });
            let Some((unit, behind)) = unit else {
                return Err(Fault::in_file("NAL unit is larger than its sample"));
            };
            rest = behind;
            if unit.first().is_some_and(|first| first & 31 != DELIMITER_TYPE) {
                out.extend_from_slice(&START_CODE);
                out.extend_from_slice(unit);
            }
        }
        Ok(())
    }
}

/// An atom in a sample entry, after `fields` bytes of fields.
fn child<'a>(entry: &'a [u8], fields: usize, name: &[u8; 4]) -> Result<Option<&'a [u8]>, Fault> {
    for atom in atoms(entry.get(fields..).unwrap_or_default()) {
        let atom = atom?;
        if atom.name == *name {
            return Ok(Some(atom.data));
        }
    }
    Ok(None)
}

/// The sampling rate of an audio sample entry.
fn rate_of(entry: &[u8]) -> u32 {
    u32_at(entry, 24).map_or(0, |rate| rate >> 16)
}

fn audio(entry: &[u8]) -> Result<Codec, Fault> {
    // Versions 1 and 2 are QuickTime's.
    let fields = match entry.get(8..10) {
        Some([0, 0]) => 28,
        Some([0, 1]) => 44,
        Some([0, 2]) => 64,
        _ => return Err(too_small("mp4a")),
    };
    let esds = match child(entry, fields, b"esds")? {
        Some(esds) => Some(esds),
        None => match child(entry, fields, b"wave")? {
            Some(wave) => child(wave, 0, b"esds")?,
            None => None,
        },
    };
    let esds = esds.and_then(|esds| esds.get(4..)).ok_or_else(|| too_small("esds"))?;
    let small = || too_small("esds");
    let stream = descriptor(esds, 3).ok_or_else(small)?;
    // An identifier and flags; the flags tell of three optional fields.
    let flags = *stream.get(2).ok_or_else(small)?;
    let mut fields = 3;
    if flags & 0x80 != 0 {
        fields += 2;
    }
    if flags & 0x40 != 0 {
        fields += 1 + usize::from(*stream.get(fields).ok_or_else(small)?);
    }
    if flags & 0x20 != 0 {
        fields += 2;
    }
    let config = stream.get(fields..).and_then(|rest| descriptor(rest, 4)).ok_or_else(small)?;
    match config.first() {
        Some(0x40 | 0x66..=0x68) => {
            let specific = config.get(13..).and_then(|rest| descriptor(rest, 5));
            Aac::read(specific.ok_or_else(small)?).map(Codec::Aac)
        }
        Some(0x69 | 0x6b) => Ok(Codec::Mp3 { rate: rate_of(entry) }),
        Some(other) => {
            let what = format!("has audio of type 0x{other:02x}, which hls does not support");
            Err(Fault::of_file(what))
        }
        None => Err(small()),
    }
}

/// The content of the first descriptor, if it has this tag (ISO/IEC 14496-1).
fn descriptor(data: &[u8], tag: u8) -> Option<&[u8]> {
    let (first, mut rest) = data.split_first()?;
    let mut len = 0;
    for _ in 0..4 {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        len = len << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    // Some writers give a length that is too large.
    (*first == tag).then(|| &rest[..len.min(rest.len())])
}

impl Aac {
    /// Reads an AudioSpecificConfig (ISO/IEC 14496-3, 1.6.2.1).
    fn read(config: &[u8]) -> Result<Aac, Fault> {
        let mut bits = Bits { data: config, at: 0 };
        let mut read = || -> Option<(u32, Option<usize>, u32)> {
            let (kind, rate, channels) = (bits.object_type()?, bits.rate()?, bits.take(4)?);
            if matches!(kind, 5 | 29) {
                // High efficiency: the rate of the extension, then the core's object type.
                bits.rate()?;
                return Some((bits.object_type()?, rate, channels));
            }
            Some((kind, rate, channels))
        };
        let (kind, rate, channels) = read().ok_or_else(|| too_small("esds"))?;
        match (kind, rate, channels) {
            (1..=4, Some(rate), 1..=7) => {
                Ok(Aac { profile: kind as u8 - 1, rate: rate as u8, channels: channels as u8 })
            }
            _ => Err(Fault::of_file(format!(
                "has AAC of object type {kind} with channel configuration {channels}, which hls \
                 does not support"
            ))),
        }
    }

    /// Appends a frame behind its ADTS header.
    pub fn write(self, frame: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
        let len = frame.len() + 7;
        if len > ADTS_MAX {
            return Err(Fault::in_file(format!("AAC frame of {} bytes", frame.len())));
        }
        let channels = self.channels;
        out.extend_from_slice(&[
            0xff,
            // MPEG-4, without a checksum.
            0xf1,
            self.profile << 6 | self.rate << 2 | channels >> 2,
            (channels & 3) << 6 | (len >> 11) as u8,
            (len >> 3) as u8,
            ((len & 7) << 5) as u8 | 0x1f,
            // A variable rate, one raw data block.
            0xfc,
        ]);
        out.extend_from_slice(frame);
        Ok(())
    }
}

struct Bits<'a> {
    data: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, n: usize) -> Option<u32> {
        let mut value = 0;
        for _ in 0..n {
            let byte = *self.data.get(self.at / 8)?;
            value = value << 1 | u32::from(byte >> (7 - self.at % 8) & 1);
            self.at += 1;
        }
        Some(value)
    }

    fn object_type(&mut self) -> Option<u32> {
        match self.take(5)? {
            31 => Some(32 + self.take(6)?),
            kind => Some(kind),
        }
    }

    /// The index of a sampling rate; the inner `None` is a rate that ADTS does not have.
    fn rate(&mut self) -> Option<Option<usize>> {
        let index = match self.take(4)? {
            15 => {
                let rate = self.take(24)?;
                RATES.iter().position(|known| *known == rate)
            }
            index => Some(index as usize),
        };
        Some(index.filter(|index| *index < RATES.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_audio_specific_configs() {
        let aac = |profile, rate, channels| Ok(Aac { profile, rate, channels });
        // LC, 44100 Hz, stereo.
        assert_eq!(Aac::read(&[0x12, 0x10]), aac(1, 4, 2));
        // High efficiency: 24000 Hz, extended to 48000, LC within.
        assert_eq!(Aac::read(&[0x2b, 0x11, 0x88]), aac(1, 6, 2));
        // A rate that is written out: 48000.
        assert_eq!(Aac::read(&[0x17, 0x80, 0x5d, 0xc0, 0x10]), aac(1, 3, 2));
        for bad in [&[][..], &[0x12], &[0x12, 0x00], &[0x17, 0x80, 0x5d, 0xc1, 0x10], &[0xff; 4]] {
            assert!(Aac::read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn writes_adts_headers() {
        let mut out = Vec::new();
        let aac = Aac { profile: 1, rate: 4, channels: 2 };
        aac.write(&[7; 3], &mut out).unwrap();
        assert_eq!(out, [0xff, 0xf1, 0x50, 0x80, 0x01, 0x5f, 0xfc, 7, 7, 7]);
        assert!(aac.write(&[0; 8185], &mut out).is_err());
    }

    #[test]
    fn writes_access_units() {
        let h264 = H264 { length_size: 2, sets: vec![0, 0, 0, 1, 0x67] };
        let write = |sample: &[u8], key| {
            let mut out = Vec::new();
            h264.write(sample, key, &mut out).map(|()| out)
        };
        let key = write(&[0, 2, 9, 0xf0, 0, 0, 0, 2, 0x65, 5], true).unwrap();
        assert_eq!(key, [0, 0, 0, 1, 9, 0xf0, 0, 0, 0, 1, 0x67, 0, 0, 0, 1, 0x65, 5]);
        let other = write(&[0, 1, 0x41], false).unwrap();
        assert_eq!(other, [0, 0, 0, 1, 9, 0xf0, 0, 0, 0, 1, 0x41]);
        for bad in [&[0][..], &[0, 2, 1], &[0xff, 0xff, 1]] {
            assert!(write(bad, false).is_err(), "{bad:?}");
        }
    }
}
