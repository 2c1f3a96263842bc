//! The engine of `mail` blocks: a proxy of IMAP, POP3 and SMTP, which asks an authentication server
//! over HTTP to which mail server a client belongs.
//!
//! ```text
//!  accept ▶ PROXY header ▶ (TLS) ▶ dialogue ◀──────────┐ refused
//!                                    │ credentials     │
//!                                    └▶ auth_http ─────┤
//!                                          │ server    │
//!                                          └▶ login ▶ relay
//! ```
//!
//! The dialogues themselves are in `mail-proto`, which knows no sockets. The engine's modules are
//! in this crate, because no other engine shares them.
#![forbid(unsafe_code)]

mod accept;
mod auth_http;
pub mod build;
mod client;
mod client_host;
mod core_conf;
mod core_directives;
mod core_listen;
mod dialogue;
pub mod engine;
mod limit_auth;
pub mod module;
mod moved;
mod protocols;
mod proxy;
mod realip;
mod relay;
mod server;
mod session;
mod ssl;

pub use module::{Cx, Module};
pub use server::MailMain;
pub use session::MailSession;

/// The modules of `mail`, in their order.
pub static MODULES: module::Modules = &[
    &core_directives::MODULE,
    &ssl::MODULE,
    &protocols::IMAP,
    &protocols::POP3,
    &protocols::SMTP,
    &limit_auth::MODULE,
    &auth_http::MODULE,
    &proxy::MODULE,
    &realip::MODULE,
];
