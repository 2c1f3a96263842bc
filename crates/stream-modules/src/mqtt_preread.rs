//! `mqtt_preread`: the names in the CONNECT message of an MQTT client, before a server is chosen.

use std::cell::OnceCell;

use common_modules::connection_vars::write_some;
use conf::ConfError;
use conf::table::{Args, Directive, directive};
use conf::value::set_flag;
use engine::Session;
use proto::mqtt::{self, Parsed};
use stream::module::{Preread, SS, VarDef};
use stream::{Cx, Module, Pipeline, StreamSession, View};

/// The module's table.
pub static MODULE: Module = Module {
    variables: VARIABLES,
    ..Module::of::<PrereadConf>("mqtt_preread", DIRECTIVES, install)
};

static DIRECTIVES: &[Directive<Cx>] = &[directive(
    "mqtt_preread",
    SS,
    Args::FLAG,
    "off",
    "Reads the CONNECT message of an MQTT client in the preread phase.",
    |cx, n| set_flag(&mut cx.loc::<PrereadConf>().on, n),
)];

static VARIABLES: &[VarDef] = &[
    VarDef::new("mqtt_preread_clientid", |s, out| {
        let seen = s.shared::<Seen>();
        write_some(out, seen.0.get().map(|names| &names.client_id[..]))
    }),
    VarDef::new("mqtt_preread_username", |s, out| {
        let seen = s.shared::<Seen>();
        write_some(out, seen.0.get().map(|names| &names.username[..]))
    }),
];

engine::settings! {
    struct PrereadConf {
        on: Option<bool>,
    }
}

/// The names in a session's message, once it was seen.
#[derive(Default)]
struct Seen(OnceCell<Names>);

struct Names {
    client_id: Vec<u8>,
    username: Vec<u8>,
}

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    if view.conf::<PrereadConf>().on == Some(true) {
        p.preread.push(Box::new(look));
    }
    Ok(())
}

fn look(s: &mut StreamSession, bytes: &[u8]) -> Preread {
    if s.is_udp() {
        return Preread::Done;
    }
    match mqtt::connect(bytes) {
        Parsed::Incomplete(_) => Preread::More,
        // Whatever it is, it is passed on.
        Parsed::Malformed(_) => Preread::Done,
        Parsed::Connect(connect) => {
            let client_id = connect.client_id.to_vec();
            let username = connect.username.unwrap_or_default().to_vec();
            let _ = s.shared::<Seen>().0.set(Names { client_id, username });
            Preread::Done
        }
    }
}
