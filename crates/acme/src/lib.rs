//! Certificates by ACME: `acme_issuer`, `acme_certificate` and related directives (docs/ACME.md).
//! The protocol without I/O is `proto::acme`, keys are made by `pki::issue`.
//!
//! ```text
//!  acme process (one, beside the workers)              workers
//!  ┌───────────────────────────────────────┐   ┌──────────────────────────┐
//!  │ lock of the folder ─▶ leader, or not  │   │ $acme_certificate        │
//!  │ keep: when is a certificate due?      │   │ challenges by HTTP, ALPN │
//!  │ ordering ─▶ session ─▶ wire ─▶ server │   └────────────▲─────────────┘
//!  │ folder: keys, certificates, progress  │                │ read when the version changed
//!  │ board ─▶ what workers see             │──▶ zone in shared memory
//!  └───────────────────────────────────────┘
//! ```
//!
//! The crate is a module of HTTP with work for a process beside the workers
//! (`engine::Module::helps`).
//!
//! - **Crash safety.** The process keeps everything on disk ([`folder`]) and takes one step of an
//!   order after the other, four orders at a time. Each step can be repeated, so that a kill at any
//!   point loses nothing. The kernel ends the process with its master: an orphan would keep the
//!   lock that decides which of the hosts sharing a folder orders.
//! - **Several servers** share a folder on a file system, or a copy of it each, which the engine of
//!   `shared_state` keeps the same ([`shared`]). One of them leads.
//! - **Workers** read one text in shared memory ([`zone`]), which is replaced as a whole. A
//!   handshake compares its version, one word, and takes the text only when that has changed. So a
//!   new certificate needs no reload and no message.
//! - **The account's key** never stays in the master's memory. The configuration's check reads the
//!   file into memory that is overwritten; the process reads it again before it drops its
//!   privileges (`engine::Engine::prepare_help`). Workers never have it.
//! - **Requests** go through `upstream::http_client`, with TLS by `upstream::ssl`.
#![forbid(unsafe_code)]

mod account;
mod board;
mod challenges;
mod directives;
mod folder;
mod helper;
mod issuer;
mod keep;
mod ordering;
mod program;
mod progress;
mod sealer;
mod serving;
mod session;
mod shared;
mod wire;
mod zone;

use engine::module::Helping;
use http::module::{ConfType, Module, Scope};

/// The module's table.
pub static MODULE: Module = Module {
    name: "acme",
    directives: directives::DIRECTIVES,
    variables: serving::VARIABLES,
    confs: &[
        ConfType::of::<directives::Acme>(Scope::Main),
        ConfType::of::<directives::Wanted>(Scope::Server),
    ],
    init: Some(directives::init),
    install: Some(serving::install),
    start: Some(serving::start),
    status: Some(serving::status),
    helps: &[Helping {
        helper: engine::Helper::Acme,
        wants: helper::wants,
        prepare: helper::prepare,
        run: helper::run,
    }],
    secrets: &["external_account_key"],
    ..Module::EMPTY
};
