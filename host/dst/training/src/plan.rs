//! The plan of a training run's simulation: everything that its seed decides in advance.

use treadle_core::training::{Affinity, Auto, Capture, History, JobSettings, Stale};
use treadle_dst_outcome::Stream;

pub(super) const SECOND_US: u64 = 1_000_000;

/// A job, its clients and its trainer.
#[derive(Clone, Debug)]
pub(super) struct JobPlan {
    pub(super) name: Box<str>,
    pub(super) settings: JobSettings,
    /// Later declarations, with their times.
    pub(super) declared_again: Vec<Declaration>,
    /// Prompts that are submitted.
    pub(super) prompts: u64,
    /// Share of the prompts whose members take ten times as long, in percent.
    pub(super) slow_percent: u64,
    /// Clients that sample members, one at a time each.
    pub(super) clients: usize,
    /// Share of the members that are programs whose requests treadle forwards, in percent.
    pub(super) programs_percent: u64,
    /// Typical time that a member takes.
    pub(super) median_us: u64,
    /// Spread of that time.
    pub(super) spread: u32,
    pub(super) training_us: u64,
    /// Time until engines have new weights.
    pub(super) update_us: u64,
    /// Batches between two checkpoints.
    pub(super) checkpoint_every: u64,
    /// How often the trainer goes back after a batch, in percent.
    pub(super) resume_percent: u64,
    /// When its shaping policy is bound, and unbound.
    pub(super) bound: Vec<Bound>,
    /// When the job is removed and declared again, if it is.
    pub(super) removed_us: Option<u64>,
}

/// A shaping policy is bound, or unbound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) at_us: u64,
    pub(super) binds: bool,
}

/// New settings of a job.
#[derive(Clone, Debug)]
pub(super) struct Declaration {
    pub(super) at_us: u64,
    pub(super) settings: JobSettings,
}

/// The plan.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) jobs: Vec<JobPlan>,
    /// When the daemon is killed and started again.
    pub(super) restarts_us: Vec<u64>,
    /// Nothing fails on purpose after this.
    pub(super) calm_us: u64,
    /// How often a call comes twice, in percent.
    pub(super) again_percent: u64,
    /// How often a member fails before the calm, in percent.
    pub(super) failures_percent: u64,
    /// Events between two snapshots.
    pub(super) snapshot_events: u64,
    /// Time after which a silent program is over.
    pub(super) idle_us: u64,
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let s = &mut Stream::new(seed, "training");
        let calm_us = s.between(20, 200) * SECOND_US;
        let jobs = if s.percent(20) { 2 } else { 1 };
        let mut jobs: Vec<JobPlan> = (0..jobs).map(|number| job(s, number, calm_us)).collect();
        // From a stream of its own: without policies, runs are what they were.
        let shaping = &mut Stream::new(seed, "shaping");
        for job in &mut jobs {
            job.bound = bound(shaping, calm_us);
            job.settings.redundancy_max = shaping.pick(&[1, 2, 2, 3]);
            for later in &mut job.declared_again {
                later.settings.redundancy_max = job.settings.redundancy_max;
            }
        }
        let restarts = s.between_low(0, 4);
        Self {
            jobs,
            restarts_us: (0..restarts).map(|_| s.below(calm_us)).collect(),
            calm_us,
            again_percent: s.pick(&[0, 5, 20]),
            failures_percent: s.pick(&[0, 5, 25, 60]),
            snapshot_events: s.between(40, 600),
            idle_us: s.between(20, 60) * SECOND_US,
        }
    }
}

fn job(s: &mut Stream, number: u64, calm_us: u64) -> JobPlan {
    let settings = settings(s);
    let batches = s.between(4, 10);
    let slow = u64::from(settings.batch_groups) * s.between(1, 3);
    let again = s.between_low(0, 3);
    let declared_again = (0..again).map(|_| Declaration {
        at_us: s.below(calm_us),
        settings: changed(s, &settings),
    });
    let declared_again = declared_again.collect();
    JobPlan {
        name: format!("job-{number}").into(),
        declared_again,
        prompts: u64::from(settings.batch_groups) * batches + slow,
        slow_percent: s.pick(&[0, 5, 20]),
        clients: s.between(2, 24) as usize,
        programs_percent: s.pick(&[0, 0, 50, 100]),
        median_us: s.between(1, 8) * SECOND_US,
        spread: s.pick(&[2, 6, 14]),
        training_us: s.between_low(0, 30) * SECOND_US,
        update_us: s.between_low(0, 20) * SECOND_US,
        checkpoint_every: s.between(1, 4),
        resume_percent: s.pick(&[0, 0, 10, 30]),
        bound: Vec::new(),
        removed_us: s.percent(8).then(|| s.below(calm_us)),
        settings,
    }
}

/// Half of all jobs have a policy, most from the start, and most for good.
fn bound(s: &mut Stream, calm_us: u64) -> Vec<Bound> {
    if s.percent(50) {
        return Vec::new();
    }
    let first_us = if s.percent(70) { 0 } else { s.below(calm_us) };
    let mut bound = vec![Bound {
        at_us: first_us,
        binds: true,
    }];
    if s.percent(20) {
        let at_us = s.between(first_us, calm_us);
        let binds = false;
        bound.push(Bound { at_us, binds });
    }
    bound
}

fn settings(s: &mut Stream) -> JobSettings {
    let lag_max = s.pick(&[0, 0, 1, 1, 1, 2, 3, 5]);
    let judged = s.percent(30);
    JobSettings {
        model: None,
        group_size: s.between_low(1, 5) as u16,
        batch_groups: s.between_low(1, 6) as u32,
        lag_max,
        pipeline: s.between(0, 3),
        stale: s.pick(&[Stale::Cut, Stale::Cut, Stale::Finish, Stale::Wait]),
        failures_max: s.pick(&[0, 1, 3, 8]),
        starved_after: s.pick(&[0, 1, 2, 3, 3]),
        rewarded: s.percent(75),
        capture: s.pick(&[Capture::None, Capture::None, Capture::Tokens]),
        judged_together: judged && s.percent(40),
        member_timeout_s: s.between(30, 120),
        redundancy_max: 2,
        history: History::AsSent,
        affinity: affinity(s),
        reward: judged.then(|| r#"{"policy":true}"#.into()),
    }
}

/// The only engine is of the class `here`: nobody waits for another one.
fn affinity(s: &mut Stream) -> Option<Affinity> {
    let class = match s.below(5) {
        0 => "here",
        1 => "elsewhere",
        2 => return Some(Affinity::Auto(Auto::Auto)),
        _ => return None,
    };
    let classes = [("default".into(), class.into())];
    Some(Affinity::Classes(classes.into()))
}

/// The settings that a trainer declares later: what it may change while it runs.
fn changed(s: &mut Stream, settings: &JobSettings) -> JobSettings {
    JobSettings {
        lag_max: s.pick(&[settings.lag_max, 0, 1, 3]),
        stale: s.pick(&[settings.stale, Stale::Cut, Stale::Finish, Stale::Wait]),
        rewarded: settings.rewarded != s.percent(30),
        group_size: s.between_low(1, 5) as u16,
        batch_groups: s.between_low(1, 6) as u32,
        starved_after: s.pick(&[settings.starved_after, 1]),
        affinity: affinity(s),
        ..settings.clone()
    }
}

/// A time that is nearly distributed as a lognormal one: a product of many small factors.
pub(super) fn lognormal(s: &mut Stream, median_us: u64, spread: u32) -> u64 {
    (0..spread).fold(median_us.max(1_000), |time, _| {
        if s.percent(50) {
            time * 4 / 3
        } else {
            time * 3 / 4
        }
    })
}
