//! `map` blocks: a value by an exact text, a wildcard name or a regular expression.

use std::collections::HashMap;

use bytes::Bytes;

use crate::hostnames::HostTable;
use crate::pattern::{Pattern, PatternList};
use crate::template::Template;
use crate::{ConfError, Node, Word};

/// The engine's compiler for the parts of a block.
pub trait Compiler {
    /// A compiled regular expression.
    type Regex;

    /// Compiles a value.
    ///
    /// # Errors
    ///
    /// The template's.
    fn template(&mut self, word: &Word) -> Result<Template, ConfError>;

    /// Reads a pattern, a part of `word`, for a list.
    ///
    /// # Errors
    ///
    /// The pattern's.
    fn regex(
        &mut self,
        word: &Word,
        pattern: &[u8],
        caseless: bool,
    ) -> Result<Self::Regex, ConfError>;
}

/// A compiled block.
#[derive(Debug)]
pub struct Map<R> {
    names: HostTable<u32>,
    regexes: Vec<(R, u32)>,
    /// Which of `regexes` may match.
    list: PatternList,
    values: Vec<Template>,
    default: Template,
    /// `hostnames`: a dot at the end of the value does not count.
    hostnames: bool,
    /// `volatile`: the value is not cached.
    pub volatile: bool,
}

/// Texts up to this length are put in lower case without memory of their own.
const LOWER_MAX: usize = 128;

impl<R: AsRef<Pattern>> Map<R> {
    /// Compiles the block of `node`.
    ///
    /// # Errors
    ///
    /// The first line that is wrong, in nginx's words.
    pub fn parse(node: &Node, compiler: &mut impl Compiler<Regex = R>) -> Result<Self, ConfError> {
        let mut map = Map {
            names: HostTable::new(),
            regexes: Vec::new(),
            list: PatternList::default(),
            values: Vec::new(),
            default: Template::constant(Bytes::new()),
            hostnames: false,
            volatile: false,
        };
        let mut default = None;
        // Long tables have few values, and many lines for each.
        let mut known: HashMap<Bytes, u32> = HashMap::new();
        for line in node.entries() {
            let line = line?;
            match (line.name.bytes(), &line.args[..]) {
                (b"hostnames", []) => map.hostnames = true,
                (b"volatile", []) => map.volatile = true,
                (key, [value]) => {
                    let index = match known.get(value.bytes()) {
                        Some(index) => *index,
                        None => {
                            map.values.push(compiler.template(value)?);
                            let index = map.values.len() as u32 - 1;
                            known.insert(value.text.clone(), index);
                            index
                        }
                    };
                    if key == b"default" {
                        if default.replace(index).is_some() {
                            let m = "duplicate default map parameter";
                            return Err(ConfError::at(&line.name, m));
                        }
                    } else {
                        map.add(&line.name, index, compiler)?;
                    }
                }
                _ => {
                    let m = "invalid number of the map parameters";
                    return Err(ConfError::at(&line.name, m));
                }
            }
        }
        if let Some(value) = default.and_then(|index| map.values.get(index as usize)) {
            map.default = value.clone();
        }
        map.list = PatternList::new(map.regexes.iter().map(|(regex, _)| regex.as_ref()));
        Ok(map)
    }

    fn add(
        &mut self,
        word: &Word,
        value: u32,
        compiler: &mut impl Compiler<Regex = R>,
    ) -> Result<(), ConfError> {
        let key = word.bytes();
        if let Some(pattern) = key.strip_prefix(b"~") {
            let (pattern, caseless) = match pattern.strip_prefix(b"*") {
                Some(pattern) => (pattern, true),
                None => (pattern, false),
            };
            self.regexes.push((compiler.regex(word, pattern, caseless)?, value));
            return Ok(());
        }
        // The backslash makes a text of the special words.
        let key = key.strip_prefix(b"\\").unwrap_or(key);
        let added = if self.hostnames {
            self.names.add(key, value)
        } else {
            self.names.add_plain(key, value)
        };
        added.map_err(|why| why.at(word, key))
    }

    /// The value for `text`. `matches` says whether a regular expression does, and may take note of
    /// its groups for the value's sake; one that fails ends the search without a value but the
    /// default.
    pub fn find<E>(
        &self,
        text: &[u8],
        mut matches: impl FnMut(&R, &[u8]) -> Result<bool, E>,
    ) -> &Template {
        let text = match text {
            [name @ .., b'.'] if self.hostnames => name,
            text => text,
        };
        if let Some(value) = self.by_name(text) {
            return value;
        }
        if text.is_empty() {
            return &self.default;
        }
        let found = self.list.first(text, |index| {
            let (regex, value) = &self.regexes[index];
            match matches(regex, text) {
                Ok(false) => None,
                Ok(true) => Some(self.value(*value)),
                Err(_) => Some(&self.default),
            }
        });
        found.unwrap_or(&self.default)
    }

    fn value(&self, index: u32) -> &Template {
        self.values.get(index as usize).unwrap_or(&self.default)
    }

    fn by_name(&self, text: &[u8]) -> Option<&Template> {
        if self.names.is_empty() {
            return None;
        }
        let mut short = [0; LOWER_MAX];
        let found = match short.get_mut(..text.len()) {
            Some(lower) => {
                lower.copy_from_slice(text);
                lower.make_ascii_lowercase();
                self.names.find(lower)
            }
            None => self.names.find(&text.to_ascii_lowercase()),
        };
        found.map(|index| self.value(*index))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::parse::{Options, parse_bytes};
    use crate::pattern::GaveUp;
    use crate::template::{VarId, VarNames, VarSource};

    struct Plain;

    impl VarNames for Plain {
        fn var_id(&mut self, name: &[u8], _: &Word) -> Result<VarId, ConfError> {
            Ok(VarId(name.len() as u32))
        }

        fn capture_id(&mut self, group: u8) -> VarId {
            VarId(u32::from(group))
        }
    }

    impl VarSource for Plain {
        fn value(&mut self, id: VarId) -> Option<Bytes> {
            Some(Bytes::from(format!("<{}>", id.0)))
        }
    }

    impl Compiler for Plain {
        type Regex = Pattern;

        fn template(&mut self, word: &Word) -> Result<Template, ConfError> {
            Template::parse(word, self)
        }

        fn regex(&mut self, word: &Word, text: &[u8], any: bool) -> Result<Pattern, ConfError> {
            Pattern::for_list(word, text, any)
        }
    }

    fn parse(lines: &str) -> Result<Map<Pattern>, ConfError> {
        let text = format!("map $x $y {{ {lines} }}");
        let tree = parse_bytes(Path::new("t"), text.into(), &Options::default());
        let tree = tree.expect("a map's text");
        Map::parse(&tree.nodes[0], &mut Plain)
    }

    fn find(map: &Map<Pattern>, text: &str) -> String {
        let value = map.find(text.as_bytes(), |regex, text| regex.is_match(text)).eval(&mut Plain);
        String::from_utf8(value.to_vec()).unwrap()
    }

    #[test]
    fn texts_in_any_case() {
        let map = parse("default none; Foo a; \\default b; \\~x c; '' empty; \"a b\" d; *.x e;");
        let map = map.unwrap();
        for (text, want) in [
            ("foo", "a"),
            ("FOO", "a"),
            ("default", "b"),
            ("~X", "c"),
            ("", "empty"),
            ("a b", "d"),
            ("*.x", "e"),
            ("y.x", "none"),
            ("foo.", "none"),
            (&"z".repeat(LOWER_MAX + 1), "none"),
        ] {
            assert_eq!(find(&map, text), want, "{text}");
        }
        assert!(!map.volatile);
    }

    #[test]
    fn names_and_regular_expressions() {
        let map = parse(
            "volatile; hostnames; example.com exact; *.example.com head; example.* tail; \
             .dot.com dot; ~^(.)x value$1; ~*^WWW any; default $four;",
        );
        let map = map.unwrap();
        for (text, want) in [
            ("example.com", "exact"),
            ("example.com.", "exact"),
            ("a.EXAMPLE.com.", "head"),
            ("example.org", "tail"),
            ("dot.com", "dot"),
            ("a.dot.com", "dot"),
            ("axis", "value<1>"),
            ("www", "any"),
            ("wwWx", "any"),
            ("", "<4>"),
            (".", "<4>"),
        ] {
            assert_eq!(find(&map, text), want, "{text}");
        }
        assert!(map.volatile);
    }

    #[test]
    fn a_failing_expression_gives_the_default() {
        let map = parse("default d; ~a a; ~b b;").unwrap();
        let value = map.find(b"b", |_, _| Err::<bool, _>(GaveUp));
        assert_eq!(value.as_const().map(|v| &v[..]), Some(&b"d"[..]));
    }

    #[test]
    fn nothing_found_is_empty() {
        assert_eq!(find(&parse("a b;").unwrap(), "x"), "");
        assert_eq!(find(&parse("").unwrap(), ""), "");
    }

    #[test]
    fn what_is_wrong() {
        for (lines, message) in [
            ("a b c;", "invalid number of the map parameters"),
            ("a;", "invalid number of the map parameters"),
            ("default a; default b;", "duplicate default map parameter"),
            ("a b; A c;", "conflicting parameter \"A\""),
            ("hostnames; .a.b c; a.b d;", "conflicting parameter \"a.b\""),
            ("hostnames; a..b c;", "invalid hostname or wildcard \"a..b\""),
            ("~( a;", "regular expression \"(\" does not compile"),
            ("a $;", "invalid variable name"),
            ("a { b c; }", "unexpected \"{\""),
        ] {
            let error = parse(lines).unwrap_err();
            assert!(error.message.starts_with(message), "{lines}: {error}");
        }
        assert!(parse("a..b c; *a d;").is_ok(), "without hostnames any text will do");
    }
}
