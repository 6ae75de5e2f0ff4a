//! Scores: the program with the highest goes first.
//!
//! A rule such as "reasoning first, then the shorter context" is a comparison, a score is one
//! number. All scores here are whole numbers between -2^53 and 2^53, which a double holds exactly,
//! so that no two rows that the rule distinguishes get the same score. The paper's own formula 1/c
//! + I orders the same way but has no value for c = 0 and confuses long contexts.

/// Waiting counts up to 2^29 ms (6.2 days); longer waits tie.
pub(crate) const WAITED_MS_MAX: u64 = (1 << 29) - 1;
/// Contexts count up to 2^24 tokens beside a wait; longer ones tie.
pub(crate) const TOKENS_MAX: u64 = (1 << 24) - 1;
/// Contexts count only up to 2^52 tokens; longer ones tie.
pub(crate) const TOKENS_ALONE_MAX: u64 = (1 << 52) - 1;

const HALF: f64 = (1_u64 << 52) as f64;
const WHOLE: f64 = (1_u64 << 53) as f64;

/// The favoured phase first, then the shorter context (eq. 10 and 11).
pub(crate) fn shortest(favoured: bool, tokens: u64) -> f64 {
    // Compared as doubles, which guests do several at a time; those beyond the bound
    // may be rounded, those within are not.
    let (context, longest) = (tokens as f64, TOKENS_ALONE_MAX as f64);
    let shortness = if context < longest {
        -context
    } else {
        -longest
    };
    if favoured {
        HALF + shortness
    } else {
        shortness
    }
}

/// Reasoning first, then the longest waiting, then the shorter context.
pub(crate) fn waiting(reasoning: bool, waited_ms: u64, tokens: u64) -> f64 {
    if reasoning {
        longest(waited_ms, tokens)
    } else {
        longest(waited_ms, tokens) - WHOLE
    }
}

/// Programs that have waited `ageing_ms` first, among them the longest waiting, then the shorter
/// context; the others after them as in [`shortest`].
pub(crate) fn ageing(ageing_ms: u64, reasoning: bool, waited_ms: u64, tokens: u64) -> f64 {
    if waited_ms >= ageing_ms {
        longest(waited_ms, tokens)
    } else {
        // From -2^53 to -1: below every aged row.
        shortest(reasoning, tokens) - HALF - 1.0
    }
}

/// From 0 to 2^53 exclusive.
fn longest(waited_ms: u64, tokens: u64) -> f64 {
    let waited = waited_ms.min(WAITED_MS_MAX) << 24;
    (waited | (TOKENS_MAX - tokens.min(TOKENS_MAX))) as f64
}

#[cfg(test)]
mod tests {
    use std::cmp::{Ordering, Reverse};

    use proptest::prelude::*;
    use treadle_plugin::{ActiveColumns, EvictionPolicy, Phase, WaitingColumns};

    use super::*;
    use crate::{Config, Restore, ThunderAgentEviction};

    #[derive(Debug, Clone, Copy)]
    struct Row {
        favoured: bool,
        ms: u64,
        tokens: u64,
    }

    fn rows(tokens_max: u64) -> impl Strategy<Value = Vec<Row>> {
        // Small ranges beside the whole range, so that ties and neighbours happen.
        let ms = prop_oneof![0..4_u64, 0..=WAITED_MS_MAX];
        let tokens = prop_oneof![0..4_u64, tokens_max - 3..=tokens_max, 0..=tokens_max];
        let row = (any::<bool>(), ms, tokens).prop_map(|(favoured, ms, tokens)| Row {
            favoured,
            ms,
            tokens,
        });
        prop::collection::vec(row, 0..40)
    }

    /// `rule` decides which of two rows goes first: the greater one.
    fn agrees(rows: &[Row], scores: &[f64], rule: impl Fn(&Row, &Row) -> Ordering) {
        assert_eq!(rows.len(), scores.len());
        assert!(scores.iter().all(|score| score.is_finite()));
        for (i, left) in rows.iter().enumerate() {
            for (j, right) in rows.iter().enumerate() {
                assert_eq!(
                    scores[i].total_cmp(&scores[j]),
                    rule(left, right),
                    "{left:?} {right:?}"
                );
            }
        }
    }

    fn phases(rows: &[Row], favoured: Phase, other: Phase) -> Vec<Phase> {
        let phase = |row: &Row| if row.favoured { favoured } else { other };
        rows.iter().map(phase).collect()
    }

    fn restore(restore: Restore, rows: &[Row]) -> Vec<f64> {
        let mut policy = ThunderAgentEviction {
            config: Config {
                restore,
                ..Config::default()
            },
        };
        let programs = WaitingColumns {
            tokens: &rows.iter().map(|row| row.tokens).collect::<Vec<_>>(),
            phase: &phases(rows, Phase::Reasoning, Phase::Acting),
            waited_ms: &rows.iter().map(|row| row.ms).collect::<Vec<_>>(),
            steps: &vec![1; rows.len()],
            extra: &[],
        };
        policy.restore_order(&programs).unwrap()
    }

    fn by_shortest(left: &Row, right: &Row) -> Ordering {
        let key = |row: &Row| (row.favoured, Reverse(row.tokens));
        key(left).cmp(&key(right))
    }

    proptest! {
        #[test]
        fn pausing_takes_acting_then_shortest(rows in rows(TOKENS_ALONE_MAX)) {
            let programs = ActiveColumns {
                tokens: &rows.iter().map(|row| row.tokens).collect::<Vec<_>>(),
                phase: &phases(&rows, Phase::Acting, Phase::Reasoning),
                phase_ms: &rows.iter().map(|row| row.ms).collect::<Vec<_>>(),
                steps: &vec![1; rows.len()],
                extra: &[],
            };
            let scores = ThunderAgentEviction::default().pause_order(&programs).unwrap();
            agrees(&rows, &scores, by_shortest);
        }

        #[test]
        fn shortest_restores_reasoning_then_shortest(rows in rows(TOKENS_ALONE_MAX)) {
            agrees(&rows, &restore(Restore::Shortest, &rows), by_shortest);
        }

        #[test]
        fn waiting_restores_reasoning_then_longest_waiting(rows in rows(TOKENS_MAX)) {
            agrees(&rows, &restore(Restore::Waiting, &rows), |left, right| {
                let key = |row: &Row| (row.favoured, row.ms, Reverse(row.tokens));
                key(left).cmp(&key(right))
            });
        }

        #[test]
        fn ageing_restores_the_aged_before_all_others(
            rows in rows(TOKENS_MAX),
            ageing_ms in prop_oneof![0..5_u64, 0..=WAITED_MS_MAX],
        ) {
            let scores = restore(Restore::Ageing { ageing_ms }, &rows);
            agrees(&rows, &scores, |left, right| {
                match (left.ms >= ageing_ms, right.ms >= ageing_ms) {
                    (true, true) => {
                        let key = |row: &Row| (row.ms, Reverse(row.tokens));
                        key(left).cmp(&key(right))
                    }
                    (false, false) => by_shortest(left, right),
                    (left_aged, right_aged) => left_aged.cmp(&right_aged),
                }
            });
        }

        #[test]
        fn short_contexts_order_as_the_papers_formula(
            favoured in any::<[bool; 2]>(), tokens in any::<[u16; 2]>(),
        ) {
            let [paper_left, paper_right] = [0, 1].map(|i| {
                1.0 / (f64::from(tokens[i]) + 2.0) + f64::from(u8::from(favoured[i]))
            });
            let [left, right] = [0, 1].map(|i| shortest(favoured[i], u64::from(tokens[i]) + 2));
            prop_assert_eq!(left.total_cmp(&right), paper_left.total_cmp(&paper_right));
        }

        #[test]
        fn values_out_of_range_stay_finite(
            reasoning in any::<bool>(), waited_ms in any::<u64>(), tokens in any::<u64>(),
        ) {
            for score in [
                shortest(reasoning, tokens),
                waiting(reasoning, waited_ms, tokens),
                ageing(1_000, reasoning, waited_ms, tokens),
            ] {
                prop_assert!(score.abs() <= WHOLE);
            }
        }
    }
}
