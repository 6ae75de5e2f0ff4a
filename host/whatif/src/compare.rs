//! `treadle what-if compare`: replays a trace or a store's journal without a daemon.

use super::arguments::{SetArgs, SettingArgs, WindowArgs, file};
use super::execute::{Control, Findings, Plan};
use super::policies::{self, PolicyBytes};
use super::request::Settings;
use super::sets::{PolicySpec, ReadySet, SetSpec};
use super::trace::{self, TraceShape, TraceWork};
use super::{LOCAL_RUN_S_MAX, RUN_S_MAX, WhatIfError, profile, window};
use crate::recorded::{RecorderOptions, Workload};
use clap::Args;
use serde_json::Value;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use treadle_engine_model::engine::EngineProfile;
use treadle_http::Upstream;
use treadle_model::Tenant;
use treadle_model::tenant::DEFAULT_TENANT;
use treadle_policy_runtime::Limits;
use treadle_store::Location;

/// Timeout of connecting to an engine to query its profile.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Arguments of `treadle what-if compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Recorded runs (JSON lines, docs/traces.md).
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["store", "from", "to", "since", "until", "job", "slot_lag_s"],
        required_unless_present = "store"
    )]
    trace: Option<PathBuf>,
    /// A daemon's store file; its journal is replayed. For a running daemon use `treadle what-if
    /// run`.
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["programs", "runs", "token_divisor", "engines", "kv_fraction"]
    )]
    store: Option<PathBuf>,
    #[command(flatten)]

    /// The sets to compare.
    pub sets: SetArgs,
    #[command(flatten)]

    /// The part of the journal to replay.
    pub window: WindowArgs,
    #[command(flatten)]

    /// Settings of the replay.
    pub settings: SettingArgs,
    /// Maximum number of live programs of a trace; one that ends is replaced by the next.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(trace::LIVE_MAX)))]
    programs: u32,
    /// Programs taken from a trace; by default four per live program.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(trace::RUNS_MAX)))]
    runs: Option<u32>,
    /// Divisor of a trace's token counts.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    token_divisor: u32,
    /// Number of engines for a trace.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=i64::from(trace::ENGINES_MAX)))]
    engines: u32,
    /// Total KV memory of a trace's engines, as a share of the programs' peak demand; --kv-tokens
    /// sets it in tokens per engine.
    #[arg(long, default_value_t = 0.33, conflicts_with = "kv_tokens")]
    kv_fraction: f64,
    /// Time limit of all replays together, in seconds; replays that finished are reported.
    #[arg(
        long,
        value_name = "S",
        default_value_t = RUN_S_MAX,
        value_parser = clap::value_parser!(u64).range(1..=LOCAL_RUN_S_MAX)
    )]
    limit_s: u64,
}

/// The workload to replay, with its profile.
struct Work {
    workload: Workload,
    profile: EngineProfile,
    /// Policies that are bound in the store.
    bound: Vec<PolicyBytes>,
    scenario: Option<String>,
}

impl CompareArgs {
    /// Runs all replays. `report_progress` receives the steps replayed and the total.
    pub async fn findings(
        &self,
        report_progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Findings, WhatIfError> {
        let specs = self.sets.specs()?;
        let policies = specs.iter().map(policies_of);
        let mut policies: Vec<Vec<PolicyBytes>> = policies.collect::<Result<_, _>>()?;
        let mut settings = self.settings.settings()?;
        settings.limit_s = self.limit_s;
        let work = match &self.store {
            Some(path) => self.of_store(path, &settings).await?,
            None => self.of_trace()?,
        };
        for (set, policies) in specs.iter().zip(&mut policies) {
            if set.takes_bound {
                policies.clone_from(&work.bound);
            }
        }
        let kv_tokens = Plan::kv_tokens_of(&work.workload, &work.profile, &settings)?;
        let control = Arc::new(Control::default());
        let own = control.clone();
        let mut run = tokio::task::spawn_blocking(move || {
            let engine = treadle_policy::repeatable_engine(Limits::default())
                .map_err(|error| WhatIfError::Ended(error.to_string()))?;
            let recorded = work.workload.config.clone().unwrap_or_default();
            let sets = specs.iter().zip(&policies);
            let sets: Result<Vec<ReadySet>, WhatIfError> = sets
                .map(|(set, policies)| ReadySet::new(set, &recorded, policies, &engine))
                .collect();
            let plan = Plan {
                workload: work.workload,
                sets: sets?,
                profile: work.profile,
                kv_tokens,
                settings,
            };
            let mut findings = plan.run(&own)?;
            findings.scenario = work.scenario;
            Ok(findings)
        });
        loop {
            let pause = tokio::time::sleep(Duration::from_millis(200));
            tokio::select! {
                ended = &mut run => {
                    return ended.map_err(|error| WhatIfError::Ended(error.to_string()))?;
                }
                () = pause => {
                    let (done, steps) = control.progress();
                    report_progress(done, steps);
                }
            }
        }
    }

    async fn of_store(&self, path: &Path, settings: &Settings) -> Result<Work, WhatIfError> {
        // Opening a store would create it.
        std::fs::metadata(path).map_err(|cause| file(path, &cause))?;
        let store = treadle_store::open(&Location::File(path.to_owned())).await?;
        let options = RecorderOptions {
            slot_lag_us: settings.slot_lag_us,
            ..RecorderOptions::default()
        };
        let window = self.window.spec();
        // The work of all tenants, or that of a job of the default tenant.
        let loaded = window::load(&*store, &window, None, options, &|| true).await;
        let tenant = Tenant::new(DEFAULT_TENANT);
        let found = policies::bound(&*store, &tenant, window.job.as_ref()).await;
        let read = match found {
            Ok(found) => policies::read(&*store, &[found]).await,
            Err(failure) => Err(failure),
        };
        store.close().await?;
        let (workload, bound) = (loaded?, read?.swap_remove(0));
        let profile = if let Some(value) = self.settings.profile()? {
            profile::of_value(&value)?
        } else {
            let upstream = Upstream::new(CONNECT_TIMEOUT);
            profile::ask(&upstream, &workload.workers).await?
        };
        Ok(Work {
            workload,
            profile,
            bound,
            scenario: None,
        })
    }

    fn of_trace(&self) -> Result<Work, WhatIfError> {
        let named = self.settings.profile()?;
        let profile = match named {
            Some(value) => profile::of_value(&value)?,
            None => profile::named(trace::PROFILE)?,
        };
        let path = self.trace.clone().unwrap_or_default();
        let opened = File::open(&path).map_err(|cause| file(&path, &cause))?;
        let shape = TraceShape {
            live: self.programs,
            runs: self.runs,
            token_divisor: self.token_divisor,
            engines: self.engines,
            kv_fraction: self.kv_fraction,
        };
        let kv_tokens = self.settings.kv_tokens;
        let TraceWork { workload, scenario } =
            trace::work(BufReader::new(opened), &shape, &profile, kv_tokens)?;
        Ok(Work {
            workload,
            profile,
            bound: Vec::new(),
            scenario: Some(scenario),
        })
    }
}

/// The bytes of a set's policies, which are files in this command.
fn policies_of(set: &SetSpec) -> Result<Vec<PolicyBytes>, WhatIfError> {
    let read = |spec: &PolicySpec| {
        let path = Path::new(&spec.policy);
        if !path.exists() {
            return Err(WhatIfError::field(
                "policies",
                format!(
                    "`{}` is not a file, and neither `least-load`, `sticky`, `treadle` nor `recorded`; a daemon's stored plugins are compared by `treadle what-if run`",
                    spec.policy
                ),
            ));
        }
        let bytes = std::fs::read(path).map_err(|cause| file(path, &cause))?;
        Ok(PolicyBytes {
            asked: spec.policy.clone(),
            bytes: bytes.into(),
            config: Value::Object(spec.config.clone()).to_string(),
            answers_anyway: false,
        })
    };
    set.policies.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Command {
        #[command(flatten)]
        args: CompareArgs,
    }

    fn parsed(text: &str) -> Result<CompareArgs, String> {
        let words = std::iter::once("compare").chain(text.split_whitespace());
        let command = Command::try_parse_from(words);
        command
            .map(|command| command.args)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn what_would_have_no_effect_is_refused() {
        let trace = "--trace t.jsonl --policies sticky";
        let store = "--store s.db --policies sticky";
        for option in [
            "--from 1",
            "--to 2",
            "--since 8h",
            "--job a",
            "--slot-lag-s 3",
        ] {
            let error = parsed(&format!("{trace} {option}")).unwrap_err();
            assert!(error.contains("cannot be used with"), "{option}: {error}");
            assert!(parsed(&format!("{store} {option}")).is_ok(), "{option}");
        }
        for option in [
            "--programs 9",
            "--engines 3",
            "--kv-fraction 0.5",
            "--runs 5",
        ] {
            let error = parsed(&format!("{store} {option}")).unwrap_err();
            assert!(error.contains("cannot be used with"), "{option}: {error}");
            assert!(parsed(&format!("{trace} {option}")).is_ok(), "{option}");
        }
        assert!(parsed(&format!("{trace} --kv-fraction 1 --kv-tokens 9")).is_err());
        let limit = |text: &str| parsed(text).map(|args| args.limit_s);
        assert_eq!(limit(trace), Ok(RUN_S_MAX));
        assert_eq!(limit(&format!("{trace} --limit-s 86400")), Ok(86_400));
        assert!(limit(&format!("{trace} --limit-s 0")).is_err());
    }

    #[test]
    fn a_window_can_be_given_by_time() {
        let args = parsed("--store s --policies a --since 2026-11-22 --until 2026-11-22T08:30");
        let window = args.unwrap().window.spec();
        assert_eq!(
            window.to_us.unwrap() - window.from_us.unwrap(),
            30_600_000_000
        );
    }
}
