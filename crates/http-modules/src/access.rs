//! `access`: who may, by the client's address.

use std::net::IpAddr;
use std::rc::Rc;

use base::log::Level;
use conf::table::{Args, Contexts as C, Directive};
use conf::{ConfError, Node};
use http::core_conf::Satisfy;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope, Verdict};
use http::request::Request;
use net::Cidr;

/// The module's table.
pub static MODULE: Module = Module {
    name: "access",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<AccessConf>(Scope::Location)],
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "allow",
        HSL.or(C::LIMIT_EXCEPT),
        Args::T1,
        "",
        "Allows clients of an address, a range, unix: or all; the first rule that fits decides.",
        |cx, n| rule(cx, n, true),
    ),
    directive(
        "deny",
        HSL.or(C::LIMIT_EXCEPT),
        Args::T1,
        "",
        "Denies clients of an address, a range, unix: or all.",
        |cx, n| rule(cx, n, false),
    ),
];

/// Whom a rule is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    All,
    Unix,
    Net(Cidr),
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    who: Who,
    allow: bool,
}

#[derive(Default)]
struct AccessConf {
    rules: Rc<Vec<Rule>>,
}

impl Conf for AccessConf {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.rules.is_empty() {
            self.rules.clone_from(&prev.rules);
        }
        Ok(())
    }
}

fn rule(cx: &mut Cx, n: &Node, allow: bool) -> Result<(), ConfError> {
    let word = &n.args[0];
    let who = match word.bytes() {
        b"all" => Who::All,
        b"unix:" => Who::Unix,
        text => match Cidr::parse(text) {
            Some((net, meaningless)) => {
                if meaningless {
                    let m = format!("low address bits of {} are meaningless", word.lossy());
                    conf::warn(word, m);
                }
                Who::Net(net)
            }
            None => {
                let m = format!("invalid parameter \"{}\"", word.lossy());
                return Err(ConfError::at(word, m));
            }
        },
    };
    let rules = &mut cx.loc::<AccessConf>().rules;
    Rc::make_mut(rules).push(Rule { who, allow });
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let rules = l.conf::<AccessConf>().rules.clone();
    if !rules.is_empty() {
        p.access.push(Box::new(move |r: &mut Request| check(r, &rules)));
    }
    Ok(())
}

fn check(r: &mut Request, rules: &[Rule]) -> Verdict {
    // An IPv4 client on a socket of both families is an IPv4 client.
    match decide(rules, r.peer().ip_addr().map(|ip| ip.to_canonical())) {
        None => Verdict::Next,
        Some(true) => Verdict::Ok,
        Some(false) => {
            if r.loc.core.satisfy == Satisfy::All {
                r.log(Level::Error, format_args!("access forbidden by rule"));
            }
            Verdict::Status(403)
        }
    }
}

/// What the first rule that fits says; `None` for a client whom no rule is about. Clients of unix
/// sockets have no address.
fn decide(rules: &[Rule], ip: Option<IpAddr>) -> Option<bool> {
    let fits = |who| match (who, ip) {
        (Who::All, _) => true,
        (Who::Unix, ip) => ip.is_none(),
        (Who::Net(net), Some(ip)) => net.contains(ip),
        (Who::Net(_), None) => false,
    };
    rules.iter().find(|rule| fits(rule.who)).map(|rule| rule.allow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let net = |text: &str| Who::Net(Cidr::parse(text.as_bytes()).unwrap().0);
        let rules = [
            (net("10.0.0.1"), false),
            (net("10.0.0.0/8"), true),
            (net("2001:db8::/32"), true),
            (Who::Unix, true),
            (net("192.168.0.0/16"), false),
        ]
        .map(|(who, allow)| Rule { who, allow });
        let of = |text: &str| decide(&rules, text.parse().ok());
        assert_eq!(of("10.0.0.1"), Some(false));
        assert_eq!(of("10.0.0.2"), Some(true));
        assert_eq!(of("192.168.1.1"), Some(false));
        assert_eq!(of("2001:db8::1"), Some(true));
        assert_eq!(of("11.0.0.1"), None);
        assert_eq!(of("::1"), None);
        assert_eq!(of("unix:"), Some(true));
        let all = [Rule { who: Who::All, allow: false }];
        assert_eq!(decide(&all, None), Some(false));
    }
}
