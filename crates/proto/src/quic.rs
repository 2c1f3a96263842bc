//! The first packets of a QUIC client (RFC 9000 section 17.2.2), as far as a server looks at them
//! before it makes a connection: whose hello it is.

use std::collections::BTreeMap;

/// The header of an Initial packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Initial<'a> {
    /// The version of QUIC that the client speaks.
    pub version: u32,
    /// The id of the server's end.
    pub destination: &'a [u8],
    /// The id of the client's end.
    pub source: &'a [u8],
    /// The token; empty where there is none.
    pub token: &'a [u8],
    /// The place of the packet's number, which is protected.
    pub number_at: usize,
    /// The end of the packet: others may follow in its datagram.
    pub end: usize,
}

/// The longest id of version 1, bytes.
const ID_MAX: usize = 20;

/// The bytes that a sample for the protection of the header takes, behind the longest number.
const SAMPLED: usize = 4 + 16;

/// A reader of bytes.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    /// A number of RFC 9000 section 16.
    fn varint(&mut self) -> Option<u64> {
        let first = self.byte()?;
        let more = self.take((1 << (first >> 6)) - 1)?;
        Some(more.iter().fold(u64::from(first & 0x3f), |n, &b| n << 8 | u64::from(b)))
    }

    /// Bytes behind their number.
    fn counted(&mut self) -> Option<()> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.take(len).map(drop)
    }

    /// The rest of an ACK frame.
    fn ack(&mut self, has_counts: bool) -> Option<()> {
        self.varint()?;
        self.varint()?;
        let ranges = self.varint()?;
        self.varint()?;
        for _ in 0..ranges {
            self.varint()?;
            self.varint()?;
        }
        for _ in 0..if has_counts { 3 } else { 0 } {
            self.varint()?;
        }
        Some(())
    }

    fn id(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.byte()?);
        if len > ID_MAX { None } else { self.take(len) }
    }
}

/// The Initial packet in front of these bytes, if it is one and whole.
pub fn initial(bytes: &[u8]) -> Option<Initial<'_>> {
    let mut input = Input(bytes);
    // The long form, and the type. The fixed bit between them may have any value: a client that
    // remembers that the server takes such packets draws it at random (RFC 9287 section 3.1).
    if input.byte()? & 0xb0 != 0x80 {
        return None;
    }
    let version = input.take(4)?.iter().fold(0, |n, &b| n << 8 | u32::from(b));
    let destination = input.id()?;
    let source = input.id()?;
    let token = usize::try_from(input.varint()?).ok()?;
    let token = input.take(token)?;
    let len = usize::try_from(input.varint()?).ok()?;
    let number_at = bytes.len() - input.0.len();
    let end = number_at.checked_add(len).filter(|&end| end <= bytes.len())?;
    let packet = Initial { version, destination, source, token, number_at, end };
    (len >= SAMPLED).then_some(packet)
}

/// The frames that prove an address (RFC 9000 section 8.2), of a packet of an established
/// connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathFrame {
    /// PATH_CHALLENGE.
    Challenge([u8; 8]),
    /// PATH_RESPONSE.
    Response([u8; 8]),
}

/// Gives the frames about paths in a payload to `found`, up to a frame that is not known.
pub fn path_frames(payload: &[u8], mut found: impl FnMut(PathFrame)) {
    let mut input = Input(payload);
    while !input.0.is_empty() && path_frame(&mut input, &mut found).is_some() {}
}

fn path_frame(input: &mut Input<'_>, found: &mut impl FnMut(PathFrame)) -> Option<()> {
    let kind = input.varint()?;
    let numbers = match kind {
        // PADDING, PING, HANDSHAKE_DONE, IMMEDIATE_ACK.
        0 | 1 | 0x1e | 0x1f => 0,
        2 | 3 => return input.ack(kind == 3),
        // RESET_STREAM, STOP_SENDING.
        4 => 3,
        5 => 2,
        // CRYPTO and NEW_TOKEN.
        6 => {
            input.varint()?;
            return input.counted();
        }
        7 => return input.counted(),
        // STREAM.
        8..=0xf => {
            input.varint()?;
            if kind & 4 != 0 {
                input.varint()?;
            }
            return if kind & 2 != 0 {
                input.counted()
            } else {
                input.take(input.0.len()).map(drop)
            };
        }
        // MAX_DATA and MAX_STREAMS, and what is blocked without them.
        0x10 | 0x12..=0x14 | 0x16 | 0x17 => 1,
        // The same of a stream.
        0x11 | 0x15 => 2,
        // NEW_CONNECTION_ID.
        0x18 => {
            input.varint()?;
            input.varint()?;
            input.id()?;
            return input.take(16).map(drop);
        }
        // RETIRE_CONNECTION_ID.
        0x19 => 1,
        0x1a | 0x1b => {
            let data = *input.take(8)?.first_chunk::<8>()?;
            found(match kind {
                0x1a => PathFrame::Challenge(data),
                _ => PathFrame::Response(data),
            });
            0
        }
        // ACK_FREQUENCY.
        0xaf => 4,
        // The connection ends, or it is a frame of an extension.
        _ => return None,
    };
    for _ in 0..numbers {
        input.varint()?;
    }
    Some(())
}

/// The messages of a handshake, of which parts come in any order.
#[derive(Default)]
pub struct Messages {
    /// From the first byte on, without a gap.
    whole: Vec<u8>,
    /// Parts behind a gap, by their places.
    parts: BTreeMap<usize, Vec<u8>>,
    held: usize,
}

/// The most bytes that are kept: those of the longest hello that is read, and parts that overlap.
const HELD_MAX: usize = 64 << 10;

/// The frames of a packet are not those of an Initial packet, or there is too much of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadFrames;

impl Messages {
    /// Takes the CRYPTO frames of an Initial packet's payload.
    ///
    /// # Errors
    /// It has frames that it may not have, or a part of one, or a client sends without an end.
    pub fn take(&mut self, payload: &[u8]) -> Result<(), BadFrames> {
        let mut input = Input(payload);
        while !input.0.is_empty() {
            self.frame(&mut input).ok_or(BadFrames)?;
        }
        Ok(())
    }

    /// The messages from the first one on, as far as they came.
    pub fn bytes(&self) -> &[u8] {
        &self.whole
    }

    fn frame(&mut self, input: &mut Input<'_>) -> Option<()> {
        match input.varint()? {
            // PADDING and PING.
            0 | 1 => {}
            // ACK, with ranges, and with counts of marked packets.
            kind @ (2 | 3) => input.ack(kind == 3)?,
            // CRYPTO.
            6 => {
                let at = usize::try_from(input.varint()?).ok()?;
                let len = usize::try_from(input.varint()?).ok()?;
                self.part(at, input.take(len)?)?;
            }
            // CONNECTION_CLOSE: nothing follows.
            0x1c => input.0 = &[],
            _ => return None,
        }
        Some(())
    }

    fn part(&mut self, at: usize, bytes: &[u8]) -> Option<()> {
        if at > HELD_MAX || self.held + bytes.len() > HELD_MAX {
            return None;
        }
        self.held += bytes.len();
        if at > self.whole.len() {
            let known = self.parts.entry(at).or_default();
            if known.len() < bytes.len() {
                *known = bytes.to_vec();
            }
            return Some(());
        }
        self.append(at, bytes);
        while let Some(entry) = self.parts.first_entry().filter(|e| *e.key() <= self.whole.len()) {
            let (at, bytes) = entry.remove_entry();
            self.append(at, &bytes);
        }
        Some(())
    }

    /// Adds what is new of bytes that begin at or before the end.
    fn append(&mut self, at: usize, bytes: &[u8]) {
        self.whole.extend_from_slice(bytes.get(self.whole.len() - at..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9001 appendix A.2: the header of the client's Initial packet.
    const HEADER: [u8; 18] = [
        0xc3, 0x00, 0x00, 0x00, 0x01, 0x08, 0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08, 0x00,
        0x00, 0x44, 0x9e,
    ];

    #[test]
    fn the_header_of_an_initial_packet() {
        let mut packet = HEADER.to_vec();
        packet.resize(1200, 7);
        let found = initial(&packet).unwrap();
        assert_eq!((found.version, found.destination), (1, &HEADER[6..14]));
        assert_eq!((found.number_at, found.end), (18, 1200));
        for n in 0..1200 {
            assert_eq!(initial(&packet[..n]), None, "{n} bytes of it");
        }
        packet[0] = 0x83;
        assert_eq!(initial(&packet).map(|found| found.end), Some(1200), "without the fixed bit");
        let others = [0x43, 0xd3, 0xe3, 0xf3, 0x93];
        assert!(others.iter().all(|&first| {
            packet[0] = first;
            initial(&packet).is_none()
        }));
    }

    #[test]
    fn ids_have_an_end() {
        let mut packet = vec![0xc0, 0, 0, 0, 1, 21];
        packet.resize(1300, 0);
        assert_eq!(initial(&packet), None);
        packet[5] = 20;
        packet[26..30].copy_from_slice(&[0, 0, 0x44, 0x00]);
        assert_eq!(initial(&packet).unwrap().destination.len(), 20);
    }

    fn crypto(at: u8, text: &[u8]) -> Vec<u8> {
        [&[6, at, text.len() as u8], text].concat()
    }

    #[test]
    fn parts_come_in_any_order() {
        let text = b"a hello in parts";
        let parts = [(0, 5), (5, 9), (7, 12), (11, 16)];
        let frames = parts.map(|(a, b)| crypto(a as u8, &text[a..b]));
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
            let mut messages = Messages::default();
            for i in order {
                let payload = [&[0, 0, 1], &frames[i][..], &[2, 9, 9, 1, 9, 9, 9, 0]].concat();
                messages.take(&payload).unwrap();
            }
            assert_eq!(messages.bytes(), text, "{order:?}");
        }
    }

    #[test]
    fn frames_of_other_packets_are_refused() {
        for payload in [&[8, 0][..], &[6, 0, 5, 1], &[0x40], &[2, 0, 0, 1, 0]] {
            assert_eq!(Messages::default().take(payload), Err(BadFrames), "{payload:?}");
        }
        assert_eq!(Messages::default().take(&[0x1c, 0, 0, 0]), Ok(()));
    }

    #[test]
    fn frames_about_paths_are_found_among_others() {
        let others: [&[u8]; 16] = [
            &[0, 0, 1, 0x1e, 0x1f],
            &[2, 9, 9, 1, 9, 9, 9],
            &[3, 9, 9, 0, 9, 1, 2, 3],
            &[4, 1, 2, 3],
            &[5, 1, 2],
            &[6, 0, 2, 7, 7],
            &[7, 1, 7],
            &[0xa, 4, 2, 0x1a, 0x1a],
            &[0xf, 4, 0x40, 9, 1, 0x1b],
            &[0x10, 5, 0x12, 5, 0x13, 5, 0x14, 5, 0x16, 5, 0x17, 5],
            &[0x11, 4, 5, 0x15, 4, 5],
            &[0x18, 3, 1, 4, 9, 9, 9, 9],
            &[0x1a; 16],
            &[0x19, 2],
            &[0x40, 0xaf, 1, 2, 3, 4],
            &[],
        ];
        let mut payload = Vec::new();
        // The token of NEW_CONNECTION_ID stands behind it in the list.
        for other in others {
            payload.extend_from_slice(other);
        }
        payload.extend_from_slice(&[0x1a, 1, 2, 3, 4, 5, 6, 7, 8]);
        payload.extend_from_slice(&[0x1b, 8, 7, 6, 5, 4, 3, 2, 1]);
        payload.extend_from_slice(&[8, 4, 0x1a, 1, 2, 3, 4, 5, 6, 7, 8]);
        let mut all = Vec::new();
        path_frames(&payload, |frame| all.push(frame));
        let wanted = [
            PathFrame::Challenge([1, 2, 3, 4, 5, 6, 7, 8]),
            PathFrame::Response([8, 7, 6, 5, 4, 3, 2, 1]),
        ];
        assert_eq!(all, wanted);
        for n in 0..payload.len() {
            path_frames(&payload[..n], |_| {});
        }
    }

    #[test]
    fn a_client_does_not_send_without_an_end() {
        let mut messages = Messages::default();
        let part = crypto(1, &[0; 60]);
        let taken = (0..10_000).take_while(|_| messages.take(&part).is_ok()).count();
        assert_eq!(taken, HELD_MAX / 60);
        assert!(messages.bytes().is_empty());
    }
}
