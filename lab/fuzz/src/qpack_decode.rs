//! Field sections of HTTP/3 and the instructions of an encoder as they arrive: a slow decoder that
//! keeps every entry, and sees the encoder's stream whole, agrees.

use std::cell::RefCell;

use http_wire::h3::{Code, Ends, Fault};
use http_wire::qpack::{Decoded, Decoder, Encoder, Limits, OVERHEAD};
use loona_hpack::huffman::{HuffmanDecoder, HuffmanDecoderError};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Tables, of which the first byte chooses one.
const CAPACITIES: [usize; 4] = [0, 100, 220, 4096];

const LIMITS: Limits = Limits {
    table_capacity: 0,
    blocked_streams: 3,
    blocked_bytes: 300,
    section: 3000,
    text: usize::MAX,
};

/// Why something is not decoded.
type Refused = (Ends, Code);

const BROKEN: Refused = (Ends::Connection, Code::QpackDecompressionFailed);
const BAD_INSTRUCTION: Refused = (Ends::Connection, Code::QpackEncoderStreamError);

/// Records of a byte that says what comes, one with its length, and that: bytes of the encoder's
/// stream, a section, or nothing for a stream that is cancelled and for the end of a turn.
pub fn run(data: &[u8]) {
    let Some((&first, mut rest)) = data.split_first() else { return };
    let capacity = CAPACITIES[usize::from(first) % CAPACITIES.len()];
    let limits = Limits { table_capacity: capacity, ..LIMITS };
    let (mut ours, mut slow) = (Decoder::new(limits), Slow::new(limits));
    let mut seen = Fields::new();
    while let [what, len, behind @ ..] = rest {
        let (bytes, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        let stream = u64::from(what >> 3) << 2;
        let goes_on = match what & 7 {
            0..=2 => instructions(&mut ours, &mut slow, bytes, usize::from(what >> 3) + 1),
            3..=5 => section(&mut ours, &mut slow, stream, bytes, &mut seen),
            6 => {
                ours.cancel(stream);
                slow.cancel(stream);
                true
            }
            _ => {
                let mut out = b"x".to_vec();
                ours.write_instructions(&mut out);
                assert_eq!(out[1..], slow.turn());
                assert!(!ours.has_instructions());
                true
            }
        };
        let bound = capacity + capacity / 4 + 512 + 256 * 12 + 4 * capacity + 8192;
        assert!(ours.memory() <= bound, "{} bytes held", ours.memory());
        if !goes_on {
            break;
        }
    }
    encode(&seen);
}

/// Takes bytes of the encoder's stream, cut into pieces, and what was blocked until then.
fn instructions(ours: &mut Decoder, slow: &mut Slow, bytes: &[u8], piece: usize) -> bool {
    let before = slow.entries.len();
    let expected = slow.instructions(bytes);
    let (mut copied, mut result) = (0, Ok(()));
    for piece in bytes.chunks(piece) {
        match ours.encoder_stream(piece) {
            Ok(more) => copied += more,
            Err(fault) => {
                result = Err((fault.ends, fault.code));
                break;
            }
        }
    }
    if let (Err(refused), Ok(Some(least))) = (&result, &expected) {
        // It cannot fit, whatever follows.
        assert_eq!(*refused, BAD_INSTRUCTION);
        assert!(least + OVERHEAD > slow.capacity);
        return false;
    }
    assert_eq!(result, expected.map(|_| ()));
    assert_eq!(ours.inserted(), slow.entries.len() as u64);
    if result.is_err() {
        return false;
    }
    let size = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len() + OVERHEAD;
    assert_eq!(copied, slow.entries[before..].iter().map(size).sum::<usize>());
    while let Some(held) = ours.unblocked() {
        let waited = slow.unblocked().expect("one that waits no longer");
        assert_eq!(held.stream, waited.stream);
        let mut fields = Fields::new();
        let result =
            ours.decode_held(&held, |name, value| fields.push((name.into(), value.into())));
        if !same(result.map(|()| fields), slow.lines(&waited)) {
            return false;
        }
    }
    assert!(slow.unblocked().is_none());
    true
}

fn section(
    ours: &mut Decoder,
    slow: &mut Slow,
    stream: u64,
    bytes: &[u8],
    seen: &mut Fields,
) -> bool {
    // A stream that waits is not read on.
    if slow.blocked.iter().any(|waiting| waiting.stream == stream) {
        return true;
    }
    let mut fields = Fields::new();
    let take = |name: &[u8], value: &[u8]| fields.push((name.into(), value.into()));
    let decoded = ours.decode(stream, bytes, take);
    let (decoded, expected) = match (decoded, slow.section(stream, bytes)) {
        (Ok(Decoded::Blocked), expected) => {
            assert_eq!((expected, fields.len()), (Ok(None), 0));
            assert_eq!(ours.blocked(), slow.blocked.len());
            return true;
        }
        (decoded, expected) => {
            (decoded.map(|_| fields.clone()), expected.map(|fields| fields.expect("not blocked")))
        }
    };
    let goes_on = same(decoded, expected);
    seen.extend(fields);
    goes_on
}

/// Whether the connection goes on.
fn same(ours: Result<Fields, Fault>, slow: Result<Fields, Refused>) -> bool {
    let ours = ours.map_err(|fault| (fault.ends, fault.code));
    assert_eq!(ours, slow);
    !matches!(ours, Err((Ends::Connection, _)))
}

/// What was read can be written and read again.
fn encode(fields: &Fields) {
    let (mut encoder, mut out) = (Encoder::new(), Vec::new());
    encoder.begin(&mut out);
    for (name, value) in fields {
        encoder.field(name, value, &mut out);
    }
    let mut again = Fields::new();
    let mut decoder = Decoder::new(Limits { section: usize::MAX, ..LIMITS });
    let decoded = decoder.decode(0, &out, |name, value| again.push((name.into(), value.into())));
    assert_eq!(decoded, Ok(Decoded::Whole));
    let lower = |(name, value): &(Vec<u8>, Vec<u8>)| (name.to_ascii_lowercase(), value.clone());
    assert_eq!(again, fields.iter().map(lower).collect::<Fields>());
}

/// The field of the static table.
fn fixed(index: u128) -> Option<(Vec<u8>, Vec<u8>)> {
    let section = match u8::try_from(index).ok()? {
        index @ ..63 => vec![0, 0, 0xc0 | index],
        index @ 63..=98 => vec![0, 0, 0xff, index - 63],
        _ => return None,
    };
    let mut field = None;
    let take = |name: &[u8], value: &[u8]| field = Some((name.into(), value.into()));
    Decoder::new(LIMITS).decode(0, &section, take).expect("an entry");
    field
}

/// A section that waits.
struct Waiting {
    stream: u64,
    required: u128,
    base: u128,
    lines: Vec<u8>,
}

/// A decoder that keeps every entry.
struct Slow {
    limits: Limits,
    entries: Fields,
    /// Entries that were evicted.
    gone: usize,
    capacity: usize,
    /// Bytes of an instruction that is not whole.
    begun: Vec<u8>,
    blocked: Vec<Waiting>,
    acknowledged: u128,
    out: Vec<u8>,
}

/// Why nothing is read.
enum Stop {
    /// Bytes are missing.
    Cut,
    Bad,
}

/// Bytes that are read.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Result<u8, Stop> {
        let (first, rest) = self.0.split_first().ok_or(Stop::Cut)?;
        self.0 = rest;
        Ok(*first)
    }

    fn peek(&self) -> Result<u8, Stop> {
        self.0.first().copied().ok_or(Stop::Cut)
    }

    fn integer(&mut self, bits: u32) -> Result<u128, Stop> {
        let mask = (1u128 << bits) - 1;
        let mut value = u128::from(self.byte()?) & mask;
        if value == mask {
            let mut shift = 0;
            loop {
                let byte = self.byte()?;
                value += u128::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
                if shift == 63 {
                    return Err(Stop::Bad);
                }
            }
        }
        if value < 1 << 62 { Ok(value) } else { Err(Stop::Bad) }
    }

    /// A string whose flag stands above the bits of its length, as it came; `least` grows by what
    /// it has at least.
    fn coded(&mut self, bits: u32, least: &mut usize) -> Result<(bool, Vec<u8>), Stop> {
        let is_huffman = self.peek()? >> bits & 1 == 1;
        let len = self.integer(bits)? as usize;
        let has = if is_huffman { len.saturating_mul(8).saturating_sub(8) / 30 } else { len };
        *least = least.saturating_add(has);
        let (text, rest) = self.0.split_at_checked(len).ok_or(Stop::Cut)?;
        self.0 = rest;
        Ok((is_huffman, text.to_vec()))
    }

    fn string(&mut self, bits: u32) -> Result<Vec<u8>, Stop> {
        self.coded(bits, &mut 0).and_then(decoded)
    }
}

fn decoded((is_huffman, text): (bool, Vec<u8>)) -> Result<Vec<u8>, Stop> {
    if is_huffman { huffman(&text).ok_or(Stop::Bad) } else { Ok(text) }
}

/// Another decoder, which takes no byte of padding behind a whole one.
fn huffman(text: &[u8]) -> Option<Vec<u8>> {
    thread_local! {
        static DECODER: RefCell<HuffmanDecoder> = RefCell::new(HuffmanDecoder::new());
    }
    let decode = |text: &[u8]| DECODER.with_borrow_mut(|decoder| decoder.decode(text));
    match decode(text) {
        Ok(text) => Some(text),
        Err(HuffmanDecoderError::PaddingTooLarge) => {
            let (0xff, before) = text.split_last()? else { return None };
            let decoded = decode(before).ok()?;
            // Nothing pads the rest if a "0" can follow it.
            let longer = decode(&[before, &[7]].concat()).ok()?;
            (longer == [&decoded[..], b"0"].concat()).then_some(decoded)
        }
        Err(_) => None,
    }
}

impl Slow {
    fn new(limits: Limits) -> Slow {
        Slow {
            limits,
            entries: Vec::new(),
            gone: 0,
            capacity: 0,
            begun: Vec::new(),
            blocked: Vec::new(),
            acknowledged: 0,
            out: Vec::new(),
        }
    }

    fn size(&self) -> usize {
        let size = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + value.len() + OVERHEAD;
        self.entries[self.gone..].iter().map(size).sum()
    }

    fn evict(&mut self) {
        while self.size() > self.capacity {
            self.gone += 1;
        }
    }

    /// Carries out what is whole. `Some`: an instruction is not, whose strings have so many bytes
    /// at least.
    fn instructions(&mut self, bytes: &[u8]) -> Result<Option<usize>, Refused> {
        self.begun.extend_from_slice(bytes);
        while !self.begun.is_empty() {
            let begun = std::mem::take(&mut self.begun);
            let mut input = Input(&begun);
            // What its strings have at least.
            let mut least = 0;
            match self.instruction(&mut input, &mut least) {
                Ok(()) => self.begun = input.0.to_vec(),
                Err(Stop::Bad) => return Err(BAD_INSTRUCTION),
                Err(Stop::Cut) => {
                    self.begun = begun;
                    return Ok(Some(least));
                }
            }
        }
        Ok(None)
    }

    fn instruction(&mut self, input: &mut Input, least: &mut usize) -> Result<(), Stop> {
        let first = input.peek()?;
        if first & 0xe0 == 0x20 {
            let capacity = input.integer(5)?;
            if capacity > self.limits.table_capacity as u128 {
                return Err(Stop::Bad);
            }
            self.capacity = capacity as usize;
            self.evict();
            return Ok(());
        }
        let newest = |slow: &Slow, index: u128| {
            let number = (slow.entries.len() as u128).checked_sub(index + 1).ok_or(Stop::Bad)?;
            let number = number as usize;
            if number < slow.gone { Err(Stop::Bad) } else { Ok(slow.entries[number].clone()) }
        };
        let field = if first & 0xe0 == 0 {
            let index = input.integer(5)?;
            newest(self, index)?
        } else if first & 0x80 != 0 {
            let index = input.integer(6)?;
            let value = input.coded(7, least)?;
            let (name, _) = match first & 0x40 {
                0 => newest(self, index)?,
                _ => fixed(index).ok_or(Stop::Bad)?,
            };
            (name, decoded(value)?)
        } else {
            // Nothing is decoded before all of it is there.
            let (name, value) = (input.coded(5, least)?, input.coded(7, least)?);
            (decoded(name)?, decoded(value)?)
        };
        if field.0.len() + field.1.len() + OVERHEAD > self.capacity {
            return Err(Stop::Bad);
        }
        self.entries.push(field);
        self.evict();
        Ok(())
    }

    /// The fields of a section; none if it waits.
    fn section(&mut self, stream: u64, bytes: &[u8]) -> Result<Option<Fields>, Refused> {
        let mut input = Input(bytes);
        let (required, base) = self.prefix(&mut input).map_err(|_| BROKEN)?;
        let waiting = Waiting { stream, required, base, lines: input.0.to_vec() };
        if required <= self.entries.len() as u128 {
            return self.lines(&waiting).map(Some);
        }
        let bytes: usize = self.blocked.iter().map(|waiting| waiting.lines.len()).sum();
        if self.blocked.len() == self.limits.blocked_streams {
            return Err(BROKEN);
        }
        if bytes + waiting.lines.len() > self.limits.blocked_bytes {
            return Err((Ends::Stream, Code::RequestRejected));
        }
        self.blocked.push(waiting);
        Ok(None)
    }

    fn prefix(&self, input: &mut Input) -> Result<(u128, u128), Stop> {
        let encoded = input.integer(8)?;
        let entries_max = (self.limits.table_capacity / OVERHEAD) as u128;
        let inserted = self.entries.len() as u128;
        let mut required = 0;
        if encoded > 0 {
            if encoded > 2 * entries_max {
                return Err(Stop::Bad);
            }
            // The only number in a window around those that came which is encoded so.
            let mut window = 1..=inserted + entries_max;
            let is_it =
                |n: &u128| n % (2 * entries_max) + 1 == encoded && n + entries_max > inserted;
            required = window.find(is_it).ok_or(Stop::Bad)?;
        }
        let sign = input.peek()? & 0x80 != 0;
        let delta = input.integer(7)?;
        let base = if sign { required.checked_sub(delta + 1) } else { Some(required + delta) };
        Ok((required, base.ok_or(Stop::Bad)?))
    }

    fn entry(&self, number: Option<u128>, required: u128) -> Result<(Vec<u8>, Vec<u8>), Stop> {
        let number = number.filter(|number| *number < required).ok_or(Stop::Bad)? as usize;
        if number < self.gone { Err(Stop::Bad) } else { Ok(self.entries[number].clone()) }
    }

    fn lines(&mut self, section: &Waiting) -> Result<Fields, Refused> {
        let Waiting { stream, required, base, ref lines } = *section;
        let mut input = Input(lines);
        let (mut fields, mut size) = (Fields::new(), 0);
        while !input.0.is_empty() {
            let field = self.line(&mut input, required, base).map_err(|_| BROKEN)?;
            size += field.0.len() + field.1.len() + OVERHEAD;
            if size > self.limits.section {
                return Err(BROKEN);
            }
            fields.push(field);
        }
        if required > 0 {
            integer(0x80, 7, stream, &mut self.out);
            self.acknowledged = self.acknowledged.max(required);
        }
        Ok(fields)
    }

    fn line(
        &self,
        input: &mut Input,
        required: u128,
        base: u128,
    ) -> Result<(Vec<u8>, Vec<u8>), Stop> {
        let first = input.peek()?;
        let below = |index: u128| self.entry(base.checked_sub(index + 1), required);
        let behind = |index: u128| self.entry(Some(base + index), required);
        let fixed = |index| fixed(index).ok_or(Stop::Bad);
        if first & 0x80 != 0 {
            let index = input.integer(6)?;
            return if first & 0x40 != 0 { fixed(index) } else { below(index) };
        }
        if first & 0xf0 == 0x10 {
            return behind(input.integer(4)?);
        }
        let name = match first >> 4 {
            4..=7 => {
                let index = input.integer(4)?;
                if first & 0x10 != 0 { fixed(index)?.0 } else { below(index)?.0 }
            }
            2 | 3 => input.string(3)?,
            _ => behind(input.integer(3)?)?.0,
        };
        Ok((name, input.string(7)?))
    }

    fn unblocked(&mut self) -> Option<Waiting> {
        let inserted = self.entries.len() as u128;
        let at = self.blocked.iter().position(|waiting| waiting.required <= inserted)?;
        Some(self.blocked.remove(at))
    }

    fn cancel(&mut self, stream: u64) {
        self.blocked.retain(|waiting| waiting.stream != stream);
        if self.limits.table_capacity > 0 {
            integer(0x40, 6, stream, &mut self.out);
        }
    }

    /// The instructions of a turn.
    fn turn(&mut self) -> Vec<u8> {
        let inserted = self.entries.len() as u128;
        if inserted > self.acknowledged {
            integer(0, 6, (inserted - self.acknowledged) as u64, &mut self.out);
            self.acknowledged = inserted;
        }
        std::mem::take(&mut self.out)
    }
}

fn integer(flags: u8, bits: u32, value: u64, out: &mut Vec<u8>) {
    let mask = (1 << bits) - 1;
    if value < mask {
        return out.push(flags | value as u8);
    }
    out.push(flags | mask as u8);
    let mut rest = value - mask;
    while rest > 127 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}
