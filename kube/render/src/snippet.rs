//! Snippets: text of objects that becomes configuration as it is.
//!
//! Only the server can tell whether a snippet loads. What is checked here is that it stays within
//! the block that it is put into: its braces and quotes are balanced.

/// Checks that a snippet ends each directive and block that it begins, and begins those it ends.
///
/// # Errors
/// What is wrong.
pub fn check(text: &str) -> Result<(), String> {
    if text.contains("${env:") {
        return Err("a snippet must not read the environment (\"${env:\")".to_owned());
    }
    if text.contains('\0') {
        return Err("a snippet must not contain the byte 0".to_owned());
    }
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    // Whether a directive has begun that is not ended yet.
    let mut open = false;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'#' => at += bytes[at..].iter().take_while(|b| **b != b'\n').count(),
            b';' if open => open = false,
            b';' => return Err("an unexpected \";\"".to_owned()),
            b'{' if open => {
                open = false;
                depth += 1;
            }
            b'{' => return Err("an unexpected \"{\"".to_owned()),
            b'}' if open => return Err("\";\" is missing before \"}\"".to_owned()),
            b'}' => depth = depth.checked_sub(1).ok_or("an unexpected \"}\"")?,
            b'"' | b'\'' => {
                open = true;
                at = end_of_quoted(bytes, at, byte).ok_or("a quote that is not closed")?;
                let ended = |b: &u8| b" \t\r\n;{)".contains(b);
                if bytes.get(at).is_some_and(|b| !ended(b)) {
                    return Err("text right behind a quote".to_owned());
                }
            }
            _ => {
                open = true;
                at = end_of_bare(bytes, at - 1);
            }
        }
    }
    match (depth, open) {
        (0, false) => Ok(()),
        (0, true) => Err("\";\" is missing at the end".to_owned()),
        _ => Err("a \"{\" that is not closed".to_owned()),
    }
}

/// The position behind the closing quote.
fn end_of_quoted(bytes: &[u8], mut at: usize, quote: u8) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            b'\\' => at += 2,
            b if b == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
}

/// The position of the byte that ends a word without quotes. As in nginx, `${` does not end it.
fn end_of_bare(bytes: &[u8], mut at: usize) -> usize {
    let mut variable = false;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'{' if variable => {}
            b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{' => break,
            b'\\' => {
                variable = false;
                at += 1;
            }
            byte => variable = byte == b'$',
        }
        at += 1;
    }
    at.min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_snippets_pass() {
        for text in [
            "",
            "deny all;",
            "if ($a = \"}\") { return 403; } # }\nset $x '{';",
            "return 200 \"a;b\\\"c\";",
            "set $a ${b}c;",
            "rewrite ^/a{2}/ /b;",
        ] {
            // The last one is not quoted as it should be: `{` ends the word and opens a block.
            let good = !text.contains("a{2}");
            assert_eq!(check(text).is_ok(), good, "{text}: {:?}", check(text));
        }
    }

    #[test]
    fn what_leaves_its_block_is_refused() {
        for text in [
            "} server { listen 1;",
            "deny all",
            "deny all; }",
            "location / {",
            "return 200 \"x",
            "return 200 \"x\"y;",
            ";",
            "{ }",
            "set $a ${env:HOME};",
            "a \\",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }

    /// The parser of the server agrees about where blocks end.
    #[test]
    fn agrees_with_the_parser() {
        for text in [
            "deny all; # }",
            "a '\\'}' ;",
            "a ${x};",
            "a \\};",
            "b {c d;}",
            "a \"\\\\\";",
            "a ${{ b; }",
            "a ${{b;",
        ] {
            let whole = format!("outer {{\n{text}\n}}\nafter;\n");
            let options = weir_conf::parse::Options::default();
            let tree = weir_conf::parse::parse_bytes(
                std::path::Path::new("x"),
                bytes::Bytes::from(whole),
                &options,
            );
            let contained = tree.is_ok_and(|t| t.nodes.len() == 2 && t.nodes[1].name == *"after");
            assert_eq!(check(text).is_ok(), contained, "{text}");
        }
    }
}
