//! Reads documents with the library's parser.
//!
//! External entities are empty and never read; entities of the document itself are expanded within
//! the library's bounds.

use std::collections::HashSet;

use roxmltree::{Document, NodeType, ParsingOptions};

use super::tree::{DEPTH_MAX, Element, Kind, Name, Tree};

/// What was wrong, for a message.
#[derive(Debug)]
pub struct Wrong {
    pub message: String,
    pub line: u32,
    pub column: u32,
}

/// How many attributes an element may have: the library compares each with all before it.
const ATTRIBUTES_MAX: usize = 1024;

/// How much the declarations of prefixes may take: an element with some is given those of the
/// elements above it, each of which the library compares with all before it.
const DECLARATIONS_MAX: usize = 64 << 20;

/// Reads a document of at most so many nodes.
pub fn parse(bytes: &[u8], nodes_max: u32) -> Result<Tree, Wrong> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = String::from_utf8_lossy(bytes);
    let wrong = |message: &str| Wrong { message: message.to_owned(), line: 1, column: 1 };
    let (depth, attributes) = shape(&text);
    if depth > DEPTH_MAX {
        return Err(wrong("Excessive depth in document: 256"));
    }
    if attributes > ATTRIBUTES_MAX {
        return Err(wrong("Too many attributes: 1024"));
    }
    if declarations(&text, nodes_max) > DECLARATIONS_MAX {
        return Err(wrong("Too many declarations of prefixes"));
    }
    let text = without_external_entities(&text);
    let options = ParsingOptions { allow_dtd: true, nodes_limit: nodes_max, ..Default::default() };
    let document = Document::parse_with_options(&text, options).map_err(|e| {
        let at = e.pos();
        Wrong { message: e.to_string(), line: at.row, column: at.col }
    })?;
    let mut tree = Tree::default();
    // Expanded entities may nest elements, too.
    tree.root = convert(&mut tree, None, document.root_element(), &text, 1)
        .ok_or_else(|| wrong("Excessive depth in document: 256"))?;
    Ok(tree)
}

/// How deep tags of a text may be nested at most, and how many attributes one of them may have.
/// Tags in comments and in quoted text count as well: the attributes may come out too many, the
/// depth too large or too small. [`convert`] looks at the depth again.
fn shape(text: &str) -> (usize, usize) {
    let (mut depth, mut deepest, mut attributes) = (0usize, 0, 0);
    // No tag has a `<` in it, so that each byte is looked at once.
    for tag in text.as_bytes().split(|byte| *byte == b'<').skip(1) {
        match tag.first() {
            Some(b'/') => depth = depth.saturating_sub(1),
            Some(b'!' | b'?') | None => {}
            Some(_) => {
                let (end, values) = end_of(tag);
                attributes = attributes.max(values);
                deepest = deepest.max(depth + 1);
                // An empty element, `<a/>`, is no level for the elements after it.
                if !tag[..end].ends_with(b"/") {
                    depth += 1;
                }
            }
        }
    }
    (deepest, attributes)
}

/// Where a tag ends, from behind its `<` on, and how many quoted values it has.
fn end_of(tag: &[u8]) -> (usize, usize) {
    let (mut at, mut values) = (0, 0);
    while let Some(found) = memchr::memchr3(b'>', b'"', b'\'', &tag[at..]) {
        at += found;
        if tag[at] == b'>' {
            return (at, values);
        }
        let Some(length) = memchr::memchr(tag[at], &tag[at + 1..]) else { break };
        at += length + 2;
        values += 1;
    }
    (tag.len(), values)
}

/// How much the declarations of prefixes in a text may take at most.
fn declarations(text: &str, nodes_max: u32) -> usize {
    let (mut count, mut prefixes) = (0_usize, HashSet::new());
    for word in text.split_ascii_whitespace().filter(|word| word.starts_with("xmlns")) {
        prefixes.insert(word.split('=').next());
        count += 1;
    }
    // An entity may stand for elements, as often as the document has nodes.
    if text.contains("<!ENTITY") {
        count = count.max(nodes_max as usize);
    }
    count.saturating_mul(prefixes.len()).saturating_mul(prefixes.len())
}

/// Replaces the declarations of external entities in the DOCTYPE by those of empty ones.
fn without_external_entities(text: &str) -> String {
    let Some(doctype) = text.find("<!DOCTYPE") else { return text.to_owned() };
    let end = text[doctype..].find("]").map_or(text.len(), |end| doctype + end);
    let (head, rest) = text.split_at(doctype);
    let (declarations, rest) = rest.split_at(end - doctype);
    let mut out = head.to_owned();
    for (i, part) in declarations.split("<!ENTITY").enumerate() {
        if i == 0 {
            out.push_str(part);
            continue;
        }
        let mut words = part.split_ascii_whitespace();
        let (name, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        out.push_str("<!ENTITY");
        match part.find('>') {
            Some(end) if matches!(kind, "SYSTEM" | "PUBLIC") => {
                out.push_str(&format!(" {name} \"\""));
                out.push_str(&part[end..]);
            }
            _ => out.push_str(part),
        }
    }
    out.push_str(rest);
    out
}

fn convert(
    tree: &mut Tree,
    parent: Option<usize>,
    node: roxmltree::Node<'_, '_>,
    text: &str,
    depth: usize,
) -> Option<usize> {
    if depth > DEPTH_MAX {
        return None;
    }
    // A name as it is written begins behind the `<`.
    let written = |at: usize| {
        let rest = text.get(at..).unwrap_or_default();
        let ends = |c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>' | '=');
        &rest[..rest.find(ends).unwrap_or(rest.len())]
    };
    let above = node.parent().filter(roxmltree::Node::is_element);
    // Most declare none, and the lists of prefixes may be long.
    let declares = above.is_none_or(|above| !are_same(node.namespaces(), above.namespaces()));
    let spaces = node.namespaces().filter(|_| declares).filter(|space| {
        let before = above.and_then(|above| above.lookup_namespace_uri(space.name()));
        before != Some(space.uri()) && space.name() != Some("xml")
    });
    let spaces = spaces.map(|s| (s.name().unwrap_or_default().to_owned(), s.uri().to_owned()));
    let mut spaces: Vec<(String, String)> = spaces.collect();
    // `xmlns=""` takes the namespace of names without a prefix away.
    let has_default = |node: roxmltree::Node<'_, '_>| node.lookup_namespace_uri(None).is_some();
    if above.is_some_and(has_default) && !has_default(node) {
        spaces.push((String::new(), String::new()));
    }
    let attributes = node.attributes().map(|attribute| {
        let range = attribute.range_qname();
        let name = text.get(range).unwrap_or(attribute.name());
        (Name::of(name), attribute.value().to_owned())
    });
    let attributes = attributes.collect();
    let name = Name::of(written(node.range().start + 1));
    let element = Element { name, spaces, attributes, children: Vec::new() };
    let id = tree.add(parent, Kind::Element(element));
    let mut children = Vec::new();
    for child in node.children() {
        children.push(match child.node_type() {
            NodeType::Element => convert(tree, Some(id), child, text, depth + 1)?,
            NodeType::Text => {
                tree.add(Some(id), Kind::Text(child.text().unwrap_or_default().to_owned()))
            }
            NodeType::Comment => {
                tree.add(Some(id), Kind::Comment(child.text().unwrap_or_default().to_owned()))
            }
            NodeType::PI => {
                let (target, data) =
                    child.pi().map_or(("", ""), |pi| (pi.target, pi.value.unwrap_or_default()));
                tree.add(Some(id), Kind::Instruction(target.to_owned(), data.to_owned()))
            }
            NodeType::Root => continue,
        });
    }
    if let Some(element) = tree.element_mut(id) {
        element.children = children;
    }
    Some(id)
}

/// Whether two lists have the same declarations in the same order.
fn are_same<'a, 'input: 'a>(
    a: impl ExactSizeIterator<Item = &'a roxmltree::Namespace<'input>>,
    b: impl ExactSizeIterator<Item = &'a roxmltree::Namespace<'input>>,
) -> bool {
    a.len() == b.len() && a.zip(b).all(|(a, b)| std::ptr::eq(a, b))
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn text(document: &str) -> String {
        let tree = parse(document.as_bytes(), 1000).unwrap();
        tree.text(tree.root)
    }

    #[test]
    fn external_entities_are_empty_and_others_are_not() {
        let doctype = "<!DOCTYPE r [<!ENTITY a SYSTEM \"/etc/passwd\"> <!ENTITY b \"B\">]>";
        assert_eq!(text(&format!("{doctype}<r>&a;|&b;</r>")), "|B");
    }

    #[test]
    fn hostile_documents_are_errors() {
        let deep = format!("{}{}", "<a>".repeat(10_000), "</a>".repeat(10_000));
        assert!(parse(deep.as_bytes(), 100_000).unwrap_err().message.contains("depth"));
        let many = format!("<r>{}</r>", "<a/>".repeat(2000));
        assert!(parse(many.as_bytes(), 1000).is_err());
        assert!(parse(many.as_bytes(), 10_000).is_ok());
        let mut laughs = "<!DOCTYPE r [<!ENTITY l0 \"ha\">".to_owned();
        for i in 1..30 {
            laughs.push_str(&format!("<!ENTITY l{i} \"{}\">", format!("&l{};", i - 1).repeat(10)));
        }
        laughs.push_str("]><r>&l29;</r>");
        assert!(parse(laughs.as_bytes(), 100_000).is_err());
    }

    /// The work for each of these grew with the square of the length, and took many seconds.
    #[test]
    fn long_lists_are_errors() {
        let many = |count: usize, of: fn(usize) -> String| (0..count).map(of).collect::<String>();
        let attributes = format!("<r {}/>", many(100_000, |i| format!("a{i}='' ")));
        assert!(parse(attributes.as_bytes(), 100_000).unwrap_err().message.contains("attributes"));
        let spaces = many(1_000, |i| format!("xmlns:a{i}='u' "));
        let inside = "<a/>".repeat(10_000);
        let declared = format!("<r {spaces}>{inside}</r>");
        assert!(parse(declared.as_bytes(), 100_000).unwrap_err().message.contains("prefixes"));
        assert!(parse("<a".repeat(500_000).as_bytes(), 100_000).is_err());
        // What is usual stays right.
        let spaces = many(100, |i| format!("xmlns:a{i}='u' "));
        let inside = "<a xmlns='v' a1:b=''/>".repeat(1_000);
        let usual = parse(format!("<r {spaces}>{inside}</r>").as_bytes(), 100_000).unwrap();
        assert_eq!(usual.element(usual.root).unwrap().spaces.len(), 100);
        let first = usual.elements(usual.root, "a")[0];
        assert_eq!(usual.element(first).unwrap().spaces, [("".to_owned(), "v".to_owned())]);
    }

    #[test]
    fn errors_have_places() {
        let wrong = parse(b"<a>\n<b></a>", 100).unwrap_err();
        assert_eq!(wrong.line, 2);
    }
}
