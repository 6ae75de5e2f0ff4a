//! The plan of a simulation of weight updates: everything that its seed decides in advance.

use crate::plan::SECOND_US;
use treadle_core::training::{Capture, JobSettings, Stale};
use treadle_core::weights::UpdatePlan;
use treadle_dst_outcome::Stream;
use treadle_model::WorkerId;

/// How a trainer that drives updates by itself does it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Driving {
    /// It pauses no engine: treadle does.
    pub(super) never_pauses: bool,
    /// Weights come in parts, not in one call.
    pub(super) in_parts: bool,
    /// How often it gives a round up after one of its calls, in percent.
    pub(super) gives_up_percent: u64,
}

/// What the engines' software is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Software {
    /// Its answers name the version that sampled them.
    pub(super) names: bool,
    /// It names a version only while it has it as a whole.
    pub(super) whole_names: bool,
    /// It computes checksums.
    pub(super) checksums: bool,
}

/// The plan.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) engines: u32,
    pub(super) software: Software,
    pub(super) update: UpdatePlan,
    /// The trainer drives the updates; else treadle loads what it publishes.
    pub(super) driving: Option<Driving>,
    pub(super) settings: JobSettings,
    pub(super) clients: usize,
    /// Time that an answer takes; each of its parts is sampled by one version.
    pub(super) answer_us: u64,
    pub(super) training_us: u64,
    /// Longest time that an engine takes to load a version.
    pub(super) load_us: u64,
    /// How often the trainer goes back to its checkpoint after a batch, in percent.
    pub(super) resume_percent: u64,
    /// How often a call to an engine goes wrong, in percent.
    pub(super) faults_percent: u64,
    /// An engine that says that it has loaded what it has not.
    pub(super) liar: Option<WorkerId>,
    /// Longest time between two disturbances from outside; none happen if it is 0.
    pub(super) disturbed_us: u64,
    /// When the daemon is killed and started again.
    pub(super) restarts_us: Vec<u64>,
    /// Events between two snapshots.
    pub(super) snapshot_events: u64,
    /// Nothing fails on purpose after this.
    pub(super) calm_us: u64,
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let s = &mut Stream::new(seed, "weights");
        let engines = s.between(1, 4);
        let calm_us = s.between(100, 500) * SECOND_US;
        let lies = s.percent(20);
        let driving = s.percent(50).then(|| Driving {
            never_pauses: s.percent(40),
            in_parts: s.percent(60),
            gives_up_percent: s.pick(&[0, 0, 10]),
        });
        let restarts = s.between_low(0, 4);
        Self {
            engines: engines as u32,
            software: Software {
                names: s.percent(80),
                whole_names: s.percent(50),
                // Nothing else finds an engine that lies.
                checksums: s.percent(70) || lies,
            },
            update: UpdatePlan {
                quorum: s.pick(&[0, 0, 1, engines as u16]),
                ready_s: s.pick(&[5, 20, 60]),
                rolling: s.percent(40),
            },
            driving,
            settings: settings(s),
            clients: s.between(2, 8) as usize,
            answer_us: s.between(1, 10) * SECOND_US,
            training_us: s.between_low(1, 20) * SECOND_US,
            load_us: s.between_low(1, 20) * SECOND_US,
            resume_percent: s.pick(&[0, 0, 10]),
            faults_percent: s.pick(&[0, 5, 15]),
            liar: lies.then(|| WorkerId(s.below(engines) as u32)),
            disturbed_us: s.pick(&[0, 30, 90]) * SECOND_US,
            restarts_us: (0..restarts).map(|_| s.below(calm_us)).collect(),
            snapshot_events: if s.percent(50) {
                u64::MAX
            } else {
                s.between(20, 300)
            },
            calm_us,
        }
    }
}

fn settings(s: &mut Stream) -> JobSettings {
    JobSettings {
        group_size: s.between_low(1, 3) as u16,
        batch_groups: s.between_low(1, 3) as u32,
        lag_max: s.pick(&[0, 1, 1, 2, 3]),
        pipeline: s.between(0, 2),
        stale: s.pick(&[Stale::Cut, Stale::Cut, Stale::Finish, Stale::Wait]),
        rewarded: false,
        capture: Capture::Tokens,
        member_timeout_s: 600,
        ..JobSettings::default()
    }
}
