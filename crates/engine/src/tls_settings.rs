//! The settings of algorithms that servers and clients of TLS have alike.

use conf::{ConfError, Node, Word};
use tls::ciphers::{Ciphers, Suite};
use tls::conf_command::{self, Command};
use tls::groups::Groups;
use tls::protocols::{Protocol, Protocols, Version};

use crate::{Cx, Session};

/// The algorithms of a configuration, by their numbers; an empty list stands for the usual ones.
#[derive(Clone, Default, Debug)]
pub struct Algorithms {
    /// Versions.
    pub versions: Vec<u16>,
    /// Cipher suites, best first.
    pub suites: Vec<u16>,
    /// Groups, best first.
    pub groups: Vec<u16>,
}

/// Reads `ssl_protocols`.
///
/// # Errors
/// A word is no version, or none of them can be had.
pub fn protocols(node: &Node) -> Result<Vec<Version>, ConfError> {
    let read = |word: &Word| {
        Protocol::word(&word.lossy())
            .ok_or_else(|| ConfError::at(word, format!("invalid value \"{}\"", word.lossy())))
    };
    let asked = node.args.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let protocols = Protocols::new(&asked).map_err(|m| ConfError::at(&node.name, m))?;
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
    if parsed.commands.iter().any(|c| matches!(c, Command::SignatureAlgorithms(_))) {
        let m = format!("\"{}\" is not supported by this version of weir", name.lossy());
        return Err(ConfError::at(name, m));
    }
    Ok(parsed.commands)
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
    let mut modern = None;
    for command in commands {
        match command {
            Command::Suites(suites) => modern = Some(suites.clone()),
            Command::Ciphers(other) => ciphers = Some(other.clone()),
            Command::Groups(other) => groups = Some(other.clone()),
            _ => {}
        }
    }
    let mut suites: Vec<u16> = Vec::new();
    if modern.is_some() || ciphers.is_some() {
        let modern = modern.unwrap_or_else(|| Suite::TLS13.to_vec());
        let has_13 = versions.contains(&Version::Tls13) && !modern.is_empty();
        suites.extend(modern.iter().map(|suite| suite.number()));
        match &ciphers {
            Some(ciphers) => {
                let old = ciphers.suites(has_13).map_err(|e| ConfError::new(e.to_string()))?;
                suites.extend(old.iter().map(|suite| suite.number()));
            }
            None => suites.extend(Suite::TLS12.iter().map(|suite| suite.number())),
        }
    }
    Ok(Algorithms {
        versions: versions.iter().map(|version| version.number()).collect(),
        suites,
        groups: groups.map_or_else(Vec::new, |groups| {
            groups.groups().iter().map(|group| group.number()).collect()
        }),
    })
}
