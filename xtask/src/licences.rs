//! `licences`: what `deny.toml` says of dependencies, checked in a second: their licences, the
//! crates that are not wanted, and where they come from. `./x audit` has cargo-deny check the same
//! and ask for advisories; compiling that tool takes longer than all tests, so they do without.

use std::collections::BTreeMap;

use crate::sbom::{self, Locked};
use crate::workspace::Workspace;
use crate::{Findings, run};

/// `licences`: the dependencies of the server and of the Kubernetes controller, those of tests and
/// of the build included. What is denied in the server may be needed in the controller, whose
/// client library brings its own runtime.
pub fn run(ws: &Workspace, _args: &[String]) -> Findings {
    let rules = ws.read("deny.toml").map(|text| Rules::read(&text)).map_err(|e| vec![e])?;
    let mut findings = of(ws, &rules, "Cargo.toml", "Cargo.lock").map_err(|e| vec![e])?;
    let rules = Rules { denied: BTreeMap::new(), ..rules };
    let of_kube = of(ws, &rules, "kube/Cargo.toml", "kube/Cargo.lock").map_err(|e| vec![e])?;
    findings.extend(of_kube.into_iter().map(|finding| format!("kube: {finding}")));
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

fn of(ws: &Workspace, rules: &Rules, manifest: &str, lock: &str) -> Result<Vec<String>, String> {
    let mut args = vec!["tree", "--workspace", "--locked", "--edges", "normal,build,dev"];
    args.extend(["--manifest-path", manifest]);
    args.extend(["--prefix", "none", "--all-features", "--format", "{p}\t{l}\t{r}"]);
    rules.targets.iter().for_each(|target| args.extend(["--target", target]));
    let tree = run::output(ws, "cargo", &args)?;
    Ok(rules.findings(&tree, &ws.read(lock)?))
}

/// The rules of `deny.toml` that are checked here.
#[derive(Default, Debug)]
struct Rules {
    targets: Vec<String>,
    /// Licences, for example `MIT` or `Apache-2.0 WITH LLVM-exception`.
    allowed: Vec<String>,
    /// Crates that are not wanted, each with those that may depend on it all the same.
    denied: BTreeMap<String, Vec<String>>,
}

impl Rules {
    /// A line reader: the file is ours, and each rule stands on one line.
    fn read(text: &str) -> Rules {
        let mut rules = Rules::default();
        for line in text.lines().map(str::trim) {
            if let Some(list) = line.strip_prefix("targets = ") {
                rules.targets = quoted(list);
            } else if let Some(list) = line.strip_prefix("allow = ") {
                rules.allowed = quoted(list);
            } else if let Some(rule) = line.strip_prefix("{ crate = ") {
                let wrappers = rule
                    .split_once("wrappers = ")
                    .map(|(_, list)| quoted(list.split(']').next().unwrap_or_default()));
                if let [name, ..] = &quoted(rule)[..] {
                    rules.denied.insert(name.clone(), wrappers.unwrap_or_default());
                }
            }
        }
        rules
    }

    fn findings(&self, tree: &str, lock: &str) -> Vec<String> {
        let packages = sbom::packages(tree);
        if self.allowed.is_empty() || packages.is_empty() {
            return vec!["deny.toml allows no licence, or cargo tree names no package".to_owned()];
        }
        let mut findings = Vec::new();
        let locked = sbom::locked(lock);
        for (id, package) in &packages {
            let (name, version) = id;
            if !self.allows(&package.licence) {
                findings.push(format!("{name} {version}: licence \"{}\"", package.licence));
            }
            for dependency in locked.get(id).iter().flat_map(|locked| &locked.dependencies) {
                let dependency = dependency.split(' ').next().unwrap_or_default();
                let is_there = packages.keys().any(|(name, _)| name == dependency);
                let wrappers = self.denied.get(dependency).filter(|_| is_there);
                if wrappers.is_some_and(|wrappers| !wrappers.contains(name)) {
                    findings.push(format!("{name} {version} depends on {dependency}: denied"));
                }
            }
        }
        findings.extend(sources(&locked));
        findings
    }

    /// Whether a licence expression of SPDX can be met by allowed licences alone. One that is not
    /// understood is not allowed.
    fn allows(&self, expression: &str) -> bool {
        // An old way to write `OR`.
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = &words[..];
        self.any(&mut rest).unwrap_or(false) && rest.is_empty()
    }

    /// `A OR B`, which binds less than `AND`.
    fn any(&self, words: &mut &[&str]) -> Option<bool> {
        let mut met = self.all(words)?;
        while let ["OR", rest @ ..] = *words {
            *words = rest;
            met |= self.all(words)?;
        }
        Some(met)
    }

    fn all(&self, words: &mut &[&str]) -> Option<bool> {
        let mut met = self.one(words)?;
        while let ["AND", rest @ ..] = *words {
            *words = rest;
            met &= self.one(words)?;
        }
        Some(met)
    }

    fn one(&self, words: &mut &[&str]) -> Option<bool> {
        let (licence, rest) = match *words {
            ["(", rest @ ..] => {
                *words = rest;
                let met = self.any(words)?;
                *words = words.strip_prefix(&[")"])?;
                return Some(met);
            }
            [licence, "WITH", exception, rest @ ..] => {
                (format!("{licence} WITH {exception}"), rest)
            }
            [licence, rest @ ..] => ((*licence).to_owned(), rest),
            [] => return None,
        };
        *words = rest;
        Some(self.allowed.contains(&licence))
    }
}

/// The texts in double quotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// All packages that are not ours come from one registry, and none from a repository.
fn sources(locked: &BTreeMap<sbom::Id, Locked>) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for source in locked.values().filter_map(|locked| locked.source.as_deref()) {
        *counts.entry(source).or_default() += 1;
    }
    // Whatever has crept in is rarer than the registry of all the others.
    let registries = counts.iter().filter(|(source, _)| source.starts_with("registry+"));
    let usual = registries.max_by_key(|(_, count)| **count).map(|(source, _)| *source);
    let strange = |(id, locked): (&sbom::Id, &Locked)| {
        let source = locked.source.as_deref().filter(|source| Some(*source) != usual)?;
        Some(format!("{} {} comes from {source}", id.0, id.1))
    };
    locked.iter().filter_map(strange).collect()
}

#[cfg(test)]
mod tests {
    use super::Rules;

    const DENY: &str = "[graph]\ntargets = [\"x86_64-unknown-linux-gnu\"]\n[licenses]\n\
        allow = [\"MIT\", \"Apache-2.0\", \"ISC\", \"Apache-2.0 WITH LLVM-exception\"]\n\
        [bans]\ndeny = [\n\
        { crate = \"openssl\", reason = \"two ways\" },\n\
        { crate = \"tracing\", wrappers = [\"quinn-proto\"], reason = \"the log\" },\n]\n";

    #[test]
    fn licences_are_met_or_not() {
        let rules = Rules::read(DENY);
        for (expression, allowed) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("BSD-3-Clause/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("ISC AND (GPL-3.0 OR MIT)", true),
            ("GPL-3.0 OR ISC AND OpenSSL", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("ISC WITH LLVM-exception", false),
            ("", false),
            ("(MIT", false),
            ("MIT MIT", false),
        ] {
            assert_eq!(rules.allows(expression), allowed, "{expression}");
        }
    }

    #[test]
    fn denied_crates_and_other_sources_are_found() {
        let tree = "weir v0.1.0 (/w)\tMIT\t\nopenssl v1.0.0\tMIT\t\nquinn-proto v1.0.0\tMIT\t\n\
                    tracing v1.0.0\tMIT\t\n";
        let package = |name: &str, source: &str, dependencies: &[&str]| {
            let on: String = dependencies.iter().map(|d| format!(" \"{d}\",\n")).collect();
            format!(
                "[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\nsource = \"{source}\"\n\
                 dependencies = [\n{on}]\n\n"
            )
        };
        let lock = |weir_on: &str, source: &str| {
            let ours = "[[package]]\nname = \"weir\"\nversion = \"0.1.0\"\ndependencies = [\n";
            [
                format!("{ours} \"{weir_on}\",\n]\n\n"),
                package("quinn-proto", "registry+a", &["tracing", "tokio"]),
                package("tracing", "registry+a", &[]),
                package("openssl", source, &[]),
            ]
            .concat()
        };
        let rules = Rules::read(DENY);
        assert_eq!(rules.findings(tree, &lock("quinn-proto", "registry+a")), [""; 0]);
        let denied = rules.findings(tree, &lock("tracing 1.0.0", "registry+a"));
        assert_eq!(denied, ["weir 0.1.0 depends on tracing: denied"]);
        let denied = rules.findings(tree, &lock("openssl", "registry+a"));
        assert_eq!(denied, ["weir 0.1.0 depends on openssl: denied"]);
        for source in ["git+https://example.com/x", "registry+b"] {
            let found = rules.findings(tree, &lock("quinn-proto", source));
            assert_eq!(found, [format!("openssl 1.0.0 comes from {source}")]);
        }
    }

    #[test]
    fn nothing_to_check_is_a_finding() {
        assert_eq!(Rules::read(DENY).findings("", "").len(), 1);
        assert_eq!(Rules::default().findings("weir v0.1.0 (/w)\tMIT\t\n", "").len(), 1);
    }
}
