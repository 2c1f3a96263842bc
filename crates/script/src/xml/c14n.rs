//! Canonical XML 1.0 (<https://www.w3.org/TR/2001/REC-xml-c14n-20010315>) and Exclusive XML
//! Canonicalization 1.0 (<https://www.w3.org/TR/xml-exc-c14n/>) of an element with all that is
//! in it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};

use super::tree::{Element, Id, Kind, Name, Tree};

/// How a document is written.
#[derive(Clone, Debug, Default)]
pub struct Form {
    /// Only prefixes that are used are declared.
    pub exclusive: bool,
    /// Comments are written.
    pub comments: bool,
    /// Prefixes that are declared in an exclusive form, used or not; `#default` is the empty one.
    pub prefixes: Vec<String>,
    /// A node that is left out.
    pub excluding: Option<Id>,
}

/// Writes a node; `None` if `goes_on` says no. The output may be longer than the document by far,
/// because a namespace that is declared once there may have to be written for each element.
pub fn write(tree: &Tree, id: Id, form: &Form, goes_on: &GoesOn<'_>) -> Option<String> {
    let mut out = String::new();
    let apex = Apex(tree, form, id, goes_on);
    apex.node(id, &BTreeMap::new(), &mut out)?;
    Some(out)
}

/// Asked for each element: how many steps it takes, and how many bytes the output has.
type GoesOn<'a> = dyn Fn(usize, usize) -> bool + 'a;

struct Apex<'a>(&'a Tree, &'a Form, Id, &'a GoesOn<'a>);

/// Prefixes that the output has declared so far.
type Rendered<'a> = BTreeMap<&'a str, &'a str>;

impl<'a> Apex<'a> {
    fn node(&self, id: Id, rendered: &Rendered<'a>, out: &mut String) -> Option<()> {
        if self.1.excluding == Some(id) {
            return Some(());
        }
        match &self.0.nodes[id].kind {
            Kind::Element(element) => self.element(id, element, rendered, out)?,
            Kind::Text(text) => escape_text(text, out),
            Kind::Comment(text) if self.1.comments => out.push_str(&format!("<!--{text}-->")),
            Kind::Comment(_) => {}
            Kind::Instruction(target, data) if data.is_empty() => {
                out.push_str(&format!("<?{target}?>"));
            }
            Kind::Instruction(target, data) => out.push_str(&format!("<?{target} {data}?>")),
        }
        Some(())
    }

    fn element(
        &self,
        id: Id,
        element: &'a Element,
        rendered: &Rendered<'a>,
        out: &mut String,
    ) -> Option<()> {
        let scope = self.0.in_scope(id);
        let mut rendered = rendered.clone();
        // Prefixes of the elements above are gone through for each element.
        let steps = 1 + scope.len() + rendered.len() + element.attributes.len();
        (self.3)(steps, out.len()).then_some(())?;
        let name = element.name.written();
        out.push_str(&format!("<{name}"));
        for prefix in self.candidates(element, &scope, &rendered) {
            let uri = scope.get(prefix).copied().unwrap_or_default();
            if prefix == "xml" || rendered.get(prefix).copied().unwrap_or_default() == uri {
                continue;
            }
            rendered.insert(prefix, uri);
            match prefix {
                "" => out.push_str(" xmlns=\""),
                _ => out.push_str(&format!(" xmlns:{prefix}=\"")),
            }
            escape_attribute(uri, out);
            out.push('"');
        }
        let mut attributes: Vec<(&Name, &String)> =
            element.attributes.iter().map(|(name, value)| (name, value)).collect();
        if id == self.2 && !self.1.exclusive {
            self.inherited(id, &mut attributes);
        }
        let uri = |prefix: &str| match prefix {
            "" => "",
            "xml" => "http://www.w3.org/XML/1998/namespace",
            prefix => scope.get(prefix).copied().unwrap_or_default(),
        };
        // Most have one prefix, whose URI may be long.
        attributes.sort_by(|(a, _), (b, _)| {
            let spaces = match a.prefix == b.prefix {
                true => Ordering::Equal,
                false => uri(&a.prefix).cmp(uri(&b.prefix)),
            };
            spaces.then_with(|| a.local.cmp(&b.local))
        });
        for (name, value) in attributes {
            out.push_str(&format!(" {}=\"", name.written()));
            escape_attribute(value, out);
            out.push('"');
        }
        out.push('>');
        for child in &element.children {
            self.node(*child, &rendered, out)?;
        }
        out.push_str(&format!("</{name}>"));
        Some(())
    }

    /// The prefixes whose declarations may have to be written, in order.
    fn candidates(
        &self,
        element: &'a Element,
        scope: &BTreeMap<&'a str, &'a str>,
        rendered: &Rendered<'a>,
    ) -> Vec<&'a str> {
        let mut prefixes: Vec<&'a str> = Vec::new();
        if self.1.exclusive {
            let names = element.attributes.iter().map(|(name, _)| name.prefix.as_str());
            prefixes.extend(names.filter(|prefix| !prefix.is_empty()));
            prefixes.push(&element.name.prefix);
            let listed = self.1.prefixes.iter().map(|prefix| match prefix.as_str() {
                "#default" => "",
                prefix => prefix,
            });
            prefixes.extend(listed.filter_map(|prefix| scope.get_key_value(prefix)).map(|e| *e.0));
        } else {
            prefixes.extend(scope.keys().chain(rendered.keys()).copied().filter(|prefix| {
                // A prefix cannot be undeclared, only the empty one.
                prefix.is_empty() || scope.contains_key(prefix)
            }));
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        prefixes
    }

    /// Attributes `xml:…` of elements above the apex hold for it, too (section 2.4 of Canonical
    /// XML).
    fn inherited(&self, id: Id, attributes: &mut Vec<(&'a Name, &'a String)>) {
        let mut known: HashSet<&Name> = attributes.iter().map(|(name, _)| *name).collect();
        let mut at = self.0.nodes[id].parent;
        while let Some(id) = at {
            for (name, value) in self.0.element(id).map_or(&[][..], |element| &element.attributes) {
                if name.prefix == "xml" && known.insert(name) {
                    attributes.push((name, value));
                }
            }
            at = self.0.nodes[id].parent;
        }
    }
}

fn escape_text(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\r' => out.push_str("&#xD;"),
            _ => out.push(c),
        }
    }
}

fn escape_attribute(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '"' => out.push_str("&quot;"),
            '\t' => out.push_str("&#x9;"),
            '\n' => out.push_str("&#xA;"),
            '\r' => out.push_str("&#xD;"),
            _ => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::{Form, write};

    fn written(document: &str, form: &Form) -> String {
        let tree = parse(document.as_bytes(), 1000).unwrap();
        write(&tree, tree.root, form, &|_, _| true).unwrap()
    }

    #[test]
    fn start_and_end_tags_of_the_recommendation() {
        // Section 3.3 without its DOCTYPE.
        let document = "<doc>\n <e1   />\n <e3   name = \"elem3\"   id=\"elem3\"   />\n \
             <e5 a:attr=\"out\" b:attr=\"sorted\" attr2=\"all\" attr=\"I'm\"\n \
             xmlns:b=\"http://www.ietf.org\" xmlns:a=\"http://www.w3.org\"\n \
             xmlns=\"http://example.org\"/>\n <e6 xmlns=\"\" xmlns:a=\"http://www.w3.org\">\n \
             <e7 xmlns=\"http://www.ietf.org\">\n <e8 xmlns=\"\" xmlns:a=\"http://www.w3.org\">\n \
             <e9 xmlns=\"\" xmlns:a=\"http://www.ietf.org\"/></e8></e7></e6></doc>";
        let expected = "<doc>\n <e1></e1>\n <e3 id=\"elem3\" name=\"elem3\"></e3>\n \
             <e5 xmlns=\"http://example.org\" xmlns:a=\"http://www.w3.org\" \
             xmlns:b=\"http://www.ietf.org\" attr=\"I'm\" attr2=\"all\" b:attr=\"sorted\" \
             a:attr=\"out\"></e5>\n <e6 xmlns:a=\"http://www.w3.org\">\n \
             <e7 xmlns=\"http://www.ietf.org\">\n <e8 xmlns=\"\">\n \
             <e9 xmlns:a=\"http://www.ietf.org\"></e9></e8></e7></e6></doc>";
        assert_eq!(written(document, &Form::default()), expected);
    }

    #[test]
    fn exclusive_forms_declare_what_is_used() {
        let document = "<n0:local xmlns:n0=\"foo:bar\" xmlns:n3=\"ftp://example.org\">\
             <n1:elem2 xmlns:n1=\"http://example.net\" xml:lang=\"en\"><n3:stuff/></n1:elem2>\
             </n0:local>";
        let form = Form { exclusive: true, ..Form::default() };
        let expected = "<n0:local xmlns:n0=\"foo:bar\">\
             <n1:elem2 xmlns:n1=\"http://example.net\" xml:lang=\"en\">\
             <n3:stuff xmlns:n3=\"ftp://example.org\"></n3:stuff></n1:elem2></n0:local>";
        assert_eq!(written(document, &form), expected);
        let form = Form { prefixes: vec!["n3".into()], ..form };
        assert!(
            written(document, &form)
                .starts_with("<n0:local xmlns:n0=\"foo:bar\" xmlns:n3=\"ftp://example.org\">")
        );
    }

    #[test]
    fn output_ends_where_it_is_too_long() {
        let spaces = format!("<r xmlns:a='{}'>{}</r>", "u".repeat(1000), "<a:b/>".repeat(50));
        let tree = parse(spaces.as_bytes(), 1000).unwrap();
        let form = Form { exclusive: true, ..Form::default() };
        assert!(write(&tree, tree.root, &form, &|_, length| length < 60_000).is_some());
        assert_eq!(write(&tree, tree.root, &form, &|_, length| length < 10_000), None);
    }

    #[test]
    fn comments_are_an_option() {
        let form = Form { comments: true, ..Form::default() };
        assert_eq!(written("<a><!-- b --><?c d?></a>", &form), "<a><!-- b --><?c d?></a>");
        assert_eq!(written("<a><!-- b --></a>", &Form::default()), "<a></a>");
    }
}
