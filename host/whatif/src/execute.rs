//! Executes the replays of one run, one after another.

use super::request::Settings;
use super::sets::ReadySet;
use super::{BLOCKS_MAX, WhatIfError};
use crate::recorded::{Comparison, Outcome, PolicyRecord, ReplayOptions, Workload, replay};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use treadle_engine_model::engine::EngineProfile;
use treadle_policy::evaluator::PolicyEvaluator;
use utoipa::ToSchema;

/// Maximum number of decisions of one replay that are stored for comparison.
const DECISIONS_MAX: usize = 100_000;

/// The progress of a run, and its cancellation.
#[derive(Debug, Default)]
pub struct Control {
    cancelled: AtomicBool,
    told: Notify,
    steps_done: AtomicU64,
    steps: AtomicU64,
}

impl Control {
    /// Requests cancellation.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.told.notify_one();
    }

    /// Waits until the run is cancelled.
    pub async fn cancelled(&self) {
        while !self.is_cancelled() {
            self.told.notified().await;
        }
    }

    /// Whether the run was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Steps replayed, and steps of all replays; 0 of 0 until the total is known.
    pub fn progress(&self) -> (u64, u64) {
        let done = self.steps_done.load(Ordering::Relaxed);
        let steps = self.steps.load(Ordering::Relaxed);
        (done.min(steps), steps)
    }
}

/// A run that is ready to execute.
pub struct Plan {
    /// The workload to replay.
    pub workload: Workload,

    /// The sets to compare.
    pub sets: Vec<ReadySet>,

    /// The profile of the engines.
    pub profile: EngineProfile,
    /// KV memory of each engine, in tokens.
    pub kv_tokens: Vec<u64>,

    /// Settings of the replay.
    pub settings: Settings,
}

/// The result of a run. Repeated runs give the same comparison, but not the same speed.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = WhatIfReport)]
pub struct Findings {
    /// Name of the engines' profile.
    pub profile: String,
    /// KV memory of each engine, in tokens.
    pub kv_tokens: Vec<u64>,
    /// Seeds that were replayed.
    pub seeds: u32,
    /// Variation of tool times and arrivals under the seeds after the first.
    pub jitter: f64,
    /// What the time limit left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<CutShort>,
    /// How the workload was made, if it was not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// The comparison of the sets.
    #[serde(flatten)]
    pub comparison: Comparison,
    /// Real time of all replays, in seconds.
    pub took_s: f64,
    /// Virtual time of all replays, divided by the real time.
    pub speed: f64,
}

/// A run that reached its time limit: missing sets and seeds were not replayed.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = WhatIfCutShort)]
pub struct CutShort {
    /// The limit in seconds of real time.
    pub limit_s: u64,
    /// Replays in the report.
    pub replays: u64,
    /// Replays that were requested.
    pub replays_asked: u64,
}

/// Outcomes by set.
type Outcomes = Vec<(String, Vec<Outcome>)>;

impl Plan {
    /// KV memory of each engine: the requested one, else the recorded one, else the profile's.
    ///
    /// # Errors
    /// No engine is known, or together they have more than [`BLOCKS_MAX`] blocks.
    pub fn kv_tokens_of(
        workload: &Workload,
        profile: &EngineProfile,
        settings: &Settings,
    ) -> Result<Vec<u64>, WhatIfError> {
        if workload.workers.is_empty() {
            return Err(WhatIfError::Range(
                "no engine is known in or before the window; widen it to the engines' registration"
                    .to_owned(),
            ));
        }
        let of_worker = |kv: Option<u64>| settings.kv_tokens.or(kv).unwrap_or(profile.kv_tokens());
        let workers = workload.workers.iter();
        let kv_tokens: Vec<u64> = workers.map(|worker| of_worker(worker.kv_tokens)).collect();
        let block_tokens = u64::from(profile.block_tokens.max(1));
        let blocks = kv_tokens.iter().map(|tokens| tokens / block_tokens + 1);
        let blocks = blocks.fold(0, u64::saturating_add);
        if blocks <= BLOCKS_MAX {
            return Ok(kv_tokens);
        }
        let engines = kv_tokens.len();
        let problem = format!(
            "{engines} engines would have {blocks} blocks of {block_tokens} tokens; give at most {} tokens for each, as `kv_tokens`",
            (BLOCKS_MAX / engines as u64).saturating_sub(1) * block_tokens
        );
        let is_recorded = workload.workers.iter().any(|w| w.kv_tokens.is_some());
        let field = match settings.kv_tokens {
            Some(_) => "kv_tokens",
            None if is_recorded && workload.recorded.is_none() => "kv_fraction",
            None if is_recorded => "window",
            None => "profile",
        };
        Err(WhatIfError::field(field, problem))
    }

    /// Replays every set under every seed within the time limit: at least one set under one seed.
    /// Blocks for a long time, so not for an async thread.
    pub fn run(self, control: &Control) -> Result<Findings, WhatIfError> {
        let started = Instant::now();
        let replays_asked = self.sets.len() as u64 * u64::from(self.settings.seeds);
        control
            .steps
            .store(self.workload.steps() * replays_asked, Ordering::Relaxed);
        let (outcomes, ended) = self.replay_all(started, control);
        let outcomes = comparable(outcomes);
        match ended {
            Err(WhatIfError::TimedOut(_)) if !outcomes.is_empty() => {}
            ended => ended?,
        }
        let took_s = started.elapsed().as_secs_f64();
        let all = || outcomes.iter().flat_map(|(_, outcomes)| outcomes);
        let virtual_s: f64 = all().map(|outcome| outcome.makespan_s).sum();
        let replays = all().count() as u64;
        let cut_short = (replays < replays_asked).then_some(CutShort {
            limit_s: self.settings.limit_s,
            replays,
            replays_asked,
        });
        let seeds = outcomes.first().map_or(0, |(_, own)| own.len() as u32);
        let mut comparison = Comparison::of(&self.workload, outcomes, self.settings.differences);
        for report in &mut comparison.sets {
            let set = self.sets.iter().find(|set| set.name == report.name);
            report.asked = set.map(ReadySet::asked).unwrap_or_default();
        }
        Ok(Findings {
            profile: self.profile.name.to_string(),
            kv_tokens: self.kv_tokens,
            seeds,
            jitter: self.settings.jitter,
            cut_short,
            scenario: None,
            comparison,
            took_s,
            speed: virtual_s / took_s.max(1e-9),
        })
    }

    /// Replays seed by seed, so that sets become comparable early. Also returns what the time limit
    /// left out.
    fn replay_all(
        &self,
        started: Instant,
        control: &Control,
    ) -> (Outcomes, Result<(), WhatIfError>) {
        let sets = self.sets.iter();
        let mut outcomes: Outcomes = sets.map(|set| (set.name.clone(), Vec::new())).collect();
        for seed in 0..self.settings.seeds {
            let workload = self
                .workload
                .jittered(u64::from(seed), self.settings.jitter);
            for (place, set) in self.sets.iter().enumerate() {
                match self.replay(&workload, set, seed, started, control) {
                    Ok(outcome) => outcomes[place].1.push(outcome),
                    Err(failure) => return (outcomes, Err(failure)),
                }
            }
        }
        (outcomes, Ok(()))
    }

    fn replay(
        &self,
        workload: &Workload,
        set: &ReadySet,
        seed: u32,
        started: Instant,
        control: &Control,
    ) -> Result<Outcome, WhatIfError> {
        let wants_decisions = seed == 0 && self.settings.differences > 0;
        let options = ReplayOptions {
            core: set.core.clone(),
            profile: self.profile.clone(),
            kv_tokens: self.kv_tokens.clone(),
            request_overhead_us: 0,
            decisions_max: if wants_decisions { DECISIONS_MAX } else { 0 },
        };
        let before = control.steps_done.load(Ordering::Relaxed);
        let mut evaluator = set.evaluator()?;
        let limit_s = self.settings.limit_s;
        let limit = Duration::from_secs(limit_s);
        let mut goes_on = |steps: u64| {
            control.steps_done.store(before + steps, Ordering::Relaxed);
            !control.is_cancelled() && started.elapsed() < limit
        };
        let outcome = replay(workload, &options, &mut evaluator, &mut goes_on);
        control
            .steps_done
            .store(before + workload.steps(), Ordering::Relaxed);
        match outcome {
            Some(mut outcome) => {
                outcome.policies = record(&evaluator);
                Ok(outcome)
            }
            None if control.is_cancelled() => Err(WhatIfError::Cancelled),
            None => Err(WhatIfError::TimedOut(limit_s)),
        }
    }
}

/// The statistics of an evaluator. They show when a policy failed and the figures are those of the
/// built-in default.
fn record(evaluator: &PolicyEvaluator) -> PolicyRecord {
    let told = evaluator.statistics();
    PolicyRecord {
        answered: told.answered,
        fallbacks: told.fallbacks,
        faults: told.faults,
        given_up: told.rollbacks,
        fuel: told.fuel,
        latest_fault: told.latest_fault.clone(),
    }
}

/// Outcomes under the seeds with which all sets were replayed; without any, those under the first
/// seed.
fn comparable(mut outcomes: Outcomes) -> Outcomes {
    let whole = outcomes.iter().map(|(_, own)| own.len()).min().unwrap_or(0);
    for (_, own) in &mut outcomes {
        own.truncate(whole.max(1));
    }
    outcomes.retain(|(_, own)| !own.is_empty());
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{Recorded, RecordedWorker};
    use crate::sets::SetSpec;
    use treadle_core::CoreConfig;
    use treadle_policy_runtime::Limits;
    use treadle_simulator::workload::LognormalAgents;

    fn plan(sets: &[&str], settings: Settings) -> Plan {
        let agents = LognormalAgents {
            programs: 8,
            ..LognormalAgents::default()
        };
        let engine = treadle_policy::repeatable_engine(Limits::default()).unwrap();
        let ready = |name: &&str| {
            ReadySet::new(&SetSpec::named(name), &CoreConfig::default(), &[], &engine).unwrap()
        };
        Plan {
            workload: Workload::of_runs(agents.generate().unwrap(), 4),
            sets: sets.iter().map(ready).collect(),
            profile: EngineProfile::qwen3_32b_h100(),
            kv_tokens: vec![60_000],
            settings,
        }
    }

    #[test]
    fn a_timeout_keeps_partial_results_and_reports_none() {
        let settings = Settings {
            limit_s: 0,
            ..Settings::default()
        };
        let ended = plan(&["sticky"], settings).run(&Control::default());
        assert!(ended.unwrap_err().to_string().contains("more than 0 s"));
        let outcome = plan(&["sticky"], Settings::default());
        let found = outcome.run(&Control::default()).unwrap();
        assert!(found.cut_short.is_none() && found.seeds == 3);
        let one = &found.comparison.sets[0].seeds[0];
        let of = |counts: &[usize]| {
            let set =
                |(place, count): (usize, &usize)| (place.to_string(), vec![one.clone(); *count]);
            let outcomes = comparable(counts.iter().enumerate().map(set).collect());
            outcomes
                .iter()
                .map(|(_, own)| own.len())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&[3, 2, 2]), [2, 2, 2]);
        assert_eq!(of(&[1, 1, 0]), [1, 1]);
        assert!(of(&[0, 0]).is_empty());
    }

    #[test]
    fn impossible_engine_profiles_are_refused_by_field() {
        let worker = |kv_tokens| RecordedWorker {
            url: "http://e".into(),
            kv_tokens,
            class: None,
        };
        let told = |is_window: bool, recorded: Option<u64>, given: Option<u64>, blocks: u32| {
            let mut workload = Workload::of_runs(Vec::new(), 1);
            workload.workers = vec![worker(recorded), worker(recorded)];
            workload.recorded = is_window.then(Recorded::default);
            let profile = EngineProfile {
                kv_blocks: blocks,
                ..EngineProfile::qwen3_32b_h100()
            };
            let settings = Settings {
                kv_tokens: given,
                ..Settings::default()
            };
            let told = Plan::kv_tokens_of(&workload, &profile, &settings);
            told.map_err(|failure| failure.to_string())
        };
        let refused = |recorded, given, blocks| told(true, recorded, given, blocks);
        for (told, field) in [
            (told(false, Some(1 << 40), None, 100), "`kv_fraction`"),
            (refused(None, Some(1_000_000_000_000), 100), "`kv_tokens`"),
            (refused(None, Some(u64::MAX), 100), "`kv_tokens`"),
            (refused(Some(1 << 40), None, 100), "`window`"),
            (refused(None, None, 1 << 29), "`profile`"),
        ] {
            let told = told.unwrap_err();
            assert!(
                told.contains(field) && told.contains("as `kv_tokens`"),
                "{told}"
            );
        }
        assert_eq!(refused(Some(1 << 40), Some(9_000), 100), Ok(vec![9_000; 2]));
        assert_eq!(refused(Some(7), None, 100), Ok(vec![7; 2]));
    }
}
