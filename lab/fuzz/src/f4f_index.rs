//! Adobe's HTTP Dynamic Streaming: indexes, and segments at the places that they name.

use mp4::hds::{Extent, Name, find};

/// The first two bytes are the request, the rest is an index and a segment in one. A fragment lies
/// in the file, and its end is found with few reads. A name that is written is read again.
pub fn run(data: &[u8]) {
    let Some((&[segment, fragment], file)) = data.split_first_chunk() else { return };
    let text = format!("filmSeg{segment}-Frag{fragment}");
    let name = Name::parse(text.as_bytes()).expect("a name");
    assert_eq!((name.segment, name.fragment), (segment.into(), fragment.into()));
    assert!(text[..text.len() - name.suffix_len].ends_with(&format!("Seg{segment}")));
    if let Some(name) = Name::parse(file) {
        assert!(name.suffix_len < file.len());
    }
    for start in [find(file, &name).ok().flatten(), Some(0)].into_iter().flatten() {
        let len = file.len() as u64;
        let Ok(mut extent) = Extent::new(start, len) else { continue };
        for reads in 0.. {
            assert!(reads < 16);
            let wanted = extent.wanted();
            assert!(wanted.start < wanted.end && wanted.end <= len);
            match extent.feed(&file[wanted.start as usize..wanted.end as usize]) {
                Ok(None) => {}
                Ok(Some(range)) => {
                    assert!(range.start == start && range.start < range.end && range.end <= len);
                    break;
                }
                Err(_) => break,
            }
        }
    }
}
