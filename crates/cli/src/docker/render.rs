//! The configuration that services get: a group of servers each, and a virtual server a name.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::services::{Protocol, Service, Services};

/// What all virtual servers have.
pub(crate) struct Style<'a> {
    /// The arguments of their `listen`.
    pub(crate) listens: &'a [String],
    /// Files that each of them includes.
    pub(crate) includes: &'a [String],
}

/// Fields that tell a service who asks, and by which name. `Connection` is for WebSockets.
const FIELDS: &str = "\
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $docker_connection;
";

/// The text of the file, and a line for each service that another one keeps from its place.
pub(crate) fn render(services: &Services, style: &Style<'_>) -> (String, Vec<String>) {
    let mut out = String::from(
        "# Made by weir docker from the labels of containers; do not edit.\n\
         map $http_upgrade $docker_connection {\n    default upgrade;\n    \"\" \"\";\n}\n",
    );
    let (mut hosts, mut faults) = (BTreeMap::new(), Vec::new());
    for (name, service) in services {
        group(&mut out, name, service);
        for host in &service.hosts {
            let paths: &mut BTreeMap<&str, (&str, &Service)> = hosts.entry(host).or_default();
            match paths.get(service.path.as_str()) {
                Some((first, _)) => faults
                    .push(format!("{name}: {host}{} is already served by {first}", service.path)),
                None => drop(paths.insert(&service.path, (name, service))),
            }
        }
    }
    for (host, paths) in hosts {
        let _ = writeln!(out, "server {{");
        for listen in style.listens {
            let _ = writeln!(out, "    listen {listen};");
        }
        let _ = writeln!(out, "    server_name {host};");
        for path in style.includes {
            let _ = writeln!(out, "    include {};", quoted(path));
        }
        for (path, (name, service)) in paths {
            location(&mut out, path, name, service);
        }
        out.push_str("}\n");
    }
    (out, faults)
}

fn group(out: &mut String, name: &str, service: &Service) {
    let _ = writeln!(out, "upstream {name} {{\n    zone {name} 128k;");
    for server in &service.servers {
        let weight = match server.weight {
            1 => String::new(),
            weight => format!(" weight={weight}"),
        };
        let _ = writeln!(out, "    server {}{weight};", server.address);
    }
    out.push_str("}\n");
}

fn location(out: &mut String, path: &str, name: &str, service: &Service) {
    let _ = writeln!(out, "    location {} {{", quoted(path));
    let pass = match service.protocol {
        Protocol::Http => "proxy_pass http",
        Protocol::Https => "proxy_pass https",
        Protocol::Grpc => "grpc_pass grpc",
    };
    let _ = writeln!(out, "        {pass}://{name};");
    if service.protocol != Protocol::Grpc {
        out.push_str(&FIELDS.replace("            ", "        "));
    }
    for (directive, words) in &service.directives {
        let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        let _ = writeln!(out, "        {directive} {};", words.join(" "));
    }
    out.push_str("    }\n");
}

/// A word in double quotes, whatever is in it.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::super::services::Server;
    use super::*;

    fn service(host: &str, path: &str) -> Service {
        let servers = vec![Server { address: "172.18.0.5:80".to_owned(), weight: 2 }];
        let (hosts, path) = (vec![host.to_owned()], path.to_owned());
        let directives = vec![("add_header".to_owned(), vec!["X".to_owned(), "a\";b".to_owned()])];
        Service { servers, hosts, path, directives, ..Service::default() }
    }

    #[test]
    fn services_of_one_name_share_its_server() {
        let services = Services::from([
            ("docker-a".to_owned(), service("x.example", "/")),
            ("docker-b".to_owned(), service("x.example", "/api/")),
            ("docker-c".to_owned(), service("x.example", "/api/")),
        ]);
        let (listens, includes) = (["80".to_owned()], ["more.conf".to_owned()]);
        let (text, faults) = render(&services, &Style { listens: &listens, includes: &includes });
        assert_eq!(text.matches("server_name x.example;").count(), 1);
        for part in [
            "    server 172.18.0.5:80 weight=2;\n",
            "    listen 80;\n",
            "    include \"more.conf\";\n",
            "    location \"/api/\" {\n        proxy_pass http://docker-b;\n",
            "        add_header \"X\" \"a\\\";b\";\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert_eq!(faults, ["docker-c: x.example/api/ is already served by docker-b"]);
    }
}
