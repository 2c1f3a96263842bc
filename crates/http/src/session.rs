//! A request as the crate `engine` sees it: with variables, captures and a log.

use std::fmt;
use std::rc::Rc;

use base::log::Log;
use common_modules::ssl::Established;
use conf::table::Contexts;
use engine::Stats;
use engine::regex::Captures;
use engine::settings::ConfSet;
use engine::vars::{Values, Variables};
use http_wire::h1::FieldId;

use crate::request::Request;
use crate::server::HttpMain;

impl common_modules::ssl::Secured for Request {
    fn established(&self) -> Option<&Established> {
        self.c().tls.get().map(|tls| &tls.session)
    }
}

impl engine::Session for Request {
    const BLOCK: Contexts = Contexts::HTTP;
    const SERVER: Contexts = Contexts::SERVER;
    const UPSTREAM: Contexts = Contexts::UPSTREAM;

    type Block = crate::cx::Block;
    type Place = crate::server::location::LocationInfo;
    type Pipeline = crate::module::Pipeline;
    type Main = HttpMain;

    fn variables(&self) -> &Rc<Variables<Request>> {
        &self.main.vars
    }

    fn values(&self) -> &Values {
        &self.state.values
    }

    fn values_mut(&mut self) -> &mut Values {
        &mut self.state.values
    }

    fn captures(&self) -> &Captures {
        &self.state.captures
    }

    fn captures_mut(&mut self) -> &mut Captures {
        &mut self.state.captures
    }

    fn confs(&self) -> &ConfSet {
        &self.loc.confs
    }

    fn shared<T: Default + 'static>(&mut self) -> Rc<T> {
        Request::shared(self)
    }

    fn stats(&self) -> &Stats {
        &self.main.stats
    }

    fn metrics(&self) -> &Rc<engine::Metrics> {
        &self.main.metrics
    }

    fn forwarded_for(&self) -> Vec<&[u8]> {
        let buf = self.head_bytes();
        self.head.fields.all(FieldId::XForwardedFor).map(|field| field.value.of(buf)).collect()
    }

    fn debug(&self, message: fmt::Arguments<'_>) {
        Request::debug(self, message);
    }

    fn error_log(&self) -> &Log {
        Request::error_log(self)
    }

    fn connection(&self) -> u64 {
        self.c().number
    }

    fn warns_of_uninitialized(&self) -> bool {
        self.loc.core.uninitialized_variable_warn
    }
}
