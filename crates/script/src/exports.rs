//! `export default` before what it names.
//!
//! ```javascript
//! export default { login };
//! const login = handle.bind(null, 'login');
//! ```
//!
//! In the language this throws when the module is evaluated, because `login` has no value yet.
//! njs's own engine exports at the module's end, and modules that were written for it rely on that.
//! So the statement is moved there, but only where it would throw: a module that works is left
//! alone.

/// The text with its `export default { … }` at the end, if that names something that is declared
/// below it. Other statements stay at their lines and columns.
pub(crate) fn moved_to_end(text: &str) -> Option<String> {
    let mut starts = line_starts(text).filter(|at| text[*at..].starts_with(EXPORT));
    let start = starts.next()?;
    if starts.next().is_some() {
        return None;
    }
    let mut rest = Rest { text, at: start + EXPORT.len() };
    let members = rest.members()?;
    let end = rest.at;
    if !members.iter().any(|(_, value)| is_declared_in(&text[end..], value)) {
        return None;
    }
    let mut moved = text[..start].to_owned();
    // Columns are counted in characters.
    moved.extend(text[start..end].chars().map(|c| if c == '\n' { c } else { ' ' }));
    moved.push_str(&text[end..]);
    moved.push_str("\nexport default { ");
    for (name, value) in members {
        moved.push_str(&format!("{name}: {value}, "));
    }
    moved.push_str("};\n");
    Some(moved)
}

const EXPORT: &str = "export default";

fn line_starts(text: &str) -> impl Iterator<Item = usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Whether a line begins with the declaration of a name that has no value before it.
fn is_declared_in(text: &str, name: &str) -> bool {
    line_starts(text).any(|at| {
        let line = &text[at..];
        let rest = ["const ", "let ", "class "].iter().find_map(|word| line.strip_prefix(word));
        let rest = rest.and_then(|rest| rest.trim_start().strip_prefix(name));
        rest.is_some_and(|rest| !rest.starts_with(is_name))
    })
}

/// The text that is not read yet.
struct Rest<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Rest<'a> {
    /// Names and values of an object that has nothing but names, up to the statement's end.
    fn members(&mut self) -> Option<Vec<(&'a str, &'a str)>> {
        self.take("{").then_some(())?;
        let mut members = Vec::new();
        while !self.take("}") {
            let name = self.name()?;
            let value = if self.take(":") { self.name()? } else { name };
            members.push((name, value));
            if !self.take(",") {
                self.take("}").then_some(())?;
                break;
            }
        }
        // Without a semicolon, only the end of the line ends the statement for sure.
        let end = self.at;
        if !self.take(";") {
            self.at = end;
            let line = self.text[end..].lines().next().unwrap_or_default();
            line.trim().is_empty().then_some(())?;
        }
        Some(members)
    }

    fn name(&mut self) -> Option<&'a str> {
        self.skip();
        let rest = &self.text[self.at..];
        let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
        self.at += name.len();
        (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(name)
    }

    fn take(&mut self, what: &str) -> bool {
        self.skip();
        let is_there = self.text[self.at..].starts_with(what);
        if is_there {
            self.at += what.len();
        }
        is_there
    }

    /// Skips spaces and comments.
    fn skip(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let spaces = rest.len() - rest.trim_start().len();
            let rest = &rest[spaces..];
            let comment = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |at| at + 2)
            } else {
                0
            };
            self.at += spaces + comment;
            if comment == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::moved_to_end;

    #[test]
    fn exports_of_later_constants_go_to_the_end() {
        let text =
            "export default {\n    a, // the first\n    b: c\n};\nconst a = 1;\nfunction c() {}\n";
        let blank = "                \n                   \n        \n  ";
        let rest = "\nconst a = 1;\nfunction c() {}\n";
        let moved = format!("{blank}{rest}\nexport default {{ a: a, b: c, }};\n");
        assert_eq!(moved_to_end(text).unwrap(), moved);
        for text in [
            "export default { a }\nlet a = 1",
            "// é\nexport default {a};class a {}\nclass a {}",
            "export default{a,};\n\nconst a = f;",
        ] {
            assert!(moved_to_end(text).is_some(), "{text}");
        }
    }

    #[test]
    fn modules_that_work_are_left_alone() {
        for text in [
            "export default { a };\nfunction a() {}\nasync function b() {}",
            "const a = 1;\nexport default { a };",
            "export default { a };\n    const a = 1;",
            "export default { a };\nconst ab = 1;",
            "export default { a: 1 };\nconst a = 1;",
            "export default { a() {} };\nconst a = 1;",
            "export default { a } + 1;\nconst a = 1;",
            "export default { a }\n.b;\nfunction a() {}",
            "export default a;\nconst a = 1;",
            "export default { a };\nexport default { a };\nconst a = 1;",
            "export default { a",
            "export default {",
            "export default",
            "",
        ] {
            assert_eq!(moved_to_end(text), None, "{text}");
        }
    }
}
