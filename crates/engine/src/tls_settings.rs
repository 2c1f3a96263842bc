//! The settings of algorithms that servers and clients of TLS have alike.

use conf::{ConfError, Node, Word};
use pki::x509::{SCHEMES, scheme_bits};
use tls::KeyLog;
use tls::ciphers::{Ciphers, Suite};
use tls::conf_command::{self, Command};
use tls::groups::{Group, Groups};
use tls::protocols::{Protocol, Protocols, Version};

use crate::logs::Haste;
use crate::{Cx, Session};

/// The algorithms of a configuration, by their numbers; an empty list stands for the usual ones.
#[derive(Clone, Default, Debug)]
pub struct Algorithms {
    /// The versions of TLS, as their numbers on the wire.
    pub versions: Vec<u16>,
    /// Cipher suites, best first.
    pub suites: Vec<u16>,
    /// Groups, best first.
    pub groups: Vec<u16>,
    /// Signature schemes, best first.
    pub signatures: Vec<u16>,
    /// OpenSSL's level of security for certificates, where `@SECLEVEL` sets it.
    pub security_level: Option<u8>,
}

impl Algorithms {
    /// The strength in bits that the level of security wants.
    pub fn security_bits(&self) -> u32 {
        self.security_level.map_or(0, pki::verify::security_bits)
    }

    /// Leaves out what does not reach the level of security.
    fn secure(&mut self, groups: Option<Groups>) -> Result<(), ConfError> {
        let bits = self.security_bits();
        let is_secure = |group: &&Group| group.bits() >= bits;
        let told = match &groups {
            Some(groups) => groups.groups(),
            // The usual ones reach level 3.
            None if bits <= 128 => &[],
            None => &Group::AUTO,
        };
        self.groups = told.iter().filter(is_secure).map(|group| group.number()).collect();
        let left = |what| ConfError::new(format!("no {what} is left by \"@SECLEVEL\""));
        if self.groups.is_empty() && !told.is_empty() {
            return Err(left("group"));
        }
        if bits > 128 {
            let all = if self.signatures.is_empty() { &SCHEMES[..] } else { &self.signatures };
            let is_secure = |scheme: &&u16| scheme_bits(**scheme) >= bits;
            self.signatures = all.iter().filter(is_secure).copied().collect();
            if self.signatures.is_empty() {
                return Err(left("signature algorithm"));
            }
        }
        Ok(())
    }
}

/// Reads `ssl_protocols`.
///
/// # Errors
/// A word is not a version, or no named version is available.
pub fn protocols(node: &Node) -> Result<Vec<Version>, ConfError> {
    let read = |word: &Word| {
        Protocol::word(&word.lossy())
            .ok_or_else(|| ConfError::at(word, format!("invalid value \"{}\"", word.lossy())))
    };
    let asked = node.args.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let protocols = Protocols::new(&asked).map_err(|e| ConfError::at(&node.name, e.to_string()))?;
    if let Some(warning) = protocols.warning {
        conf::warn(&node.name, warning);
    }
    Ok(protocols.versions)
}

/// Reads `ssl_ciphers`.
///
/// # Errors
/// OpenSSL refuses the string.
pub fn ciphers(node: &Node) -> Result<Ciphers, ConfError> {
    let word = node.arg(0)?;
    let ciphers = Ciphers::parse(&word.lossy()).map_err(|e| ConfError::at(word, e.to_string()))?;
    ciphers.warnings().into_iter().for_each(|warning| conf::warn(word, warning));
    Ok(ciphers)
}

/// Reads `ssl_ecdh_curve`.
///
/// # Errors
/// A name is unknown, or no group that can be had is left.
pub fn groups(node: &Node) -> Result<Groups, ConfError> {
    let word = node.arg(0)?;
    let groups = Groups::setting(&word.lossy()).map_err(|e| ConfError::at(word, e.to_string()))?;
    if let Some(warning) = groups.warning() {
        conf::warn(word, warning);
    }
    Ok(groups)
}

/// Reads `ssl_conf_command`.
///
/// # Errors
/// OpenSSL does not know the command, or it cannot be had.
pub fn command<S: Session>(cx: &Cx<S>, node: &Node) -> Result<Vec<Command>, ConfError> {
    let (name, value) = (node.arg(0)?, node.arg(1)?);
    let text = match conf_command::is_file(&name.lossy()) {
        true => cx.env.conf_path(value.bytes()).display().to_string(),
        false => value.lossy().into_owned(),
    };
    let parsed = conf_command::parse(&name.lossy(), &text)
        .map_err(|e| ConfError::at(name, e.to_string()))?;
    parsed.warnings.into_iter().for_each(|warning| conf::warn(name, warning));
    Ok(parsed.commands)
}

/// Reads `ssl_key_log`, and warns that it is on.
///
/// # Errors
/// The file exists, and others than its owner have access to it.
pub fn key_log<S: Session>(cx: &Cx<S>, node: &Node) -> Result<KeyLog, ConfError> {
    use std::os::unix::fs::PermissionsExt;
    let word = node.arg(0)?;
    if word.text.is_empty() {
        return Err(ConfError::at(word, "the name of the file is missing"));
    }
    let file = cx.env.logs.open_private(word.bytes());
    let path = file.path().display();
    if std::fs::metadata(file.path()).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0) {
        let m =
            format!("others than its owner have access to \"{path}\", which keys are written to");
        return Err(ConfError::at(word, m));
    }
    let name = node.name.lossy();
    conf::warn(word, format!("\"{name}\" is on: whoever reads \"{path}\" can decrypt connections"));
    Ok(KeyLog::new(move |line| file.append_line(line, Haste::Now)))
}

/// The algorithms of settings and of the commands that come after them.
///
/// # Errors
/// Nothing that can be had is left.
pub fn algorithms(
    protocols: Option<&[Version]>,
    mut ciphers: Option<Ciphers>,
    mut groups: Option<Groups>,
    commands: &[Command],
) -> Result<Algorithms, ConfError> {
    let versions = conf_command::versions(protocols.unwrap_or(&Version::ALL), commands);
    if versions.is_empty() {
        return Err(ConfError::new("no protocol is left by \"ssl_conf_command\""));
    }
    let (mut modern, mut signatures) = (None, Vec::new());
    for command in commands {
        match command {
            Command::Suites(suites) => modern = Some(suites.clone()),
            Command::Ciphers(other) => ciphers = Some(other.clone()),
            Command::Groups(other) => groups = Some(other.clone()),
            Command::SignatureAlgorithms(other) => signatures.clone_from(other),
            _ => {}
        }
    }
    let security_level = ciphers.as_ref().and_then(Ciphers::security_level);
    let versions_13 = versions.contains(&Version::Tls13);
    let versions = versions.iter().map(|version| version.number()).collect();
    let mut algorithms =
        Algorithms { versions, signatures, security_level, ..Algorithms::default() };
    if modern.is_some() || ciphers.is_some() {
        let modern = modern.unwrap_or_else(|| Suite::TLS13.to_vec());
        let bits = algorithms.security_bits();
        let modern = modern.iter().filter(|suite| suite.bits() >= bits);
        algorithms.suites.extend(modern.map(|suite| suite.number()));
        let has_13 = versions_13 && !algorithms.suites.is_empty();
        let old = match &ciphers {
            Some(ciphers) => ciphers.suites(has_13).map_err(|e| ConfError::new(e.to_string()))?,
            None => &Suite::TLS12,
        };
        algorithms.suites.extend(old.iter().map(|suite| suite.number()));
    }
    algorithms.secure(groups)?;
    Ok(algorithms)
}
