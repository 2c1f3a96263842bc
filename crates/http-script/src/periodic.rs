//! `js_periodic`: functions that run at intervals, without a client.

use std::rc::Rc;

use base::log::Level;
use http::HttpMain;
use http::request::Request;
use http::server::Server;
use http::server::location::Location;
use script_modules::settings::{Periodic, Periodics};
use script_modules::{periodic, share};

use ::script::Argument;

use crate::script::{Caller, Script};

/// Starts the functions of this worker.
pub(crate) fn start(main: &Rc<HttpMain>, worker: usize) {
    let (mut all, mut seen) = (Vec::new(), Vec::new());
    main.each_location(|server, location| {
        let here = location.confs.listed::<Periodics>();
        // A nested location shares the value of the one around.
        if seen.iter().any(|known| Rc::ptr_eq(known, &here)) {
            return;
        }
        seen.push(here.clone());
        for periodic in &here.0 {
            if periodic.runs_in(worker) {
                all.push((server.clone(), location.clone(), periodic.clone()));
            }
        }
    });
    for (server, location, periodic) in all {
        let main = main.clone();
        event::spawn(async move {
            let gate = main.life.gate.clone();
            let run = async |of: &Periodic| run(&main, &server, &location, of).await;
            periodic::at_intervals(periodic, gate, run).await;
        });
    }
}

/// One run. A worker that leaves does not wait for it.
async fn run(main: &Rc<HttpMain>, server: &Rc<Server>, location: &Rc<Location>, of: &Periodic) {
    let Some(mut r) = Request::without_client(main, server, location) else { return };
    let done = event::race(call(&mut r, of), main.life.gate.closed()).await;
    if done.is_second() {
        r.log(Level::Info, format_args!("js periodic was ended: the worker leaves"));
    }
    r.end_without_client();
}

async fn call(r: &mut Request, of: &Periodic) {
    share::time().await;
    let Ok(Some(script)) = Script::of(r) else { return };
    if script.call(r, Caller::Periodic, &of.function, &[Argument::Request]).is_err() {
        return;
    }
    while script.is_waiting() {
        if script.progress(r).await.is_err() {
            return;
        }
    }
}
