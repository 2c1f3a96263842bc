//! `weir-kube run`: the loop around the renderer.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use render::{Kind, ObjectRef, Objects, Refused, Rendered};
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};

use crate::apply::{Applier, log};
use crate::cluster::Cluster;
use crate::flags::Settings;
use crate::health::{self, State};
use crate::lead;
use crate::status::Writer;
use crate::watch::{self, News, Place};

/// After a time without changes, those that belong together come closer to one another than this.
const QUIET: Duration = Duration::from_millis(20);

/// Runs until a signal ends it, or the server ends.
///
/// # Errors
/// The cluster cannot be reached at the start, or the server ended.
pub fn run(settings: Settings) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|e| e.to_string())?.block_on(control(settings))
}

async fn control(mut settings: Settings) -> Result<(), String> {
    if settings.options.resolvers.is_empty() {
        settings.options.resolvers =
            resolvers(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
    }
    for folder in [&settings.options.folder, &settings.options.temp] {
        std::fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
    }
    let cluster = Cluster::connect(settings.apiserver_host.as_deref()).await?;
    let places = watch::places(&cluster).await?;
    let (sender, news) = channel(1024);
    for place in &places {
        let namespace = settings.namespace.clone();
        tokio::spawn(watch::follow(cluster.clone(), place.clone(), namespace, sender.clone()));
    }
    let state = Arc::new(Mutex::new(State::default()));
    tokio::spawn(health::serve(settings.health.clone(), state.clone()));
    let leads = Arc::new(AtomicBool::new(false));
    if settings.update_status {
        let me = std::env::var("POD_NAME")
            .unwrap_or_else(|_| format!("weir-kube-{}", std::process::id()));
        let namespace = std::env::var("POD_NAMESPACE").unwrap_or_else(|_| "default".to_owned());
        let id = settings.election_id.clone();
        tokio::spawn(lead::campaign(cluster.clone(), namespace, id, me, leads.clone()));
    }
    let applier = Applier::new(&settings.weir, &settings.options);
    let missing = places.iter().map(|p| p.kind).collect();
    let controller = Controller {
        settings,
        cluster,
        places,
        applier,
        objects: Objects::default(),
        refused: Refused::new(),
        missing,
        writer: Writer::default(),
        state,
        leads,
        rendered: None,
        synced: None,
    };
    controller.run(news).await
}

/// The name servers of resolv.conf.
fn resolvers(text: &str) -> Vec<String> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next().map(str::to_owned)).flatten()
    });
    servers.filter(|a| a.parse::<std::net::IpAddr>().is_ok()).collect()
}

/// The signals that end the controller.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for one of them.
    async fn come(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

struct Controller {
    settings: Settings,
    cluster: Cluster,
    places: Vec<Place>,
    applier: Applier,
    objects: Objects,
    refused: Refused,
    /// Kinds without a first list: nothing is rendered before all are there, because a half
    /// configuration would take routes away.
    missing: BTreeSet<Kind>,
    writer: Writer,
    state: Arc<Mutex<State>>,
    leads: Arc<AtomicBool>,
    rendered: Option<Rendered>,
    /// The end of the last update of the server.
    synced: Option<Instant>,
}

impl Controller {
    async fn run(mut self, mut news: Receiver<News>) -> Result<(), String> {
        let mut signals = Signals::new().map_err(|e| e.to_string())?;
        let mut writing = tokio::time::interval(Duration::from_millis(500));
        let (mut changed, mut wrote) = (false, false);
        loop {
            tokio::select! {
                item = news.recv() => {
                    let Some(item) = item else { return Err("the watches ended".to_owned()) };
                    changed |= self.take(item);
                    if changed && self.missing.is_empty() {
                        self.collect(&mut news).await;
                        if !self.sync_unless(&mut signals).await {
                            break;
                        }
                        self.synced = Some(Instant::now());
                        (changed, wrote) = (false, false);
                    }
                }
                _ = writing.tick() => {
                    if self.applier.is_due_again() {
                        if !self.sync_unless(&mut signals).await {
                            break;
                        }
                        wrote = false;
                    }
                    let leads = self.leads.load(Ordering::Relaxed);
                    if let Ok(mut state) = self.state.lock() {
                        state.leads = leads;
                    }
                    if leads && !wrote && let Some(rendered) = self.rendered.take() {
                        self.writer.write(&self.cluster, &self.places, &rendered).await;
                        self.rendered = Some(rendered);
                        wrote = true;
                    }
                }
                message = self.applier.ended() => return Err(message),
                () = signals.come() => break,
            }
        }
        log("ending");
        self.applier.quit().await;
        Ok(())
    }

    /// Takes what else comes within a short time, so that one reload does for all. A change after a
    /// pause is alone for the most part, and does not wait for as long as those of a series.
    async fn collect(&mut self, news: &mut Receiver<News>) {
        let period = self.settings.sync_period;
        let until = tokio::time::Instant::now() + period;
        let is_first = self.synced.is_none_or(|at| at.elapsed() > period);
        let quiet = if is_first { QUIET } else { period };
        let next = || until.min(tokio::time::Instant::now() + quiet);
        while let Ok(Some(item)) = tokio::time::timeout_at(next(), news.recv()).await {
            self.take(item);
        }
    }

    /// Puts news among the objects; returns whether the configuration may change.
    fn take(&mut self, item: News) -> bool {
        match item {
            News::All(kind, items) => {
                let before: BTreeSet<ObjectRef> = self.objects.of_kind(kind).into_iter().collect();
                let mut now = BTreeSet::new();
                for item in items {
                    now.extend(self.put(item));
                }
                for gone in before.difference(&now) {
                    self.remove(gone);
                }
                self.missing.remove(&kind);
                true
            }
            News::Put(item) => self.put(item).is_some(),
            News::Gone(object) => {
                self.remove(&object);
                true
            }
        }
    }

    fn put(&mut self, item: Value) -> Option<ObjectRef> {
        let status = item["status"].clone();
        let object = self.objects.put(item)?;
        self.forget(&object);
        self.writer.observe(object.clone(), status);
        Some(object)
    }

    fn remove(&mut self, object: &ObjectRef) {
        self.objects.remove(object);
        self.writer.known.remove(object);
        self.forget(object);
    }

    /// A changed object is tested again, and so is all that may use a changed Secret.
    fn forget(&mut self, object: &ObjectRef) {
        match object.kind {
            Kind::Secret | Kind::ConfigMap => self.refused.clear(),
            _ => drop(self.refused.remove(object)),
        }
    }

    /// Brings the server up to date. False: a signal came first. A server that gives no answer
    /// takes minutes, and the time that is left for its end is shorter.
    async fn sync_unless(&mut self, signals: &mut Signals) -> bool {
        tokio::select! {
            () = self.sync() => true,
            () = signals.come() => false,
        }
    }

    async fn sync(&mut self) {
        if let Some(key) = &self.settings.publish_service
            && let Some(service) = self.objects.services.get(key)
        {
            self.settings.options.addresses = service_addresses(service);
        }
        let began = Instant::now();
        let options = &self.settings.options;
        match self.applier.apply(&self.objects, options, &mut self.refused).await {
            Ok((rendered, _)) => {
                self.rendered = Some(rendered);
                self.note(began.elapsed(), true);
            }
            Err(message) => {
                log(&message);
                self.note(began.elapsed(), false);
            }
        }
    }

    fn note(&self, took: Duration, good: bool) {
        let Ok(mut state) = self.state.lock() else { return };
        state.ready |= good;
        state.counts = self.applier.counts.clone();
        state.render_seconds = took.as_secs_f64();
        state.objects = self
            .places
            .iter()
            .map(|p| (p.kind.names().2, self.objects.of_kind(p.kind).len()))
            .collect();
    }
}

/// The addresses of a Service from outside.
fn service_addresses(service: &render::objects::Service) -> Vec<String> {
    let balanced = service.status.load_balancer.ingress.iter().map(|i| match i.ip.is_empty() {
        true => i.hostname.clone(),
        false => i.ip.clone(),
    });
    let mut all: Vec<String> = balanced.chain(service.spec.external_ips.clone()).collect();
    if all.is_empty() && service.spec.kind != "ExternalName" {
        all.push(service.spec.cluster_ip.clone());
    }
    all.retain(|a| !a.is_empty() && a != "None");
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers() {
        let text = "search a.b\nnameserver 10.0.0.10\nnameserver ::1\nnameserver bad;\n";
        assert_eq!(resolvers(text), ["10.0.0.10", "::1"]);
    }
}
