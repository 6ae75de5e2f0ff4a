//! A recorded workload, ready to be replayed.

use super::statistics::percentiles_s;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use treadle_core::CoreConfig;
use treadle_simulator::cluster::{Begin, Preferences, RunStart, Schedule, ToolAction, Wave};
use treadle_simulator::workload::AgentRun;
use utoipa::ToSchema;

/// Why a window can't be replayed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// No step of the window was answered.
    #[error(
        "no step was answered in this window; choose one that holds programs at work (`treadle events tail` shows the journal)"
    )]
    Empty,
    /// A limit on programs, steps or actions is exceeded.
    #[error("the window has more than {max} {what}; choose a shorter one")]
    TooLarge {
        /// What is limited.
        what: &'static str,
        /// The limit.
        max: usize,
    },
}

/// An engine as recorded in the journal.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfWorker)]
pub struct RecordedWorker {
    /// Its URL.
    pub url: Box<str>,
    /// Its KV memory in tokens, if known.
    pub kv_tokens: Option<u64>,
    /// Its class of hardware, if its operator named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Box<str>>,
}

/// What is left out or changed because of the window's edges and its failures.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfCuts)]
pub struct Cuts {
    /// Programs that began before the window: replayed from their first step in it.
    pub programs_begun_before: u64,
    /// Programs that had not ended at the window's end: replayed up to their last answer in it.
    pub programs_open_at_end: u64,
    /// Programs that were never released and had no event for the longest tool call's time, or for
    /// half of a shorter window: they end with their last answer.
    pub programs_left: u64,
    /// Programs without an answered step in the window: left out.
    pub programs_without_answer: u64,
    /// Steps running at the window's end: left out.
    pub steps_open_at_end: u64,
    /// Steps without further events, although their program continued, was released or abandoned:
    /// the scheduler had refused them. Left out.
    pub steps_unheard_of: u64,
    /// Steps that failed, were withdrawn, or were lost in a restart: left out, but the time that
    /// they took is kept.
    pub steps_without_answer: u64,
    /// Steps that arrived while another one of their program was running: replayed one after
    /// another.
    pub steps_overlapping: u64,
    /// Steps whose prompt had shrunk: the part of the context that they reused is a guess.
    pub steps_compacted: u64,
    /// Actions that began before the first answer of their program in the window: left out.
    pub actions_left_out: u64,
    /// Times that an engine was lost, recovered, added late or removed: an engine that served at
    /// all is replayed as available all the time.
    pub worker_changes: u64,
}

/// The recorded outcome of the window. Times are those of the journal, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = WhatIfRecorded)]
pub struct Recorded {
    /// Number of answered steps.
    pub steps: u64,
    /// Time from the first step's arrival to the last answer.
    pub makespan_s: f64,
    /// Answered steps per minute.
    pub steps_per_min: f64,
    /// Median time from a step's arrival to its answer.
    pub step_p50_s: f64,
    /// 95th percentile of that time.
    pub step_p95_s: f64,
    /// 99th percentile of that time.
    pub step_p99_s: f64,
    /// Share of prompt tokens found in caches, for engines that report it.
    pub hit_rate: f64,
}

impl Recorded {
    pub(super) fn of(span_us: u64, latencies_us: &mut [u64], prompt: u64, cached: u64) -> Self {
        let steps = latencies_us.len() as u64;
        let makespan_s = span_us as f64 / 1e6;
        let [step_p50_s, step_p95_s, step_p99_s] = percentiles_s(latencies_us);
        Self {
            steps,
            makespan_s,
            steps_per_min: steps as f64 / makespan_s.max(1e-9) * 60.0,
            step_p50_s,
            step_p95_s,
            step_p99_s,
            hit_rate: cached as f64 / prompt.max(1) as f64,
        }
    }
}

/// A recorded workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The programs; each run's `id` is its program's key.
    pub runs: Vec<AgentRun>,
    /// When programs begin.
    pub schedule: Schedule,
    /// The output limit that clients set for each step, by run and step, if any.
    pub output_limits: Vec<Vec<Option<u64>>>,
    /// The actions that tool runners reported after each step, by run and step.
    pub actions: Vec<Vec<Vec<ToolAction>>>,
    /// The engines; empty for a workload that was not recorded.
    pub workers: Vec<RecordedWorker>,
    /// Which classes of hardware programs prefer.
    pub preferences: Preferences,
    /// The scheduler's settings at the end of the window, if recorded.
    pub config: Option<CoreConfig>,
    /// Whether answers came in one piece, so that nothing was reported to the scheduler before a
    /// step's end.
    pub whole_answers: bool,
    /// The recorded outcome; absent for a workload that was not recorded.
    pub recorded: Option<Recorded>,
    /// What the replay leaves out or changes.
    pub cuts: Cuts,
}

impl Workload {
    /// A workload of runs without recorded arrivals, such as those of a trace: one job with `slots`
    /// slots, all taken at the start.
    pub fn of_runs(runs: Vec<AgentRun>, slots: usize) -> Self {
        let start = |place: usize| RunStart {
            wave: 0,
            begin: match place.checked_sub(slots.max(1)) {
                None => Begin::At { offset_us: 0 },
                Some(before) => Begin::Slot {
                    ends: before as u32 + 1,
                    lag_us: 0,
                },
            },
        };
        let schedule = Schedule {
            jobs: vec!["trace".into()],
            waves: vec![Wave { job: 0, gap_us: 0 }],
            runs: (0..runs.len()).map(start).collect(),
        };
        Self {
            runs,
            schedule,
            output_limits: Vec::new(),
            actions: Vec::new(),
            workers: Vec::new(),
            preferences: Preferences::default(),
            config: None,
            whole_answers: false,
            recorded: None,
            cuts: Cuts::default(),
        }
    }

    /// The number of steps.
    pub fn steps(&self) -> u64 {
        self.runs.iter().map(|run| run.steps.len() as u64).sum()
    }

    /// The workload with tool times and arrivals varied by up to this share, uniformly. For
    /// arrivals the time since the previous one varies, so that a burst stays a burst. Seed 0
    /// changes nothing; the others show how much of an outcome is due to chance.
    #[must_use]
    pub fn jittered(&self, seed: u64, share: f64) -> Self {
        let mut jittered = self.clone();
        if seed == 0 || share <= 0.0 {
            return jittered;
        }
        let mut stream = Pcg64Mcg::seed_from_u64(seed);
        let mut factor = || 1.0 + share * (2.0 * stream.random::<f64>() - 1.0);
        let varied = |us: u64, factor: f64| (us as f64 * factor) as u64;
        for (run, place) in jittered.runs.iter_mut().zip(0..) {
            let mut actions = jittered.actions.get_mut(place);
            for (step, place) in run.steps.iter_mut().zip(0..) {
                // An action varies by the same factor as the time until the next step.
                let factor = factor();
                step.tool_us = varied(step.tool_us, factor);
                let actions = actions.as_mut().and_then(|steps| steps.get_mut(place));
                for action in actions.into_iter().flatten() {
                    action.begins_us = varied(action.begins_us, factor);
                    action.ends_us = action.ends_us.map(|us| varied(us, factor));
                }
            }
        }
        let schedule = &mut jittered.schedule;
        for wave in &mut schedule.waves {
            wave.gap_us = varied(wave.gap_us, factor());
        }
        // Recorded runs are in order of their beginning.
        let mut latest: Vec<(u64, u64)> = vec![(0, 0); schedule.waves.len()];
        for start in &mut schedule.runs {
            match &mut start.begin {
                Begin::At { offset_us } => {
                    let (was, is) = &mut latest[start.wave];
                    *is += varied(offset_us.saturating_sub(*was), factor());
                    *was = *offset_us;
                    *offset_us = *is;
                }
                Begin::Slot { lag_us, .. } => *lag_us = varied(*lag_us, factor()),
            }
        }
        jittered
    }
}
