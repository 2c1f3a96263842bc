//! `charset`: says in which charset responses are, and recodes those that are in another one.

mod table;

use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use conf::table::{Args, Contexts, Directive};
use conf::template::Template;
use conf::{ConfError, Node, Word, value};
use http::core_directives::{HSL, HSLI, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, HeaderFilter, LocView, Module, Pipeline, Scope, Verdict};
use http::output::{BodyFilter, FilterStep, Piece};
use http::request::Request;
use http::types::TypeList;

use self::table::{Pair, Partial, Tables, recode_piece};

/// The module's table.
pub static MODULE: Module = Module {
    confs: &[ConfType::of::<Charsets>(Scope::Main), ConfType::of::<CharsetConf>(Scope::Location)],
    ..Module::of::<CharsetConf>("charset", DIRECTIVES, install)
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "charset",
        HSLI,
        Args::T1,
        "off",
        "The charset in Content-Type; responses in another charset are converted to it.",
        |cx, n| {
            if n.args[0].bytes() == b"off" {
                return put(cx, n, |c| &mut c.charset, Choice::Off);
            }
            choose(cx, n, |c| &mut c.charset)
        },
    ),
    directive(
        "source_charset",
        HSLI,
        Args::T1,
        "",
        "The charset that responses are in before conversion.",
        |cx, n| choose(cx, n, |c| &mut c.source),
    ),
    directive(
        "override_charset",
        HSLI,
        Args::FLAG,
        "off",
        "Also converts proxied responses that declare a charset of their own.",
        |cx, n| value::set_flag(&mut cx.loc::<CharsetConf>().override_charset, n),
    ),
    directive(
        "charset_types",
        HSL,
        Args::ONE_MORE,
        "text/html text/xml text/plain text/vnd.wap.wml application/javascript application/rss+xml",
        "MIME types of responses that get a charset, in addition to text/html.",
        |cx, n| TypeList::set(&mut cx.loc::<CharsetConf>().types, n, Some("text/html")),
    ),
    directive(
        "charset_map",
        Contexts::HTTP,
        Args::BLOCK.or(Args::T2),
        "",
        "A conversion table between two charsets.",
        charset_map,
    ),
];

const DEFAULT_TYPES: &[&str] = &[
    "text/html",
    "text/xml",
    "text/plain",
    "text/vnd.wap.wml",
    "application/javascript",
    "application/rss+xml",
];

/// All charsets that some directive names, and the tables between them.
#[derive(Default)]
struct Charsets {
    names: Vec<Bytes>,
    tables: Tables,
}

impl Conf for Charsets {}

impl Charsets {
    /// The number of a charset; names are the same in any case.
    fn find(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|n| base::ascii::eq_ignore_case(n, name))
    }

    fn add(&mut self, name: &Bytes) -> usize {
        self.find(name).unwrap_or_else(|| {
            self.names.push(name.clone());
            self.names.len() - 1
        })
    }
}

/// `charset` or `source_charset`.
#[derive(Clone)]
enum Choice {
    Off,
    Known(usize),
    Evaluated(Template),
}

engine::settings! {
    struct CharsetConf {
        charset: Option<Choice>,
        source: Option<Choice>,
        override_charset: Option<bool>,
        types: Option<TypeList>,
    }
}

fn choice(cx: &mut Cx, w: &Word) -> Result<Choice, ConfError> {
    // Only a variable's name may stand there: a charset's name is no text with variables in it.
    if w.bytes().first() == Some(&b'$') {
        return cx.template(w).map(Choice::Evaluated);
    }
    Ok(Choice::Known(cx.main::<Charsets>().add(&w.text)))
}

fn choose(
    cx: &mut Cx,
    n: &Node,
    field: fn(&mut CharsetConf) -> &mut Option<Choice>,
) -> Result<(), ConfError> {
    let choice = choice(cx, &n.args[0])?;
    put(cx, n, field, choice)
}

fn put(
    cx: &mut Cx,
    n: &Node,
    field: fn(&mut CharsetConf) -> &mut Option<Choice>,
    choice: Choice,
) -> Result<(), ConfError> {
    let field = field(cx.loc::<CharsetConf>());
    if field.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    *field = Some(choice);
    Ok(())
}

fn charset_map(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (from, to) = (&n.args[0], &n.args[1]);
    let charsets = cx.main::<Charsets>();
    let (a, b) = (charsets.add(&from.text), charsets.add(&to.text));
    let fail = |m: String| Err(ConfError::at(&n.name, m));
    let names = format!("\"{}\" and \"{}\"", from.lossy(), to.lossy());
    if a == b {
        return fail(format!("\"charset_map\" between the same charsets {names}"));
    }
    let is_utf8 = |w: &Word| base::ascii::eq_ignore_case(w.bytes(), b"utf-8");
    if is_utf8(from) {
        let m = "\"charset_map\" with \"utf-8\" charset should be given in the second column";
        return fail(m.to_owned());
    }
    if charsets.tables.has(a, b) {
        return fail(format!("duplicate \"charset_map\" between {names}"));
    }
    let pair = Pair::parse(n, is_utf8(to))?;
    charsets.tables.add(a, b, pair);
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let (conf, all) = (l.conf::<CharsetConf>(), l.conf::<Charsets>());
    let (charset, source) = (conf.charset.clone(), conf.source.clone());
    if let (Some(Choice::Known(to)), Some(Choice::Known(from))) = (&charset, &source)
        && to != from
        && !all.tables.has(*from, *to)
    {
        return Err(ConfError::new(no_map(&all.names[*from], &all.names[*to])));
    }
    // An upstream may ask for any charset that is known, whatever is set here.
    if charset.is_none() && source.is_none() && all.names.is_empty() {
        return Ok(());
    }
    p.header_filters.push(Box::new(Filter {
        charset: charset.unwrap_or(Choice::Off),
        source: source.unwrap_or(Choice::Off),
        override_charset: conf.override_charset.unwrap_or(false),
        types: conf.types.clone().unwrap_or_else(|| TypeList::of(DEFAULT_TYPES)),
        all,
    }));
    Ok(())
}

fn no_map(from: &[u8], to: &[u8]) -> String {
    let (from, to) = (base::log::lossy(from), base::log::lossy(to));
    format!("no \"charset_map\" between the charsets \"{from}\" and \"{to}\"")
}

struct Filter {
    charset: Choice,
    source: Choice,
    override_charset: bool,
    types: TypeList,
    all: Rc<Charsets>,
}

/// A charset by name; tables are between those that have a number.
struct Named {
    name: Bytes,
    number: Option<usize>,
}

impl Filter {
    fn named(&self, name: Bytes) -> Named {
        let number = self.all.find(&name);
        Named { name, number }
    }

    /// A variable without a value is a charset without a name, which is the same as none.
    fn chosen(&self, r: &mut Request, choice: &Choice) -> Option<Named> {
        match choice {
            Choice::Off => None,
            Choice::Known(n) => Some(Named { name: self.all.names[*n].clone(), number: Some(*n) }),
            Choice::Evaluated(t) => Some(self.named(r.eval(t))),
        }
    }

    /// The charset that the response is to be in; `None`: whatever it is in.
    fn destination(&self, r: &mut Request) -> Option<Named> {
        // A part of a page is in the charset of the page.
        if r.is_subrequest() {
            return r.main_charset().map(|name| self.named(name));
        }
        r.out.content_type.as_ref()?;
        if let Some(asked) = r.out.override_charset.clone().filter(|c| !c.is_empty()) {
            let named = self.named(asked);
            if named.number.is_none() {
                let name = base::log::lossy(&named.name);
                r.log(Level::Error, format_args!("unknown charset \"{name}\" to override"));
                return None;
            }
            return Some(named);
        }
        let stays = match &r.out.charset {
            Some(_) => !self.override_charset,
            None => !self.types.has(&r.out),
        };
        if stays { None } else { self.chosen(r, &self.charset) }
    }

    fn source(&self, r: &mut Request) -> Option<Named> {
        match r.out.charset.clone() {
            Some(name) => Some(self.named(name)),
            None => self.chosen(r, &self.source),
        }
    }
}

impl HeaderFilter for Filter {
    fn in_subrequests(&self) -> bool {
        true
    }

    fn run(&self, r: &mut Request) -> Verdict {
        let Some(to) = self.destination(r) else { return Verdict::Next };
        let Some(from) = self.source(r) else {
            announce(r, to.name);
            return Verdict::Next;
        };
        let same = match (from.number, to.number) {
            (None, None) => base::ascii::eq_ignore_case(&from.name, &to.name),
            (a, b) => a == b,
        };
        if same {
            if to.number.is_some() {
                r.out.content_type_written = None;
            }
            announce(r, to.name);
            return Verdict::Next;
        }
        if let (Some(a), Some(b)) = (from.number, to.number) {
            // Coded bytes cannot be recoded.
            if r.out.header(b"Content-Encoding").is_some_and(|v| !v.is_empty()) {
                return Verdict::Next;
            }
            if let Some(table) = self.all.tables.find(a, b) {
                if !table.keeps_length() {
                    r.out.body_changes();
                }
                let (all, partial) = (self.all.clone(), Partial::default());
                r.out.content_type_written = None;
                r.out.filters.push(Box::new(Recode { all, from: a, to: b, partial }));
                announce(r, to.name);
                return Verdict::Next;
            }
        }
        r.log(Level::Error, format_args!("{}", no_map(&from.name, &to.name)));
        Verdict::Next
    }
}

/// Redirects get no charset: old browsers took it for the next page's.
fn announce(r: &mut Request, name: Bytes) {
    if r.is_subrequest() {
        return;
    }
    let redirect = matches!(r.out.status, 301 | 302);
    r.out.charset = (!redirect && !name.is_empty()).then_some(name);
}

struct Recode {
    all: Rc<Charsets>,
    from: usize,
    to: usize,
    partial: Partial,
}

impl BodyFilter for Recode {
    fn filter(&mut self, _: &mut Request, Piece { input, last, out }: Piece<'_>) -> FilterStep {
        let Some(table) = self.all.tables.find(self.from, self.to) else {
            return FilterStep::Fail;
        };
        while let Some(piece) = input.pop_front() {
            let Some(bytes) = piece.into_bytes() else { return FilterStep::Fail };
            match recode_piece(table, bytes, &mut self.partial) {
                Ok(same) => out.push_bytes(same),
                Err(recoded) => out.push_bytes(Bytes::from(recoded)),
            }
        }
        if last {
            let mut rest = Vec::new();
            table.recode(b"", true, &mut self.partial, &mut rest);
            out.write(&rest);
        }
        FilterStep::Go
    }
}
