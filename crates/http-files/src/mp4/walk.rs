//! From atom to atom of a file, until the index and the data are found.

use std::io;
use std::ops::Range;

use ::mp4::atom::{HEADER_MAX, Header, copy};
use ::mp4::{Fault, Layout, Window};
use bytes::Bytes;

/// The limits on reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// At once, to find the index.
    pub buffer: usize,
    /// The size of the largest index that is read.
    pub moov_max: u64,
    /// The directive that sets `moov_max`.
    pub directive: &'static str,
}

/// A part of a film: what stands before its data, and what of the file that is.
#[derive(Debug)]
pub(super) struct Film {
    pub head: Bytes,
    pub data: Range<u64>,
}

/// The reason that there is none.
#[derive(Debug)]
pub(crate) enum Trouble {
    Fault(Fault),
    Io(io::Error),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Trouble {
        Trouble::Fault(fault)
    }
}

/// Reads bytes at a place, at most the given number and at least one; none behind the end.
pub(crate) type Read<'a> = &'a mut dyn FnMut(u64, usize) -> io::Result<Bytes>;

/// A type atom has some names in it.
const FTYP_MAX: u64 = 1024;

/// Finds the part of a film in a window; `None` where the file as it is does.
pub(super) fn film(
    read: Read<'_>,
    file_len: u64,
    limits: Limits,
    window: &Window,
) -> Result<Option<Film>, Trouble> {
    let mut file = File { read, len: file_len, limits, ahead: ReadAhead::default() };
    let (mut ftyp, mut moov, mut mdat) = (None, None, None);
    let mut pos = 0;
    while pos < file_len && (moov.is_none() || mdat.is_none()) {
        let head = file.bytes(pos, HEADER_MAX.min((file_len - pos) as usize))?;
        let Some(header) = Header::read(&head, file_len - pos)? else { break };
        let data = pos + header.len..pos + header.size;
        let (size, duplicate) = (data.end - data.start, |name| {
            Trouble::Fault(Fault::in_file(format!("duplicate mp4 {name} atom")))
        });
        match &header.name {
            b"ftyp" if size > FTYP_MAX => {
                return Err(Fault::of_file(format!("mp4 ftyp atom is too large:{size}")).into());
            }
            b"ftyp" if ftyp.is_some() => return Err(duplicate("ftyp")),
            b"ftyp" => ftyp = Some(file.bytes(data.start, size as usize)?),
            b"moov" if moov.is_some() => return Err(duplicate("moov")),
            b"moov" if mdat.is_none() && window.start_ms == 0 && window.length_ms == 0 => {
                // The index is before the data already, and all of it is wanted.
                return Ok(None);
            }
            b"moov" => moov = Some(file.index(data.start, size)?),
            b"mdat" if mdat.is_some() => return Err(duplicate("mdat")),
            b"mdat" => mdat = Some(data),
            _ => {}
        }
        pos += header.size;
    }
    let Some(moov) = moov else {
        return Err(Fault::in_file("no mp4 trak atoms were found").into());
    };
    let Some(mdat) = mdat else {
        return Err(Fault::in_file("no mp4 mdat atom was found").into());
    };
    let mut head = Vec::new();
    copy(&mut head, b"ftyp", ftyp.as_deref());
    let layout = Layout { ftyp_len: head.len() as u64, mdat, file_len };
    let cut = ::mp4::cut(&moov, &layout, window)?;
    head.extend_from_slice(&cut.head);
    Ok(Some(Film { head: Bytes::from(head), data: cut.data }))
}

/// The length of a film in milliseconds; `None` where it is not told.
pub(super) fn length_ms(
    read: Read<'_>,
    file_len: u64,
    limits: Limits,
) -> Result<Option<u64>, Trouble> {
    match index(read, file_len, limits)? {
        Some(moov) => Ok(::mp4::length_ms(&moov)?),
        None => Ok(None),
    }
}

/// The content of a file's first `moov` atom, if it has one.
pub(crate) fn index(
    read: Read<'_>,
    file_len: u64,
    limits: Limits,
) -> Result<Option<Bytes>, Trouble> {
    let mut file = File { read, len: file_len, limits, ahead: ReadAhead::default() };
    let mut pos = 0;
    while pos < file_len {
        let head = file.bytes(pos, HEADER_MAX.min((file_len - pos) as usize))?;
        let Some(header) = Header::read(&head, file_len - pos)? else { break };
        if &header.name == b"moov" {
            return file.index(pos + header.len, header.size - header.len).map(Some);
        }
        pos += header.size;
    }
    Ok(None)
}

struct File<'a> {
    read: Read<'a>,
    len: u64,
    limits: Limits,
    ahead: ReadAhead,
}

/// A part of a file that was read ahead.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// The buffer's offset in the file.
    at: u64,
    buffer: Bytes,
}

impl ReadAhead {
    /// The number of bytes at a place, from the buffer. If they are not there, it is filled again:
    /// with `ahead.0` bytes, or as many as there are before `ahead.1`.
    pub(crate) fn bytes(
        &mut self,
        read: Read<'_>,
        pos: u64,
        len: usize,
        ahead: (usize, u64),
    ) -> Result<Bytes, Trouble> {
        let have = self.at..self.at + self.buffer.len() as u64;
        let end = pos.saturating_add(len as u64);
        if pos < have.start || end > have.end {
            let want = ahead.0.max(len) as u64;
            let want = want.min(ahead.1.saturating_sub(pos)) as usize;
            if want < len {
                return Err(Fault::of_file("mp4 file truncated").into());
            }
            self.buffer = fill(read, pos, want)?;
            self.at = pos;
        }
        let from = (pos - self.at) as usize;
        Ok(self.buffer.slice(from..from + len))
    }
}

/// Reads exactly `len` bytes.
pub(crate) fn fill(read: Read<'_>, pos: u64, len: usize) -> Result<Bytes, Trouble> {
    let first = read(pos, len).map_err(Trouble::Io)?;
    if first.len() >= len {
        return Ok(first.slice(..len));
    }
    let mut all = first.to_vec();
    while all.len() < len {
        let more = read(pos + all.len() as u64, len - all.len()).map_err(Trouble::Io)?;
        if more.is_empty() {
            // It has become shorter since it was opened.
            return Err(Fault::of_file("mp4 file truncated").into());
        }
        all.extend_from_slice(&more);
    }
    all.truncate(len);
    Ok(all.into())
}

impl File<'_> {
    /// So many bytes at a place, from the buffer, which is filled anew if need be.
    fn bytes(&mut self, pos: u64, len: usize) -> Result<Bytes, Trouble> {
        self.ahead.bytes(&mut *self.read, pos, len, (self.limits.buffer, self.len))
    }

    fn index(&mut self, pos: u64, size: u64) -> Result<Bytes, Trouble> {
        if size > self.limits.buffer as u64 && size > self.limits.moov_max {
            let advice = format!("you may want to increase {}", self.limits.directive);
            let what = format!("mp4 moov atom is too large:{size}, {advice}");
            return Err(Fault::of_file(what).into());
        }
        self.bytes(pos, size as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::mp4::atom::write;

    fn walk(file: &[u8], limits: Limits, window: &Window) -> Result<Option<Film>, Trouble> {
        let mut read = |pos: u64, len: usize| {
            let from = (pos as usize).min(file.len());
            // A disk may give less than it was asked for.
            let to = file.len().min(from + len.min(100));
            Ok(Bytes::copy_from_slice(&file[from..to]))
        };
        film(&mut read, file.len() as u64, limits, window)
    }

    fn fault(file: &[u8]) -> String {
        let limits = Limits { buffer: 64, moov_max: 200, directive: "mp4_max_buffer_size" };
        match walk(file, limits, &Window { start_ms: 1, length_ms: 0, key_frame: false }) {
            Err(Trouble::Fault(fault)) => fault.named("F").to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn atom(name: &[u8; 4], len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, name, |out| out.resize(out.len() + len, 0));
        out
    }

    #[test]
    fn what_is_wrong_with_files() {
        let (moov, mdat, ftyp) = (atom(b"moov", 0), atom(b"mdat", 50), atom(b"ftyp", 16));
        for (parts, want) in [
            (vec![], "no mp4 trak atoms were found in \"F\""),
            (vec![vec![0, 0, 1]], "\"F\" mp4 file truncated"),
            (vec![atom(b"ftyp", 1025)], "\"F\" mp4 ftyp atom is too large:1025"),
            (vec![ftyp.clone(), ftyp.clone()], "duplicate mp4 ftyp atom in \"F\""),
            (vec![moov.clone()], "no mp4 mdat atom was found in \"F\""),
            (vec![ftyp.clone(), mdat.clone()], "no mp4 trak atoms were found in \"F\""),
            (vec![mdat.clone(), mdat.clone()], "duplicate mp4 mdat atom in \"F\""),
            (vec![moov.clone(), moov.clone()], "duplicate mp4 moov atom in \"F\""),
            (vec![ftyp, moov, mdat.clone()], "no mp4 trak atoms were found in \"F\""),
            (
                vec![mdat, atom(b"moov", 201)],
                "\"F\" mp4 moov atom is too large:201, \
                 you may want to increase mp4_max_buffer_size",
            ),
            (vec![vec![0, 0, 0, 9, b'm', b'd', b'a', b't']], "\"F\" mp4 atom too large:9"),
        ] {
            assert_eq!(fault(&parts.concat()), want);
        }
    }

    #[test]
    fn films_that_are_wanted_whole_and_begin_with_their_index() {
        let file = [atom(b"free", 300), atom(b"moov", 0), atom(b"mdat", 50)].concat();
        let limits = Limits { buffer: 64, moov_max: 200, directive: "mp4_max_buffer_size" };
        let window = Window { start_ms: 0, length_ms: 0, key_frame: false };
        assert!(matches!(walk(&file, limits, &window), Ok(None)));
    }
}
