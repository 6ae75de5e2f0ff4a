//! How far predictions of what remains are off, step by step, on groups that no predictor has seen.
//!
//! All predictors are judged at the same moments, on the same programs: those that still run then.

use serde::Serialize;
use treadle_simulator::pearson;
use treadle_simulator::workload::AgentRun;

use super::replay::{AFTER, Predictions};

/// Programs below which a correlation says nothing.
const PROGRAMS_MIN: usize = 20;

/// A predictor at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepFigures {
    /// Steps that the programs had finished.
    pub steps: usize,
    /// Whether the tool call after the last of them had returned.
    pub returned: bool,
    /// Programs that were predicted.
    pub programs: usize,
    /// Mean difference of predicted and actual remaining tokens, over the mean of what remained.
    pub error: f64,
    /// Root of the mean square of that difference, over the spread of what remained: 1 where it says
    /// no more than the mean. The measure of an estimate that is a mean, as these are; the one above
    /// is least for a median, which is far below the mean where few programs become long.
    pub squared: f64,
    /// Median factor between the two, at least 1; 256 tokens are added to each.
    pub factor: f64,
    /// Spearman's rank correlation of the two, -1 to 1.
    pub rank: f64,
}

/// A predictor at all moments at which enough programs run.
pub(super) fn by_step(runs: &[AgentRun], predictions: &Predictions) -> Vec<StepFigures> {
    let mut all = Vec::new();
    for (look, steps) in AFTER.into_iter().enumerate() {
        for returned in [false, true] {
            let pair = |(run, looks): (&AgentRun, &[super::replay::Look; AFTER.len()])| {
                let look = looks[look];
                let given = if returned { look.returned } else { look.acting }?;
                let done: u64 = run.steps[..steps]
                    .iter()
                    .map(|s| u64::from(s.output_tokens))
                    .sum();
                let left = run.output_tokens() - done;
                Some((left as f64, (given.total - done as f64).max(0.0)))
            };
            let pairs: Vec<(f64, f64)> = runs.iter().zip(predictions).filter_map(pair).collect();
            if pairs.len() >= PROGRAMS_MIN {
                all.push(figures(steps, returned, &pairs));
            }
        }
    }
    all
}

fn figures(steps: usize, returned: bool, pairs: &[(f64, f64)]) -> StepFigures {
    let (actual, predicted): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let off: f64 = pairs.iter().map(|(left, told)| (left - told).abs()).sum();
    let mean = actual.iter().sum::<f64>() / actual.len().max(1) as f64;
    let squares = |of: &dyn Fn(&(f64, f64)) -> f64| -> f64 {
        pairs.iter().map(|pair| of(pair) * of(pair)).sum()
    };
    let spread = squares(&|(left, _)| left - mean);
    let missed = squares(&|(left, told)| left - told);
    let level = |tokens: f64| (tokens + 256.0).log2();
    let mut factors: Vec<f64> = pairs
        .iter()
        .map(|(left, told)| (level(*left) - level(*told)).abs().exp2())
        .collect();
    factors.sort_by(f64::total_cmp);
    StepFigures {
        steps,
        returned,
        programs: pairs.len(),
        error: off / actual.iter().sum::<f64>().max(1.0),
        squared: (missed / spread.max(1.0)).sqrt(),
        factor: factors[factors.len() / 2],
        rank: spearman(&actual, &predicted),
    }
}

/// Correlation of the ranks; equal values share the mean of theirs.
fn spearman(a: &[f64], b: &[f64]) -> f64 {
    pearson(&ranks(a), &ranks(b))
}

fn ranks(list: &[f64]) -> Vec<f64> {
    let mut places: Vec<usize> = (0..list.len()).collect();
    places.sort_by(|a, b| list[*a].total_cmp(&list[*b]));
    let mut ranks = vec![0.0; list.len()];
    let mut first = 0;
    for equal in places.chunk_by(|a, b| list[*a].total_cmp(&list[*b]).is_eq()) {
        let mean = first as f64 + (equal.len() - 1) as f64 / 2.0;
        for place in equal {
            ranks[*place] = mean;
        }
        first += equal.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_go_together_whatever_the_values() {
        assert!((spearman(&[1.0, 20.0, 300.0], &[1.0, 2.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((spearman(&[1.0, 20.0, 300.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 9.0]), [1.5, 0.0, 1.5, 3.0]);
        assert!(spearman(&[1.0, 2.0], &[7.0, 7.0]).abs() < 1e-12);
    }

    #[test]
    fn errors_are_shares_of_what_remained() {
        let found = figures(2, true, &[(1_000.0, 500.0), (3_000.0, 4_000.0)]);
        assert!((found.error - 0.375).abs() < 1e-12, "{found:?}");
        assert!(
            (found.squared - 0.625_f64.sqrt()).abs() < 1e-12,
            "{found:?}"
        );
        assert!((found.factor - 1_256.0 / 756.0).abs() < 1e-9, "{found:?}");
    }
}
