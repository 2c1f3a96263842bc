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
use crate::function::Function;

/// `js_import`, `js_path` and `js_preload_object` of a level and those around it.
#[derive(Clone, Default)]
pub struct Draft {
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

/// The imports that hold in a place, compiled when the first place asks for them.
#[derive(Default)]
struct Imports {
    draft: Draft,
    code: OnceCell<Rc<Code>>,
}

/// The settings of a place that all its scripts have in common.
#[derive(Default)]
pub struct Settings {
    /// Those of this level alone.
    pub own: Draft,
    /// Those of the level around.
    outer: Option<Rc<Imports>>,
    joined: OnceCell<Rc<Imports>>,
    /// `js_context_reuse`
    pub reuse: Option<usize>,
    /// `js_context_reuse_max_size`, bytes.
    pub reuse_max_size: Option<usize>,
    /// `js_time_limit`
    pub time_limit_ms: Option<u64>,
    /// `js_cpu_limit`
    pub cpu_limit_ms: Option<u64>,
    /// `js_memory_limit`, bytes.
    pub memory_limit: Option<usize>,
    /// `js_fetch_…`
    pub fetch: Fetch,
    /// Made of that when everything is merged.
    fetcher: OnceCell<Rc<Fetcher>>,
}

engine::settings! {
    /// `js_fetch_…`
    pub struct Fetch {
        /// The TLS of requests over HTTPS.
        pub ssl: SslDraft,
        /// The certificates that the system trusts.
        pub system: Option<Named>,
        /// `js_fetch_buffer_size`
        pub buffer_size: Option<usize>,
        /// `js_fetch_max_response_buffer_size`
        pub max_response: Option<usize>,
        /// `js_fetch_limit`
        pub limit: Option<usize>,
        /// `js_fetch_timeout`
        pub timeout_ms: Option<u64>,
        /// `js_fetch_proxy`
        pub proxy: Option<Template>,
        /// `js_fetch_keepalive`
        pub keepalive: Option<usize>,
        /// `js_fetch_keepalive_requests`
        pub keepalive_requests: Option<u64>,
        /// `js_fetch_keepalive_time`
        pub keepalive_time_ms: Option<u64>,
        /// `js_fetch_keepalive_timeout`
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
    fn code(&self) -> Result<Option<Rc<Code>>, ConfError> {
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

    /// Prepares a place: compiles its imports, and makes what `ngx.fetch` needs. `functions` are
    /// those that its directives name.
    ///
    /// # Errors
    /// A module is not found or is no JavaScript, a file of TLS cannot be used, or there are no
    /// imports although a directive names a function.
    pub fn prepare<'a>(
        &self,
        functions: impl IntoIterator<Item = &'a Function>,
    ) -> Result<(), ConfError> {
        let code = self.code()?;
        if code.is_some() && self.fetcher.get().is_none() {
            let _ = self.fetcher.set(Rc::new(Fetcher::new(&self.fetch)?));
        }
        for function in functions {
            match &code {
                Some(code) => code.note(function),
                None => {
                    let (directive, name) = (function.counts.directive, function.lossy());
                    let m = format!(
                        "no imports defined for \"{directive}\" \"{name}\", use \"js_import\" \
                         directive"
                    );
                    return Err(ConfError::at(&function.word, m));
                }
            }
        }
        Ok(())
    }

    /// What `ngx.fetch` uses here; made at load.
    pub fn fetcher(&self) -> Option<&Rc<Fetcher>> {
        self.fetcher.get()
    }

    /// The imports in a worker, where everything is compiled.
    pub fn compiled(&self) -> Option<Rc<Code>> {
        self.imports().code.get().cloned()
    }
}

impl Conf for Settings {
    fn merge(&mut self, prev: &Self) -> Result<(), ConfError> {
        self.outer = Some(prev.imports());
        engine::inherit!(self, prev: reuse reuse_max_size time_limit_ms cpu_limit_ms memory_limit
            fetch);
        Ok(())
    }
}

/// A handler of `js_periodic`.
#[derive(Clone)]
pub struct Periodic {
    /// The function.
    pub function: Function,
    /// The time between two runs.
    pub interval_ms: u64,
    /// The most that chance adds to it.
    pub jitter_ms: u64,
    /// The workers that run it; none: the first one.
    pub workers: Option<Vec<bool>>,
}

impl Periodic {
    /// Whether a worker runs it.
    pub fn runs_in(&self, worker: usize) -> bool {
        match &self.workers {
            None => worker == 0,
            Some(workers) => workers.get(worker).copied().unwrap_or(false),
        }
    }
}

/// `js_periodic` of a place: nested ones do not inherit it.
#[derive(Default)]
pub struct Periodics(pub Vec<Periodic>);

impl Conf for Periodics {}

/// What the whole block shares.
#[derive(Default)]
pub struct Main {
    /// The variables of `js_set`, with the functions that compute them.
    pub set: Vec<(Bytes, Function)>,
    /// The names of `js_var`, in lower case.
    pub vars: Vec<String>,
    /// What `ngx` says about the server.
    pub facts: ::script::Facts,
    /// The dictionaries of `js_shared_dict_zone`.
    pub dicts: Vec<crate::shared::Dict>,
}

impl Conf for Main {}
