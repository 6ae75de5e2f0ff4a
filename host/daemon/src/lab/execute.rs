//! The replays of one run, one after another.

use super::request::Settings;
use super::sets::ReadySet;
use super::{LabFailure, RUN_S_MAX};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use treadle_simulator::engine::EngineProfile;
use treadle_simulator::lab::{Comparison, Outcome, ReplayOptions, Workload, replay};

/// Decisions of one replay that are kept for comparison.
const DECISIONS_MAX: usize = 100_000;

/// How far a run is, and whether it should go on.
#[derive(Debug, Default)]
pub(crate) struct Control {
    cancelled: AtomicBool,
    steps_done: AtomicU64,
    steps: AtomicU64,
}

impl Control {
    /// Ends the run soon.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Steps repeated, and steps of all replays; 0 of 0 before that is known.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let done = self.steps_done.load(Ordering::Relaxed);
        let steps = self.steps.load(Ordering::Relaxed);
        (done.min(steps), steps)
    }
}

/// A run that is ready.
pub(crate) struct Plan {
    pub(crate) workload: Workload,
    pub(crate) sets: Vec<ReadySet>,
    pub(crate) profile: EngineProfile,
    /// KV memory of each engine, in tokens.
    pub(crate) kv_tokens: Vec<u64>,
    pub(crate) settings: Settings,
}

/// What a run came to. The comparison is the same whenever the run is repeated; the speed is not.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Findings {
    /// What the engines are like.
    pub(crate) profile: String,
    /// KV memory of each, in tokens.
    pub(crate) kv_tokens: Vec<u64>,
    /// Seeds.
    pub(crate) seeds: u32,
    /// Spread of tools and arrivals over them.
    pub(crate) jitter: f64,
    /// All that was found.
    #[serde(flatten)]
    pub(crate) comparison: Comparison,
    /// Real seconds that all replays took.
    pub(crate) took_s: f64,
    /// Virtual seconds of all replays, over the real ones.
    pub(crate) speed: f64,
}

impl Plan {
    /// KV memory of each engine: as asked for, as recorded, else the profile's.
    pub(crate) fn kv_tokens_of(
        workload: &Workload,
        profile: &EngineProfile,
        settings: &Settings,
    ) -> Result<Vec<u64>, LabFailure> {
        if workload.workers.is_empty() {
            return Err(LabFailure::Range(
                "no engine is known in or before the window; widen it to the engines' registration"
                    .to_owned(),
            ));
        }
        let of_worker = |kv: Option<u64>| settings.kv_tokens.or(kv).unwrap_or(profile.kv_tokens());
        let workers = workload.workers.iter();
        Ok(workers.map(|worker| of_worker(worker.kv_tokens)).collect())
    }

    /// Runs every set under every seed. Takes a while: not for an async thread.
    pub(crate) fn run(&self, control: &Control) -> Result<Findings, LabFailure> {
        let started = Instant::now();
        let replays = self.sets.len() as u64 * u64::from(self.settings.seeds);
        control
            .steps
            .store(self.workload.steps() * replays, Ordering::Relaxed);
        let mut outcomes: Vec<(String, Vec<Outcome>)> = Vec::new();
        for set in &self.sets {
            outcomes.push((set.name.clone(), Vec::new()));
        }
        for seed in 0..self.settings.seeds {
            let workload = self
                .workload
                .jittered(u64::from(seed), self.settings.jitter);
            for (place, set) in self.sets.iter().enumerate() {
                let outcome = self.replay(&workload, set, seed, started, control)?;
                outcomes[place].1.push(outcome);
            }
        }
        let took_s = started.elapsed().as_secs_f64();
        let all = outcomes.iter().flat_map(|(_, outcomes)| outcomes);
        let virtual_s: f64 = all.map(|outcome| outcome.makespan_s).sum();
        Ok(Findings {
            profile: self.profile.name.to_string(),
            kv_tokens: self.kv_tokens.clone(),
            seeds: self.settings.seeds,
            jitter: self.settings.jitter,
            comparison: Comparison::of(&self.workload, outcomes, self.settings.differences),
            took_s,
            speed: virtual_s / took_s.max(1e-9),
        })
    }

    fn replay(
        &self,
        workload: &Workload,
        set: &ReadySet,
        seed: u32,
        started: Instant,
        control: &Control,
    ) -> Result<Outcome, LabFailure> {
        let wants_decisions = seed == 0 && self.settings.differences > 0;
        let options = ReplayOptions {
            core: set.core.clone(),
            profile: self.profile.clone(),
            kv_tokens: self.kv_tokens.clone(),
            request_overhead_us: 0,
            decisions_max: if wants_decisions { DECISIONS_MAX } else { 0 },
        };
        let before = control.steps_done.load(Ordering::Relaxed);
        let mut desk = set.desk()?;
        let limit = Duration::from_secs(RUN_S_MAX);
        let mut goes_on = |steps: u64| {
            control.steps_done.store(before + steps, Ordering::Relaxed);
            !control.is_cancelled() && started.elapsed() < limit
        };
        let outcome = replay(workload, &options, &mut desk, &mut goes_on);
        control
            .steps_done
            .store(before + workload.steps(), Ordering::Relaxed);
        match outcome {
            Some(outcome) => Ok(outcome),
            None if control.is_cancelled() => Err(LabFailure::Cancelled),
            None => Err(LabFailure::TimedOut),
        }
    }
}
