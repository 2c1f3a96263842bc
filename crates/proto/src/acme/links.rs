//! URLs of answers: Link fields (RFC 8288) and references that are relative.

/// The address that `reference` stands for in an answer from `url`. Schemes other than `http` and
/// `https` are refused.
pub fn resolve(url: &str, reference: &str) -> Option<String> {
    let is_url = |text: &str| text.starts_with("https://") || text.starts_with("http://");
    if reference.bytes().any(|b| b <= b' ' || b >= 0x7f) || !is_url(url) {
        return None;
    }
    if is_url(reference) {
        return Some(reference.to_owned());
    }
    let (scheme, rest) = url.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if let Some(rest) = reference.strip_prefix("//") {
        return Some(format!("{scheme}://{rest}"));
    }
    if reference.starts_with('/') {
        return Some(format!("{scheme}://{authority}{reference}"));
    }
    if reference.split(['/', '?', '#']).next().is_some_and(|first| first.contains(':')) {
        return None;
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let folder = path.rfind('/').map_or("", |at| &path[..at]);
    Some(format!("{scheme}://{authority}{folder}/{reference}"))
}

/// The targets of a relation in Link fields, as they stand there.
pub(super) fn targets<'a>(fields: &'a [String], relation: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for field in fields {
        let mut rest = field.as_str();
        while let Some((_, after)) = rest.split_once('<') {
            let Some((target, parameters)) = after.split_once('>') else { break };
            let end = end_of_link(parameters);
            if has_relation(&parameters[..end], relation) {
                found.push(target);
            }
            rest = &parameters[end..];
        }
    }
    found
}

/// The position of the comma behind a link's parameters; commas within quotes do not count.
fn end_of_link(parameters: &str) -> usize {
    let mut quoted = false;
    for (at, byte) in parameters.bytes().enumerate() {
        match byte {
            b'"' => quoted = !quoted,
            b',' if !quoted => return at,
            _ => {}
        }
    }
    parameters.len()
}

fn has_relation(parameters: &str, relation: &str) -> bool {
    parameters.split(';').any(|parameter| {
        let Some((name, value)) = parameter.split_once('=') else { return false };
        let value = value.trim().trim_matches('"');
        let mut relations = value.split_ascii_whitespace();
        name.trim().eq_ignore_ascii_case("rel")
            && relations.any(|one| one.eq_ignore_ascii_case(relation))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references() {
        let of = |reference| resolve("https://a.test:9/x/y?z", reference);
        for (reference, want) in [
            ("https://b.test/c", Some("https://b.test/c")),
            ("http://b.test", Some("http://b.test")),
            ("//b.test/c", Some("https://b.test/c")),
            ("/c", Some("https://a.test:9/c")),
            ("c?d=e:f", Some("https://a.test:9/x/c?d=e:f")),
            ("ftp://b.test", None),
            ("a b", None),
            ("a\r\nb", None),
        ] {
            assert_eq!(of(reference).as_deref(), want, "{reference}");
        }
        assert_eq!(resolve("https://a.test", "b").as_deref(), Some("https://a.test/b"));
        assert_eq!(resolve("file:///x", "b"), None);
    }

    #[test]
    fn links() {
        let fields = [
            "<https://a/dir>;rel=\"index\", <https://a/1>; title=\"x, y\"; rel=\"alternate up\""
                .to_owned(),
            "<https://a/2>;REL=alternate".to_owned(),
            "<https://a/3".to_owned(),
        ];
        assert_eq!(targets(&fields, "alternate"), ["https://a/1", "https://a/2"]);
        assert_eq!(targets(&fields, "index"), ["https://a/dir"]);
    }
}
