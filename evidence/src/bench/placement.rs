//! `treadle-bench placement`: how long Heddle's partition and its search for degrees of
//! parallelism take, and how far their results are from exhaustive ones, beside the
//! figures of the paper's Table 2.

use super::figures::{Figure, Report, Target};
use super::latencies::Latencies;
use super::{BenchError, report_progress};
use clap::Args;
use heddle_allocation::{Cluster, Config, Goal, HeddleAllocation, Search};
use heddle_partition::{Interference, Paper, Run, Units, level, partition, reference};
use heddle_placement::HeddlePlacement;
use std::hint::black_box;
use std::time::{Duration, Instant};
use treadle_plugin::random::SplitMix64;
use treadle_plugin::{
    AssignColumns, NO_CLASS, NO_GROUP, NOWHERE, ParallelismColumns, PlacementPolicy, WorkerColumns,
};

/// Programs and workers of the timed cases.
const CASES: [(usize, usize); 6] = [
    (400, 16),
    (1_600, 16),
    (6_400, 8),
    (6_400, 16),
    (6_400, 32),
    (6_400, 64),
];
/// The case that the target and the paper's figure are for.
const TARGET_CASE: (usize, usize) = (6_400, 16);
/// Lengths of programs, in tokens: the least and the most.
const LENGTHS: (f64, f64) = (400.0, 40_000.0);
const TOKEN_US: f64 = 7_000.0;
/// Devices of the plan, and its kinds of workers. Times and capacities are made up:
/// the share of the time per token that is left, and the multiple of the tokens that are held, by
/// several devices.
const GPUS: u32 = 64;
const DEGREES: [u32; 4] = [1, 2, 4, 8];
const DEGREE_TOKEN_US: [f64; 4] = [12_000.0, 7_500.0, 5_000.0, 4_000.0];
const DEGREE_TOKENS: [u64; 4] = [260_000, 700_000, 1_600_000, 3_400_000];

/// Arguments of `treadle-bench placement`.
#[derive(Args, Clone, Debug)]
pub(super) struct PlacementArgs {
    /// Times that each case is measured.
    #[arg(long, default_value_t = 301, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repetitions: u32,
    /// Random cases that are compared with the dynamic program.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    cases: u32,
    /// Seed of the lengths.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl Default for PlacementArgs {
    fn default() -> Self {
        Self {
            repetitions: 301,
            cases: 300,
            seed: 1,
        }
    }
}

impl PlacementArgs {
    /// Measures everything, one after another.
    pub(super) async fn run(mut self, quick: bool) -> Result<Report, BenchError> {
        if quick {
            (self.repetitions, self.cases) = (5, 20);
        }
        // It keeps its thread busy for as long as it runs.
        let done = tokio::task::spawn_blocking(move || self.measure(quick));
        done.await
            .map_err(|error| BenchError::Ended(error.to_string()))
    }

    fn measure(&self, quick: bool) -> Report {
        let mut report = Report::new("placement");
        report.setting("repetitions", self.repetitions);
        report.setting("cases", self.cases);
        report.setting("seed", self.seed);
        report_progress("placement: partitions ...");
        for (programs, workers) in CASES {
            self.partition(programs, workers, &mut report);
        }
        self.assign(&mut report);
        report_progress("placement: against the dynamic program ...");
        self.gap(quick, &mut report);
        report_progress("placement: plans of parallelism ...");
        self.plans(&mut report);
        report.note(
            "median_us is the search for the optimum of a sorted list (Formula 2, equal workers), \
             of a list with a long tail, one of evenly spread and one of equal lengths the slowest; \
             level_us finds the same optimum and evens out what it leaves open, which is what \
             heddle-placement does; assign_us is its whole answer, sorting included. max_gap_to_dp \
             is the largest relative difference to the paper's dynamic program, over random cases \
             of equal and different workers.",
        );
        report
    }

    fn median(&self, mut run: impl FnMut()) -> Duration {
        let mut times = Latencies::default();
        for _ in 0..self.repetitions {
            let began = Instant::now();
            run();
            times.push(began.elapsed());
        }
        times.percentile(0.5)
    }

    fn partition(&self, programs: usize, workers: usize, report: &mut Report) {
        let units = Units::new(TOKEN_US, &Interference::default(), programs);
        let runs = [Run {
            units: &units,
            offset: 0,
            count: workers,
        }];
        let (mut search, mut even) = (Duration::ZERO, Duration::ZERO);
        for lengths in self.shapes(programs) {
            search = search.max(self.median(|| {
                black_box(partition::<Paper>(black_box(&lengths), &runs));
            }));
            even = even.max(self.median(|| {
                black_box(level::<Paper>(black_box(&lengths), &runs));
            }));
        }
        let name = |what: &str| format!("{what}.n{programs}.m{workers}");
        let mut figure = Figure::new(name("median_us"), microseconds(search), "us");
        if (programs, workers) == TARGET_CASE {
            figure = figure
                .target(Target::AtMost(100.0))
                .reference("Heddle 36000 to 42000 (Table 2, section 6.2)");
        }
        report.push(figure);
        report.push(Figure::new(name("level_us"), microseconds(even), "us"));
    }

    /// Sorted lists: a long tail, any length as often as any other, all equal.
    fn shapes(&self, programs: usize) -> [Vec<f64>; 3] {
        let even = |row: usize| LENGTHS.1 - row as f64 * (LENGTHS.1 - LENGTHS.0) / programs as f64;
        [
            lengths(&mut SplitMix64::new(self.seed), programs),
            (0..programs).map(even).collect(),
            vec![LENGTHS.1; programs],
        ]
    }

    /// What the policy takes for a whole rollout.
    fn assign(&self, report: &mut Report) {
        let (programs, workers) = TARGET_CASE;
        let mut random = SplitMix64::new(self.seed);
        let remaining: Vec<f64> = (0..programs).map(|_| length(&mut random)).collect();
        let columns = AssignColumns {
            group: &vec![0; programs],
            tokens: &vec![500; programs],
            remaining_tokens: &remaining,
            last_worker: &vec![NOWHERE; programs],
            growth: &vec![-1.0; programs],
            tool_us: &vec![-1.0; programs],
            preferred_class: &vec![NO_CLASS; programs],
            workers: WorkerColumns {
                capacity_tokens: &vec![600_000; workers],
                used_tokens: &vec![0; workers],
                running: &vec![0; workers],
                token_us: &vec![-1.0; workers],
                step_us: &vec![-1.0; workers],
                prefill_us: &vec![-1.0; workers],
                hardware_class: &vec![NO_CLASS; workers],
                lockstep_group: &vec![NO_GROUP; workers],
            },
            extra: &[],
        };
        let time = self.median(|| {
            // A failure would show in the tests of the policy.
            let _ = black_box(HeddlePlacement::default().assign(black_box(&columns)));
        });
        let name = format!("assign_us.n{programs}.m{workers}");
        report.push(Figure::new(name, microseconds(time), "us"));
    }

    fn gap(&self, quick: bool, report: &mut Report) {
        let mut random = SplitMix64::new(self.seed);
        let mut worst = 0.0_f64;
        for _ in 0..self.cases {
            let programs = 1 + below(&mut random, 80);
            let kinds = 1 + below(&mut random, 3);
            let lengths = lengths(&mut random, programs);
            let units: Vec<Units> = (0..kinds)
                .map(|_| {
                    let token_us = 1.0 + below(&mut random, 20_000) as f64 / 3.0;
                    let batch = 2 + below(&mut random, 40) as u32;
                    let factor = 1.0 + below(&mut random, 900) as f64 / 70.0;
                    let profile = Interference::new(&[(batch, factor)]).unwrap_or_default();
                    Units::new(token_us, &profile, programs)
                })
                .collect();
            let runs: Vec<Run<'_>> = units
                .iter()
                .map(|units| Run {
                    units,
                    offset: 0,
                    count: 1 + below(&mut random, 4),
                })
                .collect();
            worst = worst.max(difference(&lengths, &runs));
        }
        if !quick {
            worst = worst.max(self.large_gap(report));
        }
        report.push(Figure::new("max_gap_to_dp", worst, "ratio").target(Target::AtMost(0.0)));
    }

    /// The dynamic program at the size that the paper gives its time for.
    fn large_gap(&self, report: &mut Report) -> f64 {
        let (programs, workers) = TARGET_CASE;
        let lengths = lengths(&mut SplitMix64::new(self.seed), programs);
        let units = Units::new(TOKEN_US, &Interference::default(), programs);
        let runs = [Run {
            units: &units,
            offset: 0,
            count: workers,
        }];
        let began = Instant::now();
        let gap = difference(&lengths, &runs);
        let name = format!("dp_ms.n{programs}.m{workers}");
        let figure = Figure::new(name, began.elapsed().as_secs_f64() * 1e3, "ms");
        report.push(figure.reference("Heddle 36 to 42, short programs taken together"));
        gap
    }

    fn plans(&self, report: &mut Report) {
        let mut random = SplitMix64::new(self.seed);
        let expected: Vec<u64> = (0..TARGET_CASE.0)
            .map(|_| length(&mut random) as u64)
            .collect();
        let unknown = [-1.0; DEGREES.len()];
        let call = ParallelismColumns {
            gpus: GPUS,
            degree: &DEGREES,
            token_us: &DEGREE_TOKEN_US,
            capacity_tokens: &DEGREE_TOKENS,
            expected_tokens: &expected,
            step_us: &unknown,
            prefill_us: &unknown,
            prompt_tokens: 0,
            growth: -1.0,
            tool_us: -1.0,
        };
        let ends: Vec<f64> = [Search::Annealing, Search::Exhaustive]
            .into_iter()
            .map(|search| self.plan(&call, search, report))
            .collect();
        let cluster = Cluster::new(&as_in_the_paper(Search::Auto), &call);
        let alone = cluster.homogeneous();
        let alone_us = alone.iter().map(|plan| cluster.end_us(plan));
        let alone_us = alone_us.fold(f64::INFINITY, f64::min);
        let name = |what: &str| format!("{what}.gpus{GPUS}");
        let gap = ends[0] / ends[1] - 1.0;
        report.push(Figure::new(name("annealing_gap_to_best"), gap, "ratio"));
        let figure = Figure::new(name("annealing_to_one_degree"), ends[0] / alone_us, "ratio");
        report.push(figure.target(Target::AtMost(1.0)));
    }

    /// Times a search for a plan and reports when its latest worker ends.
    fn plan(&self, call: &ParallelismColumns<'_>, search: Search, report: &mut Report) -> f64 {
        let policy = HeddleAllocation {
            config: as_in_the_paper(search),
        };
        let mut end_us = 0.0;
        let few = Self {
            repetitions: self.repetitions.min(21),
            ..self.clone()
        };
        let time = few.median(|| {
            let cluster = Cluster::new(&policy.config, call);
            end_us = policy.plan(&cluster, self.seed).1;
        });
        let ms = time.as_secs_f64() * 1e3;
        report.push(match search {
            Search::Annealing => Figure::new(format!("annealing_ms.gpus{GPUS}"), ms, "ms")
                .target(Target::AtMost(100.0))
                .reference("Heddle 4970 to 5690 (Table 2)"),
            _ => Figure::new(format!("exhaustive_ms.gpus{GPUS}"), ms, "ms"),
        });
        end_us
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn below(random: &mut SplitMix64, bound: usize) -> usize {
    (random.next_u64() % bound as u64) as usize
}

/// A length with a long tail: of twice the length there are a quarter as many.
fn length(random: &mut SplitMix64) -> f64 {
    let share = ((random.next_u64() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
    (LENGTHS.0 / share.sqrt()).min(LENGTHS.1).floor()
}

/// Lengths, the longest first.
fn lengths(random: &mut SplitMix64, programs: usize) -> Vec<f64> {
    let mut lengths: Vec<f64> = (0..programs).map(|_| length(random)).collect();
    lengths.sort_unstable_by(|left, right| right.total_cmp(left));
    lengths
}

/// The relative difference of the search to the dynamic program; 0 where they are
/// equal to the last bit.
fn difference(lengths: &[f64], runs: &[Run<'_>]) -> f64 {
    let found = partition::<Paper>(lengths, runs);
    match (found, reference::makespan_us::<Paper>(lengths, runs)) {
        (Some(found), Some(best_us)) => (found.makespan_us - best_us).abs() / best_us,
        _ => f64::INFINITY,
    }
}

/// Formula 2, which Table 2 is of.
fn as_in_the_paper(search: Search) -> Config {
    Config {
        search,
        objective: Goal::Paper,
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_are_there_and_the_partition_is_the_best() {
        let args = PlacementArgs {
            repetitions: 1,
            cases: 20,
            seed: 2,
        };
        let json = args.measure(true).to_json();
        let figures = &json["figures"];
        assert_eq!(figures["max_gap_to_dp"]["value"], 0.0);
        for name in [
            "median_us.n6400.m16",
            "assign_us.n6400.m16",
            "annealing_ms.gpus64",
            "exhaustive_ms.gpus64",
        ] {
            assert!(
                figures[name]["value"].as_f64() > Some(0.0),
                "{name}: {json}"
            );
        }
        let to_one_degree = &figures["annealing_to_one_degree.gpus64"]["value"];
        assert!(to_one_degree.as_f64() <= Some(1.0), "{json}");
    }
}
