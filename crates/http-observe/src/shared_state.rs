//! The state of `shared_state`: a section of `stub_status json`, and a resource of the API.

use std::rc::Rc;

use base::json::Object;
use base::time::now_ms;
use fleet::{Counter, Fleet, Snapshot};
use http::module::Module;
use http::server::HttpMain;

/// The module's table. It has the name of the directive of the outermost level, whose arguments
/// may hold a password.
pub static MODULE: Module = Module {
    name: "shared_state",
    status: Some(section),
    secrets: &["shared_state"],
    ..Module::EMPTY
};

/// What the configuration shares, and how; `None` without `shared_state`.
pub(crate) fn fleet(main: &HttpMain) -> Option<Rc<Fleet>> {
    let parts = main.metrics.parts::<Fleet>();
    parts.into_iter().find(|fleet| fleet.settings().is_some())
}

fn section(main: &HttpMain, o: &mut Object<'_>) {
    if let Some(fleet) = fleet(main) {
        write(o, &fleet);
    }
}

/// Writes the members.
pub(crate) fn write(o: &mut Object<'_>, fleet: &Fleet) {
    let Snapshot { state, state_ms, lag_ms, round_us, peers, names, reason, counters } =
        fleet.status().snapshot(now_ms());
    o.text("state", state.name().as_bytes());
    o.number("state_ms", state_ms);
    if !reason.is_empty() {
        o.text("reason", reason.as_bytes());
    }
    if let Some(ms) = lag_ms {
        o.number("lag_ms", ms);
    }
    o.number("round_us", round_us);
    o.number("peers", peers);
    o.text("hosts", names.as_bytes());
    for (counter, n) in Counter::ALL.into_iter().zip(counters) {
        o.number(counter.name(), n);
    }
    o.list("zones", fleet.parts().iter(), |o, part| o.text("name", part.name().as_bytes()));
}
