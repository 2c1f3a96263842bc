//! The API server: requests by path, with objects as JSON, because the renderer reads that.

use futures::{Stream, StreamExt};
use http::Request;
use kube::core::WatchEvent;
use kube::{Client, Config};
use serde_json::Value;

/// Why a request failed.
#[derive(Debug)]
pub struct Failed {
    /// The status, if there was a response.
    pub status: Option<u16>,
    /// What the client says.
    pub message: String,
}

impl From<kube::Error> for Failed {
    fn from(error: kube::Error) -> Failed {
        let status = match &error {
            kube::Error::Api(response) => Some(response.code),
            _ => None,
        };
        Failed { status, message: error.to_string() }
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// A change of an object, as a watch reports it.
#[derive(Debug)]
pub enum Change {
    /// It is new or changed.
    Put(Value),
    /// It is gone.
    Gone(Value),
    /// Nothing changed up to this version.
    Bookmark(String),
    /// The watch cannot go on; 410 if its version is too old.
    Failed(u16),
}

/// A connection to the API server.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

impl Cluster {
    /// Connects as the environment says: within a cluster, by a kubeconfig, or to `host`.
    ///
    /// # Errors
    /// There is no configuration, or it is malformed.
    pub async fn connect(host: Option<&str>) -> Result<Cluster, String> {
        let config = match host {
            Some(host) => Config::new(host.parse().map_err(|e| format!("{host}: {e}"))?),
            None => Config::infer().await.map_err(|e| e.to_string())?,
        };
        let client = Client::try_from(config).map_err(|e| e.to_string())?;
        Ok(Cluster { client })
    }

    /// Sends a request; the content type matters for `PATCH`.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failed> {
        let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = Request::builder().method(method).uri(path).header("Content-Type", kind);
        let request = request.body(bytes).map_err(malformed)?;
        Ok(self.client.request::<Value>(request).await?)
    }

    /// Gets an object or a list.
    pub async fn get(&self, path: &str) -> Result<Value, Failed> {
        self.send("GET", path, "application/json", None).await
    }

    /// Changes some members of an object.
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<Value, Failed> {
        self.send("PATCH", path, "application/merge-patch+json", Some(patch)).await
    }

    /// Watches a list from a version on.
    pub async fn watch(
        &self,
        path: &str,
        version: &str,
    ) -> Result<impl Stream<Item = Result<Change, Failed>> + use<>, Failed> {
        let uri = format!(
            "{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds=290\
             &resourceVersion={version}"
        );
        let request = Request::get(uri).body(Vec::new()).map_err(malformed)?;
        let events = self.client.request_events::<Value>(request).await?;
        Ok(events.map(change))
    }
}

fn change(event: Result<WatchEvent<Value>, kube::Error>) -> Result<Change, Failed> {
    Ok(match event? {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => Change::Put(object),
        WatchEvent::Deleted(object) => Change::Gone(object),
        WatchEvent::Bookmark(mark) => Change::Bookmark(mark.metadata.resource_version),
        WatchEvent::Error(error) => Change::Failed(error.code),
    })
}

fn malformed(error: http::Error) -> Failed {
    Failed { status: None, message: error.to_string() }
}
