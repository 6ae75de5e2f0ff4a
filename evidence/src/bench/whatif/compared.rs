//! Changes that replays predict beside those that came about, and how much of what is between them
//! real runs have between themselves.

use super::super::figures::{Figure, Report, Target};
use serde_json::{Value, json};

/// The result of one set of policies on one workload.
pub(super) struct Tried {
    /// Its name.
    pub(super) set: &'static str,
    /// Makespan of each real run, in seconds.
    pub(super) real_s: Vec<f64>,
    /// Of the recording of each, the makespans that replays under each set of the workload come to.
    pub(super) replayed_s: Vec<Vec<f64>>,
}

/// A change that was predicted and the one that came about, both as shares of the first set's
/// makespan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pair {
    case: &'static str,
    from: &'static str,
    to: &'static str,
    predicted: f64,
    real: f64,
}

impl Pair {
    fn agrees(&self) -> bool {
        (self.predicted < 0.0) == (self.real < 0.0)
    }

    /// Of the predicted change, as a share of the real one.
    fn error(&self) -> f64 {
        (self.predicted - self.real).abs() / self.real.abs().max(1e-9)
    }

    /// Of the predicted makespan, as a share of the real one.
    fn makespan_error(&self) -> f64 {
        (self.predicted - self.real).abs() / (1.0 + self.real)
    }

    pub(super) fn shown(&self) -> Value {
        json!({
            "workload": self.case, "from": self.from, "to": self.to,
            "predicted_change": self.predicted, "real_change": self.real,
            "sign_agrees": self.agrees(), "error": self.error(),
        })
    }
}

/// All workloads: pairs of sets, by the source of each value.
#[derive(Default)]
pub(super) struct Comparison {
    /// Means over recordings, beside means over real runs.
    pub(super) pairs: Vec<Pair>,
    /// One recording each, beside itself and one real run.
    singles: Vec<Pair>,
    /// Two real runs each, instead of the replay.
    repetitions: Vec<Pair>,
    own_errors: Vec<f64>,
    spreads: Vec<f64>,
}

impl Comparison {
    /// Takes in a workload.
    pub(super) fn add(&mut self, case: &'static str, tried: &[Tried]) {
        for (from, first) in tried.iter().enumerate() {
            let own = first.replayed_s.iter().zip(&first.real_s);
            let own_error =
                |(replayed, real): (&Vec<f64>, &f64)| (replayed[from] - real).abs() / real;
            self.own_errors.extend(own.map(own_error));
            self.spreads.push(spread(&first.real_s));
            for (to, second) in tried.iter().enumerate().filter(|(to, _)| *to != from) {
                let pair = |predicted, real| Pair {
                    case,
                    from: first.set,
                    to: second.set,
                    predicted,
                    real,
                };
                let predicted = first.replayed_s.iter();
                let predicted = predicted.map(|replayed| change(replayed[from], replayed[to]));
                let predicted: Vec<f64> = predicted.collect();
                let real = change(mean(&first.real_s), mean(&second.real_s));
                self.pairs.push(pair(mean(&predicted), real));
                for (run, before) in first.real_s.iter().enumerate() {
                    for (other, after) in second.real_s.iter().enumerate() {
                        let real = change(*before, *after);
                        self.singles.push(pair(predicted[run], real));
                        let again = repeated(&first.real_s, run, &second.real_s, other);
                        self.repetitions
                            .extend(again.map(|again| pair(again, real)));
                    }
                }
            }
        }
    }

    /// Adds its figures to a report.
    pub(super) fn push(&self, report: &mut Report) {
        let of_makespan: Vec<f64> = self.pairs.iter().map(Pair::makespan_error).collect();
        let figures = [
            Figure::new("pairs", self.pairs.len() as f64, "pairs").target(Target::AtLeast(20.0)),
            Figure::new("sign_agreement", agreement(&self.pairs), "share")
                .target(Target::AtLeast(0.95)),
            Figure::new("median_error", median_error(&self.pairs), "share")
                .target(Target::AtMost(0.15)),
            Figure::new("median_makespan_error", median(&of_makespan), "share"),
            Figure::new("median_own_error", median(&self.own_errors), "share"),
            Figure::new("single.sign_agreement", agreement(&self.singles), "share"),
            Figure::new("single.median_error", median_error(&self.singles), "share"),
            Figure::new("real_spread_median", median(&self.spreads), "share"),
        ];
        for figure in figures {
            report.push(figure);
        }
        if !self.repetitions.is_empty() {
            for figure in [
                Figure::new(
                    "repetition.sign_agreement",
                    agreement(&self.repetitions),
                    "share",
                ),
                Figure::new(
                    "repetition.median_error",
                    median_error(&self.repetitions),
                    "share",
                ),
            ] {
                report.push(figure);
            }
        }
    }
}

/// The change between every two other real runs.
fn repeated<'a>(
    first: &'a [f64],
    run: usize,
    second: &'a [f64],
    other: usize,
) -> impl Iterator<Item = f64> + 'a {
    let others = |runs: &'a [f64], without: usize| {
        let runs = runs.iter().enumerate();
        runs.filter(move |(place, _)| *place != without)
            .map(|(_, makespan_s)| *makespan_s)
    };
    let first = others(first, run);
    first.flat_map(move |before| others(second, other).map(move |after| change(before, after)))
}

fn change(from: f64, to: f64) -> f64 {
    to / from.max(1e-9) - 1.0
}

/// From the shortest to the longest, as a share of the mean.
fn spread(values: &[f64]) -> f64 {
    let longest = values.iter().copied().fold(f64::MIN, f64::max);
    let shortest = values.iter().copied().fold(f64::MAX, f64::min);
    (longest - shortest) / mean(values)
}

fn agreement(pairs: &[Pair]) -> f64 {
    let agreeing = pairs.iter().filter(|pair| pair.agrees()).count() as f64;
    agreeing / pairs.len().max(1) as f64
}

fn median_error(pairs: &[Pair]) -> f64 {
    let errors: Vec<f64> = pairs.iter().map(Pair::error).collect();
    median(&errors)
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

pub(super) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(predicted: f64, real: f64) -> Pair {
        Pair {
            case: "c",
            from: "a",
            to: "b",
            predicted,
            real,
        }
    }

    #[test]
    fn a_pair_agrees_by_its_sign_and_errs_by_its_change() {
        assert!(pair(-0.4, -0.5).agrees() && !pair(0.1, -0.1).agrees());
        assert!((pair(-0.4, -0.5).error() - 0.2).abs() < 1e-9);
        assert!((pair(-0.4, -0.5).makespan_error() - 0.2).abs() < 1e-9);
        let medians = (median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0]));
        assert_eq!(medians, (2.0, 2.5));
    }

    #[test]
    fn means_are_compared_with_means_and_single_runs_with_single_runs() {
        let tried = |set, real_s: [f64; 2], replayed_s: [[f64; 2]; 2]| Tried {
            set,
            real_s: real_s.to_vec(),
            replayed_s: replayed_s.map(|of_run| of_run.to_vec()).to_vec(),
        };
        let mut comparison = Comparison::default();
        let (first, second) = (
            tried("a", [100.0, 120.0], [[100.0, 150.0], [120.0, 150.0]]),
            tried("b", [150.0, 180.0], [[99.0, 150.0], [108.0, 180.0]]),
        );
        comparison.add("c", &[first, second]);
        let close = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found}");
        let [there, back] = comparison.pairs[..] else {
            panic!("two pairs")
        };
        close(there.predicted, f64::midpoint(0.5, 0.25));
        close(there.real, 165.0 / 110.0 - 1.0);
        close(back.predicted, f64::midpoint(99.0 / 150.0, 0.6) - 1.0);
        assert_eq!(comparison.singles.len(), 8);
        close(comparison.singles[3].predicted, 0.25);
        close(comparison.singles[3].real, 0.5);
        // Of two runs each, one is left out and used as the replay.
        assert_eq!(comparison.repetitions.len(), 8);
        close(comparison.repetitions[0].predicted, 0.5);
        close(comparison.repetitions[1].predicted, 150.0 / 120.0 - 1.0);
        close(comparison.repetitions[1].real, 0.8);
        assert_eq!(comparison.own_errors, [0.0; 4]);
        close(comparison.spreads[0], 20.0 / 110.0);
    }
}
