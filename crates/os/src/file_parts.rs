//! Reads of a file in parts with gaps between them, as the payloads of frames, by one call.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// Parts of one call at most: so many iovecs the kernel takes without an allocation.
const PARTS_MAX: usize = 8;

/// The shape of what is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Zeros before each part, bytes.
    pub gap: usize,
    /// The length of all parts but the last one, bytes; not 0.
    pub part: usize,
    /// Bytes of the file in all of them.
    pub len: usize,
}

impl Parts {
    /// One part without a gap: `len` bytes, appended to memory that nobody has to fill before.
    pub fn whole(len: usize) -> Parts {
        Parts { gap: 0, part: len.max(1), len }
    }

    /// Bytes that the parts take with their gaps.
    pub fn room(&self) -> usize {
        self.len + self.gap * self.len.div_ceil(self.part)
    }
}

/// Appends bytes of a file from `pos` on to `out`, in parts, as far as there is room without moving
/// anything, and no more than one call reads; returns their number without the gaps, where 0 is the
/// end of the file. With `cached`, from the page cache alone: see [`crate::file::read_cached_at`].
pub fn append_parts(
    fd: impl AsFd,
    out: &mut Vec<u8>,
    parts: Parts,
    pos: u64,
    cached: bool,
) -> io::Result<usize> {
    let Parts { gap, part, mut len } = parts;
    let before = out.len();
    let mut slices = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
    let mut count = 0;
    let mut room = out.spare_capacity_mut();
    for slice in &mut slices {
        let want = len.min(part).min(room.len().saturating_sub(gap));
        if want == 0 {
            break;
        }
        let (head, behind) = room.split_at_mut(gap);
        head.fill(MaybeUninit::new(0));
        let (payload, behind) = behind.split_at_mut(want);
        *slice = libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: want };
        (room, len, count) = (behind, len - want, count + 1);
    }
    let flags = if cached { libc::RWF_NOWAIT } else { 0 };
    // SAFETY: the first `count` slices are parts of the vector's spare capacity that do not
    // overlap; the vector is borrowed until the call returns.
    let read = unsafe {
        libc::syscall(
            libc::SYS_preadv2,
            fd.as_fd().as_raw_fd(),
            slices.as_ptr(),
            count,
            pos as libc::c_long,
            // The upper half of the position, where a long has half of it.
            (pos >> 32) as libc::c_long,
            flags,
        )
    };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has filled the first `read` bytes of the slices, in order, and the gaps
    // before them were filled above; all of it lies within the capacity.
    unsafe { out.set_len(before + read + gap * read.div_ceil(part)) };
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_behind_gaps() {
        let path = std::env::temp_dir().join(format!("weir-os-parts-{}", std::process::id()));
        std::fs::write(&path, b"abcdefghij").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let read = |room: usize, len: usize, pos: u64| {
            let mut out = Vec::with_capacity(room + 1);
            out.push(b'>');
            // Another allocator might give more.
            assert_eq!(out.capacity(), room + 1);
            let parts = Parts { gap: 2, part: 4, len };
            let n = append_parts(&file, &mut out, parts, pos, false).unwrap();
            (n, out)
        };
        assert_eq!(read(99, 9, 0), (9, b">\0\0abcd\0\0efgh\0\0i".to_vec()));
        assert_eq!(read(99, 99, 3), (7, b">\0\0defg\0\0hij".to_vec()), "the file ends");
        assert_eq!(read(99, 9, 10), (0, b">".to_vec()));
        assert_eq!(read(9, 10, 0), (5, b">\0\0abcd\0\0e".to_vec()), "no room for more");
        assert_eq!(read(8, 10, 0), (4, b">\0\0abcd".to_vec()), "a gap alone is no part");
        assert_eq!(Parts { gap: 2, part: 4, len: 9 }.room(), 15);
        let whole = |len: usize, pos: u64| {
            let mut out = Vec::with_capacity(99);
            append_parts(&file, &mut out, Parts::whole(len), pos, false).unwrap();
            out
        };
        assert_eq!((whole(99, 0), whole(3, 4)), (b"abcdefghij".to_vec(), b"efg".to_vec()));
        assert_eq!((whole(0, 0), whole(5, 10)), (Vec::new(), Vec::new()));
        let mut out = Vec::with_capacity(99);
        let parts = Parts { gap: 0, part: 1, len: 99 };
        let n = append_parts(&file, &mut out, parts, 0, false).unwrap();
        assert_eq!((n, &out[..]), (PARTS_MAX, &b"abcdefgh"[..]), "no more than one call reads");
    }
}
