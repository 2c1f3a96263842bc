//! Server side includes: finding commands in a page that comes in pieces, without I/O: `<!--# name
//! param="value" … -->`.
//!
//! ```text
//!  text ── `<!--#` ──▶ before name ──▶ name ─┬▶ before param ──▶ param ──▶ `=` ──▶ value ─┐
//!   ▲                                        │       ▲                                    │
//!   └───────────────── `-->` ◀───────────────┴───────┴────────────────────────────────────┘
//!        (a command that is wrong is skipped up to its `-->`)
//! ```

#![forbid(unsafe_code)]

use bytes::Bytes;

/// The opening of a command.
const OPENING: &[u8] = b"<!--#";

/// The longest name of a command or of a parameter, bytes.
const NAME_MAX: usize = 32;

/// The most parameters of a command.
pub const PARAMS_MAX: usize = 16;

/// A command as it was written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Command {
    /// Its name.
    pub name: Vec<u8>,
    /// Names and values; backslashes are still there. One more than allowed at most.
    pub params: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The next part of a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Bytes of the page itself.
    Text(Bytes),
    /// A command.
    Command(Command),
    /// A command that is no command, with what is wrong for the log.
    Wrong(String),
    /// Nothing more in this piece.
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// So many bytes of the opening were seen.
    Text(usize),
    BeforeName,
    Name,
    BeforeParam,
    Param,
    BeforeEqual,
    BeforeValue,
    /// Up to this quote.
    Value(u8),
    /// Behind a backslash in a value of this quote.
    Quoted(u8),
    AfterValue,
    /// One or two dashes of the command's end were seen.
    Dash1,
    Dash2,
    /// The same in a command that is skipped.
    Skip,
    SkipDash1,
    SkipDash2,
}

/// The parser's state between two pieces of a page.
pub struct Parser {
    state: State,
    command: Command,
    wrong: Option<String>,
    value_max: usize,
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

fn show(bytes: &[u8]) -> String {
    base::log::lossy(bytes).into_owned()
}

impl Parser {
    /// A parser at the beginning of a page. `value_max`: bytes that a parameter's value may have.
    pub fn new(value_max: usize) -> Parser {
        Parser { state: State::Text(0), command: Command::default(), wrong: None, value_max }
    }

    /// Goes on in `piece` at `*at`; call again until the answer is [`Found::End`].
    pub fn next(&mut self, piece: &Bytes, at: &mut usize) -> Found {
        if let State::Text(seen) = self.state
            && let Some(text) = self.text(piece, at, seen)
        {
            return text;
        }
        while let Some(&b) = piece.get(*at) {
            *at += 1;
            if let Some(found) = self.byte(b) {
                return found;
            }
        }
        Found::End
    }

    /// The page ends: what looked like the beginning of a command was none.
    pub fn finish(&mut self) -> Bytes {
        match std::mem::replace(&mut self.state, State::Text(0)) {
            State::Text(seen) => Bytes::from_static(&OPENING[..seen]),
            _ => Bytes::new(),
        }
    }

    /// Text up to an opening; `None` behind one.
    fn text(&mut self, piece: &Bytes, at: &mut usize, mut seen: usize) -> Option<Found> {
        let start = *at;
        if seen > 0 {
            // An opening that began in an earlier piece.
            while seen < OPENING.len() {
                match piece.get(*at) {
                    None => {
                        self.state = State::Text(seen);
                        return Some(Found::End);
                    }
                    Some(b) if *b == OPENING[seen] => {
                        seen += 1;
                        *at += 1;
                    }
                    Some(_) => {
                        // The bytes taken from this piece are a part of the opening.
                        self.state = State::Text(0);
                        return Some(Found::Text(Bytes::from_static(&OPENING[..seen])));
                    }
                }
            }
            self.begin();
            return None;
        }
        loop {
            let Some(i) = memchr::memchr(b'<', piece.get(*at..)?).map(|i| *at + i) else {
                *at = piece.len();
                return Some(text_or_end(piece.slice(start..)));
            };
            let rest = &piece[i..];
            let same = OPENING.iter().zip(rest).take_while(|(a, b)| a == b).count();
            if same == OPENING.len() || same == rest.len() {
                *at = i + same;
                match same == OPENING.len() {
                    true => self.begin(),
                    false => self.state = State::Text(same),
                }
                let text = piece.slice(start..i);
                return match (text.is_empty(), same == OPENING.len()) {
                    (false, _) => Some(Found::Text(text)),
                    (true, true) => None,
                    (true, false) => Some(Found::End),
                };
            }
            *at = i + same;
        }
    }

    fn begin(&mut self) {
        self.state = State::BeforeName;
        self.command = Command::default();
        self.wrong = None;
    }

    fn byte(&mut self, b: u8) -> Option<Found> {
        self.state = match self.state {
            State::Text(seen) => State::Text(seen),
            State::BeforeName if is_space(b) => State::BeforeName,
            State::BeforeName => {
                self.command.name.push(b);
                State::Name
            }
            State::Name => self.name(b),
            State::BeforeParam | State::AfterValue if is_space(b) => State::BeforeParam,
            State::BeforeParam | State::AfterValue if b == b'-' => State::Dash1,
            State::BeforeParam => {
                if self.command.params.len() <= PARAMS_MAX {
                    self.command.params.push((Vec::new(), Vec::new()));
                }
                self.param().0.clear();
                self.param().1.clear();
                self.param().0.push(b);
                State::Param
            }
            State::AfterValue => {
                let (key, value) = self.shown();
                self.skip(b, format!("after \"{value}\" value of \"{key}\" parameter"))
            }
            State::Param => self.param_name(b),
            State::BeforeEqual if is_space(b) => State::BeforeEqual,
            State::BeforeEqual if b == b'=' => State::BeforeValue,
            State::BeforeEqual => {
                let (key, _) = self.shown();
                self.skip(b, format!("after \"{key}\" parameter"))
            }
            State::BeforeValue if is_space(b) => State::BeforeValue,
            State::BeforeValue if b == b'"' || b == b'\'' => State::Value(b),
            State::BeforeValue => {
                let (key, _) = self.shown();
                self.skip(b, format!("before value of \"{key}\" parameter"))
            }
            State::Value(quote) if b == quote => State::AfterValue,
            State::Value(quote) => {
                let next = if b == b'\\' { State::Quoted(quote) } else { State::Value(quote) };
                self.value(b, next)
            }
            State::Quoted(quote) => self.value(b, State::Value(quote)),
            State::Dash1 if b == b'-' => State::Dash2,
            State::Dash2 if b == b'>' => {
                self.state = State::Text(0);
                return Some(Found::Command(std::mem::take(&mut self.command)));
            }
            State::Dash1 | State::Dash2 => self.skip_with(b, String::new()),
            State::Skip | State::SkipDash1 | State::SkipDash2 => return self.skipped(b),
        };
        None
    }

    fn name(&mut self, b: u8) -> State {
        match b {
            b if is_space(b) => State::BeforeParam,
            b'-' => State::Dash1,
            b if self.command.name.len() == NAME_MAX => {
                let name = show(&self.command.name);
                let m = format!("the \"{name}{}...\" SSI command is too long", char::from(b));
                self.fail(m, State::Skip)
            }
            b => {
                self.command.name.push(b);
                State::Name
            }
        }
    }

    fn param_name(&mut self, b: u8) -> State {
        match b {
            b if is_space(b) => State::BeforeEqual,
            b'=' => State::BeforeValue,
            b'-' => {
                let (key, _) = self.shown();
                self.skip(b, format!("after \"{key}\" parameter"))
            }
            b if self.param().0.len() == NAME_MAX => {
                let (key, _) = self.shown();
                let (b, name) = (char::from(b), show(&self.command.name));
                let m = format!("too long \"{key}{b}...\" parameter in \"{name}\" SSI command");
                self.fail(m, State::Skip)
            }
            b => {
                self.param().0.push(b);
                State::Param
            }
        }
    }

    fn value(&mut self, b: u8, next: State) -> State {
        if self.param().1.len() >= self.value_max {
            let (key, value) = self.shown();
            let (b, name) = (char::from(b), show(&self.command.name));
            let m = format!(
                "too long \"{value}{b}...\" value of \"{key}\" parameter in \"{name}\" SSI command"
            );
            return self.fail(m, State::Skip);
        }
        self.param().1.push(b);
        next
    }

    /// The parameter that is being read.
    fn param(&mut self) -> &mut (Vec<u8>, Vec<u8>) {
        if self.command.params.is_empty() {
            self.command.params.push((Vec::new(), Vec::new()));
        }
        let last = self.command.params.len() - 1;
        &mut self.command.params[last]
    }

    fn shown(&mut self) -> (String, String) {
        let (key, value) = self.param();
        (show(key), show(value))
    }

    fn fail(&mut self, message: String, state: State) -> State {
        self.wrong = Some(message);
        state
    }

    fn skip(&mut self, b: u8, place: String) -> State {
        self.skip_with(b, format!(" {place}"))
    }

    /// The dash that is wrong may be the first of the command's end.
    fn skip_with(&mut self, b: u8, place: String) -> State {
        let (shown, name) = (char::from(b), show(&self.command.name));
        let m = format!("unexpected \"{shown}\" symbol{place} in \"{name}\" SSI command");
        self.fail(m, if b == b'-' { State::SkipDash1 } else { State::Skip })
    }

    fn skipped(&mut self, b: u8) -> Option<Found> {
        self.state = match (self.state, b) {
            (State::SkipDash2, b'>') => {
                self.state = State::Text(0);
                return Some(Found::Wrong(self.wrong.take().unwrap_or_default()));
            }
            (State::SkipDash1 | State::SkipDash2, b'-') => State::SkipDash2,
            (_, b'-') => State::SkipDash1,
            _ => State::Skip,
        };
        None
    }
}

fn text_or_end(text: Bytes) -> Found {
    if text.is_empty() { Found::End } else { Found::Text(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page's text, with `[name key=value …]` for commands and `{message}` for wrong ones.
    fn parsed(page: &[u8], step: usize) -> String {
        let mut parser = Parser::new(40);
        let mut out = String::new();
        for piece in page.chunks(step) {
            let (piece, mut at) = (Bytes::copy_from_slice(piece), 0);
            loop {
                match parser.next(&piece, &mut at) {
                    Found::Text(t) => out.push_str(&show(&t)),
                    Found::Command(c) => {
                        out.push('[');
                        out.push_str(&show(&c.name));
                        for (k, v) in &c.params {
                            out.push_str(&format!(" {}={}", show(k), show(v)));
                        }
                        out.push(']');
                    }
                    Found::Wrong(m) => out.push_str(&format!("{{{m}}}")),
                    Found::End => break,
                }
            }
            assert_eq!(at, piece.len());
        }
        out.push_str(&show(&parser.finish()));
        out
    }

    #[test]
    fn pages_in_pieces_of_any_size() {
        let long = "n".repeat(33);
        let value = "v".repeat(41);
        let wrong = |what: &str, rest: &str| format!("{{{what} in \"a\" SSI command}}{rest}");
        for (page, want) in [
            ("plain text", "plain text".to_owned()),
            ("<p><!-- no command --></p>", "<p><!-- no command --></p>".to_owned()),
            ("a<!--#echo var=\"b\" -->c", "a[echo var=b]c".to_owned()),
            ("<<!--#a--><<!-<!--<!--#b  -->", "<[a]<<!-<!--[b]".to_owned()),
            (
                "<!--# set\n var = 'x \"y\"'\tvalue='\\'' --><!",
                "[set var=x \"y\" value=\\']<!".to_owned(),
            ),
            ("<!--#a b=\"\" c=''-->", "[a b= c=]".to_owned()),
            (
                "<!--#a b=\"1\"c=\"2\" -->d",
                wrong("unexpected \"c\" symbol after \"1\" value of \"b\" parameter", "d"),
            ),
            ("<!--#a b-->c", wrong("unexpected \"-\" symbol after \"b\" parameter", "c")),
            ("<!--#a b x -->c", wrong("unexpected \"x\" symbol after \"b\" parameter", "c")),
            (
                "<!--#a b=x -->c",
                wrong("unexpected \"x\" symbol before value of \"b\" parameter", "c"),
            ),
            ("<!--#a -x- --->c", wrong("unexpected \"x\" symbol", "c")),
            ("<!--#never ending \"", String::new()),
            (
                &format!("<!--#{long}-->c"),
                format!("{{the \"{}n...\" SSI command is too long}}c", &long[..32]),
            ),
            (
                &format!("<!--#a {long}='' -->c"),
                wrong(&format!("too long \"{}n...\" parameter", &long[..32]), "c"),
            ),
            (
                &format!("<!--#a b='{value}' -->c"),
                wrong(&format!("too long \"{}v...\" value of \"b\" parameter", &value[..40]), "c"),
            ),
        ] {
            for step in 1..=page.len() {
                assert_eq!(parsed(page.as_bytes(), step), want, "{page:?} in pieces of {step}");
            }
        }
    }

    #[test]
    fn parameters_are_counted_only() {
        let many = format!("<!--#a{} -->", " b='c'".repeat(1000));
        let mut parser = Parser::new(10);
        match parser.next(&Bytes::from(many), &mut 0) {
            Found::Command(c) => assert_eq!(c.params.len(), PARAMS_MAX + 1),
            other => panic!("{other:?}"),
        }
    }
}
