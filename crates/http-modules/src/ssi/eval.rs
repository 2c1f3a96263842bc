//! The state that commands share within a page and all its parts, and the evaluation of values.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use conf::pattern::{Pattern, PatternError, Span};
use http::request::Request;

/// The most patterns that a worker keeps compiled.
const PATTERNS_MAX: usize = 64;

/// All variables and blocks of a page hold this many times the longest value.
const VALUES_MAX: usize = 16;

/// The memory that an entry takes beyond its text, bytes.
const ENTRY: usize = 64;

/// Lines about commands that failed in one page and its parts.
const LINES_MAX: u32 = 100;

/// A command cannot be carried out; logged already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed;

/// The state of a page and of all its parts.
#[derive(Default)]
pub(super) struct Page {
    /// The longest value, as the location of the page or part has it that runs now.
    pub longest: Cell<usize>,
    /// The longest part that became a value: `subrequest_output_buffer_size` allowed it.
    included: Cell<usize>,
    /// The bytes that variables and blocks hold.
    held: Cell<usize>,
    lines: Cell<u32>,
    vars: RefCell<Vec<(Bytes, Bytes)>>,
    blocks: RefCell<Vec<Block>>,
    captures: RefCell<Vec<Bytes>>,
}

/// The content between `block` and `endblock`.
struct Block {
    name: Vec<u8>,
    text: Vec<u8>,
    /// It became too long.
    lost: bool,
}

/// A value, or all values of a page together, would be longer than `ssi_variable_length` allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

impl TooLong {
    /// Logs it.
    pub fn of(self, r: &Request, name: &[u8]) -> Failed {
        let name = base::log::lossy(name);
        let m = "is too long, or the page holds too much: see ssi_variable_length";
        log(r, Level::Error, format_args!("the value of \"{name}\" {m}"));
        Failed
    }
}

/// Logs a line about a page. A page and its parts have so many at most: a page that includes itself
/// would write millions.
pub(super) fn log(r: &Request, level: Level, message: std::fmt::Arguments<'_>) {
    let Some(page) = r.shared_if_any::<Page>() else { return r.log(level, message) };
    let lines = page.lines.get();
    page.lines.set(lines.saturating_add(1));
    if lines < LINES_MAX {
        r.log(level, message);
    } else if lines == LINES_MAX {
        r.log(level, format_args!("more errors of this page are not logged"));
    }
}

impl Page {
    /// Sets a variable; names are the same in any case.
    ///
    /// # Errors
    /// The value, or all values of the page together, would be too long.
    pub fn set(&self, name: &[u8], value: Bytes) -> Result<(), TooLong> {
        if value.len() > self.longest() {
            return Err(TooLong);
        }
        let name = name.to_ascii_lowercase();
        let mut vars = self.vars.borrow_mut();
        match vars.iter_mut().find(|(n, _)| n[..] == name[..]) {
            Some((_, v)) => {
                self.hold(value.len(), v.len())?;
                *v = value;
            }
            None => {
                self.hold(ENTRY + name.len() + value.len(), 0)?;
                vars.push((Bytes::from(name), value));
            }
        }
        Ok(())
    }

    /// Sets a variable to the body of a part, whose length has a limit of its own.
    ///
    /// # Errors
    /// All values of the page together would be too long.
    pub(crate) fn set_included(&self, name: &[u8], value: Bytes) -> Result<(), TooLong> {
        self.included.set(self.included.get().max(value.len()));
        self.set(name, value)
    }

    fn longest(&self) -> usize {
        self.longest.get().max(self.included.get())
    }

    /// Makes a variable that is not there one without a value.
    ///
    /// # Errors
    /// As [`set`](Page::set).
    pub fn declare(&self, name: &[u8]) -> Result<(), TooLong> {
        let name = name.to_ascii_lowercase();
        let known = self.vars.borrow().iter().any(|(n, _)| n[..] == name[..]);
        if known { Ok(()) } else { self.set(&name, Bytes::new()) }
    }

    /// Counts `more` bytes that take the place of `less`.
    fn hold(&self, more: usize, less: usize) -> Result<(), TooLong> {
        let held = (self.held.get() + more).saturating_sub(less);
        if more > less && held > self.longest().saturating_mul(VALUES_MAX) {
            return Err(TooLong);
        }
        self.held.set(held);
        Ok(())
    }

    /// Begins a block.
    ///
    /// # Errors
    /// The page holds too much already.
    pub fn begin_block(&self, name: Vec<u8>) -> Result<(), TooLong> {
        self.hold(ENTRY + name.len(), 0)?;
        self.blocks.borrow_mut().push(Block { name, text: Vec::new(), lost: false });
        Ok(())
    }

    /// Adds to the last block.
    ///
    /// # Errors
    /// The page would hold too much: the block is lost.
    pub(crate) fn add_to_block(&self, text: &[u8]) -> Result<(), TooLong> {
        let mut blocks = self.blocks.borrow_mut();
        let Some(block) = blocks.last_mut().filter(|b| !b.lost) else { return Ok(()) };
        let held = self.hold(text.len(), 0);
        if held.is_err() || os::memory::reserve(&mut block.text, text.len()).is_err() {
            block.lost = true;
            self.held.set(self.held.get().saturating_sub(block.text.len()));
            block.text = Vec::new();
            return Err(TooLong);
        }
        block.text.extend_from_slice(text);
        Ok(())
    }

    /// A group of the last expression that matched, or a variable that a command set; `name` is in
    /// lower case.
    fn get(&self, name: &[u8]) -> Option<Bytes> {
        if let [digit @ b'0'..=b'9'] = name
            && let Some(group) = self.captures.borrow().get(usize::from(digit - b'0'))
        {
            return Some(group.clone());
        }
        self.vars.borrow().iter().find(|(n, _)| n[..] == *name).map(|(_, v)| v.clone())
    }

    /// The last block of a name that a page has.
    pub fn block(&self, name: &[u8]) -> Option<Bytes> {
        let blocks = self.blocks.borrow();
        blocks.iter().find(|b| b.name == name && !b.lost).map(|b| Bytes::copy_from_slice(&b.text))
    }
}

/// The value of a variable: of the page's own, else of the request's.
pub(super) fn variable(r: &mut Request, page: &Page, name: &[u8]) -> Option<Bytes> {
    let name = name.to_ascii_lowercase();
    page.get(&name).or_else(|| r.var_named(&name))
}

/// A text with its variables and backslashes resolved.
pub(super) fn text(r: &mut Request, page: &Page, text: &[u8]) -> Result<Vec<u8>, Failed> {
    resolve(r, page, text, false)
}

/// The same; in a pattern, a dollar sign that no name follows stands for the end of the subject.
fn resolve(r: &mut Request, page: &Page, text: &[u8], pattern: bool) -> Result<Vec<u8>, Failed> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&b, tail)) = rest.split_first() {
        rest = match (b, tail) {
            (b'$', [] | [b')' | b'|', ..]) if pattern => {
                out.push(b'$');
                tail
            }
            (b'$', _) => {
                let (name, behind) = name(r, text, tail)?;
                if let Some(value) = variable(r, page, name) {
                    let fits = out.len() + value.len() <= page.longest().max(text.len());
                    if !fits || os::memory::reserve(&mut out, value.len()).is_err() {
                        return Err(TooLong.of(r, text));
                    }
                    out.extend_from_slice(&value);
                }
                behind
            }
            (b'\\', [quoted @ (b'\\' | b'\'' | b'"' | b'$'), behind @ ..]) => {
                out.push(*quoted);
                behind
            }
            (b'\\', [other, behind @ ..]) => {
                out.extend_from_slice(&[b'\\', *other]);
                behind
            }
            (b'\\', []) => tail,
            _ => {
                out.push(b);
                tail
            }
        };
    }
    Ok(out)
}

/// The name behind a dollar sign, and what follows it.
fn name<'a>(r: &Request, text: &[u8], tail: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Failed> {
    let (bracket, from) = match tail.strip_prefix(b"{") {
        Some(inner) => (true, inner),
        None => (false, tail),
    };
    let is_name = |b: &&u8| b.is_ascii_alphanumeric() || **b == b'_';
    let len = from.iter().take_while(is_name).count();
    let (name, behind) = from.split_at(len);
    let behind = match (bracket, behind.strip_prefix(b"}")) {
        (false, _) => behind,
        (true, Some(behind)) => behind,
        (true, None) if !from.is_empty() => {
            let name = base::log::lossy(name);
            let m = format_args!("the closing bracket in \"{name}\" variable is missing");
            log(r, Level::Error, m);
            return Err(Failed);
        }
        (true, None) => behind,
    };
    if name.is_empty() {
        let text = base::log::lossy(text);
        log(r, Level::Error, format_args!("invalid variable name in \"{text}\""));
        return Err(Failed);
    }
    Ok((name, behind))
}

/// Path and arguments of a page to include: relative ones are beside the page.
pub(super) fn uri(r: &mut Request, page: &Page, given: &[u8]) -> Result<(Bytes, Bytes), Failed> {
    let mut target = text(r, page, given)?;
    if target.first().is_some_and(|b| *b != b'/') {
        let folder = memchr::memrchr(b'/', &r.target.uri).map_or(0, |i| i + 1);
        target.splice(..0, r.target.uri[..folder].iter().copied());
    }
    let mut path = Vec::with_capacity(target.len());
    match http_wire::uri::parse_unsafe(&target, &mut path) {
        Ok(args) => {
            let target = Bytes::from(target);
            Ok((Bytes::from(path), target.slice(args)))
        }
        Err(_) => {
            let target = base::log::lossy(&target);
            log(r, Level::Error, format_args!("unsafe URI \"{target}\" was detected"));
            Err(Failed)
        }
    }
}

/// Whether an expression holds: `$a`, `$a = text`, `$a != text`, `$a = /pattern/`.
pub(super) fn condition(r: &mut Request, page: &Page, expr: &[u8]) -> Result<bool, Failed> {
    let is_left = |b: &&u8| b.is_ascii_alphanumeric() || b"${}_\"'".contains(*b);
    let (left, rest) = expr.split_at(expr.iter().take_while(is_left).count());
    let left = text(r, page, &left.to_ascii_lowercase())?;
    let rest = rest.trim_ascii_start();
    if rest.is_empty() {
        return Ok(!left.is_empty());
    }
    let (negative, right) = match (rest.strip_prefix(b"="), rest.strip_prefix(b"!=")) {
        (Some(right), _) => (false, right),
        (None, Some(right)) => (true, right),
        (None, None) => return Err(invalid(r, expr)),
    };
    let right = right.trim_ascii_start();
    let holds = match right {
        [b'/', pattern @ .., b'/'] => {
            let pattern = resolve(r, page, pattern, true)?;
            matches(r, page, &pattern, left)?
        }
        [b'/', _, ..] => return Err(invalid(r, expr)),
        [b'\\', b'/', ..] => text(r, page, &right[1..])? == left,
        plain => text(r, page, plain)? == left,
    };
    Ok(holds != negative)
}

fn invalid(r: &Request, expr: &[u8]) -> Failed {
    log(r, Level::Error, format_args!("invalid expression in \"{}\"", base::log::lossy(expr)));
    Failed
}

thread_local! {
    static PATTERNS: RefCell<HashMap<Bytes, Rc<Pattern>>> = RefCell::default();
}

/// A pattern of a page, compiled once for all requests that come soon.
fn compiled(text: &[u8]) -> Result<Rc<Pattern>, PatternError> {
    PATTERNS.with_borrow_mut(|known| {
        if let Some(p) = known.get(text) {
            return Ok(p.clone());
        }
        let pattern = Rc::new(Pattern::new(text, false)?);
        if known.len() >= PATTERNS_MAX {
            // Patterns may hold variables: there is no end of them.
            known.clear();
        }
        known.insert(Bytes::copy_from_slice(text), pattern.clone());
        Ok(pattern)
    })
}

fn matches(r: &Request, page: &Page, pattern: &[u8], subject: Vec<u8>) -> Result<bool, Failed> {
    let shown = || base::log::lossy(pattern).into_owned();
    let pattern = compiled(pattern).map_err(|why| {
        let m = format_args!("regular expression \"{}\" does not compile: {why}", shown());
        log(r, Level::Error, m);
        Failed
    })?;
    let mut spans: Vec<Span> = Vec::new();
    match pattern.find(&subject, &mut spans) {
        Ok(false) => return Ok(false),
        Ok(true) => {}
        Err(gave_up) => {
            log(r, Level::Alert, format_args!("{gave_up} using \"{}\"", shown()));
            return Err(Failed);
        }
    }
    let subject = Bytes::from(subject);
    let group = |span: &Span| match *span {
        Some((a, b)) => subject.slice(a as usize..b as usize),
        None => Bytes::new(),
    };
    let captures: Vec<Bytes> = spans.iter().map(group).collect();
    for (n, name) in pattern.names() {
        // A copy, because a group keeps the whole subject in memory.
        let group = captures.get(n).map(|group| Bytes::copy_from_slice(group));
        page.set(name.as_bytes(), group.unwrap_or_default())
            .map_err(|e| e.of(r, name.as_bytes()))?;
    }
    *page.captures.borrow_mut() = captures;
    Ok(true)
}
