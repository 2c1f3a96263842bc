//! `sub_filter`: texts in a response replaced by others.

pub mod patterns;

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::template::Template;
use conf::value::set_flag;
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{HeaderFilter, LocView, Module, Pipeline, Verdict};
use http::output::{BodyFilter, FilterStep, Piece};
use http::request::Request;
use http::types::TypeList;
use mem::{Buf, Chain};

use self::patterns::{Found, Patterns};

/// The module's table.
pub static MODULE: Module = Module::of::<SubConf>("sub", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "sub_filter",
        HSL,
        Args::T2,
        "",
        "Replaces a string (case-insensitive) in responses; may be given several times.",
        sub_filter,
    ),
    directive(
        "sub_filter_types",
        HSL,
        Args::ONE_MORE,
        "text/html",
        "MIME types to replace in, in addition to text/html; `*` matches all.",
        |cx, n| TypeList::set(&mut cx.loc::<SubConf>().types, n, Some(DEFAULT_TYPE)),
    ),
    directive(
        "sub_filter_once",
        HSL,
        Args::FLAG,
        "on",
        "Replaces only the first occurrence of each string, rather than all.",
        |cx, n| set_flag(&mut cx.loc::<SubConf>().once, n),
    ),
    directive(
        "sub_filter_last_modified",
        HSL,
        Args::FLAG,
        "off",
        "Keeps `Last-Modified` and a weak `ETag` of responses with replacements.",
        |cx, n| set_flag(&mut cx.loc::<SubConf>().last_modified, n),
    ),
];

const DEFAULT_TYPE: &str = "text/html";

/// As many as nginx takes.
const PATTERNS_MAX: usize = 255;

engine::settings! {
    struct SubConf {
        pairs: Option<Vec<Pair>>,
        types: Option<TypeList>,
        once: Option<bool>,
        last_modified: Option<bool>,
    }
}

/// A `sub_filter`.
#[derive(Clone)]
struct Pair {
    text: Template,
    by: Template,
}

fn sub_filter(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    if word.bytes().is_empty() {
        return Err(ConfError::at(word, "empty search pattern"));
    }
    let pair = Pair { text: cx.template(word)?, by: cx.template(n.arg(1)?)? };
    let pairs = cx.loc::<SubConf>().pairs.get_or_insert_default();
    if pairs.len() == PATTERNS_MAX {
        return Err(ConfError::at(word, "number of search patterns exceeds 255"));
    }
    pairs.push(pair);
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<SubConf>();
    let Some(pairs) = conf.pairs.clone() else { return Ok(()) };
    let constant: Option<Vec<_>> = pairs.iter().map(|p| p.text.as_const().map(lower)).collect();
    let fixed = match constant {
        Some(list) => Some(Search::new((0..list.len()).collect(), list)?),
        None => None,
    };
    p.header_filters.push(Box::new(Filter {
        pairs: pairs.into(),
        fixed: fixed.clone(),
        last: RefCell::new(fixed),
        types: conf.types.clone().unwrap_or_else(|| TypeList::of(&[DEFAULT_TYPE])),
        once: conf.once.unwrap_or(true),
        last_modified: conf.last_modified.unwrap_or(false),
    }));
    Ok(())
}

fn lower(text: &Bytes) -> Bytes {
    Bytes::from(text.to_ascii_lowercase())
}

/// The texts to look for in a response.
#[derive(Clone)]
struct Search {
    patterns: Rc<Patterns>,
    /// The pair that each pattern belongs to.
    pairs: Rc<[usize]>,
}

impl Search {
    fn new(pairs: Vec<usize>, list: Vec<Bytes>) -> Result<Search, ConfError> {
        Ok(Search { patterns: Rc::new(Patterns::new(list)?), pairs: pairs.into() })
    }
}

struct Filter {
    pairs: Rc<[Pair]>,
    /// The search of a location whose texts have no variables.
    fixed: Option<Search>,
    /// The search of the last response: the next is often searched for the same.
    last: RefCell<Option<Search>>,
    types: TypeList,
    once: bool,
    last_modified: bool,
}

impl Filter {
    /// The search for this response; `None` where there is nothing to look for.
    fn search(&self, r: &mut Request) -> Option<Search> {
        if self.fixed.is_some() {
            return self.fixed.clone();
        }
        let (mut numbers, mut list) = (Vec::new(), Vec::new());
        for (n, pair) in self.pairs.iter().enumerate() {
            let text = r.eval(&pair.text);
            if !text.is_empty() {
                numbers.push(n);
                list.push(lower(&text));
            }
        }
        if list.is_empty() {
            return None;
        }
        let mut last = self.last.borrow_mut();
        let same = |s: &Search| s.patterns.list() == list && *s.pairs == numbers[..];
        if !last.as_ref().is_some_and(same) {
            match Search::new(numbers, list) {
                Ok(search) => *last = Some(search),
                Err(e) => {
                    r.log(base::log::Level::Error, format_args!("sub_filter: {e}"));
                    return None;
                }
            }
        }
        last.clone()
    }
}

impl HeaderFilter for Filter {
    fn in_subrequests(&self) -> bool {
        true
    }

    fn run(&self, r: &mut Request) -> Verdict {
        if r.out.content_length == Some(0) || !self.types.has(&r.out) {
            return Verdict::Next;
        }
        let Some(search) = self.search(r) else { return Verdict::Next };
        let count = search.pairs.len();
        r.out.filters.push(Box::new(Body {
            pairs: self.pairs.clone(),
            search,
            once: self.once,
            used: vec![false; count],
            unused: count,
            values: vec![None; count],
            held: Vec::new(),
        }));
        if !r.is_subrequest() {
            r.out.text_changes(self.last_modified);
        }
        Verdict::Next
    }
}

/// The length of text that is searched at once.
const PIECE: usize = 64 << 10;

/// The length up to which a piece may grow before it is sent.
const OUTPUT_MAX: usize = 256 << 10;

/// Replacements are copied up to this size.
const COPY_MAX: usize = 1024;

thread_local! {
    /// Room for text in lower case.
    static LOWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The body filter: one response being searched.
struct Body {
    pairs: Rc<[Pair]>,
    search: Search,
    once: bool,
    /// Patterns that were replaced, where that is done once.
    used: Vec<bool>,
    unused: usize,
    /// The replacement of each, once it was needed.
    values: Vec<Option<Bytes>>,
    /// The end of what came so far, which may be the beginning of a match.
    held: Vec<u8>,
}

impl BodyFilter for Body {
    fn filter(&mut self, r: &mut Request, Piece { input, last, out }: Piece<'_>) -> FilterStep {
        let mut made = 0;
        loop {
            let piece = match next_piece(input) {
                Some(piece) => piece,
                None if last && !self.held.is_empty() => Bytes::new(),
                None => return FilterStep::Go,
            };
            let is_last = last && input.is_empty();
            if self.unused == 0 {
                out.push_bytes(piece);
                continue;
            }
            let mut lower = LOWER.take();
            lower.clear();
            lower.extend_from_slice(&self.held);
            lower.extend_from_slice(&piece);
            lower.make_ascii_lowercase();
            let rest = self.replace(r, (&lower, piece, is_last), out, &mut made);
            LOWER.set(lower);
            if let Some(rest) = rest {
                input.push_front(Buf::Mem(rest));
                return FilterStep::More;
            }
        }
    }
}

fn next_piece(input: &mut Chain) -> Option<Bytes> {
    let mut piece = input.pop_front()?.into_bytes()?;
    if piece.len() > PIECE {
        let rest = piece.split_off(PIECE);
        input.push_front(Buf::Mem(rest));
    }
    Some(piece)
}

impl Body {
    /// Looks through what is held and `piece`, both in `lower` too. What is left of the piece when
    /// enough was made for now.
    fn replace(
        &mut self,
        r: &mut Request,
        (lower, mut piece, last): (&[u8], Bytes, bool),
        out: &mut Chain,
        made: &mut usize,
    ) -> Option<Bytes> {
        let mut at = 0;
        loop {
            let found = self.search.patterns.find(lower, at, last, &self.used);
            let (start, end, pattern) = match found {
                Found::Match { start, end, pattern } => (start, end, pattern),
                Found::Nothing(keep) => {
                    self.keep(piece, at, keep, out);
                    return None;
                }
            };
            self.copy(&piece, (at, start), out);
            *made += start - at + self.value(r, pattern, out);
            at = end;
            if self.once {
                self.used[pattern] = true;
                self.unused -= 1;
            }
            if self.unused == 0 || *made > OUTPUT_MAX {
                let held = self.held.len().min(at);
                self.held.drain(..held);
                piece = piece.slice((at - held).min(piece.len())..);
                if self.unused == 0 {
                    // Nothing is looked for any more.
                    append(out, &std::mem::take(&mut self.held));
                }
                return Some(piece);
            }
        }
    }

    /// Gives out what stands from `at` to `keep`, and holds what follows.
    fn keep(&mut self, piece: Bytes, at: usize, keep: usize, out: &mut Chain) {
        let held = self.held.len();
        if at == 0 && held == 0 && keep == piece.len() {
            out.push_bytes(piece);
            return;
        }
        self.copy(&piece, (at, keep), out);
        self.held.drain(..keep.min(held));
        self.held.extend_from_slice(&piece[keep.saturating_sub(held)..]);
    }

    /// Copies a range of what is held and the piece behind it.
    fn copy(&self, piece: &[u8], (from, to): (usize, usize), out: &mut Chain) {
        let held = self.held.len();
        append(out, &self.held[from.min(held)..to.min(held)]);
        append(out, &piece[from.saturating_sub(held)..to.saturating_sub(held)]);
    }

    /// Gives out what stands in place of a pattern, and says how long that is.
    fn value(&mut self, r: &mut Request, pattern: usize, out: &mut Chain) -> usize {
        let by = &self.pairs[self.search.pairs[pattern]].by;
        let value = self.values[pattern].get_or_insert_with(|| r.eval(by));
        if value.len() > COPY_MAX {
            out.push_bytes(value.clone());
        } else {
            append(out, value);
        }
        value.len()
    }
}

/// Copies to the end of a chain, page by page.
fn append(out: &mut Chain, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let page = out.writer_for(1);
        let room = (page.capacity() - page.len()).min(bytes.len());
        page.extend_from_slice(&bytes[..room]);
        bytes = &bytes[room..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appending_fills_pages() {
        let mut chain = Chain::new();
        let text: Vec<u8> = (0..50_000u32).map(|n| n as u8).collect();
        append(&mut chain, &text[..10_000]);
        append(&mut chain, &text[10_000..]);
        assert_eq!(chain.iter().count(), 50_000usize.div_ceil(mem::PAGE_SIZE));
        let all: Vec<u8> = chain.iter().flat_map(|buf| buf.memory().unwrap().to_vec()).collect();
        assert!(all == text);
    }
}
