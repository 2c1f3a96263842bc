//! What levels of the configuration set.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use conf::template::Template;
use conf::{ConfError, Word};
use engine::settings::Conf;
use engine::tls_files::Named;
use upstream::ssl::SslDraft;

use ::script::Limits;

use crate::code::Code;
use crate::fetch::Fetcher;

/// `js_import`, `js_path` and `js_preload_object` of a level and those around it.
#[derive(Clone, Default)]
pub(crate) struct Draft {
    /// Names and paths, with the place of the directive.
    pub imports: Vec<(String, String, Word)>,
    /// `js_path`, absolute.
    pub paths: Vec<PathBuf>,
    /// The folder of the configuration, where modules are looked for last.
    pub prefix: PathBuf,
    /// Names and texts of `js_preload_object`.
    pub objects: Vec<(String, String)>,
}

impl Draft {
    fn is_empty(&self) -> bool {
        self.imports.is_empty() && self.paths.is_empty() && self.objects.is_empty()
    }
}

/// The imports that hold in a location, compiled when the first location asks for them.
#[derive(Default)]
pub(crate) struct Imports {
    pub draft: Draft,
    pub code: OnceCell<Rc<Code>>,
}

/// How `js_body_filter` gets its pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PieceType {
    Text,
    Buffer,
}

/// The settings of a location.
#[derive(Default)]
pub(crate) struct Settings {
    /// Those of this level alone.
    pub own: Draft,
    /// Those of the level around.
    outer: Option<Rc<Imports>>,
    joined: OnceCell<Rc<Imports>>,
    pub access: Option<(Bytes, Word)>,
    pub header_filter: Option<(Bytes, Word)>,
    pub body_filter: Option<(Bytes, PieceType, Word)>,
    pub reuse: Option<usize>,
    pub reuse_max_size: Option<usize>,
    pub time_limit_ms: Option<u64>,
    pub cpu_limit_ms: Option<u64>,
    pub memory_limit: Option<usize>,
    pub fetch: Fetch,
    /// Made of that when everything is merged.
    fetcher: OnceCell<Rc<Fetcher>>,
}

engine::settings! {
    /// `js_fetch_…`
    pub(crate) struct Fetch {
        /// The TLS of requests over HTTPS.
        pub ssl: SslDraft,
        /// The certificates that the system trusts.
        pub system: Option<Named>,
        pub buffer_size: Option<usize>,
        pub max_response: Option<usize>,
        pub timeout_ms: Option<u64>,
        pub proxy: Option<Template>,
        pub keepalive: Option<usize>,
        pub keepalive_requests: Option<u64>,
        pub keepalive_time_ms: Option<u64>,
        pub keepalive_timeout_ms: Option<u64>,
    }
}

impl Settings {
    /// The limits of an engine here.
    pub fn limits(&self) -> Limits {
        let usual = Limits::default();
        let ms = |set: Option<u64>, usual: Duration| set.map_or(usual, Duration::from_millis);
        Limits {
            memory_bytes: self.memory_limit.unwrap_or(usual.memory_bytes),
            stretch: ms(self.time_limit_ms, usual.stretch),
            cpu: ms(self.cpu_limit_ms, usual.cpu),
            ..usual
        }
    }

    /// The imports that hold here: shared with the level around if this one has none.
    fn imports(&self) -> Rc<Imports> {
        let join = || match &self.outer {
            Some(outer) if self.own.is_empty() => outer.clone(),
            outer => {
                let mut draft = outer.as_ref().map(|o| o.draft.clone()).unwrap_or_default();
                if !self.own.is_empty() {
                    draft.prefix.clone_from(&self.own.prefix);
                }
                draft.imports.extend_from_slice(&self.own.imports);
                draft.paths.extend_from_slice(&self.own.paths);
                draft.objects.extend_from_slice(&self.own.objects);
                Rc::new(Imports { draft, code: OnceCell::new() })
            }
        };
        self.joined.get_or_init(join).clone()
    }

    /// The imports, compiled; none where there are none.
    ///
    /// # Errors
    /// A module is not found, or is no JavaScript.
    pub fn code(&self) -> Result<Option<Rc<Code>>, ConfError> {
        let imports = self.imports();
        if imports.draft.imports.is_empty() {
            return Ok(None);
        }
        if let Some(code) = imports.code.get() {
            return Ok(Some(code.clone()));
        }
        let code = Rc::new(Code::compile(&imports.draft)?);
        Ok(Some(imports.code.get_or_init(|| code).clone()))
    }

    /// Makes what `ngx.fetch` needs here.
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub fn make_fetcher(&self) -> Result<(), ConfError> {
        if self.fetcher.get().is_none() {
            let _ = self.fetcher.set(Rc::new(Fetcher::new(&self.fetch)?));
        }
        Ok(())
    }

    /// What `ngx.fetch` uses here; made at load.
    pub fn fetcher(&self) -> Option<&Rc<Fetcher>> {
        self.fetcher.get()
    }

    /// The same in a worker, where everything is compiled.
    pub fn compiled(&self) -> Option<Rc<Code>> {
        self.imports().code.get().cloned()
    }
}

impl Conf for Settings {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.outer = Some(prev.imports());
        engine::inherit!(self, prev: access header_filter body_filter reuse reuse_max_size
            time_limit_ms cpu_limit_ms memory_limit fetch);
        Ok(())
    }
}

/// `js_content`: apart, because a nested location does not inherit it.
#[derive(Default)]
pub(crate) struct Content(pub Option<(Bytes, Word)>);

impl Conf for Content {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        if self.0.is_none() {
            self.0.clone_from(&prev.0);
        }
        Ok(())
    }
}

/// A handler of `js_periodic`.
#[derive(Clone)]
pub(crate) struct Periodic {
    pub function: Bytes,
    pub interval_ms: u64,
    pub jitter_ms: u64,
    /// The workers that run it; none: the first one.
    pub workers: Option<Vec<bool>>,
}

/// `js_periodic` of a location: nested ones do not inherit it.
#[derive(Default)]
pub(crate) struct Periodics(pub Vec<Periodic>);

impl Conf for Periodics {}

/// What the whole block shares.
#[derive(Default)]
pub(crate) struct Main {
    /// The variables of `js_set`, with the functions that compute them.
    pub set: Vec<(Bytes, Bytes)>,
    /// The names of `js_var`, in lower case.
    pub vars: Vec<String>,
    /// What `ngx` says about the server.
    pub facts: ::script::Facts,
    /// The dictionaries of `js_shared_dict_zone`.
    pub dicts: Vec<crate::shared::Dict>,
}

impl Conf for Main {}
