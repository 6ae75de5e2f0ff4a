//! `treadle status`: shows the health of a daemon and its engines.

use bytes::Bytes;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::client::{Client, Remote};
use super::environment;
use super::error::CliError;
use super::output::{Column, fields, plain, print_json, print_text, table};
use treadle_trust::Secret;

const DAEMON: &[Column] = &[
    ("status", "/status"),
    ("version", "/version"),
    ("mode", "/mode"),
    ("eviction policy", "/eviction_policy"),
    ("programs", "/programs_count"),
    ("  reasoning", "/reasoning_count"),
    ("  acting", "/acting_count"),
    ("  paused", "/paused_count"),
    ("waiting steps", "/waiting_steps"),
    ("caches in host memory", "/kv/held_programs"),
    ("  tokens", "/kv/held_tokens"),
    ("  in transfer", "/kv/in_transfer"),
    ("healthy engines", "/healthy_backends"),
];
const ENGINES: &[Column] = &[
    ("ENGINE", "/url"),
    ("PROGRAMS", "/total"),
    ("REASONING", "/reasoning"),
    ("ACTING", "/acting"),
];

/// The columns if engines have roles.
const ENGINES_OF_ROLES: &[Column] = &[
    ("ENGINE", "/url"),
    ("ROLE", "/role"),
    ("PROGRAMS", "/total"),
    ("REASONING", "/reasoning"),
    ("ACTING", "/acting"),
];

const STORE: &[Column] = &[
    ("THE STORE FAILS", "/what"),
    ("SINCE", "/at_us"),
    ("ERROR", "/error"),
];

const TRAINING: &[Column] = &[
    ("TRAINING JOB", "/job"),
    ("WHO WAITS", "/who"),
    ("WHY", "/why"),
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
        let mut text = if health.get("programs_count").is_some() {
            report(&health)
        } else {
            told_little(&health).ok_or_else(|| CliError::Foreign {
                url: Secret::new(self.remote.server.url).to_string(),
                what: format!("status {} without a health report", status.as_u16()),
            })?
        };
        text.push_str(&store_failures(&health));
        if self.remote.json {
            print_json(&health)?;
        } else {
            if status.is_success() {
                text.push_str(&training_waits(&client).await);
            }
            print_text(&text)?;
        }
        if status.is_success() {
            return Ok(());
        }
        let detail = plain(&health["detail"]);
        let remedy = match health["status"].as_str() {
            Some("no_healthy_worker") => "`treadle workers` lists them",
            _ => "the store's errors above and the daemon's log have the cause",
        };
        Err(CliError::Failed(format!("{detail}; {remedy}")))
    }
}

/// The report for callers without a token; `None` if the server is no daemon.
fn told_little(health: &Value) -> Option<String> {
    let (status, version) = (health["status"].as_str()?, health["version"].as_str()?);
    let mut told = format!("treadle {version}: {status}\n");
    if health["store"].is_null() {
        told.push_str("a token with the scope viewer shows more: give it with --token or ");
        told.push_str(environment::TOKEN);
    }
    Some(told)
}

/// Which side of each training run waits for which; nothing for callers who may not see them.
async fn training_waits(client: &Client) -> String {
    let Ok(answer) = client.get("/api/v1/jobs").await else {
        return String::new();
    };
    let jobs = answer["jobs"].as_array().into_iter().flatten();
    let rows: Vec<Value> = jobs
        .flat_map(|job| {
            let waits = job["waits"].as_array().into_iter().flatten();
            waits.map(|wait| json!({"job": job["job"], "who": wait["who"], "why": wait["message"]}))
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", table(TRAINING, &rows))
}

/// Current failures of the store.
fn store_failures(health: &Value) -> String {
    let store = &health["store"];
    let failing = store["failing"].as_array().into_iter().flatten();
    let row =
        |of: &Value| json!({"what": of["what"], "at_us": of["since_us"], "error": of["error"]});
    let mut failures: Vec<Value> = failing.map(row).collect();
    if store["lost"].is_string() {
        failures.push(json!({"what": "everything", "error": store["lost"]}));
    }
    if failures.is_empty() {
        return String::new();
    }
    format!("\n{}", table(STORE, &failures))
}

fn report(health: &Value) -> String {
    let mut text = fields(DAEMON, health);
    let engines: Vec<Value> = health["per_backend"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(url, counts)| {
            json!({"url": url, "total": counts["total"], "reasoning": counts["reasoning"],
                "acting": counts["acting"], "role": counts["role"]})
        })
        .collect();
    if engines.is_empty() {
        text.push_str("no engine is registered; add one with `treadle workers add URL`\n");
    } else {
        text.push('\n');
        let has_roles = engines.iter().any(|engine| !engine["role"].is_null());
        let columns = if has_roles { ENGINES_OF_ROLES } else { ENGINES };
        text.push_str(&table(columns, &engines));
    }
    text
}
