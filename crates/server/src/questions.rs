//! The questions that the master answers at its control socket. **A question is added to
//! [`QUESTIONS`].**

use std::ops::ControlFlow;
use std::path::Path;

use crate::control::{Answer, ClientId, Status};
use crate::live;
use crate::master::{End, Master};

struct Question {
    name: &'static str,
    /// Answers it; `None`: the client gets its answer later. In a child that was just forked on
    /// the way, everything is left by `Break`.
    answer: fn(&mut Master, client: ClientId, arguments: &str) -> ControlFlow<End, Option<Answer>>,
}

/// The answer is known.
fn known(answer: Answer) -> ControlFlow<End, Option<Answer>> {
    ControlFlow::Continue(Some(answer))
}

/// All questions.
const QUESTIONS: &[Question] = &[
    // The server, its file, and the generation of its configuration.
    Question { name: "status", answer: |master, _, _| known(status(master)) },
    // The text of the running configuration, as it was read, secrets included: each file as a line
    // `LENGTH PATH`, its bytes and a line break.
    Question { name: "config", answer: |master, _, _| known(config(master)) },
    // The counters as they are now.
    Question { name: "top", answer: |master, _, _| known(live::top(master)) },
    // Slow and failed requests.
    Question { name: "slow", answer: |master, _, rest| known(live::slow(master, rest)) },
    // Logs some clients in full for a while.
    Question { name: "debug", answer: |master, _, rest| known(live::debug(master, rest)) },
    // Reads the configuration again, as HUP does; answered when connections have moved.
    Question { name: "reload", answer: |master, client, _| master.reload_for_client(client) },
];

impl Master {
    /// Answers a question of a client.
    pub fn question(&mut self, client: ClientId, question: &str) -> ControlFlow<End> {
        let (name, arguments) = question.split_once(' ').unwrap_or((question, ""));
        let answer = match QUESTIONS.iter().find(|q| q.name == name) {
            Some(question) => (question.answer)(self, client, arguments)?,
            None => Some(Answer::new(Status::Unknown)),
        };
        if let Some(answer) = answer {
            self.control.answer(client, &answer);
        }
        ControlFlow::Continue(())
    }
}

fn status(master: &Master) -> Answer {
    let paths = &master.loader.paths;
    Answer::new(Status::Ok)
        .field("version", crate::VERSION)
        .field("pid", std::process::id())
        .field("file", absolute(&paths.conf_file).display())
        .field("generation", master.generation())
        .field("workers", master.worker_count())
}

/// A path of the command line from the folder that the server was started in.
fn absolute(path: &Path) -> std::path::PathBuf {
    std::env::current_dir().map_or_else(|_| path.to_owned(), |folder| folder.join(path))
}

fn config(master: &Master) -> Answer {
    let mut answer = Answer::new(Status::Ok);
    for file in &master.cycle.files {
        let head = format!("{} {}\n", file.bytes.len(), file.path.display());
        answer.body.extend_from_slice(head.as_bytes());
        answer.body.extend_from_slice(&file.bytes);
        answer.body.push(b'\n');
    }
    answer
}
