//! Handlers and filters of modules from outside the project, wrapped so that the time they hold up
//! the loop is measured; see [`engine::watch`]. A panic in one is caught at the edge of its task,
//! as everywhere.

use std::future::Future;
use std::pin::Pin;

use conf::ConfError;
use engine::watch::{StretchLog, Watched, call, call_with, log_of};

use crate::module::{
    Dry, HeaderFilter, Install, LocView, PhaseHandler, Pipeline, Step, Verdict, Wait,
};
use crate::output::{Ahead, Body, BodyFilter, BodySource, FilterStep, NextPiece, Piece};
use crate::request::Request;

/// Installs a module, and watches its handlers and filters.
pub(crate) fn install(
    module: &'static str,
    install: Install,
    view: &LocView,
    p: &mut Pipeline,
) -> Result<(), ConfError> {
    let mut own = Pipeline::default();
    std::mem::swap(&mut own.content_handler, &mut p.content_handler);
    (own.auto_redirect, own.not_in_if) = (p.auto_redirect, p.not_in_if);
    let before = own.content_handler.as_ref().map(|h| std::ptr::from_ref(&**h).cast::<()>());
    install(view, &mut own)?;
    let after = own.content_handler.as_ref().map(|h| std::ptr::from_ref(&**h).cast::<()>());
    p.content_handler = match own.content_handler.take() {
        Some(handler) if before != after => Some(watched(module, handler)),
        handler => handler,
    };
    (p.auto_redirect, p.not_in_if) = (own.auto_redirect, own.not_in_if);
    let phases = [
        (&mut p.post_read, own.post_read),
        (&mut p.server_rewrite, own.server_rewrite),
        (&mut p.rewrite, own.rewrite),
        (&mut p.preaccess, own.preaccess),
        (&mut p.access, own.access),
        (&mut p.precontent, own.precontent),
        (&mut p.content, own.content),
        (&mut p.log, own.log),
    ];
    for (list, handlers) in phases {
        list.extend(handlers.into_iter().map(|handler| watched(module, handler)));
    }
    p.background_states.extend(own.background_states);
    let filters = own.header_filters.into_iter();
    p.header_filters.extend(
        filters.map(|filter| Box::new(WatchedFilter { module, filter }) as Box<dyn HeaderFilter>),
    );
    Ok(())
}

fn watched(module: &'static str, handler: Box<dyn PhaseHandler>) -> Box<dyn PhaseHandler> {
    Box::new(WatchedHandler { module, handler })
}

struct WatchedHandler {
    module: &'static str,
    handler: Box<dyn PhaseHandler>,
}

impl PhaseHandler for WatchedHandler {
    fn dry(&self) -> Dry {
        self.handler.dry()
    }

    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        Step::Wait(Box::pin(async move {
            let module = self.module;
            let log = log_of(r);
            let verdict = {
                let step = call_with(&log, module, || self.handler.run(&mut *r));
                match step {
                    Step::Now(verdict) => verdict,
                    Step::Wait(future) => Watched { module, log: log.clone(), future }.await,
                }
            };
            if verdict == Verdict::Done {
                r.out.body = match std::mem::take(&mut r.out.body) {
                    Body::Stream(source) => {
                        Body::Stream(Box::new(WatchedSource { module, log, source }))
                    }
                    body => body,
                };
            }
            verdict
        }))
    }
}

struct WatchedSource {
    module: &'static str,
    log: StretchLog,
    source: Box<dyn BodySource>,
}

impl WatchedSource {
    fn watch<'a, T>(
        (module, log): (&'static str, &StretchLog),
        future: Pin<Box<dyn Future<Output = T> + 'a>>,
    ) -> Pin<Box<dyn Future<Output = T> + 'a>>
    where
        T: 'a,
    {
        Box::pin(Watched { module, log: log.clone(), future })
    }
}

impl BodySource for WatchedSource {
    fn next<'a>(&'a mut self, r: &'a mut Request) -> NextPiece<'a> {
        let WatchedSource { module, log, source } = self;
        Self::watch((module, log), source.next(r))
    }

    fn ahead(&mut self) -> Option<Ahead<'_>> {
        let WatchedSource { module, log, source } = self;
        source.ahead().map(|ahead| Self::watch((module, log), ahead))
    }

    fn is_over(&self) -> bool {
        self.source.is_over()
    }

    fn is_ready(&self) -> bool {
        self.source.is_ready()
    }

    fn abandoned(&mut self, r: &mut Request) {
        call(r, self.module, |r| self.source.abandoned(r));
    }
}

struct WatchedFilter {
    module: &'static str,
    filter: Box<dyn HeaderFilter>,
}

impl HeaderFilter for WatchedFilter {
    fn wait(&self, r: &Request) -> Option<Wait> {
        self.filter.wait(r)
    }

    fn run(&self, r: &mut Request) -> Verdict {
        let before = r.out.filters.len();
        let verdict = call(r, self.module, |r| self.filter.run(r));
        for i in before..r.out.filters.len() {
            let filter = r.out.filters.remove(i);
            let watched = WatchedBodyFilter { module: self.module, filter };
            r.out.filters.insert(i, Box::new(watched));
        }
        verdict
    }

    fn in_subrequests(&self) -> bool {
        self.filter.in_subrequests()
    }
}

struct WatchedBodyFilter {
    module: &'static str,
    filter: Box<dyn BodyFilter>,
}

impl BodyFilter for WatchedBodyFilter {
    fn filter(&mut self, r: &mut Request, piece: Piece<'_>) -> FilterStep {
        let module = self.module;
        match call(r, module, |r| self.filter.filter(r, piece)) {
            FilterStep::Wait(future) => {
                FilterStep::Wait(Box::pin(Watched { module, log: log_of(r), future }))
            }
            step => step,
        }
    }

    fn takes_files(&self) -> bool {
        self.filter.takes_files()
    }

    fn is_coding(&self) -> bool {
        self.filter.is_coding()
    }
}
