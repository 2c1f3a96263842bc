//! Memory that all workers share, by name: `zone=NAME:SIZE`.
//!
//! A directive declares the zone (`cx.declare_zone(word, name, Some(bytes), "its module")`) and
//! makes what lies in it (or the module's `init` does, which runs when all directives were read),
//! before the workers are forked: a [`Table`] of values by key, which has a lock that outlives a
//! process that died with it. A configuration that is loaded anew takes over what the one before
//! had (`cx.env.zones.kept`) where name and size agree.
//!
//! A value is a [`Record`]: at most four words, any of which may be old or new after a crash.
//!
//! ```
//! use std::rc::Rc;
//! use weir_module::prelude::*;
//! use weir_module::zone::{Record, Table, ZoneState, name_and_size};
//!
//! #[derive(Clone, Copy)]
//! struct Count(u64);
//!
//! impl Record for Count {
//!     const WORDS: usize = 1;
//!     fn to_words(self) -> [u64; 4] {
//!         [self.0, 0, 0, 0]
//!     }
//!     fn from_words(words: [u64; 4]) -> Count {
//!         Count(words[0])
//!     }
//! }
//!
//! struct Shared(Table<Count>);
//!
//! impl ZoneState for Shared {
//!     fn died(&self, pid: u32, _slot: usize) {
//!         self.0.free_of(pid);
//!     }
//! }
//!
//! #[derive(Default)]
//! struct CountConf {
//!     shared: Option<Rc<Shared>>,
//! }
//!
//! impl Conf for CountConf {
//!     fn merge(&mut self, outer: &Self) -> Result<(), ConfError> {
//!         self.shared = self.shared.take().or_else(|| outer.shared.clone());
//!         Ok(())
//!     }
//! }
//!
//! fn count(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
//!     let word = n.arg(0)?;
//!     let (name, bytes) = name_and_size(word, word.bytes())?;
//!     cx.declare_zone(word, &name, Some(bytes), "count")?;
//!     let shared = match cx.env.zones.kept::<Shared>(&name) {
//!         Some(kept) => kept,
//!         None => {
//!             let table = Table::new(bytes).map_err(|e| ConfError::at(word, e.to_string()))?;
//!             Rc::new(Shared(table))
//!         }
//!     };
//!     cx.env.zones.put(&name, shared.clone());
//!     cx.loc::<CountConf>().shared = Some(shared);
//!     Ok(())
//! }
//!
//! static MODULE: Module = Module {
//!     name: "count",
//!     directives: &[directive("count", EVERYWHERE, Args::T1, "", "Counts in a zone.", count)],
//!     confs: &[ConfType::of::<CountConf>(Scope::Location)],
//!     install: Some(install),
//!     ..Module::EMPTY
//! };
//!
//! fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
//!     let Some(shared) = l.conf::<CountConf>().shared.clone() else { return Ok(()) };
//!     p.content.push(Box::new(move |r: &mut Request| {
//!         let key = shared.0.key(&r.target.uri);
//!         let mut table = shared.0.lock();
//!         let n = match table.find(key) {
//!             Some(entry) => {
//!                 let n = table.value(entry).map_or(1, |count| count.0 + 1);
//!                 table.set(entry, Count(n));
//!                 n
//!             }
//!             None => table.insert(key, Count(1)).map_or(0, |_| 1),
//!         };
//!         drop(table);
//!         r.respond(200, Bytes::from_static(b"text/plain"), Bytes::from(n.to_string()));
//!         Verdict::Done
//!     }));
//!     Ok(())
//! }
//!
//! let run = weir_module::testing::serve(
//!     &MODULE,
//!     "location / { count paths:64k; }",
//!     &["/a", "/b", "/a"],
//! );
//! let texts: Vec<_> = run.answers.iter().map(|a| a.text()).collect();
//! assert_eq!(texts, ["1", "1", "2"]);
//! ```

pub use engine::zones::name_and_size;
pub use shm::{Counters, Entry, Full, Key, Locked, Record, Table, ZoneState};
