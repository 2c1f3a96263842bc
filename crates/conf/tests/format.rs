//! The layout of whole configurations: the same tokens before and after, and nothing to do twice.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_conf::format::{format, same};
use weir_conf::tokens::Tokens;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "conf") {
            found.push(path);
        }
    }
}

/// The examples of the documentation and the shipped files; further folders are named by
/// `WEIR_TEST_CONFIGS`, separated by colons.
#[test]
fn whole_configurations_keep_their_tokens() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for folder in ["docs/examples", "conf", "packaging", "lab/bench"] {
        files(&root.join(folder), &mut found);
    }
    for folder in std::env::var("WEIR_TEST_CONFIGS").unwrap_or_default().split(':') {
        files(Path::new(folder), &mut found);
    }
    assert!(found.len() > 25, "{found:?}");
    for path in found {
        let old = Bytes::from(fs::read(&path).unwrap());
        // Templates of other programs may be no configuration before they are filled in.
        let Ok(tokens) = Tokens::new(&path, old.clone()) else { continue };
        let new = Bytes::from(format(&path, &old).unwrap());
        assert!(same(&tokens, &Tokens::new(&path, new.clone()).unwrap()), "{}", path.display());
        assert_eq!(format(&path, &new).unwrap(), new, "{}: not idempotent", path.display());
    }
}
