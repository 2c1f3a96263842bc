//! Access rules: the addresses that may, and those that may not.

use std::net::IpAddr;
use std::rc::Rc;

use conf::{ConfError, Node};
use engine::settings::Inherit;
use net::Cidr;
use os::SockAddr;

/// The clients of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Subject {
    All,
    Unix,
    Net(Cidr),
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    subject: Subject,
    allow: bool,
}

/// The rules of one block, in order; a block without rules takes those of the block around.
#[derive(Clone, Default, Debug)]
pub struct AccessRules(Rc<Vec<Rule>>);

impl Inherit for AccessRules {
    fn inherit(&mut self, prev: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&prev.0);
        }
    }
}

impl AccessRules {
    /// Reads `allow` or `deny`.
    ///
    /// # Errors
    /// The argument is no address, range, `unix:` or `all`.
    pub fn add(&mut self, n: &Node, allow: bool) -> Result<(), ConfError> {
        let word = &n.args[0];
        let subject = match word.bytes() {
            b"all" => Subject::All,
            b"unix:" => Subject::Unix,
            text => match Cidr::parse(text) {
                Some((net, meaningless)) => {
                    if meaningless {
                        let m = format!("low address bits of {} are meaningless", word.lossy());
                        conf::warn(word, m);
                    }
                    Subject::Net(net)
                }
                None => {
                    let m = format!("invalid parameter \"{}\"", word.lossy());
                    return Err(ConfError::at(word, m));
                }
            },
        };
        Rc::make_mut(&mut self.0).push(Rule { subject, allow });
        Ok(())
    }

    /// Says whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The verdict of the first rule that fits the client; `None` where none does.
    pub fn allows(&self, client: &SockAddr) -> Option<bool> {
        // An IPv4 client on a socket of both families is an IPv4 client.
        self.decide(client.ip_addr().map(|ip| ip.to_canonical()))
    }

    /// The same by address; clients of unix sockets have none.
    fn decide(&self, ip: Option<IpAddr>) -> Option<bool> {
        let fits = |subject| match (subject, ip) {
            (Subject::All, _) => true,
            (Subject::Unix, ip) => ip.is_none(),
            (Subject::Net(net), Some(ip)) => net.contains(ip),
            (Subject::Net(_), None) => false,
        };
        self.0.iter().find(|rule| fits(rule.subject)).map(|rule| rule.allow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides() {
        let net = |text: &str| Subject::Net(Cidr::parse(text.as_bytes()).unwrap().0);
        let rules: Vec<Rule> = [
            (net("10.0.0.1"), false),
            (net("10.0.0.0/8"), true),
            (net("2001:db8::/32"), true),
            (Subject::Unix, true),
            (net("192.168.0.0/16"), false),
        ]
        .map(|(subject, allow)| Rule { subject, allow })
        .to_vec();
        let rules = AccessRules(Rc::new(rules));
        let of = |text: &str| rules.decide(text.parse().ok());
        assert_eq!(of("10.0.0.1"), Some(false));
        assert_eq!(of("10.0.0.2"), Some(true));
        assert_eq!(of("192.168.1.1"), Some(false));
        assert_eq!(of("2001:db8::1"), Some(true));
        assert_eq!(of("11.0.0.1"), None);
        assert_eq!(of("::1"), None);
        assert_eq!(of("unix:"), Some(true));
        let all = AccessRules(Rc::new(vec![Rule { subject: Subject::All, allow: false }]));
        assert_eq!(all.decide(None), Some(false));
    }
}
