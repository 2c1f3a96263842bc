//! `prometheus`: the counters in the text format of Prometheus or, for a client that prefers it, of
//! OpenMetrics, under the names of nginx's exporter
//! (`nginx_…`, `nginxplus_…`) and of our own (`weir_…`); `prometheus vts` has those of the module
//! vhost_traffic_status in the exporter's place. `native` also offers Protocol Buffers, because
//! no text format has native histograms.
//!
//! A table has a line for each zone and a column for each number. All of its lines are read first,
//! then written column by column, as the format wants: a few at a time.

mod accept;
mod nginx;
mod own;
mod protobuf;
pub(crate) mod table;
mod vts;

use std::rc::Rc;

use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{Conf, LocView, Module, Pipeline, Verdict};
use http::request::Request;
use http::server::HttpMain;
use http_wire::h1::{FieldId, Method};

use self::table::{Format, Table};
use crate::api::document;

/// The module's table.
pub static MODULE: Module = Module::of::<Prometheus>("prometheus", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "prometheus",
    C::LOCATION,
    Args::NONE.or(Args::T12),
    "",
    "Serves Prometheus metrics; `vts` names them as nginx-module-vts does, and `native` offers \
     native histograms to clients that ask for them.",
    set,
)];

#[derive(Clone, Copy)]
enum Names {
    Exporter,
    Vts,
}

/// What a page has.
#[derive(Clone, Copy)]
struct Page {
    names: Names,
    /// Whether native histograms are offered.
    native: bool,
}

#[derive(Default)]
struct Prometheus(Option<Page>);

impl Conf for Prometheus {}

fn set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let (mut vts, mut native) = (false, false);
    for w in &n.args {
        let seen = match w.bytes() {
            b"vts" => &mut vts,
            b"native" => &mut native,
            _ => return Err(ConfError::at(w, format!("invalid parameter \"{}\"", w.lossy()))),
        };
        if std::mem::replace(seen, true) {
            return Err(ConfError::at(w, format!("duplicate parameter \"{}\"", w.lossy())));
        }
    }
    let page = Page { names: if vts { Names::Vts } else { Names::Exporter }, native };
    if cx.loc::<Prometheus>().0.replace(page).is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    cx.env.metrics.show();
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here_or_around::<Prometheus>()
        && let Some(page) = l.conf::<Prometheus>().0
    {
        engine::status::show();
        p.answers_always = true;
        p.content_handler = Some(Box::new(move |r: &mut Request| handle(r, page)));
    }
    Ok(())
}

/// The media type of a format.
fn content_type(format: Format) -> &'static [u8] {
    match format {
        Format::Prometheus => b"text/plain; version=0.0.4",
        Format::OpenMetrics => b"application/openmetrics-text; version=1.0.0; charset=utf-8",
    }
}

fn handle(r: &mut Request, page: Page) -> Verdict {
    if !r.method_is(&[Method::Get, Method::Head]) {
        return Verdict::Status(405);
    }
    // A scrape does not appear in what it reads.
    r.account.leave_uncounted();
    let accepted = r.header(FieldId::Accept).unwrap_or_default();
    let is_protobuf = page.native && accept::is_protobuf(accepted);
    let format = accept::format(accepted);
    let tables = tables(&r.main, page.names);
    r.out.add("Vary", Bytes::from_static(b"Accept"));
    if is_protobuf {
        return document::answer(r, 200, protobuf::CONTENT_TYPE, protobuf::write(tables));
    }
    document::answer(r, 200, content_type(format), table::write(tables, format))
}

fn tables(main: &Rc<HttpMain>, names: Names) -> Vec<Table> {
    let mut tables = nginx::always(main);
    tables.extend(match names {
        Names::Exporter => nginx::tables(main),
        Names::Vts => vts::tables(main),
    });
    tables.extend(own::tables(main));
    tables
}

/// The tables of the page, for those who send them elsewhere.
pub(crate) fn all_tables(main: &Rc<HttpMain>) -> Vec<Table> {
    tables(main, Names::Exporter)
}
