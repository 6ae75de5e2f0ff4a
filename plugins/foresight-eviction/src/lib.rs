//! treadle's own: what a cache costs while its program's tool runs, against what it
//! costs to have it back.
//!
//! For each acting program the rest of its tool call is expected from calls of the
//! same job and tool that had lasted as long: a hazard, where `ThunderAgent` (Appendix
//! E.1) lets every weight decay alike. Against that stands the price of parting with
//! the cache: the way to host memory and back, to another worker, or computing it
//! again on a worker whose other programs then wait (`retain.rs`). Waiting programs
//! come back in the order in which they came; within one turn those with most to
//! generate yet go first, so that the last one of a batch starts early.
//!
//! The host asks for cache actions where `kv.retention` is on. Elsewhere a program stays placed
//! until memory overflows, and then the one goes whose memory is idle longest for what it costs to
//! come back.
//!
//! The crate is built twice: as a component, and natively for the simulator.

mod config;
mod retain;

pub use config::{Config, Named, Restore};

use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, Fate, Policy, PolicyError, RetentionColumns,
    RetentionPolicy, WaitingColumns,
};

/// Above any score of a program that acts.
const REASONING: f64 = -1e18;
/// Waits count up to this many turns.
const TURNS_MAX: u64 = 1 << 30;
/// Tokens to come count up to this; it is a turn's whole range.
const REMAINING_MAX: f64 = (1_u64 << 22) as f64;

/// The policy. It keeps nothing between calls but its configuration: what tools take
/// is learnt by the host, for all policies.
#[derive(Debug, Clone, Default)]
pub struct ForesightEviction {
    /// What to do; see [`Config`].
    pub config: Config,
}

impl Policy for ForesightEviction {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        let config = Config::parse(json)?;
        Ok(Self { config })
    }
}

/// One of the extra columns, if the configuration names it.
fn column(extra: &[f32], rows: usize, at: Option<usize>) -> Option<&[f32]> {
    let at = at?;
    extra.get(at * rows..(at + 1) * rows)
}

impl EvictionPolicy for ForesightEviction {
    /// A placement is held until something is decided about it.
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.config.extra_columns)?;
        Ok(vec![1.0; programs.len()])
    }

    /// The idle time that a pause frees memory for, to each unit of what coming back
    /// costs; without the columns the shortest context first, as in eq. 11 of
    /// `ThunderAgent`.
    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.config.extra_columns)?;
        let rows = programs.len();
        let of = |at| column(programs.extra, rows, at);
        let named = self.config.named;
        let idle = of(named.price_ms).or_else(|| of(named.idle_ms));
        let back = of(named.back_ms);
        let prefill = of(named.prefill_ms);
        let score = |row: usize| {
            if programs.acting[row] == 0 {
                return REASONING;
            }
            let tokens = programs.tokens[row] as f64;
            let Some(idle) = idle else {
                return -tokens;
            };
            let there_and_back = back.map_or(f64::INFINITY, |ms| 2.0 * f64::from(ms[row]));
            let again = prefill.map_or(tokens, |ms| f64::from(ms[row]));
            f64::from(idle[row]) / (there_and_back.min(again) + 1.0)
        };
        Ok((0..rows).map(score).map(finite).collect())
    }

    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        programs.check(self.config.extra_columns)?;
        let rows = programs.len();
        let remaining = column(programs.extra, rows, self.config.named.remaining_tokens);
        let score = |row: usize| {
            let turns = (programs.waited_ms[row] / self.config.turn_ms).min(TURNS_MAX);
            let to_come = remaining.map_or(0.0, |tokens| f64::from(tokens[row]));
            let to_come = if to_come > 0.0 {
                to_come.min(REMAINING_MAX - 1.0)
            } else {
                0.0
            };
            let acts = if programs.reasoning[row] == 0 {
                REASONING
            } else {
                0.0
            };
            match self.config.restore {
                Restore::Waiting => acts + turns as f64 * REMAINING_MAX + to_come,
                Restore::Shortest => acts - programs.tokens[row] as f64,
            }
        };
        Ok((0..rows).map(score).collect())
    }
}

/// Without a price nothing is dearer than any other; scores must be finite.
fn finite(score: f64) -> f64 {
    if score.is_finite() { score } else { f64::MAX }
}

impl RetentionPolicy for ForesightEviction {
    fn retain(
        &mut self,
        capacity_tokens: u64,
        free_tokens: i64,
        wanted_tokens: u64,
        programs: &RetentionColumns<'_>,
    ) -> Result<Vec<Fate>, PolicyError> {
        programs.check(self.config.extra_columns)?;
        let config = &self.config;
        Ok(retain::fates(
            config,
            capacity_tokens,
            free_tokens,
            wanted_tokens,
            programs,
        ))
    }
}

treadle_plugin::retention_policy!(ForesightEviction);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    const NAMED: &str = r#"{"extra": ["idle-ms", "back-ms", "prefill-ms", "remaining-tokens"]}"#;

    fn order(scores: &[f64]) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..scores.len()).collect();
        rows.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        rows
    }

    #[test]
    fn who_is_idle_longest_for_the_price_of_return_is_paused_first() {
        let mut policy = ForesightEviction::configure(NAMED).unwrap();
        let never = f32::INFINITY;
        let extra = [
            [9_000.0, 9_000.0, 60_000.0, 0.0],
            [never, 10.0, never, never],
            [1_000.0, 1_000.0, 1_000.0, 0.0],
            [-1.0; 4],
        ];
        let programs = ActiveColumns {
            tokens: &[10_000; 4],
            acting: &[1, 1, 1, 0],
            phase_ms: &[1; 4],
            steps: &[1; 4],
            extra: &extra.concat(),
        };
        let scores = policy.pause_order(&programs).unwrap();
        assert_eq!(order(&scores), [1, 2, 0, 3]);
    }

    #[test]
    fn who_waits_longest_comes_back_first_and_within_a_turn_the_longest() {
        let mut policy = ForesightEviction::configure(NAMED).unwrap();
        let extra = [
            [0.0; 5],
            [0.0; 5],
            [0.0; 5],
            [-1.0, 900.0, 9_000.0, 5.0, 9e9],
        ];
        let programs = WaitingColumns {
            tokens: &[10; 5],
            reasoning: &[1, 1, 1, 1, 0],
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
        Harness::new(NAMED)
            .extra_columns(4)
            .by_row()
            .eviction::<ForesightEviction>();
        Harness::new(r#"{"restore": "shortest"}"#)
            .by_row()
            .eviction::<ForesightEviction>();
        Harness::new("{}").retention::<ForesightEviction>();
    }
}
