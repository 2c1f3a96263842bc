//! Reading a body whole, into memory or a temporary file, or piece by piece.

use std::io;

use base::log::Level;
use mem::{Chain, Page};

use super::{InFile, ReqBody, Stage};
use crate::channel;
use crate::core_conf::InFileOnly;
use crate::module::Verdict;
use crate::request::Request;
use engine::min_rate::MinRate;
use engine::overload::Promise;
use files::FileError;
use files::{Keep, TempFile};
use http_wire::h1::Version;

/// Bytes up to which pieces from the socket are copied together, so that a client that sends a body
/// in crumbs does not fill a page with each.
const CRUMB_MAX: usize = 4096;

/// The part of a body that may be in memory.
struct Memory {
    /// The bytes that are to come into memory.
    expected: u64,
    /// All of it fits, whatever comes.
    whole: bool,
    /// Otherwise the bytes held before they go to a file.
    max: u64,
}

impl Request {
    /// Reads all of the body, into memory or a temporary file as the location's settings say. Done
    /// at once where there is none, or where it was read before.
    ///
    /// # Errors
    /// The handler's answer: 400, 413, 500, or to close the connection. It was logged.
    pub async fn read_body(&mut self) -> Result<(), Verdict> {
        // Most requests have none, and their futures no room for it.
        if !self.body.exists && !self.head.expect_continue {
            if self.body.stage == Stage::Unread {
                self.body.stage = Stage::Read;
            }
            return Ok(());
        }
        let keep = match self.loc.core.client_body_in_file_only {
            InFileOnly::Off => return Box::pin(self.collect(None)).await,
            InFileOnly::On => Keep::Stays,
            InFileOnly::Clean => Keep::Named,
        };
        let how = InFile { keep, mode: 0o600, log: Some(Level::Notice) };
        Box::pin(self.collect(Some(how))).await
    }

    /// Reads all of the body into a temporary file, whatever the location's settings say. A request
    /// without a body has no file.
    ///
    /// # Errors
    /// As [`Request::read_body`].
    pub async fn read_body_to_file(&mut self, how: InFile) -> Result<(), Verdict> {
        self.collect(Some(how)).await
    }

    /// The next piece of a body that is not to be read whole; `None` at its end. A handler that has
    /// requested one piece must take the rest in pieces, too: `read_body` then reads nothing.
    ///
    /// # Errors
    /// As [`Request::read_body`].
    pub async fn next_body_piece(&mut self) -> Result<Option<Page>, Verdict> {
        match self.body.stage {
            Stage::Read | Stage::Unwanted | Stage::Refused => return Ok(None),
            Stage::Unread | Stage::Begun => self.body.stage = Stage::Begun,
        }
        self.body.passed_on = true;
        channel::next_piece(self).await
    }

    /// The rate that the client must keep up. A body that is passed on as it comes, and says no
    /// length, may rest: it is a conversation.
    pub(crate) fn body_min_rate(&self) -> MinRate {
        match self.body.is_conversation(&self.head) {
            true => MinRate::OFF,
            false => self.loc.core.client_body_min_rate,
        }
    }

    async fn collect(&mut self, in_file: Option<InFile>) -> Result<(), Verdict> {
        if self.body.stage != Stage::Unread {
            return Ok(());
        }
        self.body.stage = Stage::Begun;
        let memory = self.memory();
        let mut promise = Promise::new(memory.expected);
        while let Some(page) = channel::next_piece(self).await? {
            if page.len() <= CRUMB_MAX {
                self.body.mem.write(&page);
            } else {
                self.body.mem.push(page.into());
            }
            if !memory.whole && !self.body_is_finished() && self.body.mem.len() >= memory.max {
                self.spill(in_file).await?;
            }
            promise.lower(memory.expected.saturating_sub(self.body.mem.len()));
        }
        drop(promise);
        let body = &self.body;
        let too_much = !memory.whole && body.len > memory.max;
        let must = in_file.is_some() && body.exists;
        if too_much || must || body.file.is_some() {
            self.spill(in_file).await?;
        } else if self.loc.core.client_body_in_single_buffer && body.mem.iter().count() > 1 {
            self.body.join();
        }
        self.body.stage = Stage::Read;
        Ok(())
    }

    /// The rule is nginx's: a part of the body may be in what is left of the head's buffer, and the
    /// body's own buffer may be up to a quarter larger if all of the rest then fits.
    fn memory(&mut self) -> Memory {
        if !self.body.exists {
            return Memory { expected: 0, whole: true, max: 0 };
        }
        let expected = channel::expected(self);
        let size = self.loc.core.client_body_buffer_size as u64;
        let header_size = self.server.core.client_header_buffer_size;
        let room = header_size.saturating_sub(self.client.channel.head_len()) as u64;
        let shared = room.min(expected.with_head);
        let (whole, max) = match expected.length {
            // The head's buffer has no part of it, and no other is made larger.
            Some(left) if self.head.version >= Version::HTTP_20 => (left <= size, size),
            Some(left) => (left.saturating_sub(shared) < size + size / 4, size),
            None => (false, size + shared),
        };
        let length = expected.length.unwrap_or(max);
        Memory { expected: if whole { length } else { length.min(max) }, whole, max }
    }

    /// Moves the bytes in memory to the temporary file.
    async fn spill(&mut self, in_file: Option<InFile>) -> Result<(), Verdict> {
        let usual = InFile { keep: Keep::Nameless, mode: 0o600, log: Some(Level::Warn) };
        let how = in_file.unwrap_or(usual);
        if let Err(e) = self.write_to_file(how).await {
            self.log(Level::Crit, format_args!("{e}"));
            return Err(Verdict::Status(500));
        }
        Ok(())
    }

    async fn write_to_file(&mut self, how: InFile) -> Result<(), FileError> {
        let file = self.body.file.take();
        let is_new = file.is_none();
        let folder = self.loc.core.client_body_temp_path.clone();
        let mut data = self.body.mem.take();
        let empty = data.is_empty();
        let make = move |file: Option<TempFile>| match file {
            Some(file) => Ok(file),
            None => TempFile::create(&folder, how.keep, how.mode),
        };
        let pool = self.writing_pool().map_err(|_| {
            let error = io::Error::other("no thread pool");
            FileError::new("pwritev()", &*self.loc.core.client_body_temp_path.path, error)
        })?;
        let (file, done) = match pool {
            None => {
                let mut file = make(file)?;
                let done = file.append(&mut data);
                (file, done)
            }
            Some(pool) => {
                let mut parts: Vec<bytes::Bytes> = Vec::new();
                while let Some(buf) = data.pop_front() {
                    parts.extend(buf.into_bytes());
                }
                let task = move || {
                    // The parts come back: their pages belong to this thread.
                    let made = make(file).map(|mut file| {
                        let done = file.append_parts(&parts);
                        (file, done)
                    });
                    (made, parts)
                };
                match pool.run(task).await {
                    Ok((made, _parts)) => made?,
                    Err(e) => {
                        let folder = &*self.loc.core.client_body_temp_path.path;
                        return Err(FileError::new("pwritev()", folder, e.into()));
                    }
                }
            }
        };
        // An empty file is only made because one was asked for.
        if let (Some(level), true, false) = (how.log, is_new, empty)
            && self.tells_of_temp_file()
        {
            let m = "a client request body is buffered to a temporary file";
            self.log(level, format_args!("{m} {}", file.path().display()));
        }
        self.body.file = Some(file);
        done
    }
}

impl ReqBody {
    /// Copies the pieces into one.
    fn join(&mut self) {
        let mut one = Chain::new();
        let room = usize::try_from(self.mem.len()).unwrap_or(usize::MAX);
        let into = one.writer_for(room);
        for piece in self.mem.iter() {
            into.extend_from_slice(piece.memory().unwrap_or_default());
        }
        self.mem = one;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_buffer_holds_what_several_did() {
        let mut body = ReqBody::default();
        for part in ["abc", "def"] {
            body.mem.push_bytes(bytes::Bytes::from_static(part.as_bytes()));
        }
        body.join();
        let pieces: Vec<_> = body.mem.iter().filter_map(|b| b.memory()).collect();
        assert_eq!(pieces, [b"abcdef"]);
    }
}
