//! `*_pass`: the server that requests of a location go to.

use std::marker::PhantomData;
use std::rc::Rc;

use ::upstream::url::{self, Url};
use ::upstream::{Group, GroupRef, NoPort, Target, Upstreams};
use base::future::boxed;
use base::log::Level;
use bytes::Bytes;
use conf::table::{Args, Contexts as C, Directive};
use conf::template::Template;
use conf::{ConfError, Node, Word};
use engine::TempPath;
use http::core_directives::directive;
use http::cx::Cx;
use http::module::{Conf, ConfType, Install, LocView, Module, Scope, Step, Verdict};
use http::request::Request;
use http_upstream::conf::{Conf as UpConf, default_folder};
use http_upstream::{Job, Protocol};

use super::Gateway;
use crate::health::{self, Servers, Speaks};
use crate::proxy::pass::Vars;

/// The `*_pass` of one level.
pub struct Pass<G> {
    fixed: Option<GroupRef>,
    /// Its name, as the address has it.
    named: Named,
    template: Option<Template>,
    /// The folder of responses that fit no buffer, unless `*_temp_path` names one.
    folder: Option<TempPath>,
    /// The `Host` that the gateway is told.
    host: Option<Template>,
    gateway: PhantomData<fn() -> G>,
}

// Not derived: the gateway's own configuration need not be copied.
impl<G> Clone for Pass<G> {
    fn clone(&self) -> Pass<G> {
        Pass {
            fixed: self.fixed,
            named: self.named.clone(),
            template: self.template.clone(),
            folder: self.folder.clone(),
            host: self.host.clone(),
            gateway: PhantomData,
        }
    }
}

impl<G> Default for Pass<G> {
    fn default() -> Pass<G> {
        let (fixed, template, folder, host) = (None, None, None, None);
        let named = Named::default();
        Pass { fixed, named, template, folder, host, gateway: PhantomData }
    }
}

impl<G: Gateway> Conf for Pass<G> {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.fixed.is_none() && self.template.is_none() {
            self.clone_from(prev);
        }
        Ok(())
    }
}

/// The table of a gateway's module.
pub const fn module<G: Gateway + Conf>(
    name: &'static str,
    directives: &'static [Directive<Cx>],
    install: Install,
) -> Module {
    let confs =
        const { &[ConfType::of::<Pass<G>>(Scope::Location), ConfType::of::<G>(Scope::Location)] };
    Module { confs, ..Module::of::<G>(name, directives, install) }
}

/// The directive `*_pass` of a gateway that has parameters.
pub const fn pass<G: Gateway>(name: &'static str) -> Directive<Cx> {
    let places = C::LOCATION.or(C::IF_LOCATION);
    directive(
        name,
        places,
        Args::T1,
        "",
        "The upstream server or group to which requests are proxied.",
        set::<G>,
    )
}

/// The text behind `scheme`, where `text` begins with it.
fn behind(text: &Bytes, scheme: &str) -> Option<Bytes> {
    let found = text.get(..scheme.len())?.eq_ignore_ascii_case(scheme.as_bytes());
    found.then(|| text.slice(scheme.len()..))
}

/// The address behind its scheme, and whether that stands for TLS.
fn without_scheme<G: Gateway>(text: &Bytes) -> (Bytes, bool) {
    match G::TLS_SCHEME.and_then(|scheme| behind(text, scheme)) {
        Some(text) => (text, true),
        None => (behind(text, G::SCHEME).unwrap_or_else(|| text.clone()), false),
    }
}

/// Sets where requests go.
///
/// # Errors
/// `is duplicate`, and what is wrong with the address.
pub fn set<G: Gateway>(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    set_to::<G>(cx, n, word)
}

/// The same for an address that is not the directive's own argument.
///
/// # Errors
/// As [`set`].
pub(crate) fn set_to<G: Gateway>(cx: &mut Cx, n: &Node, word: &Word) -> Result<(), ConfError> {
    let pass = cx.loc::<Pass<G>>();
    if pass.fixed.is_some() || pass.template.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let folder = G::USES_FILES.then(|| default_folder(cx, G::PREFIX));
    let host = Bytes::from_static(b"$host$is_request_port$request_port");
    let host = cx.template(&Word { text: host, ..word.clone() })?;
    let pass = cx.loc::<Pass<G>>();
    (pass.folder, pass.host) = (folder, Some(host));
    let template = cx.template(word)?;
    let Some(text) = template.as_const() else {
        cx.loc::<Pass<G>>().template = Some(template);
        return Ok(());
    };
    let (text, tls) = without_scheme::<G>(text);
    let url = url::parse(&text, 0, false).map_err(|e| {
        let text = String::from_utf8_lossy(&text).into_owned();
        ConfError::at(word, format!("{e} in upstream \"{text}\""))
    })?;
    let named = Named::of(&url, tls, &text);
    let group = cx.main::<Upstreams>().refer(url, word);
    let pass = cx.loc::<Pass<G>>();
    (pass.fixed, pass.named) = (Some(group), named);
    Ok(())
}

/// The name of a server, as its address has it.
#[derive(Clone, Default)]
pub struct Named {
    /// For its certificate, where it is spoken to under TLS.
    pub tls: Option<Bytes>,
    /// For HTTP: with the port, unless that is the usual one.
    pub authority: Bytes,
}

impl Named {
    fn of(url: &Url, tls: bool, text: &Bytes) -> Named {
        let authority = Vars::of(url, tls, text).host;
        Named { tls: tls.then(|| url.host.clone()), authority }
    }
}

/// The destination of a location's requests, compiled.
pub enum To<G> {
    /// A group, by the name in the address.
    Group(Rc<Group>, Named),
    /// A server that variables name.
    Template(Template, Rc<Upstreams>, PhantomData<fn() -> G>),
}

impl<G: Gateway> To<G> {
    /// `None` where this location has no handler of this gateway's.
    pub fn of(l: &LocView) -> Option<To<G>> {
        if !l.set_here_or_around::<Pass<G>>() {
            return None;
        }
        let pass = l.conf::<Pass<G>>();
        let upstreams = l.conf::<Upstreams>();
        match (pass.fixed, &pass.template) {
            (Some(group), _) => {
                upstreams.group(group).map(|group| To::Group(group, pass.named.clone()))
            }
            (None, Some(t)) => Some(To::Template(t.clone(), upstreams, PhantomData)),
            (None, None) => None,
        }
    }

    /// Has the servers checked where `health_check` says so.
    ///
    /// # Errors
    /// See [`health::install`].
    pub(crate) fn check_health(&self, l: &LocView, conf: &UpConf) -> Result<(), ConfError> {
        match self {
            To::Group(group, named) => {
                let name = match G::SPEAKS {
                    Speaks::Grpc => &named.authority,
                    _ => &named.tls.clone().unwrap_or_default(),
                };
                let servers = Servers { prefix: G::PREFIX, name, speak: G::SPEAKS };
                health::install(l, group, conf, &servers)
            }
            To::Template(..) => Ok(()),
        }
    }

    /// Whether some requests go under TLS.
    pub(crate) fn uses_tls(&self) -> bool {
        match self {
            To::Group(_, named) => named.tls.is_some(),
            To::Template(..) => G::TLS_SCHEME.is_some(),
        }
    }

    /// Passes a request on by the protocol that `make` gives, which is told whether the
    /// connection has TLS.
    #[inline]
    pub fn pass<'a>(
        &self,
        r: &'a mut Request,
        conf: &Rc<UpConf>,
        make: impl FnOnce(bool) -> Box<dyn Protocol>,
    ) -> Step<'a> {
        let (target, Named { tls, .. }) = match self.target(r) {
            Ok(target) => target,
            Err(status) => return Verdict::Status(status).into(),
        };
        let protocol = make(tls.is_some());
        let job = Job { conf: conf.clone(), target, protocol, tls };
        Step::Wait(boxed(|| http_upstream::run(r, job)))
    }

    /// The server for a request, and its name.
    ///
    /// # Errors
    /// The status to answer with; the reason was logged.
    pub fn target(&self, r: &mut Request) -> Result<(Target, Named), u16> {
        let (template, upstreams) = match self {
            To::Group(group, named) => {
                return Ok((Target::Group(group.clone()), named.clone()));
            }
            To::Template(template, upstreams, _) => (template, upstreams),
        };
        let (text, tls) = without_scheme::<G>(&template.eval(r));
        let url = url::parse(&text, 0, false).map_err(|e| {
            let text = base::log::lossy(&text).into_owned();
            r.log(Level::Error, format_args!("{e} in upstream \"{text}\""));
            500_u16
        })?;
        let named = Named::of(&url, tls, &text);
        let target = upstreams.target(r, &url).map_err(|NoPort| 500_u16)?;
        Ok((target, named))
    }
}

/// The folder of responses that fit no buffer, unless `*_temp_path` names one.
pub fn folder<G: Gateway>(l: &LocView) -> TempPath {
    let folder = l.conf::<Pass<G>>().folder.clone();
    folder.unwrap_or_else(|| TempPath::named("".into(), [0; 3]))
}

/// The parameters that a gateway gets unless its directives set them.
pub fn defaults<G: Gateway>(l: &LocView) -> Vec<(&'static str, Template)> {
    let host = l.conf::<Pass<G>>().host.clone();
    host.map(|host| ("HTTP_HOST", host)).into_iter().collect()
}
