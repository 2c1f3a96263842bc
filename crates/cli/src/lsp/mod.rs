//! `weir lsp`: a language server for editors over standard input and output. It reports faults,
//! completes directives by their context, documents them, finds and renames groups and variables,
//! formats texts and offers fixes.

mod changes;
mod document;
mod faults;
mod frames;
mod project;
mod rename;
mod scan;
mod symbols;
mod words;

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use bytes::Bytes;
use clap::ArgMatches;
use serde_json::{Value, json};
use server::typed::Typed;
use server::{added, directives, engines};

use crate::declared::{Command, PLAIN, Run};
use crate::error::Error;
use crate::line;

use document::Document;
use faults::Checker;
use frames::Frame;
use project::{Unsaved, View};
use rename::Refusal;
use words::Facts;

pub(crate) use document::{Identity, identity};

/// Errors of JSON-RPC and LSP.
const PARSE_ERROR: i32 = -32700;
const INVALID_REQUEST: i32 = -32600;
const METHOD_NOT_FOUND: i32 = -32601;
const NOT_INITIALIZED: i32 = -32002;
const REQUEST_FAILED: i32 = -32803;

/// `weir lsp`
pub(crate) const COMMAND: Command = Command {
    name: "lsp",
    doc: "run a language server for editors",
    about: "For editors, which start it and talk to it over standard input and output (Language \
            Server Protocol): errors while you type, completion, documentation, definitions, \
            uses, renaming, formatting, fixes. \
            docs/EDITORS.md shows how to set up an editor.",
    args: || {
        let stdio = line::option("stdio", "Use standard input and output, as it does anyway");
        [stdio].into_iter().chain(line::switches("cpg")).collect()
    },
    exit: &[("0", "the editor ended it"), ("1", "the connection ended, or failed")],
    examples: &[("weir lsp -c /etc/nginx/nginx.conf", "For a project with this main file.")],
    run: Run::Parsed(run),
    ..PLAIN
};

fn run(matches: &ArgMatches) -> ExitCode {
    let typed = match line::typed(matches) {
        Ok(typed) => typed,
        Err(error) => return error.report("lsp", 1),
    };
    let mut server = Server::new(typed);
    match server.serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) if server.state == State::Down => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(e) => Error::system(e.to_string()).report("lsp", 1),
    }
}

/// The stages of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before `initialize`.
    New,
    Up,
    /// After `shutdown`.
    Down,
}

struct Server {
    typed: Typed,
    state: State,
    documents: Vec<Document>,
    facts: Facts,
    checker: Checker,
    /// Texts whose diagnostics the editor has.
    told: HashSet<String>,
    /// Texts have changed since the last diagnostics.
    changed: bool,
    /// One of them was opened or written.
    saved: bool,
}

impl Server {
    fn new(typed: Typed) -> Server {
        let http = added::modules().iter().flat_map(|module| module.variables);
        let http = http.map(|variable| variable.name);
        let mut variables: Vec<_> = http.chain(engines::stream_variables()).collect();
        variables.sort_unstable();
        variables.dedup();
        let facts = Facts { entries: directives::entries(), variables };
        Server {
            typed,
            state: State::New,
            documents: Vec::new(),
            facts,
            checker: Checker::default(),
            told: HashSet::new(),
            changed: false,
            saved: false,
        }
    }

    fn serve(&mut self, from: &mut impl BufRead, to: &mut impl Write) -> io::Result<()> {
        loop {
            let message = match frames::read(from)? {
                Frame::Message(message) => message,
                Frame::Malformed(why) => {
                    frames::write(to, &failure(&Value::Null, PARSE_ERROR, &why))?;
                    continue;
                }
                Frame::End => return Ok(()),
            };
            let Some(method) = message.get("method").and_then(Value::as_str) else {
                // An answer of the editor's has no method, and nothing was asked.
                if message.get("result").is_none() && message.get("error").is_none() {
                    let id = message.get("id").unwrap_or(&Value::Null);
                    frames::write(to, &failure(id, INVALID_REQUEST, "a message has no method"))?;
                }
                continue;
            };
            if method == "exit" {
                return Ok(());
            }
            let none = Value::Null;
            let params = message.get("params").unwrap_or(&none);
            match message.get("id") {
                Some(id) => {
                    let answer = self.request(method, params);
                    let answer = match answer {
                        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                        Err((code, why)) => failure(id, code, &why),
                    };
                    frames::write(to, &answer)?;
                }
                None => self.notice(method, params),
            }
            self.tell(to)?;
        }
    }

    fn request(&mut self, method: &str, params: &Value) -> Result<Value, (i32, String)> {
        match (self.state, method) {
            (State::New, "initialize") => {
                self.state = State::Up;
                return Ok(abilities());
            }
            (State::New, _) => {
                return Err((NOT_INITIALIZED, "\"initialize\" comes first".to_owned()));
            }
            (State::Down, _) => {
                return Err((INVALID_REQUEST, "\"exit\" alone may follow".to_owned()));
            }
            (State::Up, _) => {}
        }
        match method {
            "shutdown" => {
                self.state = State::Down;
                Ok(Value::Null)
            }
            "textDocument/completion" => Ok(self.at(params, |view, facts, offset| {
                json!({"isIncomplete": false, "items": words::complete(view, facts, offset)})
            })),
            "textDocument/hover" => Ok(self.at(params, |view, facts, offset| {
                let text = words::hover(view, facts, offset);
                let markdown = |text| json!({"contents": {"kind": "markdown", "value": text}});
                text.map_or(Value::Null, markdown)
            })),
            "textDocument/definition" => {
                Ok(self.at(params, |view, _, offset| json!(words::define(view, offset))))
            }
            "textDocument/documentSymbol" => {
                let document = self.index(params).map(|at| &self.documents[at]);
                Ok(document.map_or(Value::Null, |document| symbols::outline(&document.text)))
            }
            "textDocument/formatting" => {
                let document = self.index(params).map(|at| &self.documents[at]);
                Ok(document.map_or(Value::Null, changes::format))
            }
            "textDocument/codeAction" => Ok(self.actions(params)),
            "textDocument/references" => Ok(self.at(params, |view, _, offset| {
                rename::references(&self.documents, view, offset)
            })),
            "textDocument/prepareRename" => {
                self.try_at(params, |view, offset| rename::prepare(view, &self.facts, offset))
            }
            "textDocument/rename" => {
                let new = params.get("newName").and_then(Value::as_str).unwrap_or_default();
                self.try_at(params, |view, offset| {
                    rename::rename(&self.documents, view, &self.facts, offset, new)
                })
            }
            _ => Err((METHOD_NOT_FOUND, format!("\"{method}\" is not known"))),
        }
    }

    /// The answer to a question about a place of a text; null for one that is not open.
    fn at(&self, params: &Value, answer: impl Fn(&View<'_>, &Facts, usize) -> Value) -> Value {
        let Some(document) = self.index(params).and_then(|at| self.documents.get(at)) else {
            return Value::Null;
        };
        let offset = document.offset(params.get("position").unwrap_or(&Value::Null));
        let view = View::new(document, &self.typed, &self.unsaved());
        answer(&view, &self.facts, offset)
    }

    /// The same for a question that may be refused, with the reason.
    fn try_at(
        &self,
        params: &Value,
        answer: impl Fn(&View<'_>, usize) -> Result<Value, Refusal>,
    ) -> Result<Value, (i32, String)> {
        let Some(document) = self.index(params).map(|at| &self.documents[at]) else {
            return Ok(Value::Null);
        };
        let offset = document.offset(params.get("position").unwrap_or(&Value::Null));
        let view = View::new(document, &self.typed, &self.unsaved());
        answer(&view, offset).map_err(|why| (REQUEST_FAILED, why.to_string()))
    }

    /// The changes that the editor may offer for a part of a text.
    fn actions(&self, params: &Value) -> Value {
        let Some(document) = self.index(params).map(|at| &self.documents[at]) else {
            return Value::Null;
        };
        let end = |name: &str| {
            let part = params.get("range").and_then(|range| range.get(name));
            document.offset(part.unwrap_or(&Value::Null))
        };
        let view = View::new(document, &self.typed, &self.unsaved());
        changes::actions(&self.documents, &view, end("start"), end("end"))
    }

    fn index(&self, params: &Value) -> Option<usize> {
        let uri = params.get("textDocument")?.get("uri")?.as_str()?;
        self.documents.iter().position(|document| document.uri == uri)
    }

    fn notice(&mut self, method: &str, params: &Value) {
        if self.state != State::Up {
            return;
        }
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        match method {
            "textDocument/didOpen" => {
                let document = params.get("textDocument");
                let of = |name| text(document.and_then(|document| document.get(name)));
                if let (Some(uri), Some(content)) = (of("uri"), of("text")) {
                    self.documents.retain(|document| document.uri != uri);
                    self.documents.push(Document::new(&uri, &content));
                    (self.changed, self.saved) = (true, true);
                }
            }
            "textDocument/didChange" => {
                // Whole texts: no other synchronization is offered.
                let changes = params.get("contentChanges").and_then(Value::as_array);
                let last = changes.and_then(|changes| text(changes.last()?.get("text")));
                if let (Some(at), Some(content)) = (self.index(params), last) {
                    self.documents[at].text = content;
                    self.changed = true;
                }
            }
            "textDocument/didSave" => (self.changed, self.saved) = (true, true),
            "textDocument/didClose" => {
                if let Some(at) = self.index(params) {
                    self.documents.remove(at);
                    (self.changed, self.saved) = (true, true);
                }
            }
            _ => {}
        }
    }

    /// The editor's texts in the place of those on disk.
    fn unsaved(&self) -> Unsaved {
        let of = |document: &Document| {
            let text = Bytes::copy_from_slice(document.text.as_bytes());
            Some((document.identity()?, text))
        };
        self.documents.iter().filter_map(of).collect()
    }

    /// Tells the editor of faults, after changes.
    fn tell(&mut self, to: &mut impl Write) -> io::Result<()> {
        if !self.changed {
            return Ok(());
        }
        let unsaved = self.unsaved();
        let views: Vec<View<'_>> =
            self.documents.iter().map(|d| View::new(d, &self.typed, &unsaved)).collect();
        let published = self.checker.publish(&self.documents, &views, &unsaved, self.saved);
        (self.changed, self.saved) = (false, false);
        let gone = self.told.iter().filter(|uri| !published.contains_key(*uri));
        for uri in gone {
            frames::write(to, &diagnostics(uri, &[]))?;
        }
        for (uri, list) in &published {
            frames::write(to, &diagnostics(uri, list))?;
        }
        self.told = published.into_keys().collect();
        Ok(())
    }
}

fn diagnostics(uri: &str, list: &[Value]) -> Value {
    json!({
        "jsonrpc": "2.0",
        "method": "textDocument/publishDiagnostics",
        "params": {"uri": uri, "diagnostics": list},
    })
}

fn failure(id: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

fn abilities() -> Value {
    json!({
        "capabilities": {
            "positionEncoding": "utf-16",
            "textDocumentSync": {"openClose": true, "change": 1, "save": true},
            "completionProvider": {"triggerCharacters": ["$", "@"]},
            "hoverProvider": true,
            "definitionProvider": true,
            "referencesProvider": true,
            "renameProvider": {"prepareProvider": true},
            "documentSymbolProvider": true,
            "documentFormattingProvider": true,
            "codeActionProvider": {"codeActionKinds": ["quickfix", "source.fixAll"]},
        },
        "serverInfo": {"name": "weir lsp", "version": server::VERSION},
    })
}
