//! The redundancy budget (DARTS appendix B): how many members all groups sample together.
//!
//! The paper maximises `rho ln M - lambda (k M + c)`, so `M = rho / (lambda k)`, and clips that to
//! one to two times the members that are trained. Its optimum does not grow with the batch, so
//! `lambda` has to be tuned for each batch size. Here a ratio takes its place: the budget is that
//! ratio times what is trained, as long as `rho` and `k` are what they were at first.

/// Keeps quotients that are whole numbers from being rounded down.
const ROUNDING: f64 = 1e-9;

/// What the budget depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Standard deviation of lengths by their mean, over all prompts.
    pub rho: f64,
    /// The time that one more member costs. Only its ratio to `k_first` matters.
    pub k: f64,
    /// The mean of `rho` over the first batches.
    pub rho_first: f64,
    /// The mean of `k` over the first batches.
    pub k_first: f64,
}

/// How many members are sampled, from `trained` to `most`: `ratio` times `trained`, more when
/// lengths spread more than at first, less when members cost more than at first. Without a spread
/// it is the ratio.
pub fn budget(trained: u64, most: u64, ratio: f64, spread: Option<Spread>) -> u64 {
    let change = spread.map_or(1.0, |now| (now.rho / now.rho_first) * (now.k_first / now.k));
    let change = if change.is_finite() { change } else { 1.0 };
    clip(ratio * trained as f64 * change, trained, most)
}

/// The paper's budget (equations 8 and 9).
pub fn budget_by_lambda(trained: u64, rho: f64, lambda: f64, k: f64) -> u64 {
    clip(rho / (lambda * k), trained, trained.saturating_mul(2))
}

/// The paper's coefficient that gives the same budget as a ratio.
pub fn lambda_of(ratio: f64, trained: u64, rho_first: f64, k_first: f64) -> f64 {
    rho_first / (ratio * k_first * trained as f64)
}

fn clip(members: f64, trained: u64, most: u64) -> u64 {
    // The conversion saturates.
    let members = (members + ROUNDING).floor().max(0.0) as u64;
    members.min(most).max(trained)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_papers_budget_is_clipped_to_one_to_two_times_what_is_trained() {
        assert_eq!(budget_by_lambda(8 * 128, 1.2, 1e-3, 1.0), 1_200);
        assert_eq!(budget_by_lambda(8 * 128, 1.2, 7.812_5e-4, 1.0), 1_536);
        assert_eq!(budget_by_lambda(8 * 128, 3.0, 1e-3, 1.0), 2_048);
        assert_eq!(budget_by_lambda(8 * 128, 0.1, 1e-3, 1.0), 1_024);
    }

    #[test]
    fn without_history_the_budget_is_the_ratio() {
        assert_eq!(budget(1_024, 2_048, 1.5, None), 1_536);
        assert_eq!(budget(1_024, 1_024, 1.5, None), 1_024);
        let nothing = Spread {
            rho: 0.0,
            k: 0.0,
            rho_first: 0.0,
            k_first: 0.0,
        };
        assert_eq!(budget(1_024, 2_048, 1.5, Some(nothing)), 1_536);
    }

    proptest! {
        #[test]
        fn a_ratio_is_a_lambda(
            trained in 1_u64..100_000,
            ratio in 1.0..2.0,
            rho in 0.1..3.0,
            rho_first in 0.1..3.0,
            k in 0.1..10.0,
            k_first in 0.1..10.0,
        ) {
            let spread = Spread { rho, k, rho_first, k_first };
            let by_ratio = budget(trained, trained * 2, ratio, Some(spread));
            let lambda = lambda_of(ratio, trained, rho_first, k_first);
            let by_lambda = budget_by_lambda(trained, rho, lambda, k);
            prop_assert!(by_ratio.abs_diff(by_lambda) <= 1, "{by_ratio} {by_lambda}");
        }
    }
}
