//! Watches: a list of each kind, and then its changes, again and again.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use render::{Kind, ObjectRef};
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use crate::apply::log;
use crate::cluster::{Change, Cluster, Failed};

/// News of a kind.
#[derive(Debug)]
pub enum News {
    /// All objects there are.
    All(Kind, Vec<Value>),
    /// An object is new or changed.
    Put(Value),
    /// An object is gone.
    Gone(ObjectRef),
}

/// Where a kind is found.
#[derive(Clone, Debug)]
pub struct Place {
    /// The kind.
    pub kind: Kind,
    /// `GROUP/VERSION` as the API server has it; `v1` for the core.
    pub api_version: String,
}

impl Place {
    /// The path of the list, in one namespace or in all.
    pub fn list(&self, namespace: Option<&str>) -> String {
        let root = match self.api_version.contains('/') {
            true => format!("/apis/{}", self.api_version),
            false => format!("/api/{}", self.api_version),
        };
        let plural = self.kind.names().3;
        match namespace.filter(|_| !self.kind.is_cluster_wide()) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}"),
            None => format!("{root}/{plural}"),
        }
    }

    /// The path of an object.
    pub fn object(&self, object: &ObjectRef) -> String {
        let namespace = Some(object.namespace.as_str()).filter(|n| !n.is_empty());
        format!("{}/{}", self.list(namespace), object.name)
    }
}

/// Finds out which kinds the API server has, and in which version.
///
/// # Errors
/// The API server does not answer.
pub async fn places(cluster: &Cluster) -> Result<Vec<Place>, String> {
    let mut places = Vec::new();
    let mut gateway: Vec<(String, Value)> = Vec::new();
    let group = cluster.get("/apis/gateway.networking.k8s.io").await;
    match group {
        Ok(group) => {
            for version in group["versions"].as_array().into_iter().flatten() {
                let Some(name) = version["groupVersion"].as_str() else { continue };
                if let Ok(resources) = cluster.get(&format!("/apis/{name}")).await {
                    gateway.push((name.to_owned(), resources));
                }
            }
        }
        Err(error) if error.status == Some(404) => {}
        Err(error) => return Err(error.to_string()),
    }
    for kind in Kind::ALL {
        let (group, version, _, plural) = kind.names();
        let api_version = match (group, kind.is_gateway()) {
            (_, true) => {
                let has = |resources: &Value| {
                    let all = resources["resources"].as_array().into_iter().flatten();
                    all.into_iter().any(|r| r["name"] == plural)
                };
                // The API server lists the preferred version first.
                match gateway.iter().find(|(_, resources)| has(resources)) {
                    Some((name, _)) => name.clone(),
                    None => continue,
                }
            }
            ("", _) => version.to_owned(),
            (group, _) => format!("{group}/{version}"),
        };
        places.push(Place { kind, api_version });
    }
    Ok(places)
}

/// Members that lists leave out of their items.
fn complete(mut object: Value, place: &Place) -> Value {
    let (_, _, kind, _) = place.kind.names();
    if object["kind"].is_null() {
        object["kind"] = kind.into();
        object["apiVersion"] = place.api_version.clone().into();
    }
    object
}

/// Lists and watches until the receiver is gone. Errors are followed by a new list, after a
/// growing pause: the API server may be away for minutes.
pub async fn follow(cluster: Cluster, place: Place, namespace: Option<String>, news: Sender<News>) {
    let path = place.list(namespace.as_deref());
    let mut pause = Duration::from_millis(200);
    let mut version: Option<String> = None;
    let mut troubled = false;
    loop {
        let result = match version.take() {
            None => list(&cluster, &path, &place, &news).await.map(Some),
            Some(from) => watch(&cluster, &path, &place, &from, &news).await,
        };
        match result {
            Ok(next) => {
                if std::mem::take(&mut troubled) {
                    log(&format!("{}: watching again", place.kind.names().2));
                }
                pause = Duration::from_millis(200);
                version = next;
            }
            Err(error) => {
                if !std::mem::replace(&mut troubled, true) {
                    log(&format!("{}: {error}", place.kind.names().2));
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(30));
            }
        }
        if news.is_closed() {
            return;
        }
    }
}

/// Sends all objects; returns the version of the list.
async fn list(
    cluster: &Cluster,
    path: &str,
    place: &Place,
    news: &Sender<News>,
) -> Result<String, Failed> {
    let mut list = cluster.get(path).await?;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or("0").to_owned();
    let items = match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    let items = items.into_iter().map(|item| complete(item, place)).collect();
    let _ = news.send(News::All(place.kind, items)).await;
    Ok(version)
}

/// Sends changes until the watch ends; returns the version to go on from, or none if a new list is
/// needed.
async fn watch(
    cluster: &Cluster,
    path: &str,
    place: &Place,
    from: &str,
    news: &Sender<News>,
) -> Result<Option<String>, Failed> {
    let mut version = from.to_owned();
    let events = match cluster.watch(path, from).await {
        Ok(events) => events,
        Err(error) if error.status == Some(410) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        let (sent, of) = match event? {
            Change::Put(object) => {
                let of = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
                (News::Put(complete(object, place)), of)
            }
            Change::Gone(object) => {
                let of = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
                let text = |name: &str| object["metadata"][name].as_str().unwrap_or("").to_owned();
                let object = ObjectRef {
                    kind: place.kind,
                    namespace: text("namespace"),
                    name: text("name"),
                };
                (News::Gone(object), of)
            }
            Change::Bookmark(mark) => {
                version = mark;
                continue;
            }
            // The version is too old: only a new list helps.
            Change::Failed(410) => return Ok(None),
            Change::Failed(code) => {
                let message = format!("the watch ended with status {code}");
                return Err(Failed { status: Some(code), message });
            }
        };
        version = of.unwrap_or(version);
        if news.send(sent).await.is_err() {
            break;
        }
    }
    Ok(Some(version))
}
