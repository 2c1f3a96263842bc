//! TLS: sessions without I/O, keys and certificates, their verification, and the settings' own
//! languages. The types of rustls stay inside of this crate.
#![forbid(unsafe_code)]
