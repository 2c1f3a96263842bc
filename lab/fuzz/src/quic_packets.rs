//! Parts of a client's packets that a server reads by itself: the header of an Initial packet, the
//! messages of the handshake, and frames about paths. A slow reader of the parts agrees, whatever
//! their order.

use proto::quic::{Messages, PathFrame, initial, path_frames};

/// The first byte chooses the reader.
pub fn run(data: &[u8]) {
    let [mode, rest @ ..] = data else { return };
    match mode % 3 {
        0 => header(rest),
        1 => messages(rest),
        _ => paths(rest),
    }
}

/// What is read lies inside the packet, and does not depend on what follows its end; a packet that
/// is cut is none.
fn header(data: &[u8]) {
    let Some(found) = initial(data) else { return };
    assert!(found.number_at + 20 <= found.end && found.end <= data.len());
    assert!(found.destination.len() <= 20);
    assert_eq!(initial(&data[..found.end]), Some(found));
    assert_eq!(initial(&data[..found.end - 1]), None);
    assert_eq!(data[5..].first(), Some(&(found.destination.len() as u8)));
    assert_eq!(&data[6..6 + found.destination.len()], found.destination);
}

/// Records of an offset, a length and a packet's number: pieces of one text, in CRYPTO frames among
/// others. The text is whole as far as every byte of it came, whatever the order.
fn messages(data: &[u8]) {
    let text: Vec<u8> = (0..2_000u32).map(|n| (n * 7 + n / 251) as u8).collect();
    let (mut messages, mut came) = (Messages::default(), vec![false; text.len()]);
    for record in data.chunks_exact(4) {
        let at = usize::from(record[0]) * 8 % text.len();
        let len = (usize::from(record[1]) * 2).min(text.len() - at);
        let mut payload = match record[2] % 6 {
            0 => vec![0, 0, 1],
            1 => vec![2, 9, 9, 1, 9, 9, 9],
            2 => vec![3, 9, 9, 0, 9, 1, 2, 3],
            // What may not be there, and what is cut, is an end, and no panic.
            3 => {
                let mut other = Messages::default();
                let _ = other.take(&data[..usize::from(record[3]).min(data.len())]);
                assert!(other.bytes().len() <= data.len());
                Vec::new()
            }
            _ => Vec::new(),
        };
        payload.push(6);
        for n in [at, len] {
            payload.extend((0x4000 | n as u16).to_be_bytes());
        }
        payload.extend(&text[at..at + len]);
        if messages.take(&payload).is_err() {
            // There is too much of it.
            return;
        }
        came[at..at + len].fill(true);
        let whole = came.iter().take_while(|came| **came).count();
        assert!(messages.bytes() == &text[..whole], "{} of {whole}", messages.bytes().len());
    }
}

/// Frames that are written are found, up to what is no frame.
fn paths(data: &[u8]) {
    path_frames(data, |_| {});
    let (mut wire, mut expected) = (Vec::new(), Vec::new());
    for record in data.chunks_exact(9) {
        let of = *record[1..].first_chunk::<8>().expect("nine bytes");
        match record[0] % 8 {
            0 => {
                wire.push(0x1a);
                wire.extend(of);
                expected.push(PathFrame::Challenge(of));
            }
            1 => {
                wire.push(0x1b);
                wire.extend(of);
                expected.push(PathFrame::Response(of));
            }
            // Whatever their contents look like.
            2 => {
                wire.extend([6, 0, 8]);
                wire.extend(of);
            }
            3 => {
                wire.extend([0xe, 4, 0x40, 0, 8]);
                wire.extend(of);
            }
            4 => {
                wire.extend([0x18, 1, 0, 8]);
                wire.extend(of);
                wire.extend([0x1a; 16]);
            }
            5 => {
                wire.extend([7, 8]);
                wire.extend(of);
            }
            6 => wire.extend([0, 1, 0x1e, 0x10, 0x1a, 0x19, 0x1b]),
            // The rest of the packet, or nothing that is known.
            _ => {
                wire.extend(if of[0] % 2 == 0 { [8, 4] } else { [0x1c, 0] });
                wire.extend(data);
                break;
            }
        }
    }
    let mut found = Vec::new();
    path_frames(&wire, |frame| found.push(frame));
    assert_eq!(found, expected);
}
