//! The environment of workers and of a new binary.

use bytes::Bytes;

use crate::places::VARIABLES;

/// The variables of the environment as this program got them: `NAME=VALUE` each.
pub struct Environ(Vec<Vec<u8>>);

/// Passed to a new binary whatever the configuration: it has to report to systemd as well.
const NOTIFY_SOCKET: &[u8] = b"NOTIFY_SOCKET";

impl Environ {
    /// Copies the present environment.
    pub fn capture() -> Environ {
        use std::os::unix::ffi::OsStrExt;
        let join = |name: &[u8], value: &[u8]| [name, b"=", value].concat();
        let all = std::env::vars_os();
        Environ(all.map(|(name, value)| join(name.as_bytes(), value.as_bytes())).collect())
    }

    /// An environment of these variables.
    #[cfg(test)]
    pub fn of(vars: impl Iterator<Item = String>) -> Environ {
        Environ(vars.map(String::into_bytes).collect())
    }

    /// The value of a variable.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.iter().find_map(|var| var.strip_prefix(name)?.strip_prefix(b"="))
    }

    /// The variables that the `env` directives select: `NAME` keeps a variable, `NAME=VALUE` sets
    /// one; `TZ` is kept in any case.
    pub fn chosen(&self, directives: &[Bytes]) -> Vec<Vec<u8>> {
        let name = |text: &Bytes| text.split(|&b| b == b'=').next() == Some(b"TZ");
        let time_zone = Bytes::from_static(b"TZ");
        let implied = if directives.iter().any(name) { None } else { Some(&time_zone) };
        let mut out = Vec::new();
        for text in directives.iter().chain(implied) {
            if text.contains(&b'=') {
                out.push(text.to_vec());
            } else if let Some(value) = self.get(text) {
                out.push([text, &b"="[..], value].concat());
            }
        }
        out
    }

    /// The environment of a new binary: that of workers, the variables that the configuration
    /// names as `${env:NAME}`, and the sockets.
    pub fn for_new_binary(
        &self,
        directives: &[Bytes],
        named: &[Vec<u8>],
        sockets: &str,
    ) -> Vec<Vec<u8>> {
        let mut out = self.chosen(directives);
        let named = named.iter().map(|name| &name[..]);
        let own = VARIABLES.iter().map(|v| v.as_bytes());
        for name in [NOTIFY_SOCKET].into_iter().chain(own).chain(named) {
            let is_set =
                |var: &Vec<u8>| var.strip_prefix(name).is_some_and(|v| v.starts_with(b"="));
            if let Some(value) = self.get(name)
                && !out.iter().any(is_set)
            {
                out.push([name, b"=", value].concat());
            }
        }
        out.push(format!("{}={sockets}", net::inherit::NGINX_VAR).into_bytes());
        // nginx, should it be the new binary, writes its process title over this.
        out.push([&b"SPARE="[..], &[b'X'; 300]].concat());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environ() -> Environ {
        let vars = ["TZ=UTC", "A=1", "AB=2", "NOTIFY_SOCKET=/run/n"];
        Environ(vars.iter().map(|v| v.as_bytes().to_vec()).collect())
    }

    fn texts(vars: Vec<Vec<u8>>) -> Vec<String> {
        vars.into_iter().map(|v| String::from_utf8(v).unwrap()).collect()
    }

    #[test]
    fn workers_get_what_is_named() {
        let e = environ();
        let chosen = |list: &[&'static str]| {
            let list: Vec<_> = list.iter().map(|s| Bytes::from_static(s.as_bytes())).collect();
            texts(e.chosen(&list))
        };
        assert_eq!(chosen(&[]), ["TZ=UTC"]);
        assert_eq!(chosen(&["A", "C", "D=4"]), ["A=1", "D=4", "TZ=UTC"]);
        assert_eq!(chosen(&["TZ=CET"]), ["TZ=CET"]);
    }

    #[test]
    fn a_new_binary_gets_the_sockets() {
        let named = [b"AB".to_vec(), b"NONE".to_vec(), b"AB".to_vec()];
        let vars = texts(environ().for_new_binary(&[], &named, "6;7;"));
        assert_eq!(vars[..4], ["TZ=UTC", "NOTIFY_SOCKET=/run/n", "AB=2", "NGINX=6;7;"]);
        assert!(vars[4].starts_with("SPARE=") && vars[4].len() > 300);
    }
}
