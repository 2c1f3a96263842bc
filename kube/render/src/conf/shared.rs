//! Directives that locations have in common stand once, in `http`: with thousands of locations a
//! configuration is a third as long, and read in half the time. A location with all of the usual
//! ones has a mark in their place ([`Block::usual`]), and they are never made for it.
//!
//! Only what changes nothing moves: `proxy_…` directives that each location with `proxy_pass` has
//! itself, so that no other location begins to inherit them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Block, Item};

/// Directives by name: all lines of one, in their order.
struct Lines(BTreeMap<String, Vec<String>>);

/// The directives of a location without settings of its own, in their parts.
pub(crate) struct Usual(pub Vec<Block>);

impl Usual {
    /// Writes the lines of marks in their places.
    pub fn spell_out(&self, block: &mut Block) {
        let mut items = Vec::with_capacity(block.items.len());
        for mut item in block.items.drain(..) {
            match &mut item {
                Item::Usual { part, owner } => {
                    let lines = self.0[*part].items.iter().filter_map(Item::line);
                    let line = |text: &str| Item::Line { text: text.to_owned(), owner: *owner };
                    items.extend(lines.map(line));
                    continue;
                }
                Item::Block { body, .. } => self.spell_out(body),
                _ => {}
            }
            items.push(item);
        }
        block.items = items;
    }
}

/// Takes the directives of `usual` out of the locations of servers where they are the same, and
/// returns those that have to stand around the servers then.
pub(crate) fn share(servers: &mut [Block], usual: Usual) -> Block {
    let mut common = Lines(BTreeMap::new());
    for text in usual.0.iter().flat_map(|part| &part.items).filter_map(Item::line) {
        debug_assert!(text.starts_with("proxy_"));
        common.0.entry(name_of(text).to_owned()).or_default().push(text.to_owned());
    }
    // A snippet of a server may have locations of its own.
    if servers.iter().any(|server| server.items.iter().any(Item::is_raw)) {
        servers.iter_mut().for_each(|server| usual.spell_out(server));
        return Block::default();
    }
    let names_max = common.0.len();
    for location in servers.iter().flat_map(|s| &s.items).filter_map(Item::location) {
        if !location.has_all(&usual) && forwards(location) {
            let names: BTreeSet<&str> = location.names(&usual).collect();
            common.0.retain(|name, _| names.contains(name.as_str()));
        }
    }
    let is_whole = common.0.len() == names_max;
    for item in servers.iter_mut().flat_map(|server| &mut server.items) {
        match item {
            Item::Block { head, body, .. } if is_location(head) => {
                if is_whole && body.has_no_other_than(&usual, &common) {
                    body.items.retain(|item| !matches!(item, Item::Usual { .. }));
                } else {
                    usual.spell_out(body);
                    body.inherit(&common);
                }
            }
            Item::Block { body, .. } => usual.spell_out(body),
            _ => {}
        }
    }
    let mut around = Block::default();
    around.items.extend(usual.0.into_iter().flat_map(|part| part.items));
    around
        .items
        .retain(|item| item.line().is_some_and(|text| common.0.contains_key(name_of(text))));
    around
}

/// Whether requests of a location may go to a server by HTTP. A snippet may say so, too.
fn forwards(block: &Block) -> bool {
    block.items.iter().any(|item| match item {
        Item::Line { text, .. } => name_of(text) == "proxy_pass",
        Item::Block { body, .. } => forwards(body),
        Item::Raw { .. } => true,
        Item::Endpoints { .. } | Item::Usual { .. } => false,
    })
}

fn is_location(head: &str) -> bool {
    name_of(head) == "location"
}

fn name_of(line: &str) -> &str {
    line.split(' ').next().unwrap_or_default()
}

impl Item {
    fn line(&self) -> Option<&str> {
        match self {
            Item::Line { text, .. } => Some(text),
            _ => None,
        }
    }

    fn is_raw(&self) -> bool {
        matches!(self, Item::Raw { .. })
    }

    fn location(&self) -> Option<&Block> {
        match self {
            Item::Block { head, body, .. } if is_location(head) => Some(body),
            _ => None,
        }
    }
}

impl Block {
    /// The names of its directives, those of marks among them.
    fn names<'a>(&'a self, usual: &'a Usual) -> impl Iterator<Item = &'a str> {
        let lines = self.items.iter().flat_map(|item| match item {
            Item::Usual { part, .. } => &usual.0[*part].items[..],
            item => std::slice::from_ref(item),
        });
        lines.filter_map(Item::line).map(name_of)
    }

    /// Whether it has a mark of each part.
    fn has_all(&self, usual: &Usual) -> bool {
        let parts = self.items.iter().filter_map(|item| match item {
            Item::Usual { part, .. } => Some(*part),
            _ => None,
        });
        parts.eq(0..usual.0.len())
    }

    /// Whether the marks of all parts are all that it has of those names, and it has no snippet.
    fn has_no_other_than(&self, usual: &Usual, common: &Lines) -> bool {
        let is_other = |item: &Item| match item {
            Item::Line { text, .. } => {
                text.starts_with("proxy_") && common.0.contains_key(name_of(text))
            }
            item => item.is_raw(),
        };
        self.has_all(usual) && !self.items.iter().any(is_other)
    }

    /// Removes the directives that are the same outside: all of a name, in the same order, or none.
    /// A snippet may add directives of any name, which would end the inheritance; so nothing is
    /// removed beside one.
    fn inherit(&mut self, outer: &Lines) {
        if self.items.iter().any(Item::is_raw) {
            return;
        }
        let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for text in self.items.iter().filter_map(Item::line) {
            if let Some((name, _)) = outer.0.get_key_value(name_of(text)) {
                found.entry(name).or_default().push(text);
            }
        }
        found.retain(|name, lines| outer.0.get(*name).is_some_and(|all| all == lines));
        let names: BTreeSet<String> = found.into_keys().map(str::to_owned).collect();
        self.items.retain(|item| item.line().is_none_or(|text| !names.contains(name_of(text))));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{plain, write};
    use super::*;

    type Line = (&'static str, &'static str);

    fn block(lines: &[Line]) -> Block {
        let mut block = Block::default();
        lines.iter().for_each(|(name, word)| block.add(name, [*word]));
        block
    }

    /// What is left of the locations of a server, and what stands around it.
    fn shared(usual: &[Line], locations: Vec<Block>) -> (String, String) {
        let mut server = Block::default();
        for location in locations {
            server.block("location", [plain("/")], location);
        }
        let mut servers = [server];
        let around = share(&mut servers, Usual(vec![block(usual)]));
        let text = write(&servers[0]).text.replace("location / {\n", "").replace("}\n", "");
        (text.replace("    ", ""), write(&around).text)
    }

    const PASS: Line = ("proxy_pass", "u");
    const USUAL: [Line; 3] =
        [("proxy_a", "1"), ("proxy_set_header", "x"), ("proxy_set_header", "y")];

    #[test]
    fn what_is_the_same_everywhere_stands_once() {
        let one = [&USUAL[..], &[PASS]].concat();
        let other = [("proxy_a", "2"), USUAL[1], USUAL[2], PASS];
        let without = [("return", "404")];
        let (left, around) = shared(&USUAL, vec![block(&one), block(&other), block(&without)]);
        assert_eq!(left, "proxy_pass u;\nproxy_a 2;\nproxy_pass u;\nreturn 404;\n");
        assert_eq!(around, "proxy_a 1;\nproxy_set_header x;\nproxy_set_header y;\n");
    }

    #[test]
    fn what_a_location_lacks_is_not_given_to_it() {
        let one = [&USUAL[..], &[PASS]].concat();
        // A list of fields is its own, in whatever order.
        let internal = [("proxy_set_header", "y"), ("proxy_set_header", "x"), PASS];
        let (left, around) = shared(&USUAL, vec![block(&one), block(&internal)]);
        assert_eq!(around, "proxy_set_header x;\nproxy_set_header y;\n");
        let kept = "proxy_set_header y;\nproxy_set_header x;\nproxy_pass u;\n";
        assert_eq!(left, format!("proxy_a 1;\nproxy_pass u;\n{kept}"));
        // Also where a condition forwards, or a snippet may.
        let mut conditional = Block::default();
        conditional.if_set("x", block(&[PASS]));
        let mut with_snippet = block(&USUAL[..1]);
        with_snippet.raw("deny all;");
        let (left, around) = shared(&USUAL, vec![block(&one), with_snippet]);
        assert_eq!(around, "proxy_a 1;\n");
        assert!(left.ends_with("proxy_pass u;\nproxy_a 1;\ndeny all;\n"), "{left}");
        assert_eq!(shared(&USUAL, vec![block(&one), conditional]).1, "");
    }

    #[test]
    fn a_snippet_of_a_server_ends_it() {
        let mut server = Block::default();
        server.block("location", [plain("/")], block(&[USUAL[0], PASS]));
        server.raw("location /x { proxy_pass http://x; }");
        let before = write(&server).text;
        let mut servers = [server];
        assert!(share(&mut servers, Usual(vec![block(&USUAL)])).is_empty());
        assert_eq!(write(&servers[0]).text, before);
    }

    /// Locations with marks become what those with the lines become.
    #[test]
    fn marks_are_as_their_lines() {
        let parts = || Usual(vec![block(&USUAL[..1]), block(&USUAL[1..])]);
        let location = |with_marks: bool, between: &[Line], last: &[Line], snippet: &str| {
            let mut location = Block::default();
            for (part, more) in [between, last].into_iter().enumerate() {
                match with_marks {
                    true => location.usual(part),
                    false => location.extend(parts().0.remove(part)),
                }
                location.extend(block(more));
            }
            if !snippet.is_empty() {
                location.raw(snippet);
            }
            location
        };
        let other = block(&[("proxy_a", "2"), PASS]);
        type Case = (&'static [Line], &'static [Line], &'static str, Option<Block>);
        let cases: [Case; 5] = [
            (&[("set", "1")], &[PASS], "", None),
            (&[], &[("proxy_set_header", "z"), PASS], "", None),
            (&[PASS], &[], "deny all;", None),
            (&[("return", "404")], &[], "", Some(block(&[("return", "404")]))),
            (&[PASS], &[], "", Some(other)),
        ];
        for (between, last, snippet, more) in cases {
            let [marked, spelled] = [true, false].map(|with_marks| {
                let mut server = Block::default();
                server.block(
                    "location",
                    [plain("/")],
                    location(with_marks, between, last, snippet),
                );
                if let Some(more) = more.clone() {
                    server.block("location", [plain("/x")], more);
                }
                let mut servers = [server];
                let around = share(&mut servers, parts());
                (write(&around).text, write(&servers[0]).text)
            });
            assert_eq!(marked, spelled);
        }
    }
}
