//! The one direction of dependencies: a crate depends only on crates above it in [`TIERS`].

use crate::Findings;
use crate::workspace::{Member, Workspace};

/// The crates from the ground up, tier by tier: each may use the tiers before its own, never a
/// neighbour in its own tier and never a later one. ARCHITECTURE.md says what each is for.
const TIERS: &[&[&str]] = &[
    &["base"],
    &["os"],
    &["mem"],
    &["shm"],
    &["conf"],
    &["event"],
    &["proto"],
    &["tls"],
    &["net"],
    &["http", "stream", "mail"],
    &["http-modules", "stream-modules", "mail-modules"],
    &["server"],
];

/// Development only: they may use anything, and nothing that is shipped may use them
/// (a `[dev-dependencies]` line is no use in that sense).
const DEVELOPMENT: &[&str] = &["testkit", "tests", "bench", "fuzz", "xtask"];

/// These stay usable without an event loop, whatever their place in the order.
const WITHOUT_EVENT: &[&str] = &["base", "os", "mem", "shm", "conf", "proto"];

/// Checks every member's manifest.
pub fn run(ws: &Workspace) -> Findings {
    let members = ws.members().map_err(|e| vec![e])?;
    let findings = check(&members);
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

fn tier_of(name: &str) -> Option<usize> {
    TIERS.iter().position(|tier| tier.contains(&name))
}

fn check(members: &[Member]) -> Vec<String> {
    let ours = |name: &str| members.iter().any(|m| m.name == name);
    let mut findings = Vec::new();
    for member in members {
        let (dir, name) = (&member.dir, member.name.as_str());
        let Some(tier) = tier_of(name) else {
            if !DEVELOPMENT.contains(&name) {
                findings.push(format!("{dir}: has no place in the tiers (xtask/src/tiers.rs)"));
            }
            continue;
        };
        for dependency in member.dependencies.iter().filter(|d| ours(&d.name)) {
            let on = dependency.name.as_str();
            let upward = match tier_of(on) {
                Some(below) => below >= tier,
                None => !dependency.dev,
            };
            if upward && !dependency.dev {
                findings.push(format!("{dir}: depends on {on}, which is not below it"));
            }
            if on == "event" && WITHOUT_EVENT.contains(&name) {
                findings.push(format!("{dir}: depends on event, which it must do without"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::workspace::{Dependency, Member};

    fn member(name: &str, on: &[(&str, bool)]) -> Member {
        let dependencies =
            on.iter().map(|&(n, dev)| Dependency { name: n.to_string(), dev }).collect();
        Member { dir: format!("crates/{name}"), name: name.to_string(), dependencies }
    }

    #[test]
    fn downward_is_fine() {
        let members = [
            member("base", &[]),
            member("event", &[("base", false)]),
            member("testkit", &[("server", false)]),
            member("server", &[("event", false), ("testkit", true)]),
        ];
        assert_eq!(check(&members), Vec::<String>::new());
    }

    #[test]
    fn upward_sideways_and_development_are_refused() {
        let members = [
            member("base", &[("os", false)]),
            member("os", &[("testkit", false)]),
            member("http", &[("stream", false)]),
            member("stream", &[]),
            member("testkit", &[]),
        ];
        let findings = check(&members);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings[0].contains("crates/base: depends on os"));
    }

    #[test]
    fn protocols_do_without_the_event_loop_even_in_tests() {
        let members = [member("event", &[]), member("proto", &[("event", true)])];
        assert_eq!(check(&members).len(), 1);
    }

    #[test]
    fn a_crate_without_a_place_is_named() {
        assert_eq!(check(&[member("misc", &[])]).len(), 1);
    }
}
