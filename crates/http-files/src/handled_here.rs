//! Directives that only say that a module answers in a location (`flv`, `empty_gif`).

use conf::table::{Args, Contexts, Directive, directive};
use http::cx::Cx;
use http::module::Conf;

/// A directive without arguments in whose locations a module answers: it makes `T` the location's
/// own.
pub const fn handled_here<T: Conf>(name: &'static str, doc: &'static str) -> Directive<Cx> {
    directive(name, Contexts::LOCATION, Args::NONE, "", doc, |cx, _| {
        cx.loc::<T>();
        Ok(())
    })
}
