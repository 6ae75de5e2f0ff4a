//! Checks of the daemons: reachability, version, and clock skew with this machine.

use super::http_date::seconds_of;
use super::store::{Led, led, locations};
use super::{Finding, Grade};
use http::header::DATE;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use treadle_config::{Config, Role};
use treadle_http::{Upstream, UpstreamError};
use treadle_trust::Secret;

/// Name of this area.
const AREA: &str = "daemons";
/// Timeout of a response.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a health report.
const HEALTH_BYTES_MAX: usize = 1 << 20;
/// Clocks that differ by more make times of different daemons hard to compare. Headers have whole
/// seconds.
const SKEW_S_MAX: i64 = 2;

/// Checks the daemon at a URL, and each shard's leader.
pub(super) async fn examine(config: &Config, upstream: &Upstream, url: &str) -> Vec<Finding> {
    let mut findings = one(upstream, url, "the daemon").await;
    if config.cluster.role == Role::Single {
        return findings;
    }
    for (shard, location) in locations(config) {
        match led(&location).await {
            Led::By(leader) if leader.url.trim_end_matches('/') == url => {}
            Led::By(leader) => {
                let who = format!("{}, the leader of shard {shard}", leader.name);
                findings.extend(one(upstream, leader.url.trim_end_matches('/'), &who).await);
            }
            Led::Unled | Led::Unknown => findings.push(Finding::of(
                AREA,
                format!("leader of shard {shard}"),
                Grade::Warn,
                "nobody leads",
                "start a daemon with `cluster.role = all`",
            )),
        }
    }
    findings
}

async fn one(upstream: &Upstream, url: &str, who: &str) -> Vec<Finding> {
    let check = format!("{who} at {}", Secret::new(url));
    let asked = async {
        let response = upstream.get(url, "/health").await;
        let response = response.map_err(|error| match error {
            UpstreamError::Connect(cause) => format!("no connection: {cause}"),
            other => other.to_string(),
        })?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, HEALTH_BYTES_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok::<_, String>((parts, body))
    };
    let answered = match tokio::time::timeout(TIMEOUT, asked).await {
        Ok(answered) => answered,
        Err(_) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    };
    let (parts, body) = match answered {
        Ok(answer) => answer,
        Err(cause) => {
            let remedy = "start it with `treadle serve`, or name another with --url";
            return vec![Finding::of(AREA, check, Grade::Warn, cause, remedy)];
        }
    };
    let health: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut findings = vec![of_health(check.clone(), parts.status.is_success(), &health)];
    let said = parts.headers.get(DATE).and_then(|date| date.to_str().ok());
    if let Some(there_s) = said.and_then(seconds_of) {
        findings.push(of_clock(format!("clock of {check}"), there_s));
    }
    findings
}

fn of_health(check: String, is_well: bool, health: &Value) -> Finding {
    let version = health["version"].as_str().unwrap_or("unknown");
    let detail = health["detail"].as_str().unwrap_or_default();
    if health["version"].is_null() {
        let remedy = "this is not treadle: name a daemon with --url";
        return Finding::of(AREA, check, Grade::Fail, "not a health report", remedy);
    }
    if version != env!("CARGO_PKG_VERSION") {
        let finding = format!(
            "its version is {version}, this is {}",
            env!("CARGO_PKG_VERSION")
        );
        let remedy = "finish the upgrade: docs/guides/operate.md has the order";
        return Finding::of(AREA, check, Grade::Warn, finding, remedy);
    }
    if !is_well {
        let finding = format!("version {version}; {detail}");
        let remedy = "see the findings of the engines and the store; `treadle status` has more";
        return Finding::of(AREA, check, Grade::Fail, finding, remedy);
    }
    Finding::ok(AREA, check, format!("version {version}, serves"))
}

fn of_clock(check: String, there_s: u64) -> Finding {
    let here = SystemTime::now().duration_since(UNIX_EPOCH);
    let here_s = here.map_or(0, |here| here.as_secs());
    let ahead_s = there_s.cast_signed() - here_s.cast_signed();
    if ahead_s.abs() <= SKEW_S_MAX {
        return Finding::ok(AREA, check, "agrees with this machine's to the second");
    }
    let finding = format!("it is {ahead_s} s ahead of this machine's");
    let remedy = "synchronise both with NTP; treadle's own order does not depend on it";
    Finding::of(AREA, check, Grade::Warn, finding, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_daemon_that_is_down_is_no_engine_and_its_url_keeps_its_secret() {
        let upstream = Upstream::new(TIMEOUT);
        let url = "http://treadle:tr_1@127.0.0.1:1";
        let found = one(&upstream, url, "the daemon").await;
        let shown = format!("{} {}", found[0].check, found[0].seen);
        assert!(shown.contains("no connection: "), "{shown}");
        assert!(
            !shown.contains("engine") && !shown.contains("tr_1"),
            "{shown}"
        );
    }

    #[test]
    fn health_is_graded() {
        let version = env!("CARGO_PKG_VERSION");
        let grade = |well, health: &Value| of_health("d".to_owned(), well, health).grade;
        assert_eq!(grade(true, &json!({"version": version})), Grade::Ok);
        assert_eq!(grade(false, &json!({"version": version})), Grade::Fail);
        assert_eq!(grade(true, &json!({"version": "0.0.1"})), Grade::Warn);
        assert_eq!(grade(true, &json!({"hello": 1})), Grade::Fail);
    }

    #[test]
    fn clock_skew_is_reported() {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_secs();
        assert_eq!(of_clock("c".to_owned(), now).grade, Grade::Ok);
        let behind = of_clock("c".to_owned(), now - 60);
        assert_eq!(behind.grade, Grade::Warn);
        assert!(behind.seen.contains("is -6"), "{}", behind.seen);
    }
}
