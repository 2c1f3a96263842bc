//! `auth_oidc`: users sign in at a provider of OpenID Connect. [`oidc`] decides; here are the
//! requests to the provider, the sessions in a shared table, and the answers to browsers.
//!
//! ```text
//!  request ─▶ is it the callback, or a logout? ─▶ login.rs, logout.rs
//!          ─▶ does its cookie name a session?  ─▶ sessions.rs: variables, refresh
//!          ─▶ is it a navigation?              ─▶ login.rs: to the provider, or else 401
//! ```

mod cached;
mod check;
mod directives;
mod fetch;
mod login;
mod logout;
pub mod private;
mod provider;
mod sessions;
mod variables;

use std::rc::Rc;

use base::log::lossy;
use conf::template::Template;
use conf::{ConfError, Node, Word};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope};
use keyval::Kind;
use upstream::resolver::Resolving;

use check::{Handler, Which};
use provider::Provider;
pub(crate) use variables::session;

/// The module's table.
pub static MODULE: Module = Module {
    name: "oidc",
    directives: directives::DIRECTIVES,
    variables: variables::VARIABLES,
    confs: &[ConfType::of::<Oidc>(Scope::Main), ConfType::of::<OidcConf>(Scope::Location)],
    init: Some(init),
    install: Some(install),
    secrets: &["client_secret"],
    ..Module::EMPTY
};

/// The providers.
#[derive(Default)]
struct Oidc {
    defined: Vec<(Word, Provider)>,
    /// Set after the whole configuration was read.
    providers: Vec<Rc<Provider>>,
}

impl Conf for Oidc {}

impl Oidc {
    fn find(&self, name: &[u8]) -> Option<&Rc<Provider>> {
        self.providers.iter().find(|p| p.client.provider.as_bytes() == name)
    }
}

engine::settings! {
    struct OidcConf {
        provider: Option<(Word, Template)>,
    }
}

fn auth_oidc(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<OidcConf>().provider.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let word = n.arg(0)?;
    let name = cx.template(word)?;
    if name.as_const().is_some_and(|name| name.is_empty()) {
        return Err(ConfError::at(word, "the name of the provider is empty"));
    }
    cx.loc::<OidcConf>().provider = Some((word.clone(), name));
    Ok(())
}

/// Called after the whole configuration was read: `resolver` may stand behind the providers, and
/// their tables are mapped by now.
fn init(cx: &mut Cx) -> Result<(), ConfError> {
    let lookup = cx.main::<Resolving>().lookup();
    let defined = std::mem::take(&mut cx.main::<Oidc>().defined);
    let mut providers = Vec::new();
    for (word, mut provider) in defined {
        if provider.zone.store().kind != Kind::Text {
            let zone = lossy(&provider.zone.name).into_owned();
            let m = format!("session_store \"{zone}\" must have \"type=string\"");
            return Err(ConfError::at(&word, m));
        }
        provider.lookup = lookup.clone();
        providers.push(Rc::new(provider));
    }
    cx.main::<Oidc>().providers = providers;
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<OidcConf>();
    let Some((word, name)) = &conf.provider else { return Ok(()) };
    let all = l.conf::<Oidc>();
    let which = match name.as_const() {
        Some(name) if name == "off" => return Ok(()),
        Some(name) => match all.find(name) {
            Some(provider) => Which::One(provider.clone()),
            None => {
                let m = format!("oidc_provider \"{}\" is not defined", lossy(name));
                return Err(ConfError::at(word, m));
            }
        },
        None => Which::By(name.clone(), all),
    };
    p.access.push(Box::new(Handler { which }));
    Ok(())
}
