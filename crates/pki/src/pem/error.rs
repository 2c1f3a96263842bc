//! Errors in the words of nginx and OpenSSL 3.0.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::Path;

pub(super) const NO_CERTIFICATE: &str =
    "error:0480006C:PEM routines::no start line:Expecting: TRUSTED CERTIFICATE";
pub(super) const BAD_END_LINE: &str = "error:04800066:PEM routines::bad end line";
pub(super) const BAD_BASE64: &str = "error:04800064:PEM routines::bad base64 decode";
pub(super) const NO_X509: &str = "error:068000A8:asn1 encoding routines::wrong tag \
    error:0688010A:asn1 encoding routines::nested asn1 error:Type=X509 \
    error:0488000D:PEM routines::ASN1 lib";
pub(super) const NO_KEY: &str = "error:1E08010C:DECODER routines::unsupported:\
    No supported data to decode. Input type: PEM";
pub(super) const BAD_PASSWORD_READ: &str = "error:04800068:PEM routines::bad password read";
pub(super) const BAD_IV: &str = "error:04800067:PEM routines::bad iv chars";
pub(super) const UNSUPPORTED_ENCRYPTION: &str =
    "error:04800072:PEM routines::unsupported encryption";
pub(super) const BAD_DECRYPT: &str = "error:1C800064:Provider routines::bad decrypt \
    error:04800065:PEM routines::bad decrypt";
pub(super) const MAYBE_WRONG_PASSWORD: &str = "error:1C800064:Provider routines::bad decrypt \
    error:11800074:PKCS12 routines::pkcs12 cipherfinal error:maybe wrong password";
pub(super) const UNKNOWN_ALGORITHM: &str =
    "error:11800075:PKCS12 routines::unknown digest algorithm";

/// Why a certificate or a key cannot be had. The text goes behind nginx's
/// `cannot load certificate "…": `.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    function: &'static str,
    reason: Cow<'static, str>,
}

impl Error {
    pub(super) fn new(function: &'static str, reason: &'static str) -> Error {
        Error { function, reason: Cow::Borrowed(reason) }
    }

    /// Without a reason of the library.
    pub(super) fn plain(text: &'static str) -> Error {
        Error { function: text, reason: Cow::Borrowed("") }
    }

    /// A file that cannot be opened.
    pub(super) fn file(path: &Path, error: &io::Error) -> Error {
        const ENXIO: i32 = 6;
        let number = error.raw_os_error().unwrap_or_default();
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        let missing = error.kind() == io::ErrorKind::NotFound || number == ENXIO;
        let second = if missing {
            "10000080:BIO routines::no such file"
        } else {
            "10080002:BIO routines::system lib"
        };
        let reason = format!(
            "error:{:08X}:system library::{text}:calling fopen({}, r) error:{second}",
            0x8000_0000 | i64::from(number),
            path.display()
        );
        Error { function: "BIO_new_file()", reason: Cow::Owned(reason) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.reason {
            "" => f.write_str(self.function),
            reason => write!(f, "{} failed (SSL: {reason})", self.function),
        }
    }
}

impl std::error::Error for Error {}
