//! The names of the module vhost_traffic_status, for dashboards that were made for it.

use std::rc::Rc;

use ::upstream::api::EngineKind;
use ::upstream::peer::Peer;
use engine::metrics::{Kind, Reading, word};
use engine::stats::Field;
use http::server::HttpMain;

use super::nginx::{of_peers, zones};
use super::table::{Column, Table, Type, label};
use crate::api::upstreams;

fn by(family: &'static str, help: &'static str, name: &str, values: &[&str]) -> Vec<Column> {
    let column =
        |value: &&str| Column::new(family, Type::Counter, help).with(label(name, value.as_bytes()));
    values.iter().map(column).collect()
}

const CLASSES: &[&str] = &["1xx", "2xx", "3xx", "4xx", "5xx", "total"];
const DIRECTIONS: &[&str] = &["in", "out"];

/// Bytes by direction, responses by class, and the sum of times.
fn values(reading: &Reading, [received, sent]: [u64; 2]) -> Vec<u64> {
    let mut values = vec![received, sent];
    values.extend((1..=5).map(|class| reading.class(class)));
    values.extend([reading.get(word::DONE), reading.get(word::TIME_US)]);
    values
}

fn server_columns() -> Vec<Column> {
    let mut all =
        by("nginx_vts_server_bytes_total", "Bytes by direction.", "direction", DIRECTIONS);
    all.extend(by("nginx_vts_server_requests_total", "Requests by class.", "code", CLASSES));
    let time = "nginx_vts_server_request_seconds_total";
    all.push(Column::new(time, Type::Counter, "The sum of the times of requests.").time());
    all
}

fn peer_columns() -> Vec<Column> {
    let bytes = "nginx_vts_upstream_bytes_total";
    let mut all = by(bytes, "Bytes by direction.", "direction", DIRECTIONS);
    all.extend(by("nginx_vts_upstream_requests_total", "Requests by class.", "code", CLASSES));
    let time = "nginx_vts_upstream_response_seconds_total";
    all.push(Column::new(time, Type::Counter, "The sum of the times of responses.").time());
    all
}

pub(super) fn tables(main: &Rc<HttpMain>) -> Vec<Table> {
    let (stats, loaded) = (main.stats.clone(), main.metrics.loaded_ms());
    let fields = [
        ("accepted", Field::Accepted),
        ("active", Field::Active),
        ("handled", Field::Handled),
        ("reading", Field::Reading),
        ("requests", Field::Requests),
        ("waiting", Field::Waiting),
        ("writing", Field::Writing),
    ];
    let mut columns = vec![
        Column::new("nginx_vts_info", Type::Gauge, "The server's version.")
            .with(label("version", env!("CARGO_PKG_VERSION").as_bytes())),
        Column::new("nginx_vts_start_time_seconds", Type::Gauge, "When the configuration began."),
    ];
    columns.extend(fields.map(|(name, _)| {
        let column = Column::new("nginx_vts_main_connections", Type::Gauge, "Connections.");
        column.with(label("status", name.as_bytes()))
    }));
    let read = move || {
        let sums = fields.iter().map(|(_, field)| stats.sum(*field));
        [1, loaded / 1000].into_iter().chain(sums).collect()
    };
    let groups = upstreams::groups_of(main, EngineKind::Http);
    vec![
        Table::single(columns, read),
        zones(main, Kind::HttpServer, "host", &server_columns(), |reading| {
            values(reading, [reading.get(word::RECEIVED), reading.get(word::SENT)])
        }),
        of_peers(&groups, peer_columns(), ["upstream", "backend"], |peer: &Peer| {
            let reading = peer.reading();
            // Seen from the server of the upstream, as in that module.
            values(&reading, [reading.get(word::SENT), reading.get(word::RECEIVED)])
        }),
    ]
}
