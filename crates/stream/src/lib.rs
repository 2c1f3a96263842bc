//! The engine of `stream` blocks: listeners, sessions over TCP and UDP, their phases, and the
//! proxy.
//!
//! Modules are elsewhere; the engine knows them only by their tables ([`module::Module`]).
//!
//! ```text
//!  accept ▶ PROXY header ▶ post-accept ▶ preaccess ▶ access ▶ TLS ▶ preread ▶ content ▶ log
//! ```
//!
//! A session ([`session`]) is one client's connection with its variables, its log and its server.
//! Its task ([`accept`]) reads the PROXY protocol header, runs the phases in nginx's order
//! ([`phases`]), then the *content* that the server's directive has installed: the proxy
//! ([`proxy`]), `return`, or another module's. Handlers of phases are functions that return a
//! verdict. Handlers of the preread phase inspect the first bytes and may ask for more. TLS
//! ([`ssl`]) and `ssl_preread` switch the session to the server that the client's hello names, so
//! the handlers after them are the chosen server's. Sessions over UDP are in [`udp`].
//!
//! A handler of the access or preread phase may also wait, and a server may have a filter of the
//! bytes that its proxy relays ([`module::BytesFilter`]): both serve scripts. A filtered session
//! has a task over UDP as well, and does not move to other processes.
//!
//! `pass` gives a connection to another listening socket of the configuration, of any engine
//! (`common_modules::passing`).
//!
//! The crate names nothing of HTTP. What both engines need exists once: TLS handshakes
//! (`common_modules::ssl::handshake`), variables of connections
//! (`common_modules::connection_vars`), PROXY protocol headers (`net::proxy_header`) and the
//! directives of TLS to servers (`upstream::ssl_directives`).
#![forbid(unsafe_code)]

mod accept;
pub mod build;
pub mod content;
pub mod core_conf;
pub mod core_directives;
mod core_listen;
mod core_vars;
mod counted;
pub mod engine;
pub mod module;
pub mod phases;
pub mod proxy;
pub mod server;
pub mod session;
pub mod ssl;
pub mod status_zone;
pub mod udp;
pub mod upstreams;

pub use module::{Cx, Module, Pipeline, Verdict, View};
pub use server::StreamMain;
pub use session::StreamSession;
