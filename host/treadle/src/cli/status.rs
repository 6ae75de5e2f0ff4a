//! `treadle status`: whether a daemon and its engines are well.

use bytes::Bytes;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::client::Remote;
use super::error::CliError;
use super::output::{Column, fields, plain, print_json, print_text, table};

const DAEMON: &[Column] = &[
    ("status", "/status"),
    ("version", "/version"),
    ("mode", "/mode"),
    ("eviction policy", "/eviction_policy"),
    ("programs", "/programs_count"),
    ("  reasoning", "/reasoning_count"),
    ("  acting", "/acting_count"),
    ("  paused", "/paused_count"),
    ("steps that wait", "/waiting_steps"),
    ("caches in host memory", "/kv/held_programs"),
    ("  tokens", "/kv/held_tokens"),
    ("  on their way", "/kv/in_transfer"),
    ("healthy engines", "/healthy_backends"),
];
const ENGINES: &[Column] = &[
    ("ENGINE", "/url"),
    ("PROGRAMS", "/total"),
    ("REASONING", "/reasoning"),
    ("ACTING", "/acting"),
];

/// Arguments of `treadle status`.
#[derive(Args, Clone, Debug)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    remote: Remote,
}

impl StatusArgs {
    /// Shows the health; fails if no engine answers.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let client = self.remote.client();
        let (status, health) = client.send(Method::GET, "/health", Bytes::new()).await?;
        if health.get("programs_count").is_none() {
            return Err(CliError::Foreign {
                url: self.remote.url,
                what: format!("status {} without a health report", status.as_u16()),
            });
        }
        if self.remote.json {
            print_json(&health)?;
        } else {
            print_text(&report(&health))?;
        }
        if status.is_success() {
            return Ok(());
        }
        Err(CliError::Failed(format!(
            "{}; `treadle workers` lists them",
            plain(&health["detail"])
        )))
    }
}

fn report(health: &Value) -> String {
    let mut text = fields(DAEMON, health);
    let engines: Vec<Value> = health["per_backend"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(url, counts)| {
            json!({"url": url, "total": counts["total"], "reasoning": counts["reasoning"],
                "acting": counts["acting"]})
        })
        .collect();
    if engines.is_empty() {
        text.push_str("no engine is registered; add one with `treadle workers add URL`\n");
    } else {
        text.push('\n');
        text.push_str(&table(ENGINES, &engines));
    }
    text
}
