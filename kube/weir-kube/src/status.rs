//! Statuses and events, as the API server gets them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use render::{Event, Kind, ObjectRef, Rendered};
use serde_json::{Value, json};

use crate::apply::log;
use crate::cluster::Cluster;
use crate::lead::rfc3339;
use crate::watch::Place;

/// Fills in `lastTransitionTime` of conditions: that of the old one if its status is the same.
pub fn with_times(new: &mut Value, old: &Value, now: &str) {
    match new {
        Value::Object(members) => {
            let is_condition = members.contains_key("type")
                && members.contains_key("status")
                && members.contains_key("reason");
            if is_condition {
                let same = old["status"] == members["status"];
                let time = old["lastTransitionTime"].clone();
                let time = if same && time.is_string() { time } else { now.into() };
                members.insert("lastTransitionTime".to_owned(), time);
                return;
            }
            for (name, value) in members {
                with_times(value, &old[name.as_str()], now);
            }
        }
        Value::Array(values) => {
            let nothing = Vec::new();
            let olds = old.as_array().unwrap_or(&nothing);
            for value in values {
                let other = olds.iter().find(|o| is_same_entry(value, o)).unwrap_or(&Value::Null);
                with_times(value, other, now);
            }
        }
        _ => {}
    }
}

/// Whether two elements of lists are about the same: a condition, a listener, a parent.
fn is_same_entry(a: &Value, b: &Value) -> bool {
    let names = ["type", "name", "parentRef", "ancestorRef"];
    match names.iter().find(|name| !a[**name].is_null()) {
        Some(name) => a[*name] == b[*name] && a["controllerName"] == b["controllerName"],
        None => a == b,
    }
}

/// Keeps what other controllers wrote: entries with another `controllerName`.
fn keep_others(new: &mut Value, old: &Value) {
    for list in ["parents", "ancestors"] {
        let Some(values) = new[list].as_array_mut() else { continue };
        let Some(mine) = values.first().map(|v| v["controllerName"].clone()) else { continue };
        let others = old[list].as_array().into_iter().flatten();
        values.extend(others.filter(|o| o["controllerName"] != mine).cloned());
    }
}

/// What was written.
#[derive(Debug, Default)]
pub struct Writer {
    /// Statuses as the API server has them, of watched objects and of our own writing.
    pub known: BTreeMap<ObjectRef, Value>,
    told: BTreeSet<Event>,
    number: u64,
}

impl Writer {
    /// Writes the statuses and events that are new.
    pub async fn write(&mut self, cluster: &Cluster, places: &[Place], rendered: &Rendered) {
        let now = SystemTime::now();
        for status in &rendered.statuses {
            let Some(place) = places.iter().find(|p| p.kind == status.object.kind) else {
                continue;
            };
            let old = self.known.get(&status.object).cloned().unwrap_or(Value::Null);
            let mut new = status.status.clone();
            keep_others(&mut new, &old);
            with_times(&mut new, &old, &rfc3339(now, false));
            if is_part_of(&new, &old) {
                continue;
            }
            let path = format!("{}/status", place.object(&status.object));
            match cluster.merge(&path, &json!({ "status": new })).await {
                Ok(object) => {
                    self.known.insert(status.object.clone(), object["status"].clone());
                }
                // It is gone, or was never there: a file's name in a test.
                Err(error) if error.status == Some(404) => {}
                Err(error) => log(&format!("status of {}: {error}", status.object)),
            }
        }
        self.told.retain(|event| rendered.events.contains(event));
        for event in &rendered.events {
            if self.told.insert(event.clone()) {
                self.tell(cluster, places, event, now).await;
            }
        }
    }

    async fn tell(&mut self, cluster: &Cluster, places: &[Place], event: &Event, now: SystemTime) {
        let (_, _, kind, _) = event.object.kind.names();
        let api_version =
            places.iter().find(|p| p.kind == event.object.kind).map(|p| p.api_version.clone());
        let namespace = match event.object.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        };
        let micros = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
        self.number += 1;
        let name = format!("{}.{micros:x}.{}", event.object.name, self.number);
        let time = rfc3339(now, false);
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace },
            "involvedObject": {
                "apiVersion": api_version,
                "kind": kind,
                "namespace": event.object.namespace,
                "name": event.object.name,
            },
            "type": if event.warning { "Warning" } else { "Normal" },
            "reason": event.reason,
            "message": event.message,
            "source": { "component": "weir-kube" },
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        });
        let path = format!("/api/v1/namespaces/{namespace}/events");
        if let Err(error) = cluster.send("POST", &path, "application/json", Some(&body)).await {
            log(&format!("event of {}: {error}", event.object));
        }
    }

    /// Notes the status of a watched object.
    pub fn observe(&mut self, object: ObjectRef, status: Value) {
        let written = [
            Kind::Ingress,
            Kind::GatewayClass,
            Kind::Gateway,
            Kind::HttpRoute,
            Kind::GrpcRoute,
            Kind::TlsRoute,
            Kind::TcpRoute,
            Kind::UdpRoute,
            Kind::BackendTlsPolicy,
        ];
        if written.contains(&object.kind) {
            self.known.insert(object, status);
        }
    }
}

/// Whether all of a value is in another one.
fn is_part_of(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(_)) => {
            new.iter().all(|(name, value)| is_part_of(value, &old[name.as_str()]))
        }
        // An empty list and none are the same.
        (Value::Array(new), Value::Null) => new.is_empty(),
        (Value::Array(new), Value::Array(old)) => {
            new.len() == old.len() && new.iter().zip(old).all(|(n, o)| is_part_of(n, o))
        }
        (Value::Object(new), Value::Null) => new.values().all(|v| is_part_of(v, &Value::Null)),
        (new, old) => new == old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(status: &str) -> Value {
        json!({ "type": "Accepted", "status": status, "reason": "x" })
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let of = |name: &str, status: &str| {
            let conditions = [accepted(status)];
            json!({ "parentRef": { "name": name }, "conditions": conditions })
        };
        let mut old = json!({ "parents": [of("g", "True")] });
        with_times(&mut old, &Value::Null, "one");
        let mut new = json!({ "parents": [
            { "parentRef": { "name": "h" }, "conditions": [accepted("True")] },
            { "parentRef": { "name": "g" }, "conditions": [accepted("True")] },
        ] });
        with_times(&mut new, &old, "two");
        let time =
            |v: &Value, i: usize| v["parents"][i]["conditions"][0]["lastTransitionTime"].clone();
        assert_eq!((time(&new, 0), time(&new, 1)), (json!("two"), json!("one")));
        let mut other = json!({ "parents": [of("g", "False")] });
        with_times(&mut other, &old, "three");
        assert_eq!(time(&other, 0), "three");
    }

    #[test]
    fn others_are_kept_and_what_is_there_is_not_written() {
        let old = json!({ "parents": [{ "controllerName": "other" }, { "controllerName": "me" }] });
        let mut new = json!({ "parents": [{ "controllerName": "me" }] });
        keep_others(&mut new, &old);
        assert_eq!(new["parents"].as_array().unwrap().len(), 2);
        assert!(is_part_of(&json!({ "a": [], "b": 1 }), &json!({ "b": 1, "c": 2 })));
        assert!(!is_part_of(&json!({ "a": [1] }), &json!({})));
    }
}
