//! `auth_request`: whether a request may go on is for a subrequest's status to say.

use std::cell::RefCell;
use std::rc::Rc;

use base::log::Level;
use bytes::Bytes;
use conf::table::{Args, Directive};
use conf::template::{Template, VarId};
use conf::value::set_once;
use conf::{ConfError, Node};
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{LocView, Module, PhaseHandler, Pipeline, Step, Verdict};
use http::request::Request;
use http::subrequest::{Subrequest, Use};

/// The module's table.
pub static MODULE: Module = Module::of::<AuthRequestConf>("auth_request", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "auth_request",
        HSL,
        Args::T1,
        "off",
        "The URI of an authorization subrequest: 2xx allows, 401 and 403 deny.",
        |cx, n| {
            set_once(&mut cx.loc::<AuthRequestConf>().uri, n, |n| {
                let text = &n.arg(0)?.text;
                Ok(if &text[..] == b"off" { Bytes::new() } else { text.clone() })
            })
        },
    ),
    directive(
        "auth_request_set",
        HSL,
        Args::T2,
        "",
        "Sets a variable after the authorization subrequest, for example from its headers.",
        auth_request_set,
    ),
];

/// A variable, and what it becomes: evaluated in the subrequest.
#[derive(Clone)]
struct SetVar {
    id: VarId,
    value: Template,
}

engine::settings! {
    struct AuthRequestConf {
        /// Empty is `off`.
        uri: Option<Bytes>,
        vars: Option<Rc<Vec<SetVar>>>,
    }
}

fn auth_request_set(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let id = cx.vars.define_stored(&n.args[0])?;
    let value = cx.template(&n.args[1])?;
    let vars = cx.loc::<AuthRequestConf>().vars.get_or_insert_default();
    if let Some(vars) = Rc::get_mut(vars) {
        vars.push(SetVar { id, value });
    }
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<AuthRequestConf>();
    if let Some(uri) = conf.uri.clone().filter(|u| !u.is_empty()) {
        p.access.push(Box::new(Handler { uri, vars: conf.vars.clone().unwrap_or_default() }));
    }
    Ok(())
}

struct Handler {
    uri: Bytes,
    vars: Rc<Vec<SetVar>>,
}

/// The parts of the subrequest that outlive it.
#[derive(Default)]
struct Answer {
    values: Vec<Bytes>,
    challenges: Vec<Bytes>,
}

impl PhaseHandler for Handler {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        Step::Wait(Box::pin(self.ask(r)))
    }
}

impl Handler {
    async fn ask(&self, r: &mut Request) -> Verdict {
        let answer = Rc::new(RefCell::new(Answer::default()));
        let (to, vars) = (answer.clone(), self.vars.clone());
        let ask = Subrequest {
            take: Use::Head,
            with_body: false,
            at_end: Some(Box::new(move |sub| {
                let mut to = to.borrow_mut();
                to.values = vars.iter().map(|v| sub.eval(&v.value)).collect();
                let is = |name: &Bytes| base::ascii::eq_ignore_case(name, b"WWW-Authenticate");
                let fields = sub.out.headers.iter().filter(|(name, _)| is(name));
                to.challenges = fields.map(|(_, value)| value.clone()).collect();
            })),
            ..Subrequest::new(self.uri.clone(), Bytes::new())
        };
        let Ok(handle) = r.subrequest(ask) else { return Verdict::Status(500) };
        if let Err(v) = r.await_subrequest(&handle).await {
            return v;
        }
        let answer = answer.take();
        for (var, value) in self.vars.iter().zip(answer.values) {
            engine::vars::assign(r, var.id, value);
        }
        match handle.status() {
            200..300 => Verdict::Ok,
            403 => Verdict::Status(403),
            401 => {
                for challenge in answer.challenges {
                    r.out.add("WWW-Authenticate", challenge);
                }
                Verdict::Status(401)
            }
            status => {
                r.log(Level::Error, format_args!("auth request unexpected status: {status}"));
                Verdict::Status(500)
            }
        }
    }
}
