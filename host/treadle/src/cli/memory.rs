//! `treadle workers memory`: what the KV memory of a daemon's engines is used for.

use clap::Args;
use serde_json::{Map, Value, json};
use std::time::Duration;

use super::client::Remote;
use super::error::CliError;
use super::output::{Column, print_json, print_text, table};

const USES: [&str; 7] = [
    "decode",
    "prefill",
    "recompute",
    "caching",
    "transfer",
    "shared",
    "unused",
];
const WORKERS: &[Column] = &[
    ("ENGINE", "/url"),
    ("IN USE NOW", "/in_use"),
    ("TOKEN-HOURS", "/token_hours"),
    ("DECODE %", "/decode"),
    ("PREFILL %", "/prefill"),
    ("RECOMPUTE %", "/recompute"),
    ("CACHING %", "/caching"),
    ("TRANSFER %", "/transfer"),
    ("SHARED %", "/shared"),
    ("UNUSED %", "/unused"),
];
const JOBS: &[Column] = &[
    ("TENANT", "/tenant"),
    ("JOB", "/job"),
    ("IN USE NOW", "/in_use"),
    ("TOKEN-HOURS", "/token_hours"),
    ("DECODE %", "/decode"),
    ("PREFILL %", "/prefill"),
    ("RECOMPUTE %", "/recompute"),
    ("CACHING %", "/caching"),
    ("TRANSFER %", "/transfer"),
];

/// Arguments of `treadle workers memory`.
#[derive(Args, Clone, Debug)]
pub(super) struct MemoryArgs {
    /// Measure over the next S seconds, instead of since the daemon's start of accounting.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: Option<u64>,
}

impl MemoryArgs {
    /// Shows the share of each use, by engine and by job, since accounting began or over an
    /// interval.
    pub(super) async fn run(self, remote: &Remote) -> Result<(), CliError> {
        let client = remote.client();
        let mut answer = client.get("/api/v1/memory").await?;
        if let Some(interval_s) = self.interval {
            tokio::time::sleep(Duration::from_secs(interval_s)).await;
            let earlier = std::mem::replace(&mut answer, client.get("/api/v1/memory").await?);
            since(&mut answer, &earlier);
        }
        if remote.json {
            return print_json(&answer);
        }
        print_text(&report(&answer))
    }
}

/// Subtracts the sums of an earlier report. New entries count from zero; sums that fell were reset.
fn since(answer: &mut Value, earlier: &Value) {
    for (list, names) in [("workers", ["id", "url"]), ("jobs", ["tenant", "job"])] {
        for entry in answer[list].as_array_mut().into_iter().flatten() {
            let mut before = earlier[list].as_array().into_iter().flatten();
            let before = before.find(|before| names.iter().all(|name| before[name] == entry[name]));
            let Some(before) = before else {
                continue;
            };
            for field in ["undivided_token_seconds", "over_token_seconds"] {
                if let Some(rest) = rest(&entry[field], &before[field]) {
                    entry[field] = rest;
                }
            }
            let uses = entry["token_seconds"].as_object_mut();
            for (what, sum) in uses.into_iter().flat_map(Map::iter_mut) {
                if let Some(rest) = rest(sum, &before["token_seconds"][what]) {
                    *sum = rest;
                }
            }
        }
    }
}

fn rest(sum: &Value, before: &Value) -> Option<Value> {
    let (sum, before) = (sum.as_f64()?, before.as_f64()?);
    (sum >= before).then(|| json!(sum - before))
}

fn report(answer: &Value) -> String {
    let rows = |list: &str| -> Vec<Value> {
        let entries = answer[list].as_array().into_iter().flatten();
        entries.map(shares).collect()
    };
    let (workers, jobs) = (rows("workers"), rows("jobs"));
    if workers.is_empty() {
        return "no engine is registered; add one with `treadle workers add URL`\n".to_owned();
    }
    let mut text = table(WORKERS, &workers);
    if !jobs.is_empty() {
        text.push('\n');
        text.push_str(&table(JOBS, &jobs));
    }
    text
}

/// An entry with shares in percent instead of token-seconds.
fn shares(entry: &Value) -> Value {
    let of = |what: &str| entry["token_seconds"][what].as_f64().unwrap_or(0.0);
    let total: f64 = USES.iter().map(|what| of(what)).sum();
    let now = |what: &str| entry["tokens_now"][what].as_u64().unwrap_or(0);
    let used = USES.iter().filter(|what| **what != "unused");
    let in_use: u64 = used.map(|what| now(what)).sum();
    let mut row = json!({
        "url": entry["url"], "tenant": entry["tenant"], "job": entry["job"],
        "in_use": in_use, "token_hours": tenths(total / 3_600.0),
    });
    for what in USES {
        row[what] = json!(tenths(100.0 * of(what) / total.max(1e-9)));
    }
    row
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_printed_in_percent() {
        let entry = json!({"url": "http://e:1", "token_seconds": {
            "decode": 1_800.0, "caching": 5_400.0, "unused": 28_800.0,
        }, "tokens_now": {"decode": 30, "caching": 12, "unused": 500}});
        let answer = json!({"workers": [entry], "jobs": []});
        let expected = "\
            ENGINE      IN USE NOW  TOKEN-HOURS  DECODE %  PREFILL %  RECOMPUTE %  CACHING %  TRANSFER %  SHARED %  UNUSED %\n\
            http://e:1          42         10.0       5.0        0.0          0.0       15.0         0.0       0.0      80.0\n";
        assert_eq!(report(&answer), expected);
        assert!(report(&json!({"workers": []})).contains("treadle workers add"));
    }

    #[test]
    fn an_interval_is_what_came_in_between() {
        let answer = |decode: f64, caching: f64| {
            json!({"workers": [{"id": "w0", "url": "http://e:1",
                "token_seconds": {"decode": decode, "caching": caching},
                "undivided_token_seconds": decode}], "jobs": []})
        };
        let mut later = answer(30.0, 100.0);
        since(&mut later, &answer(20.0, 90.0));
        assert_eq!(later, answer(10.0, 10.0));
        // An entry that is new in the interval counts in full.
        let mut fresh = answer(5.0, 5.0);
        since(&mut fresh, &json!({"workers": [], "jobs": []}));
        assert_eq!(fresh, answer(5.0, 5.0));
    }
}
