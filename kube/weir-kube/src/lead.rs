//! One of several controllers writes statuses and events: the holder of a Lease. All of them serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use crate::apply::log;
use crate::cluster::{Cluster, Failed};

const DURATION: Duration = Duration::from_secs(30);
const RENEWAL: Duration = Duration::from_secs(10);

/// A time as RFC 3339, with microseconds if wanted.
pub fn rfc3339(time: SystemTime, micros: bool) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = ((since.as_secs() / 86_400) as i64, since.as_secs() % 86_400);
    // Days since 0000-03-01, so that a leap day ends a year (Howard Hinnant's algorithm).
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let fraction = if micros { format!(".{:06}", since.subsec_micros()) } else { String::new() };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Takes and renews the Lease for ever; `leads` says whether it is held.
pub async fn campaign(
    cluster: Cluster,
    namespace: String,
    name: String,
    me: String,
    leads: Arc<AtomicBool>,
) {
    let mut seen = Seen { holder: Value::Null, renewed: Value::Null, since: Instant::now() };
    loop {
        let held = match attempt(&cluster, &namespace, &name, &me, &mut seen).await {
            Ok(held) => held,
            // Another one may take over when the Lease is not renewed: do not write meanwhile.
            Err(error) => {
                log(&format!("lease {namespace}/{name}: {error}"));
                false
            }
        };
        if leads.swap(held, Ordering::Relaxed) != held {
            log(if held {
                "writing statuses from now on"
            } else {
                "another controller writes statuses"
            });
        }
        tokio::time::sleep(if held { RENEWAL } else { RENEWAL / 2 }).await;
    }
}

/// The holder as it was last seen. Its clock is not compared with ours: only how long its renewal
/// has not changed counts.
struct Seen {
    holder: Value,
    renewed: Value,
    since: Instant,
}

async fn attempt(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    me: &str,
    seen: &mut Seen,
) -> Result<bool, Failed> {
    let list = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let path = format!("{list}/{name}");
    let now = rfc3339(SystemTime::now(), true);
    let json = "application/json";
    let mut lease = match cluster.get(&path).await {
        Ok(lease) => lease,
        Err(error) if error.status == Some(404) => {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": { "name": name, "namespace": namespace },
                "spec": {
                    "holderIdentity": me,
                    "leaseDurationSeconds": DURATION.as_secs(),
                    "acquireTime": now,
                    "renewTime": now,
                    "leaseTransitions": 0,
                },
            });
            return won(cluster.send("POST", &list, json, Some(&lease)).await);
        }
        Err(error) => return Err(error),
    };
    let holder = lease["spec"]["holderIdentity"].clone();
    let renewed = lease["spec"]["renewTime"].clone();
    if holder != seen.holder || renewed != seen.renewed {
        *seen = Seen { holder: holder.clone(), renewed, since: Instant::now() };
    }
    let free = holder.as_str().is_none_or(str::is_empty);
    if holder != me && !free && seen.since.elapsed() < DURATION {
        return Ok(false);
    }
    if holder != me {
        let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
        lease["spec"]["leaseTransitions"] = (transitions + 1).into();
        lease["spec"]["acquireTime"] = now.clone().into();
    }
    lease["spec"]["holderIdentity"] = me.into();
    lease["spec"]["renewTime"] = now.into();
    lease["spec"]["leaseDurationSeconds"] = DURATION.as_secs().into();
    // The version in the object makes this fail if another one was faster.
    won(cluster.send("PUT", &path, json, Some(&lease)).await)
}

fn won(result: Result<Value, Failed>) -> Result<bool, Failed> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if error.status == Some(409) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let at = |secs| rfc3339(SystemTime::UNIX_EPOCH + Duration::from_secs(secs), false);
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_795_813_199), "2026-11-27T20:59:59Z");
        let micros = SystemTime::UNIX_EPOCH + Duration::from_micros(1_500_000);
        assert_eq!(rfc3339(micros, true), "1970-01-01T00:00:01.500000Z");
    }
}
