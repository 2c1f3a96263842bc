//! Sessions of IMAP, POP3 and SMTP.

#![allow(clippy::unwrap_used, clippy::panic)]

mod dovecot;
mod limit_auth;
mod mail_server;
mod sessions;
mod starttls;
mod tls;
