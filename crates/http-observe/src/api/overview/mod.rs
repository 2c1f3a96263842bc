//! `/weir/v1/overview`: all that a dashboard shows, in one answer, and then only what is new.
//!
//! An answer has a `token`. A request with `?since=TOKEN` gets the steps and the events after it,
//! and the values that have no history. If the rows of series have changed since, or the server is
//! another one, the answer is complete again and says so.
//!
//! ```text
//!  since=TOKEN       only what came after that answer
//!  kinds=total,peer  the kinds of series, or none; without it all but peer, stream_peer, location
//!  rows=3,17         further series by their rows, 64 at most
//!  heat=17           the row that gets its histograms, next to the whole server
//!  parts=caches      members with the resources of the API of these names
//!  slow=100          the latest slow requests
//! ```

mod live;
mod series;

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use ::upstream::api::EngineKind;
use base::json::Object;
use engine::history::{HEAT_BOUNDS_US, History, STEP_MS, SeriesKind};
use engine::metrics::Kind;
use http::request::Request;
use http::server::HttpMain;
use http_wire::uri::{Unescape, unescape};

use super::document::Writer;
use super::{resources, upstreams, whole};
use series::{Rows, Wanted};

/// The most series that `rows=` may name.
const ROWS_MAX: usize = 64;

/// A member of the answer.
type Part = (&'static str, Writer);

/// A token of an answer before.
struct Since {
    step: u64,
    event: u64,
}

/// The value of an argument. Browsers send the commas of a list as `%2C`.
fn argument(args: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let mut all = args.split(|b| *b == b'&');
    let value = all.find_map(|arg| arg.strip_prefix(name)?.strip_prefix(b"="))?;
    let mut text = Vec::with_capacity(value.len());
    unescape(value, Unescape::All, &mut text);
    Some(text)
}

fn names(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|b| *b == b',').filter(|name| !name.is_empty())
}

/// The token of an answer with all before these numbers. The parent's process tells servers apart.
fn token(history: &History, step: u64, event: u64) -> String {
    let server = std::os::unix::process::parent_id();
    format!("{server}.{}.{step}.{event}", history.version())
}

/// The numbers of a token, if it is one of this server with the same series.
fn since(history: &History, text: &[u8]) -> Option<Since> {
    let numbers: Option<Vec<u64>> =
        text.split(|b| *b == b'.').map(base::ascii::parse_u64).collect();
    let [_, _, step, event] = numbers?[..] else { return None };
    let is_known = token(history, step, event).as_bytes() == text;
    is_known.then_some(Since { step, event })
}

/// The difference between the time since 1970 and the clock of the history, milliseconds.
fn offset_ms() -> u64 {
    base::time::unix_ms().saturating_sub(engine::beat::now_ms())
}

/// Writes the overview.
pub(super) fn write(r: &Request) -> Writer {
    let main = r.main.clone();
    let history = &main.stats.history;
    let after = argument(&r.target.args, b"since").and_then(|text| since(history, &text));
    let (kept, events) = (history.steps(), history.event_numbers());
    let first = |kept: &Range<u64>, after: Option<u64>| {
        after.map_or(kept.start, |after| after.clamp(kept.start, kept.end))
    };
    let steps = first(&kept, after.as_ref().map(|s| s.step))..kept.end;
    let news = first(&events, after.as_ref().map(|s| s.event))..events.end;
    let token = token(history, kept.end, events.end);
    let is_complete = after.is_none();
    let mut parts: VecDeque<Part> = VecDeque::new();
    let of = main.clone();
    let (shown_steps, shown_news) = (steps.clone(), news.clone());
    let mut add = |name, write| parts.push_back((name, write));
    add("server", one(move |o| about(o, &of, &token, is_complete)));
    let of = main.clone();
    add("now", one(move |o| live::now(o, &of)));
    let of = main.clone();
    add("steps", one(move |o| times(o, &of.stats.history, shown_steps.clone())));
    add("events", self::events(main.clone(), shown_news));
    let rows = Rc::new(Rows::read(history));
    let wanted = wanted(&r.target.args);
    add("series", series::write(main.clone(), rows.clone(), wanted, steps));
    for (name, kind) in [("upstreams", EngineKind::Http), ("stream_upstreams", EngineKind::Stream)]
    {
        let groups = upstreams::groups(r, kind);
        add(name, live::upstreams(main.clone(), groups, kind, rows.clone()));
    }
    for name in names(&argument(&r.target.args, b"parts").unwrap_or_default()) {
        if let Some(part) = part(r, name) {
            add(part.0, part.1);
        }
    }
    if let Some(last) = super::number(&r.target.args, b"slow=") {
        add("slow_requests", resources::slow_requests(&main, 0, last, None));
    }
    joined(parts)
}

/// One object with these members.
fn joined(mut parts: VecDeque<Part>) -> Writer {
    let (mut before, mut begun) = (b'{', false);
    Box::new(move |out| {
        let Some((name, write)) = parts.front_mut() else {
            out.extend_from_slice(b"}\n");
            return false;
        };
        if !begun {
            out.push(before);
            base::json::string(out, name.as_bytes());
            out.push(b':');
            (before, begun) = (b',', true);
        }
        if !write(out) {
            parts.pop_front();
            begun = false;
        }
        true
    })
}

fn one(fill: impl Fn(&mut Object<'_>) + 'static) -> Writer {
    Box::new(move |out| {
        Object::write(out, &fill);
        false
    })
}

fn wanted(args: &[u8]) -> Wanted {
    let usual = |kind: SeriesKind| {
        !matches!(kind, SeriesKind::HttpPeer | SeriesKind::StreamPeer | SeriesKind::Location)
    };
    let kinds = argument(args, b"kinds").map(|list| names(&list).map(<[u8]>::to_vec).collect());
    let numbers = |name: &[u8]| -> Vec<usize> {
        let list = argument(args, name).unwrap_or_default();
        let numbers = names(&list).filter_map(|n| usize::try_from(base::ascii::parse_u64(n)?).ok());
        numbers.take(ROWS_MAX).collect()
    };
    let rows = numbers(b"rows");
    Wanted { kinds, usual, rows, heat: numbers(b"heat") }
}

/// The resources of the API that an answer may include.
fn part(r: &Request, name: &[u8]) -> Option<Part> {
    let main = &r.main;
    let zones = |kind| resources::zones(main.metrics.clone(), kind, None, None);
    Some(match name {
        b"server_zones" => ("server_zones", zones(Kind::HttpServer)),
        b"location_zones" => ("location_zones", zones(Kind::Location)),
        b"stream_server_zones" => ("stream_server_zones", zones(Kind::StreamServer)),
        b"limit_reqs" => ("limit_reqs", zones(Kind::LimitReq)),
        b"limit_conns" => ("limit_conns", zones(Kind::HttpLimitConn)),
        b"stream_limit_conns" => ("stream_limit_conns", zones(Kind::StreamLimitConn)),
        b"caches" => ("caches", resources::caches(main, None)),
        b"slabs" => ("slabs", resources::slabs(main, None)),
        b"workers" => ("workers", whole::workers(main, None)),
        b"certificates" => ("certificates", resources::certificates(r, None)),
        b"status" => ("status", super::document::text(main.status())),
        _ => return None,
    })
}

fn about(o: &mut Object<'_>, main: &Rc<HttpMain>, token: &str, is_complete: bool) {
    o.number("format", 1);
    o.text("token", token.as_bytes());
    o.flag("complete", is_complete);
    o.number("time", base::time::unix_ms());
    o.text("build", concat!("weir-", env!("CARGO_PKG_VERSION")).as_bytes());
    o.number("generation", engine::metrics::generation());
    o.number("loaded", main.metrics.loaded_ms());
    o.texts("peer_columns", live::COLUMNS.iter().map(|name| name.as_bytes()));
}

fn times(o: &mut Object<'_>, history: &History, steps: Range<u64>) {
    let offset_ms = offset_ms();
    o.number("step_ms", STEP_MS);
    o.number("first", steps.start);
    let all: Vec<_> = steps.map(|step| history.step(step)).collect();
    series::numbers(o, "ends", all.iter().map(|time| time.end_ms + offset_ms));
    series::numbers(o, "lengths", all.iter().map(|time| time.length_ms));
    series::numbers(o, "heat_bounds_us", HEAT_BOUNDS_US.into_iter());
}

/// A list of events, the oldest first.
fn events(main: Rc<HttpMain>, mut numbers: Range<u64>) -> Writer {
    let (offset_ms, mut before) = (offset_ms(), b'[');
    Box::new(move |out| {
        let Some(number) = numbers.next() else {
            if before == b'[' {
                out.push(b'[');
            }
            out.push(b']');
            return false;
        };
        main.stats.history.event(number, |event| {
            out.push(std::mem::replace(&mut before, b','));
            Object::write(out, |o| event.json(o, number, event.at_ms + offset_ms));
        });
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_of_one_server_and_its_series() {
        let history = History::new().unwrap();
        let text = token(&history, 7, 3);
        let known = since(&history, text.as_bytes()).unwrap();
        assert_eq!((known.step, known.event), (7, 3));
        for bad in ["", "7", "1.2.3", "x.0.7.3", &format!("{text}.1"), &text.replace(".0.", ".1.")]
        {
            assert!(since(&history, bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn arguments_choose_series() {
        let of = |args: &str| wanted(args.as_bytes());
        let usual = of("since=1");
        assert!(usual.has(SeriesKind::Total, 0) && !usual.has(SeriesKind::HttpPeer, 9));
        let some = of("kinds=total%2Clocation&rows=9,x,12&heat=12");
        assert!(some.has(SeriesKind::Location, 1) && some.has(SeriesKind::HttpPeer, 9));
        assert!(!some.has(SeriesKind::HttpUpstream, 1) && !some.has(SeriesKind::HttpPeer, 8));
        assert_eq!(some.heat, [12]);
        assert!(!of("kinds=none").has(SeriesKind::Total, 0));
        let many: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        assert_eq!(of(&format!("rows={}", many.join(","))).rows.len(), ROWS_MAX);
    }

    #[test]
    fn members_are_joined() {
        let part = |text: &str| super::super::document::text(text.as_bytes().to_vec());
        let mut write = joined(VecDeque::from([("a", part("1")), ("b", part("{}"))]));
        let mut out = Vec::new();
        while write(&mut out) {}
        assert_eq!(out, b"{\"a\":1,\"b\":{}}\n");
    }
}
