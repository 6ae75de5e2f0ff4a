//! `treadle status`: whether a daemon and its engines are well.

use bytes::Bytes;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::client::Remote;
use super::environment;
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
        let text = if health.get("programs_count").is_some() {
            report(&health)
        } else {
            told_little(&health).ok_or_else(|| CliError::Foreign {
                url: self.remote.url,
                what: format!("status {} without a health report", status.as_u16()),
            })?
        };
        if self.remote.json {
            print_json(&health)?;
        } else {
            print_text(&text)?;
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

/// What a daemon says to callers without a token; `None` if it is no daemon.
fn told_little(health: &Value) -> Option<String> {
    let (status, version) = (health["status"].as_str()?, health["version"].as_str()?);
    Some(format!(
        "treadle {version}: {status}\na token with the scope viewer shows more: give it with --token or {}",
        environment::TOKEN
    ))
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
