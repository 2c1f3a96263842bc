//! An archive of entries (POSIX ustar), owned by root and without times: the same files give the
//! same bytes.

use super::files::{Content, Entry};

const BLOCK: usize = 512;

/// Writes the archive. Folders above entries are added; the entries are sorted by path.
pub fn write(entries: &[Entry]) -> Result<Vec<u8>, String> {
    let mut all: Vec<(String, u32, u8, &[u8], &str)> = Vec::new();
    for entry in entries {
        let above = entry.path.match_indices('/').map(|(at, _)| &entry.path[..at]);
        for folder in above {
            all.push((format!("{folder}/"), 0o755, b'5', b"", ""));
        }
        let path = entry.path.clone();
        all.push(match &entry.content {
            Content::File(bytes) => (path, entry.mode, b'0', bytes, ""),
            Content::Folder => (path + "/", entry.mode, b'5', b"", ""),
            Content::Link(to) => (path, 0o777, b'2', b"", to),
        });
    }
    // Of a folder that is an entry and stands above others, the entry is kept: it has the mode.
    all.reverse();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.dedup_by(|a, b| {
        let same = a.0 == b.0;
        if same && a.1 != 0o755 {
            b.1 = a.1;
        }
        same
    });
    let mut out = Vec::new();
    for (path, mode, kind, bytes, link) in all {
        out.extend_from_slice(&header(&path, mode, kind, bytes.len(), link)?);
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    Ok(out)
}

fn header(path: &str, mode: u32, kind: u8, len: usize, link: &str) -> Result<[u8; BLOCK], String> {
    let mut block = [0; BLOCK];
    if path.len() > 100 || link.len() > 100 {
        return Err(format!("{path}: too long for an archive"));
    }
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path.as_bytes());
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{len:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    // The sum counts its own field as spaces.
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    put(265, b"root");
    put(297, b"root");
    let sum: u32 = block.iter().map(|&b| u32::from(b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_its_folders_first() {
        let mut closed = Entry::folder("a/c");
        closed.mode = 0o700;
        let entries = [Entry::file("a/b", "xy"), Entry::file("a/c/d", ""), closed];
        let tar = write(&entries).unwrap_or_default();
        let name = |at: usize| {
            let block = &tar[at * BLOCK..];
            let end = block.iter().position(|&b| b == 0).unwrap_or(0);
            String::from_utf8_lossy(&block[..end]).into_owned()
        };
        assert_eq!([name(0), name(1), name(3), name(4)], ["a/", "a/b", "a/c/", "a/c/d"]);
        assert_eq!(&tar[3 * BLOCK + 100..3 * BLOCK + 107], b"0000700");
        assert_eq!((&tar[2 * BLOCK..2 * BLOCK + 2], tar.len() % BLOCK), (&b"xy"[..], 0));
        assert!(write(&[Entry::file(&"x".repeat(101), "")]).is_err());
    }
}
