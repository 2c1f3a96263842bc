//! The tables of directives, joined.

use std::collections::HashSet;
use std::sync::LazyLock;

use conf::table::{Args, Contexts, Directive, Table};

use crate::main_block::{self, MainBlock};
use crate::{engines, events};

/// The directives that the server applies itself: the outermost level and `events`.
pub static TABLE: LazyLock<Table<MainBlock>> = LazyLock::new(|| {
    let own = main_block::DIRECTIVES.iter().chain(events::DIRECTIVES).chain(BLOCKS);
    Table::new(own).with_elsewhere(engines::directives())
});

const fn block(name: &'static str, doc: &'static str) -> Directive<MainBlock> {
    Directive {
        name,
        contexts: Contexts::MAIN,
        args: Args::BLOCK.or(Args::NONE),
        default: "",
        doc,
        set: main_block::engine_block,
    }
}

/// The blocks of the engines, one for each of [`engines::ALL`].
static BLOCKS: &[Directive<MainBlock>] = &[
    block("http", "The web server's configuration."),
    block("stream", "The configuration of servers of TCP connections and UDP datagrams."),
];

/// The directive that the parser itself handles.
static OF_PARSER: Directive<MainBlock> = Directive {
    name: "include",
    contexts: Contexts::ANY,
    args: Args::T1,
    default: "",
    doc: "Reads the directives of other files here; `*`, `?` and `[…]` in the path stand for many.",
    set: |_, _| Ok(()),
};

/// The names of all directives.
pub fn names() -> HashSet<&'static str> {
    let own = main_block::DIRECTIVES.iter().chain(BLOCKS).map(|directive| directive.name);
    let events = events::DIRECTIVES.iter().map(|directive| directive.name);
    let engines = engines::directives().map(|(name, _)| name);
    own.chain(events).chain(engines).chain([OF_PARSER.name]).collect()
}

/// A line for each directive, for `weir dump-directives`.
pub fn dump() -> String {
    let mut text = String::new();
    let mut add = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    for directive in main_block::DIRECTIVES.iter().chain(BLOCKS).chain([&OF_PARSER]) {
        add(conf::reference::line(directive, "main"));
    }
    for directive in events::DIRECTIVES {
        add(conf::reference::line(directive, "events"));
    }
    engines::dump(&mut add);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_engine_has_its_block() {
        let blocks: Vec<_> = BLOCKS.iter().map(|b| b.name).collect();
        let engines: Vec<_> = engines::ALL.iter().map(|e| e.name).collect();
        assert_eq!(blocks, engines);
    }

    #[test]
    fn every_directive_is_dumped() {
        let dump = dump();
        assert!(dump.lines().all(|line| line.split('\t').count() == 6));
        for name in ["daemon", "worker_connections", "http", "include"] {
            assert!(dump.lines().any(|line| line.split('\t').next() == Some(name)), "{name}");
        }
    }
}
