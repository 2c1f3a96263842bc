//! The one direction of dependencies: a crate depends only on crates above it in [`TIERS`]. And
//! each dependency on other people's code has its reason written down.

use crate::Findings;
use crate::workspace::{Member, Workspace};

/// The crates from the ground up, tier by tier: each may use the tiers before its own, never its
/// own and never a later one. ARCHITECTURE.md describes them.
const TIERS: &[&[&str]] = &[
    &["base"],
    &["os"],
    &["mem"],
    &["shm"],
    &["conf"],
    &["event"],
    &["mail-proto"],
    &["http-wire", "proto", "mp4", "ssi", "xslt", "script", "fleet"],
    &["pki", "jose"],
    &["tls", "listing", "oidc", "fleet-link"],
    &["net"],
    &["quic"],
    &["engine"],
    &["files"],
    &["upstream"],
    &["cache"],
    &["common-modules", "keyval"],
    &["script-modules"],
    &["http", "stream", "mail"],
    &["http-upstream"],
    &["acme", "otel"],
    &[
        "http-proxying",
        "http-observe",
        "http-identity",
        "http-files",
        "http-script",
        "stream-script",
    ],
    &["http-modules", "stream-modules", "mail-modules"],
    &["module"],
    &["server"],
    &["cli"],
    &["weir"],
];

/// Development only: they may use anything, and nothing that is shipped may use them
/// (a `[dev-dependencies]` line is no use in that sense).
const DEVELOPMENT: &[&str] = &[
    "testkit",
    "tests",
    "bench",
    "chains",
    "differential",
    "moves",
    "rig",
    "shared",
    "tools",
    "fuzz",
    "xtask",
];

/// Crates in this folder are built as other people's are: against [`INTERFACE`] alone.
const OUTSIDE: &str = "modules/";

/// The Kubernetes controller: programs of their own that nothing here depends on.
const APART: &str = "kube/";
const INTERFACE: &str = "module";

/// These stay usable without an event loop, wherever they stand in the order.
const WITHOUT_EVENT: &[&str] = &[
    "base",
    "os",
    "mem",
    "shm",
    "conf",
    "mail-proto",
    "http-wire",
    "proto",
    "pki",
    "jose",
    "oidc",
    "mp4",
    "fleet",
    "ssi",
    "xslt",
    "script",
    "listing",
];

/// Checks every member's manifest.
pub fn run(ws: &Workspace) -> Findings {
    let members = ws.members().map_err(|e| vec![e])?;
    let mut findings = check(&members);
    let root = ws.read("Cargo.toml").map_err(|e| vec![e])?;
    findings.extend(unjustified(&root, &ws.read("deny.toml").map_err(|e| vec![e])?));
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

fn tier_of(name: &str) -> Option<usize> {
    TIERS.iter().position(|tier| tier.contains(&name))
}

fn check(members: &[Member]) -> Vec<String> {
    // A module may have the name of a foreign crate.
    let inside = |m: &&Member| !m.dir.starts_with(OUTSIDE);
    let ours = |name: &str| members.iter().filter(inside).any(|m| m.name == name);
    let mut findings = Vec::new();
    for member in members {
        let (dir, name) = (&member.dir, member.name.as_str());
        if dir.starts_with(APART) {
            continue;
        }
        if dir.starts_with(OUTSIDE) {
            let own = member.dependencies.iter().filter(|d| ours(&d.name) && !d.dev);
            let others = own.filter(|d| d.name != INTERFACE);
            findings.extend(
                others.map(|d| {
                    format!("{dir}: depends on {}; modules see {INTERFACE} alone", d.name)
                }),
            );
            continue;
        }
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

/// Other people's crates in the root manifest without a line `#   NAME reason` in `deny.toml`.
fn unjustified(root: &str, reasons: &str) -> Vec<String> {
    let section = root.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let theirs = section.lines().filter(|line| !line.contains("path =") && !line.starts_with('#'));
    theirs
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim()))
        .filter(|name| {
            let has_reason = |line: &str| {
                let mut words = line.trim_start_matches('#').split_whitespace();
                words.next() == Some(name) && words.next().is_some()
            };
            !reasons.lines().any(|line| line.starts_with("#   ") && has_reason(line))
        })
        .map(|name| format!("deny.toml: no line says what {name} is for"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{check, unjustified};
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
    fn modules_see_the_interface_alone() {
        let of = |name: &str, on: &[(&str, bool)]| Member {
            dir: format!("modules/{name}"),
            ..member(name, on)
        };
        let members = [
            of("good", &[("module", false), ("testkit", true), ("theirs", false)]),
            of("theirs", &[]),
            of("bad", &[("module", false), ("http", false)]),
            member("module", &[("http", false)]),
            member("http", &[]),
            member("testkit", &[]),
        ];
        assert_eq!(check(&members), ["modules/bad: depends on http; modules see module alone"]);
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
    fn a_dependency_needs_its_reason() {
        let root = "[workspace.dependencies]\nbase = { path = \"x\" }\n# c\nbytes = \"1\"\n\
                    libc = \"0\"\n\n[workspace.lints]\nx = 1\n";
        let reasons = "#   bytes  strings\n#   libc\n";
        assert_eq!(unjustified(root, reasons), ["deny.toml: no line says what libc is for"]);
    }

    #[test]
    fn a_crate_without_a_place_is_named() {
        assert_eq!(check(&[member("misc", &[])]).len(), 1);
    }
}
