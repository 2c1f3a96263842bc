//! Text as a configuration: read, applied to a table, and its errors shown.

use std::path::Path;

use bytes::Bytes;
use conf::parse::{Options, parse_bytes, parse_params};
use conf::table::{Args, Contexts, Directive, Table};
use conf::{ConfError, Node, Tree, value};

struct Seen {
    table: Table<Seen>,
    sendfile: Option<bool>,
}

const fn directive(
    name: &'static str,
    args: Args,
    set: fn(&mut Seen, &Node) -> Result<(), ConfError>,
) -> Directive<Seen> {
    Directive { name, contexts: Contexts::ANY, args, default: "", doc: "", set }
}

static DIRECTIVES: [Directive<Seen>; 3] = [
    directive("a", Args::ANY, |_, _| Ok(())),
    directive("b", Args::ANY.or(Args::BLOCK), |cx, node| {
        let table = Table::new(cx.table.directives().iter().copied());
        table.apply(cx, node.children(), Contexts::HTTP)
    }),
    directive("sendfile", Args::FLAG, |cx, node| value::set_flag(&mut cx.sendfile, node)),
];

/// Reads `data` in each way there is.
pub fn run(data: &[u8]) {
    let text = Bytes::copy_from_slice(data);
    // No file may be opened from here.
    let strict = Options { max_files: 0, max_block_depth: 20, ..Options::default() };
    let lenient = Options { keep_broken: true, ..strict.clone() };
    let name = Path::new("fuzz.conf");

    let read = parse_bytes(name, text.clone(), &strict);
    let kept = parse_bytes(name, text.clone(), &lenient).expect("faults are kept in the tree");
    match &read {
        Ok(tree) => {
            assert_eq!(words(&tree.nodes), words(&kept.nodes));
            reads_back(tree, &strict);
        }
        Err(error) => {
            assert!(is_broken(&kept.nodes), "{error}");
            check_error(error, &kept, data);
        }
    }
    for finding in conf::lint::check(&kept, true, None) {
        assert!(finding.pos.line as usize <= data.iter().filter(|&&b| b == b'\n').count() + 1);
    }
    let mut seen = Seen { table: Table::new(DIRECTIVES.iter()), sendfile: None };
    let table = Table::new(DIRECTIVES.iter());
    if let Err(error) = table.apply(&mut seen, &kept.nodes, Contexts::MAIN) {
        check_error(&error, &kept, data);
    }
    if let Ok(tree) = parse_params(data, &strict) {
        assert!(tree.nodes.iter().all(|node| node.block.is_none()));
    }
}

fn words(nodes: &[Node]) -> Vec<Bytes> {
    let mut all = Vec::new();
    for node in nodes {
        all.push(node.name.text.clone());
        all.extend(node.args.iter().map(|word| word.text.clone()));
        all.push(Bytes::from_static(if node.block.is_some() { b"{" } else { b";" }));
        all.extend(words(node.children()));
    }
    all
}

fn is_broken(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| node.broken.is_some() || is_broken(node.children()))
}

/// Writes a tree out with every word in quotes: read again, it is the same.
fn reads_back(tree: &Tree, options: &Options) {
    let mut text = Vec::new();
    write(&tree.nodes, &mut text);
    let again = parse_bytes(Path::new("again"), text.into(), options);
    match again {
        Ok(again) => assert_eq!(words(&tree.nodes), words(&again.nodes)),
        // Escaping can make a word too long.
        Err(error) => assert!(error.message.starts_with("too long parameter"), "{error}"),
    }
}

fn write(nodes: &[Node], text: &mut Vec<u8>) {
    for node in nodes {
        for word in std::iter::once(&node.name).chain(&node.args) {
            text.push(b'"');
            for &byte in word.bytes() {
                if matches!(byte, b'"' | b'\\') {
                    text.push(b'\\');
                }
                text.push(byte);
            }
            text.extend_from_slice(b"\" ");
        }
        match &node.block {
            Some(block) => {
                text.push(b'{');
                write(block, text);
                text.push(b'}');
            }
            None => text.push(b';'),
        }
    }
}

/// An error has a place inside the text, and can be shown without steering the terminal.
fn check_error(error: &ConfError, tree: &Tree, data: &[u8]) {
    let pos = error.pos.as_ref().expect("errors about text have a place");
    let lines = data.iter().filter(|byte| **byte == b'\n').count() + 1;
    assert!((1..=lines).contains(&(pos.line as usize)), "{error}");
    let shown = error.render_terminal(&tree.files);
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    let mut lines = shown.lines();
    // A tab is shown as four blanks.
    assert!(lines.next().is_some_and(|message| message.chars().count() <= 4 * 1100), "{shown:?}");
    assert!(lines.all(|line| line.chars().count() < 500), "{shown:?}");
}
