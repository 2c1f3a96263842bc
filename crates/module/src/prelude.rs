//! The items that nearly every module uses: `use weir_module::prelude::*;`.

pub use crate::Bytes;
pub use crate::Module;
pub use crate::blocking::run_blocking;
pub use crate::config::{
    Args, Conf, ConfError, ConfType, Cx, Directive, EVERYWHERE, HTTP, LOCATION, Node, SERVERS,
    Scope, Template, Word, directive, value,
};
pub use crate::filter::{BodyFilter, Chain, FilterStep, HeaderFilter, Piece};
pub use crate::handler::{
    FieldId, LocView, Method, PhaseHandler, Pipeline, Request, Step, Verdict,
};
pub use crate::log::Level;
pub use crate::variable::VarDef;
