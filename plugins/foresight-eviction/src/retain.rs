//! Chooses the action for each acting program's cache.
//!
//! A cache of c tokens that is kept for a time t costs c x t of memory that others wait for. It
//! need not be kept to the end: t is the expected cost of waiting for the call's end, with the best
//! time to give the cache up (`price-ms`, the inverse of Gittins' index). Every alternative has a
//! cost in the same unit:
//!
//! - transfer out and back over a link: c for twice the transfer time, as the cache occupies the
//!   worker's memory during both;
//! - move to another worker, if there is no host memory and nobody waits: it occupies memory there,
//!   which nobody else needs;
//! - drop: it is recomputed in c / r, at r tokens per second, during which all of the worker's
//!   programs are slowed down: the cost is the worker's memory C for c / r. So dropping is
//!   worthwhile if t exceeds C / r, whatever c is.
//!
//! The longest expected call goes first, until enough memory is freed.

use crate::Config;
use treadle_plugin::{CacheAction, RetentionColumns};

/// Cache actions for all rows.
pub(crate) fn actions(
    config: &Config,
    price_ms: &[f32],
    programs: &RetentionColumns<'_>,
) -> Vec<CacheAction> {
    let mut actions = vec![CacheAction::Keep; programs.len()];
    let mut lacking = lacking_tokens(programs.free_tokens, programs.wanted_tokens);
    let price_ms: Vec<f64> = price_ms.iter().map(|ms| f64::from(*ms)).collect();
    let mut rows: Vec<usize> = (0..programs.len()).collect();
    rows.sort_by(|&a, &b| price_ms[b].total_cmp(&price_ms[a]).then(a.cmp(&b)));
    let way = Way {
        config,
        capacity_tokens: programs.capacity_tokens,
        programs_wait: programs.wanted_tokens > 0,
    };
    for row in rows {
        if lacking == 0 {
            break;
        }
        actions[row] = way.of(programs, row, price_ms[row]);
        if actions[row] != CacheAction::Keep {
            lacking = lacking.saturating_sub(programs.tokens[row]);
        }
    }
    actions
}

/// Tokens that should become free: what waits and does not fit, or what exceeds the watermark.
fn lacking_tokens(free_tokens: i64, wanted_tokens: u64) -> u64 {
    let free = free_tokens.max(0).unsigned_abs();
    let over = free_tokens.min(0).unsigned_abs();
    wanted_tokens.saturating_sub(free).max(over)
}

struct Way<'a> {
    config: &'a Config,
    capacity_tokens: u64,
    programs_wait: bool,
}

impl Way<'_> {
    fn of(&self, programs: &RetentionColumns<'_>, row: usize, idle: f64) -> CacheAction {
        let prefill = programs.prefill_ms[row];
        let pays = |way_ms: u64| {
            let quicker = way_ms != u64::MAX && way_ms < prefill;
            quicker && idle > self.config.hold * 2.0 * way_ms as f64
        };
        if pays(programs.back_ms[row]) {
            return CacheAction::Offload;
        }
        // On another worker the cache would occupy memory during the call as well, which is
        // acceptable only if there is room that no program waits for.
        if !self.programs_wait && pays(programs.moved_ms[row]) {
            return CacheAction::Migrate;
        }
        let has_way = programs.back_ms[row] < prefill;
        let tokens = programs.tokens[row].max(1) as f64;
        let whole_ms = prefill as f64 * (self.capacity_tokens as f64 / tokens);
        if !has_way && self.programs_wait && prefill > 0 && idle > self.config.drop * whole_ms {
            return CacheAction::Drop;
        }
        CacheAction::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: u64 = u64::MAX;

    fn columns<'a>(
        idle_ms: &'a [u64],
        back_ms: &'a [u64],
        moved_ms: &'a [u64],
    ) -> RetentionColumns<'a> {
        RetentionColumns {
            tokens: &[1_000; 3],
            phase_ms: &[0; 3],
            idle_ms,
            soonest_ms: &[0; 3],
            back_ms,
            moved_ms,
            prefill_ms: &[1_000; 3],
            steps: &[1; 3],
            ..RetentionColumns::default()
        }
    }

    /// With the expected rest of each call as its price.
    fn of(
        free_tokens: i64,
        wanted_tokens: u64,
        columns: &RetentionColumns<'_>,
    ) -> Vec<CacheAction> {
        let price_ms: Vec<f32> = columns.idle_ms.iter().map(|ms| *ms as f32).collect();
        priced(&price_ms, free_tokens, wanted_tokens, columns)
    }

    fn priced(
        price_ms: &[f32],
        free_tokens: i64,
        wanted_tokens: u64,
        columns: &RetentionColumns<'_>,
    ) -> Vec<CacheAction> {
        let columns = RetentionColumns {
            capacity_tokens: 10_000,
            free_tokens,
            wanted_tokens,
            ..*columns
        };
        actions(&Config::default(), price_ms, &columns)
    }

    #[test]
    fn nothing_goes_while_there_is_room() {
        let programs = columns(&[60_000; 3], &[10; 3], &[NEVER; 3]);
        assert_eq!(of(5_000, 0, &programs), [CacheAction::Keep; 3]);
        assert_eq!(of(5_000, 5_000, &programs), [CacheAction::Keep; 3]);
    }

    #[test]
    fn the_longest_calls_go_first_and_no_more_than_is_wanted() {
        let programs = columns(&[5_000, 60_000, 15], &[10; 3], &[NEVER; 3]);
        assert_eq!(
            of(0, 800, &programs),
            [CacheAction::Keep, CacheAction::Offload, CacheAction::Keep]
        );
        // A call that is about to end is not worth a transfer.
        let two = [
            CacheAction::Offload,
            CacheAction::Offload,
            CacheAction::Keep,
        ];
        assert_eq!(of(0, 9_000, &programs), two);
    }

    #[test]
    fn without_a_way_out_a_call_must_outlast_the_memory() {
        // 10,000 tokens take 10 s to compute.
        let programs = columns(&[7_000, 9_000, 5_000], &[NEVER; 3], &[NEVER; 3]);
        assert_eq!(
            of(0, 9_000, &programs),
            [CacheAction::Keep, CacheAction::Drop, CacheAction::Keep]
        );
        assert_eq!(
            of(-9_000, 0, &programs),
            [CacheAction::Keep; 3],
            "nobody waits"
        );
    }

    #[test]
    fn what_waiting_costs_counts_and_not_how_long_the_few_last() {
        let price = [1_000.0, 9_000.0, 7_000.0];
        let programs = columns(&[60_000, 20_000, 90_000], &[NEVER; 3], &[NEVER; 3]);
        // Beyond 0.8 times the 10 s of the whole memory.
        let actions = priced(&price, 0, 9_000, &programs);
        assert_eq!(
            actions,
            [CacheAction::Keep, CacheAction::Drop, CacheAction::Keep]
        );
    }

    #[test]
    fn without_host_memory_who_is_in_the_way_of_nobody_moves() {
        let programs = columns(&[7_000; 3], &[10, NEVER, NEVER], &[5, 20, NEVER]);
        let actions = of(-9_000, 0, &programs);
        assert_eq!(
            actions,
            [
                CacheAction::Offload,
                CacheAction::Migrate,
                CacheAction::Keep
            ]
        );
        assert_eq!(
            of(-9_000, 1, &programs)[1],
            CacheAction::Keep,
            "programs wait"
        );
    }

    #[test]
    fn a_link_that_is_slower_than_computing_is_not_used() {
        let programs = columns(&[60_000; 3], &[1_000; 3], &[NEVER; 3]);
        assert_eq!(of(0, 9_000, &programs), [CacheAction::Drop; 3]);
    }
}
