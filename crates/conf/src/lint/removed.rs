//! The changes for directives that nginx has removed, where one form is certain.

use super::change;
use super::cx::{Cx, named};
use crate::edit::{Change, Edit};
use crate::{Node, Word};

/// Directives that only tuned something that is gone.
const WITHOUT_EFFECT: &[&str] = &["optimize_server_names", "open_file_cache_retest"];

/// The changes; none where the author has to decide.
pub(super) fn fix(cx: &Cx<'_>, n: &Node) -> Vec<Edit> {
    let is = |text: &str| n.args.first().is_some_and(|word| *word == *text);
    let name = n.name.lossy();
    match &*name {
        "ssl" if is("off") => change(&n.name, Change::RemoveStatement),
        "ssl" if is("on") => ssl_on(cx, n),
        "satisfy_any" if is("on") || is("off") => {
            let value = if is("on") { "any" } else { "all" };
            let mut fix = change(&n.name, Change::Replace("satisfy".to_owned()));
            let value = Change::Replace(value.to_owned());
            fix.extend(n.args.first().map(|word| Edit::new(word, value)));
            fix
        }
        name if name.starts_with("spdy_") || WITHOUT_EFFECT.contains(&name) => {
            change(&n.name, Change::RemoveStatement)
        }
        _ => Vec::new(),
    }
}

/// `ssl on` in a server: each of its addresses gets `ssl`.
fn ssl_on(cx: &Cx<'_>, n: &Node) -> Vec<Edit> {
    let server = cx.block().filter(|block| block.name == *"server");
    let listens = server.map_or(Vec::new(), |server| named(server.children(), "listen").collect());
    let first = |listen: &&Node| listen.args.first().map(|word| (*word).clone());
    let words: Vec<Word> = listens.iter().filter_map(first).collect();
    if words.is_empty() {
        return Vec::new();
    }
    let mut fix = change(&n.name, Change::RemoveStatement);
    for (listen, word) in listens.iter().zip(&words) {
        if !listen.args.iter().any(|arg| *arg == *"ssl" || *arg == *"quic") {
            fix.push(Edit::new(word, Change::AddWord("ssl".to_owned())));
        }
    }
    fix
}
