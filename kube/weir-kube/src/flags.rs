//! The command line: switches with ingress-nginx's names, so that a Deployment can be taken over.

use std::time::Duration;

use render::{Key, Options};

/// What `weir-kube run` needs besides the renderer's options.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For the renderer.
    pub options: Options,
    /// The server's program.
    pub weir: String,
    /// The namespace to watch; all without one.
    pub namespace: Option<String>,
    /// The Service whose addresses statuses show.
    pub publish_service: Option<Key>,
    /// Whether statuses and events are written.
    pub update_status: bool,
    /// The name of the Lease.
    pub election_id: String,
    /// Where `/metrics` and `/healthz` of the controller are.
    pub health: String,
    /// How long changes of configuration are collected.
    pub sync_period: Duration,
    /// The API server, instead of the cluster's own or that of a kubeconfig.
    pub apiserver_host: Option<String>,
}

/// A switch: its name, what it takes, and what it sets.
struct Flag {
    name: &'static str,
    argument: &'static str,
    help: &'static str,
    set: fn(&mut Settings, &str) -> Result<(), String>,
}

fn key(text: &str) -> Result<Option<Key>, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(Some(Key::new(namespace, name)))
        }
        _ => Err(format!("\"{text}\" is not NAMESPACE/NAME")),
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|p| *p > 0).ok_or_else(|| format!("\"{text}\" is not a port"))
}

fn on(text: &str) -> Result<bool, String> {
    render::check::bool(text).ok_or_else(|| format!("\"{text}\" is neither true nor false"))
}

fn words(text: &str) -> Vec<String> {
    render::check::list(text).map(str::to_owned).collect()
}

const FLAGS: &[Flag] = &[
    Flag {
        name: "annotations-prefix",
        argument: "PREFIX",
        help: "prefix of annotations",
        set: |s, v| {
            v.clone_into(&mut s.options.annotations_prefix);
            Ok(())
        },
    },
    Flag {
        name: "apiserver-host",
        argument: "URL",
        help: "API server, without TLS and credentials",
        set: |s, v| {
            s.apiserver_host = Some(v.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "configmap",
        argument: "NAMESPACE/NAME",
        help: "the ConfigMap with settings",
        set: |s, v| {
            s.options.config_map = key(v)?;
            Ok(())
        },
    },
    Flag {
        name: "controller-class",
        argument: "NAME",
        help: "controller of IngressClasses to serve",
        set: |s, v| {
            s.options.controller_class = words(v);
            Ok(())
        },
    },
    Flag {
        name: "default-backend-service",
        argument: "NAMESPACE/NAME",
        help: "answers what no Ingress does",
        set: |s, v| {
            s.options.default_backend = key(v)?;
            Ok(())
        },
    },
    Flag {
        name: "default-ssl-certificate",
        argument: "NAMESPACE/NAME",
        help: "Secret for hosts without one",
        set: |s, v| {
            s.options.default_certificate = key(v)?;
            Ok(())
        },
    },
    Flag {
        name: "default-ssl-certificate-file",
        argument: "FILE",
        help: "the same as a file",
        set: |s, v| {
            s.options.default_certificate_file = Some(v.to_owned());
            Ok(())
        },
    },
    Flag {
        name: "disable-catch-all",
        argument: "BOOL",
        help: "refuse Ingresses without a host",
        set: |s, v| {
            s.options.disable_catch_all = on(v)?;
            Ok(())
        },
    },
    Flag {
        name: "disable-svc-external-name",
        argument: "BOOL",
        help: "refuse Services of type ExternalName",
        set: |s, v| {
            s.options.disable_external_name = on(v)?;
            Ok(())
        },
    },
    Flag {
        name: "election-id",
        argument: "NAME",
        help: "name of the Lease",
        set: |s, v| {
            v.clone_into(&mut s.election_id);
            Ok(())
        },
    },
    Flag {
        name: "enable-ssl-passthrough",
        argument: "BOOL",
        help: "pass TLS to backends by name",
        set: |s, v| {
            s.options.ssl_passthrough = on(v)?;
            Ok(())
        },
    },
    Flag {
        name: "folder",
        argument: "FOLDER",
        help: "for the configuration and its files",
        set: |s, v| {
            v.clone_into(&mut s.options.folder);
            Ok(())
        },
    },
    Flag {
        name: "gateway-addresses",
        argument: "ADDRESSES",
        help: "addresses of the pod for Gateways, one each",
        set: |s, v| {
            s.options.gateway_addresses = render::gateway::Pool::parse(v)?;
            Ok(())
        },
    },
    Flag {
        name: "gateway-controller",
        argument: "NAME",
        help: "controllerName of GatewayClasses to serve",
        set: |s, v| {
            v.clone_into(&mut s.options.gateway_controller);
            Ok(())
        },
    },
    Flag {
        name: "health-address",
        argument: "ADDRESS:PORT",
        help: "/healthz and /metrics of the controller",
        set: |s, v| {
            v.clone_into(&mut s.health);
            Ok(())
        },
    },
    Flag {
        name: "health-check-path",
        argument: "PATH",
        help: "path of the health check",
        set: |s, v| {
            v.clone_into(&mut s.options.healthz_path);
            Ok(())
        },
    },
    Flag {
        name: "http-port",
        argument: "PORT",
        help: "port of HTTP",
        set: |s, v| {
            s.options.http_port = port(v)?;
            Ok(())
        },
    },
    Flag {
        name: "https-port",
        argument: "PORT",
        help: "port of HTTPS",
        set: |s, v| {
            s.options.https_port = port(v)?;
            Ok(())
        },
    },
    Flag {
        name: "ingress-class",
        argument: "NAME",
        help: "class that is served without an object, too",
        set: |s, v| {
            v.clone_into(&mut s.options.ingress_class);
            Ok(())
        },
    },
    Flag {
        name: "maxmind-edition-ids",
        argument: "NAMES",
        help: "databases of addresses",
        set: |s, v| {
            s.options.geoip_databases = words(v).iter().map(|n| format!("{n}.mmdb")).collect();
            Ok(())
        },
    },
    Flag {
        name: "mime-types",
        argument: "FILE",
        help: "file of MIME types",
        set: |s, v| {
            v.clone_into(&mut s.options.mime_types);
            Ok(())
        },
    },
    Flag {
        name: "publish-service",
        argument: "NAMESPACE/NAME",
        help: "Service whose addresses statuses show",
        set: |s, v| {
            s.publish_service = key(v)?;
            Ok(())
        },
    },
    Flag {
        name: "publish-status-address",
        argument: "ADDRESSES",
        help: "addresses that statuses show",
        set: |s, v| {
            s.options.addresses = words(v);
            Ok(())
        },
    },
    Flag {
        name: "resolver",
        argument: "ADDRESSES",
        help: "DNS servers instead of those of /etc/resolv.conf",
        set: |s, v| {
            s.options.resolvers = words(v);
            Ok(())
        },
    },
    Flag {
        name: "ssl-passthrough-proxy-port",
        argument: "PORT",
        help: "local port of HTTPS with passthrough",
        set: |s, v| {
            s.options.ssl_proxy_port = port(v)?;
            Ok(())
        },
    },
    Flag {
        name: "status-address",
        argument: "ADDRESS:PORT",
        help: "local address of the server's API",
        set: |s, v| {
            v.clone_into(&mut s.options.status);
            Ok(())
        },
    },
    Flag {
        name: "sync-period-ms",
        argument: "N",
        help: "longest time for which changes that follow one another are collected",
        set: |s, v| {
            let ms = v.parse().map_err(|_| format!("\"{v}\" is not a number"))?;
            s.sync_period = Duration::from_millis(ms);
            Ok(())
        },
    },
    Flag {
        name: "tcp-services-configmap",
        argument: "NAMESPACE/NAME",
        help: "ConfigMap of TCP services",
        set: |s, v| {
            s.options.tcp_services = key(v)?;
            Ok(())
        },
    },
    Flag {
        name: "temp-folder",
        argument: "FOLDER",
        help: "for temporary files, caches and the pid",
        set: |s, v| {
            v.clone_into(&mut s.options.temp);
            Ok(())
        },
    },
    Flag {
        name: "udp-services-configmap",
        argument: "NAMESPACE/NAME",
        help: "ConfigMap of UDP services",
        set: |s, v| {
            s.options.udp_services = key(v)?;
            Ok(())
        },
    },
    Flag {
        name: "update-status",
        argument: "BOOL",
        help: "write statuses and events",
        set: |s, v| {
            s.update_status = on(v)?;
            Ok(())
        },
    },
    Flag {
        name: "watch-ingress-without-class",
        argument: "BOOL",
        help: "serve Ingresses without a class",
        set: |s, v| {
            s.options.watch_ingress_without_class = on(v)?;
            Ok(())
        },
    },
    Flag {
        name: "watch-namespace",
        argument: "NAME",
        help: "watch one namespace alone",
        set: |s, v| {
            s.namespace = Some(v.to_owned()).filter(|n| !n.is_empty());
            Ok(())
        },
    },
    Flag {
        name: "weir",
        argument: "PROGRAM",
        help: "the server's program",
        set: |s, v| {
            v.clone_into(&mut s.weir);
            Ok(())
        },
    },
];

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            options: Options::default(),
            weir: "weir".to_owned(),
            namespace: None,
            publish_service: None,
            update_status: true,
            election_id: "weir-kube-leader".to_owned(),
            health: "0.0.0.0:10254".to_owned(),
            sync_period: Duration::from_millis(100),
            apiserver_host: None,
        }
    }
}

/// Reads switches, in the forms `--name=value`, `--name value` and, for switches that are on or
/// off, `--name`; what is no switch is returned.
///
/// # Errors
/// A switch is unknown or its value is none.
pub fn read(args: &[String]) -> Result<(Settings, Vec<String>), String> {
    let mut settings = Settings::default();
    let mut rest = Vec::new();
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        let Some(name) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else {
            rest.push(arg.clone());
            continue;
        };
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        let Some(flag) = FLAGS.iter().find(|f| f.name == name) else {
            return Err(format!("unknown switch --{name}: see weir-kube help"));
        };
        let value = match value {
            Some(value) => value,
            None if flag.argument == "BOOL" => "true".to_owned(),
            None => match args.next() {
                Some(value) => value.clone(),
                None => return Err(format!("--{name} needs {}", flag.argument)),
            },
        };
        // Kubernetes puts variables into arguments that look like this where they are not set.
        if value.contains("$(") {
            return Err(format!("--{name}: \"{value}\" is a variable that is not set"));
        }
        (flag.set)(&mut settings, &value).map_err(|e| format!("--{name}: {e}"))?;
    }
    Ok((settings, rest))
}

/// The switches, for `help`.
pub fn help() -> String {
    let line = |f: &Flag| format!("  --{:<40} {}\n", format!("{}={}", f.name, f.argument), f.help);
    FLAGS.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(args: &[&str]) -> Result<(Settings, Vec<String>), String> {
        read(&args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn switches_of_ingress_nginx() {
        let (s, rest) = of(&[
            "file.yaml",
            "--configmap=ingress/config",
            "--enable-ssl-passthrough",
            "--http-port",
            "8080",
        ])
        .unwrap();
        assert_eq!(s.options.config_map, Some(Key::new("ingress", "config")));
        assert!(s.options.ssl_passthrough && s.options.http_port == 8080);
        assert_eq!(rest, ["file.yaml"]);
    }

    #[test]
    fn wrong_switches() {
        for args in [
            &["--no-such"][..],
            &["--http-port=0"],
            &["--configmap=x"],
            &["--configmap"],
            &["--configmap=$(NS)/x"],
            &["--update-status=maybe"],
        ] {
            assert!(of(args).is_err(), "{args:?}");
        }
    }
}
