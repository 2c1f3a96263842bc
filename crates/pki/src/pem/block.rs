//! The blocks of a PEM text (RFC 7468, and RFC 1421 for headers), by OpenSSL's rules.

use zeroize::Zeroizing;

use super::error::{BAD_BASE64, BAD_END_LINE};

pub(crate) struct Block<'a> {
    /// The name in its first line.
    pub(crate) label: &'a [u8],
    /// The lines in front of the data, without the blank one behind them; usually none.
    pub(crate) header: Lines<'a>,
    pub(crate) data: Zeroizing<Vec<u8>>,
}

impl Block<'_> {
    /// Whether its header says that the data is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        let Some(value) = self.header.first().and_then(|line| line.strip_prefix(b"Proc-Type:"))
        else {
            return false;
        };
        let rest = value.trim_ascii_start().strip_prefix(b"4");
        rest.and_then(|rest| rest.trim_ascii_start().strip_prefix(b","))
            .is_some_and(|rest| rest.trim_ascii_start() == b"ENCRYPTED")
    }
}

/// Lines of a text.
type Lines<'a> = Vec<&'a [u8]>;

/// The blocks of a text. The first error is the last item.
pub(crate) struct Blocks<'a> {
    rest: &'a [u8],
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Blocks<'a> {
        Blocks { rest: text }
    }

    /// The next line without what is blank at its end.
    fn line(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let end = memchr(self.rest).unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest.get(1..).unwrap_or_default();
        let blank = line.iter().rev().take_while(|byte| **byte <= b' ').count();
        line.get(..line.len() - blank)
    }

    /// The lines of a block up to the last one: its header and its data.
    fn lines(&mut self, label: &[u8]) -> Result<(Lines<'a>, Lines<'a>), &'static str> {
        let (mut header, mut data) = (Lines::new(), Lines::new());
        let mut is_behind_blank = false;
        loop {
            let line = self.line().ok_or(BAD_END_LINE)?;
            if let Some(end) = line.strip_prefix(b"-----END ") {
                if end.strip_suffix(b"-----") != Some(label) {
                    return Err(BAD_END_LINE);
                }
                break;
            }
            match line {
                b"" if is_behind_blank => return Err(BAD_END_LINE),
                // The line taken for data is the header.
                b"" => {
                    is_behind_blank = true;
                    header = std::mem::take(&mut data);
                }
                line => data.push(line),
            }
        }
        Ok((header, data))
    }

    fn block(&mut self, label: &'a [u8]) -> Result<Block<'a>, &'static str> {
        let (header, lines) = self.lines(label)?;
        let text = Zeroizing::new(lines.concat());
        Ok(Block { label, header, data: decode(&text).ok_or(BAD_BASE64)? })
    }
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Result<Block<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = self.line()?;
            let label = line.strip_prefix(b"-----BEGIN ");
            let Some(label) = label.and_then(|rest| rest.strip_suffix(b"-----")) else { continue };
            let block = self.block(label);
            if block.is_err() {
                self.rest = &[];
            }
            return Some(block);
        }
    }
}

fn memchr(text: &[u8]) -> Option<usize> {
    text.iter().position(|byte| *byte == b'\n')
}

/// Base64 with complete padding and nothing behind it. Blanks may stand anywhere.
fn decode(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut digits = Zeroizing::new(Vec::with_capacity(text.len()));
    digits.extend(text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()));
    let text = digits;
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let digits = text.get(..text.len() - padding)?;
    if !text.len().is_multiple_of(4) || padding > 2 || digits.contains(&b'=') {
        return None;
    }
    // Room for all of it at once: growing would leave copies behind.
    let mut out = Zeroizing::new(Vec::with_capacity(text.len() / 4 * 3 + 3));
    base::base64::decode(&text, &mut out).then_some(out)
}
