//! The errors of a verification: OpenSSL's numbers and words, which nginx writes into its log
//! and into `$ssl_client_verify`.

macro_rules! errors {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// An error of verification.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Error {
            $(#[doc = $text] $name = $number,)*
        }

        impl Error {
            /// OpenSSL's text.
            pub fn text(self) -> &'static str {
                match self {
                    $(Error::$name => $text,)*
                }
            }
        }
    };
}

errors! {
    Unspecified = 1, "unspecified certificate verification error";
    NoIssuer = 2, "unable to get issuer certificate";
    NoRevocationList = 3, "unable to get certificate CRL";
    IssuerKey = 6, "unable to decode issuer public key";
    Signature = 7, "certificate signature failure";
    ListSignature = 8, "CRL signature failure";
    NotYetValid = 9, "certificate is not yet valid";
    Expired = 10, "certificate has expired";
    ListNotYetValid = 11, "CRL is not yet valid";
    ListExpired = 12, "CRL has expired";
    NotBeforeField = 13, "format error in certificate's notBefore field";
    NotAfterField = 14, "format error in certificate's notAfter field";
    LastUpdateField = 15, "format error in CRL's lastUpdate field";
    NextUpdateField = 16, "format error in CRL's nextUpdate field";
    SelfSigned = 18, "self-signed certificate";
    SelfSignedInChain = 19, "self-signed certificate in certificate chain";
    NoLocalIssuer = 20, "unable to get local issuer certificate";
    LeafSignature = 21, "unable to verify the first certificate";
    ChainTooLong = 22, "certificate chain too long";
    Revoked = 23, "certificate revoked";
    PathLength = 25, "path length constraint exceeded";
    Purpose = 26, "unsuitable certificate purpose";
    Untrusted = 27, "certificate not trusted";
    Rejected = 28, "certificate rejected";
    NoCertSign = 32, "key usage does not include certificate signing";
    CriticalExtension = 34, "unhandled critical extension";
    NoCrlSign = 35, "key usage does not include CRL signing";
    CriticalListExtension = 36, "unhandled critical CRL extension";
    InvalidNonCa = 37, "invalid non-CA certificate (has CA markings)";
    ProxyPathLength = 38, "proxy path length constraint exceeded";
    NoDigitalSignature = 39, "key usage does not include digital signature";
    ProxyCertificate = 40, "proxy certificates not allowed, please set the appropriate flag";
    ListScope = 44, "different CRL scope";
    UnnestedResource = 46, "RFC 3779 resource not subset of parent's resources";
    PermittedSubtree = 47, "permitted subtree violation";
    ExcludedSubtree = 48, "excluded subtree violation";
    SubtreeBounds = 49, "name constraints minimum and maximum not supported";
    ConstraintType = 51, "unsupported name constraint type";
    NameSyntax = 53, "unsupported or invalid name syntax";
    HostName = 62, "hostname mismatch";
    LeafKeyTooSmall = 66, "EE certificate key too weak";
    IssuerKeyTooSmall = 67, "CA certificate key too weak";
    WeakSignature = 68, "CA signature digest algorithm too weak";
    ProxySubject = 72, "proxy subject name violation";
    InvalidCa = 79, "invalid CA certificate";
}

impl Error {
    /// OpenSSL's number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Whether `ssl_verify_client optional_no_ca` lets it pass: only the trust is missing.
    pub fn is_optional(self) -> bool {
        matches!(
            self,
            Error::SelfSigned
                | Error::SelfSignedInChain
                | Error::NoLocalIssuer
                | Error::LeafSignature
                | Error::Untrusted
        )
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.text())
    }
}
