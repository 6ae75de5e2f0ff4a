//! `treadle doctor`: checks everything that a daemon depends on, and prints remedies.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::client::{Client, base_url};
use super::environment;
use super::error::CliError;
use super::output::{print_json, print_text};
use super::settings::Settings;
use crate::doctor::{DaemonReport, Finding, Grade, Report, RunBy, examine};
use treadle_trust::Secret;

/// Timeout of the daemon's response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of `treadle doctor`.
#[derive(Args, Clone, Debug)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    settings: Settings,
    /// Base URL of the daemon; by default the address in the configuration.
    #[arg(long, env = environment::URL, value_parser = base_url, value_name = "URL")]
    url: Option<String>,
    /// Token to send; by default that of the daemon whose store is here.
    #[arg(long, env = environment::TOKEN, hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl DoctorArgs {
    /// Runs the checks and prints the findings; fails if something does not work.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let config = self.settings.load(Vec::new())?;
        let own = || format!("{}://{}", config.scheme(), config.server.listen);
        let url = self.url.unwrap_or_else(own);
        let ca = (!config.tls.ca.is_empty()).then(|| Path::new(&config.tls.ca));
        let daemon_report = ask(&Client::of(&url, self.token.as_deref(), ca)).await;
        let report = Box::pin(examine(&config, &url, &daemon_report)).await;
        let url = Secret::new(url).to_string();
        let version = daemon_report.version();
        // If no daemon runs this configuration, its findings don't fail the command, except before
        // a start.
        let is_unused = version.is_some() && report.run_by == RunBy::Nobody;
        let counted = report
            .daemon
            .iter()
            .chain(report.configuration.iter().filter(|_| !is_unused));
        let grades: Vec<Grade> = counted.map(|found| found.grade).collect();
        let count = |grade| grades.iter().filter(|other| **other == grade).count();
        let (warnings, failures) = (count(Grade::Warn), count(Grade::Fail));
        if self.json {
            print_json(&json!({
                "daemon": {"url": url, "version": version},
                "configuration": {"run_by": report.run_by, "counts": !is_unused},
                "well": failures == 0,
                "warnings": warnings,
                "failures": failures,
                "findings": findings(&report),
            }))?;
        } else {
            print_text(&text(&report, &url, version, is_unused))?;
        }
        if failures == 0 {
            return Ok(());
        }
        let what = if failures == 1 {
            "thing does"
        } else {
            "things do"
        };
        Err(CliError::Failed(format!(
            "{failures} {what} not work; apply the remedy beside each, then run this again"
        )))
    }
}

/// Fetches the daemon's reports about itself.
async fn ask(client: &Client) -> DaemonReport {
    let get = async |path| {
        let asked = client.send(Method::GET, path, Bytes::new());
        let (status, body) = match tokio::time::timeout(TIMEOUT, asked).await {
            Ok(answer) => answer.map_err(|error| error.to_string())?,
            Err(_) => return Err(format!("no answer within {} s", TIMEOUT.as_secs())),
        };
        // A daemon without reachable engines reports its health with an error status.
        if status.is_success() || body.get("version").is_some() {
            return Ok(body);
        }
        let message = body.pointer("/error/message").and_then(Value::as_str);
        Err(message.map_or_else(|| format!("{path} returned {status}"), str::to_owned))
    };
    let (health, workers, cluster, nodes) = tokio::join!(
        get("/health"),
        get("/workers"),
        get("/api/v1/cluster"),
        get("/api/v1/nodes")
    );
    DaemonReport {
        health,
        workers,
        cluster,
        nodes,
    }
}

/// All findings, each with what it is about.
fn findings(report: &Report) -> Vec<Value> {
    let about = |what: &'static str| {
        move |found: &Finding| {
            let mut shown = json!(found);
            shown["about"] = what.into();
            shown
        }
    };
    let daemon = report.daemon.iter().map(about("daemon"));
    let configuration = report.configuration.iter().map(about("configuration"));
    daemon.chain(configuration).collect()
}

fn text(report: &Report, url: &str, version: Option<&str>, is_unused: bool) -> String {
    let mut text = match version {
        Some(version) => format!("The daemon at {url}, version {version}:\n"),
        None => format!("No treadle daemon answers at {url}:\n"),
    };
    list(&mut text, &report.daemon, false);
    let whose = match (report.run_by, version) {
        (RunBy::ThisDaemon, Some(_)) => ", which this daemon runs",
        (RunBy::AnotherDaemon, Some(_)) => ", which another daemon runs",
        (RunBy::Nobody, Some(_)) => {
            ", which no daemon runs: the following is about it only, not about the daemon"
        }
        _ => "",
    };
    // Writing to a string can't fail.
    let _ = writeln!(text, "\nThe configuration here{whose}:");
    list(&mut text, &report.configuration, is_unused);
    text
}

fn list(text: &mut String, findings: &[Finding], is_unused: bool) {
    for found in findings {
        let mark = match found.grade {
            Grade::Ok => "ok  ",
            _ if is_unused => "note",
            Grade::Warn => "WARN",
            Grade::Fail => "FAIL",
        };
        let (area, check) = (found.area, &found.check);
        // Writing to a string can't fail.
        let _ = writeln!(text, "{mark}  {area}: {check}: {}", found.seen);
        if !found.remedy.is_empty() {
            let _ = writeln!(text, "      -> {}", found.remedy);
        }
    }
}
