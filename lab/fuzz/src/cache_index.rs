//! The index of a cache and its journal: reading ends for any file, and records that were read can
//! be written and are the same then.

use cache::index_format::{FileHeader, ReadStep, read};

/// Reads all there is; `last`: nothing comes behind it.
fn read_all(mut bytes: &[u8], last: bool) {
    loop {
        let taken = match read(bytes, last) {
            ReadStep::More => {
                assert!(!last || bytes.len() < 4);
                return;
            }
            ReadStep::Bad(len) => len,
            ReadStep::Record(record, len) => {
                let mut again = Vec::new();
                record.encode(&mut again);
                let ReadStep::Record(same, whole) = read(&again, true) else {
                    panic!("{record:?} cannot be read")
                };
                assert_eq!((same, whole), (record, again.len()));
                len
            }
        };
        assert!((1..=bytes.len()).contains(&taken));
        bytes = &bytes[taken..];
    }
}

/// Reads a file or journal of the index.
pub fn run(data: &[u8]) {
    if let Ok(header) = FileHeader::decode(data) {
        assert_eq!(FileHeader::decode(&header.encode()), Ok(header));
    }
    read_all(data, true);
    read_all(data, false);
}
