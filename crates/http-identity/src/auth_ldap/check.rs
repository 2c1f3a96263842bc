//! The check of a request's name and password in the access phase.

use std::rc::Rc;

use base::log::{Level, lossy};
use bytes::Bytes;
use http::module::{PhaseHandler, Step, Verdict};
use http::request::Request;
use http_wire::basic::Credentials;
use zeroize::Zeroizing;

use super::question::Question;
use super::remembered::Remembered;
use super::server::Server;
use crate::auth_basic::challenge;
use crate::limit_auth::{self, Proof};

/// The access handler.
pub(super) struct Handler {
    pub realm: Bytes,
    pub servers: Vec<Rc<Server>>,
    pub remembered: Option<Rc<Remembered>>,
}

impl PhaseHandler for Handler {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let Some(credentials) = r.basic_credentials() else {
            let m = "no user/password was provided for basic authentication";
            r.log(Level::Info, format_args!("{m}"));
            return Step::Now(challenge(r, &self.realm));
        };
        if credentials.password().is_empty() {
            // RFC 4513 section 5.1.2: servers accept any name without a password.
            let user = lossy(credentials.user());
            r.log(Level::Info, format_args!("user \"{user}\" has sent an empty password"));
            return Step::Now(challenge(r, &self.realm));
        }
        if self.servers.is_empty() {
            let m = "\"auth_ldap\" needs \"auth_ldap_servers\" in the same location";
            r.log(Level::Error, format_args!("{m}"));
            return Step::Now(Verdict::Status(500));
        }
        if r.is_traced() {
            return Step::Now(self.explain(r, &credentials));
        }
        if let Err(refused) = limit_auth::admit(r, Proof::Password) {
            return Step::Now(limit_auth::respond(r, refused));
        }
        if self.is_remembered(r, &credentials) {
            return Step::Now(accept(r));
        }
        Step::Wait(Box::pin(self.ask(r, credentials)))
    }
}

impl Handler {
    /// `weir explain` asks no directory.
    fn explain(&self, r: &mut Request, credentials: &Credentials) -> Verdict {
        let names: Vec<_> = self.servers.iter().map(|server| &server.name[..]).collect();
        let (user, names) = (lossy(credentials.user()), names.join(", "));
        let m = format_args!(
            "auth_ldap would ask {names} for user \"{user}\"; here the password counts as right"
        );
        r.log(Level::Notice, m);
        Verdict::Ok
    }

    fn is_remembered(&self, r: &mut Request, credentials: &Credentials) -> bool {
        let Some(remembered) = &self.remembered else { return false };
        self.servers.iter().any(|server| {
            let required = server.rules.eval(r);
            let (user, password) = (credentials.user(), credentials.password());
            remembered.holds(&remembered.tag(&server.name, user, password, &required))
        })
    }

    /// Asks one server after the other, those that failed a short time ago at last, and only if no
    /// other one gave an answer.
    async fn ask(&self, r: &mut Request, credentials: Credentials) -> Verdict {
        let user = lossy(credentials.user()).into_owned();
        let (up, down): (Vec<_>, Vec<_>) = self.servers.iter().partition(|s| !s.pool.is_down());
        let mut is_denied = false;
        for (servers, is_down) in [(up, false), (down, true)] {
            if is_down && is_denied {
                break;
            }
            for server in servers {
                let question = Question {
                    user: credentials.user().to_vec(),
                    password: Zeroizing::new(credentials.password().to_vec()),
                    required: server.rules.eval(r),
                };
                let name = &server.name;
                match server.ask(&question).await {
                    Ok(None) => {
                        if let Some(remembered) = &self.remembered {
                            let Question { user, password, required } = &question;
                            remembered.put(remembered.tag(name, user, password, required));
                        }
                        return accept(r);
                    }
                    Ok(Some(denial)) => {
                        is_denied = true;
                        let m = format_args!("user \"{user}\": {denial}, ldap_server \"{name}\"");
                        r.log(Level::Error, m);
                    }
                    Err(e) => r.log(Level::Error, format_args!("ldap_server \"{name}\": {e}")),
                }
            }
        }
        match is_denied {
            true => self.refuse(r),
            // The password may be right: it must not be requested again.
            false => Verdict::Status(503),
        }
    }

    fn refuse(&self, r: &mut Request) -> Verdict {
        match limit_auth::failed(r, Proof::Password) {
            Ok(()) => challenge(r, &self.realm),
            Err(refused) => limit_auth::respond(r, refused),
        }
    }
}

fn accept(r: &mut Request) -> Verdict {
    match limit_auth::succeeded(r, Proof::Password) {
        Ok(()) => Verdict::Ok,
        Err(refused) => limit_auth::respond(r, refused),
    }
}
