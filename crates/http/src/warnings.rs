//! Warnings of settings that do not do what they look like, found while compiling.
//!
//! Only certain faults are reported: a warning that is wrong once is not read again.

use std::rc::Rc;

use conf::{Word, warn};

use crate::core_conf::{CoreLoc, Root};
use crate::module::Pipeline;
use crate::server::location::{LocKind, Location};

/// A location that loses files to a regular expression beside it: it tests for extensions alone, so
/// it wins over the prefix, but has not the prefix's `root` or `alias`.
pub(crate) fn shadowed(around: &CoreLoc, locations: &[(Rc<Location>, Word)]) {
    for (regex, at) in locations {
        if !serves_files(regex)
            || !same_root(&regex.core, around)
            || !regex.regex.as_ref().is_some_and(|re| is_extension_test(re.text()))
        {
            continue;
        }
        let loser = locations.iter().map(|(l, _)| l).find(|l| {
            l.info.kind == LocKind::Prefix
                && serves_files(l)
                && !l.tree.has_regexes()
                && !same_root(&l.core, around)
        });
        if let Some(loser) = loser {
            let (regex, loser) = (&regex.info, &loser.info);
            warn(
                at,
                format_args!(
                    "location \"{regex}\" takes files from location \"{loser}\" but does not \
                     have its root: set the root for the server, or write \"location ^~ {loser}\""
                ),
            );
        }
    }
}

/// Blocks of `if` that lose the handler that their location runs before its content.
pub(crate) fn lost_in_ifs(pipeline: &Pipeline, ifs: &[(Rc<Location>, Word)]) {
    let Some(name) = pipeline.not_in_if else { return };
    for (block, at) in ifs {
        if block.pipeline.content_handler.is_none() {
            warn(
                at,
                format_args!(
                    "\"{name}\" of this location does not apply to requests that meet this \"if\""
                ),
            );
        }
    }
}

fn serves_files(l: &Location) -> bool {
    l.pipeline.content_handler.is_none()
        && l.pipeline.rewrite.is_empty()
        && l.pipeline.not_in_if.is_none()
}

fn same_root(a: &CoreLoc, b: &CoreLoc) -> bool {
    let path = |root: &Root| (root.alias, root.path.as_const().cloned());
    match (&a.root, &b.root) {
        (None, None) => true,
        // A path with variables is compared with nothing.
        (Some(a), Some(b)) => path(a) == path(b) || path(a).1.is_none() || path(b).1.is_none(),
        (Some(root), None) | (None, Some(root)) => path(root).1.is_none(),
    }
}

/// `\.(css|js)$` and its like: nothing but the end of a file's name is looked at.
fn is_extension_test(pattern: &[u8]) -> bool {
    let rest = [&b"^.+"[..], b"^.*", b".+", b".*"]
        .iter()
        .find_map(|any| pattern.strip_prefix(*any))
        .unwrap_or(pattern);
    let inside = rest.strip_prefix(b"\\.").and_then(|rest| rest.strip_suffix(b"$"));
    inside.is_some_and(|text| {
        !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || b"|()?:".contains(b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_for_extensions() {
        for yes in [r"\.php$", r"\.(css|js)$", r"\.(?:jpe?g|png)$", r".*\.html$", r"^.+\.(gif)$"] {
            assert!(is_extension_test(yes.as_bytes()), "{yes}");
        }
        for no in
            [r"^/a/.*\.php$", r"\.php", r"/\.git", r"\.$", r"\.(css|js)(\?|$)", "", r"\.ht.*$"]
        {
            assert!(!is_extension_test(no.as_bytes()), "{no}");
        }
    }
}
