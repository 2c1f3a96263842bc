//! Memory of connections: recycled pages, chains of buffers, free lists, shared file handles, an
//! LRU table.
//!
//! Everything here but a [`FileHandle`] belongs to one thread. An idle connection holds none of it:
//! a page goes back to the thread's free list when it is dropped, and so does the queue inside a
//! [`Chain`] as soon as the chain is empty. A page that waits for the rest of a header section
//! moves to a buffer hardly larger than its bytes ([`Page::narrow`]).

#![forbid(unsafe_code)]

mod buf;
mod chain;
mod file;
mod free_list;
mod lru;
mod page;
mod slab;

pub use buf::Buf;
pub use chain::{Chain, IOV_MAX};
pub use file::FileHandle;
pub use free_list::{FreeList, on_trim, trim};
pub use lru::Lru;
pub use page::{PAGE_SIZE, Page, WIDE_SIZE};
pub use page::{kept as pages_kept, recycle as recycle_pages};
