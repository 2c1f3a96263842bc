//! Carrying out the commands of one page.

use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use http::output::{BodyFilter, FilterStep, Piece, Until};
use http::request::Request;
use http::subrequest::{Handle, Refused, Subrequest, Use};
use http_wire::uri::Escape;
use mem::Chain;

use super::TimeFormat;
use super::eval::{self, Failed, Page, TooLong};
use ssi::{Command, Found, PARAMS_MAX, Parser};

/// The bytes that `echo` may write before they are sent: a value is long, its command short.
const OUTPUT_MAX: usize = 256 << 10;

/// The place of the page within an `if`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Branch {
    /// After `if` or `elif`.
    If,
    /// After `else`.
    Else,
}

/// The encoding of the values that `echo` writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Encoding {
    None,
    Url,
    Entity,
}

/// The values of a command's parameters, in the order of its table.
type Params = [Option<Vec<u8>>];

type Run = fn(&mut Body, &mut Request, &Params, &mut Chain) -> Result<AfterCommand, Failed>;

/// The commands: their names, parameters (the first so many must be there), and the last branch of
/// an `if` that they may stand in, if only there.
struct Known {
    name: &'static [u8],
    params: &'static [&'static [u8]],
    needed: usize,
    within: Option<Branch>,
    run: Run,
}

const fn known(
    name: &'static [u8],
    params: &'static [&'static [u8]],
    needed: usize,
    within: Option<Branch>,
    run: Run,
) -> Known {
    Known { name, params, needed, within, run }
}

static COMMANDS: &[Known] = &[
    known(b"include", &[b"virtual", b"file", b"wait", b"set", b"stub"], 0, None, |b, r, p, _| {
        b.include(r, p)
    }),
    known(b"echo", &[b"var", b"default", b"encoding"], 1, None, |b, r, p, out| {
        Ok(b.echo(r, p, out))
    }),
    known(b"config", &[b"errmsg", b"timefmt"], 0, None, |b, r, p, _| Ok(b.config(r, p))),
    known(b"set", &[b"var", b"value"], 2, None, |b, r, p, _| b.set(r, p)),
    known(b"if", &[b"expr"], 1, None, |b, r, p, _| {
        if b.branch.is_some() {
            eval::log(
                r,
                Level::Error,
                format_args!("the \"if\" command inside the \"if\" command"),
            );
            return Err(Failed);
        }
        b.condition(r, p)
    }),
    known(b"elif", &[b"expr"], 1, Some(Branch::If), |b, r, p, _| b.condition(r, p)),
    known(b"else", &[], 0, Some(Branch::If), |b, _, _, _| {
        b.output = !b.chosen;
        b.branch = Some(Branch::Else);
        Ok(AfterCommand::Go)
    }),
    known(b"endif", &[], 0, Some(Branch::Else), |b, _, _, _| {
        (b.output, b.chosen, b.branch) = (true, false, None);
        Ok(AfterCommand::Go)
    }),
    known(b"block", &[b"name"], 1, None, |b, r, p, _| {
        let name = p[0].clone().unwrap_or_default();
        let page = b.page.clone();
        page.begin_block(name.clone()).map_err(|e| e.of(r, &name))?;
        (b.output, b.in_block) = (false, true);
        Ok(AfterCommand::Go)
    }),
    known(b"endblock", &[], 0, None, |b, _, _, _| {
        (b.output, b.in_block) = (true, false);
        Ok(AfterCommand::Go)
    }),
];

/// The next step behind a command.
enum AfterCommand {
    Go,
    /// The subrequest's body stands here; with `true`, the page goes on behind its end only.
    Include(Handle, bool),
    /// The subrequest's body becomes a variable's value.
    Set(Bytes, Handle),
}

/// A page on its way out.
pub(super) struct Body {
    page: Rc<Page>,
    silent: bool,
    parser: Parser,
    piece: Bytes,
    at: usize,
    output: bool,
    /// Some branch of the `if` was chosen already.
    chosen: bool,
    branch: Option<Branch>,
    in_block: bool,
    encoding: Encoding,
    errmsg: Bytes,
    wait: Option<Until>,
    /// The client's request may have no more subrequests: the page ends here.
    exhausted: bool,
    variable_length: usize,
    /// Bytes that `echo` wrote since the filter last gave out what it had.
    made: usize,
    setting: Option<(Bytes, Handle)>,
}

impl Body {
    pub fn new(page: Rc<Page>, silent: bool, (value, variable): (usize, usize)) -> Body {
        Body {
            page,
            silent,
            parser: Parser::new(value),
            piece: Bytes::new(),
            at: 0,
            output: true,
            chosen: false,
            branch: None,
            in_block: false,
            encoding: Encoding::Entity,
            errmsg: Bytes::from_static(b"[an error occurred while processing the directive]"),
            wait: None,
            exhausted: false,
            variable_length: variable,
            made: 0,
            setting: None,
        }
    }

    fn text(&mut self, r: &Request, text: Bytes, out: &mut Chain) {
        if self.output {
            out.push_bytes(text);
        } else if self.in_block
            && let Err(e) = self.page.add_to_block(&text)
        {
            e.of(r, b"block");
            self.error(out);
        }
    }

    fn error(&self, out: &mut Chain) {
        if !self.silent && !self.errmsg.is_empty() {
            out.push_bytes(self.errmsg.clone());
        }
    }

    fn command(
        &mut self,
        r: &mut Request,
        c: &Command,
        out: &mut Chain,
    ) -> Result<AfterCommand, Failed> {
        let name = || base::log::lossy(&c.name).into_owned();
        let Some(known) = COMMANDS.iter().find(|k| k.name == c.name) else {
            if self.output {
                eval::log(r, Level::Error, format_args!("invalid SSI command: \"{}\"", name()));
                return Err(Failed);
            }
            return Ok(AfterCommand::Go);
        };
        if !self.output && known.name != b"endblock" {
            if self.in_block {
                let mut text = Vec::new();
                written(c, &mut text);
                self.page.add_to_block(&text).map_err(|e| e.of(r, b"block"))?;
                return Ok(AfterCommand::Go);
            }
            if known.within.is_none() {
                return Ok(AfterCommand::Go);
            }
        }
        if let Some(last) = known.within
            && self.branch.is_none_or(|b| b > last)
        {
            let m = "invalid context of SSI command:";
            eval::log(r, Level::Error, format_args!("{m} \"{}\"", name()));
            return Err(Failed);
        }
        let params = params(r, known, c)?;
        (known.run)(self, r, &params, out)
    }

    fn condition(&mut self, r: &mut Request, p: &Params) -> Result<AfterCommand, Failed> {
        if self.chosen {
            self.output = false;
            return Ok(AfterCommand::Go);
        }
        let page = self.page.clone();
        self.output = eval::condition(r, &page, p[0].as_deref().unwrap_or_default())?;
        self.chosen = self.output;
        self.branch = Some(Branch::If);
        Ok(AfterCommand::Go)
    }

    fn set(&mut self, r: &mut Request, p: &Params) -> Result<AfterCommand, Failed> {
        let (name, given) = (p[0].as_deref().unwrap_or_default(), p[1].as_deref());
        let page = self.page.clone();
        let value = eval::text(r, &page, given.unwrap_or_default())?;
        page.set(name, Bytes::from(value)).map_err(|e| e.of(r, name))?;
        Ok(AfterCommand::Go)
    }

    fn config(&mut self, r: &mut Request, p: &Params) -> AfterCommand {
        if let Some(message) = &p[0] {
            self.errmsg = Bytes::copy_from_slice(message);
        }
        if let Some(format) = &p[1] {
            r.ctx_mut::<TimeFormat>().0 = Some(Bytes::copy_from_slice(format));
        }
        AfterCommand::Go
    }

    fn echo(&mut self, r: &mut Request, p: &Params, out: &mut Chain) -> AfterCommand {
        let page = self.page.clone();
        let found = eval::variable(r, &page, p[0].as_deref().unwrap_or_default());
        let value = match (found, &p[1]) {
            (Some(value), _) => value,
            (None, Some(default)) => Bytes::copy_from_slice(default),
            (None, None) => Bytes::from_static(b"(none)"),
        };
        if value.is_empty() {
            return AfterCommand::Go;
        }
        match p[2].as_deref() {
            None => {}
            Some(b"none") => self.encoding = Encoding::None,
            Some(b"url") => self.encoding = Encoding::Url,
            Some(b"entity") => self.encoding = Encoding::Entity,
            Some(other) => {
                let other = base::log::lossy(other);
                let m = format_args!("unknown encoding \"{other}\" in the \"echo\" command");
                eval::log(r, Level::Error, m);
            }
        }
        let mut written = Vec::new();
        match self.encoding {
            Encoding::None => out.push_bytes(value),
            Encoding::Url => http_wire::uri::escape(&value, Escape::Html, &mut written),
            Encoding::Entity => http_wire::uri::escape_html(&value, &mut written),
        }
        if !written.is_empty() {
            self.made += written.len();
            out.push_bytes(Bytes::from(written));
        }
        AfterCommand::Go
    }

    fn include(&mut self, r: &mut Request, p: &Params) -> Result<AfterCommand, Failed> {
        let [virtual_, file, wait, set, stub] = p else { return Err(Failed) };
        let fail = |r: &Request, m: String| {
            eval::log(r, Level::Error, format_args!("{m}"));
            Failed
        };
        let shown = |v: &Vec<u8>| base::log::lossy(v).into_owned();
        let given = match (virtual_, file) {
            (Some(v), Some(f)) => {
                let (v, f) = (shown(v), shown(f));
                let m = format!("inclusion may be either virtual=\"{v}\" or file=\"{f}\"");
                return Err(fail(r, m));
            }
            (Some(given), None) | (None, Some(given)) => given,
            (None, None) => {
                return Err(fail(r, "no parameter in \"include\" SSI command".to_owned()));
            }
        };
        if set.is_some() && stub.is_some() {
            let m = "\"set\" and \"stub\" cannot be used together in \"include\" SSI command";
            return Err(fail(r, m.to_owned()));
        }
        let wait = match (wait, file) {
            (Some(_), Some(f)) => {
                let m = format!("\"wait\" cannot be used with file=\"{}\"", shown(f));
                return Err(fail(r, m));
            }
            (Some(w), _) if w.eq_ignore_ascii_case(b"no") => false,
            (Some(w), _) if w.eq_ignore_ascii_case(b"yes") => true,
            (Some(w), _) => {
                let m = format!("invalid value \"{}\" in the \"wait\" parameter", shown(w));
                return Err(fail(r, m));
            }
            (None, file) => file.is_some(),
        };
        let page = self.page.clone();
        let (uri, args) = eval::uri(r, &page, given)?;
        let mut ask = Subrequest::new(uri, args);
        if let Some(stub) = stub {
            let Some(block) = page.block(stub) else {
                let m = format!("\"stub\"=\"{}\" for \"include\" not found", shown(stub));
                return Err(fail(r, m));
            };
            ask.instead = Some(block);
        }
        if let Some(name) = set {
            ask.take = Use::Memory;
            page.declare(name).map_err(|e| e.of(r, name))?;
        }
        let handle = r.subrequest(ask).map_err(|refused| {
            self.exhausted = refused == Refused::Exhausted;
            Failed
        })?;
        Ok(match set {
            Some(name) => AfterCommand::Set(Bytes::copy_from_slice(name), handle),
            None => AfterCommand::Include(handle, wait),
        })
    }

    /// Goes on when the wait is over.
    fn go_on(&mut self) -> Result<(), (Bytes, TooLong)> {
        let Some((name, handle)) = self.setting.take() else { return Ok(()) };
        let value = if handle.status() < 300 {
            let mut value = Vec::new();
            for piece in handle.body().iter() {
                value.extend_from_slice(piece.memory().unwrap_or_default());
            }
            Bytes::from(value)
        } else {
            // The variable keeps what it was.
            return Ok(());
        };
        self.page.set_included(&name, value).map_err(|e| (name, e))
    }
}

/// A command as it may stand in a page, for a block's text.
fn written(c: &Command, out: &mut Vec<u8>) {
    out.extend_from_slice(b"<!--#");
    out.extend_from_slice(&c.name);
    for (name, value) in &c.params {
        // A value holds a quote of the kind that it does not stand in, or one behind a backslash.
        let quote = if value.contains(&b'"') { b'\'' } else { b'"' };
        out.push(b' ');
        out.extend_from_slice(name);
        out.extend_from_slice(&[b'=', quote]);
        out.extend_from_slice(value);
        out.push(quote);
    }
    out.extend_from_slice(b" -->");
}

/// A command's parameters in the order of its table.
fn params(r: &Request, known: &Known, c: &Command) -> Result<Vec<Option<Vec<u8>>>, Failed> {
    let command = || base::log::lossy(&c.name).into_owned();
    if c.params.len() > PARAMS_MAX {
        let m = "too many SSI command parameters:";
        eval::log(r, Level::Error, format_args!("{m} \"{}\"", command()));
        return Err(Failed);
    }
    let mut found = vec![None; known.params.len()];
    for (name, value) in &c.params {
        let shown = || base::log::lossy(name).into_owned();
        let Some(i) = known.params.iter().position(|p| *p == name.as_slice()) else {
            let (name, command) = (shown(), command());
            let m = format_args!("invalid parameter name: \"{name}\" in \"{command}\" SSI command");
            eval::log(r, Level::Error, m);
            return Err(Failed);
        };
        if found[i].is_some() {
            let (name, command) = (shown(), command());
            let m = format_args!("duplicate \"{name}\" parameter in \"{command}\" SSI command");
            eval::log(r, Level::Error, m);
            return Err(Failed);
        }
        found[i] = Some(value.clone());
    }
    if let Some(i) = found[..known.needed].iter().position(Option::is_none) {
        let (name, command) = (base::log::lossy(known.params[i]), command());
        let m =
            format_args!("mandatory \"{name}\" parameter is absent in \"{command}\" SSI command");
        eval::log(r, Level::Error, m);
        return Err(Failed);
    }
    Ok(found)
}

impl BodyFilter for Body {
    fn filter(&mut self, r: &mut Request, Piece { input, last, out }: Piece<'_>) -> FilterStep {
        if let Some(until) = self.wait.take() {
            return FilterStep::Wait(until);
        }
        self.page.longest.set(self.variable_length);
        if let Err((name, e)) = self.go_on() {
            e.of(r, &name);
            self.error(out);
        }
        loop {
            if self.made > OUTPUT_MAX {
                self.made = 0;
                return FilterStep::More;
            }
            let then = match self.parser.next(&self.piece, &mut self.at) {
                Found::Text(text) => {
                    self.text(r, text, out);
                    continue;
                }
                Found::Command(c) => self.command(r, &c, out),
                Found::Wrong(message) => {
                    eval::log(r, Level::Error, format_args!("{message}"));
                    Err(Failed)
                }
                Found::End => {
                    let Some(piece) = input.pop_front() else { break };
                    let Some(bytes) = piece.into_bytes() else { return FilterStep::Fail };
                    (self.piece, self.at) = (bytes, 0);
                    continue;
                }
            };
            match then {
                Ok(AfterCommand::Go) => {}
                Ok(AfterCommand::Include(handle, wait)) => {
                    if wait {
                        self.wait = Some(Box::pin(handle.ended()));
                    }
                    return FilterStep::Include(handle);
                }
                Ok(AfterCommand::Set(name, handle)) => {
                    let ended = Box::pin(handle.ended());
                    self.setting = Some((name, handle));
                    return FilterStep::Wait(ended);
                }
                Err(Failed) if self.exhausted => return FilterStep::Fail,
                Err(Failed) => self.error(out),
            }
        }
        (self.piece, self.at) = (Bytes::new(), 0);
        if last {
            let rest = self.parser.finish();
            self.text(r, rest, out);
        }
        FilterStep::Go
    }
}
