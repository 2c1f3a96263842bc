//! The command `Options`.

use super::{Command, Parsed, items};

/// The meaning of an option here.
#[derive(Clone, Copy)]
enum Effect {
    Tickets,
    Preference,
    Compression,
    /// It is so, whatever is said; on and off differ for suites with CBC alone, or for nothing.
    Moot,
    AlwaysOn,
    AlwaysOff,
}

/// The options of OpenSSL 3.5, in letters of any case.
const OPTIONS: &[(&str, Effect)] = &[
    ("SessionTicket", Effect::Tickets),
    ("ServerPreference", Effect::Preference),
    ("TxCertificateCompression", Effect::Compression),
    ("EmptyFragments", Effect::Moot),
    ("EncryptThenMac", Effect::Moot),
    ("DHSingle", Effect::AlwaysOn),
    ("ECDHSingle", Effect::AlwaysOn),
    ("NoRenegotiation", Effect::AlwaysOn),
    ("NoResumptionOnRenegotiation", Effect::AlwaysOn),
    ("MiddleboxCompat", Effect::AlwaysOn),
    ("ExtendedMasterSecret", Effect::AlwaysOn),
    ("AntiReplay", Effect::AlwaysOn),
    ("CANames", Effect::AlwaysOn),
    ("Bugs", Effect::AlwaysOff),
    ("Compression", Effect::AlwaysOff),
    ("UnsafeLegacyRenegotiation", Effect::AlwaysOff),
    ("UnsafeLegacyServerConnect", Effect::AlwaysOff),
    ("ClientRenegotiation", Effect::AlwaysOff),
    ("AllowNoDHEKEX", Effect::AlwaysOff),
    ("PreferNoDHEKEX", Effect::AlwaysOff),
    ("PrioritizeChaCha", Effect::AlwaysOff),
    ("KTLS", Effect::AlwaysOff),
    ("KTLSTxZerocopySendfile", Effect::AlwaysOff),
    ("StrictCertCheck", Effect::AlwaysOff),
    ("RxCertificateCompression", Effect::AlwaysOff),
];

/// Reads the list of options; none where one is unknown.
pub(super) fn parse(name: &str, value: &str) -> Option<Parsed> {
    let mut parsed = Parsed::default();
    for (item, is_on) in items(value) {
        let (_, effect) = OPTIONS.iter().find(|(other, _)| other.eq_ignore_ascii_case(item))?;
        let is_so = match effect {
            Effect::Tickets => {
                parsed.commands.push(Command::SessionTickets(is_on));
                true
            }
            Effect::Preference => {
                parsed.commands.push(Command::ServerPreference(is_on));
                true
            }
            Effect::Compression => {
                parsed.commands.push(Command::CertificateCompression(is_on));
                true
            }
            Effect::Moot => true,
            Effect::AlwaysOn => is_on,
            Effect::AlwaysOff => !is_on,
        };
        if !is_so {
            let sign = if is_on { "" } else { "-" };
            parsed.warnings.extend(Parsed::warning(name, &format!("{sign}{item}")).warnings);
        }
    }
    Some(parsed)
}
