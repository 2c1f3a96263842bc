//! `autoindex`: lists of folders, as HTML, JSON, JSONP or XML.

use std::io::Write as _;
use std::task::{Poll, ready};

use base::ascii::write_u64;
use base::log::{Level, lossy};
use base::time::{Civil, format_http_date, unix_secs, zone_offset};
use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::{ConfError, value};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::files::{self, DirEntry, OpenError};
use http::module::{Dry, LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::output::{Body, BodySource, NextPiece};
use http::request::Request;
use http_wire::h1::Method;
use http_wire::uri::{Escape, escape, escape_html};
use listing::{Entry, Order, name_column, rounded_size};
use mem::Chain;
use os::file::FileKind;

use crate::static_file::{EACCES, ENAMETOOLONG, ENOENT, ENOTDIR};
use base::json::escape as json;

/// The module's table.
pub static MODULE: Module = Module::of::<AutoindexConf>("autoindex", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "autoindex",
        HSL,
        Args::FLAG,
        "off",
        "Lists directories that have no index file.",
        |cx, n| value::set_flag(&mut cx.loc::<AutoindexConf>().on, n),
    ),
    directive(
        "autoindex_format",
        HSL,
        Args::T1,
        "html",
        "The format of listings: html, xml, json or jsonp.",
        |cx, n| {
            let formats = &[
                ("html", Format::Html),
                ("json", Format::Json),
                ("jsonp", Format::Jsonp),
                ("xml", Format::Xml),
            ];
            value::set_enum(&mut cx.loc::<AutoindexConf>().format, n, formats)
        },
    ),
    directive(
        "autoindex_page",
        HSL,
        Args::FLAG,
        "off",
        "HTML listings as pages for people: sortable, names whole, dark mode. Weir's own.",
        |cx, n| value::set_flag(&mut cx.loc::<AutoindexConf>().page, n),
    ),
    directive(
        "autoindex_localtime",
        HSL,
        Args::FLAG,
        "off",
        "Shows times in the local zone in HTML listings, rather than in UTC.",
        |cx, n| value::set_flag(&mut cx.loc::<AutoindexConf>().localtime, n),
    ),
    directive(
        "autoindex_exact_size",
        HSL,
        Args::FLAG,
        "on",
        "Shows exact sizes in HTML listings, rather than in K, M and G.",
        |cx, n| value::set_flag(&mut cx.loc::<AutoindexConf>().exact_size, n),
    ),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Html,
    /// `autoindex_page on`
    Page,
    Json,
    Jsonp,
    Xml,
}

engine::settings! {
    struct AutoindexConf {
        on: Option<bool>,
        format: Option<Format>,
        page: Option<bool>,
        localtime: Option<bool>,
        exact_size: Option<bool>,
    }
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<AutoindexConf>();
    if conf.on == Some(true) {
        p.content.push(Box::new(Autoindex {
            format: match conf.format.unwrap_or(Format::Html) {
                Format::Html if conf.page == Some(true) => Format::Page,
                format => format,
            },
            style: Style {
                localtime: conf.localtime.unwrap_or(false),
                exact_size: conf.exact_size.unwrap_or(true),
            },
        }));
    }
    Ok(())
}

struct Autoindex {
    format: Format,
    style: Style,
}

/// The style of times and sizes in HTML lists.
#[derive(Clone, Copy)]
struct Style {
    localtime: bool,
    exact_size: bool,
}

impl PhaseHandler for Autoindex {
    fn dry(&self) -> Dry {
        Dry::Looks
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        if r.target.uri.last() != Some(&b'/') || !r.method_is(&[Method::Get, Method::Head]) {
            return Step::Now(Verdict::Next);
        }
        files::step(r, |r| self.list(r))
    }
}

impl Autoindex {
    fn list(&self, r: &mut Request) -> Poll<Verdict> {
        let mut format = self.format;
        let mut callback = None;
        if format == Format::Jsonp {
            callback = match callback_of(r) {
                Ok(name) => name,
                Err(v) => return Poll::Ready(v),
            };
            if callback.is_none() {
                format = Format::Json;
            }
        }
        let mut path = r.map_path();
        if path.len() > 1 {
            path.pop();
        }
        let listing = match ready!(files::try_list(r, &path, true)) {
            Ok(l) => l,
            Err(e) => return Poll::Ready(not_listed(r, &path, &e)),
        };
        for (name, e) in &listing.failed {
            let (path, name) = (lossy(&path), lossy(name));
            r.log_os(Level::Crit, format_args!("stat() \"{path}/{name}\""), e);
            if e.raw_os_error() != Some(EACCES) {
                return Poll::Ready(Verdict::Status(500));
            }
        }
        r.out.status = 200;
        r.out.content_type = Some(Bytes::from_static(match format {
            Format::Html | Format::Page => b"text/html",
            Format::Json => b"application/json",
            Format::Jsonp => b"application/javascript",
            Format::Xml => b"text/xml",
        }));
        if matches!(format, Format::Xml | Format::Page) {
            r.out.charset = Some(Bytes::from_static(b"utf-8"));
        }
        let (mut entries, style) = (listing.entries, self.style);
        let order = Order::new(r.arg(b"sort"), r.arg(b"order"));
        if format == Format::Page {
            entries.sort_by(|a, b| order.compare(&entry(a), &entry(b)));
        }
        let list =
            List { entries: entries.into_iter(), order, format, callback, style, begun: false };
        r.out.body = Body::Stream(Box::new(list));
        Poll::Ready(Verdict::Done)
    }
}

/// `callback` of the arguments: a name that may stand in a script.
fn callback_of(r: &Request) -> Result<Option<Vec<u8>>, Verdict> {
    const LEN_MAX: usize = 128;
    let Some(name) = r.arg(b"callback").filter(|n| !n.is_empty()) else { return Ok(None) };
    let fits = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.');
    let wrong = match name {
        n if n.len() > LEN_MAX => "too long",
        n if !n.iter().all(fits) => "invalid",
        n => return Ok(Some(n.to_vec())),
    };
    let name = lossy(name);
    r.log(Level::Info, format_args!("client sent {wrong} callback name: \"{name}\""));
    Err(Verdict::Status(400))
}

/// The status for a folder that could not be read, logged as nginx does.
pub(crate) fn not_listed(r: &Request, path: &[u8], e: &OpenError) -> Verdict {
    let (level, status) = match e.errno() {
        _ if e.what != "opendir()" => (Level::Crit, 500),
        Some(ENOENT | ENOTDIR | ENAMETOOLONG) => (Level::Error, 404),
        Some(EACCES) => (Level::Error, 403),
        _ => (Level::Crit, 500),
    };
    r.log_os(level, format_args!("{} \"{}\"", e.what, lossy(path)), &e.error);
    Verdict::Status(status)
}

/// A piece of a list ends behind so many bytes: a folder of a hundred thousand files is no reason
/// for other clients to wait.
const PIECE: usize = 32 << 10;

/// The list is written when it is sent: only then is it known in which charset.
struct List {
    entries: std::vec::IntoIter<DirEntry>,
    order: Order,
    format: Format,
    callback: Option<Vec<u8>>,
    style: Style,
    begun: bool,
}

impl List {
    fn piece(&mut self, r: &Request) -> Vec<u8> {
        let mut out = Vec::with_capacity((512 + self.entries.len() * 160).min(PIECE + 1024));
        let first = !std::mem::replace(&mut self.begun, true);
        if first {
            self.begin(r, &mut out);
        }
        let charset = r.out.charset.as_deref();
        let utf8 = charset.is_some_and(|c| c.eq_ignore_ascii_case(b"utf-8"));
        let zone = match self.style.localtime {
            true => i64::from(zone_offset(unix_secs() as i64)),
            false => 0,
        };
        let mut separator: &[u8] = if first { b"\r\n" } else { b",\r\n" };
        while out.len() < PIECE
            && let Some(e) = self.entries.next()
        {
            match self.format {
                Format::Html => html(&mut out, &e, self.style, zone, utf8),
                Format::Page => listing::entry(&entry(&e), zone, &mut out),
                Format::Xml => xml(&mut out, &e),
                Format::Json | Format::Jsonp => {
                    out.extend_from_slice(separator);
                    separator = b",\r\n";
                    json_object(&mut out, &e);
                }
            }
        }
        if self.is_over() {
            self.end(&mut out);
        }
        out
    }

    fn begin(&self, r: &Request, out: &mut Vec<u8>) {
        match self.format {
            Format::Html => {
                out.extend_from_slice(b"<html>\r\n<head><title>Index of ");
                escape_html(&r.target.uri, out);
                out.extend_from_slice(b"</title></head>\r\n<body>\r\n<h1>Index of ");
                escape_html(&r.target.uri, out);
                out.extend_from_slice(b"</h1><hr><pre><a href=\"../\">../</a>\r\n");
            }
            Format::Page => listing::begin(&r.target.uri, self.order, out),
            Format::Xml => out.extend_from_slice(b"<?xml version=\"1.0\"?>\r\n<list>\r\n"),
            Format::Json | Format::Jsonp => {
                if let Some(name) = &self.callback {
                    out.extend_from_slice(b"/* callback */\r\n");
                    out.extend_from_slice(name);
                    out.push(b'(');
                }
                out.push(b'[');
            }
        }
    }

    fn end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self.format {
            Format::Page => return listing::end(out),
            Format::Html => b"</pre><hr></body>\r\n</html>\r\n",
            Format::Xml => b"</list>\r\n",
            Format::Json | Format::Jsonp => b"\r\n]",
        });
        if self.callback.is_some() {
            out.extend_from_slice(b");");
        }
    }
}

impl BodySource for List {
    fn next<'a>(&'a mut self, r: &'a mut Request) -> NextPiece<'a> {
        let piece = (!self.is_over()).then(|| {
            let mut chain = Chain::new();
            chain.push_bytes(Bytes::from(self.piece(r)));
            chain
        });
        Box::pin(std::future::ready(Ok(piece)))
    }

    fn is_over(&self) -> bool {
        self.begun && self.entries.len() == 0
    }
}

fn entry(e: &DirEntry) -> Entry<'_> {
    let folder = e.kind == FileKind::Dir;
    let size = if e.kind == FileKind::File { size(e) } else { 0 };
    Entry { name: &e.name, folder, size, mtime: mtime(e) }
}

fn mtime(e: &DirEntry) -> i64 {
    e.meta.map_or(0, |m| m.mtime_sec)
}

fn size(e: &DirEntry) -> u64 {
    e.meta.map_or(0, |m| m.size)
}

fn html(out: &mut Vec<u8>, e: &DirEntry, style: Style, zone: i64, utf8: bool) {
    let dir = e.kind == FileKind::Dir;
    out.extend_from_slice(b"<a href=\"");
    escape(&e.name, Escape::UriComponent, out);
    out.extend_from_slice(if dir { b"/\">" } else { b"\">" });
    name_column(out, &e.name, dir, utf8);
    let t = Civil::from_unix(mtime(e) + zone);
    let (day, month, year, hour, min) = (t.day, t.month_name(), t.year, t.hour, t.min);
    // Writing to a Vec cannot fail.
    let _ = write!(out, " {day:02}-{month}-{year} {hour:02}:{min:02} ");
    match (dir, style.exact_size) {
        (true, true) => out.extend_from_slice(b"                  -"),
        (true, false) => out.extend_from_slice(b"      -"),
        (false, true) => drop(write!(out, "{:>19}", size(e))),
        (false, false) => rounded_size(out, size(e)),
    }
    out.extend_from_slice(b"\r\n");
}

fn kind_name(e: &DirEntry) -> &'static [u8] {
    match e.kind {
        FileKind::Dir => b"directory",
        FileKind::File => b"file",
        _ => b"other",
    }
}

fn json_object(out: &mut Vec<u8>, e: &DirEntry) {
    out.extend_from_slice(b"{ \"name\":\"");
    json(&e.name, out);
    out.extend_from_slice(b"\", \"type\":\"");
    out.extend_from_slice(kind_name(e));
    out.extend_from_slice(b"\", \"mtime\":\"");
    out.extend_from_slice(&format_http_date(mtime(e)));
    out.push(b'"');
    if e.kind == FileKind::File {
        out.extend_from_slice(b", \"size\":");
        write_u64(out, size(e));
    }
    out.extend_from_slice(b" }");
}

fn xml(out: &mut Vec<u8>, e: &DirEntry) {
    let kind = kind_name(e);
    out.push(b'<');
    out.extend_from_slice(kind);
    let t = Civil::from_unix(mtime(e));
    // Writing to a Vec cannot fail.
    let _ = write!(
        out,
        " mtime=\"{:4}-{:02}-{:02}T{:02}:{:02}:{:02}Z\"",
        t.year, t.month, t.day, t.hour, t.min, t.sec
    );
    if e.kind == FileKind::File {
        let _ = write!(out, " size=\"{}\"", size(e));
    }
    out.push(b'>');
    escape_html(&e.name, out);
    out.extend_from_slice(b"</");
    out.extend_from_slice(kind);
    out.extend_from_slice(b">\r\n");
}
