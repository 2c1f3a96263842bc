//! `/healthz` and `/metrics` of the controller.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::apply::{Counts, log};

/// What the pages show.
#[derive(Debug, Default)]
pub struct State {
    /// Whether a configuration is in effect.
    pub ready: bool,
    /// Whether this controller writes statuses.
    pub leads: bool,
    /// Of the applier.
    pub counts: Counts,
    /// Objects by kind.
    pub objects: Vec<(&'static str, usize)>,
    /// The time that the last rendering took, in seconds.
    pub render_seconds: f64,
}

/// Serves until the process ends.
pub async fn serve(address: String, state: Arc<Mutex<State>>) {
    let listener = match TcpListener::bind(&address).await {
        Ok(listener) => listener,
        Err(error) => {
            log(&format!("{address}: {error}"));
            return;
        }
    };
    loop {
        if let Ok((socket, _)) = listener.accept().await {
            let state = state.clone();
            tokio::spawn(async move {
                let _ = answer(socket, &state).await;
            });
        }
    }
}

async fn answer(mut socket: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    let mut len = 0;
    while len < buffer.len() && !buffer[..len].windows(4).any(|w| w == b"\r\n\r\n") {
        match socket.read(&mut buffer[len..]).await? {
            0 => return Ok(()),
            n => len += n,
        }
    }
    let head = String::from_utf8_lossy(&buffer[..len]).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let (status, body) = match state.lock() {
        Ok(state) => page(path, &state),
        Err(_) => ("500 Internal Server Error", String::new()),
    };
    let reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(reply.as_bytes()).await
}

fn page(path: &str, state: &State) -> (&'static str, String) {
    match path.split('?').next() {
        Some("/healthz") => ("200 OK", "ok\n".to_owned()),
        Some("/readyz") if state.ready => ("200 OK", "ok\n".to_owned()),
        Some("/readyz") => ("503 Service Unavailable", "no configuration yet\n".to_owned()),
        Some("/metrics") => ("200 OK", metrics(state)),
        _ => ("404 Not Found", String::new()),
    }
}

fn metrics(state: &State) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let mut add = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    let counts = &state.counts;
    add("weir_kube_reloads_total", "counter", "Reloads of the server.", counts.reloads as f64);
    add(
        "weir_kube_reloads_failed_total",
        "counter",
        "Reloads that the server refused.",
        counts.failed_reloads as f64,
    );
    add(
        "weir_kube_endpoint_changes_total",
        "counter",
        "Servers of upstreams changed without a reload.",
        counts.endpoint_changes as f64,
    );
    add("weir_kube_objects_refused", "gauge", "Objects that do not load.", counts.refused as f64);
    add(
        "weir_kube_leader",
        "gauge",
        "1 if this controller writes statuses.",
        f64::from(u8::from(state.leads)),
    );
    add("weir_kube_render_seconds", "gauge", "Time of the last rendering.", state.render_seconds);
    let _ = writeln!(
        out,
        "# HELP weir_kube_objects Objects that are watched.\n# TYPE weir_kube_objects gauge"
    );
    for (kind, number) in &state.objects {
        let _ = writeln!(out, "weir_kube_objects{{kind=\"{kind}\"}} {number}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages() {
        let mut state = State::default();
        assert_eq!(page("/healthz", &state).0, "200 OK");
        assert!(page("/readyz", &state).0.starts_with("503"));
        state.ready = true;
        state.objects.push(("Ingress", 3));
        assert_eq!(page("/readyz", &state).0, "200 OK");
        let text = page("/metrics", &state).1;
        assert!(text.contains("weir_kube_objects{kind=\"Ingress\"} 3"), "{text}");
    }
}
