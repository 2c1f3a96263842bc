//! Certificates by themselves: `acme_issuer`, `acme_certificate` and what follows from them
//! (docs/ACME.md). The protocol without I/O is `proto::acme`, keys are `tls::issue`'s.
//!
//! ```text
//!  acme process (one, beside the workers)              workers
//!  ┌───────────────────────────────────────┐   ┌──────────────────────────┐
//!  │ lock of the folder ─▶ leader, or not  │   │ $acme_certificate        │
//!  │ keep: when is a certificate due?      │   │ challenges by HTTP, ALPN │
//!  │ ordering ─▶ session ─▶ wire ─▶ server │   └────────────▲─────────────┘
//!  │ folder: keys, certificates, progress  │                │ looks when the version changed
//!  │ board ─▶ what workers see             │──▶ zone in shared memory
//!  └───────────────────────────────────────┘
//! ```
//!
//! The account's key is read by the acme process alone. A worker takes a certificate from the zone
//! when a handshake needs it, so a new one needs no reload and no message.
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
mod progress;
mod serving;
mod session;
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
