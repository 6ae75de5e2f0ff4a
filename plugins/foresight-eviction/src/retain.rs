//! What becomes of each acting program's cache.
//!
//! A cache of c tokens that stays for a time t costs c x t of memory that others wait for. It need
//! not stay to the end: t is the price of waiting for each end that is reached, with the best time
//! to give the cache up (`price-ms`, the inverse of Gittins' index), or a call's expected rest
//! where that column is not named. Every way to part with it has a price in the same unit:
//!
//! - out and back over a link: c for twice the time of the way, as long as it is at
//!   the worker on both;
//! - to another worker, where there is no host memory and nobody waits: it is held there
//!   then, in room that nobody else makes use of;
//! - dropped: it is computed again in c / r, r tokens a second, and meanwhile the whole
//!   worker's programs go that much slower: the price is its memory C for c / r. So it
//!   is worth while when t exceeds C / r, whatever c is.
//!
//! The longest expected call goes first, and no more go than what is wanted.

use crate::Config;
use treadle_plugin::{Fate, RetentionColumns};

/// Cache actions of all rows.
pub(crate) fn fates(
    config: &Config,
    capacity_tokens: u64,
    free_tokens: i64,
    wanted_tokens: u64,
    programs: &RetentionColumns<'_>,
) -> Vec<Fate> {
    let mut fates = vec![Fate::Keep; programs.len()];
    let mut lacking = lacking_tokens(free_tokens, wanted_tokens);
    let idle_ms: Vec<f64> = idle_ms(config, programs);
    let mut rows: Vec<usize> = (0..programs.len()).collect();
    rows.sort_by(|&a, &b| idle_ms[b].total_cmp(&idle_ms[a]).then(a.cmp(&b)));
    for row in rows {
        if lacking == 0 {
            break;
        }
        let way = Way {
            config,
            capacity_tokens,
            somebody_waits: wanted_tokens > 0,
        };
        fates[row] = way.of(programs, row, idle_ms[row]);
        if fates[row] != Fate::Keep {
            lacking = lacking.saturating_sub(programs.tokens[row]);
        }
    }
    fates
}

/// What each call leaves its cache idle for.
fn idle_ms(config: &Config, programs: &RetentionColumns<'_>) -> Vec<f64> {
    let rows = programs.len();
    let price = crate::column(programs.extra, rows, config.named.price_ms);
    match price {
        Some(price) => price.iter().map(|ms| f64::from(*ms)).collect(),
        None => programs.idle_ms.iter().map(|ms| *ms as f64).collect(),
    }
}

/// Tokens that ought to become free: what waits and does not fit, or what is held
/// above the watermark.
fn lacking_tokens(free_tokens: i64, wanted_tokens: u64) -> u64 {
    let free = free_tokens.max(0).unsigned_abs();
    let over = free_tokens.min(0).unsigned_abs();
    wanted_tokens.saturating_sub(free).max(over)
}

struct Way<'a> {
    config: &'a Config,
    capacity_tokens: u64,
    somebody_waits: bool,
}

impl Way<'_> {
    fn of(&self, programs: &RetentionColumns<'_>, row: usize, idle: f64) -> Fate {
        let prefill = programs.prefill_ms[row];
        let pays = |way_ms: u64| {
            let quicker = way_ms != u64::MAX && way_ms < prefill;
            quicker && idle > self.config.hold * 2.0 * way_ms as f64
        };
        if pays(programs.back_ms[row]) {
            return Fate::Offload;
        }
        // At another worker the cache would be held through the call as well: that is better than
        // nothing where there is room that no program waits for.
        if !self.somebody_waits && pays(programs.moved_ms[row]) {
            return Fate::Migrate;
        }
        let has_way = programs.back_ms[row] < prefill;
        let tokens = programs.tokens[row].max(1) as f64;
        let whole_ms = prefill as f64 * (self.capacity_tokens as f64 / tokens);
        if !has_way && self.somebody_waits && prefill > 0 && idle > self.config.drop * whole_ms {
            return Fate::Drop;
        }
        Fate::Keep
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
            extra: &[],
        }
    }

    fn of(free: i64, wanted: u64, columns: &RetentionColumns<'_>) -> Vec<Fate> {
        fates(&Config::default(), 10_000, free, wanted, columns)
    }

    #[test]
    fn nothing_goes_while_there_is_room() {
        let programs = columns(&[60_000; 3], &[10; 3], &[NEVER; 3]);
        assert_eq!(of(5_000, 0, &programs), [Fate::Keep; 3]);
        assert_eq!(of(5_000, 5_000, &programs), [Fate::Keep; 3]);
    }

    #[test]
    fn the_longest_calls_go_first_and_no_more_than_is_wanted() {
        let programs = columns(&[5_000, 60_000, 15], &[10; 3], &[NEVER; 3]);
        assert_eq!(
            of(0, 800, &programs),
            [Fate::Keep, Fate::Offload, Fate::Keep]
        );
        // A call that is about to end is not worth the way.
        let two = [Fate::Offload, Fate::Offload, Fate::Keep];
        assert_eq!(of(0, 9_000, &programs), two);
    }

    #[test]
    fn without_a_way_out_a_call_must_outlast_the_memory() {
        // 10,000 tokens take 10 s to compute.
        let programs = columns(&[12_000, 13_000, 5_000], &[NEVER; 3], &[NEVER; 3]);
        assert_eq!(
            of(0, 9_000, &programs),
            [Fate::Keep, Fate::Drop, Fate::Keep]
        );
        assert_eq!(of(-9_000, 0, &programs), [Fate::Keep; 3], "nobody waits");
    }

    #[test]
    fn what_waiting_costs_counts_and_not_how_long_the_few_last() {
        let config = Config::parse(r#"{"extra": ["price-ms"]}"#).unwrap();
        let price = [1_000.0, 9_000.0, 7_000.0];
        let programs = RetentionColumns {
            extra: &price,
            ..columns(&[60_000, 20_000, 90_000], &[NEVER; 3], &[NEVER; 3])
        };
        // Beyond 0.8 times the 10 s of the whole memory.
        let fates = fates(&config, 10_000, 0, 9_000, &programs);
        assert_eq!(fates, [Fate::Keep, Fate::Drop, Fate::Keep]);
    }

    #[test]
    fn without_host_memory_who_is_in_the_way_of_nobody_moves() {
        let programs = columns(&[9_000; 3], &[10, NEVER, NEVER], &[5, 20, NEVER]);
        let fates = of(-9_000, 0, &programs);
        assert_eq!(fates, [Fate::Offload, Fate::Migrate, Fate::Keep]);
        assert_eq!(of(-9_000, 1, &programs)[1], Fate::Keep, "somebody waits");
    }

    #[test]
    fn a_link_that_is_slower_than_computing_is_not_used() {
        let programs = columns(&[60_000; 3], &[1_000; 3], &[NEVER; 3]);
        assert_eq!(of(0, 9_000, &programs), [Fate::Drop; 3]);
    }
}
