//! Findings about the running daemon: its own reports, and whether it runs the configuration here.

use super::store::{Led, led, locations};
use super::{Finding, Grade};
use serde::Serialize;
use serde_json::Value;
use treadle_config::Config;
use treadle_store::{LeaderRow, Location};
use treadle_trust::Secret;

/// The area of a daemon's engines.
const ENGINES: &str = "engines";
/// The area of a daemon's broker.
const BROKER: &str = "broker";
/// The area of a daemon's nodes.
const NODES: &str = "nodes";
/// The area of daemons themselves.
const DAEMONS: &str = "daemons";

/// A daemon's reports about itself, or why they are missing.
pub(crate) struct DaemonReport {
    /// `GET /health`.
    pub(crate) health: Result<Value, String>,
    /// `GET /workers`.
    pub(crate) workers: Result<Value, String>,
    /// `GET /api/v1/cluster`.
    pub(crate) cluster: Result<Value, String>,
    /// `GET /api/v1/nodes`.
    pub(crate) nodes: Result<Value, String>,
}

/// Which daemon runs the configuration here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunBy {
    /// The examined daemon.
    ThisDaemon,
    /// Another daemon: it schedules on the configuration's store.
    AnotherDaemon,
    /// No daemon.
    Nobody,
    /// The store does not tell.
    Unknown,
}

impl DaemonReport {
    /// The version of the daemon, if the server is one.
    pub(crate) fn version(&self) -> Option<&str> {
        self.health.as_ref().ok()?["version"].as_str()
    }

    /// Whether the daemon has engines.
    pub(super) fn has_engines(&self) -> bool {
        let total = |workers: &Value| workers["total"].as_u64();
        self.workers.as_ref().ok().and_then(total) > Some(0)
    }

    /// Findings from the reports, and from the leaders on the configuration's stores.
    pub(super) async fn examine(&self, config: &Config, url: &str) -> (RunBy, Vec<Finding>) {
        let mut findings = self.of_engines();
        findings.extend(self.of_broker());
        findings.extend(self.of_nodes());
        let mut run_by = RunBy::Nobody;
        for (shard, location) in locations(config) {
            let (by, other) = match led(&location).await {
                // Each process has its own; a daemon with a configuration without a store leaves no
                // trace.
                _ if location == Location::Memory => (RunBy::Unknown, None),
                Led::Unled => (RunBy::Nobody, None),
                Led::Unknown => (RunBy::Unknown, None),
                Led::By(leader) if self.is(&leader, url) => (RunBy::ThisDaemon, None),
                Led::By(leader) => (RunBy::AnotherDaemon, Some(leader)),
            };
            run_by = run_by.or(by);
            if let Some(leader) = other.filter(|_| self.version().is_some()) {
                findings.push(Finding::of(
                    DAEMONS,
                    format!("store of shard {shard}"),
                    Grade::Warn,
                    format!(
                        "{} at {} was the last to schedule on it, not {}",
                        leader.name,
                        leader.url,
                        Secret::new(url)
                    ),
                    "name that daemon with --url, or the configuration of this one with --config",
                ));
            }
        }
        (run_by, findings)
    }

    /// Whether the daemon is a store's leader, or a gateway of it.
    fn is(&self, leader: &LeaderRow, url: &str) -> bool {
        let Ok(cluster) = &self.cluster else {
            return leader.url.trim_end_matches('/') == url;
        };
        let shards = cluster["shards"].as_array().into_iter().flatten();
        let mut schedulers = shards.map(|shard| &shard["scheduler"]);
        schedulers.any(|s| s["epoch"] == leader.epoch && s["since_us"] == leader.since_us)
    }

    fn of_engines(&self) -> Vec<Finding> {
        if self.version().is_none() {
            return Vec::new();
        }
        let workers = match &self.workers {
            Ok(workers) => workers["workers"].as_array().into_iter().flatten(),
            Err(cause) => {
                let remedy = "give a token of the daemon with --token";
                let check = "what the daemon has";
                return vec![Finding::of(ENGINES, check, Grade::Warn, cause, remedy)];
            }
        };
        let findings: Vec<Finding> = workers.map(of_engine).collect();
        if !findings.is_empty() {
            return findings;
        }
        let remedy = "add one with `treadle workers add URL`";
        let seen = "no engine is registered with the daemon";
        vec![Finding::of(
            ENGINES,
            "what the daemon has",
            Grade::Warn,
            seen,
            remedy,
        )]
    }

    fn of_nodes(&self) -> Vec<Finding> {
        let nodes = self.nodes.as_ref().ok();
        let nodes = nodes.and_then(|nodes| nodes["nodes"].as_array());
        nodes.into_iter().flatten().map(of_node).collect()
    }

    fn of_broker(&self) -> Option<Finding> {
        let broker = &self.health.as_ref().ok()?["broker"];
        let state = broker["state"].as_str()?;
        let check = "the daemon's connection";
        if broker["degraded"] == false {
            return Some(Finding::ok(BROKER, check, state));
        }
        let cause = broker["cause"]
            .as_str()
            .unwrap_or("events wait to be published");
        let remedy = "check the broker; events stay in the journal meanwhile";
        Some(Finding::of(
            BROKER,
            check,
            Grade::Warn,
            format!("{state}: {cause}"),
            remedy,
        ))
    }
}

impl RunBy {
    /// Combines the results of two shards: the more certain one wins.
    fn or(self, other: Self) -> Self {
        let strength = |run_by| match run_by {
            Self::Nobody => 0,
            Self::Unknown => 1,
            Self::AnotherDaemon => 2,
            Self::ThisDaemon => 3,
        };
        if strength(other) > strength(self) {
            other
        } else {
            self
        }
    }
}

fn of_engine(worker: &Value) -> Finding {
    let check = format!(
        "{}, as reported by the daemon",
        worker["url"].as_str().unwrap_or("?")
    );
    let kind = worker["engine"].as_str().unwrap_or("unknown");
    if worker["is_healthy"] == true {
        let memory = worker["capacity_tokens"].as_u64();
        let memory =
            memory.map_or_else(|| "unknown".to_owned(), |tokens| format!("{tokens} tokens"));
        return Finding::ok(ENGINES, check, format!("{kind}, answers; memory: {memory}"));
    }
    let remedy = "start the engine, or remove it with `treadle workers remove URL`";
    Finding::of(
        ENGINES,
        check,
        Grade::Fail,
        format!("{kind}, does not answer"),
        remedy,
    )
}

fn of_node(node: &Value) -> Finding {
    let text = |field: &str| node[field].as_str().unwrap_or("?").to_owned();
    let check = format!("{} at {}", text("name"), text("url"));
    let (state, seconds) = (text("state"), node["for_s"].as_u64().unwrap_or(0));
    let version = text("version");
    if state == "away" {
        let seen = format!("away for {seconds} s");
        let remedy = "start `treadle node-agent` there again; after `nodes.away_s_max` its sandboxes are lost";
        return Finding::of(NODES, check, Grade::Fail, seen, remedy);
    }
    if version != env!("CARGO_PKG_VERSION") {
        let seen = format!("{state}, of version {version}");
        let remedy = "run the same version of treadle on the daemon and its nodes";
        return Finding::of(NODES, check, Grade::Warn, seen, remedy);
    }
    let sandboxes = node["sandboxes"].as_u64().unwrap_or(0);
    Finding::ok(NODES, check, format!("{state}; sandboxes: {sandboxes}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn daemon_report(workers: Value) -> DaemonReport {
        DaemonReport {
            health: Ok(json!({"version": "1"})),
            workers: Ok(workers),
            cluster: Ok(json!({"shards": [{"scheduler": {"epoch": 2, "since_us": 5}}]})),
            nodes: Ok(json!({"nodes": []})),
        }
    }

    #[test]
    fn engines_of_the_daemon_are_graded() {
        let worker = |well| json!({"url": "http://e:1", "is_healthy": well, "engine": "vllm"});
        let grades = |workers: Value| -> Vec<Grade> {
            let findings = daemon_report(json!({"total": 1, "workers": workers})).of_engines();
            findings.iter().map(|found| found.grade).collect()
        };
        assert_eq!(
            grades(json!([worker(true), worker(false)])),
            [Grade::Ok, Grade::Fail]
        );
        assert_eq!(grades(json!([])), [Grade::Warn]);
        let mut silent = daemon_report(json!({}));
        silent.workers = Err("it needs a token".to_owned());
        assert_eq!(silent.of_engines()[0].grade, Grade::Warn);
        silent.health = Err("nobody listens".to_owned());
        assert_eq!(silent.of_engines(), []);
    }

    #[test]
    fn nodes_are_graded() {
        let own = env!("CARGO_PKG_VERSION");
        let node = |state, version| json!({"name": "n", "state": state, "version": version});
        let mut report = daemon_report(json!({}));
        let nodes = [
            node("ready", own),
            node("cordoned", "0.0.1"),
            node("away", own),
        ];
        report.nodes = Ok(json!({"nodes": nodes}));
        let grades: Vec<_> = report.of_nodes().iter().map(|found| found.grade).collect();
        assert_eq!(grades, [Grade::Ok, Grade::Warn, Grade::Fail]);
    }

    #[test]
    fn the_daemon_of_a_store_is_known_by_when_it_began() {
        let url = "http://127.0.0.1:1";
        let leader = |epoch| LeaderRow {
            name: "d".to_owned(),
            url: url.to_owned(),
            epoch,
            since_us: 5,
            seen_us: 5,
            now_us: 6,
        };
        let mut daemon_report = daemon_report(json!({}));
        assert!(daemon_report.is(&leader(2), url));
        assert!(
            !daemon_report.is(&leader(1), url),
            "another process had the address then"
        );
        daemon_report.cluster = Err("it needs a token".to_owned());
        assert!(daemon_report.is(&leader(1), url));
        assert!(!daemon_report.is(&leader(1), "http://127.0.0.1:2"));
    }
}
