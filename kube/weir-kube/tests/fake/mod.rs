//! A small API server: list, watch with bookmarks, patch, status, leases, and errors on demand.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

/// An object's list and its name.
type Id = (String, String);

#[derive(Default)]
struct Store {
    version: u64,
    objects: BTreeMap<Id, Value>,
    /// Changes: version, type, list, object.
    changes: Vec<(u64, &'static str, String, Value)>,
    /// Watches from before this version get 410.
    oldest: u64,
    /// Counts interruptions: a watch ends when it changes.
    cuts: u64,
    away: bool,
    /// Requests that changed something: method and path.
    writes: Vec<String>,
}

/// The server; its threads end with the test's process.
#[derive(Clone)]
pub struct Fake {
    pub port: u16,
    store: Arc<(Mutex<Store>, Condvar)>,
}

impl Fake {
    pub fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let fake = Fake { port, store: Arc::default() };
        fake.with(|s| s.version = 1);
        let served = fake.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let fake = served.clone();
                std::thread::spawn(move || fake.serve(stream));
            }
        });
        fake
    }

    fn with<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.store.0.lock().unwrap();
        let out = change(&mut store);
        self.store.1.notify_all();
        out
    }

    /// Adds or replaces an object.
    pub fn put(&self, list: &str, mut object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        if let Some(namespace) = list.split("/namespaces/").nth(1).and_then(|r| r.split('/').next())
        {
            object["metadata"]["namespace"] = namespace.into();
        }
        self.with(|s| s.put((list.to_owned(), name), object));
    }

    /// Removes an object.
    pub fn delete(&self, list: &str, name: &str) {
        self.with(|s| {
            if let Some(object) = s.objects.remove(&(list.to_owned(), name.to_owned())) {
                s.version += 1;
                let version = s.version;
                s.changes.push((version, "DELETED", list.to_owned(), object));
            }
        });
    }

    /// Ends all watches, and forgets old versions: what is watched next gets 410.
    pub fn expire(&self) {
        self.with(|s| {
            s.version += 1;
            s.oldest = s.version;
            s.changes.clear();
            s.cuts += 1;
        });
    }

    /// While it is away, all is answered with 503.
    pub fn set_away(&self, away: bool) {
        self.with(|s| {
            s.away = away;
            s.cuts += 1;
        });
    }

    /// Waits until an object is as wanted.
    pub fn until(&self, list: &str, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let id = (list.to_owned(), name.to_owned());
        let mut store = self.store.0.lock().unwrap();
        loop {
            if let Some(object) = store.objects.get(&id).filter(|o| wanted(o)) {
                return object.clone();
            }
            store = self.store.1.wait(store).unwrap();
        }
    }

    /// Waits until an object of a list is as wanted.
    pub fn until_any(&self, list: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut store = self.store.0.lock().unwrap();
        loop {
            let of_list = store.objects.iter().filter(|((l, _), _)| l == list);
            if let Some((_, object)) = of_list.into_iter().find(|(_, o)| wanted(o)) {
                return object.clone();
            }
            store = self.store.1.wait(store).unwrap();
        }
    }

    /// Requests that changed something, by method and path.
    pub fn writes(&self) -> Vec<String> {
        self.with(|s| s.writes.clone())
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        let mut writer = stream.try_clone().ok()?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let mut len = 0;
            loop {
                let mut field = String::new();
                reader.read_line(&mut field).ok()?;
                if field.trim().is_empty() {
                    break;
                }
                if let Some((name, value)) = field.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    len = value.trim().parse().ok()?;
                }
            }
            let mut body = vec![0; len];
            reader.read_exact(&mut body).ok()?;
            let (method, target) = (line.split(' ').next()?, line.split(' ').nth(1)?);
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            if query.contains("watch=true") && !self.with(|s| s.away) {
                return self.watch(&mut writer, path, query);
            }
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let (status, value) = self.with(|s| s.answer(method, path, body));
            let text = value.to_string();
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n\
                 Content-Length: {}\r\n\r\n",
                text.len()
            );
            writer.write_all((head + &text).as_bytes()).ok()?;
        }
    }

    fn watch(&self, writer: &mut TcpStream, path: &str, query: &str) -> Option<()> {
        let version = query.split('&').find_map(|a| a.strip_prefix("resourceVersion="))?;
        let mut version: u64 = version.parse().ok()?;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        writer.write_all(head.as_bytes()).ok()?;
        let mut send = |event: Value| {
            let text = format!("{event}\n");
            write!(writer, "{:x}\r\n{text}\r\n", text.len()).ok()
        };
        let cuts = self.with(|s| s.cuts);
        loop {
            let mut store = self.store.0.lock().unwrap();
            if version < store.oldest {
                drop(store);
                let status = failure(410, "too old");
                send(json!({ "type": "ERROR", "object": status }))?;
                return writer.write_all(b"0\r\n\r\n").ok();
            }
            if store.cuts != cuts {
                return None;
            }
            let of_list =
                store.changes.iter().filter(|(v, _, list, _)| *v > version && is_below(list, path));
            let events: Vec<Value> = of_list
                .map(|(_, kind, _, object)| json!({ "type": kind, "object": object }))
                .collect();
            let upto = store.version;
            if events.is_empty() && upto > version {
                // Nothing of this list: a bookmark moves the version on.
                version = upto;
                drop(store);
                let mark = json!({ "metadata": { "resourceVersion": upto.to_string() },
                    "kind": "X", "apiVersion": "v1" });
                send(json!({ "type": "BOOKMARK", "object": mark }))?;
                continue;
            }
            if events.is_empty() {
                store = self.store.1.wait(store).unwrap();
                drop(store);
                continue;
            }
            version = upto;
            drop(store);
            for event in events {
                send(event)?;
            }
        }
    }
}

/// Whether a list is the one that is asked for, or one of its namespaces.
fn is_below(list: &str, path: &str) -> bool {
    if list == path {
        return true;
    }
    let Some((root, plural)) = path.rsplit_once('/') else { return false };
    let of_namespace = list.strip_prefix(root).and_then(|r| r.strip_prefix("/namespaces/"));
    of_namespace.and_then(|r| r.split_once('/')).is_some_and(|(_, p)| p == plural)
}

fn failure(code: u16, message: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "Fake", "code": code })
}

fn merge(into: &mut Value, patch: Value) {
    match patch {
        Value::Object(members) if into.is_object() => {
            for (name, value) in members {
                match value.is_null() {
                    true => drop(into.as_object_mut().unwrap().remove(&name)),
                    false => merge(&mut into[name.as_str()], value),
                }
            }
        }
        other => *into = other,
    }
}

impl Store {
    fn put(&mut self, id: Id, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let kind = if self.objects.contains_key(&id) { "MODIFIED" } else { "ADDED" };
        self.changes.push((self.version, kind, id.0.clone(), object.clone()));
        self.objects.insert(id, object.clone());
        object
    }

    fn answer(&mut self, method: &str, path: &str, body: Value) -> (u16, Value) {
        if self.away {
            return (503, failure(503, "away"));
        }
        if path.starts_with("/apis/gateway.networking.k8s.io") {
            return discovery(path).unwrap_or_else(|| self.resource(method, path, body));
        }
        self.resource(method, path, body)
    }

    fn resource(&mut self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let bare = path.strip_suffix("/status").unwrap_or(path);
        let (list, name) = bare.rsplit_once('/').unwrap_or((bare, ""));
        let id = (list.to_owned(), name.to_owned());
        if method != "GET" {
            self.writes.push(format!("{method} {path}"));
        }
        match method {
            "GET" => match self.objects.get(&id) {
                Some(object) => (200, object.clone()),
                None if is_list(path) => {
                    let items: Vec<Value> = self
                        .objects
                        .iter()
                        .filter(|((l, _), _)| is_below(l, path))
                        .map(|(_, o)| o.clone())
                        .collect();
                    let meta = json!({ "resourceVersion": self.version.to_string() });
                    (
                        200,
                        json!({ "kind": "List", "apiVersion": "v1", "metadata": meta,
                            "items": items }),
                    )
                }
                None => (404, failure(404, "not found")),
            },
            "POST" => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let id = (path.to_owned(), name);
                match self.objects.contains_key(&id) {
                    true => (409, failure(409, "exists")),
                    false => (201, self.put(id, body)),
                }
            }
            "PUT" => match self.objects.get(&id) {
                Some(old)
                    if old["metadata"]["resourceVersion"]
                        != body["metadata"]["resourceVersion"] =>
                {
                    (409, failure(409, "conflict"))
                }
                Some(_) => (200, self.put(id, body)),
                None => (404, failure(404, "not found")),
            },
            "PATCH" => match self.objects.get(&id).cloned() {
                Some(mut object) => {
                    merge(&mut object, body);
                    (200, self.put(id, object))
                }
                None => (404, failure(404, "not found")),
            },
            _ => (405, failure(405, "no")),
        }
    }
}

fn is_list(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.ends_with('s') && !path.ends_with("/leases/weir-kube-leader")
}

fn discovery(path: &str) -> Option<(u16, Value)> {
    let group = "gateway.networking.k8s.io";
    match path.strip_prefix("/apis/gateway.networking.k8s.io")? {
        "" => {
            let version = json!({ "groupVersion": format!("{group}/v1"), "version": "v1" });
            Some((
                200,
                json!({ "kind": "APIGroup", "apiVersion": "v1", "name": group,
                "versions": [version], "preferredVersion": version }),
            ))
        }
        "/v1" => {
            let names = ["gatewayclasses", "gateways", "httproutes"];
            let resources: Vec<Value> = names.iter().map(|n| json!({ "name": n })).collect();
            Some((
                200,
                json!({ "kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": format!("{group}/v1"), "resources": resources }),
            ))
        }
        _ => None,
    }
}
