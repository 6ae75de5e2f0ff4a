//! Settings of simulations with transfers of caches, and of rollouts. They have their own streams,
//! so that all other simulations stay unchanged.

use treadle_core::bindings::EVERYONE;
use treadle_core::{CoreConfig, KvConfig, RolloutConfig};
use treadle_dst_outcome::Stream;
use treadle_model::Span;

/// What the streams of rollouts and of caches are called. The numbers are such that the simulations
/// of `tests/seeds.txt` that are older than both stayed as they were.
pub(crate) const ROLLOUT: &str = "rollout 24";
pub(crate) const CACHES: &str = "caches 8467";
/// What the stream of operators' doings is called. The number is such that the simulations of
/// `tests/seeds.txt` stayed as they were.
pub(crate) const OPERATORS: &str = "operators 8839281";
/// What the stream of actions is called. The number is such that the simulations of
/// `tests/seeds.txt` that are older stayed as they were.
pub(crate) const ACTIONS: &str = "actions 226946";
/// What the streams of what engines are found to lack and of caches that stay there are called. The
/// numbers are such that the simulations of `tests/seeds.txt` stayed as they were.
pub(crate) const MEANS: &str = "means 8998";
pub(crate) const DEFAULTS: &str = "defaults 927854";
/// What the stream of bounds on waits is called.
pub(crate) const BOUNDS: &str = "bounds";

/// The timing of transfers and preempted steps without faults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferProfile {
    /// True speed of a link, in tokens of context per second.
    pub(crate) tokens_per_s: u64,
    /// Longest time until the result of a transfer is reported, and until a cancelled one has
    /// stopped.
    pub(crate) report_delay_us_max: u64,
    /// Percentage of steps to preempt that can't be preempted and run on.
    pub(crate) runs_on_percent: u64,
}

pub(crate) fn transfers(s: &mut Stream) -> TransferProfile {
    TransferProfile {
        tokens_per_s: s.pick(&[200, 1_000, 5_000, 50_000]),
        report_delay_us_max: s.between_low(100, 50_000),
        runs_on_percent: s.pick(&[0, 20, 60]),
    }
}

/// Caches outlive their placements in some of the program-aware simulations.
pub(crate) fn caches(s: &mut Stream) -> Option<KvConfig> {
    let told = s.percent(35);
    let kv = KvConfig {
        retention: s.percent(60),
        host_tokens_max: s.pick(&[600, 2_500, 10_000, 100_000]),
        host_tokens_per_s: s.pick(&[300, 2_000, 20_000]),
        offload_link_ppm: s.pick(&[100_000, 500_000, 1_000_000]) as u32,
        migration_tokens_per_s: s.pick(&[0, 500, 5_000]),
        prefill_tokens_per_s: s.pick(&[50, 300, 3_000]),
        transfer_max: Span::from_secs(s.between_low(2, 60)),
        backlog_max: Span::from_millis(s.pick(&[0, 500, 2_000, 20_000])),
    };
    told.then_some(kv)
}

/// In some of the others they stay at their engines, which may have host memory of their own: what a
/// daemon does that nobody configured.
pub(crate) fn defaults(s: &mut Stream) -> Option<KvConfig> {
    let told = s.percent(25);
    let kv = KvConfig {
        retention: true,
        migration_tokens_per_s: s.pick(&[0, 0, 500]),
        prefill_tokens_per_s: s.pick(&[300, 3_000, 10_000]),
        backlog_max: Span::from_millis(s.pick(&[0, 500, 2_000, 2_000])),
        ..KvConfig::default()
    };
    told.then_some(kv)
}

/// In half of the simulations in which caches can be offloaded the starvation bound follows the
/// mean wait.
pub(crate) fn bounds(s: &mut Stream, config: &mut CoreConfig) {
    let least = s.pick(&[100_000, 1_000_000, 10_000_000]);
    if s.percent(50) {
        config.deferral_min = Span(least).min(config.deferral_max);
    }
}

/// Some simulations have a policy that ranks the steps of all jobs, or of one, or bound the steps at
/// an engine.
pub(crate) fn rollout(s: &mut Stream) -> Option<(RolloutConfig, Option<&'static str>)> {
    let told = s.percent(30);
    let moves = s.percent(60);
    let rollout = RolloutConfig {
        gather: Span::from_millis(s.between_low(1, 500)),
        programs_max: s.pick(&[1, 3, 10_000]),
        migration_interval: Span::from_millis(if moves { s.between(500, 15_000) } else { 0 }),
        memory_ppm: s.pick(&[0, 0, 500_000, 950_000]) as u32,
        engine_steps_max: s.pick(&[0, 1, 2, 4]) as u32,
    };
    let ranked = s.pick(&[Some(EVERYONE), Some(EVERYONE), Some("job-0"), None]);
    told.then_some((rollout, ranked))
}
