//! Unidirectional streams (RFC 9114 section 6.2): their types, and which of them a peer may open.

use super::{Code, Fault, Role, varint};

/// The type of a unidirectional stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Frames of the connection: [`super::control`].
    Control,
    /// The instructions of an encoder of QPACK.
    Encoder,
    /// The instructions of a decoder of QPACK.
    Decoder,
    /// A type that is unknown or reserved: nothing of it is read (RFC 9114 section 6.2.3).
    Unknown,
}

const CONTROL: u64 = 0;
const PUSH: u64 = 1;
const ENCODER: u64 = 2;
const DECODER: u64 = 3;

/// Writes the type that a stream of ours begins with.
pub fn write_kind(out: &mut Vec<u8>, kind: Kind) {
    let number = match kind {
        Kind::Control => CONTROL,
        Kind::Encoder => ENCODER,
        Kind::Decoder => DECODER,
        // The first of those that are reserved for it.
        Kind::Unknown => 0x21,
    };
    varint::write(number, out);
}

/// Reads the type that a stream begins with. A stream may end before it is whole.
#[derive(Debug, Default)]
pub struct Reader {
    begun: [u8; varint::LEN_MAX],
    begun_len: u8,
}

impl Reader {
    /// Reads on: the bytes of `input` that it takes, and the type's number. Without that, it takes
    /// all of them.
    pub fn next(&mut self, input: &[u8]) -> (usize, Option<u64>) {
        for (at, byte) in input.iter().enumerate() {
            let len = usize::from(self.begun_len);
            if let Some(place) = self.begun.get_mut(len) {
                *place = *byte;
            }
            self.begun_len += 1;
            if let Some((number, _)) = varint::read(self.begun.get(..=len).unwrap_or_default()) {
                self.begun_len = 0;
                return (at + 1, Some(number));
            }
        }
        (input.len(), None)
    }
}

/// The streams that a peer has opened, of which it may have one each.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    role: Role,
    control: bool,
    encoder: bool,
    decoder: bool,
}

impl Opened {
    /// None yet; `role` is ours.
    pub fn new(role: Role) -> Opened {
        Opened { role, control: false, encoder: false, decoder: false }
    }

    /// A stream of the type with this number was opened.
    ///
    /// # Errors
    /// The connection ends.
    pub fn open(&mut self, number: u64) -> Result<Kind, Fault> {
        let (place, kind) = match number {
            CONTROL => (&mut self.control, Kind::Control),
            ENCODER => (&mut self.encoder, Kind::Encoder),
            DECODER => (&mut self.decoder, Kind::Decoder),
            PUSH => return Err(push(self.role)),
            _ => return Ok(Kind::Unknown),
        };
        if std::mem::replace(place, true) {
            let what = "a second control, encoder or decoder stream";
            return Err(Fault::connection(Code::StreamCreationError, what));
        }
        Ok(kind)
    }
}

#[cold]
fn push(role: Role) -> Fault {
    match role {
        Role::Server => Fault::connection(Code::StreamCreationError, "a push stream"),
        Role::Client => Fault::connection(Code::IdError, "a push that was not allowed"),
    }
}

/// The fault of a peer that ends one of the streams which last as long as the connection.
pub const CLOSED: Fault =
    Fault::connection(Code::ClosedCriticalStream, "the end of a critical stream");
