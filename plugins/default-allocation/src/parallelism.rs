//! The number of workers of each degree of tensor parallelism.
//!
//! A mix gives the longest programs to workers of one degree and the rest to workers
//! of another. Its end is the later of the two sides; a side ends when its longest
//! program does, and not before its workers have generated all its tokens, each as
//! many programs at a time as fit its KV cache.

use treadle_plugin::ParallelismColumns;

/// Maximum numbers of workers that are tried for a pair of degrees.
const STEPS_MAX: u32 = 128;
/// Maximum number of degrees considered; more powers of two make no sense.
const DEGREES_MAX: usize = 16;

/// The number of workers of each degree, within the available devices.
pub(crate) fn mix(degrees: &ParallelismColumns<'_>) -> Vec<u32> {
    let load = Programs::of(degrees);
    let mut best = (f64::INFINITY, vec![0; degrees.len()]);
    let looked_at = degrees.len().min(DEGREES_MAX);
    for base in 0..looked_at {
        for fast in 0..looked_at {
            let workers_max = workers(degrees, fast, degrees.gpus);
            let step = (workers_max / STEPS_MAX).max(1);
            for count in (0..=workers_max).step_by(step as usize) {
                let rest = degrees.gpus - count * degrees.degree[fast];
                let base_count = workers(degrees, base, rest);
                let end_us = load.end_us(
                    &side(degrees, fast, count),
                    &side(degrees, base, base_count),
                );
                if end_us < best.0 {
                    let mut counts = vec![0; degrees.len()];
                    counts[base] += base_count;
                    counts[fast] += count;
                    best = (end_us, counts);
                }
                // With one degree there is nothing to mix.
                if fast == base {
                    break;
                }
            }
        }
    }
    best.1
}

/// Number of workers of a degree on this many devices.
fn workers(degrees: &ParallelismColumns<'_>, row: usize, gpus: u32) -> u32 {
    gpus.checked_div(degrees.degree[row]).unwrap_or(0)
}

/// Workers of one degree.
struct Side {
    count: u32,
    token_us: f64,
    capacity_tokens: f64,
}

fn side(degrees: &ParallelismColumns<'_>, row: usize, count: u32) -> Side {
    Side {
        count,
        token_us: degrees.token_us[row].max(0.0),
        capacity_tokens: degrees.capacity_tokens[row] as f64,
    }
}

/// Expected lengths, the longest first, and their sums.
struct Programs {
    tokens: Vec<f64>,
    sums: Vec<f64>,
}

impl Programs {
    fn of(degrees: &ParallelismColumns<'_>) -> Self {
        let mut tokens: Vec<f64> = degrees
            .expected_tokens
            .iter()
            .map(|&tokens| tokens as f64)
            .collect();
        tokens.sort_by(|left, right| right.total_cmp(left));
        let mut sums = vec![0.0];
        for length in &tokens {
            sums.push(sums[sums.len() - 1] + length);
        }
        Self { tokens, sums }
    }

    /// The end when the split between the sides is the best one. The more programs the
    /// first side has, the later it ends and the sooner the second one.
    fn end_us(&self, fast: &Side, base: &Side) -> f64 {
        let all = self.tokens.len();
        let (mut low, mut high) = (0, all);
        while low < high {
            let split = usize::midpoint(low, high);
            if self.side_end_us(fast, 0, split) >= self.side_end_us(base, split, all) {
                high = split;
            } else {
                low = split + 1;
            }
        }
        let end_us = |split: usize| {
            let (first, second) = (
                self.side_end_us(fast, 0, split),
                self.side_end_us(base, split, all),
            );
            first.max(second)
        };
        end_us(low).min(end_us(low.saturating_sub(1)))
    }

    /// The end of one side with the programs `from..to`.
    fn side_end_us(&self, side: &Side, from: usize, to: usize) -> f64 {
        if from == to {
            return 0.0;
        }
        if side.count == 0 {
            return f64::INFINITY;
        }
        let sum = self.sums[to] - self.sums[from];
        let mean = (sum / (to - from) as f64).max(1.0);
        let at_a_time = (side.capacity_tokens / mean).max(1.0) * f64::from(side.count);
        (self.tokens[from] * side.token_us).max(sum * side.token_us / at_a_time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degrees(gpus: u32, expected_tokens: &[u64]) -> ParallelismColumns<'_> {
        ParallelismColumns {
            gpus,
            degree: &[1, 2, 4],
            token_us: &[20_000.0, 12_000.0, 8_000.0],
            capacity_tokens: &[20_000, 60_000, 140_000],
            expected_tokens,
            ..ParallelismColumns::default()
        }
    }

    #[test]
    fn one_long_program_among_many_gets_a_fast_worker() {
        let mut lengths = vec![1_000; 400];
        lengths.push(30_000);
        let counts = mix(&degrees(16, &lengths));
        assert!(counts[2] >= 1, "{counts:?}");
    }

    #[test]
    fn a_single_program_gets_the_fastest_degree() {
        let counts = mix(&degrees(8, &[5_000]));
        assert!(counts[2] >= 1, "{counts:?}");
    }

    #[test]
    fn no_mix_is_worse_than_one_degree_alone() {
        use treadle_plugin::harness::Parallelism;
        use treadle_plugin::random::SplitMix64;

        let mut random = SplitMix64::new(8);
        for _ in 0..100 {
            let table = Parallelism::draw(&mut random, 4, 30);
            let columns = table.columns();
            let load = Programs::of(&columns);
            let counts = mix(&columns);
            let chosen: Vec<usize> = (0..counts.len()).filter(|&row| counts[row] > 0).collect();
            let side = |row: usize, count: u32| side(&columns, row, count);
            let none = Side {
                count: 0,
                token_us: 0.0,
                capacity_tokens: 0.0,
            };
            let end_us = match chosen[..] {
                [] => continue,
                [one] => load.end_us(&none, &side(one, counts[one])),
                [one, two] => {
                    let (one, two) = (side(one, counts[one]), side(two, counts[two]));
                    load.end_us(&one, &two).min(load.end_us(&two, &one))
                }
                _ => panic!("more than two degrees: {counts:?}"),
            };
            for row in 0..columns.len() {
                let alone = side(row, workers(&columns, row, columns.gpus));
                let alone_us = load.end_us(&none, &alone);
                assert!(end_us <= alone_us * (1.0 + 1e-9), "{table:?}: {counts:?}");
            }
        }
    }
}
