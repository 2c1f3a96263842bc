//! The module `upstream`: the directives of `upstream` blocks, whose setters are in the crate
//! `upstream`.

use std::io;
use std::rc::Rc;

use engine::settings::{ConfType, Scope};
use upstream::block::Block;
use upstream::{Upstreams, directives as set};

use crate::module::Module;
use crate::proxy::variables;
use crate::server::StreamMain;

/// The module's table.
pub static MODULE: Module = Module {
    name: "upstream",
    directives: &set::directives(),
    variables: variables::VARIABLES,
    confs: &[ConfType::of::<Upstreams>(Scope::Main), ConfType::of::<Block>(Scope::Server)],
    init: Some(set::make_groups),
    start: Some(start),
    ..Module::EMPTY
};

/// In a worker: starts the background tasks of upstreams.
fn start(main: &Rc<StreamMain>, seat: &engine::Seat) -> io::Result<()> {
    if let Some(all) = main.confs.get::<Upstreams>() {
        all.start(&main.life.gate, seat.slot);
    }
    Ok(())
}
