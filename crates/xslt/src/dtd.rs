//! Document type declarations: entities, and what they say of attributes (XML 1.0, sections 2.8,
//! 3.3 and 4.2). Elements are not validated.

use std::collections::HashMap;
use std::sync::Arc;

/// How deep entities may refer to each other.
pub(crate) const DEPTH_MAX: usize = 40;

/// About the memory that a declaration takes besides its text, in bytes.
const DECLARATION_BYTES: usize = 128;

/// What an entity is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Entity {
    /// Its replacement text (section 4.5).
    Text(Arc<str>),
    /// The system identifier of an external one.
    External(Arc<str>),
    /// The system identifier of one that is no XML.
    Unparsed(Arc<str>),
}

/// How the value of an attribute is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// As it is.
    Cdata,
    /// As a name that identifies its element.
    Id,
    /// As words: white space at the ends goes, and more than one space inside.
    Words,
}

/// The declaration of an attribute.
#[derive(Clone, Debug)]
pub(crate) struct Attribute {
    pub(crate) name: Box<str>,
    pub(crate) kind: Kind,
    /// The value where an element lacks the attribute, as it is written.
    pub(crate) default: Option<Box<str>>,
}

/// What was declared.
#[derive(Clone, Default, Debug)]
pub(crate) struct Dtd {
    pub(crate) entities: HashMap<Box<str>, Entity>,
    parameters: HashMap<Box<str>, Entity>,
    attributes: HashMap<Box<str>, Vec<Attribute>>,
    /// Whether there may be declarations that nobody read: an external subset, or parameter
    /// entities. A reference to an entity that is not declared is no error then (section 4.1).
    pub(crate) is_partial: bool,
}

/// What is wrong, and where: the offset in the text.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Fault {
    pub(crate) message: String,
    pub(crate) at: usize,
}

/// Reads external parameter entities by their system identifiers; `None` where that is not wanted.
pub(crate) type Load<'a> = dyn Fn(&str) -> Option<String> + 'a;

impl Dtd {
    /// Reads a declaration that begins with `<!DOCTYPE`, and the external subset that it names
    /// where `load_subset` gives that; what they say, and the offset behind the declaration.
    /// Declarations may take so many bytes of memory.
    pub(crate) fn doctype(
        text: &str,
        load: &Load,
        load_subset: &Load,
        bytes_max: usize,
    ) -> Result<(Dtd, usize), Fault> {
        let mut reader = Reader::new(text, load, bytes_max);
        let mut scan = Scan { text, at: "<!DOCTYPE".len() };
        scan.space();
        scan.name()?;
        scan.space();
        let external = scan.external()?;
        scan.space();
        if scan.eat("[") {
            reader.declarations(&mut scan, true, 0)?;
            scan.space();
        }
        scan.expect(">")?;
        // Declarations of the internal subset come first, and bind.
        match external.map(|uri| (uri, load_subset(uri))) {
            Some((uri, Some(subset))) => {
                reader.spend(subset.len(), 0)?;
                let done = reader.declarations(&mut Scan { text: &subset, at: 0 }, false, 0);
                let inside = |fault: Fault| format!("{} in \"{uri}\"", fault.message);
                done.map_err(|fault| Fault { message: inside(fault), at: 0 })?;
            }
            Some((_, None)) => reader.dtd.is_partial = true,
            None => {}
        }
        Ok((reader.dtd, scan.at))
    }

    /// Reads declarations that stand by themselves in a file.
    pub(crate) fn external(text: &str, load: &Load, bytes_max: usize) -> Result<Dtd, Fault> {
        let mut reader = Reader::new(text, load, bytes_max);
        reader.declarations(&mut Scan { text, at: 0 }, false, 0)?;
        Ok(reader.dtd)
    }

    /// What is declared of the attributes of an element.
    pub(crate) fn attributes(&self, element: &str) -> &[Attribute] {
        self.attributes.get(element).map_or(&[], |all| all)
    }
}

/// Reads declarations.
struct Reader<'a> {
    dtd: Dtd,
    load: &'a Load<'a>,
    /// The bytes that declarations may take still.
    left: usize,
}

/// A place in a text.
struct Scan<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scan<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn fault<T>(&self, message: impl Into<String>) -> Result<T, Fault> {
        Err(Fault { message: message.into(), at: self.at })
    }

    /// Skips white space; whether there was any.
    fn space(&mut self) -> bool {
        let rest = self.rest();
        let behind = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        self.at += rest.len() - behind.len();
        rest.len() > behind.len()
    }

    /// Skips a text; whether it was there.
    fn eat(&mut self, text: &str) -> bool {
        let is_there = self.rest().starts_with(text);
        self.at += if is_there { text.len() } else { 0 };
        is_there
    }

    fn expect(&mut self, text: &str) -> Result<(), Fault> {
        if self.eat(text) {
            return Ok(());
        }
        self.fault(match self.rest().chars().next() {
            Some(c) => format!("expected '{text}', not {c:?}, in the document type declaration"),
            None => "the document type declaration has no end".to_owned(),
        })
    }

    /// What is before an end, which is skipped, too.
    fn until(&mut self, end: &str) -> Result<&'t str, Fault> {
        let rest = self.rest();
        let Some(len) = rest.find(end) else {
            return self.fault("the document type declaration has no end");
        };
        self.at += len + end.len();
        Ok(&rest[..len])
    }

    /// Characters of names; an error where there is none.
    fn name(&mut self) -> Result<&'t str, Fault> {
        let rest = self.rest();
        let len = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        if len == 0 {
            return self.fault("expected a name in the document type declaration");
        }
        self.at += len;
        Ok(&rest[..len])
    }

    /// A text in quotes.
    fn literal(&mut self) -> Result<&'t str, Fault> {
        for quote in ["\"", "'"] {
            if self.eat(quote) {
                return self.until(quote);
            }
        }
        self.fault("expected a text in quotes in the document type declaration")
    }

    /// An external identifier: its system identifier.
    fn external(&mut self) -> Result<Option<&'t str>, Fault> {
        if self.eat("PUBLIC") {
            self.space();
            self.literal()?;
        } else if !self.eat("SYSTEM") {
            return Ok(None);
        }
        self.space();
        self.literal().map(Some)
    }
}

impl<'a> Reader<'a> {
    fn new(text: &str, load: &'a Load<'a>, bytes_max: usize) -> Self {
        let left = bytes_max.saturating_sub(text.len());
        Reader { dtd: Dtd::default(), load, left }
    }

    fn spend(&mut self, bytes: usize, at: usize) -> Result<(), Fault> {
        let message = "the document type declaration needs more memory than it may have";
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| Fault { message: message.to_owned(), at })?;
        Ok(())
    }

    /// Declarations up to the text's end, or to `]`, which is skipped.
    fn declarations(&mut self, s: &mut Scan, is_subset: bool, depth: usize) -> Result<(), Fault> {
        loop {
            s.space();
            let at = s.at;
            if s.eat("<!--") {
                s.until("-->")?;
            } else if s.eat("<?") {
                s.until("?>")?;
            } else if s.eat("<!ENTITY") {
                self.entity(s, depth)?;
            } else if s.eat("<!ATTLIST") {
                self.attlist(s)?;
            } else if s.eat("<!ELEMENT") || s.eat("<!NOTATION") {
                while !s.eat(">") {
                    match s.rest().chars().next() {
                        Some('"' | '\'') => _ = s.literal()?,
                        Some(c) => s.at += c.len_utf8(),
                        None => s.expect(">")?,
                    }
                }
            } else if s.eat("%") {
                let name = s.name()?;
                s.expect(";")?;
                self.dtd.is_partial = true;
                let text = self.parameter(name, at, depth)?;
                let mut inner = Scan { text: &text, at: 0 };
                self.declarations(&mut inner, false, depth + 1).map_err(|e| Fault { at, ..e })?;
            } else if is_subset && s.eat("]") || !is_subset && s.rest().is_empty() {
                return Ok(());
            } else if s.rest().is_empty() {
                return s.expect("]");
            } else {
                let what: String = s.rest().chars().take(20).collect();
                return s.fault(format!("expected a declaration, not {what:?}"));
            }
        }
    }

    /// The text of a parameter entity; an empty one where it is not known.
    fn parameter(&mut self, name: &str, at: usize, depth: usize) -> Result<Arc<str>, Fault> {
        if depth >= DEPTH_MAX {
            let message = format!("the entity \"{name}\" refers to itself, or is nested too deep");
            return Err(Fault { message, at });
        }
        let text = match self.dtd.parameters.get(name) {
            Some(Entity::Text(text)) => text.clone(),
            Some(Entity::External(uri)) => (self.load)(uri).unwrap_or_default().into(),
            _ => Arc::default(),
        };
        self.spend(text.len() + 1, at)?;
        Ok(text)
    }

    /// `<!ENTITY`, behind it (section 4.2).
    fn entity(&mut self, s: &mut Scan, depth: usize) -> Result<(), Fault> {
        let at = s.at;
        s.space();
        let is_parameter = s.eat("%");
        if is_parameter && !s.space() {
            return s.fault("expected white space in the document type declaration");
        }
        let name = s.name()?;
        s.space();
        let entity = match s.external()? {
            None => Entity::Text(self.replacement(s, depth)?.into()),
            Some(uri) => {
                s.space();
                if s.eat("NDATA") {
                    s.space();
                    s.name()?;
                    Entity::Unparsed(uri.into())
                } else {
                    Entity::External(uri.into())
                }
            }
        };
        s.space();
        s.expect(">")?;
        let dtd = &mut self.dtd;
        let all = if is_parameter { &mut dtd.parameters } else { &mut dtd.entities };
        // The first declaration binds.
        all.entry(name.into()).or_insert(entity);
        self.spend(DECLARATION_BYTES + s.at - at, at)
    }

    /// The replacement text that an entity's value in quotes stands for: references to characters
    /// and parameter entities are replaced, others stay (section 4.4).
    fn replacement(&mut self, s: &mut Scan, depth: usize) -> Result<String, Fault> {
        let at = s.at;
        let literal = s.literal()?;
        let mut text = String::with_capacity(literal.len());
        let mut from = 0;
        while let Some(mark) = literal[from..].find(['&', '%']).map(|mark| from + mark) {
            text.push_str(&literal[from..mark]);
            let (is_parameter, behind) = (literal[mark..].starts_with('%'), &literal[mark + 1..]);
            let name = reference(behind);
            from = mark + 1 + name.map_or(0, |name| name.len() + 1);
            match (name, name.and_then(|name| name.strip_prefix('#'))) {
                (Some(name), None) if is_parameter => {
                    text.push_str(&self.parameter(name, at, depth)?);
                }
                (_, Some(number)) if !is_parameter => match character(number) {
                    Some(c) => text.push(c),
                    None => {
                        let message = format!("the reference \"&#{number};\" names no character");
                        return Err(Fault { message, at });
                    }
                },
                _ => text.push_str(&literal[mark..from]),
            }
        }
        text.push_str(&literal[from..]);
        Ok(text)
    }

    /// `<!ATTLIST`, behind it (section 3.3).
    fn attlist(&mut self, s: &mut Scan) -> Result<(), Fault> {
        s.space();
        let element = s.name()?;
        loop {
            s.space();
            let at = s.at;
            if s.eat(">") {
                return Ok(());
            }
            let name = s.name()?;
            s.space();
            let kind = attribute_kind(s)?;
            s.space();
            let is_fixed = s.eat("#FIXED") && s.space();
            let default = if !is_fixed && (s.eat("#REQUIRED") || s.eat("#IMPLIED")) {
                None
            } else {
                Some(s.literal()?.into())
            };
            // The number of those before counts: they are looked through.
            let before = self.dtd.attributes(element).len();
            self.spend(2 * DECLARATION_BYTES + element.len() + s.at - at + before, at)?;
            let all = self.dtd.attributes.entry(element.into()).or_default();
            // The first declaration binds.
            if !all.iter().any(|of| *of.name == *name) {
                all.push(Attribute { name: name.into(), kind, default });
            }
        }
    }
}

/// The type of an attribute (section 3.3.1).
fn attribute_kind(s: &mut Scan) -> Result<Kind, Fault> {
    let words = ["IDREFS", "IDREF", "ENTITIES", "ENTITY", "NMTOKENS", "NMTOKEN"];
    if s.eat("CDATA") {
        return Ok(Kind::Cdata);
    }
    if words.iter().any(|word| s.eat(word)) {
        return Ok(Kind::Words);
    }
    if s.eat("ID") {
        return Ok(Kind::Id);
    }
    if s.eat("NOTATION") {
        s.space();
    }
    s.expect("(")?;
    s.until(")")?;
    Ok(Kind::Words)
}

/// The character of a reference, without its `&#` and `;` (section 4.1).
pub(crate) fn character(number: &str) -> Option<char> {
    let (digits, radix) = match number.strip_prefix('x') {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let c = char::from_u32(u32::from_str_radix(digits, radix).ok()?)?;
    let is_allowed = !matches!(c, '\0'..' ' | '\u{fffe}' | '\u{ffff}');
    (is_allowed || matches!(c, '\t' | '\n' | '\r')).then_some(c)
}

/// The name of a reference, behind its `&` or `%`; with `#` that of a character.
pub(crate) fn reference(text: &str) -> Option<&str> {
    let len = text.find(|c| !is_name(c) && c != '#')?;
    (len > 0 && text[len..].starts_with(';')).then(|| &text[..len])
}

/// Whether names may have a character: names are compared here, and checked elsewhere.
pub(crate) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '-' | '.' | '\u{80}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    fn load(uri: &str) -> Option<String> {
        (uri == "there").then(|| "<!ENTITY loaded 'l'>".to_owned())
    }

    /// The entities of an internal subset, sorted.
    fn entities(subset: &str) -> Result<Vec<String>, String> {
        let text = format!("<!DOCTYPE a [{subset}]>");
        let (dtd, end) = Dtd::doctype(&text, &load, &|_| None, MAX).map_err(|e| e.message)?;
        assert_eq!(end, text.len());
        let show = |name: &str, entity: &Entity| match entity {
            Entity::Text(text) => format!("{name}={text}"),
            Entity::External(uri) => format!("{name}->{uri}"),
            Entity::Unparsed(uri) => format!("{name}:{uri}"),
        };
        let mut all: Vec<String> =
            dtd.entities.iter().map(|(name, entity)| show(name, entity)).collect();
        all.sort();
        Ok(all)
    }

    #[test]
    fn entities_are_read() {
        let cases: &[(&str, &[&str])] = &[
            ("<!ENTITY a 'x'> <!ENTITY b \"it's ]>\" >\n<!ENTITY a 'y'>", &["a=x", "b=it's ]>"]),
            ("<!ENTITY a '&#60;&#x26;&b;&amp;&'>", &["a=<&&b;&amp;&"]),
            ("<!ENTITY a SYSTEM 'u'><!ENTITY b PUBLIC '-//x' \"v\">", &["a->u", "b->v"]),
            ("<!NOTATION n SYSTEM '>'><!ENTITY a SYSTEM 'u' NDATA n>", &["a:u"]),
            ("<!-- <!ENTITY a 'x'> ]> --><?p ]> ?><!ELEMENT a (#PCDATA)>", &[]),
            ("<!ENTITY % p \"<!ENTITY a 'x'>\">%p; %q;", &["a=x"]),
            ("<!ENTITY % p 'in'><!ENTITY a '%p;side 100% %;'>", &["a=inside 100% %;"]),
            ("<!ENTITY % p SYSTEM 'there'><!ENTITY % q SYSTEM 'gone'>%p;%q;", &["loaded=l"]),
        ];
        for (subset, expected) in cases {
            assert_eq!(
                entities(subset).as_deref().map_err(Clone::clone),
                Ok(&expected.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..]),
                "{subset}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("<!ENTITY a 'x'", "expected '>', not ']'"),
            ("<!ENTITY a>", "expected a text in quotes"),
            ("<!ENTITY 'x'>", "expected a name"),
            ("<!ENTITY a '&#0;'>", "\"&#0;\" names no character"),
            ("<!ENTITY a '&#xD800;'>", "names no character"),
            ("<!ATTLIST a b (x|y>", "has no end"),
            ("<!ATTLIST a b STRING 'x'>", "expected '(', not 'S'"),
            ("text", "expected a declaration, not \"text]>\""),
            ("<!ENTITY % p '&#37;p;'>%p;", "refers to itself"),
            ("<!-- ", "has no end"),
            ("<![INCLUDE[]]>", "expected a declaration"),
        ];
        for (subset, message) in cases {
            let error = entities(subset).unwrap_err();
            assert!(error.contains(message), "{subset}: {error}");
        }
        let at = |text| Dtd::external(text, &load, MAX).map(drop).map_err(|e| e.at);
        assert_eq!(at("<!ENTITY a 'x'>\n<!ENTITY b>"), Err(26));
        assert_eq!(at("<!ENTITY a 'x'>\n ]"), Err(17));
        assert_eq!(at("<!ENTITY a 'x'>\n"), Ok(()));
    }

    #[test]
    fn attributes_are_read() {
        let text = "<!DOCTYPE a SYSTEM 'a.dtd' [
            <!ATTLIST a i ID #REQUIRED  d CDATA \"it's >\"  e (x|y) 'y'>
            <!ATTLIST a d CDATA 'later' n NOTATION (g|h) #IMPLIED f NMTOKENS #FIXED ' 1 '>
            <!ATTLIST b> ] ><a/>";
        let (dtd, end) = Dtd::doctype(text, &load, &|_| None, MAX).unwrap();
        assert_eq!((&text[end..], dtd.is_partial), ("<a/>", true));
        let all = dtd.attributes("a").iter();
        let all: Vec<_> = all.map(|a| (&*a.name, a.kind, a.default.as_deref())).collect();
        let expected = [
            ("i", Kind::Id, None),
            ("d", Kind::Cdata, Some("it's >")),
            ("e", Kind::Words, Some("y")),
            ("n", Kind::Words, None),
            ("f", Kind::Words, Some(" 1 ")),
        ];
        assert_eq!(all, expected);
        assert!(dtd.attributes("b").is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut subset = "<!ENTITY % a0 '0123456789'>".to_owned();
        for n in 1..30 {
            subset += &format!("<!ENTITY % a{n} '%a{0};%a{0};'>", n - 1);
        }
        assert!(entities(&subset).unwrap_err().contains("more memory"));
        let many: String = (0..10_000).map(|n| format!("<!ENTITY a{n} ''>")).collect();
        assert!(entities(&many).unwrap_err().contains("more memory"));
    }
}
