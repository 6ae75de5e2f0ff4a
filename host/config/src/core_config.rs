//! Converts the configuration to the core's settings and units.

use treadle_core::{CoreConfig, KvConfig, Mode, RolloutConfig};
use treadle_model::Span;

use super::section::Key;
use super::{Config, KvSection, RolloutSection, SECTIONS};

impl Config {
    /// The core's settings; those that are not configurable have the core's defaults.
    pub fn core(&self) -> CoreConfig {
        let scheduler = &self.scheduler;
        CoreConfig {
            mode: scheduler.mode,
            rollout: self.rollout.core(),
            kv: self.kv.core(scheduler.mode),
            actions: self.actions_core(),
            tick: Span::from_millis(scheduler.tick_ms),
            high_watermark_ppm: millionths(scheduler.high_watermark),
            low_watermark_ppm: millionths(scheduler.low_watermark),
            queue_wait_max: Span::from_secs(scheduler.queue_wait_s_max),
            deferral_max: Span::from_secs(scheduler.starvation_s_max),
            deferral_min: Span::from_secs(scheduler.starvation_s_min),
            quantum_ppm: millionths(scheduler.quantum_share),
            pause_weight_ppm: millionths(scheduler.pause_weight),
            program_idle_max: Span::from_secs(scheduler.program_idle_s_max),
            inferred_idle_max: Span::from_secs(scheduler.inferred_idle_s_max),
            programs_max: scheduler.programs_max,
            queue_steps_max: scheduler.queue_len_max,
            candidates_max: self.plugins.candidates_max,
            ask_deadline: Span::from_millis(self.plugins.answer_deadline_ms),
            attempts_max: self.engines.retry_max + 1,
            ..CoreConfig::default()
        }
    }
}

impl RolloutSection {
    fn core(&self) -> RolloutConfig {
        RolloutConfig {
            gather: Span::from_millis(self.gather_ms),
            programs_max: self.programs_max,
            migration_interval: Span::from_millis(self.migration_interval_ms),
            memory_ppm: millionths(self.memory_share),
            engine_steps_max: self.engine_steps_max,
        }
    }
}

impl KvSection {
    fn core(&self, mode: Mode) -> KvConfig {
        KvConfig {
            retention: self.retention && mode == Mode::ProgramAware,
            host_tokens_max: self.host_tokens_max,
            host_tokens_per_s: self.host_tokens_per_s,
            offload_link_ppm: millionths(self.offload_link_share),
            migration_tokens_per_s: self.migration_tokens_per_s,
            prefill_tokens_per_s: self.prefill_tokens_per_s,
            backlog_max: Span((self.prefill_backlog_s * 1e6) as u64),
            transfer_max: Span::from_secs(self.transfer_s_max),
        }
    }
}

fn millionths(share: f64) -> u32 {
    (share * 1e6).round() as u32
}

/// Microseconds in a millisecond.
const MS: f64 = 1e3;
/// Microseconds in a second.
const S: f64 = 1e6;
/// Millionths in one.
const ONE: f64 = 1e6;

/// A setting of the core: its name, its value, the key or fixed value that it comes from, and the
/// number of the core's units in one unit of the key.
type FromKey = (&'static str, f64, &'static str, f64);

/// The first of the core's settings that no valid configuration produces: its name, and a message
/// with the problem and the valid values.
pub fn out_of_bounds(core: &CoreConfig) -> Option<(&'static str, String)> {
    let settings = of_scheduler(core).into_iter();
    let mut settings = settings.chain(of_rollout(core)).chain(of_kv(core));
    let wrong = settings.find_map(|(name, value, path, unit)| {
        let (least, most) = key(path)?.bounds?;
        // Rounding may move a share by a millionth.
        let (least, most) = ((least * unit).floor(), (most * unit).ceil());
        let problem = format!("is {value}; give {least} to {most}");
        (!(least..=most).contains(&value)).then_some((name, problem))
    });
    let (low, high) = (core.low_watermark_ppm, core.high_watermark_ppm);
    wrong.or_else(|| {
        let problem = format!("is {low}; give at most high_watermark_ppm, which is {high}");
        (low > high).then_some(("low_watermark_ppm", problem))
    })
}

fn key(path: &str) -> Option<&'static Key> {
    let mut keys = SECTIONS
        .iter()
        .flat_map(|section| section.keys.iter().chain(section.fixed));
    keys.find(|key| key.path() == path)
}

fn micros(span: Span) -> f64 {
    span.micros() as f64
}

fn of_scheduler(core: &CoreConfig) -> Vec<FromKey> {
    let (ms, s) = (
        |name, span: Span, key| (name, micros(span), key, MS),
        |name, span: Span, key| (name, micros(span), key, S),
    );
    let share = |name, ppm: u32, key| (name, f64::from(ppm), key, ONE);
    let count = |name, count: u64, key| (name, count as f64, key, 1.0);
    let (high, low) = (core.high_watermark_ppm, core.low_watermark_ppm);
    let attempts = f64::from(core.attempts_max) - 1.0;
    let (idle, inferred) = (core.program_idle_max, core.inferred_idle_max);
    let candidates = core.candidates_max as u64;
    vec![
        ms("tick", core.tick, "scheduler.tick_ms"),
        share("high_watermark_ppm", high, "scheduler.high_watermark"),
        share("low_watermark_ppm", low, "scheduler.low_watermark"),
        s(
            "queue_wait_max",
            core.queue_wait_max,
            "scheduler.queue_wait_s_max",
        ),
        s(
            "deferral_max",
            core.deferral_max,
            "scheduler.starvation_s_max",
        ),
        s(
            "deferral_min",
            core.deferral_min,
            "scheduler.starvation_s_min",
        ),
        share("quantum_ppm", core.quantum_ppm, "scheduler.quantum_share"),
        share(
            "pause_weight_ppm",
            core.pause_weight_ppm,
            "scheduler.pause_weight",
        ),
        s("program_idle_max", idle, "scheduler.program_idle_s_max"),
        s(
            "inferred_idle_max",
            inferred,
            "scheduler.inferred_idle_s_max",
        ),
        count("programs_max", core.programs_max, "scheduler.programs_max"),
        count(
            "queue_steps_max",
            core.queue_steps_max,
            "scheduler.queue_len_max",
        ),
        count("candidates_max", candidates, "plugins.candidates_max"),
        ms(
            "ask_deadline",
            core.ask_deadline,
            "plugins.answer_deadline_ms",
        ),
        ("attempts_max - 1", attempts, "engines.retry_max", 1.0),
    ]
}

fn of_rollout(core: &CoreConfig) -> [FromKey; 5] {
    let rollout = &core.rollout;
    [
        (
            "rollout.gather",
            micros(rollout.gather),
            "rollout.gather_ms",
            MS,
        ),
        (
            "rollout.programs_max",
            rollout.programs_max as f64,
            "rollout.programs_max",
            1.0,
        ),
        (
            "rollout.migration_interval",
            micros(rollout.migration_interval),
            "rollout.migration_interval_ms",
            MS,
        ),
        (
            "rollout.memory_ppm",
            rollout.memory_ppm.into(),
            "rollout.memory_share",
            ONE,
        ),
        (
            "rollout.engine_steps_max",
            rollout.engine_steps_max.into(),
            "rollout.engine_steps_max",
            1.0,
        ),
    ]
}

fn of_kv(core: &CoreConfig) -> [FromKey; 7] {
    let kv = &core.kv;
    [
        (
            "kv.host_tokens_max",
            kv.host_tokens_max as f64,
            "kv.host_tokens_max",
            1.0,
        ),
        (
            "kv.host_tokens_per_s",
            kv.host_tokens_per_s as f64,
            "kv.host_tokens_per_s",
            1.0,
        ),
        (
            "kv.offload_link_ppm",
            kv.offload_link_ppm.into(),
            "kv.offload_link_share",
            ONE,
        ),
        (
            "kv.migration_tokens_per_s",
            kv.migration_tokens_per_s as f64,
            "kv.migration_tokens_per_s",
            1.0,
        ),
        (
            "kv.prefill_tokens_per_s",
            kv.prefill_tokens_per_s as f64,
            "kv.prefill_tokens_per_s",
            1.0,
        ),
        (
            "kv.backlog_max",
            micros(kv.backlog_max),
            "kv.prefill_backlog_s",
            S,
        ),
        (
            "kv.transfer_max",
            micros(kv.transfer_max),
            "kv.transfer_s_max",
            S,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_bounds_and_the_defaults_are_within_them() {
        for core in [CoreConfig::default(), Config::default().core()] {
            assert_eq!(out_of_bounds(&core), None);
            let settings = of_scheduler(&core).into_iter();
            for (name, _, path, _) in settings.chain(of_rollout(&core)).chain(of_kv(&core)) {
                let bounds = key(path).and_then(|key| key.bounds);
                assert!(bounds.is_some(), "{name}: {path}");
            }
        }
    }

    #[test]
    fn values_out_of_range_are_reported_with_their_bounds() {
        let wrong = |change: fn(&mut CoreConfig)| {
            let mut core = CoreConfig::default();
            change(&mut core);
            out_of_bounds(&core).map(|(name, problem)| format!("{name} {problem}"))
        };
        for (told, wanted) in [
            (
                wrong(|core| core.tick = Span(0)),
                "tick is 0; give 1000 to 600000000",
            ),
            (
                wrong(|core| core.kv.transfer_max = Span::from_secs(301)),
                "kv.transfer_max is 301000000; give 1000000 to 300000000",
            ),
            (
                wrong(|core| core.candidates_max = 0),
                "candidates_max is 0; give 1 to 8192",
            ),
            (
                wrong(|core| core.attempts_max = 0),
                "attempts_max - 1 is -1; give 0 to 100",
            ),
            (
                wrong(|core| core.high_watermark_ppm = 800_000),
                "low_watermark_ppm is 900000; give at most high_watermark_ppm, which is 800000",
            ),
        ] {
            assert!(
                told.as_deref().unwrap_or_default().starts_with(wanted),
                "{told:?}"
            );
        }
    }
}
