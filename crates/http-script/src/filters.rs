//! `js_header_filter` and `js_body_filter`: functions that change responses, without waiting.

use std::cell::Cell;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use http::module::{HeaderFilter, Verdict};
use http::output::{BodyFilter, FilterStep, Piece};
use http::request::Request;
use mem::Chain;
use script_modules::Function;

use ::script::Data;

use crate::handler;
use crate::script::{Caller, Script};
use crate::settings::{Handlers, PieceType};

/// Whether the header filter of a request has failed: the error page, whose location is often the
/// same, goes without it.
#[derive(Default)]
struct Failed(Cell<bool>);

/// Both filters of a location.
pub(crate) struct Filter {
    conf: Rc<Handlers>,
}

impl Filter {
    pub fn new(conf: Rc<Handlers>) -> Filter {
        Filter { conf }
    }

    fn headers(&self, r: &mut Request, script: &Rc<Script>) -> Result<(), Verdict> {
        let Some(function) = &self.conf.header_filter else { return Ok(()) };
        let failed = Verdict::Status(500);
        let waited = script.is_waiting();
        let called = script.call(r, Caller::HeaderFilter, function, &[]);
        script.caller.set(Caller::Other);
        called.map_err(|_| failed)?;
        if !waited && script.is_waiting() {
            let name = function.lossy();
            r.log(Level::Error, format_args!("async operation inside \"{name}\" header filter"));
            return Err(failed);
        }
        Ok(())
    }
}

impl HeaderFilter for Filter {
    fn run(&self, r: &mut Request) -> Verdict {
        // Explanations run no scripts.
        if r.is_traced() {
            let body_filter = self.conf.body_filter.as_ref().map(|(function, _)| function);
            let functions = self.conf.header_filter.iter().chain(body_filter);
            functions.for_each(|function| handler::explain(r, function));
            return Verdict::Next;
        }
        let Ok(Some(script)) = Script::of(r) else { return Verdict::Status(500) };
        if r.out.status == 0 {
            r.out.status = 200;
        }
        script.filtering.is_on.set(true);
        let has_failed: Rc<Failed> = r.shared();
        if !has_failed.0.get()
            && let Err(verdict) = self.headers(r, &script)
        {
            has_failed.0.set(true);
            return verdict;
        }
        if let Some((function, piece_type)) = &self.conf.body_filter {
            let function = function.clone();
            r.body_filters.push(Box::new(Pieces { script, function, piece_type: *piece_type }));
        }
        Verdict::Next
    }

    fn in_subrequests(&self) -> bool {
        true
    }
}

/// The body filter of one response.
struct Pieces {
    script: Rc<Script>,
    function: Function,
    piece_type: PieceType,
}

impl Pieces {
    fn call(&self, r: &mut Request, bytes: &[u8], last: bool, out: &mut Chain) -> Result<(), ()> {
        let script = &self.script;
        let data = match self.piece_type {
            PieceType::Text => Data::Text(String::from_utf8_lossy(bytes).into_owned()),
            PieceType::Buffer => Data::Bytes(bytes.to_vec()),
        };
        let flags = Data::Object(vec![("last".to_owned(), Data::Bool(last))]);
        let waited = script.is_waiting();
        let called = script.call(r, Caller::BodyFilter, &self.function, &[data, flags]);
        script.caller.set(Caller::Other);
        called.map_err(|_| ())?;
        if !waited && script.is_waiting() {
            let name = self.function.lossy();
            r.log(Level::Error, format_args!("async operation inside \"{name}\" body filter"));
            return Err(());
        }
        let sent = script.filtering.sent.take();
        if !sent.is_empty() {
            out.push_bytes(Bytes::from(sent));
        }
        Ok(())
    }
}

impl BodyFilter for Pieces {
    fn filter(&mut self, r: &mut Request, piece: Piece<'_>) -> FilterStep {
        let is_main = !r.is_subrequest();
        let mut left = piece.input.iter().count();
        if left == 0 && piece.last && !self.script.filtering.done.get() {
            return match self.call(r, b"", is_main, piece.out) {
                Ok(()) => FilterStep::Go,
                Err(()) => FilterStep::Fail,
            };
        }
        while !self.script.filtering.done.get()
            && let Some(buf) = piece.input.pop_front()
        {
            left -= 1;
            let last = piece.last && left == 0 && is_main;
            let bytes = buf.memory().unwrap_or_default();
            if self.call(r, bytes, last, piece.out).is_err() {
                return FilterStep::Fail;
            }
        }
        piece.out.append(piece.input);
        FilterStep::Go
    }
}
