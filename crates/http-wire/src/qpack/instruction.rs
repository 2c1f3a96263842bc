//! The instructions of an encoder (section 4.3), as they come.

use crate::compression::{Malformed, integer};

/// A string as it stands in an instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coded<'a> {
    pub is_huffman: bool,
    pub text: &'a [u8],
}

/// The name of a new entry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'a> {
    /// That of an entry of the static table.
    Static(u64),
    /// That of an entry of the dynamic table; 0 is the newest one.
    Dynamic(u64),
    Literal(Coded<'a>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Instruction<'a> {
    Insert {
        name: Name<'a>,
        value: Coded<'a>,
    },
    Capacity(u64),
    /// A copy of an entry; 0 is the newest one.
    Duplicate(u64),
}

/// Why there is no instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoInstruction {
    /// So many bytes are missing at least.
    Cut(usize),
    /// An integer is too large.
    Integer,
    /// The entry is larger than the table.
    TooLarge,
    /// The name or the value is longer than one may be.
    TooLong,
}

/// The room for a new entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes of its name and its value that fit into the table; none where no entry does.
    pub entry: Option<usize>,
    /// The most bytes of either, as they come.
    pub text: usize,
}

type Parsed<T> = Result<T, NoInstruction>;

/// The instruction at the beginning of `bytes`, and its length. Strings that do not
/// fit into the room are refused before they come.
pub(super) fn parse(bytes: &[u8], mut room: Room) -> Parsed<(Instruction<'_>, usize)> {
    let (&first, mut input) = bytes.split_first().ok_or(NoInstruction::Cut(1))?;
    let instruction = match first {
        0x80.. => {
            let index = number(first, 6, &mut input)?;
            let name = if first & 0x40 != 0 { Name::Static(index) } else { Name::Dynamic(index) };
            Instruction::Insert { name, value: value(&mut input, &mut room)? }
        }
        0x40.. => {
            let name = Name::Literal(string(first, 5, &mut input, &mut room)?);
            Instruction::Insert { name, value: value(&mut input, &mut room)? }
        }
        0x20.. => Instruction::Capacity(number(first, 5, &mut input)?),
        _ => Instruction::Duplicate(number(first, 5, &mut input)?),
    };
    Ok((instruction, bytes.len() - input.len()))
}

fn number(first: u8, bits: u32, input: &mut &[u8]) -> Parsed<u64> {
    integer::read_long(first, bits, input).map_err(|malformed| match malformed {
        Malformed::CutInteger => NoInstruction::Cut(1),
        _ => NoInstruction::Integer,
    })
}

fn value<'a>(input: &mut &'a [u8], room: &mut Room) -> Parsed<Coded<'a>> {
    let (&first, rest) = input.split_first().ok_or(NoInstruction::Cut(1))?;
    *input = rest;
    string(first, 7, input, room)
}

fn string<'a>(first: u8, bits: u32, input: &mut &'a [u8], room: &mut Room) -> Parsed<Coded<'a>> {
    let is_huffman = first & 1 << bits != 0;
    let len = usize::try_from(number(first, bits, input)?).map_err(|_| NoInstruction::TooLarge)?;
    // A symbol has 30 bits at most, and the padding eight.
    let least = if is_huffman { (len.saturating_mul(8)).saturating_sub(8) / 30 } else { len };
    room.entry = room.entry.and_then(|room| room.checked_sub(least));
    if room.entry.is_none() {
        return Err(NoInstruction::TooLarge);
    }
    if len > room.text {
        return Err(NoInstruction::TooLong);
    }
    let Some((text, rest)) = input.split_at_checked(len) else {
        return Err(NoInstruction::Cut(len - input.len()));
    };
    *input = rest;
    Ok(Coded { is_huffman, text })
}
