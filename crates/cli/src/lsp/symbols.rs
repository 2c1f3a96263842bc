//! The outline of a text: its blocks.

use serde_json::{Value, json};

use super::document::range;
use super::scan::{Scan, Statement};

/// Kinds of symbols (LSP, `SymbolKind`).
const MODULE: u8 = 2;
const NAMESPACE: u8 = 3;
const CLASS: u8 = 5;
const METHOD: u8 = 6;
const VARIABLE: u8 = 13;
const STRUCT: u8 = 23;

/// The blocks of a text, each with those inside.
pub(crate) fn outline(text: &str) -> Value {
    let scan = Scan::new(text);
    json!(children(text, &scan, None))
}

fn children(text: &str, scan: &Scan, parent: Option<usize>) -> Vec<Value> {
    let all = scan.statements.iter().enumerate();
    let blocks = all.filter(|(_, one)| one.parent == parent && one.is_block);
    let symbol = |(at, one): (usize, &Statement)| {
        let first = one.words.first()?;
        let end = one.end.max(first.end);
        Some(json!({
            "name": label(scan, at),
            "kind": kind(one.name()),
            "range": range(text, first.start, end),
            "selectionRange": range(text, first.start, first.end),
            "children": children(text, scan, Some(at)),
        }))
    };
    blocks.filter_map(symbol).collect()
}

/// A block by its name and arguments; a server by its names, or by its addresses.
fn label(scan: &Scan, at: usize) -> String {
    let block = &scan.statements[at];
    let texts = |one: &Statement| -> Vec<String> {
        one.words.iter().skip(1).map(|word| word.text.clone()).collect()
    };
    let mut words = texts(block);
    if block.name() == "server" && words.is_empty() {
        let inner = || scan.statements.iter().filter(|one| one.parent == Some(at));
        let of = |name: &'static str| inner().filter(move |one| one.name() == name);
        words = of("server_name").flat_map(texts).collect();
        if words.is_empty() {
            words = of("listen").filter_map(|one| texts(one).into_iter().next()).collect();
        }
    }
    [&[block.name().to_owned()], &words[..]].concat().join(" ")
}

fn kind(name: &str) -> u8 {
    match name {
        "http" | "stream" | "mail" | "events" => MODULE,
        "server" => NAMESPACE,
        "location" => METHOD,
        "upstream" => STRUCT,
        "map" | "geo" | "split_clients" | "num_map" => VARIABLE,
        _ => CLASS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_nested() {
        let text = "events {}\nhttp {\n server { server_name a b; listen 80; \
                    location /x { gzip on; } }\n\
                    server { listen 81; }\n map $a $b { x y; }\n upstream u {";
        let outline = outline(text);
        assert_eq!(outline[0]["name"], "events");
        let http = &outline[1]["children"];
        let names: Vec<_> = (0..4).map(|at| http[at]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["server a b", "server 81", "map $a $b", "upstream u"]);
        assert_eq!(http[0]["children"][0]["name"], "location /x");
        assert_eq!(http[0]["range"]["end"]["line"], 2);
        assert_eq!(http[0]["children"][0]["children"], json!([]));
    }
}
