//! The HTTP modules that find out who sends a request, one file or folder each: passwords
//! (`auth_basic`, and `auth_ldap` with a directory), tokens (`auth_jwt`), sign-in at a provider
//! (`auth_oidc`), questions to another server (`auth_request`), what all of them found
//! (`auth_require`), and a limit on those who guess (`limit_auth`).
//!
//! Tokens, the protocol of sign-in and LDAP's messages are in the crates `jose`, `oidc` and
//! `proto`, which do no I/O. The order of these modules among all is in `http-modules`.
#![forbid(unsafe_code)]

pub mod auth_basic;
pub mod auth_jwt;
pub mod auth_ldap;
pub mod auth_oidc;
pub mod auth_request;
pub mod auth_require;
pub mod limit_auth;
