//! `openssl verify` with what nginx sets.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::certificates::der::pem;

use super::Errors;
use super::chain::Case;

/// The program's verdict.
#[derive(Debug)]
pub struct Answer {
    pub accepts: bool,
    pub errors: Errors,
    /// A file could not be read.
    pub unreadable: bool,
}

/// Writes the case's files into the folder and asks the program.
pub fn verify(folder: &Path, case: &Case) -> crate::Outcome<Answer> {
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok::<_, String>(path)
    };
    let certificates =
        |list: &[Vec<u8>]| -> String { list.iter().map(|der| pem("CERTIFICATE", der)).collect() };
    let lists: String = case.lists.iter().map(|der| pem("X509 CRL", der)).collect();
    // nginx has the lists in the store, too.
    let trusted = write("trusted.pem", certificates(&case.trusted) + &lists)?;
    let untrusted = write("untrusted.pem", certificates(&case.peer[1..]))?;
    let leaf = write("leaf.pem", certificates(&case.peer[..1]))?;
    let mut command = Command::new("openssl");
    command.arg("verify").args(["-no-CApath", "-no-CAstore"]);
    command.args(["-auth_level", &case.level.to_string()]);
    let name = if case.server { "ssl_server" } else { "ssl_client" };
    command.args(["-verify_name", name, "-attime", &case.now.to_string()]);
    command.args(["-verify_depth", &case.depth.to_string()]);
    if case.check_lists {
        command.args(["-crl_check", "-crl_check_all"]);
    }
    if let Some(host) = case.host {
        command.args(["-verify_hostname", host]);
    }
    command.arg("-CAfile").arg(trusted);
    if case.peer.len() > 1 {
        command.arg("-untrusted").arg(untrusted);
    }
    command.arg(leaf);
    let shown: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
    let script = shown.join(" ").replace(&format!("{}/", folder.display()), "");
    write("command", format!("openssl {script}\n"))?;
    let output = command.output().map_err(|e| format!("openssl: {e}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors: Errors = text.lines().filter_map(error).collect();
    let accepts = output.status.success();
    Ok(Answer { accepts, unreadable: !accepts && errors.is_empty(), errors })
}

/// `error 20 at 0 depth lookup: unable to get local issuer certificate`
fn error(line: &str) -> Option<(u8, usize)> {
    let rest = line.strip_prefix("error ")?;
    let (number, rest) = rest.split_once(" at ")?;
    let (depth, _) = rest.split_once(" depth lookup")?;
    Some((number.parse().ok()?, depth.parse().ok()?))
}
