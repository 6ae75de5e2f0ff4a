//! `treadle memory`: what the KV memory of a daemon's engines is used for.

use clap::Args;
use serde_json::{Value, json};

use super::client::Remote;
use super::error::CliError;
use super::output::{Column, say, say_json, table};

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
    ("TOKEN-HOURS", "/token_hours"),
    ("DECODE %", "/decode"),
    ("PREFILL %", "/prefill"),
    ("RECOMPUTE %", "/recompute"),
    ("CACHING %", "/caching"),
    ("TRANSFER %", "/transfer"),
];

/// Arguments of `treadle memory`.
#[derive(Args, Clone, Debug)]
pub(super) struct MemoryArgs {
    #[command(flatten)]
    remote: Remote,
}

impl MemoryArgs {
    /// Asks the daemon and shows shares of each use, by engine and by job.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let answer = self.remote.client().get("/v1/memory").await?;
        if self.remote.json {
            return say_json(&answer);
        }
        say(&report(&answer))
    }
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
    let mut row = json!({
        "url": entry["url"], "tenant": entry["tenant"], "job": entry["job"],
        "token_hours": tenths(total / 3_600.0),
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
    fn shares_are_told_in_percent() {
        let entry = json!({"url": "http://e:1", "token_seconds": {
            "decode": 1_800.0, "caching": 5_400.0, "unused": 28_800.0,
        }});
        let answer = json!({"workers": [entry], "jobs": []});
        let expected = "\
            ENGINE      TOKEN-HOURS  DECODE %  PREFILL %  RECOMPUTE %  CACHING %  TRANSFER %  SHARED %  UNUSED %\n\
            http://e:1         10.0       5.0        0.0          0.0       15.0         0.0       0.0      80.0\n";
        assert_eq!(report(&answer), expected);
        assert!(report(&json!({"workers": []})).contains("treadle workers add"));
    }
}
