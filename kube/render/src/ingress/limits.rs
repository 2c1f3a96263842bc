//! Limits of connections, requests and rates.

use super::Ing;
use crate::annotations::Annotations;
use crate::check;
use crate::conf::{Block, plain, template, w};
use crate::cx::Cx;

/// `limit_conn`, `limit_req` and `limit_rate`.
pub(super) fn render(cx: &mut Cx, ing: &Ing, ann: &Annotations, block: &mut Block) {
    let id = crate::cx::digest(&[ing.key.to_string().as_bytes()]);
    let burst = ann.int("limit-burst-multiplier").filter(|n| *n > 0).unwrap_or(5);
    let conns = ann.int("limit-connections").filter(|n| *n > 0);
    let rps = ann.int("limit-rps").filter(|n| *n > 0);
    let rpm = ann.int("limit-rpm").filter(|n| *n > 0);
    if conns.or(rps).or(rpm).is_some() && cx.first(&format!("limits {id}")) {
        limit_zones(cx, ing, ann, &id, conns, rps, rpm);
    }
    if let Some(n) = conns {
        block.add("limit_conn", [format!("conn_{id}"), n.to_string()].map(plain));
    }
    for (kind, rate) in [("rps", rps), ("rpm", rpm)] {
        if let Some(rate) = rate {
            let zone = plain(format!("zone={kind}_{id}"));
            let burst = plain(format!("burst={}", rate.saturating_mul(burst).min(1_000_000_000)));
            block.add("limit_req", [zone, burst, w("nodelay")]);
        }
    }
    for (annotation, directive) in
        [("limit-rate-after", "limit_rate_after"), ("limit-rate", "limit_rate")]
    {
        let n = ann.int(annotation).unwrap_or_else(|| cx.config.int(annotation));
        if n > 0 {
            block.add(directive, [plain(format!("{n}k"))]);
        }
    }
}

fn limit_zones(
    cx: &mut Cx,
    ing: &Ing,
    ann: &Annotations,
    id: &str,
    conns: Option<u64>,
    rps: Option<u64>,
    rpm: Option<u64>,
) {
    let variable = cx.config.get("limit-conn-zone-variable").to_owned();
    let http = &mut cx.http;
    http.owned_by(Some(ing.owner));
    let list = ann.trimmed("limit-allowlist").or_else(|| ann.trimmed("limit-whitelist"));
    let mut geo = Block::of(Some(ing.owner));
    geo.add("default", ["0"]);
    for address in check::list(list.unwrap_or_default()).filter_map(check::cidr) {
        geo.entry(plain(address), ["1"]);
    }
    http.block("geo", [w("$remote_addr"), w(format!("$allowlist_{id}"))], geo);
    let mut map = Block::of(Some(ing.owner));
    map.entry(w("0"), [template(variable)]);
    map.entry(w("1"), [w("")]);
    http.block("map", [w(format!("$allowlist_{id}")), w(format!("$limit_{id}"))], map);
    let key = w(format!("$limit_{id}"));
    if conns.is_some() {
        http.add("limit_conn_zone", [key.clone(), plain(format!("zone=conn_{id}:5m"))]);
    }
    for (kind, rate, unit) in [("rps", rps, "s"), ("rpm", rpm, "m")] {
        if let Some(rate) = rate {
            let zone = plain(format!("zone={kind}_{id}:5m"));
            let rate = plain(format!("rate={}r/{unit}", rate.min(1_000_000_000)));
            http.add("limit_req_zone", [key.clone(), zone, rate]);
        }
    }
    http.owned_by(None);
}
