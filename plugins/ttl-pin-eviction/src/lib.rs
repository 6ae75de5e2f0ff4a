//! A baseline after Continuum, which pins the cache of a program for a time to live
//! into its tool call.
//!
//! While a program is pinned its tokens count in full; then they count as zero, and the one that
//! has been without a pin for longest is paused first. Waiting programs are restored first come,
//! first served.
//!
//! The time to live is the same for all calls, or follows from the costs of a pin. Losing its
//! placement costs a program its prefill and the wait for another one; keeping it costs the time in
//! which its memory is idle. Keeping it until the tool ends saves the first with certainty and
//! costs the expected rest of the call; keeping it until the earliest tenth of such calls has ended
//! saves it in one case out of ten, and costs at most that long. The pin lasts while either is
//! worthwhile. A cache may be pinned again in a call that has outlasted most others, if the few
//! that last as long end soon.
//! as long end soon.

mod config;

pub use config::{Keys, Kind};

use config::Ttl;
use treadle_plugin::{
    ActingColumns, ActiveColumns, EvictionPolicy, Phase, Policy, PolicyError, WaitingColumns,
};

/// Times are cut to 2^50 ms.
const MS_MAX: u64 = 1 << 50;
/// Share of such calls that ends within `soonest-ms`.
const SOONEST: f64 = 0.1;

/// The policy. It is stateless apart from its configuration.
#[derive(Debug, Clone)]
pub struct TtlPinEviction {
    ttl: Ttl,
}

impl Policy for TtlPinEviction {
    type Config = Keys;

    const COLUMNS: &'static [&'static str] = &["idle-ms", "soonest-ms", "prefill-ms"];

    fn with_config(keys: Keys) -> Result<Self, PolicyError> {
        let ttl = Ttl::of(&keys)?;
        Ok(Self { ttl })
    }
}

impl TtlPinEviction {
    /// Whether each acting program is pinned.
    fn pinned<'a>(&self, phase_ms: &'a [u64], extra: &'a [f32]) -> impl Fn(usize) -> bool + 'a {
        let (ttl, rows) = (self.ttl, phase_ms.len());
        move |row| match ttl {
            Ttl::Fixed { ttl_ms } => phase_ms[row] < ttl_ms,
            Ttl::Learnt { queue_ms } => {
                let of = |column: usize| f64::from(extra[column * rows + row]);
                is_worth_holding(queue_ms, of(0), of(1), of(2))
            }
        }
    }
}

/// Whether keeping a cache is expected to save more than it costs.
fn is_worth_holding(queue_ms: f64, idle_ms: f64, soonest_ms: f64, prefill_ms: f64) -> bool {
    let saved_ms = prefill_ms + queue_ms;
    idle_ms < saved_ms || soonest_ms < SOONEST * saved_ms
}

impl EvictionPolicy for TtlPinEviction {
    fn weigh(&mut self, programs: &ActingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let pinned = self.pinned(programs.phase_ms, programs.extra);
        let weight = |row| if pinned(row) { 1.0 } else { 0.0 };
        Ok((0..programs.len()).map(weight).collect())
    }

    /// Those without a pin, then pinned ones, the longest acting first; then
    /// reasoning ones, the latest first.
    fn pause_order(&mut self, programs: &ActiveColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        let pinned = self.pinned(programs.phase_ms, programs.extra);
        let score = |row: usize| {
            let ms = programs.phase_ms[row].min(MS_MAX);
            let score = match (programs.phase[row], pinned(row)) {
                (Phase::Reasoning, _) => MS_MAX - ms,
                (_, true) => 2 * MS_MAX + ms,
                (_, false) => 4 * MS_MAX + ms,
            };
            score as f64
        };
        Ok((0..programs.len()).map(score).collect())
    }

    fn restore_order(&mut self, programs: &WaitingColumns<'_>) -> Result<Vec<f64>, PolicyError> {
        Ok(programs.waited_ms.iter().map(|&ms| ms as f64).collect())
    }
}

treadle_plugin::eviction_policy!(TtlPinEviction);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Harness;

    use super::*;

    const LEARNT: &str = r#"{"ttl": "learnt", "queue_s": 1}"#;
    const ACTS: Phase = Phase::Acting;
    const REASONS: Phase = Phase::Reasoning;

    #[test]
    fn a_pin_ends_with_its_time_to_live() {
        let mut policy = TtlPinEviction::configure(r#"{"ttl_s": 3}"#).unwrap();
        let programs = ActingColumns {
            tokens: &[10; 4],
            phase_ms: &[0, 2_999, 3_000, u64::MAX],
            extra: &[],
        };
        assert_eq!(policy.weigh(&programs).unwrap(), [1.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_learnt_pin_lasts_while_it_is_worth_its_cost() {
        let mut policy = TtlPinEviction::configure(LEARNT).unwrap();
        // A short call; a long one that costs little to compute again; one of a kind that
        // sometimes ends at once; a long one that costs much.
        let idle_ms = [500.0, 60_000.0, 60_000.0, 60_000.0];
        let soonest_ms = [100.0, 20_000.0, 100.0, 20_000.0];
        let prefill_ms = [100.0, 100.0, 100.0, 70_000.0];
        let programs = ActingColumns {
            tokens: &[10; 4],
            phase_ms: &[1; 4],
            extra: &[idle_ms, soonest_ms, prefill_ms].concat(),
        };
        assert_eq!(policy.weigh(&programs).unwrap(), [1.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn who_lost_the_pin_goes_first_then_the_pinned_then_the_reasoning() {
        let mut policy = TtlPinEviction::configure(LEARNT).unwrap();
        let idle_ms = [0.0, 0.0, 60_000.0, 60_000.0, 0.0, f32::INFINITY];
        let programs = ActiveColumns {
            tokens: &[10; 6],
            phase: &[ACTS, ACTS, ACTS, ACTS, REASONS, REASONS],
            phase_ms: &[9_000, 50, 10, u64::MAX, 7, 8],
            steps: &[1; 6],
            extra: &[idle_ms, [30_000.0; 6], [0.0; 6]].concat(),
        };
        let scores = policy.pause_order(&programs).unwrap();
        let mut order: Vec<usize> = (0..6).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        assert_eq!(order, [3, 2, 0, 1, 4, 5]);
    }

    #[test]
    fn every_answer_is_valid() {
        for config in ["{}", r#"{"ttl_s": 0.25}"#, LEARNT] {
            Harness::new(config).by_row().eviction::<TtlPinEviction>();
        }
    }
}
