//! Responses to users who have signed in are theirs alone: without a word of `Cache-Control` or
//! `Expires`, browsers and shared caches may store them by a guess (RFC 9111 section 4.2.2), and
//! show them after the logout.

use bytes::Bytes;
use conf::ConfError;
use http::module::{HeaderFilter, LocView, Module, Pipeline, Verdict};
use http::request::Request;

use super::Oidc;

/// The module's table. It stands behind those whose directives set the fields.
pub static MODULE: Module =
    Module { name: "oidc_private", install: Some(install), ..Module::EMPTY };

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    // An internal redirect may leave the location in which the session was checked.
    if !l.conf::<Oidc>().providers.is_empty() {
        p.header_filters.push(Box::new(Filter));
    }
    Ok(())
}

struct Filter;

impl HeaderFilter for Filter {
    fn run(&self, r: &mut Request) -> Verdict {
        let is_told = ["Cache-Control", "Expires"].map(|name| r.out.header(name.as_bytes()));
        if super::session(r).is_some() && is_told == [None, None] {
            r.out.add("Cache-Control", Bytes::from_static(b"private, no-cache"));
        }
        Verdict::Next
    }
}
