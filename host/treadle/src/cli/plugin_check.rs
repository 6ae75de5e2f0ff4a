//! `treadle plugin check`: runs every check of an upload, locally and on a daemon.

use std::fmt::Write;
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use treadle_policy_runtime::{Inspection, PolicyEngine, UploadRefusal};

use super::client::Client;
use super::error::CliError;
use super::output::{Column, fields, plain, print_json, print_text};
use super::plugin::{component, read};
use super::progress;
use super::settings::Settings;

/// A check: its name, and the codes of its refusals.
type Check = (&'static str, &'static [&'static str]);

/// The checks in their order.
const CHECKS: &[Check] = &[
    ("size", &["empty", "too-large"]),
    ("WebAssembly", &["not-wasm", "truncated", "invalid-wasm"]),
    ("component", &["no-wit", "not-a-component", "no-code"]),
    ("imports", &["forbidden-import"]),
    (
        "packages",
        &["unknown-version", "foreign-package", "contract-too-large"],
    ),
    ("world", &["world-mismatch", "wrong-world"]),
    (
        "compilation",
        &[
            "compile-failed",
            "compile-timeout",
            "compile-memory",
            "compile-too-large",
            "compile-busy",
            "compile-unavailable",
        ],
    ),
    ("start", &["config-refused"]),
    ("description", &["bad-description", "unknown-column"]),
    (
        "trial run",
        &[
            "too-slow",
            "smoke-timeout",
            "smoke-trap",
            "smoke-memory",
            "smoke-stack",
            "smoke-bad-output",
            "smoke-policy-error",
            "smoke-bad-input",
        ],
    ),
];
const REFUSAL: &[Column] = &[
    ("  code", "/code"),
    ("  what", "/what"),
    ("  where", "/where"),
    ("  remedy", "/remedy"),
];

/// Arguments of `treadle plugin check`.
#[derive(Args, Clone, Debug)]
pub(super) struct CheckArgs {
    /// The WebAssembly component, a core module with embedded WIT, or the folder of a built
    /// project.
    file: PathBuf,
    /// Only check locally; by default a reachable daemon checks too, because `push` is subject to
    /// its limits and its machine.
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    settings: Settings,
}

/// The daemon's result.
enum Remark {
    NotAsked,
    Unreachable(String),
    Accepts,
    Refuses(String),
}

impl CheckArgs {
    /// Runs the checks and prints each result; fails if one refuses.
    pub(super) async fn run(mut self, client: &Client, json: bool) -> Result<(), CliError> {
        self.file = component(&self.file)?;
        let bytes = read(&self.file)?;
        let engine = PolicyEngine::new(self.settings.load(Vec::new())?.plugins.limits())?;
        let spinner = progress::spinner(format!("checking {}", self.file.display()));
        let upload = bytes.clone();
        let inspected = tokio::task::spawn_blocking(move || engine.inspect(&upload)).await;
        let inspected = inspected
            .map_err(|error| CliError::Failed(format!("the checks ended early: {error}")))?;
        let remark = if self.offline {
            Remark::NotAsked
        } else {
            ask(client, bytes).await?
        };
        spinner.finish_and_clear();
        if json {
            print_json(&report_json(&inspected, &remark))?;
        } else {
            print_text(&report(&inspected, &remark))?;
        }
        match (&inspected, &remark) {
            (Err(refusal), _) => Err(self.refused(&refusal.remedy)),
            (_, Remark::Refuses(_)) => Err(self.refused("the limits of the daemon differ")),
            _ => Ok(()),
        }
    }

    fn refused(&self, remedy: &str) -> CliError {
        CliError::Failed(format!("{} is refused; {remedy}", self.file.display()))
    }
}

/// Sends the component to the daemon. An unreachable daemon is not a fault of the policy.
async fn ask(client: &Client, bytes: Bytes) -> Result<Remark, CliError> {
    let answer = client
        .send(Method::POST, "/api/v1/plugins/check", bytes)
        .await;
    match answer {
        Ok((StatusCode::OK, _)) => Ok(Remark::Accepts),
        Ok((_, body)) => Ok(Remark::Refuses(plain(&body["error"]["message"]))),
        Err(CliError::Unreachable { url, cause } | CliError::Broken { url, cause }) => {
            Ok(Remark::Unreachable(format!("{url}: {cause}")))
        }
        Err(error) => Err(error),
    }
}

/// Index of the check that a refusal belongs to.
fn check_of(refusal: &UploadRefusal) -> Option<usize> {
    // A policy that fails before its first call failed to start.
    let is_start = refusal.code.starts_with("smoke-") && refusal.place.starts_with("starting");
    CHECKS.iter().position(|(name, codes)| {
        if is_start {
            *name == "start"
        } else {
            codes.contains(&refusal.code)
        }
    })
}

/// Name and result of each check: passed, refused, or not reached.
fn results(
    inspected: &Result<Inspection, UploadRefusal>,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let failed = match inspected {
        Ok(_) => CHECKS.len(),
        Err(refusal) => check_of(refusal).unwrap_or(0),
    };
    let names = CHECKS.iter().enumerate();
    names.map(move |(index, (name, _))| match index.cmp(&failed) {
        std::cmp::Ordering::Less => (*name, "passed"),
        std::cmp::Ordering::Equal => (*name, "refused"),
        std::cmp::Ordering::Greater => (*name, "not reached"),
    })
}

fn report(inspected: &Result<Inspection, UploadRefusal>, remark: &Remark) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    for (name, result) in results(inspected) {
        let _ = write!(text, "{name:<12}  {result}");
        match (result, inspected) {
            ("passed", Ok(inspection)) => text.push_str(&detail(name, inspection)),
            ("refused", Err(refusal)) => {
                let refusal = serde_json::to_value(refusal).unwrap_or_default();
                text.push('\n');
                text.push_str(fields(REFUSAL, &refusal).trim_end());
            }
            _ => {}
        }
        text.push('\n');
    }
    let said = match remark {
        Remark::NotAsked => return text,
        Remark::Unreachable(why) => {
            format!("not checked: no daemon answers at {why}; --offline skips it")
        }
        Remark::Accepts => "accepts it too".to_owned(),
        Remark::Refuses(message) => format!("refuses it: {message}"),
    };
    let _ = writeln!(text, "{:<12}  {said}", "daemon");
    text
}

/// Details of a check that passed.
fn detail(check: &str, inspection: &Inspection) -> String {
    let detail = match check {
        "WebAssembly" => format!("sha256 {}", inspection.digest),
        "imports" => inspection.imports.join(", "),
        "world" => inspection.world.clone(),
        "compilation" => format!("{} ms", inspection.compile_ms),
        "description" => format!(
            "{}@{}",
            inspection.description.name, inspection.description.version
        ),
        "trial run" => {
            let slowest = inspection.smoke.iter().max_by_key(|timing| timing.best_ns);
            slowest.map_or_else(String::new, |timing| {
                let us = timing.best_ns as f64 / 1e3;
                format!(
                    "slowest: {} of {} rows in {us:.1} us",
                    timing.call, timing.rows
                )
            })
        }
        _ => String::new(),
    };
    if detail.is_empty() {
        detail
    } else {
        format!("  {detail}")
    }
}

fn report_json(inspected: &Result<Inspection, UploadRefusal>, remark: &Remark) -> Value {
    let checks: Vec<Value> = results(inspected)
        .map(|(check, result)| json!({"check": check, "result": result}))
        .collect();
    let daemon = match remark {
        Remark::NotAsked => Value::Null,
        Remark::Unreachable(why) => json!({"result": "unreachable", "message": why}),
        Remark::Accepts => json!({"result": "accepted"}),
        Remark::Refuses(message) => json!({"result": "refused", "message": message}),
    };
    json!({
        "accepted": inspected.is_ok() && !matches!(remark, Remark::Refuses(_)),
        "checks": checks,
        "inspection": inspected.as_ref().ok(),
        "refusal": inspected.as_ref().err(),
        "daemon": daemon,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: &'static str, place: &str) -> UploadRefusal {
        UploadRefusal {
            code,
            what: "what".into(),
            place: place.into(),
            remedy: "remedy".into(),
        }
    }

    #[test]
    fn a_refusal_is_listed_at_its_check() {
        let inspected = Err(refusal("forbidden-import", "import wasi:io"));
        let results: Vec<_> = results(&inspected).collect();
        assert_eq!(results[2], ("component", "passed"));
        assert_eq!(results[3], ("imports", "refused"));
        assert_eq!(results[4], ("packages", "not reached"));
        let text = report(&inspected, &Remark::NotAsked);
        assert!(text.contains("  where   import wasi:io\n"), "{text}");
        assert!(text.contains("  remedy  remedy\n"), "{text}");
    }

    #[test]
    fn the_same_fault_is_distinguished_by_its_time() {
        let at = |place| check_of(&refusal("smoke-trap", place)).map(|index| CHECKS[index].0);
        assert_eq!(at("starting, describe and configure"), Some("start"));
        assert_eq!(at("call weigh with 100 generated rows"), Some("trial run"));
    }
}
