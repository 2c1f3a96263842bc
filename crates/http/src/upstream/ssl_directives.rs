//! The directives of TLS to servers, which modules share: see [`Group`].

use ::upstream::ssl::SslDraft;
use ::upstream::ssl_directives::{self, Place};
use conf::table::Directive;

use super::directives::{Group, Shared, draft};
use crate::core_directives::HSL;
use crate::cx::Cx;
use crate::request::Request;

impl<T: Shared> Place<Request> for Group<T> {
    fn draft(cx: &mut Cx) -> &mut SslDraft {
        &mut draft::<T>(cx).ssl
    }
}

impl<T: Shared> Group<T> {
    /// TLS to servers.
    pub const TLS: &'static [Directive<Cx>] = &ssl_directives::directives::<Request, Group<T>>(HSL);
}
