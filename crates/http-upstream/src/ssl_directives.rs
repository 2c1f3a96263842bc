//! The shared directives for TLS to upstreams; see [`Group`].

use conf::table::Directive;
use http::core_directives::HSL;
use http::cx::Cx;
use http::request::Request;
use upstream::ssl::SslDraft;
use upstream::ssl_directives::{self, Place};

use crate::directives::{Group, Shared, draft};

impl<T: Shared> Place<Request> for Group<T> {
    fn draft(cx: &mut Cx) -> &mut SslDraft {
        &mut draft::<T>(cx).ssl
    }
}

impl<T: Shared> Group<T> {
    /// TLS to servers.
    pub const TLS: &'static [Directive<Cx>] = &ssl_directives::directives::<Request, Group<T>>(HSL);
}
