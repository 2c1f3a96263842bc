//! `js_periodic`: functions that run at intervals, without a client.

use std::rc::Rc;

use base::log::Level;
use engine::Client;
use script_modules::settings::{Periodic, Periodics};
use script_modules::{periodic, share};
use stream::server::Server;
use stream::{StreamMain, StreamSession};

use crate::script::Script;

/// Starts the functions of this worker.
pub(crate) fn start(main: &Rc<StreamMain>, worker: usize) {
    for server in &main.servers {
        let here = server.confs.listed::<Periodics>();
        for of in here.0.iter().filter(|of| of.runs_in(worker)) {
            let (main, server, of) = (main.clone(), server.clone(), of.clone());
            event::spawn(async move {
                let gate = main.life.gate.clone();
                let run = async |of: &Periodic| run(&main, &server, of).await;
                periodic::at_intervals(of, gate, run).await;
            });
        }
    }
}

/// One run. A worker that leaves does not wait for it.
async fn run(main: &Rc<StreamMain>, server: &Rc<Server>, of: &Periodic) {
    let Some(mut s) = StreamSession::without_client(main, server) else { return };
    let Ok(Some(script)) = Script::new(&mut s, true) else { return };
    let done = event::race(call(&mut s, &script, of), main.life.gate.closed()).await;
    if done.is_second() {
        s.log(Level::Info, format_args!("js periodic was ended: the worker leaves"));
    }
    script.end(&mut s);
}

async fn call(s: &mut StreamSession, script: &Rc<Script>, of: &Periodic) {
    share::time().await;
    if script.call(s, &of.function).is_err() {
        return;
    }
    while script.is_waiting() {
        let next = script.job.ops.next().await;
        if script.go_on(s, next).is_err() {
            return;
        }
    }
}
