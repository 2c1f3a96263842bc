//! `xslt`: XML documents transformed by stylesheets on their way out.
//!
//! The whole document is taken into memory and transformed in a thread, before the response's head
//! is written: only then are its type and length known, and whether there is a result at all.

mod parameters;
mod work;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use conf::table::{Args, Contexts, Directive};
use conf::value::{set_flag, set_msec, set_size};
use conf::{ConfError, Node, Word};
use event::Pool;
use http::core_directives::{HSL, directive};
use http::cx::Cx;
use http::module::{Conf, ConfType, LocView, Module, Pipeline, Scope};
use http::types::TypeList;
use xslt::{Entities, Sheet};

use parameters::Named;
use work::{Filter, Settings, Stage};

/// The module's table.
pub static MODULE: Module = Module {
    name: "xslt",
    directives: DIRECTIVES,
    confs: &[ConfType::of::<Files>(Scope::Main), ConfType::of::<XsltConf>(Scope::Location)],
    install: Some(install),
    ..Module::EMPTY
};

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "xslt_stylesheet",
        Contexts::LOCATION,
        Args::ONE_MORE,
        "",
        "An XSLT stylesheet and parameters NAME=EXPRESSION; several are applied in order.",
        stylesheet,
    ),
    directive(
        "xslt_param",
        HSL,
        Args::T2,
        "",
        "A stylesheet parameter whose value is an XPath expression.",
        |cx, n| parameter(cx, n, false),
    ),
    directive(
        "xslt_string_param",
        HSL,
        Args::T2,
        "",
        "A stylesheet parameter whose value is a literal string.",
        |cx, n| parameter(cx, n, true),
    ),
    directive(
        "xslt_types",
        HSL,
        Args::ONE_MORE,
        DEFAULT_TYPE,
        "MIME types to transform in addition to text/xml; `*` matches all.",
        |cx, n| TypeList::set(&mut cx.loc::<XsltConf>().types, n, Some(DEFAULT_TYPE)),
    ),
    directive(
        "xslt_last_modified",
        HSL,
        Args::FLAG,
        "off",
        "Keeps `Last-Modified` and a weak `ETag` of transformed responses.",
        |cx, n| set_flag(&mut cx.loc::<XsltConf>().last_modified, n),
    ),
    directive(
        "xml_entities",
        HSL,
        Args::T1,
        "",
        "The DTD file that declares character entities for documents.",
        entities,
    ),
    directive(
        "xml_external_entities",
        HSL,
        Args::FLAG,
        "off",
        "Loads external entities from local files; never from the network.",
        |cx, n| set_flag(&mut cx.loc::<XsltConf>().external_entities, n),
    ),
    directive(
        "xslt_buffer",
        HSL,
        Args::T1,
        "64m",
        "The maximum size of a document, else 500.",
        |cx, n| set_size(&mut cx.loc::<XsltConf>().buffer, n),
    ),
    directive(
        "xslt_memory",
        HSL,
        Args::T1,
        "512m",
        "The maximum memory of one transformation, else 500.",
        |cx, n| set_size(&mut cx.loc::<XsltConf>().memory, n),
    ),
    directive(
        "xslt_timeout",
        HSL,
        Args::T1,
        "60s",
        "The maximum time of one transformation, else 500; 0 is no limit.",
        |cx, n| set_msec(&mut cx.loc::<XsltConf>().timeout_ms, n),
    ),
];

const DEFAULT_TYPE: &str = "text/xml";

engine::settings! {
    struct XsltConf {
        stages: Option<Vec<Stage>>,
        parameters: Option<Vec<Named>>,
        entities: Option<Arc<Entities>>,
        external_entities: Option<bool>,
        last_modified: Option<bool>,
        types: Option<TypeList>,
        buffer: Option<usize>,
        memory: Option<usize>,
        timeout_ms: Option<u64>,
        /// The pool for transformations; set where a location has stylesheets.
        pool: Option<Pool>,
    }
}

/// The files that the configuration names, each of which is read once, and the threads.
#[derive(Default)]
struct Files {
    sheets: HashMap<PathBuf, Arc<Sheet>>,
    entities: HashMap<PathBuf, Arc<Entities>>,
    pool: Option<Pool>,
}

impl Conf for Files {}

/// The threads of a worker for transformations: its part of the processors, and two at least, so
/// that one that takes long does not hold up all others. They have a pool of their own: they would
/// take the threads of the default pool from files for as long as stylesheets compute.
fn pool(cx: &mut Cx) -> Pool {
    let workers = cx.env.workers.max(1);
    let make = || {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (processors / workers).max(2);
        Pool::with_stack("xslt", threads, event::pool::DEFAULT_QUEUE, xslt::STACK_BYTES)
    };
    cx.main::<Files>().pool.get_or_insert_with(make).clone()
}

/// A file that a directive names, from the prefix on.
fn file<T>(
    cx: &mut Cx,
    word: &Word,
    known: fn(&mut Files) -> &mut HashMap<PathBuf, Arc<T>>,
    read: impl Fn(&Path) -> Result<T, xslt::Error>,
) -> Result<Arc<T>, ConfError> {
    let path = cx.env.path(word.bytes());
    if let Some(file) = known(cx.main()).get(&path) {
        return Ok(file.clone());
    }
    let file = Arc::new(read(&path).map_err(|e| {
        let m = format!("\"{}\" cannot be used: {e}", path.display());
        ConfError::at(word, m)
    })?);
    known(cx.main()).insert(path, file.clone());
    Ok(file)
}

fn stylesheet(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let sheet = file(cx, n.arg(0)?, |files| &mut files.sheets, Sheet::read)?;
    let parameters = n.args[1..].iter().map(|word| cx.template(word));
    let parameters = parameters.collect::<Result<Rc<[_]>, _>>()?;
    let pool = pool(cx);
    let conf = cx.loc::<XsltConf>();
    conf.stages.get_or_insert_default().push(Stage { sheet, parameters });
    conf.pool = Some(pool);
    Ok(())
}

fn parameter(cx: &mut Cx, n: &Node, is_text: bool) -> Result<(), ConfError> {
    let name = n.arg(0)?.lossy().into_owned();
    let value = cx.template(n.arg(1)?)?;
    let named = Named { name, value, is_text };
    cx.loc::<XsltConf>().parameters.get_or_insert_default().push(named);
    Ok(())
}

fn entities(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    if cx.loc::<XsltConf>().entities.is_some() {
        return Err(ConfError::directive(n, "is duplicate"));
    }
    let entities = file(cx, n.arg(0)?, |files| &mut files.entities, Entities::read)?;
    cx.loc::<XsltConf>().entities = Some(entities);
    Ok(())
}

fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = l.conf::<XsltConf>();
    let (Some(stages), Some(pool)) = (conf.stages.clone(), conf.pool.clone()) else {
        return Ok(());
    };
    p.header_filters.push(Box::new(Filter {
        types: conf.types.clone().unwrap_or_else(|| TypeList::of(&[DEFAULT_TYPE])),
        settings: Rc::new(Settings {
            stages,
            parameters: conf.parameters.clone().unwrap_or_default(),
            entities: conf.entities.clone(),
            external_entities: conf.external_entities.unwrap_or(false),
            last_modified: conf.last_modified.unwrap_or(false),
            buffer: conf.buffer.unwrap_or(64 << 20),
            memory: conf.memory.unwrap_or(512 << 20),
            timeout_ms: conf.timeout_ms.unwrap_or(60_000),
            pool,
        }),
    }));
    Ok(())
}
