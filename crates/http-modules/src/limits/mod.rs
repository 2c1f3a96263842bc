//! `limit_conn` and `limit_req` for requests.

pub mod conn;
pub mod req;

use common_modules::limits::{Counted, Refusing, Zones, map_zones};
use conf::table::Directive;
use http::cx::Cx;
use http::module::{Conf, ConfType, Install, Module, Scope, Verdict};
use http::request::Request;

/// The table of a module whose limits `L` count by records `R`.
const fn module<R: Counted + 'static, L: Conf>(
    name: &'static str,
    directives: &'static [Directive<Cx>],
    install: Install,
) -> Module {
    let confs =
        const { &[ConfType::of::<Zones<R>>(Scope::Main), ConfType::of::<L>(Scope::Location)] };
    let init = Some(map_zones::<Request, R> as fn(&mut Cx) -> _);
    Module { confs, init, ..Module::of::<L>(name, directives, install) }
}

/// The answer to a refused request; with `dry_run` it goes on.
fn refused(refusing: &Refusing) -> Verdict {
    match refusing.dry_run() {
        true => Verdict::Next,
        false => Verdict::Status(refusing.status()),
    }
}
