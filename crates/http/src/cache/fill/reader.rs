//! One client's way through a response that is being filled in.

use event::race_if;
use std::cell::Cell;
use std::rc::Rc;

use base::log::Level;
use mem::Chain;

use super::Fill;
use crate::output::{BodySource, Broken, NextPiece};
use crate::request::Request;
use crate::upstream::client_end::client_end;

/// The body for one client.
pub(crate) struct Reader {
    fill: Rc<Fill>,
    place: usize,
    pos: u64,
    most: u64,
    /// It is the one whose request went to the upstream.
    first: Option<Rc<crate::upstream::conf::Conf>>,
    over: Cell<bool>,
}

impl Reader {
    /// One that reads along.
    pub fn new(fill: Rc<Fill>, most: u64) -> Reader {
        let mut state = fill.state.borrow_mut();
        let free = state.readers.iter().position(Option::is_none);
        let place = free.unwrap_or(state.readers.len());
        match free {
            Some(place) => state.readers[place] = Some(0),
            None => state.readers.push(Some(0)),
        }
        drop(state);
        Reader { fill, place, pos: 0, most: most.max(1), first: None, over: Cell::new(false) }
    }

    /// The one whose request went to the upstream.
    pub fn first(fill: Rc<Fill>, conf: Rc<crate::upstream::conf::Conf>) -> Reader {
        let mut reader = Reader::new(fill, conf.busy as u64);
        reader.first = Some(conf);
        reader
    }

    /// The body, where all of it is here.
    pub fn whole(&mut self, r: &mut Request) -> Option<Chain> {
        let all = self.fill.whole()?;
        self.sync(r);
        self.finish(r);
        Some(all)
    }

    /// Brings the request's state up to date.
    fn sync(&mut self, r: &mut Request) {
        if self.first.is_none() {
            return;
        }
        let mut state = self.fill.state.borrow_mut();
        let fresh = std::mem::take(&mut state.fresh);
        let messages = std::mem::take(&mut state.ending.messages);
        drop(state);
        let a = r.upstream_mut().now();
        a.received += fresh;
        a.response_length += fresh;
        for (level, m) in messages {
            r.log(level, format_args!("{m} while reading upstream"));
        }
    }

    fn finish(&mut self, r: &mut Request) {
        self.over.set(true);
        if let Some(conf) = &self.first {
            let trailers = std::mem::take(&mut self.fill.state.borrow_mut().ending.trailers);
            crate::upstream::source::finished(r, conf, trailers);
        }
    }

    async fn piece(&mut self, r: &mut Request) -> Result<Option<Chain>, Broken> {
        loop {
            let (piece, ended, broken) = {
                let state = self.fill.state.borrow();
                let piece = state.take(self.pos, self.most, self.fill.body_start.get());
                let ended = state.ended && self.pos + piece.len() == state.total;
                (piece, ended, state.broken)
            };
            self.sync(r);
            if ended {
                self.finish(r);
            }
            if !piece.is_empty() {
                self.pos += piece.len();
                self.fill.state.borrow_mut().readers[self.place] = Some(self.pos);
                self.fill.taken.notify_all();
                return Ok(Some(piece));
            }
            if ended {
                return Ok(None);
            }
            if broken {
                let fail = self.fill.state.borrow_mut().fail.take();
                match (fail, self.first.is_some()) {
                    (Some(fail), true) => fail.tell(r),
                    _ => {
                        let m = "the response could not be read to its end";
                        r.log(Level::Error, format_args!("{m}"));
                        r.upstream_mut().cut_short = true;
                    }
                }
                self.finish(r);
                return Err(Broken);
            }
            let client = r.watched().cloned();
            let gone = client.as_deref().map(client_end);
            if race_if(self.fill.moved.notified(), gone).await.is_second() {
                r.log(Level::Info, format_args!("client prematurely closed connection"));
                self.finish(r);
                return Err(Broken);
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(place) = self.fill.state.borrow_mut().readers.get_mut(self.place) {
            *place = None;
        }
        self.fill.taken.notify_all();
    }
}

impl BodySource for Reader {
    fn next<'a>(&'a mut self, r: &'a mut Request) -> NextPiece<'a> {
        Box::pin(self.piece(r))
    }

    fn is_over(&self) -> bool {
        self.over.get()
    }

    fn is_ready(&self) -> bool {
        let state = self.fill.state.borrow();
        state.total > self.pos || state.ended || state.broken
    }

    fn abandoned(&mut self, r: &mut Request) {
        self.sync(r);
        self.finish(r);
    }
}
