//! The cost of scripts: each hook with a short function, beside the same without a script; and a
//! location without scripts in a configuration that has some. With `--njs PATH`, an nginx that was
//! built with njs and QuickJS has the same.

use std::fs;
use std::time::Duration;

use crate::http_client::Client;
use crate::options::Options;
use crate::server::{Kind, Server, Setup, new_folder};
use crate::subject::{self, Subject};
use crate::{Outcome, wrk};

const CONFIG: &str = include_str!("../configs/js.conf");

const SCRIPT: &str = "\
function set(r) { return r.headersIn.host; }
function access(r) { if (r.method !== 'GET') r.return(405); }
function content(r) { r.return(200, 'hello'); }
function header(r) { r.headersOut['X-Script'] = 'yes'; }
function body(r, data, flags) { r.sendBuffer(data, flags); }
export default { set, access, content, header, body };
";

/// A place without a script and with one, which answer the same.
struct Pair {
    plain: Plan,
    script: Plan,
}

/// A server's location, the field that its responses have, and what the server is called.
struct Plan {
    weir: &'static str,
    nginx: &'static str,
    place: &'static str,
    field: Option<&'static str>,
}

const fn plan(weir: &'static str, nginx: &'static str, place: &'static str) -> Plan {
    Plan { weir, nginx, place, field: None }
}

const fn with_field(plan: Plan, field: &'static str) -> Plan {
    Plan { field: Some(field), ..plan }
}

const PAIRS: &[Pair] = &[
    Pair { plain: plan("file", "nginx-file", ""), script: plan("beside", "nginx-beside", "") },
    Pair {
        plain: with_field(plan("var", "nginx-var", "add_header X-Script $host;"), "X-Script"),
        script: with_field(
            plan("js_set", "nginx-js_set", "add_header X-Script $computed;"),
            "X-Script",
        ),
    },
    Pair {
        plain: plan("allow", "nginx-allow", "allow all;"),
        script: plan("js_access", "nginx-js_access", "js_access t.access;"),
    },
    Pair {
        plain: plan("return", "nginx-return", "return 200 hello;"),
        script: plan("js_content", "nginx-js_content", "js_content t.content;"),
    },
    Pair {
        plain: with_field(plan("header", "nginx-header", "add_header X-Script yes;"), "X-Script"),
        script: with_field(
            plan("js_header", "nginx-js_header", "js_header_filter t.header;"),
            "X-Script",
        ),
    },
    Pair {
        plain: plan("whole", "nginx-whole", "sendfile off;"),
        script: plan("js_body", "nginx-js_body", "js_body_filter t.body buffer_type=buffer;"),
    },
];

/// Runs the load.
pub fn run(options: &Options, _: &str) -> Outcome {
    let folder = new_folder()?;
    let script = folder.join("t.js");
    fs::write(&script, SCRIPT).map_err(|e| format!("{}: {e}", script.display()))?;
    let scripts = format!("js_import t from {}; js_set $computed t.set;", script.display());
    let nginx = options.njs.clone().map(|nginx| {
        let mut options = options.clone();
        options.nginx = nginx;
        options
    });
    let mut subjects = Vec::new();
    for Pair { plain, script } in PAIRS {
        for (plan, scripts) in [(plain, ""), (script, &*scripts)] {
            subjects.push(subject(options, Kind::Weir, plan, scripts)?.called(plan.weir));
            if let Some(options) = &nginx {
                let engine = format!("js_engine qjs; {scripts}");
                let scripts = if scripts.is_empty() { "" } else { &engine };
                subjects.push(subject(options, Kind::Nginx, plan, scripts)?.called(plan.nginx));
            }
        }
    }
    subject::measure(options, &mut subjects, |port, seconds| {
        let (connections, pipeline, close, files) = (64, false, false, None);
        let path = "/1k.txt";
        wrk::run(&wrk::Load { port, path, connections, seconds, pipeline, close, files })
    })?;
    subject::print(&subjects, "req");
    for Pair { plain, script } in PAIRS {
        println!("\n{} and the same without a script:", script.weir);
        subject::print_ratio(&subjects, "req", script.weir, plain.weir);
        if nginx.is_some() {
            subject::print_ratio(&subjects, "req", script.nginx, plain.nginx);
            subject::print_ratio(&subjects, "req", script.weir, script.nginx);
        }
    }
    let _ = fs::remove_dir_all(&folder);
    Ok(())
}

/// A server of a plan, whose response is what it should be.
fn subject(options: &Options, kind: Kind, plan: &Plan, scripts: &str) -> Outcome<Subject> {
    let fill = vec![("%PLACE%", plan.place.to_owned()), ("%SCRIPTS%", scripts.to_owned())];
    let setup = Setup { template: CONFIG, generation: 1, fill, ..Setup::default() };
    let server = Server::start(options, kind, &setup)?.0;
    let mut client = Client::new(server.port, None, Duration::from_secs(5));
    let answer = client.get_once("/1k.txt").map_err(|lost| lost.to_string())?;
    if answer.status != 200 || plan.field.is_some_and(|field| answer.field(field).is_none()) {
        return Err(format!("{} does not answer as it should: {}", plan.weir, answer.head));
    }
    Ok(Subject::server(server))
}
