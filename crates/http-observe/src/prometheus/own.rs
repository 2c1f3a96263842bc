//! The names of our own: histograms, and what the exporter has no name for.

use std::rc::Rc;

use ::upstream::api::EngineKind;
use common_modules::ssl::Known;
use engine::metrics::functions::FunctionCounts;
use engine::metrics::{Kind, Reading, word};
use engine::stats::OverloadReport;
use http::server::HttpMain;
use net::moves::{Kind as MoveKind, Stay};

use super::nginx::{of_peers, zones};
use super::table::{ABSENT, Column, Table, Type, histogram, label, times};
use crate::api::upstreams;

fn values(reading: &Reading) -> Vec<u64> {
    times(reading).chain([reading.get(word::LOST)]).collect()
}

fn columns(times: (&'static str, &'static str), lost: &'static str) -> Vec<Column> {
    let mut all = histogram(times.0, times.1);
    all.push(Column::new(lost, Type::Counter, "Lost with a worker that died."));
    all
}

pub(super) fn tables(main: &Rc<HttpMain>) -> Vec<Table> {
    let http = columns(
        ("weir_http_request_duration_seconds", "Times of requests by server."),
        "weir_http_requests_lost_total",
    );
    let location = histogram("weir_location_request_duration_seconds", "Times by location.");
    let stream = columns(
        ("weir_stream_session_duration_seconds", "Times of sessions by server."),
        "weir_stream_sessions_lost_total",
    );
    let peers = |kind, name, help| {
        let groups = upstreams::groups_of(main, kind);
        let read = |peer: &::upstream::peer::Peer| times(&peer.reading()).collect();
        of_peers(&groups, histogram(name, help), ["upstream", "server"], read)
    };
    let of_http = peers(
        EngineKind::Http,
        "weir_upstream_response_duration_seconds",
        "Times of exchanges with servers.",
    );
    let of_stream = peers(
        EngineKind::Stream,
        "weir_stream_upstream_session_duration_seconds",
        "Times of connections to servers.",
    );
    let of_server = zones(main, Kind::HttpServer, "server_zone", &http, values);
    let of_location =
        zones(main, Kind::Location, "location_zone", &location, |reading| times(reading).collect());
    let mut all = vec![
        exemplary(main, Kind::HttpServer, of_server),
        exemplary(main, Kind::Location, of_location),
        zones(main, Kind::StreamServer, "server_zone", &stream, values),
        of_http,
        of_stream,
        logins(main),
        process(main),
        overload(main),
        moves(main),
        shared_zones(main),
        certificates(main),
    ];
    all.extend(shared_state(main));
    all.extend(spans(main));
    all.extend(log_records(main));
    all.extend(functions(main));
    all
}

/// The functions of scripts that directives name, if there are any.
fn functions(main: &Rc<HttpMain>) -> Option<Table> {
    use Type::Counter;
    let functions = main.metrics.parts::<FunctionCounts>();
    if functions.is_empty() {
        return None;
    }
    let all = [
        Column::new("weir_script_calls_total", Counter, "Calls of a function of a script."),
        Column::new("weir_script_failures_total", Counter, "Of these, failed."),
        Column::new("weir_script_cpu_seconds_total", Counter, "Processor time it took.").time(),
    ];
    let labels = |_, of: &Rc<FunctionCounts>| {
        let labels = [
            label("engine", of.engine.as_bytes()),
            label("directive", of.directive.as_bytes()),
            label("function", of.function.as_bytes()),
        ];
        labels.join(",")
    };
    let read = |_, of: &Rc<FunctionCounts>| {
        let sums = of.sums();
        vec![sums.calls, sums.failures, sums.usec]
    };
    let loaded_ms = main.metrics.loaded_ms();
    let mut table = Table::of(all.into(), functions, labels, read);
    table.began_ms = Some(Box::new(move |_| loaded_ms));
    Some(table)
}

/// A table of zones with its exemplars: traced requests of the worker that answers.
fn exemplary(main: &Rc<HttpMain>, kind: Kind, mut table: Table) -> Table {
    let metrics = main.metrics.clone();
    let names: Vec<Vec<u8>> = metrics.zones(kind).iter().map(|zone| zone.name().to_vec()).collect();
    let main = main.clone();
    table.exemplar = Some(Box::new(move |line, bucket| {
        let row = metrics.row_named(kind, names.get(line)?)?;
        otel::exemplar(&main, row, bucket)
    }));
    table
}

/// The logins, of mail and by requests, that a limit on failures sees.
fn logins(main: &Rc<HttpMain>) -> Table {
    use Type::Counter;
    let all = [
        Column::new("weir_limit_auth_passed_total", Counter, "Logins that were let through."),
        Column::new("weir_limit_auth_failed_total", Counter, "Of these, failed."),
        Column::new("weir_limit_auth_rejected_total", Counter, "Logins that were refused."),
        Column::new("weir_limit_auth_rejected_dry_run_total", Counter, "The same in a dry run."),
    ];
    let words = |reading: &Reading| {
        let all = [word::PASSED, word::FAILED, word::REJECTED, word::REJECTED_DRY_RUN];
        all.map(|word| reading.get(word)).into()
    };
    zones(main, Kind::LimitAuth, "zone", &all, words)
}

/// Spans for a collector, where requests may have some.
fn spans(main: &Rc<HttpMain>) -> Option<Table> {
    use Type::Counter;
    otel::sums(main)?;
    let all = [
        Column::new("weir_otel_spans_exported_total", Counter, "Spans that the collector took."),
        Column::new("weir_otel_spans_dropped_total", Counter, "Spans without room to wait."),
        Column::new("weir_otel_spans_failed_total", Counter, "Spans that it did not take."),
    ];
    let main = main.clone();
    let loaded_ms = main.metrics.loaded_ms();
    let read = move || otel::sums(&main).unwrap_or_default().to_vec();
    let mut table = Table::single(all.into(), read);
    table.began_ms = Some(Box::new(move |_| loaded_ms));
    Some(table)
}

/// Lines of logs for a collector, where some go there.
fn log_records(main: &Rc<HttpMain>) -> Option<Table> {
    use Type::Counter;
    otel::log_sums(main)?;
    let all = [
        Column::new("weir_otel_logs_exported_total", Counter, "Lines that the collector took."),
        Column::new("weir_otel_logs_dropped_total", Counter, "Lines without room to wait."),
        Column::new("weir_otel_logs_failed_total", Counter, "Lines that it did not take."),
    ];
    let (main, loaded_ms) = (main.clone(), main.metrics.loaded_ms());
    let read = move || otel::log_sums(&main).unwrap_or_default().to_vec();
    let mut table = Table::single(all.into(), read);
    table.began_ms = Some(Box::new(move |_| loaded_ms));
    Some(table)
}

/// The event loops, logs and processes.
fn process(main: &Rc<HttpMain>) -> Table {
    use Type::{Counter, Gauge};
    let all = [
        Column::new("weir_loop_turns_total", Counter, "Turns of the event loops."),
        Column::new("weir_loop_polls_total", Counter, "Tasks polled by the event loops."),
        Column::new("weir_loop_longest_turn_seconds", Gauge, "The longest turn so far.").time(),
        Column::new("weir_loop_tasks", Gauge, "Tasks of the event loops."),
        Column::new("weir_log_lines_dropped_total", Counter, "Log lines that were dropped."),
        Column::new("weir_processes_respawned_total", Counter, "Processes started again."),
        Column::new("weir_config_generation", Gauge, "The number of the configuration."),
        Column::new("weir_config_loaded_seconds", Gauge, "When it was loaded, since 1970."),
    ];
    let main = main.clone();
    let read = move || {
        let (work, workers) = (main.stats.work(), main.stats.workers());
        let longest = workers.iter().map(|w| w.longest_turn_ms).max().unwrap_or(0);
        vec![
            work.turns,
            work.polls,
            longest * 1000,
            workers.iter().map(|w| w.tasks).sum(),
            work.dropped,
            main.stats.respawned(),
            engine::metrics::generation(),
            main.metrics.loaded_ms() / 1000,
        ]
    };
    Table::single(all.into(), read)
}

fn overload(main: &Rc<HttpMain>) -> Table {
    use Type::{Counter, Gauge};
    let all = [
        Column::new("weir_overload_step", Gauge, "0: room; 1: closing; 2: shedding; 3: refusing."),
        Column::new("weir_overload_closes_total", Counter, "Beginnings of the first step."),
        Column::new("weir_overload_sheds_total", Counter, "Beginnings of the second step."),
        Column::new("weir_overload_refusals_total", Counter, "Beginnings of the third step."),
        Column::new("weir_overload_closed_total", Counter, "Connections closed to make room."),
        Column::new("weir_overload_refused_total", Counter, "Requests and sessions refused."),
        Column::new("weir_overload_preferred_total", Counter, "Connections accepted meanwhile."),
        Column::new("weir_overload_displaced_total", Counter, "Busy connections closed for them."),
    ];
    let main = main.clone();
    let read = move || {
        let report = main.stats.overload();
        let [closes, sheds, refusals] = report.begun;
        let OverloadReport { step, closed, refused, preferred, displaced, .. } = report;
        vec![step, closes, sheds, refusals, closed, refused, preferred, displaced]
    };
    Table::single(all.into(), read)
}

/// The connection to the engine of `shared_state`, where there is one.
fn shared_state(main: &Rc<HttpMain>) -> Option<Table> {
    use Type::{Counter, Gauge};
    let fleet = crate::shared_state::fleet(main)?;
    let all = [
        Column::new("weir_shared_state_joined", Gauge, "1 while the engine answers."),
        Column::new("weir_shared_state_lag_seconds", Gauge, "Since it answered last.").time(),
        Column::new("weir_shared_state_round_seconds", Gauge, "Time of the last round.").time(),
        Column::new("weir_shared_state_peers", Gauge, "Servers that share state, with this one."),
        Column::new("weir_shared_state_rounds_total", Counter, "Rounds that it answered."),
        Column::new("weir_shared_state_failures_total", Counter, "Rounds that it did not."),
        Column::new("weir_shared_state_fallbacks_total", Counter, "Falls back to local state."),
        Column::new("weir_shared_state_sent_total", Counter, "Keys and pairs that were sent."),
        Column::new("weir_shared_state_received_total", Counter, "Pairs of others received."),
        Column::new("weir_shared_state_dropped_total", Counter, "Changes lost for lack of room."),
        Column::new("weir_shared_state_foreign_total", Counter, "Keys of another program."),
        Column::new("weir_shared_state_malformed_total", Counter, "Answers that make no sense."),
        Column::new(
            "weir_shared_state_waits_total",
            Counter,
            "Requests that waited for the engine.",
        ),
    ];
    let read = move || {
        let shown = fleet.status().snapshot(base::time::now_ms());
        let is_joined = shown.state == fleet::State::Joined;
        let lag_us = shown.lag_ms.map_or(ABSENT, |ms| ms.saturating_mul(1000));
        let mut all = vec![is_joined.into(), lag_us, shown.round_us, shown.peers];
        all.extend(shown.counters);
        all
    };
    Some(Table::single(all.into(), read))
}

/// The moves of live connections between workers.
fn moves(main: &Rc<HttpMain>) -> Table {
    let help = "Connections that went to new workers, or stayed with workers that left.";
    let column = |kind: MoveKind, outcome: &str| {
        let mut column = Column::new("weir_handover_total", Type::Counter, help);
        column.labels = format!("kind=\"{}\",outcome=\"{outcome}\"", kind.name());
        column
    };
    let all = MoveKind::ALL.into_iter().flat_map(|kind| {
        let stayed = Stay::ALL.map(|why| column(kind, why.name()));
        [column(kind, "moved")].into_iter().chain(stayed)
    });
    let all = all.collect();
    let main = main.clone();
    let read = move || {
        let reports = MoveKind::ALL.map(|kind| main.stats.moves(kind));
        reports.iter().flat_map(|report| [report.moved].into_iter().chain(report.stayed)).collect()
    };
    Table::single(all, read)
}

fn shared_zones(main: &Rc<HttpMain>) -> Table {
    let all = [
        Column::new("weir_zone_used_units", Type::Gauge, "Units of a shared zone in use."),
        Column::new("weir_zone_units", Type::Gauge, "Units of a shared zone."),
    ];
    let read = |_, zone: &shm::ZoneReport| vec![zone.fill.used as u64, zone.fill.capacity as u64];
    let zones = main.metrics.shared_zones();
    Table::of(all.into(), zones, |_, zone| label("zone", &zone.name), read)
}

/// The certificates of servers, and their orders.
fn certificates(main: &Rc<HttpMain>) -> Table {
    use Type::Gauge;
    let all = [
        Column::new("weir_certificate_expires_seconds", Gauge, "When it ends, since 1970."),
        Column::new("weir_certificate_renewal_seconds", Gauge, "When it is renewed, since 1970."),
        Column::new("weir_certificate_issued", Gauge, "Whether an ordered one is there."),
        Column::new("weir_certificate_failures", Gauge, "Attempts that failed, in a row."),
    ];
    let second = |at: Option<i64>| at.and_then(|at| u64::try_from(at).ok()).unwrap_or(ABSENT);
    let read = move |_, known: &Known| {
        let order = known.order.as_ref();
        vec![
            second(known.until),
            second(order.and_then(|order| order.renewal)),
            order.map_or(ABSENT, |order| order.is_issued.into()),
            order.map_or(ABSENT, |order| order.failures),
        ]
    };
    let label = |_, known: &Known| label("certificate", known.name.as_bytes());
    Table::of(all.into(), http::ssl::certificates(main), label, read)
}
