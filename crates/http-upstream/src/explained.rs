//! Describes an exchange for `weir explain`, without performing it.

use http::explain::{Passed, Step};
use http::module::Verdict;
use http::request::Request;
use upstream::Target;

use crate::Protocol;
use crate::conf::Conf;

fn text(bytes: &[u8]) -> String {
    base::log::lossy(bytes).into_owned()
}

/// Records the destination instead of contacting a server.
#[cold]
pub(crate) fn passed(
    r: &mut Request,
    conf: &Conf,
    target: &Target,
    protocol: &mut dyn Protocol,
) -> Verdict {
    let scheme = protocol.scheme();
    r.upstream_mut().scheme = scheme;
    let cache = conf.cache.as_ref().and_then(|cache| {
        let (name, key) = crate::caching::key_of(r, cache, protocol)?;
        Some((text(&name), text(&key)))
    });
    let mut out = mem::Chain::new();
    if let Err(refused) = protocol.request(r, &mut out) {
        return Verdict::Status(refused);
    }
    let is_text = protocol.is_http() && !protocol.is_stream();
    let head = is_text
        .then(|| text(&out.iter().filter_map(mem::Buf::memory).collect::<Vec<_>>().concat()));
    let (to, is_group) = match target {
        Target::Group(group) => (text(&group.shown()), true),
        Target::Addr(addr) => (addr.to_string(), false),
        Target::Name(host, port) => (format!("{}:{port}", text(host)), false),
    };
    let method = match r.upstream_mut().method {
        Some(method) => method.name().to_owned(),
        None => text(r.method_name()),
    };
    let uri = text(&r.upstream_mut().uri);
    let scheme = r.upstream_mut().scheme.to_owned();
    let passed = Passed { to, is_group, scheme, method, uri, head, cache };
    r.end_explained(Step::Passed(Box::new(passed)))
}
