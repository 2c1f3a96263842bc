//! Circles of imports among a crate's top-level modules.
//!
//! Module `a` uses module `b` where a file of `a` (`a.rs` or `a/**`) names `crate::b`. A name that
//! `lib.rs` re-exports counts for the module that it comes from, an exported macro for the module
//! that defines it. Tests, comments and string literals do not count. Modules that reach one
//! another form a circle: none of them can be read, tested or moved without the others.

mod paths;

use std::collections::{BTreeMap, BTreeSet};

use crate::Findings;
use crate::rust_source::{Source, is_name_byte};
use crate::workspace::Workspace;

/// Modules in a crate's largest circle. Each protocol of `http` is one of its circle: a request
/// owns its channel, and a channel is a stream of some protocol.
const MODULES: usize = 9;

/// Crates whose largest circle is larger than that. A figure follows the truth down, and never up:
/// a circle that is smaller than its figure is a finding, too.
const RATCHET: &[(&str, usize)] = &[];

/// Prints the largest circle of each crate, or of those named, with the uses that make it.
pub fn run(ws: &Workspace, names: &[String]) -> Findings {
    let crates = crates(ws)?;
    for (name, circle) in &crates {
        if names.is_empty() || names.contains(name) {
            print!("{}", circle.text(name));
        }
    }
    judged(&crates, RATCHET)
}

/// The findings alone, for `cargo xtask ci`.
pub fn check(ws: &Workspace) -> Findings {
    judged(&crates(ws)?, RATCHET)
}

fn judged(crates: &[(String, Circle)], ratchet: &[(&str, usize)]) -> Findings {
    let mut findings = Vec::new();
    for (name, circle) in crates {
        let (size, listed) = (circle.modules.len(), ratchet.iter().find(|(n, _)| n == name));
        let limit = listed.map_or(MODULES, |&(_, size)| size);
        if size > limit {
            findings.push(format!(
                "{name}: a circle of {size} modules, allowed {limit}: `cargo xtask circles {name}` \
                 lists the uses that make it, the cheapest to cut first"
            ));
        } else if listed.is_some() && (size < limit || size <= MODULES) {
            findings.push(format!(
                "xtask/src/circles/mod.rs: the largest circle of {name} is down to {size} \
                 modules: lower its figure in RATCHET (none is needed up to {MODULES})"
            ));
        }
    }
    let gone = ratchet.iter().filter(|(listed, _)| !crates.iter().any(|(name, _)| name == listed));
    findings.extend(gone.map(|(name, _)| format!("RATCHET: there is no crate {name}")));
    if findings.is_empty() { Ok(()) } else { Err(findings) }
}

/// One file of a crate: its path for people, its module from the root, its text.
struct File {
    path: String,
    module: Vec<String>,
    source: Source,
}

/// Each crate with its largest circle, in the order of their folders.
fn crates(ws: &Workspace) -> Result<Vec<(String, Circle)>, Vec<String>> {
    let one = |e: String| vec![e];
    let files = ws.files().map_err(one)?;
    let mut found = Vec::new();
    for member in ws.members().map_err(one)? {
        let src = format!("{}/src/", member.dir);
        let mut of_crate = Vec::new();
        for path in files.iter().filter(|path| path.starts_with(&src) && path.ends_with(".rs")) {
            let module = module_of(&path[src.len()..]);
            let source = Source::new(&ws.read(path).map_err(one)?);
            of_crate.push(File { path: path.clone(), module, source });
        }
        if !of_crate.is_empty() {
            found.push((member.name, Circle::largest(&of_crate)));
        }
    }
    Ok(found)
}

/// `a/b.rs` and `a/b/mod.rs` are `["a", "b"]`; `lib.rs` and `main.rs` are the root.
fn module_of(below_src: &str) -> Vec<String> {
    let mut names: Vec<_> = below_src.trim_end_matches(".rs").split('/').collect();
    if matches!(names.as_slice(), ["lib" | "main"] | [_, .., "mod"]) {
        names.pop();
    }
    names.into_iter().map(str::to_string).collect()
}

/// The modules of a crate's largest circle, and which of them uses which.
#[derive(Default)]
struct Circle {
    modules: Vec<String>,
    uses: Vec<(Pair, Uses)>,
}

/// The module that uses, and the one that is used.
type Pair = (String, String);

/// Where and how often.
struct Uses {
    first: String,
    count: usize,
}

impl Circle {
    fn largest(files: &[File]) -> Self {
        let uses = uses(files);
        let mut arrows: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in uses.keys() {
            arrows.entry(from).or_default().insert(to);
        }
        let reached: BTreeMap<_, _> = arrows.keys().map(|&m| (m, reached(&arrows, m))).collect();
        let circle = |m: &str| -> Vec<String> {
            let back = |to: &&&str| reached.get(**to).is_some_and(|from| from.contains(m));
            reached[m].iter().filter(back).map(|s| s.to_string()).collect()
        };
        let mut modules = Vec::new();
        for m in reached.keys() {
            let one = circle(m);
            if one.len() > modules.len() {
                modules = one;
            }
        }
        let mut uses: Vec<_> = uses
            .into_iter()
            .filter(|((from, to), _)| modules.contains(from) && modules.contains(to))
            .collect();
        // The cheapest to cut first.
        uses.sort_by_key(|(_, uses)| uses.count);
        Self { modules, uses }
    }

    fn text(&self, name: &str) -> String {
        if self.modules.is_empty() {
            return format!("{name}: no circle\n");
        }
        let (size, list) = (self.modules.len(), self.modules.join(", "));
        let mut text = format!("{name}: largest circle {size} modules: {list}\n");
        for ((from, to), Uses { first, count }) in &self.uses {
            let more = if *count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            text.push_str(&format!("  {:<40} {first}{more}\n", format!("{from} -> {to}")));
        }
        text
    }
}

/// The modules that lie behind `from`, itself only where a way leads back.
fn reached<'a>(arrows: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
    while let Some(next) = todo.pop() {
        for &to in arrows.get(next).into_iter().flatten() {
            if seen.insert(to) {
                todo.push(to);
            }
        }
    }
    seen
}

/// All uses of one top-level module by another.
fn uses(files: &[File]) -> BTreeMap<Pair, Uses> {
    let tests = test_modules(files);
    let is_test = |file: &File| (1..=file.module.len()).any(|n| tests.contains(&file.module[..n]));
    let files: Vec<_> = files.iter().filter(|file| !is_test(file)).collect();
    let named: Vec<_> =
        files.iter().map(|file| (*file, paths::named(&file.source, &file.module))).collect();
    let mut modules: BTreeSet<_> =
        files.iter().filter_map(|file| file.module.first().cloned()).collect();
    for (_, named) in &named {
        modules.extend(named.iter().filter_map(|n| n.within.first().cloned()));
    }
    // Names at the root that are modules' own: re-exports, private imports, exported macros.
    let mut from_root: BTreeMap<String, String> = BTreeMap::new();
    for n in named.iter().flat_map(|(_, named)| named).filter(|n| n.within.is_empty()) {
        if let [module, .., name] = n.path.as_slice()
            && modules.contains(module)
        {
            from_root.insert(name.clone(), module.clone());
        }
    }
    for file in &files {
        for name in macros(&file.source) {
            from_root.extend(file.module.first().map(|module| (name, module.clone())));
        }
    }
    let mut found: BTreeMap<Pair, Uses> = BTreeMap::new();
    for (file, named) in &named {
        for n in named {
            let (Some(from), Some(first)) = (n.within.first(), n.path.first()) else { continue };
            let known = modules.get(first).or_else(|| from_root.get(first));
            let Some(to) = known.filter(|to| *to != from) else { continue };
            let uses = found.entry((from.clone(), to.clone())).or_insert_with(|| Uses {
                first: format!("{}:{} {}", file.path, n.line, n.path.join("::")),
                count: 0,
            });
            uses.count += 1;
        }
    }
    found
}

/// The modules that are compiled for tests alone.
fn test_modules(files: &[File]) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for file in files {
        for at in file.source.words("mod").filter(|&at| file.source.in_tests(at)) {
            let name = file.source.code[at + 3..].trim_start();
            let len = name.bytes().take_while(|&b| is_name_byte(b)).count();
            let own = std::iter::once(name[..len].to_string());
            found.insert(file.module.iter().cloned().chain(own).collect());
        }
    }
    found
}

/// The names of the macros that a file defines.
fn macros(source: &Source) -> Vec<String> {
    let names = source.words("macro_rules").filter(|&at| !source.in_tests(at)).map(|at| {
        let name = source.code[at..].trim_start_matches("macro_rules").trim_start_matches('!');
        name.trim_start().bytes().take_while(|&b| is_name_byte(b)).map(char::from).collect()
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::{Circle, File, Source, judged, module_of, uses};

    fn files(texts: &[(&str, &str)]) -> Vec<File> {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.to_string(),
            module: module_of(path),
            source: Source::new(text),
        };
        texts.iter().map(file).collect()
    }

    fn arrows(texts: &[(&str, &str)]) -> Vec<String> {
        let found = uses(&files(texts));
        found.into_iter().map(|((a, b), u)| format!("{a}->{b} {}", u.count)).collect()
    }

    fn circle(texts: &[(&str, &str)]) -> Circle {
        Circle::largest(&files(texts))
    }

    #[test]
    fn all_files_of_a_module_count() {
        let texts = [
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a/mod.rs", "mod deep;\nuse super::b::X;\n"),
            ("a/deep.rs", "fn f() { crate::b::g(); super::h(); }\n"),
            ("b.rs", "use crate::a::deep;\nuse crate::b::own;\n"),
        ];
        assert_eq!(arrows(&texts), ["a->b 2", "b->a 1"]);
    }

    #[test]
    fn reexports_and_macros_lead_to_their_modules() {
        let texts = [
            ("lib.rs", "pub use a::{X, deep::Y as Z};\npub mod shop { pub use crate::b::W; }\n"),
            ("a.rs", "macro_rules! inherit { () => {} }\n"),
            ("b.rs", "use crate::{X, deep};\n"),
            ("c.rs", "use crate::Y;\ncrate::inherit!();\n"),
        ];
        assert_eq!(arrows(&texts), ["b->a 1", "c->a 2", "shop->b 1"]);
    }

    #[test]
    fn modules_for_tests_do_not_count() {
        let texts = [
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a/mod.rs", "use crate::b;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod fake;\n"),
            ("a/tests.rs", "use crate::c;\n"),
            ("a/fake/deep.rs", "use crate::c;\n"),
            ("b.rs", "// crate::a\n#[cfg(test)]\nmod tests { use crate::a; }\n"),
            ("c.rs", ""),
        ];
        assert_eq!(arrows(&texts), ["a->b 1"]);
    }

    #[test]
    fn a_circle_is_what_leads_back() {
        let texts = [
            ("a.rs", "use crate::b;"),
            ("b.rs", "use crate::c;\nuse crate::out;"),
            ("c.rs", "use crate::a;\nuse crate::a::x;"),
            ("into.rs", "use crate::a;"),
            ("out.rs", "use crate::other;"),
            ("other.rs", "use crate::out;"),
        ];
        let found = circle(&texts);
        assert_eq!(found.modules, ["a", "b", "c"]);
        let text = found.text("x");
        assert!(text.contains("c.rs:1 a and 1 more"), "{text}");
        assert!(!text.contains("into"), "{text}");
        assert!(circle(&texts[3..5]).modules.is_empty());
    }

    #[test]
    fn figures_follow_the_truth_down_and_never_up() {
        let mut texts = Vec::new();
        let size = super::MODULES + 1;
        for i in 0..size {
            texts.push((format!("m{i}.rs"), format!("use crate::m{};", (i + 1) % size)));
        }
        let texts: Vec<_> = texts.iter().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        let large = [("x".to_string(), circle(&texts))];
        assert!(judged(&large, &[]).is_err());
        assert!(judged(&large, &[("x", size)]).is_ok());
        assert!(judged(&large, &[("x", size + 1)]).is_err());
        assert!(judged(&large, &[("x", size), ("gone", size)]).is_err());
        let two = [("a.rs", "use crate::b;"), ("b.rs", "use crate::a;")];
        let two = [("x".to_string(), circle(&two))];
        assert!(judged(&two, &[]).is_ok());
        assert!(judged(&two, &[("x", 2)]).is_err());
    }
}
