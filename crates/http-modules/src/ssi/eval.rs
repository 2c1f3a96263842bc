//! The state that commands share within a page and all its parts, and the evaluation of values.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use conf::pattern::{Pattern, Span};
use http::request::Request;

/// The most patterns that a worker keeps compiled.
const PATTERNS_MAX: usize = 64;

/// A command cannot be carried out; logged already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed;

/// The state of a page and of all its parts.
#[derive(Default)]
pub(super) struct Page {
    vars: RefCell<Vec<(Bytes, Bytes)>>,
    pub blocks: RefCell<Vec<Block>>,
    captures: RefCell<Vec<Bytes>>,
}

/// The content between `block` and `endblock`.
pub(super) struct Block {
    pub name: Vec<u8>,
    pub text: Vec<u8>,
}

impl Page {
    /// Sets a variable; names are the same in any case.
    pub fn set(&self, name: &[u8], value: Bytes) {
        let name = name.to_ascii_lowercase();
        let mut vars = self.vars.borrow_mut();
        match vars.iter_mut().find(|(n, _)| n[..] == name[..]) {
            Some((_, v)) => *v = value,
            None => vars.push((Bytes::from(name), value)),
        }
    }

    /// Makes a variable that is not there one without a value.
    pub fn declare(&self, name: &[u8]) {
        let name = name.to_ascii_lowercase();
        let mut vars = self.vars.borrow_mut();
        if !vars.iter().any(|(n, _)| n[..] == name[..]) {
            vars.push((Bytes::from(name), Bytes::new()));
        }
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
        blocks.iter().find(|b| b.name == name).map(|b| Bytes::copy_from_slice(&b.text))
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
            r.log(Level::Error, m);
            return Err(Failed);
        }
        (true, None) => behind,
    };
    if name.is_empty() {
        let text = base::log::lossy(text);
        r.log(Level::Error, format_args!("invalid variable name in \"{text}\""));
        return Err(Failed);
    }
    Ok((name, behind))
}

/// Path and arguments of a page to include: relative ones are beside the page.
pub(super) fn uri(r: &mut Request, page: &Page, given: &[u8]) -> Result<(Bytes, Bytes), Failed> {
    let mut target = text(r, page, given)?;
    if target.first().is_some_and(|b| *b != b'/') {
        let folder = memchr::memrchr(b'/', &r.uri).map_or(0, |i| i + 1);
        target.splice(..0, r.uri[..folder].iter().copied());
    }
    let mut path = Vec::with_capacity(target.len());
    match proto::uri::parse_unsafe(&target, &mut path) {
        Ok(args) => {
            let target = Bytes::from(target);
            Ok((Bytes::from(path), target.slice(args)))
        }
        Err(_) => {
            let target = base::log::lossy(&target);
            r.log(Level::Error, format_args!("unsafe URI \"{target}\" was detected"));
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
    r.log(Level::Error, format_args!("invalid expression in \"{}\"", base::log::lossy(expr)));
    Failed
}

thread_local! {
    static PATTERNS: RefCell<HashMap<Bytes, Rc<Pattern>>> = RefCell::default();
}

/// A pattern of a page, compiled once for all requests that come soon.
fn compiled(text: &[u8]) -> Result<Rc<Pattern>, String> {
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
        r.log(Level::Error, m);
        Failed
    })?;
    let mut spans: Vec<Span> = Vec::new();
    match pattern.find(&subject, &mut spans) {
        Ok(false) => return Ok(false),
        Ok(true) => {}
        Err(gave_up) => {
            r.log(Level::Alert, format_args!("{gave_up} using \"{}\"", shown()));
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
        page.set(name.as_bytes(), captures.get(n).cloned().unwrap_or_default());
    }
    *page.captures.borrow_mut() = captures;
    Ok(true)
}
