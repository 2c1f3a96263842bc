//! Uses of a variable or an upstream group in all files of a configuration, and its renaming.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::rc::Rc;

use conf::tokens::{Kind, Tokens};
use conf::{ConfError, Node, SourceFile, Word};
use serde_json::{Map, Value, json};

use super::document::{Document, range};
use super::faults::place;
use super::project::View;
use super::scan::Scan;
use super::words::{Facts, defined, each, variable_at};

/// A name that has uses.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Name {
    /// A variable, without the dollar.
    Variable(String),
    /// An `upstream` group.
    Upstream(String),
}

impl Name {
    fn text(&self) -> &str {
        match self {
            Name::Variable(text) | Name::Upstream(text) => text,
        }
    }
}

/// Uses of a name: a file, and the bytes of the name in it.
type Uses = Vec<(Rc<Path>, usize, usize)>;

/// The places where the name at a place of a text is used, its definitions among them.
pub(crate) fn references(documents: &[Document], view: &View<'_>, offset: usize) -> Value {
    let Some(name) = name_at(view, offset) else { return Value::Null };
    let uses = uses(view, &name).unwrap_or_default();
    let one = |(file, start, end): &(Rc<Path>, usize, usize)| {
        let (uri, text) = place(file, documents, view);
        json!({"uri": uri, "range": range(&text, *start, *end)})
    };
    json!(uses.iter().map(one).collect::<Vec<_>>())
}

/// The reason why a name cannot be renamed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// No variable or upstream group is at the place.
    NoName,
    /// The place is next to a name, and not in it.
    NotHere,
    BuiltIn(String),
    /// The configuration does not define the variable.
    UnknownVariable(String),
    UnknownUpstream(String),
    /// The new name has characters that names cannot have.
    Malformed(String),
    /// Something else has the new name.
    Taken(String),
    /// A file cannot be read to its end.
    Unreadable(ConfError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoName => f.write_str("only variables and upstream groups can be renamed"),
            Refusal::NotHere => f.write_str("there is no name at this place"),
            Refusal::BuiltIn(name) => write!(f, "\"${name}\" is built in"),
            Refusal::UnknownVariable(name) => {
                write!(f, "\"${name}\" is not defined in this configuration")
            }
            Refusal::UnknownUpstream(name) => {
                write!(f, "there is no upstream \"{name}\" in this configuration")
            }
            Refusal::Malformed(name) => {
                write!(f, "\"{name}\" is no name: letters, digits and underscores make one")
            }
            Refusal::Taken(name) => write!(f, "\"{name}\" exists already"),
            Refusal::Unreadable(error) => error.fmt(f),
        }
    }
}

/// The name at a place, if it can be renamed: its range and its text.
///
/// # Errors
/// The reason why it cannot be renamed.
pub(crate) fn prepare(view: &View<'_>, facts: &Facts, offset: usize) -> Result<Value, Refusal> {
    let name = renameable(view, facts, offset)?;
    let own = uses(view, &name)?
        .into_iter()
        .find(|(file, start, end)| (*start..=*end).contains(&offset) && is_own(view, file));
    let (_, start, end) = own.ok_or(Refusal::NotHere)?;
    let text = &view.document.text;
    Ok(json!({"range": range(text, start, end), "placeholder": name.text()}))
}

/// The changes that give the name at a place another text.
///
/// # Errors
/// The reason why it cannot be renamed.
pub(crate) fn rename(
    documents: &[Document],
    view: &View<'_>,
    facts: &Facts,
    offset: usize,
    new: &str,
) -> Result<Value, Refusal> {
    let name = renameable(view, facts, offset)?;
    let new = match &name {
        Name::Variable(_) => new.strip_prefix('$').unwrap_or(new),
        Name::Upstream(_) => new,
    };
    check_new(view, facts, &name, new)?;
    let mut changes = Map::new();
    for (file, start, end) in uses(view, &name)? {
        let (uri, text) = place(&file, documents, view);
        let change = json!({"range": range(&text, start, end), "newText": new});
        match changes.get_mut(&uri).and_then(Value::as_array_mut) {
            Some(list) => list.push(change),
            None => {
                changes.insert(uri, json!([change]));
            }
        }
    }
    Ok(json!({"changes": changes}))
}

fn renameable(view: &View<'_>, facts: &Facts, offset: usize) -> Result<Name, Refusal> {
    let name = name_at(view, offset).ok_or(Refusal::NoName)?;
    match &name {
        Name::Variable(text) if is_built_in(facts, text) => Err(Refusal::BuiltIn(text.clone())),
        Name::Variable(text) if !variables(view).contains(text.as_str()) => {
            Err(Refusal::UnknownVariable(text.clone()))
        }
        Name::Upstream(text) if !upstreams(view).contains(text.as_str()) => {
            Err(Refusal::UnknownUpstream(text.clone()))
        }
        _ => Ok(name),
    }
}

fn check_new(view: &View<'_>, facts: &Facts, name: &Name, new: &str) -> Result<(), Refusal> {
    let fits = |byte: u8| match name {
        Name::Variable(_) => byte.is_ascii_alphanumeric() || byte == b'_',
        Name::Upstream(_) => byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'),
    };
    if new.is_empty() || !new.bytes().all(fits) {
        return Err(Refusal::Malformed(new.to_owned()));
    }
    let taken = match name {
        Name::Variable(_) => is_built_in(facts, new) || variables(view).contains(new),
        Name::Upstream(_) => upstreams(view).contains(new),
    };
    match taken && name.text() != new {
        true => Err(Refusal::Taken(new.to_owned())),
        false => Ok(()),
    }
}

fn is_built_in(facts: &Facts, name: &str) -> bool {
    let is_it = |known: &&str| *known == name || known.ends_with('_') && name.starts_with(*known);
    name.bytes().all(|byte| byte.is_ascii_digit()) || facts.variables.iter().any(is_it)
}

/// The variables that the configuration defines, by a directive or by a group of an expression.
fn variables(view: &View<'_>) -> HashSet<String> {
    let mut all = HashSet::new();
    each(&view.tree.nodes, &mut |node| {
        all.extend(defined(node).map(|word| word.lossy().trim_start_matches('$').to_owned()));
        for word in words(node) {
            let text = word.lossy().into_owned();
            let names = groups(&text).into_iter().filter_map(|(start, end)| text.get(start..end));
            all.extend(names.map(str::to_owned));
        }
        // The lines of geoip2 name variables.
        if node.name.bytes().starts_with(b"$") {
            all.insert(node.name.lossy().trim_start_matches('$').to_owned());
        }
    });
    all
}

fn upstreams(view: &View<'_>) -> HashSet<String> {
    let mut all = HashSet::new();
    each(&view.tree.nodes, &mut |node| {
        if node.name == *"upstream" && node.block.is_some() {
            all.extend(node.args.first().map(|word| word.lossy().into_owned()));
        }
    });
    all
}

fn words(node: &Node) -> impl Iterator<Item = &Word> {
    std::iter::once(&node.name).chain(&node.args)
}

/// The name at a place of the text.
fn name_at(view: &View<'_>, offset: usize) -> Option<Name> {
    let text = &view.document.text;
    let scan = Scan::new(text);
    let (at, word) = scan.word_at(offset)?;
    let statement = &scan.statements[at];
    let token = &statement.words[word];
    let raw = text.get(token.start..token.end)?;
    if let Some(name) = variable_at(raw, offset - token.start) {
        return Some(Name::Variable(name.to_owned()));
    }
    let inside = offset - token.start;
    let group = groups(raw).into_iter().find(|(start, end)| (*start..=*end).contains(&inside));
    if let Some((start, end)) = group {
        return Some(Name::Variable(raw.get(start..end)?.to_owned()));
    }
    let name = match statement.name() {
        "upstream" if word == 1 => token.text.clone(),
        name if name.ends_with("_pass") && word == 1 => host(&token.text).1.to_owned(),
        _ => upstreams(view).into_iter().find(|name| host(&token.text).1 == name)?,
    };
    Some(Name::Upstream(name)).filter(|name| !name.text().is_empty())
}

/// The names of groups in an expression: `(?<name>…)`, `(?P<name>…)`, `(?'name'…)`.
fn groups(text: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (open, close) in [("(?<", '>'), ("(?P<", '>'), ("(?'", '\'')] {
        for (at, _) in text.match_indices(open) {
            let start = at + open.len();
            let rest = text.get(start..).unwrap_or_default();
            let len = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            if let Some(len) = len.filter(|len| *len > 0 && rest[*len..].starts_with(close)) {
                found.push((start, start + len));
            }
        }
    }
    found.sort_unstable();
    found
}

/// The host in an address, and its first byte.
fn host(text: &str) -> (usize, &str) {
    let start = text.find("://").map_or(0, |at| at + 3);
    let rest = &text[start..];
    (start, &rest[..rest.find(['/', ':', '?', '$']).unwrap_or(rest.len())])
}

/// The uses of a name in all files, in the order of the files.
///
/// # Errors
/// A file cannot be read to its end.
fn uses(view: &View<'_>, name: &Name) -> Result<Uses, Refusal> {
    let mut found = Uses::new();
    let carriers = carriers(view);
    for source in own_sources(view) {
        let tokens = Tokens::new(&source.path, source.bytes.clone());
        let tokens = tokens.map_err(Refusal::Unreadable)?;
        let mut place = Place::default();
        for token in &tokens.list {
            let text = String::from_utf8_lossy(token.of(&tokens.text)).into_owned();
            match token.kind {
                Kind::Word => {
                    let ranges = match name {
                        Name::Variable(name) => of_variable(&text, name),
                        Name::Upstream(name) => place.of_upstream(&text, name, &carriers),
                    };
                    for (start, end) in ranges {
                        let here = (token.start + start, token.start + end);
                        found.push((source.path.clone(), here.0, here.1));
                    }
                    place.words.push(text);
                }
                Kind::Comment | Kind::Program => {}
                Kind::Open => place.blocks.push(std::mem::take(&mut place.words)),
                Kind::Semicolon => place.words.clear(),
                Kind::Close => {
                    place.blocks.pop();
                }
            }
        }
    }
    Ok(found)
}

/// The files of the configuration, or the text alone.
fn own_sources(view: &View<'_>) -> Vec<SourceFile> {
    if view.paths.is_some() {
        return view.tree.files.clone();
    }
    let path = view.document.path.as_deref().unwrap_or(Path::new(&view.document.uri));
    let bytes = bytes::Bytes::copy_from_slice(view.document.text.as_bytes());
    vec![SourceFile { path: path.into(), bytes }]
}

fn is_own(view: &View<'_>, file: &Path) -> bool {
    let own = view.document.identity();
    view.paths.is_none() || own.is_some() && super::document::identity(file) == own
}

fn of_variable(text: &str, name: &str) -> Vec<(usize, usize)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in text.match_indices('$') {
        let behind = &text[at + 1..];
        let (brace, rest) = match behind.strip_prefix('{') {
            Some(rest) => (1, rest),
            None => (0, behind),
        };
        if rest.starts_with(name) && !rest[name.len()..].starts_with(is_name) {
            let start = at + 1 + brace;
            found.push((start, start + name.len()));
        }
    }
    found.extend(groups(text).into_iter().filter(|(start, end)| &text[*start..*end] == name));
    found.sort_unstable();
    found
}

/// The variables whose values are names of servers: those in the host of a `*_pass` directive.
fn carriers(view: &View<'_>) -> HashSet<String> {
    let mut all = HashSet::new();
    each(&view.tree.nodes, &mut |node| {
        let first = node.args.first().filter(|_| node.name.bytes().ends_with(b"_pass"));
        let text = first.map(|word| word.lossy().into_owned()).unwrap_or_default();
        let rest = text.split_once("://").map_or(text.as_str(), |(_, rest)| rest);
        if let Some(name) = rest.strip_prefix('$') {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '{';
            let end = name.find(|c| !is_name(c)).unwrap_or(name.len());
            all.insert(name[..end].trim_start_matches('{').to_owned());
        }
    });
    all
}

/// The place of a word: the words before it in its statement, and those of the blocks around.
#[derive(Default)]
struct Place {
    words: Vec<String>,
    blocks: Vec<Vec<String>>,
}

impl Place {
    fn of_upstream(
        &self,
        raw: &str,
        name: &str,
        carriers: &HashSet<String>,
    ) -> Vec<(usize, usize)> {
        let quote = usize::from(raw.starts_with(['"', '\'']));
        let text = raw[quote..].trim_end_matches(['"', '\'']);
        let (start, host) = host(text);
        if host != name || !self.names_servers(carriers) {
            return Vec::new();
        }
        vec![(quote + start, quote + start + name.len())]
    }

    /// Whether a server can be named at this place.
    fn names_servers(&self, carriers: &HashSet<String>) -> bool {
        let is_carrier = |word: Option<&String>| {
            word.and_then(|word| word.strip_prefix('$')).is_some_and(|name| carriers.contains(name))
        };
        let first = self.words.first().map_or("", String::as_str);
        let of_block = self.blocks.last().and_then(|block| {
            let at = match block.first()?.as_str() {
                "map" | "split_clients" | "num_map" => 2,
                "geo" => block.len().checked_sub(1)?,
                _ => return None,
            };
            block.get(at)
        });
        match first {
            "upstream" => self.words.len() == 1,
            "set" => self.words.len() == 2 && is_carrier(self.words.get(1)),
            name if name.ends_with("_pass") => self.words.len() == 1,
            // The value of a line of a map.
            _ => self.words.len() == 1 && is_carrier(of_block),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_words() {
        assert_eq!(of_variable("$a${a}$ab(?<a>x)", "a"), [(1, 2), (4, 5), (12, 13)]);
        assert_eq!(groups("(?P<n>[)](?'m'x)(?<=b)"), [(4, 5), (12, 13)]);
        assert_eq!(
            (host("http://app/x"), host("app:80"), host("$x")),
            ((7, "app"), (0, "app"), (0, ""))
        );
    }
}
