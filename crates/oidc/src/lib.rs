//! OpenID Connect for a relying party, without I/O: the authorization code flow with PKCE, tokens,
//! user info, sessions, and the three kinds of logout.
//!
//! ```text
//!  Login ── url() ──▶ provider ──▶ Callback ──▶ token request ──▶ Tokens ──▶ ID token verified
//!    └── sealed in a cookie, under a key from `state` ──▶ opened ┘                    │
//!                             cookie: SessionId ◀── sealed in the store ◀── Session ◀─┘
//! ```
//!
//! - **State.** `state` is 256 random bits. It is the key of the login's cookie, so that neither
//!   the cookie nor the URL alone tells nonce and PKCE verifier, and no memory of the server is
//!   used before a login succeeds.
//! - **Sessions.** The cookie has 256 random bits. The store has a hash of them as the key, and the
//!   session encrypted under a key from them: nobody reads tokens from the store alone.
//! - **Logouts of the provider** write a marker, and sessions older than it are over: no list of
//!   sessions has to be kept and changed by several processes at once.
//!
//! The caller brings random bytes, the time, documents of the provider, and the store. No error
//! text contains a token, a secret or anything else of a client, so that all may be logged.
#![forbid(unsafe_code)]

mod bits;
mod callback;
mod client;
pub mod cookie;
mod error;
mod form;
mod id_token;
mod login;
mod logout;
mod metadata;
mod return_to;
mod session;
mod token;
mod userinfo;

pub use callback::{Callback, Outcome};
pub use client::{Client, check_extra_args};
pub use error::Error;
pub use id_token::{Expected, LEEWAY_S};
pub use login::{LIFETIME_S as LOGIN_LIFETIME_S, Login};
pub use logout::{FrontChannel, LogoutToken, end_session_url, logout_token_of, marker_keys};
pub use metadata::{Metadata, is_https_url};
pub use return_to::return_to;
pub use session::{Session, SessionId, lock_key, used_state_key};
pub use token::{TokenRequest, Tokens};

#[cfg(test)]
mod tests;
