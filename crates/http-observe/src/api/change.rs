//! Changes: servers of upstreams are added, changed and removed, counters begin at 0 again.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use ::upstream::api::{self, Change, Refusal, settings};
use http::module::Verdict;
use http::request::Request;
use http_wire::h1::Method;

use super::document::{Writer, object, text};
use super::path::{Resource, find};
use super::{caches, keyvals, upstreams, whole};

/// Longest body of a change, in bytes.
const BODY_MAX: u64 = 64 << 10;

/// The same for a table: an empty one can be filled at once.
const PAIRS_MAX: u64 = 1 << 20;

/// A change was made.
pub(super) struct Done {
    pub status: u16,
    pub write: Writer,
}

/// No change was made.
pub(super) enum Stop {
    Refuse(Refusal),
    End(Verdict),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refuse(refusal)
    }
}

/// Says why a request may be made by a page of another site in a user's browser; `None` if it may
/// not. Browsers name the origin of any request that changes something, and other clients name
/// none.
pub(super) fn foreign_origin(r: &Request) -> Option<&'static str> {
    let site = r.header_named(b"Sec-Fetch-Site");
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return Some("the request comes from a page of another origin");
    }
    let origins = [r.header_named(b"Origin"), r.header_named(b"Referer")];
    let own = r.header_named(b"Host").or_else(|| r.header_named(b":authority"));
    let own = own.unwrap_or(&r.target.host);
    let is_own = |origin: &[u8]| {
        let start = memchr::memmem::find(origin, b"://").map(|at| at + 3);
        start.is_some_and(|start| {
            let host = &origin[start..];
            let end = host.iter().position(|b| b"/?#".contains(b)).unwrap_or(host.len());
            host[..end].eq_ignore_ascii_case(own)
        })
    };
    let mut origins = origins.into_iter().flatten().peekable();
    let is_browser = origins.peek().is_some();
    if !origins.all(is_own) {
        return Some("the request comes from a page of another origin");
    }
    // A name of an attacker's that resolves to this server makes any page its origin.
    (is_browser && !is_own_name(r)).then_some("no server has the name of the request's host")
}

/// Whether the request's host cannot be another site's name: an address, a name without dots, or
/// one that a server has.
fn is_own_name(r: &Request) -> bool {
    let host = &r.target.host[..];
    let is_address = host.starts_with(b"[") || str_of(host).parse::<std::net::IpAddr>().is_ok();
    let is_local = !host.contains(&b'.') || host.ends_with(b".localhost");
    is_address || is_local || r.main.servers.iter().any(|s| s.is_named(host, r).unwrap_or(false))
}

fn str_of(host: &[u8]) -> &str {
    std::str::from_utf8(host).unwrap_or_default()
}

/// Makes the change that a request asks for.
pub(super) async fn run(r: &mut Request, prefix: &[u8]) -> Result<Done, Stop> {
    let resource = find(r, prefix)?;
    let (kind, group, change) = match (resource, r.target.method) {
        (Resource::Keyval(zone) | Resource::Pair(zone, _), method) => {
            let body =
                if method == Method::Delete { Vec::new() } else { body(r, PAIRS_MAX).await? };
            let status = keyvals::change(r, &zone, method, body).await?;
            if let Err(e) = zone.save().await {
                let name = base::log::lossy(&zone.name).into_owned();
                return Err(not_saved(r, format_args!("keyval zone \"{name}\""), &e).into());
            }
            return Ok(Done { status, write: text(Vec::new()) });
        }
        (Resource::Servers(kind, group), Method::Post) => (kind, group, Change::Add),
        (Resource::Server(kind, group, peer), Method::Patch) => (kind, group, Change::Set(peer)),
        (Resource::Server(kind, group, peer), Method::Delete) => {
            (kind, group, Change::Remove(peer))
        }
        (resource, Method::Delete) => {
            reset(r, &resource)?;
            return Ok(Done { status: 204, write: text(Vec::new()) });
        }
        _ => {
            return Err(Refusal::new(405, "MethodDisabled", "method not allowed here").into());
        }
    };
    let body = match change {
        Change::Remove(_) => Vec::new(),
        _ => body(r, BODY_MAX).await?,
    };
    let status = if matches!(change, Change::Add) { 201 } else { 200 };
    let peer = api::apply(&group, change, &body)?;
    if let Err(e) = group.save().await {
        let name = base::log::lossy(&group.name).into_owned();
        return Err(not_saved(r, format_args!("upstream \"{name}\""), &e).into());
    }
    let write = match peer {
        Some(peer) => object(None, move |o| settings(o, &peer, kind)),
        None => upstreams::servers(group, kind),
    };
    Ok(Done { status, write })
}

fn not_saved(r: &Request, what: std::fmt::Arguments<'_>, e: &std::io::Error) -> Refusal {
    let e = base::log::os_error(e).to_string();
    r.log(base::log::Level::Error, format_args!("the state of {what} cannot be saved {e}"));
    Refusal::new(500, "StateNotSaved", format!("changed, but not saved {e}"))
}

async fn body(r: &mut Request, max: u64) -> Result<Vec<u8>, Stop> {
    let too_large = || Refusal::new(413, "BodyTooLarge", "the body is too large");
    if r.head.content_length.is_some_and(|n| n > max) {
        return Err(too_large().into());
    }
    r.read_body().await.map_err(Stop::End)?;
    let mut body = Vec::new();
    // Without a body there is nothing to read, and a long one is in a file.
    let has_body = r.head.content_length.is_some_and(|n| n > 0) || r.head.chunked;
    if has_body && !r.write_body(&mut body) {
        let Some(file) = r.take_body_file().filter(|file| file.len() <= max) else {
            return Err(too_large().into());
        };
        let read = event::run_blocking(move || {
            let file = File::from(file.handle().as_fd().try_clone_to_owned()?);
            let mut body = vec![0; file.metadata()?.len().min(max) as usize];
            file.read_exact_at(&mut body, 0)?;
            Ok(body)
        })
        .await;
        let read = read.unwrap_or_else(|e| Err(std::io::Error::other(e.to_string())));
        body = read.map_err(|e| {
            let e = base::log::os_error(&e).to_string();
            r.log(base::log::Level::Error, format_args!("the body cannot be read {e}"));
            Refusal::new(500, "BodyReadError", "reading request body failed")
        })?;
    }
    if body.len() as u64 > max {
        return Err(too_large().into());
    }
    Ok(body)
}

/// Has the counters of a resource begin at 0 again.
fn reset(r: &Request, resource: &Resource) -> Result<(), Refusal> {
    let main = &r.main;
    match resource {
        Resource::Connections => whole::reset::connections(main),
        Resource::Requests => whole::reset::requests(main),
        Resource::Processes => whole::reset::processes(main),
        Resource::Zones(kind, Some(name)) => main.metrics.any(*kind, name).reset(),
        Resource::Caches(Some(cache)) => caches::reset(&main.metrics, cache),
        Resource::Upstream(_, group) => {
            group.servers.lists().all().for_each(|peer| peer.reset());
        }
        Resource::Resolvers(Some(name)) => {
            let all = whole::resolvers(r);
            all.iter()
                .filter(|part| part.name == name)
                .for_each(|part| whole::reset::resolver(&main.metrics, part));
        }
        _ => return Err(Refusal::new(405, "MethodDisabled", "method not allowed here")),
    }
    Ok(())
}
