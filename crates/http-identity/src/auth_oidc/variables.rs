//! Variables of a request's session. They have values once the access phase has found the session,
//! and keep them over redirects inside the server and in subrequests.

use std::cell::RefCell;
use std::rc::Rc;

use http::request::Request;
use http::vars::VarDef;
use jose::parse_claims;
use oidc::Session;

use crate::auth_jwt::{member, write};

/// The session that a request was let in by.
#[derive(Default)]
pub(super) struct SignedIn(pub RefCell<Option<Rc<Session>>>);

pub(super) static VARIABLES: &[VarDef] = &[
    VarDef::new("oidc_id_token", |r, out| text(r, out, |session| Some(&session.id_token))),
    VarDef::new("oidc_access_token", |r, out| text(r, out, |session| Some(&session.access_token))),
    VarDef::new("oidc_userinfo", |r, out| text(r, out, |session| session.userinfo.as_deref())),
    VarDef::prefix("oidc_claim_", |r, name, out| {
        let Some(session) = session(r) else { return false };
        if write(member(&session.claims, name), out) {
            return true;
        }
        let Some(userinfo) = &session.userinfo else { return false };
        parse_claims(userinfo.as_bytes()).is_ok_and(|claims| write(member(&claims, name), out))
    }),
];

/// The session that let the request in.
pub(crate) fn session(r: &Request) -> Option<Rc<Session>> {
    r.shared_if_any::<SignedIn>()?.0.borrow().clone()
}

fn text(r: &Request, out: &mut Vec<u8>, of: fn(&Session) -> Option<&str>) -> bool {
    let session = session(r);
    let value = session.as_deref().and_then(of);
    out.extend_from_slice(value.unwrap_or_default().as_bytes());
    value.is_some()
}
