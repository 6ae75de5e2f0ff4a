//! Which comparisons are run, on which seeds, and how many at once.

use super::outcome::Outcome;
use super::simulation::{SetupError, run};
use super::system::Setup;
use super::table::Row;
use super::{bias, contest, darts, rollart};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A part of the comparisons.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Whole systems.
    EndToEnd,
    /// Bounds on the lag.
    Bounds,
    /// Domains bound to classes of accelerators.
    Affinity,
    /// Turns of each trajectory, or of all together.
    Trajectory,
    /// Judges on demand, or held.
    Rewards,
    /// More members than are trained.
    Redundancy,
    /// Environments that fail.
    Failures,
    /// Transfers of weights.
    Weights,
    /// Shaping as `DARTS` has it.
    Darts,
    /// What shaping policies train against what is sampled.
    Bias,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::EndToEnd,
        Self::Bounds,
        Self::Affinity,
        Self::Trajectory,
        Self::Rewards,
        Self::Redundancy,
        Self::Failures,
        Self::Weights,
        Self::Darts,
        Self::Bias,
    ];

    /// What its figures begin with.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndToEnd => "end_to_end",
            Self::Bounds => "bounds",
            Self::Affinity => "affinity",
            Self::Trajectory => "trajectory",
            Self::Rewards => "rewards",
            Self::Redundancy => "redundancy",
            Self::Failures => "failures",
            Self::Weights => "weights",
            Self::Darts => "darts",
            Self::Bias => "bias",
        }
    }
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Parts.
    pub parts: Vec<Part>,
    /// Seeds that settings are chosen on.
    pub tuning_seeds: Vec<u64>,
    /// Seeds that figures are of.
    pub seeds: Vec<u64>,
    /// Threads; figures do not depend on them.
    pub jobs: usize,
    /// Smaller and fewer runs, to see that it works.
    pub quick: bool,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub struct Suite {
    /// Figures beside those of papers.
    pub rows: Vec<Row>,
    /// What is behind them, by part.
    pub details: Map<String, Value>,
}

impl Suite {
    pub(super) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(super) fn detail(&mut self, name: &str, value: impl Serialize) {
        self.details.insert(name.to_owned(), json!(value));
    }

    /// Runs all parts.
    ///
    /// # Errors
    /// A run can't begin.
    pub fn run(options: &Options, report: &(dyn Fn(&str) + Sync)) -> Result<Self, SetupError> {
        let mut suite = Self::default();
        for part in &options.parts {
            report(part.name());
            match part {
                Part::EndToEnd => contest::end_to_end(options, &mut suite)?,
                Part::Bounds => contest::bounds(options, &mut suite)?,
                Part::Affinity => rollart::affinity(options, &mut suite)?,
                Part::Trajectory => rollart::trajectory(options, &mut suite)?,
                Part::Rewards => rollart::rewards(options, &mut suite)?,
                Part::Redundancy => rollart::redundancy(options, &mut suite)?,
                Part::Failures => rollart::failures(options, &mut suite)?,
                Part::Weights => rollart::weights(options, &mut suite)?,
                Part::Darts => darts::run(options, &mut suite)?,
                Part::Bias => bias::run(options, &mut suite)?,
            }
        }
        Ok(suite)
    }
}

/// A set-up under each of these seeds.
pub(super) fn seeded(setup: &Setup, seeds: &[u64]) -> Vec<Setup> {
    let with = |seed: &u64| Setup {
        seed: *seed,
        ..setup.clone()
    };
    seeds.iter().map(with).collect()
}

/// Outcomes of set-ups under the seeds that figures are of, one list for each set-up.
pub(super) fn by_seed(
    setups: &[Setup],
    options: &Options,
) -> Result<Vec<Vec<Outcome>>, SetupError> {
    let all = setups
        .iter()
        .flat_map(|setup| seeded(setup, &options.seeds));
    let outcomes = run_all(&all.collect::<Vec<Setup>>(), options.jobs)?;
    let lists = outcomes.chunks(options.seeds.len().max(1));
    Ok(lists.map(<[Outcome]>::to_vec).collect())
}

/// A figure of two set-ups, seed by seed: the first over the second.
pub(super) fn ratios(
    first: &[Outcome],
    second: &[Outcome],
    of: impl Fn(&Outcome) -> f64,
) -> Vec<f64> {
    let pairs = first.iter().zip(second);
    pairs
        .map(|(first, second)| of(first) / of(second))
        .collect()
}

/// Runs set-ups on several threads; outcomes come in the order of the set-ups.
pub(super) fn run_all(setups: &[Setup], jobs: usize) -> Result<Vec<Outcome>, SetupError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(setup) = setups.get(at) else {
                return done;
            };
            done.push((at, run(setup)));
        }
    };
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended
            .flat_map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}
