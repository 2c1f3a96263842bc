//! Sections into fields, and the table that they refer to.

use super::held::{Held, Waiting};
use super::instruction::{self, Coded, Instruction, Name, NoInstruction, Room};
use super::section::{BadSection, Prefix, Tables};
use super::{OVERHEAD, static_table};
use crate::compression::integer;
use crate::compression::scratch::{Scratch, Text};
use crate::compression::table::{NAME_COPIED_MAX, Table};
use crate::h3::{Code, Fault};

/// Limits of what a decoder takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The largest table, as SETTINGS_QPACK_MAX_TABLE_CAPACITY announces it.
    pub table_capacity: usize,
    /// Sections that may wait for entries, as SETTINGS_QPACK_BLOCKED_STREAMS announces it.
    pub blocked_streams: usize,
    /// Bytes of all sections that wait.
    pub blocked_bytes: usize,
    /// Bytes of the fields of a section, with 32 for each (RFC 9114 section 4.2.2).
    pub section: usize,
    /// Bytes of a name or a value of a new entry, as they come.
    pub text: usize,
}

/// The result for a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decoded {
    /// All of its fields were given out.
    Whole,
    /// It waits for entries of the table, and [`Decoder::unblocked`] has it later. Nothing was
    /// given out.
    Blocked,
}

/// Decodes the field sections of one direction of a connection.
pub struct Decoder {
    table: Table<()>,
    limits: Limits,
    /// Insertions so far.
    inserted: u64,
    /// Insertions that the peer knows us to have.
    acknowledged: u64,
    /// The beginning of an instruction.
    begun: Vec<u8>,
    scratch: Scratch,
    waiting: Waiting,
    /// Instructions for the peer's encoder.
    out: Vec<u8>,
}

impl Decoder {
    /// A decoder with a table of no capacity, which the peer's encoder sets.
    pub fn new(limits: Limits) -> Decoder {
        Decoder {
            table: Table::new(0),
            limits,
            inserted: 0,
            acknowledged: 0,
            begun: Vec::new(),
            scratch: Scratch::default(),
            waiting: Waiting::default(),
            out: Vec::new(),
        }
    }

    /// Insertions into the table so far.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Sections that wait.
    pub fn blocked(&self) -> usize {
        self.waiting.len()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        let buffers = self.begun.capacity() + self.scratch.memory() + self.out.capacity();
        self.table.memory() + buffers + self.waiting.bytes()
    }

    /// Takes bytes of the peer's encoder stream, cut anywhere. Returns the bytes that were copied
    /// into the table for them, of which an instruction of one byte may ask for as many as the
    /// table has: they are the work that a flood makes.
    ///
    /// # Errors
    /// The connection ends.
    pub fn encoder_stream(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let (mut rest, mut copied) = (bytes, 0);
        while !self.begun.is_empty() && !rest.is_empty() {
            // No more is gathered than the instruction needs.
            let missing = match instruction::parse(&self.begun, self.room()) {
                Err(NoInstruction::Cut(missing)) => missing,
                _ => 0,
            };
            let (more, behind) = rest.split_at(missing.min(rest.len()));
            self.begun.extend_from_slice(more);
            rest = behind;
            let begun = std::mem::take(&mut self.begun);
            match self.execute(&begun)? {
                Some((_, size)) => copied += size,
                None => self.begun = begun,
            }
        }
        while !rest.is_empty() {
            let Some((used, size)) = self.execute(rest)? else {
                self.begun.extend_from_slice(rest);
                break;
            };
            copied += size;
            rest = rest.get(used..).unwrap_or_default();
        }
        self.scratch.shrink();
        Ok(copied)
    }

    /// Carries out the instruction at the beginning of `bytes`: its length, and the size of the
    /// entry that it made. `None`: it is not whole.
    fn execute(&mut self, bytes: &[u8]) -> Result<Option<(usize, usize)>, Fault> {
        let (instruction, len) = match instruction::parse(bytes, self.room()) {
            Ok(parsed) => parsed,
            Err(NoInstruction::Cut(_)) => return Ok(None),
            Err(NoInstruction::Integer) => return refuse("too large integer on encoder stream"),
            Err(NoInstruction::TooLarge) => return refuse(TOO_LARGE),
            Err(NoInstruction::TooLong) => {
                return Err(Fault::connection(Code::ExcessiveLoad, "too large field line"));
            }
        };
        let size = match instruction {
            Instruction::Insert { name, value } => self.insert(name, value)?,
            Instruction::Capacity(capacity) => self.set_capacity(capacity)?,
            Instruction::Duplicate(index) => self.duplicate(index)?,
        };
        Ok(Some((len, size)))
    }

    /// The room for a new entry.
    fn room(&self) -> Room {
        Room { entry: self.table.size_max().checked_sub(OVERHEAD), text: self.limits.text }
    }

    fn set_capacity(&mut self, capacity: u64) -> Result<usize, Fault> {
        match usize::try_from(capacity) {
            Ok(capacity) if capacity <= self.limits.table_capacity => {
                self.table.set_size_max(capacity);
                Ok(0)
            }
            _ => refuse("too large dynamic table capacity"),
        }
    }

    /// The age of the entry behind an index relative to the newest one.
    fn age(&self, index: u64) -> usize {
        usize::try_from(index).map_or(usize::MAX, |index| index.saturating_add(1))
    }

    fn insert(&mut self, name: Name, value: Coded) -> Result<usize, Fault> {
        self.scratch.clear();
        let mut shared = None;
        let name = match name {
            Name::Static(index) => match static_table::get(index) {
                Some((name, _)) => Text::Plain(name),
                None => return refuse(NO_ENTRY),
            },
            Name::Dynamic(index) => {
                let age = self.age(index);
                let Some((name, _)) = self.table.get(age) else { return refuse(NO_ENTRY) };
                // The new entry may evict the one whose name it takes (section 3.2.2).
                if name.len() > NAME_COPIED_MAX {
                    shared = self.table.shared_name(age);
                    Text::Plain(&[])
                } else {
                    Text::Scratch(self.scratch.copy(name))
                }
            }
            Name::Literal(name) => read(name, &mut self.scratch)?,
        };
        let value = read(value, &mut self.scratch)?;
        let name = shared.as_deref().unwrap_or(name.of(&self.scratch));
        let value = value.of(&self.scratch);
        if !self.table.fits(name, value) {
            return refuse(TOO_LARGE);
        }
        let size = name.len() + value.len() + OVERHEAD;
        self.table.insert(name, value, shared.clone());
        self.inserted += 1;
        Ok(size)
    }

    fn duplicate(&mut self, index: u64) -> Result<usize, Fault> {
        let age = self.age(index);
        let Some((name, value)) = self.table.get(age) else { return refuse(NO_ENTRY) };
        let size = name.len() + value.len() + OVERHEAD;
        self.scratch.clear();
        let (name, value) = (self.scratch.copy(name), self.scratch.copy(value));
        let shared = self.table.shared_name(age);
        self.table.insert(self.scratch.get(&name), self.scratch.get(&value), shared);
        self.inserted += 1;
        Ok(size)
    }

    /// Decodes a whole section of a stream, calling `field` with each name and value in order. The
    /// table is not changed by it: an error of the stream's leaves the decoder as it was.
    ///
    /// # Errors
    /// The connection ends, or the stream, of which [`Decoder::cancel`] is to be told.
    #[inline]
    pub fn decode(
        &mut self,
        stream: u64,
        section: &[u8],
        field: impl FnMut(&[u8], &[u8]),
    ) -> Result<Decoded, Fault> {
        let mut lines = section;
        let entries_max = (self.limits.table_capacity / OVERHEAD) as u64;
        let prefix = Prefix::read(&mut lines, self.inserted, entries_max).map_err(bad)?;
        if prefix.required > self.inserted {
            return self.hold(stream, prefix, lines);
        }
        self.decode_lines(stream, prefix, lines, field)?;
        Ok(Decoded::Whole)
    }

    /// Decodes a section that [`Decoder::unblocked`] gave out, as [`Decoder::decode`] does.
    ///
    /// # Errors
    /// As there.
    pub fn decode_held(
        &mut self,
        held: &Held,
        field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Fault> {
        self.decode_lines(held.stream, held.prefix, &held.lines, field)
    }

    #[inline]
    fn decode_lines(
        &mut self,
        stream: u64,
        prefix: Prefix,
        lines: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Fault> {
        let tables = Tables { dynamic: &self.table, inserted: self.inserted, prefix };
        let (mut rest, mut room) = (lines, self.limits.section);
        while !rest.is_empty() {
            let (name, value) = tables.line(&mut rest, &mut self.scratch).map_err(bad)?;
            let (name, value) = (name.of(&self.scratch), value.of(&self.scratch));
            match room.checked_sub(name.len() + value.len() + OVERHEAD) {
                Some(left) => room = left,
                None => {
                    let code = Code::QpackDecompressionFailed;
                    return Err(Fault::connection(code, "a field section beyond all limits"));
                }
            }
            field(name, value);
        }
        self.scratch.shrink();
        if prefix.required > 0 {
            self.acknowledge(stream, prefix.required);
        }
        Ok(())
    }

    fn acknowledge(&mut self, stream: u64, required: u64) {
        integer::write_long(0x80, 7, stream, &mut self.out);
        self.acknowledged = self.acknowledged.max(required);
    }

    #[cold]
    fn hold(&mut self, stream: u64, prefix: Prefix, lines: &[u8]) -> Result<Decoded, Fault> {
        if self.waiting.len() >= self.limits.blocked_streams {
            let code = Code::QpackDecompressionFailed;
            return Err(Fault::connection(code, "too many blocked streams"));
        }
        if self.waiting.bytes() + lines.len() > self.limits.blocked_bytes {
            return Err(Fault::stream(Code::RequestRejected, "too large blocked streams"));
        }
        self.waiting.push(Held { stream, prefix, lines: lines.to_vec() });
        Ok(Decoded::Blocked)
    }

    /// A section whose entries have come since it was blocked: to be decoded by
    /// [`Decoder::decode_held`]. Ask for more until there is none, behind each call of
    /// [`Decoder::encoder_stream`].
    pub fn unblocked(&mut self) -> Option<Held> {
        self.waiting.ready(self.inserted)
    }

    /// A stream was reset, or is not read to its end: its section is forgotten, and the peer told
    /// (section 2.2.2.2).
    pub fn cancel(&mut self, stream: u64) {
        self.waiting.of(stream);
        // Nothing of a stream refers to a table that there never is.
        if self.limits.table_capacity > 0 {
            integer::write_long(0x40, 6, stream, &mut self.out);
        }
    }

    /// Whether [`Decoder::write_instructions`] has anything to write.
    pub fn has_instructions(&self) -> bool {
        !self.out.is_empty() || self.inserted > self.acknowledged
    }

    /// Appends the instructions for the peer's encoder that are due, for our decoder stream. Called
    /// at the end of a turn, it acknowledges all insertions of the turn at once.
    pub fn write_instructions(&mut self, out: &mut Vec<u8>) {
        if self.inserted > self.acknowledged {
            integer::write_long(0, 6, self.inserted - self.acknowledged, &mut self.out);
            self.acknowledged = self.inserted;
        }
        if out.is_empty() {
            std::mem::swap(out, &mut self.out);
        } else {
            out.append(&mut self.out);
        }
    }
}

const TOO_LARGE: &str = "an insertion that is larger than the dynamic table";
const NO_ENTRY: &str = "an encoder instruction with an invalid index";

/// The string of an instruction.
fn read<'a>(coded: Coded<'a>, scratch: &mut Scratch) -> Result<Text<'a>, Fault> {
    let Coded { is_huffman, text } = coded;
    let read = scratch.read(is_huffman, text.len(), &mut &*text);
    read.or_else(|_| refuse("invalid Huffman code on encoder stream"))
}

#[cold]
fn refuse<T>(what: &'static str) -> Result<T, Fault> {
    Err(Fault::connection(Code::QpackEncoderStreamError, what))
}

#[cold]
fn bad(bad: BadSection) -> Fault {
    Fault::connection(Code::QpackDecompressionFailed, bad.message())
}
