//! `stub_status`: how many connections there are and were, as a page and as variables.

use base::ascii::write_u64;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node};
use engine::stats::{Field, Stats};
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{Conf, LocView, Module, Pipeline, Verdict};
use http::request::Request;
use http::vars::VarDef;
use http_wire::h1::Method;

/// The module's table.
pub static MODULE: Module =
    Module { variables: VARIABLES, ..Module::of::<StubStatus>("stub_status", DIRECTIVES, install) };

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "stub_status",
    C::SERVER.or(C::LOCATION),
    Args::NONE.or(Args::T1),
    "",
    "Serves connection and request counts; `json` (Weir's own) has many more.",
    stub_status,
)];

static VARIABLES: &[VarDef] = &[
    VarDef::new("connections_active", |r, out| count(r, Field::Active, out)),
    VarDef::new("connections_reading", |r, out| count(r, Field::Reading, out)),
    VarDef::new("connections_writing", |r, out| count(r, Field::Writing, out)),
    VarDef::new("connections_waiting", |r, out| count(r, Field::Waiting, out)),
];

fn count(r: &mut Request, field: Field, out: &mut Vec<u8>) -> bool {
    write_u64(out, r.main.stats.sum(field));
    true
}

#[derive(Default)]
struct StubStatus {
    json: bool,
}

impl Conf for StubStatus {}

/// Other arguments mean nothing, and are taken for the sake of files from before there were none.
fn stub_status(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    cx.loc::<StubStatus>().json = n.args.first().is_some_and(|w| w.bytes() == b"json");
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    if l.set_here_or_around::<StubStatus>() {
        let json = l.conf::<StubStatus>().json;
        if json {
            engine::status::show();
        }
        p.answers_always = true;
        p.content_handler = Some(Box::new(move |r: &mut Request| handle(r, json)));
    }
    Ok(())
}

fn handle(r: &mut Request, json: bool) -> Verdict {
    if !r.method_is(&[Method::Get, Method::Head]) {
        return Verdict::Status(405);
    }
    let (content_type, text) = match json {
        true => ("application/json", r.main.status()),
        false => ("text/plain", Numbers::of(&r.main.stats).page().into_bytes()),
    };
    r.respond(200, Bytes::from_static(content_type.as_bytes()), Bytes::from(text));
    Verdict::Done
}

struct Numbers {
    active: u64,
    accepted: u64,
    handled: u64,
    requests: u64,
    reading: u64,
    writing: u64,
    waiting: u64,
}

impl Numbers {
    fn of(stats: &Stats) -> Numbers {
        Numbers {
            active: stats.sum(Field::Active),
            accepted: stats.sum(Field::Accepted),
            handled: stats.sum(Field::Handled),
            requests: stats.sum(Field::Requests),
            reading: stats.sum(Field::Reading),
            writing: stats.sum(Field::Writing),
            waiting: stats.sum(Field::Waiting),
        }
    }

    /// nginx's page, byte for byte: scripts everywhere take it apart.
    fn page(&self) -> String {
        let Numbers { active, accepted, handled, requests, reading, writing, waiting } = self;
        format!(
            "Active connections: {active} \n\
             server accepts handled requests\n {accepted} {handled} {requests} \n\
             Reading: {reading} Writing: {writing} Waiting: {waiting} \n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers {
        active: 1,
        accepted: 2,
        handled: 3,
        requests: 4,
        reading: 5,
        writing: 6,
        waiting: 7,
    };

    #[test]
    fn the_page_is_nginx_s() {
        assert_eq!(
            NUMBERS.page(),
            "Active connections: 1 \nserver accepts handled requests\n 2 3 4 \n\
             Reading: 5 Writing: 6 Waiting: 7 \n"
        );
    }
}
