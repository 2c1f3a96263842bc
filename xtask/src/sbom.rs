//! `sbom`: what the shipped program consists of, in CycloneDX's JSON. The same tree gives the same
//! bytes: the list has neither a time nor a serial number.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::workspace::Workspace;
use crate::{Findings, run};

/// The package whose binary is shipped.
const SHIPPED: &str = "weir";

/// The fields of a package, as `cargo tree` writes them.
const FORMAT: &str = "{p}\t{l}\t{r}";

/// `sbom [FILE]`: writes the list to the file, or to standard output.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let text = make(ws).map_err(|e| vec![e])?;
    match args {
        [] => {
            print!("{text}");
            Ok(())
        }
        [file] => {
            std::fs::write(ws.root().join(file), text).map_err(|e| vec![format!("{file}: {e}")])
        }
        _ => Err(vec!["usage: cargo xtask sbom [FILE]".to_owned()]),
    }
}

fn make(ws: &Workspace) -> Result<String, String> {
    // Without the dependencies of tests, and of other systems.
    let tree = [
        "tree",
        "--locked",
        "-p",
        SHIPPED,
        "-e",
        "normal,build",
        "--prefix",
        "none",
        "--format",
        FORMAT,
    ];
    let tree = run::output(ws, "cargo", &tree)?;
    let lock = ws.root().join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).map_err(|e| format!("{}: {e}", lock.display()))?;
    let (packages, locked) = (packages(&tree), locked(&lock));
    if packages.is_empty() {
        return Err(format!("cargo tree names no package of {SHIPPED}"));
    }
    Ok(document(&packages, &locked))
}

/// A package by name and version.
pub type Id = (String, String);

/// The facts of a package that `cargo tree` prints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Package {
    /// An expression of SPDX, as its manifest has it.
    pub licence: String,
    repository: String,
}

/// The facts of one in `Cargo.lock`.
#[derive(Default, Clone, PartialEq, Eq, Debug)]
pub struct Locked {
    /// The registry or repository; none for packages of the workspace.
    pub source: Option<String>,
    checksum: Option<String>,
    /// Names, with a version where there are several.
    pub dependencies: Vec<String>,
}

/// The packages of `cargo tree`, each once.
pub fn packages(tree: &str) -> BTreeMap<Id, Package> {
    let package = |line: &str| {
        let mut fields = line.trim_end_matches(" (*)").split('\t');
        let mut words = fields.next()?.split(' ');
        let id = (words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned());
        let mut field = || fields.next().unwrap_or_default().trim().to_owned();
        Some((id, Package { licence: field(), repository: field() }))
    };
    tree.lines().filter_map(package).collect()
}

/// The packages of `Cargo.lock`.
pub fn locked(lock: &str) -> BTreeMap<Id, Locked> {
    let package = |block: &str| {
        let value = |key: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.strip_prefix(" = \"")?.strip_suffix('"')?.to_owned())
        };
        let entry = |line: &str| Some(line.strip_prefix(" \"")?.strip_suffix("\",")?.to_owned());
        let dependencies = block.lines().filter_map(entry).collect();
        let locked = Locked { source: value("source"), checksum: value("checksum"), dependencies };
        Some(((value("name")?, value("version")?), locked))
    };
    lock.split("[[package]]").skip(1).filter_map(package).collect()
}

/// The dependencies of a package, among those that are shipped.
fn dependencies<'a>(
    locked: Option<&'a Locked>,
    packages: &'a BTreeMap<Id, Package>,
) -> BTreeSet<&'a Id> {
    let named = |entry: &'a String| {
        let mut words = entry.split(' ');
        let (name, version) = (words.next(), words.next());
        let is_it = move |id: &&Id| {
            name == Some(id.0.as_str()) && version.is_none_or(|version| version == id.1)
        };
        packages.keys().filter(is_it)
    };
    locked.into_iter().flat_map(|locked| &locked.dependencies).flat_map(named).collect()
}

fn purl((name, version): &Id) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn component(id: &Id, kind: &str, package: &Package, locked: Option<&Locked>) -> String {
    let purl = quoted(&purl(id));
    let mut out = format!(
        "{{\"type\":\"{kind}\",\"bom-ref\":{purl},\"name\":{},\"version\":{},\"purl\":{purl}",
        quoted(&id.0),
        quoted(&id.1),
    );
    if !package.licence.is_empty() {
        // An old way to write `OR`.
        let expression = quoted(&package.licence.replace('/', " OR "));
        let _ = write!(out, ",\"licenses\":[{{\"expression\":{expression}}}]");
    }
    if let Some(checksum) = locked.and_then(|locked| locked.checksum.as_deref()) {
        let checksum = quoted(checksum);
        let _ = write!(out, ",\"hashes\":[{{\"alg\":\"SHA-256\",\"content\":{checksum}}}]");
    }
    if !package.repository.is_empty() {
        let url = quoted(&package.repository);
        let _ = write!(out, ",\"externalReferences\":[{{\"type\":\"vcs\",\"url\":{url}}}]");
    }
    out.push('}');
    out
}

fn document(packages: &BTreeMap<Id, Package>, locked: &BTreeMap<Id, Locked>) -> String {
    let (mut main, mut components, mut edges) = (String::new(), Vec::new(), Vec::new());
    for (id, package) in packages {
        let of_lock = locked.get(id);
        if id.0 == SHIPPED {
            main = component(id, "application", package, of_lock);
        } else {
            components.push(component(id, "library", package, of_lock));
        }
        let on: Vec<_> =
            dependencies(of_lock, packages).into_iter().map(|id| quoted(&purl(id))).collect();
        let id = quoted(&purl(id));
        edges.push(format!("{{\"ref\":{id},\"dependsOn\":[{}]}}", on.join(",")));
    }
    format!(
        "{{\n\"bomFormat\":\"CycloneDX\",\n\"specVersion\":\"1.5\",\n\"version\":1,\n\
         \"metadata\":{{\"component\":{main}}},\n\"components\":[\n{}\n],\n\
         \"dependencies\":[\n{}\n]\n}}\n",
        components.join(",\n"),
        edges.join(",\n"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "weir v0.1.0 (/src/crates/weir)\tMIT OR Apache-2.0\t\n\
                        one v1.2.3\tMIT/Apache-2.0\thttps://example.com/one\n\
                        two v2.0.0+dfsg (proc-macro)\tISC\t\n\
                        one v1.2.3\tMIT/Apache-2.0\thttps://example.com/one (*)\n";

    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"one\"\nversion = \"1.2.3\"\n\
                        source = \"registry\"\nchecksum = \"abc\"\ndependencies = [\n \"two\",\n \
                        \"only-for-tests\",\n]\n\n[[package]]\nname = \"one\"\n\
                        version = \"9.0.0\"\n\n\
                        [[package]]\nname = \"two\"\nversion = \"2.0.0+dfsg\"\n\n\
                        [[package]]\nname = \"weir\"\nversion = \"0.1.0\"\n\
                        dependencies = [\n \"one 1.2.3\",\n]\n";

    #[test]
    fn packages_come_once_with_what_is_known() {
        let text = document(&packages(TREE), &locked(LOCK));
        for part in [
            "\"metadata\":{\"component\":{\"type\":\"application\",\"bom-ref\":\
             \"pkg:cargo/weir@0.1.0\",",
            "{\"type\":\"library\",\"bom-ref\":\"pkg:cargo/one@1.2.3\",\"name\":\"one\",\
             \"version\":\"1.2.3\",\"purl\":\"pkg:cargo/one@1.2.3\",\
             \"licenses\":[{\"expression\":\"MIT OR Apache-2.0\"}],\
             \"hashes\":[{\"alg\":\"SHA-256\",\"content\":\"abc\"}],\"externalReferences\":\
             [{\"type\":\"vcs\",\"url\":\"https://example.com/one\"}]},\n",
            "{\"ref\":\"pkg:cargo/one@1.2.3\",\"dependsOn\":[\"pkg:cargo/two@2.0.0%2Bdfsg\"]}",
            "{\"ref\":\"pkg:cargo/weir@0.1.0\",\"dependsOn\":[\"pkg:cargo/one@1.2.3\"]}",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(text.matches("\"type\":\"library\"").count(), 2);
        assert!(!text.contains("9.0.0") && !text.contains("only-for-tests"));
    }

    #[test]
    fn text_is_quoted() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}
