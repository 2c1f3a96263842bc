//! The filter: takes the whole document, and has it transformed in a thread.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::log::Level;
use bytes::Bytes;
use conf::template::Template;
use event::{Either, Pool};
use http::module::{HeaderFilter, Verdict};
use http::output::{Body, NotWhole, WholeBody};
use http::request::Request;
use http::types::TypeList;
use http_wire::h1::Method;
use xslt::{Bounds, Entities, Parameter, Parsing, Sheet, Transformed};

use super::parameters::{Named, Unnamed, parse};

/// `xslt_stylesheet`
#[derive(Clone)]
pub(super) struct Stage {
    pub sheet: Arc<Sheet>,
    /// Its parameters, unread: they may hold variables.
    pub parameters: Rc<[Template]>,
}

/// The settings of a location.
pub(super) struct Settings {
    /// The stylesheets in order; one at least.
    pub stages: Vec<Stage>,
    pub parameters: Vec<Named>,
    pub entities: Option<Arc<Entities>>,
    pub external_entities: bool,
    pub last_modified: bool,
    /// The most bytes of a document.
    pub buffer: usize,
    /// The most bytes of memory for a transformation.
    pub memory: usize,
    /// The longest time for one; 0: as long as it takes.
    pub timeout_ms: u64,
    pub pool: Pool,
}

pub(super) struct Filter {
    pub types: TypeList,
    pub settings: Rc<Settings>,
}

/// The response was refused already: the page that says so is not transformed.
#[derive(Default)]
struct Refused(bool);

impl HeaderFilter for Filter {
    fn in_subrequests(&self) -> bool {
        true
    }

    fn run(&self, r: &mut Request) -> Verdict {
        if r.status() == 304
            || !self.types.has(&r.out)
            || r.ctx::<Refused>().is_some_and(|refused| refused.0)
        {
            return Verdict::Next;
        }
        r.out.allow_ranges = false;
        r.out.remove(b"Accept-Ranges");
        r.out.whole = Some(Box::new(Work(self.settings.clone())));
        Verdict::Next
    }
}

/// The work on a response.
struct Work(Rc<Settings>);

impl WholeBody for Work {
    fn bytes_max(&self) -> usize {
        self.0.buffer
    }

    fn run<'a>(
        self: Box<Self>,
        r: &'a mut Request,
        body: Result<Vec<u8>, NotWhole>,
    ) -> Pin<Box<dyn Future<Output = Verdict> + 'a>> {
        Box::pin(async move { self.0.work(r, body).await })
    }
}

/// The reason why there is no result.
enum Failed {
    /// The client did not wait for it.
    ClientGone,
    /// Memory is scarce.
    NoRoom,
    /// A sentence for the log.
    Because(String),
}

/// Tells the thread, when it is dropped, that nobody waits for its result any more.
struct Waiter(Arc<AtomicBool>);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Settings {
    async fn work(&self, r: &mut Request, body: Result<Vec<u8>, NotWhole>) -> Verdict {
        let document = match body {
            Ok(document) => document,
            Err(NotWhole::TooLong) => {
                let m = format!("the response has more than {} bytes (xslt_buffer)", self.buffer);
                return refuse(r, 500, &m);
            }
            Err(NotWhole::Broken) => return refuse(r, 502, "the response is not whole"),
        };
        if r.target.method == Method::Head && document.is_empty() {
            // An upstream sends none: its result, and the length of that, is not known.
            self.describe(r, None);
            return Verdict::Next;
        }
        let transformed = match self.parameters(r) {
            Ok(parameters) => self.transform(r, document, parameters).await,
            Err(Unnamed(part)) => Err(Failed::Because(format!("invalid parameter \"{part}\""))),
        };
        let transformed = match transformed {
            Ok(transformed) => transformed,
            Err(Failed::Because(why)) => return refuse(r, 500, &why),
            Err(Failed::NoRoom) => return refuse(r, 503, "memory is scarce"),
            Err(Failed::ClientGone) => {
                r.log(Level::Info, format_args!("client prematurely closed connection"));
                // The log has 499 all the same.
                r.abandon();
                return Verdict::Status(444);
            }
        };
        for message in &transformed.messages {
            r.log(Level::Warn, format_args!("xslt filter: {message}"));
        }
        if transformed.body.is_empty() {
            return refuse(r, 500, "the result is empty");
        }
        self.describe(r, Some(transformed.method));
        r.out.content_length = Some(transformed.body.len() as u64);
        let mut chain = mem::Chain::new();
        chain.push_bytes(Bytes::from(transformed.body));
        r.out.body = Body::Chain(chain);
        Verdict::Next
    }

    /// The parameters of each stylesheet. Of those with one name the last one counts: the
    /// stylesheet's own.
    fn parameters(&self, r: &mut Request) -> Result<Vec<Vec<Parameter>>, Unnamed> {
        let mut of_stage = |stage: &Stage| {
            let mut all = Vec::with_capacity(self.parameters.len() + stage.parameters.len());
            all.extend(self.parameters.iter().map(|p| p.parameter(&r.eval(&p.value))));
            for template in &*stage.parameters {
                parse(&r.eval(template), &mut all)?;
            }
            Ok(all)
        };
        self.stages.iter().map(&mut of_stage).collect()
    }

    /// Has a document transformed in a thread, for as long as it may take and the client waits.
    async fn transform(
        &self,
        r: &Request,
        document: Vec<u8>,
        parameters: Vec<Vec<Parameter>>,
    ) -> Result<Transformed, Failed> {
        let sheets: Vec<_> = self.stages.iter().map(|stage| stage.sheet.clone()).collect();
        let (entities, external_entities) = (self.entities.clone(), self.external_entities);
        let bytes_max = memory(self.memory, os::memory::room(), document.len());
        let bytes_max = bytes_max.ok_or(Failed::NoRoom)?;
        let waiter = Waiter(Arc::default());
        let is_cancelled = waiter.0.clone();
        let task = self.pool.run(move || {
            let entities = entities.as_deref();
            let parsing = Parsing { entities, external_entities, bytes_max };
            let bounds = Bounds { bytes_max, is_cancelled: &is_cancelled };
            let sheets = sheets.iter().map(|sheet| &**sheet);
            let stages: Vec<_> = sheets.zip(parameters).collect();
            if event::presence() != event::Presence::Absent {
                // The loop has not the stack for it.
                return Err(xslt::Error::new("no thread can be started"));
            }
            match is_cancelled.load(Ordering::Relaxed) {
                true => Err(xslt::Error::new("the client is gone")),
                false => xslt::transform(&document, &parsing, &stages, &bounds),
            }
        });
        let in_time = async {
            match self.timeout_ms {
                0 => Ok(task.await),
                ms => event::timeout(ms, task).await,
            }
        };
        match event::race(in_time, r.client_gone()).await {
            Either::First(Ok(Ok(done))) => done.map_err(|e| Failed::Because(e.to_string())),
            Either::First(Ok(Err(e))) => Err(Failed::Because(e.to_string())),
            Either::First(Err(_)) => {
                let ms = self.timeout_ms;
                Err(Failed::Because(format!("no result after {ms} ms (xslt_timeout)")))
            }
            Either::Second(()) => Err(Failed::ClientGone),
        }
    }

    /// Describes the result in the response's head: as the last stylesheet says, and by the method
    /// that wrote it where that is known.
    fn describe(&self, r: &mut Request, method: Option<xslt::Method>) {
        let Some(last) = self.stages.last() else { return };
        let output = last.sheet.output();
        r.out.content_length = None;
        if !r.is_subrequest() {
            r.out.text_changes(self.last_modified);
            let method = method.or(output.method);
            let html = (method == Some(xslt::Method::Html)).then(|| "text/html".to_owned());
            if let Some(media_type) = output.media_type.clone().or(html) {
                r.out.content_type = Some(Bytes::from(media_type));
                r.out.content_type_written = None;
            }
        }
        let is_utf8 = |charset: &Bytes| charset.eq_ignore_ascii_case(b"utf-8");
        let stated = output.encoding.as_deref().map(str::trim);
        // The document's own charset is not that of the result.
        let charset = match (stated, &r.out.charset) {
            (Some(stated), _) => Bytes::copy_from_slice(stated.as_bytes()),
            (None, Some(charset)) if !is_utf8(charset) => Bytes::from_static(b"utf-8"),
            (None, _) => return,
        };
        r.out.charset = Some(charset);
        r.out.content_type_written = None;
    }
}

/// The memory that a transformation of a document may take, in bytes: as much as it is allowed, and
/// half of the room that the worker has. `None` where the document alone takes that.
fn memory(allowed: usize, room: i64, document: usize) -> Option<usize> {
    let half = usize::try_from(room / 2).unwrap_or_default();
    (half > document).then(|| allowed.min(half))
}

fn refuse(r: &mut Request, status: u16, why: &str) -> Verdict {
    r.log(Level::Error, format_args!("xslt filter: {why}"));
    r.ctx_mut::<Refused>().0 = true;
    Verdict::Status(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_is_allowed_and_what_is_there() {
        for (allowed, room, document, want) in [
            (512, i64::MAX, 100, Some(512)),
            (512, 600, 100, Some(300)),
            (512, 200, 100, None),
            (512, 0, 0, None),
            (512, -5, 100, None),
            // A small bound is for the engine to find.
            (50, 600, 100, Some(50)),
        ] {
            assert_eq!(memory(allowed, room, document), want, "{allowed} {room} {document}");
        }
    }
}
