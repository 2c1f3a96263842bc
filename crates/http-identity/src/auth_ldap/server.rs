//! A server: its settings, and its part of the worker's state.

use bytes::Bytes;
use conf::template::Template;
use http::request::Request;
use proto::ldap::{Filter, Scope};
use upstream::names::Lookup;
use upstream::ssl::Fixed;
use upstream::url::Url;
use zeroize::Zeroizing;

use super::pool::Pool;

/// The way to TLS.
pub(super) enum Security {
    /// None: names and passwords are sent in plain text.
    Plain,
    /// `ldaps://`
    Tls(Fixed),
    /// `starttls on`
    StartTls(Fixed),
}

/// The users that are searched for.
pub(super) struct Search {
    pub base: Vec<u8>,
    pub scope: Scope,
    /// The attribute with the user's name.
    pub attribute: String,
    /// What all users have in common.
    pub filter: Filter,
}

/// `require` and `satisfy`: what a user has to be.
#[derive(Default)]
pub(super) struct Rules {
    /// `require valid_user NAME`: the user's entry, without a search.
    pub user_dn: Option<Template>,
    /// `require user`: names of entries.
    pub users: Vec<Template>,
    /// `require group`: names of entries.
    pub groups: Vec<Template>,
    /// `satisfy all`
    pub all: bool,
}

/// The rules with the values of a request's variables.
pub(super) struct Required {
    pub user_dn: Option<Bytes>,
    pub users: Vec<Bytes>,
    pub groups: Vec<Bytes>,
}

impl Rules {
    pub(super) fn eval(&self, r: &mut Request) -> Required {
        let mut all = |templates: &[Template]| -> Vec<Bytes> {
            templates.iter().map(|template| r.eval(template)).collect()
        };
        let (users, groups) = (all(&self.users), all(&self.groups));
        Required { user_dn: self.user_dn.as_ref().map(|dn| r.eval(dn)), users, groups }
    }
}

/// Limits on time, milliseconds.
pub(super) struct Timeouts {
    /// For a connection with its TLS.
    pub connect: u64,
    /// For the bind as `binddn`.
    pub bind: u64,
    /// For all that a request needs.
    pub request: u64,
    /// The time for which a server that failed is asked last.
    pub reconnect: u64,
}

/// `ldap_server`
pub(super) struct Server {
    pub name: String,
    pub target: Url,
    pub security: Security,
    /// The entry that searches run as, with its password; both empty for anonymous searches.
    pub bind_dn: Vec<u8>,
    pub bind_password: Zeroizing<Vec<u8>>,
    pub search: Option<Search>,
    /// The attribute of groups that has their members.
    pub group_attribute: String,
    /// It has names of entries, not of users.
    pub group_has_dns: bool,
    pub rules: Rules,
    pub timeouts: Timeouts,
    /// `max_down_retries`
    pub retries: u64,
    pub lookup: Lookup,
    pub pool: Pool,
}
