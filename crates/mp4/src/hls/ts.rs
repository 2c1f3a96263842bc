//! Packets of an MPEG transport stream (ISO/IEC 13818-1): tables, and elementary streams in PES
//! packets.

/// Bytes of a packet.
pub(super) const PACKET: usize = 188;
const SYNC: u8 = 0x47;
const PMT_PID: u16 = 0x1000;
const PROGRAM: u16 = 1;
/// Times have 33 bits.
const TIME_MASK: u64 = (1 << 33) - 1;

/// An elementary stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub pid: u16,
    /// The type of stream in the program map (table 2-34).
    pub stream_type: u8,
    /// The stream's number in PES headers.
    pub stream_id: u8,
    continuity: u8,
    /// Whether a packet was written.
    started: bool,
}

/// A PES packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pes<'a> {
    pub pts: u64,
    /// Written if it differs from `pts`.
    pub dts: u64,
    /// The clock, if it is written with this packet.
    pub pcr: Option<u64>,
    /// A player may begin here.
    pub is_key: bool,
    pub data: &'a [u8],
}

impl Stream {
    pub fn new(pid: u16, stream_type: u8, stream_id: u8) -> Stream {
        Stream { pid, stream_type, stream_id, continuity: 0, started: false }
    }

    /// Writes a PES packet.
    pub fn write(&mut self, pes: &Pes<'_>, out: &mut Vec<u8>) {
        let header = self.header(pes);
        let mut parts = [header.as_slice(), pes.data];
        let mut adaptation = self.adaptation(pes);
        let mut is_start = true;
        while parts.iter().any(|part| !part.is_empty()) {
            let left = parts[0].len() + parts[1].len();
            let room = PACKET - 4 - adaptation.len();
            pad(&mut adaptation, room.saturating_sub(left));
            let has = if adaptation.is_empty() { 0x10 } else { 0x30 };
            let pid = self.pid.to_be_bytes();
            let first = if is_start { 0x40 } else { 0 } | pid[0];
            out.extend_from_slice(&[SYNC, first, pid[1], has | self.continuity]);
            self.continuity = (self.continuity + 1) & 15;
            out.extend_from_slice(&adaptation);
            let mut room = PACKET - 4 - adaptation.len();
            for part in &mut parts {
                let (now, later) = part.split_at(room.min(part.len()));
                out.extend_from_slice(now);
                (*part, room) = (later, room - now.len());
            }
            adaptation.clear();
            is_start = false;
        }
        self.started = true;
    }

    /// The adaptation field of the first packet.
    fn adaptation(&self, pes: &Pes<'_>) -> Vec<u8> {
        // Continuity counters begin anew with each fragment.
        let discontinuity = if self.started { 0 } else { 0x80 };
        let random_access = if pes.is_key { 0x40 } else { 0 };
        let has_pcr = if pes.pcr.is_some() { 0x10 } else { 0 };
        let flags = discontinuity | random_access | has_pcr;
        if flags == 0 {
            return Vec::new();
        }
        let mut field = vec![1, flags];
        if let Some(pcr) = pes.pcr {
            field[0] = 7;
            // 33 bits of the clock, 6 reserved bits, 9 bits of its 300th parts.
            let bits = (pcr & TIME_MASK) << 15 | 0x7e00;
            field.extend_from_slice(&bits.to_be_bytes()[2..]);
        }
        field
    }

    fn header(&self, pes: &Pes<'_>) -> Vec<u8> {
        let has_dts = pes.dts != pes.pts;
        let times = if has_dts { 10 } else { 5 };
        let len = 3 + usize::from(times) + pes.data.len();
        // The length of video may be left open, which is written as 0.
        let len = match self.stream_id {
            VIDEO_ID => 0,
            _ => u16::try_from(len).unwrap_or(0),
        };
        let mut header = vec![0, 0, 1, self.stream_id];
        header.extend_from_slice(&len.to_be_bytes());
        // The data begins with an access unit (data_alignment_indicator).
        header.extend_from_slice(&[0x84, if has_dts { 0xc0 } else { 0x80 }, times]);
        header.extend_from_slice(&time(if has_dts { 3 } else { 2 }, pes.pts));
        if has_dts {
            header.extend_from_slice(&time(1, pes.dts));
        }
        header
    }
}

/// PES packets of video.
pub(super) const VIDEO_ID: u8 = 0xe0;
/// PES packets of audio.
pub(super) const AUDIO_ID: u8 = 0xc0;

/// Makes an adaptation field longer by so many bytes.
fn pad(field: &mut Vec<u8>, mut n: usize) {
    if n > 0 && field.is_empty() {
        field.push(0);
        n -= 1;
    }
    if n > 0 && field.len() == 1 {
        // No flags.
        field.push(0);
        n -= 1;
    }
    field.resize(field.len() + n, 0xff);
    if let Some(len) = field.len().checked_sub(1) {
        field[0] = len as u8;
    }
}

/// A time with marker bits between its parts.
fn time(prefix: u8, ticks: u64) -> [u8; 5] {
    let ticks = ticks & TIME_MASK;
    [
        prefix << 4 | ((ticks >> 29) as u8 & 0x0e) | 1,
        (ticks >> 22) as u8,
        (ticks >> 14) as u8 | 1,
        (ticks >> 7) as u8,
        (ticks << 1) as u8 | 1,
    ]
}

/// Writes the tables at the start of a fragment: one program with these streams.
pub(super) fn write_tables<'a>(
    clock_pid: u16,
    streams: impl Iterator<Item = &'a Stream>,
    out: &mut Vec<u8>,
) {
    let mut programs = PROGRAM.to_be_bytes().to_vec();
    programs.extend_from_slice(&(0xe000 | PMT_PID).to_be_bytes());
    // The stream's number.
    write_table(0, 0, 1, &programs, out);
    let mut map = (0xe000 | clock_pid).to_be_bytes().to_vec();
    map.extend_from_slice(&[0xf0, 0]);
    for stream in streams {
        map.push(stream.stream_type);
        map.extend_from_slice(&(0xe000 | stream.pid).to_be_bytes());
        map.extend_from_slice(&[0xf0, 0]);
    }
    write_table(PMT_PID, 2, PROGRAM, &map, out);
}

/// Writes a table of one section as one packet.
fn write_table(pid: u16, table: u8, id: u16, content: &[u8], out: &mut Vec<u8>) {
    let mut section = vec![table];
    // The rest of the section's header, and the checksum.
    let len = content.len() as u16 + 9;
    section.extend_from_slice(&(0xb000 | len).to_be_bytes());
    section.extend_from_slice(&id.to_be_bytes());
    // Version 0, current, section 0 of 0.
    section.extend_from_slice(&[0xc1, 0, 0]);
    section.extend_from_slice(content);
    let sum = checksum(&section);
    section.extend_from_slice(&sum.to_be_bytes());
    let start = out.len();
    let pid = pid.to_be_bytes();
    out.extend_from_slice(&[SYNC, 0x40 | pid[0], pid[1], 0x10, 0]);
    out.extend_from_slice(&section);
    out.resize(start + PACKET, 0xff);
}

/// CRC-32 of MPEG-2 (annex A): the bits in network order, without a final inversion.
fn checksum(data: &[u8]) -> u32 {
    data.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte) << 24, |sum, _| {
            if sum >> 31 == 1 { sum << 1 ^ 0x04c1_1db7 } else { sum << 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_mpeg() {
        assert_eq!(checksum(b"123456789"), 0x0376_e6e7);
    }

    #[test]
    fn packets_have_188_bytes_whatever_the_data_has() {
        for len in 0..600 {
            let mut stream = Stream::new(0x100, 0x1b, VIDEO_ID);
            let (mut out, data) = (Vec::new(), vec![0xab; len]);
            let mut pes = Pes { pts: 1, dts: 1, pcr: Some(1), is_key: true, data: &data };
            stream.write(&pes, &mut out);
            (pes.pcr, pes.is_key, pes.dts) = (None, false, 0);
            stream.write(&pes, &mut out);
            assert_eq!(out.len() % PACKET, 0);
            let mut payload = Vec::new();
            for (n, packet) in out.chunks(PACKET).enumerate() {
                assert_eq!((packet[0], packet[3] & 15), (0x47, n as u8 & 15));
                let adaptation = if packet[3] & 0x20 == 0 { 0 } else { 1 + usize::from(packet[4]) };
                payload.extend_from_slice(&packet[4 + adaptation..]);
            }
            assert_eq!(payload.len(), 14 + len + 19 + len, "{len}");
        }
    }

    #[test]
    fn times_have_markers() {
        assert_eq!(time(2, 0), [0x21, 0, 1, 0, 1]);
        assert_eq!(time(3, TIME_MASK), [0x3f, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(time(2, 90_000), [0x21, 0, 0x05, 0xbf, 0x21]);
    }
}
