//! `treadle doctor`: whether everything that a daemon works with is well, and what to do.

use std::fmt::Write;

use clap::Args;
use serde_json::json;

use super::environment;
use super::error::CliError;
use super::output::{say, say_json};
use super::settings::Settings;
use crate::doctor::{Finding, Grade, examine};

/// Arguments of `treadle doctor`.
#[derive(Args, Clone, Debug)]
pub(super) struct DoctorArgs {
    #[command(flatten)]
    settings: Settings,
    /// Base URL of the daemon; the address of the configuration unless given.
    #[arg(long, env = environment::URL, value_name = "URL")]
    url: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl DoctorArgs {
    /// Looks and prints; fails if something does not work.
    pub(super) async fn run(self) -> Result<(), CliError> {
        let config = self.settings.load(Vec::new())?;
        let url = self.url.map_or_else(
            || format!("http://{}", config.server.listen),
            |url| url.trim_end_matches('/').to_owned(),
        );
        let findings = examine(&config, &url).await;
        let count = |grade| findings.iter().filter(|found| found.grade == grade).count();
        let (warnings, failures) = (count(Grade::Warn), count(Grade::Fail));
        if self.json {
            say_json(&json!({
                "well": failures == 0,
                "warnings": warnings,
                "failures": failures,
                "findings": findings,
            }))?;
        } else {
            say(&report(&findings))?;
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
            "{failures} {what} not work; do what is said beside each, then run this again"
        )))
    }
}

fn report(findings: &[Finding]) -> String {
    let mut text = String::new();
    for found in findings {
        let mark = match found.grade {
            Grade::Ok => "ok  ",
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
    text
}
