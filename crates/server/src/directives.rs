//! The tables of directives, joined.

use std::collections::HashSet;
use std::sync::LazyLock;

use conf::reference::Entry;
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
    block("http", "The HTTP server's configuration."),
    block("stream", "The TCP and UDP proxy's configuration."),
    block("mail", "The mail proxy's configuration (IMAP, POP3, SMTP)."),
];

/// The directive that the parser itself handles.
static OF_PARSER: Directive<MainBlock> = Directive {
    name: "include",
    contexts: Contexts::ANY,
    args: Args::T1,
    default: "",
    doc: "Includes other configuration files; the path may have `*`, `?` and `[…]`.",
    set: |_, _| Ok(()),
};

/// The names of all directives.
pub fn names() -> HashSet<&'static str> {
    let own = main_block::DIRECTIVES.iter().chain(BLOCKS).map(|directive| directive.name);
    let events = events::DIRECTIVES.iter().map(|directive| directive.name);
    let engines = engines::directives().map(|(name, _)| name);
    own.chain(events).chain(engines).chain([OF_PARSER.name]).collect()
}

/// The facts of all directives, those of the outermost level first.
pub fn entries() -> Vec<Entry> {
    let mut all = Vec::new();
    for directive in main_block::DIRECTIVES.iter().chain(BLOCKS).chain([&OF_PARSER]) {
        all.push(Entry::new(directive, "main"));
    }
    all.extend(events::DIRECTIVES.iter().map(|directive| Entry::new(directive, "events")));
    engines::entries(&mut |entry| all.push(entry));
    all
}

/// A line for each directive, for `weir dump-directives`.
pub fn dump() -> String {
    entries().iter().map(|entry| format!("{}\n", entry.line())).collect()
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

    /// Each directive of the page is built in, or has the answer that the page gives.
    #[test]
    fn the_page_of_other_modules_is_true() {
        let page = include_str!("../../../docs/THIRD_PARTY.md");
        let (built_in, others) = page.split_once("\n- ").expect("it has a list");
        let quoted = |text: &'static str| text.split('`').skip(1).step_by(2);
        let all = names();
        let built_in = built_in.split("## Built in").nth(1).unwrap_or_default();
        let mut count = 0;
        for name in quoted(built_in).filter(|name| !name.contains(' ')) {
            assert!(all.contains(name), "{name} is not built in");
            count += 1;
        }
        for item in others.split("\n- ") {
            let (directives, answer) = item.split_once(" (").expect("a module");
            let answer = answer.split_whitespace().collect::<Vec<_>>().join(" ");
            for name in quoted(directives) {
                let module = conf::foreign::of_directive(name).expect(name);
                let told = format!("{}): {}", module.name, module.advice);
                assert_eq!(answer, told.split_whitespace().collect::<Vec<_>>().join(" "), "{name}");
                assert!(!all.contains(name), "{name} is built in");
                count += 1;
            }
        }
        assert!(count >= 40, "{count}");
    }
}
