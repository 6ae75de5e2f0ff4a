//! Arguments of `treadle what-if`: sets of policies, the window, and settings of the replay.

use super::WhatIfError;
use super::request::{Settings, WindowSpec, slot_lag_us};
use super::sets::{PolicySpec, SetSpec};
use super::time_parsing::parse_time_us;
use clap::Args;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use treadle_engine_model::engine::EngineProfile;
use treadle_model::{ClientName, NameError};

/// The sets to compare.
#[derive(Args, Clone, Debug)]
pub struct SetArgs {
    /// Sets to compare with the first of them, separated by commas: `least-load`, `sticky`,
    /// `treadle`, `recorded`, a policy, or `name=policy+policy`. A policy is a file or a stored
    /// plugin, as in `lru.wasm`; `file:config.json` gives it a configuration.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SETS",
        required_unless_present = "sets"
    )]
    policies: Vec<String>,
    /// A file with sets as JSON, as in a request (docs/what-if.md).
    #[arg(long, value_name = "FILE", conflicts_with = "policies")]
    sets: Option<PathBuf>,
}

/// The events to replay.
#[derive(Args, Clone, Debug)]
pub struct WindowArgs {
    /// First event of the window; by default the journal's first.
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// Last event of the window; by default the journal's last.
    #[arg(long, value_name = "SEQ")]
    to: Option<u64>,
    /// Only events from this time on: a UTC date such as 2026-11-22T08:30, or an age such as 8h.
    #[arg(long, value_name = "TIME", value_parser = parse_time_us)]
    since: Option<u64>,
    /// Only events up to this time.
    #[arg(long, value_name = "TIME", value_parser = parse_time_us)]
    until: Option<u64>,
    /// Only programs of this job.
    #[arg(long, value_parser = job_name)]
    job: Option<ClientName>,
}

/// Settings of the replay.
#[derive(Args, Clone, Debug)]
pub struct SettingArgs {
    /// Profile of the engines: a preset's name, or a file of `treadle calibrate`. By default the
    /// window's engines are queried; only simulated ones report it.
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// KV memory of each engine in tokens, instead of the recorded one.
    #[arg(long, value_name = "N")]
    pub(super) kv_tokens: Option<u64>,
    /// Number of seeds; the first one replays times as recorded.
    #[arg(long)]
    seeds: Option<u32>,
    /// Variation of tool times and arrivals under the other seeds, as a share.
    #[arg(long)]
    jitter: Option<f64>,
    /// Maximum number of differing decisions listed for each set.
    #[arg(long, value_name = "N")]
    differences: Option<usize>,
    /// A program that opens within this many seconds after another one of its job has ended takes
    /// its slot.
    #[arg(long, value_name = "S")]
    slot_lag_s: Option<f64>,
}

impl SetArgs {
    /// Parses the sets.
    pub fn specs(&self) -> Result<Vec<SetSpec>, WhatIfError> {
        if let Some(path) = &self.sets {
            let values: Vec<Value> = serde_json::from_str(&read_text(path)?).map_err(|error| {
                WhatIfError::field("sets", format!("{}: {error}", path.display()))
            })?;
            return SetSpec::list(&values);
        }
        let sets: Result<Vec<SetSpec>, WhatIfError> =
            self.policies.iter().map(|text| set_of(text)).collect();
        SetSpec::checked(sets?)
    }
}

/// `word`, `policy[:config]` or `name=policy[:config]+policy[:config]`.
fn set_of(text: &str) -> Result<SetSpec, WhatIfError> {
    let (name, policies) = match text.split_once('=') {
        Some((name, policies)) => (name, policies),
        None if text.contains(':') => (text, text),
        None => return Ok(SetSpec::named(text)),
    };
    let policy = |text: &str| {
        let (policy, config) = match text.split_once(':') {
            Some((policy, path)) => (policy, config_of(Path::new(path))?),
            None => (text, Map::new()),
        };
        Ok(PolicySpec {
            policy: policy.to_owned(),
            config,
        })
    };
    let policies: Result<Vec<PolicySpec>, WhatIfError> = policies.split('+').map(policy).collect();
    Ok(SetSpec {
        name: name.to_owned(),
        policies: policies?,
        ..SetSpec::named("treadle")
    })
}

fn config_of(path: &Path) -> Result<Map<String, Value>, WhatIfError> {
    serde_json::from_str(&read_text(path)?).map_err(|error| {
        let problem = format!(
            "{}: {error}; a configuration is a JSON object",
            path.display()
        );
        WhatIfError::field("policies", problem)
    })
}

fn job_name(text: &str) -> Result<ClientName, NameError> {
    ClientName::parse("job", text)
}

impl WindowArgs {
    /// The window of these arguments.
    pub fn spec(&self) -> WindowSpec {
        WindowSpec {
            from_seq: self.from,
            to_seq: self.to,
            from_us: self.since,
            to_us: self.until,
            job: self.job.clone(),
        }
    }
}

impl SettingArgs {
    /// The settings of these arguments.
    pub fn settings(&self) -> Result<Settings, WhatIfError> {
        let default = Settings::default();
        let lag = self.slot_lag_s.map(slot_lag_us).transpose()?;
        let settings = Settings {
            seeds: self.seeds.unwrap_or(default.seeds),
            jitter: self.jitter.unwrap_or(default.jitter),
            differences: self.differences.unwrap_or(default.differences),
            slot_lag_us: lag.unwrap_or(default.slot_lag_us),
            kv_tokens: self.kv_tokens,
            limit_s: default.limit_s,
        };
        settings.checked()
    }

    /// The preset's name, or the document in the file; `None` if the engines are to be queried.
    pub fn profile(&self) -> Result<Option<Value>, WhatIfError> {
        let Some(named) = &self.profile else {
            return Ok(None);
        };
        if EngineProfile::named(named).is_some() || !Path::new(named).exists() {
            return Ok(Some(Value::String(named.clone())));
        }
        let document = serde_json::from_str(&read_text(Path::new(named))?);
        let wrong = |error| WhatIfError::field("profile", format!("{named}: {error}"));
        document.map(Some).map_err(wrong)
    }
}

pub(super) fn read_text(path: &Path) -> Result<String, WhatIfError> {
    std::fs::read_to_string(path).map_err(|cause| file(path, &cause))
}

pub(super) fn file(path: &Path, cause: &std::io::Error) -> WhatIfError {
    WhatIfError::File {
        path: path.display().to_string(),
        cause: cause.to_string(),
    }
}
