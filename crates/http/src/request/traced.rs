//! The notes of an explained request; see [`crate::explain`].

use std::fmt;

use base::log::{Level, lossy};

use super::Request;
use crate::module::Verdict;
use crate::server::location::Location;
use crate::trace::{Place, Step, Tried};

fn place(location: &Location) -> Place {
    let info = &location.info;
    let caseless = location.regex.as_ref().is_some_and(|regex| regex.is_caseless());
    let name = lossy(&info.name).into_owned();
    Place { kind: info.kind, caseless, name, at: info.at.clone() }
}

impl Request {
    /// Whether this is an explanation: nothing may be changed outside.
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.main.trace.get().is_some()
    }

    /// Notes a step, if this is an explanation.
    #[inline]
    pub(crate) fn note(&self, step: impl FnOnce(&Request) -> Step) {
        if let Some(trace) = self.main.trace.get() {
            trace.note(self.is_subrequest(), step(self));
        }
    }

    /// Notes the server that was chosen.
    pub(crate) fn note_server(&self) {
        self.note(|r| {
            let named = r.server.is_named(&r.target.host, r).unwrap_or(false);
            let host = r.head.host.is_some().then(|| lossy(&r.target.host).into_owned());
            let name = lossy(&r.server.name).into_owned();
            Step::Server { at: r.server.root.info.at.clone(), name, host, named }
        });
    }

    /// Notes the URI that the phases go on with.
    pub(crate) fn note_uri(&self) {
        self.note(|r| {
            let mark = if r.target.args.is_empty() { "" } else { "?" };
            Step::Uri(format!("{}{mark}{}", lossy(&r.target.uri), lossy(&r.target.args)))
        });
    }

    /// Notes a look at a location in the search.
    pub(crate) fn note_tried(&self, how: Tried, location: &Location) {
        self.note(|_| Step::Tried(how, place(location)));
    }

    /// Notes the location that was entered.
    pub(crate) fn note_entered(&self) {
        self.note(|r| Step::Entered(place(&r.loc)));
    }

    /// Notes a file that a directive looked for, and what came of it.
    #[inline]
    pub fn note_file(&self, by: &'static str, path: &[u8], found: impl FnOnce() -> String) {
        self.note(|_| Step::File(by, lossy(path).into_owned(), found()));
    }

    /// Notes a function of a script that a directive would have called.
    pub fn note_called(&self, directive: &'static str, function: &str) {
        self.note(|_| Step::Called(directive, function.to_owned()));
    }

    /// Takes a line for the error log. False: this is no explanation.
    pub(crate) fn note_log(&self, level: Level, message: fmt::Arguments<'_>) -> bool {
        if level < Level::Debug {
            self.note(|_| Step::Log(level, message.to_string()));
        }
        self.is_traced()
    }

    /// The end of an explanation, in the place of the content.
    pub fn end_explained(&mut self, step: Step) -> Verdict {
        self.note(|_| step);
        if self.is_subrequest() {
            // `auth_request` takes it for a permission.
            self.out.status = 204;
            return Verdict::Done;
        }
        Verdict::Close
    }
}
