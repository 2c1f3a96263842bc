//! The two handlers.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use weir_module::blocking::{self, Pool, TaskError};
use weir_module::prelude::*;
use weir_module::timer;

use crate::conf::{HandlerConf, MysqlConf, Servers};
use crate::server::{Failure, Question, Server};

/// Puts a handler into a location where a directive asks for it.
pub fn install(l: &LocView, p: &mut Pipeline) -> Result<(), ConfError> {
    let Some(asked) = l.conf::<HandlerConf>().0.clone().filter(|_| l.set_here::<HandlerConf>())
    else {
        return Ok(());
    };
    let conf = l.conf::<MysqlConf>();
    if conf.query.is_none() {
        let m = format!("\"{}\" needs a \"mysql_query\"", asked.at.lossy());
        return Err(ConfError::at(&asked.at, m));
    }
    let server = conf.server(&l.conf::<Servers>());
    p.content_handler = Some(Box::new(Handler { server, conf, thread: asked.thread }));
    Ok(())
}

struct Handler {
    server: Rc<Server>,
    conf: Rc<MysqlConf>,
    /// `None`: on the loop.
    thread: Option<Option<Pool>>,
}

impl PhaseHandler for Handler {
    fn run<'a>(&'a self, r: &'a mut Request) -> Step<'a> {
        let Some(query) = &self.conf.query else { return Step::Now(Verdict::Status(500)) };
        let question = Question {
            text: query.text.clone(),
            parameters: query.has_parameters().then(|| query.parameters(r)),
            format: self.conf.format(),
            max_response: self.conf.max_response(),
            until: Instant::now() + Duration::from_millis(self.conf.timeout_ms()),
        };
        match &self.thread {
            None => Step::Now(self.on_the_loop(r, &question)),
            Some(pool) => Step::Wait(Box::pin(async move {
                let answer = self.on_a_thread(pool.clone(), question).await;
                self.answer(r, answer)
            })),
        }
    }
}

/// The outcome of a query.
enum Outcome {
    Answer(Vec<u8>),
    /// No connection came free in time, or too many wait for one.
    Crowded(&'static str),
    Failure(Failure),
    /// The pool is full, or the client library panicked.
    Task(TaskError),
}

impl Handler {
    fn on_the_loop(&self, r: &mut Request, question: &Question) -> Verdict {
        let outcome = match self.server.try_permit() {
            Some(_permit) => match self.server.connections().ask(question) {
                Ok(text) => Outcome::Answer(text),
                Err(failure) => Outcome::Failure(failure),
            },
            None => Outcome::Crowded("no connection is free"),
        };
        self.answer(r, outcome)
    }

    async fn on_a_thread(&self, pool: Option<Pool>, question: Question) -> Outcome {
        let left = || question.until.saturating_duration_since(Instant::now()).as_millis() as u64;
        let permit = match timer::timeout(left(), self.server.permit()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Outcome::Crowded("too many requests wait for a connection"),
            Err(_) => return Outcome::Crowded("no connection came free in time"),
        };
        let (left, connections) = (left(), self.server.connections());
        let told = Rc::new((Cell::new(None), timer::Notify::new()));
        let teller = told.clone();
        // A task of its own: the connection is in use until the thread is done with it, whether or
        // not the client waits so long.
        timer::spawn(async move {
            let task = move || connections.ask(&question);
            let asked = match pool {
                Some(pool) => pool.run(task).await,
                None => blocking::run_blocking(task).await,
            };
            drop(permit);
            teller.0.set(Some(asked));
            teller.1.notify_one();
        });
        match timer::timeout(left, told.1.notified()).await {
            Ok(()) => match told.0.take() {
                Some(Ok(Ok(text))) => Outcome::Answer(text),
                Some(Ok(Err(failure))) => Outcome::Failure(failure),
                Some(Err(task)) => Outcome::Task(task),
                None => Outcome::Failure(Failure::Late),
            },
            Err(_) => Outcome::Failure(Failure::Late),
        }
    }

    fn answer(&self, r: &mut Request, outcome: Outcome) -> Verdict {
        let name = self.server.name();
        match outcome {
            Outcome::Answer(text) => {
                r.respond(200, self.conf.format().content_type(), Bytes::from(text));
                Verdict::Done
            }
            Outcome::Crowded(why) => {
                r.log(Level::Error, format_args!("mysql {name}: {why}"));
                Verdict::Status(503)
            }
            Outcome::Failure(Failure::Late) => {
                r.log(Level::Error, format_args!("mysql {name} timed out"));
                Verdict::Status(504)
            }
            Outcome::Failure(Failure::Failed(why) | Failure::Refused(why)) => {
                r.log(Level::Error, format_args!("mysql {name}: {why}"));
                Verdict::Status(502)
            }
            // The pool logged it.
            Outcome::Task(TaskError::QueueFull) => Verdict::Status(503),
            Outcome::Task(_) => Verdict::Status(500),
        }
    }
}
