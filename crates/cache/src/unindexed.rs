//! Entries whose keys the index does not have: their files are read for that. The loader met them
//! without an index, or the ring was full when they were reported.

use crate::index_format::{IndexEntry, Record};
use base::time::now_ms;
use os::file::FileMeta;

use crate::faults::FaultCause;
use crate::file_header::Header;
use crate::keeper::Keeper;
use crate::key::{self, Hash, Layout};
use crate::keys::{Evicted, Purged};
use crate::store;
use crate::tags;

/// Files that one thread reads in a row.
const AT_ONCE: usize = 128;

/// The pause after all were read, milliseconds.
const REST_MS: u64 = 1000;

/// The same where nothing came of it.
const LONG_REST_MS: u64 = 10_000;

/// The result of reading a header.
enum HeaderRead {
    Header(Box<Header>, FileMeta),
    /// It is not a cache file, or it is damaged.
    Bad,
    /// There is none.
    Missing,
    /// The disk did not let us know.
    Failed,
}

/// Reads files for ever.
pub(crate) async fn read(keeper: &Keeper) {
    let keys = &keeper.cache.keys;
    loop {
        let before = keys.unknown();
        if before == 0 || !keys.is_warm() {
            let stirred = keeper.cache.stirred.notified();
            let _ = event::race(stirred, event::sleep(LONG_REST_MS)).await;
            continue;
        }
        let began = now_ms();
        let mut from = Some(0);
        while from.is_some() && keeper.may_write() {
            let list = keys.some_unknown(&mut from);
            for some in list.chunks(AT_ONCE) {
                read_some(keeper, some.to_vec()).await;
                keeper.cache.stirred.notify_all();
            }
            // Others have something to do, too.
            event::task::yield_now().await;
        }
        let rest = if keys.unknown() >= before { LONG_REST_MS } else { REST_MS };
        event::sleep(rest.max(now_ms() - began)).await;
    }
}

async fn read_some(keeper: &Keeper, list: Vec<(Hash, u32)>) {
    let layout = keeper.cache.settings.layout.clone();
    let task = move || {
        let said = |(hash, version): (Hash, u32)| (hash, version, header_of(&layout, &hash));
        list.into_iter().map(said).collect::<Vec<_>>()
    };
    let pool = event::pool::default();
    let Ok(found) = store::elsewhere(Some(&pool), task).await else { return };
    for (hash, version, said) in found {
        match said {
            HeaderRead::Header(header, meta) => learn(keeper, &hash, version, &header, &meta),
            // The index does not know of it anyway.
            HeaderRead::Missing => drop(keeper.cache.keys.gone(&hash, version)),
            HeaderRead::Bad => {
                let path = files::as_path(&keeper.cache.settings.layout.path(&hash)).to_owned();
                let path = path.display();
                let m = format_args!("cache file \"{path}\" is damaged, discarded");
                keeper.cache.tell(FaultCause::Damaged, m);
                take_out(keeper, &hash);
            }
            HeaderRead::Failed => {}
        }
    }
}

/// Reports a file to the index, unless it was purged.
fn learn(keeper: &Keeper, hash: &Hash, version: u32, header: &Header, meta: &FileMeta) {
    let (cache, keys) = (&keeper.cache, &keeper.cache.keys);
    let (tags, settled) = (tags::of_header(header), keys.marks.settled());
    let file = store::identity(meta);
    if version == 0 && keys.is_distrusted(hash, header.date, file)
        || keys.marks.purged(settled, version, header.date, &header.key, || tags.clone())
    {
        return take_out(keeper, hash);
    }
    let is_variant = key::hash(&header.key) != *hash;
    if is_variant {
        keys.has_variant();
    }
    let date = u32::try_from(header.date).unwrap_or(0);
    let metas = keys.metas(&[*hash]);
    let Some(Some(meta)) = metas.first() else { return };
    keeper.note(&Record::Put(IndexEntry {
        hash: *hash,
        blocks: meta.blocks,
        expire: meta.expire,
        date,
        version,
        file,
        uses: meta.uses,
        is_variant,
        key: &header.key,
        tags: &tags,
    }));
    cache.keys.is_known(hash, version);
}

fn take_out(keeper: &Keeper, hash: &Hash) {
    if keeper.cache.keys.purge(hash) == Purged::Out {
        let one = Evicted { hash: *hash, file: true };
        keeper.cache.discard(vec![one], Some(&event::pool::default()));
    }
}

/// Reads the header of a file, in a thread.
fn header_of(layout: &Layout, hash: &Hash) -> HeaderRead {
    use crate::file_header::BadHeader;
    let path = layout.path(hash);
    let fd = match os::file::open_own(files::as_path(&path)) {
        Ok(fd) => fd,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return HeaderRead::Missing,
        Err(_) => return HeaderRead::Failed,
    };
    let Ok(meta) = os::file::fstat(&fd) else { return HeaderRead::Failed };
    let mut bytes = Vec::new();
    let mut need = 1024;
    loop {
        let at = bytes.len();
        bytes.resize(need, 0);
        let n = match os::file::read_at(&fd, &mut bytes[at..], at as u64) {
            Ok(n) => n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {
                bytes.truncate(at);
                continue;
            }
            Err(_) => return HeaderRead::Failed,
        };
        bytes.truncate(at + n);
        let all = bytes::Bytes::from(bytes);
        match Header::decode(&all) {
            Ok(header) => return HeaderRead::Header(Box::new(header), meta),
            Err(BadHeader::Short(more)) if n > 0 && more > all.len() => need = more,
            Err(_) => return HeaderRead::Bad,
        }
        bytes = all.into();
    }
}
