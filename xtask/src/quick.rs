//! `quick`: the checks of the inner loop, for the crates that changed. They are a part of what
//! `ci` does, chosen so that they end in about two minutes once the workspace is compiled.

use std::collections::BTreeSet;

use crate::workspace::Workspace;
use crate::{Findings, run, site, testing, tidy};

/// The package with the end-to-end tests.
const END_TO_END: &str = "weir";

/// The end-to-end program that says most of a crate; [`USUAL_AREA`] for the others.
const AREAS: &[(&str, &str)] = &[
    ("acme", "tls"),
    ("cache", "cache"),
    ("cli", "process"),
    ("http-upstream", "upstream"),
    ("mail", "mail"),
    ("mail-proto", "mail"),
    ("os", "process"),
    ("pki", "tls"),
    ("quic", "h3"),
    ("server", "process"),
    ("shm", "process"),
    ("stream", "stream"),
    ("stream-modules", "stream"),
    ("tls", "tls"),
    ("upstream", "upstream"),
];
const USUAL_AREA: &str = "http";

/// `quick [CRATE...]`: the crates named, by their folder below `crates`, or those with changes that
/// are not committed; after a commit, those of the commit.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let mut crates: BTreeSet<String> = args.iter().cloned().collect();
    if crates.is_empty() {
        crates = changed(ws).map_err(|e| vec![e])?;
    }
    let members = ws.members().map_err(|e| vec![e])?;
    if let Some(unknown) = crates.iter().find(|name| !members.iter().any(|m| m.name == **name)) {
        return Err(vec![format!("there is no crate {unknown}")]);
    }
    if crates.is_empty() {
        println!("== no crate changed; name one");
        return Ok(());
    }
    println!("== crates: {}", crates.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
    let packages = packages(ws, &crates).map_err(|e| vec![e])?;
    let named: Vec<&str> = packages.iter().flat_map(|package| ["-p", package]).collect();
    let cargo = |args: &[&str]| run::run(ws, "cargo", args).map_err(|e| vec![e]);
    cargo(&["fmt", "--all", "--check"])?;
    tidy::run(ws, &[])?;
    site::run(ws, &[])?;
    let clippy = ["clippy", "--quiet", "--all-targets"];
    cargo(&[&clippy[..], &named, &["--", "-D", "warnings"]].concat())?;
    let own = packages.iter().filter(|package| *package != END_TO_END);
    let own: Vec<&str> = own.flat_map(|package| ["-p", package]).collect();
    if !own.is_empty() {
        tests(ws, &own)?;
    }
    let areas: BTreeSet<&str> = crates.iter().map(|name| area(name)).collect();
    let areas: Vec<&str> = areas.into_iter().flat_map(|area| ["--test", area]).collect();
    tests(ws, &[&["-p", END_TO_END][..], &areas].concat())
}

/// Builds and runs tests, those that cargo's arguments choose.
fn tests(ws: &Workspace, cargo: &[&str]) -> Findings {
    let args = [&["--no-doc", "--"][..], cargo].concat();
    testing::run(ws, &args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
}

/// The crates of which a file changed since the last commit, or else in it.
fn changed(ws: &Workspace) -> Result<BTreeSet<String>, String> {
    let uncommitted = run::output(ws, "git", &["diff", "--name-only", "HEAD"])?;
    let new = run::output(ws, "git", &["ls-files", "--others", "--exclude-standard"])?;
    let found = crates_of(uncommitted.lines().chain(new.lines()));
    if !found.is_empty() {
        return Ok(found);
    }
    let committed = run::output(ws, "git", &["show", "--name-only", "--format=", "HEAD"])?;
    Ok(crates_of(committed.lines()))
}

/// The folders below `crates` of these files, and `xtask`.
fn crates_of<'a>(files: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let name = |file: &str| match file.split('/').collect::<Vec<_>>()[..] {
        ["crates", name, _, ..] | [name @ "xtask", _, ..] => Some(name.to_owned()),
        _ => None,
    };
    files.filter_map(name).collect()
}

/// The names of their packages, as the manifests have them.
fn packages(ws: &Workspace, crates: &BTreeSet<String>) -> Result<Vec<String>, String> {
    let members = ws.members()?;
    let chosen = members.iter().filter(|member| crates.contains(&member.name));
    let package = |dir: &str| {
        let manifest = ws.read(&format!("{dir}/Cargo.toml"))?;
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = "));
        let name = name.ok_or_else(|| format!("{dir}/Cargo.toml has no name"))?;
        Ok(name.trim_matches('"').to_owned())
    };
    chosen.map(|member| package(&member.dir)).collect()
}

fn area(name: &str) -> &'static str {
    AREAS.iter().find(|(of, _)| *of == name).map_or(USUAL_AREA, |(_, area)| area)
}

#[cfg(test)]
mod tests {
    use super::{area, crates_of};

    #[test]
    fn crates_are_found_by_their_files() {
        let files =
            ["crates/cache/src/a.rs", "crates/cache/Cargo.toml", "xtask/src/ci.rs", "README.md"];
        let found: Vec<String> = crates_of(files.into_iter()).into_iter().collect();
        assert_eq!(found, ["cache", "xtask"]);
    }

    #[test]
    fn crates_without_an_area_of_their_own_have_the_usual_one() {
        assert_eq!((area("quic"), area("engine")), ("h3", "http"));
    }
}
