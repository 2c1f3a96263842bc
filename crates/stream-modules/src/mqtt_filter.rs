//! `mqtt`: the CONNECT message of an MQTT client is checked, and its names are replaced, before a
//! server gets it.

use std::rc::Rc;

use base::log::Level;
use conf::table::{Args, Contexts as C, Directive, directive};
use conf::template::Template;
use conf::value::{Bufs, set_bufs, set_flag, set_size};
use conf::{ConfError, Node};
use engine::Client;
use mem::Page;
use proto::mqtt::{self, Changes, Parsed, TooLong};
use stream::content::statuses;
use stream::module::{Preread, SS};
use stream::{Cx, Module, Pipeline, StreamSession, Verdict, View};

/// The module's table.
pub static MODULE: Module = Module::of::<MqttConf>("mqtt_filter", DIRECTIVES, install);

static DIRECTIVES: &[Directive<Cx>] = &[
    directive(
        "mqtt",
        SS,
        Args::FLAG,
        "off",
        "Serves MQTT: a session begins with a valid CONNECT message, or ends.",
        |cx, n| set_flag(&mut cx.loc::<MqttConf>().on, n),
    ),
    directive(
        "mqtt_buffers",
        SS,
        Args::T2,
        "100 1k",
        "The number and size of buffers for a CONNECT message; a longer one ends the session.",
        |cx, n| set_bufs(&mut cx.loc::<MqttConf>().buffers, n),
    ),
    directive(
        "mqtt_rewrite_buffer_size",
        C::STREAM_SERVER,
        Args::T1,
        "100k",
        "Obsolete, use mqtt_buffers: the maximum size of a CONNECT message with its new values.",
        set_rewrite_size,
    ),
    directive(
        "mqtt_set_connect",
        C::STREAM_SERVER,
        Args::T2,
        "",
        "Sets `clientid`, `username` or `password` of CONNECT; empty removes the last two.",
        set_connect,
    ),
];

/// The fields that can be set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    ClientId,
    Username,
    Password,
}

engine::settings! {
    struct MqttConf {
        on: Option<bool>,
        buffers: Option<Bufs>,
        rewrite_size: Option<usize>,
        values: Option<Vec<(Name, Template)>>,
    }
}

fn set_rewrite_size(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let m = "the \"mqtt_rewrite_buffer_size\" directive is obsolete, use \"mqtt_buffers\" instead";
    conf::warn(&n.name, m.to_owned());
    set_size(&mut cx.loc::<MqttConf>().rewrite_size, n)
}

fn set_connect(cx: &mut Cx, n: &Node) -> Result<(), ConfError> {
    let word = n.arg(0)?;
    let name = match word.bytes() {
        b"clientid" => Name::ClientId,
        b"username" => Name::Username,
        b"password" => Name::Password,
        _ => return Err(ConfError::at(word, format!("invalid field \"{}\"", word.lossy()))),
    };
    let value = cx.template(&n.args[1])?;
    let values = cx.loc::<MqttConf>().values.get_or_insert_default();
    if values.iter().any(|(known, _)| *known == name) {
        return Err(ConfError::at(word, format!("field \"{}\" is duplicate", word.lossy())));
    }
    values.push((name, value));
    Ok(())
}

/// What a server does with CONNECT messages.
struct Filter {
    values: Vec<(Name, Template)>,
    /// The most bytes of a message, as it comes and as it goes.
    max: usize,
    rewritten_max: usize,
}

fn install(view: &View<'_>, p: &mut Pipeline) -> Result<(), ConfError> {
    let conf = view.conf::<MqttConf>();
    if conf.on != Some(true) {
        return Ok(());
    }
    let Bufs { num, size } = conf.buffers.unwrap_or(Bufs { num: 100, size: 1024 });
    let max = num.saturating_mul(size);
    let rewritten_max = conf.rewrite_size.unwrap_or(max);
    let values = conf.values.clone().unwrap_or_default();
    let filter = Rc::new(Filter { values, max, rewritten_max });
    p.preread_max = p.preread_max.max(max);
    let whole = filter.clone();
    p.preread.push(Box::new(move |s, bytes| whole.wait(s, bytes)));
    p.set.push(Box::new(move |s| filter.rewrite(s)));
    Ok(())
}

impl Filter {
    /// Waits for the whole message.
    fn wait(&self, s: &mut StreamSession, bytes: &[u8]) -> Preread {
        if s.is_udp() {
            return refused(s, "a datagram");
        }
        match mqtt::connect(bytes) {
            Parsed::Incomplete(len) if len > self.max => {
                refused(s, "it is longer than \"mqtt_buffers\"")
            }
            Parsed::Incomplete(_) => Preread::More,
            Parsed::Malformed(reason) => refused(s, reason),
            Parsed::Connect(connect) if connect.message_len() > self.max => {
                refused(s, "it is longer than \"mqtt_buffers\"")
            }
            Parsed::Connect(_) => Preread::Done,
        }
    }

    /// Puts the values into the message.
    fn rewrite(&self, s: &mut StreamSession) -> Verdict {
        if self.values.is_empty() {
            return Verdict::Next;
        }
        let mut changes = Changes::default();
        for (name, template) in &self.values {
            let value = Some(s.eval(template).to_vec());
            match name {
                Name::ClientId => changes.client_id = value,
                Name::Username => changes.username = value,
                Name::Password => changes.password = value,
            }
        }
        let bytes = std::mem::take(&mut s.preread);
        let Parsed::Connect(connect) = mqtt::connect(bytes.filled()) else {
            return Verdict::Status(statuses::INTERNAL);
        };
        match connect.with(&changes) {
            Ok(mut message) if message.len() <= self.rewritten_max => {
                message.extend_from_slice(&bytes.filled()[connect.message_len()..]);
                s.preread = Page::copied(&message);
                Verdict::Next
            }
            Ok(_) | Err(TooLong) => {
                s.log(Level::Error, format_args!("MQTT CONNECT with its new values is too long"));
                Verdict::Status(statuses::BAD_REQUEST)
            }
        }
    }
}

fn refused(s: &StreamSession, reason: &str) -> Preread {
    s.log(Level::Info, format_args!("client sent invalid MQTT CONNECT: {reason}"));
    Preread::Status(statuses::BAD_REQUEST)
}
