//! Object identifiers: those that the code knows, and the short names of attributes in names.

use super::der;

/// The content of the identifier's encoding.
pub(crate) type Oid = &'static [u8];

pub(crate) const COMMON_NAME: Oid = &[0x55, 4, 3];
pub(crate) const EMAIL_ADDRESS: Oid = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1];

pub(crate) const SUBJECT_KEY_ID: Oid = &[0x55, 0x1d, 14];
pub(crate) const KEY_USAGE: Oid = &[0x55, 0x1d, 15];
pub(crate) const SUBJECT_ALT_NAME: Oid = &[0x55, 0x1d, 17];
pub(crate) const ISSUER_ALT_NAME: Oid = &[0x55, 0x1d, 18];
pub(crate) const BASIC_CONSTRAINTS: Oid = &[0x55, 0x1d, 19];
pub(crate) const CRL_NUMBER: Oid = &[0x55, 0x1d, 20];
pub(crate) const REASON_CODE: Oid = &[0x55, 0x1d, 21];
pub(crate) const DELTA_CRL: Oid = &[0x55, 0x1d, 27];
pub(crate) const ISSUING_DISTRIBUTION_POINT: Oid = &[0x55, 0x1d, 28];
pub(crate) const CERTIFICATE_ISSUER: Oid = &[0x55, 0x1d, 29];
pub(crate) const NAME_CONSTRAINTS: Oid = &[0x55, 0x1d, 30];
pub(crate) const CRL_DISTRIBUTION_POINTS: Oid = &[0x55, 0x1d, 31];
pub(crate) const CERTIFICATE_POLICIES: Oid = &[0x55, 0x1d, 32];
pub(crate) const POLICY_MAPPINGS: Oid = &[0x55, 0x1d, 33];
pub(crate) const AUTHORITY_KEY_ID: Oid = &[0x55, 0x1d, 35];
pub(crate) const POLICY_CONSTRAINTS: Oid = &[0x55, 0x1d, 36];
pub(crate) const EXTENDED_KEY_USAGE: Oid = &[0x55, 0x1d, 37];
pub(crate) const INHIBIT_ANY_POLICY: Oid = &[0x55, 0x1d, 54];
pub(crate) const AUTHORITY_INFO_ACCESS: Oid = &[0x2b, 6, 1, 5, 5, 7, 1, 1];
pub(crate) const IP_RESOURCES: Oid = &[0x2b, 6, 1, 5, 5, 7, 1, 7];
pub(crate) const AS_RESOURCES: Oid = &[0x2b, 6, 1, 5, 5, 7, 1, 8];
pub(crate) const PROXY_CERT_INFO: Oid = &[0x2b, 6, 1, 5, 5, 7, 1, 14];
pub(crate) const TLS_FEATURE: Oid = &[0x2b, 6, 1, 5, 5, 7, 1, 24];
pub(crate) const OCSP: Oid = &[0x2b, 6, 1, 5, 5, 7, 48, 1];
pub(crate) const OCSP_NO_CHECK: Oid = &[0x2b, 6, 1, 5, 5, 7, 48, 1, 5];
pub(crate) const NETSCAPE_CERT_TYPE: Oid = &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 1, 1];
pub(crate) const SMTP_UTF8_MAILBOX: Oid = &[0x2b, 6, 1, 5, 5, 7, 8, 9];

pub(crate) const ANY_USAGE: Oid = &[0x55, 0x1d, 37, 0];
pub(crate) const SERVER_AUTH: Oid = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
pub(crate) const CLIENT_AUTH: Oid = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
pub(crate) const OCSP_SIGNING: Oid = &[0x2b, 6, 1, 5, 5, 7, 3, 9];
pub(crate) const MS_SGC: Oid = &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 3];
pub(crate) const NS_SGC: Oid = &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1];

pub(crate) const RSA_ENCRYPTION: Oid = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
pub(crate) const RSA_PSS: Oid = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];
pub(crate) const MGF1: Oid = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 8];
pub(crate) const EC_PUBLIC_KEY: Oid = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
pub(crate) const ED25519: Oid = &[0x2b, 0x65, 0x70];
pub(crate) const P256: Oid = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
pub(crate) const P384: Oid = &[0x2b, 0x81, 4, 0, 34];
pub(crate) const P521: Oid = &[0x2b, 0x81, 4, 0, 35];
pub(crate) const SHA1: Oid = &[0x2b, 0x0e, 3, 2, 26];
pub(crate) const SHA256: Oid = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1];
pub(crate) const SHA384: Oid = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2];
pub(crate) const SHA512: Oid = &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3];

/// The short name that OpenSSL prints for an attribute, or its dotted form, and whether it is
/// known.
///
/// OpenSSL knows a thousand identifiers more, none of them an attribute of a name; one of those in
/// a name prints in dotted form here.
pub(crate) fn attribute_name(oid: &[u8]) -> (std::borrow::Cow<'static, str>, bool) {
    let dotted = der::dotted(oid);
    match ATTRIBUTES.iter().find(|(d, _)| *d == dotted) {
        Some((_, name)) => ((*name).into(), true),
        // OpenSSL writes it into a buffer of 80 bytes.
        None => (dotted.get(..79).map(str::to_owned).unwrap_or(dotted).into(), false),
    }
}

const ATTRIBUTES: &[(&str, &str)] = &[
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.2", "textEncodedORAddress"),
    ("0.9.2342.19200300.100.1.3", "mail"),
    ("0.9.2342.19200300.100.1.4", "info"),
    ("0.9.2342.19200300.100.1.5", "favouriteDrink"),
    ("0.9.2342.19200300.100.1.6", "roomNumber"),
    ("0.9.2342.19200300.100.1.7", "photo"),
    ("0.9.2342.19200300.100.1.8", "userClass"),
    ("0.9.2342.19200300.100.1.9", "host"),
    ("0.9.2342.19200300.100.1.10", "manager"),
    ("0.9.2342.19200300.100.1.11", "documentIdentifier"),
    ("0.9.2342.19200300.100.1.12", "documentTitle"),
    ("0.9.2342.19200300.100.1.13", "documentVersion"),
    ("0.9.2342.19200300.100.1.14", "documentAuthor"),
    ("0.9.2342.19200300.100.1.15", "documentLocation"),
    ("0.9.2342.19200300.100.1.20", "homeTelephoneNumber"),
    ("0.9.2342.19200300.100.1.21", "secretary"),
    ("0.9.2342.19200300.100.1.22", "otherMailbox"),
    ("0.9.2342.19200300.100.1.23", "lastModifiedTime"),
    ("0.9.2342.19200300.100.1.24", "lastModifiedBy"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.26", "aRecord"),
    ("0.9.2342.19200300.100.1.27", "pilotAttributeType27"),
    ("0.9.2342.19200300.100.1.28", "mXRecord"),
    ("0.9.2342.19200300.100.1.29", "nSRecord"),
    ("0.9.2342.19200300.100.1.30", "sOARecord"),
    ("0.9.2342.19200300.100.1.31", "cNAMERecord"),
    ("0.9.2342.19200300.100.1.37", "associatedDomain"),
    ("0.9.2342.19200300.100.1.38", "associatedName"),
    ("0.9.2342.19200300.100.1.39", "homePostalAddress"),
    ("0.9.2342.19200300.100.1.40", "personalTitle"),
    ("0.9.2342.19200300.100.1.41", "mobileTelephoneNumber"),
    ("0.9.2342.19200300.100.1.42", "pagerTelephoneNumber"),
    ("0.9.2342.19200300.100.1.43", "friendlyCountryName"),
    ("0.9.2342.19200300.100.1.44", "uid"),
    ("0.9.2342.19200300.100.1.45", "organizationalStatus"),
    ("0.9.2342.19200300.100.1.46", "janetMailbox"),
    ("0.9.2342.19200300.100.1.47", "mailPreferenceOption"),
    ("0.9.2342.19200300.100.1.48", "buildingName"),
    ("0.9.2342.19200300.100.1.49", "dSAQuality"),
    ("0.9.2342.19200300.100.1.50", "singleLevelQuality"),
    ("0.9.2342.19200300.100.1.51", "subtreeMinimumQuality"),
    ("0.9.2342.19200300.100.1.52", "subtreeMaximumQuality"),
    ("0.9.2342.19200300.100.1.53", "personalSignature"),
    ("0.9.2342.19200300.100.1.54", "dITRedirect"),
    ("0.9.2342.19200300.100.1.55", "audio"),
    ("0.9.2342.19200300.100.1.56", "documentPublisher"),
    ("1.2.643.3.131.1.1", "INN"),
    ("1.2.643.100.1", "OGRN"),
    ("1.2.643.100.3", "SNILS"),
    ("1.2.643.100.5", "OGRNIP"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
    ("1.2.840.113549.1.9.2", "unstructuredName"),
    ("1.2.840.113549.1.9.3", "contentType"),
    ("1.2.840.113549.1.9.4", "messageDigest"),
    ("1.2.840.113549.1.9.5", "signingTime"),
    ("1.2.840.113549.1.9.6", "countersignature"),
    ("1.2.840.113549.1.9.7", "challengePassword"),
    ("1.2.840.113549.1.9.8", "unstructuredAddress"),
    ("1.2.840.113549.1.9.9", "extendedCertificateAttributes"),
    ("1.2.840.113549.1.9.14", "extReq"),
    ("1.2.840.113549.1.9.15", "SMIME-CAPS"),
    ("1.2.840.113549.1.9.20", "friendlyName"),
    ("1.2.840.113549.1.9.21", "localKeyID"),
    ("1.2.840.113549.1.9.22.1", "x509Certificate"),
    ("1.2.840.113549.1.9.22.2", "sdsiCertificate"),
    ("1.2.840.113549.1.9.23.1", "x509Crl"),
    ("1.3.6.1.4.1.311.17.1", "CSPName"),
    ("1.3.6.1.4.1.311.17.2", "LocalKeySet"),
    ("1.3.6.1.4.1.311.20.2.2", "msSmartcardLogin"),
    ("1.3.6.1.4.1.311.20.2.3", "msUPN"),
    ("1.3.6.1.4.1.311.60.2.1.1", "jurisdictionL"),
    ("1.3.6.1.4.1.311.60.2.1.2", "jurisdictionST"),
    ("1.3.6.1.4.1.311.60.2.1.3", "jurisdictionC"),
    ("1.3.6.1.5.5.7.9.1", "id-pda-dateOfBirth"),
    ("1.3.6.1.5.5.7.9.2", "id-pda-placeOfBirth"),
    ("1.3.6.1.5.5.7.9.3", "id-pda-gender"),
    ("1.3.6.1.5.5.7.9.4", "id-pda-countryOfCitizenship"),
    ("1.3.6.1.5.5.7.9.5", "id-pda-countryOfResidence"),
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.14", "searchGuide"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.16", "postalAddress"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.18", "postOfficeBox"),
    ("2.5.4.19", "physicalDeliveryOfficeName"),
    ("2.5.4.20", "telephoneNumber"),
    ("2.5.4.21", "telexNumber"),
    ("2.5.4.22", "teletexTerminalIdentifier"),
    ("2.5.4.23", "facsimileTelephoneNumber"),
    ("2.5.4.24", "x121Address"),
    ("2.5.4.25", "internationaliSDNNumber"),
    ("2.5.4.26", "registeredAddress"),
    ("2.5.4.27", "destinationIndicator"),
    ("2.5.4.28", "preferredDeliveryMethod"),
    ("2.5.4.29", "presentationAddress"),
    ("2.5.4.30", "supportedApplicationContext"),
    ("2.5.4.31", "member"),
    ("2.5.4.32", "owner"),
    ("2.5.4.33", "roleOccupant"),
    ("2.5.4.34", "seeAlso"),
    ("2.5.4.35", "userPassword"),
    ("2.5.4.36", "userCertificate"),
    ("2.5.4.37", "cACertificate"),
    ("2.5.4.38", "authorityRevocationList"),
    ("2.5.4.39", "certificateRevocationList"),
    ("2.5.4.40", "crossCertificatePair"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.44", "generationQualifier"),
    ("2.5.4.45", "x500UniqueIdentifier"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.47", "enhancedSearchGuide"),
    ("2.5.4.48", "protocolInformation"),
    ("2.5.4.49", "distinguishedName"),
    ("2.5.4.50", "uniqueMember"),
    ("2.5.4.51", "houseIdentifier"),
    ("2.5.4.52", "supportedAlgorithms"),
    ("2.5.4.53", "deltaRevocationList"),
    ("2.5.4.54", "dmdName"),
    ("2.5.4.65", "pseudonym"),
    ("2.5.4.72", "role"),
    ("2.5.4.97", "organizationIdentifier"),
    ("2.5.4.98", "c3"),
    ("2.5.4.99", "n3"),
    ("2.5.4.100", "dnsName"),
];
