//! treadle's own eviction policy: it compares the cost of keeping a cache while its program's tool
//! runs with the cost of getting it back.
//!
//! For each acting program the remaining time of its tool call is estimated from calls of the same
//! job and tool that had lasted as long: a hazard, where `ThunderAgent` (Appendix E.1) lets all
//! weights decay alike. The alternative is the cost of giving the cache up: the transfer to host
//! memory and back, to another worker, or recomputation on a worker whose other programs are slowed
//! down (`retain.rs`). Waiting programs are restored in order of arrival; among equal waits those
//! with most tokens left to generate go first, so that the last one of a batch starts early.
//!
//! The host only asks for cache actions if `kv.retention` is on. Otherwise a program stays placed
//! until memory overflows, and then the one is paused whose memory will be idle longest.
//!
//! The crate is built twice: as a component, and natively for the simulator.

mod config;
mod retain;

pub use config::{Config, Restore};

use treadle_plugin::{
    ActingColumns, ActiveColumns, CacheAction, EvictionPolicy, Phase, Policy, PolicyError,
    RetentionColumns, WaitingColumns,
};

/// Above the score of every acting program.
const REASONING: f64 = -1e18;
/// Waits are cut to this many turns.
const TURNS_MAX: u64 = 1 << 30;
/// Remaining tokens are cut to this, the range within one turn.
const REMAINING_MAX: f64 = (1_u64 << 22) as f64;

/// The policy. It is stateless apart from its configuration: the times of tools
/// is learnt by the host, for all policies.
#[derive(Debug, Clone, Default)]
pub struct ForesightEviction {
    /// What to do; see [`Config`].
    pub config: Config,
}

impl Policy for ForesightEviction {
    type Config = Config;

    const COLUMNS: &'static [&'static str] = &["price-ms", "remaining-tokens"];

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

/// Indices of the extra columns.
const PRICE_MS: usize = 0;
const REMAINING_TOKENS: usize = 1;

/// The error for a missing extra column, which is a mistake of the caller.
fn missing() -> PolicyError {
    PolicyError::invalid_input("an extra column is missing; pass those of COLUMNS")
}

impl EvictionPolicy for ForesightEviction {
    const FUNCTIONS: &'static [&'static str] = &["weigh", "pause-order", "restore-order", "retain"];

    /// A placement is kept until a decision about it.
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(vec![1.0; programs.len()])
    }

    /// The time for which a pause frees memory. The freed memory and the cost of restoring both
    /// grow with the context, so its length does not matter.
    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let price = programs.extra_column(PRICE_MS).ok_or_else(missing)?;
        let score = |row: usize| {
            if programs.phase[row] == Phase::Reasoning {
                return REASONING;
            }
            f64::from(price[row])
        };
        Ok((0..programs.len()).map(score).map(finite).collect())
    }

    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let remaining = programs
            .extra_column(REMAINING_TOKENS)
            .ok_or_else(missing)?;
        let score = |row: usize| {
            let turns = (programs.waited_ms[row] / self.config.turn_ms).min(TURNS_MAX);
            let to_come = f64::from(remaining[row]);
            let to_come = if to_come > 0.0 {
                to_come.min(REMAINING_MAX - 1.0)
            } else {
                0.0
            };
            let acts = match programs.phase[row] {
                Phase::Reasoning => 0.0,
                Phase::Acting => REASONING,
            };
            match self.config.restore {
                Restore::Waiting => acts + turns as f64 * REMAINING_MAX + to_come,
                Restore::Shortest => acts - programs.tokens[row] as f64,
            }
        };
        Ok((0..programs.len()).map(score).collect())
    }

    fn retain(&mut self, programs: &RetentionColumns<'_>) -> Result<Vec<CacheAction>, PolicyError> {
        let price_ms = programs.extra_column(PRICE_MS).ok_or_else(missing)?;
        Ok(retain::actions(&self.config, price_ms, programs))
    }
}

/// Replaces non-finite scores, which the host does not accept.
fn finite(score: f64) -> f64 {
    if score.is_finite() { score } else { f64::MAX }
}

treadle_plugin::eviction_policy!(ForesightEviction);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    fn order(scores: &[f64]) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..scores.len()).collect();
        rows.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        rows
    }

    #[test]
    fn whose_memory_is_idle_longest_is_paused_first() {
        let mut policy = ForesightEviction::default();
        let extra = [[9_000.0, 10_000.0, f32::INFINITY, 0.0], [-1.0; 4]];
        let programs = ActiveColumns {
            tokens: &[10, 10_000, 10_000, 10_000],
            phase: &[
                Phase::Acting,
                Phase::Acting,
                Phase::Acting,
                Phase::Reasoning,
            ],
            phase_ms: &[1; 4],
            steps: &[1; 4],
            extra: &extra.concat(),
        };
        let scores = policy.pause_order(&programs).unwrap();
        assert_eq!(order(&scores), [2, 1, 0, 3]);
    }

    #[test]
    fn who_waits_longest_comes_back_first_and_within_a_turn_the_longest() {
        let mut policy = ForesightEviction::default();
        let extra = [[0.0; 5], [-1.0, 900.0, 9_000.0, 5.0, 9e9]];
        let programs = WaitingColumns {
            tokens: &[10; 5],
            phase: &[
                Phase::Reasoning,
                Phase::Reasoning,
                Phase::Reasoning,
                Phase::Reasoning,
                Phase::Acting,
            ],
            waited_ms: &[5_100, 4_100, 4_900, 9_000, 60_000],
            steps: &[1; 5],
            extra: &extra.concat(),
        };
        let scores = policy.restore_order(&programs).unwrap();
        assert_eq!(order(&scores), [3, 0, 2, 1, 4]);
    }

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}").by_row().eviction::<ForesightEviction>();
        Harness::new(r#"{"restore": "shortest"}"#)
            .by_row()
            .eviction::<ForesightEviction>();
    }
}
