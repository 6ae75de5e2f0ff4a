//! The grids of `ARL-Tangram` §6 in virtual time: actions that draw from cores, devices and quotas,
//! under treadle and under what the paper compares with.

mod coding;
mod joint;
mod policy;
mod search;
mod services;
mod setup;
mod tested;
#[cfg(test)]
mod tests;

pub use policy::Linked;

use std::collections::BTreeMap;
use tangram_allocation::Config;
use tested::Tested;

/// Parts of the grids.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grid {
    /// Coding agents on cores (Figures 8(a) and 9, Table 1).
    Coding,
    /// Rewards by models on devices (Figure 8(b), Table 1).
    Services,
    /// Search agents with quotas (Figure 6).
    Search,
    /// Tools and caches decided together, and apart.
    Joint,
}

impl Grid {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Coding, Self::Services, Self::Search, Self::Joint];

    /// What its figures begin with.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Coding => "coding",
            Self::Services => "services",
            Self::Search => "search",
            Self::Joint => "joint",
        }
    }
}

/// Which grids, and on what.
#[derive(Clone, Debug)]
pub struct GridOptions {
    /// The grids.
    pub grids: Vec<Grid>,
    /// Seeds of the workloads.
    pub seeds: Vec<u64>,
    /// Threads; each runs some of the seeds.
    pub jobs: u32,
    /// Configuration of `tangram-allocation`.
    pub config: Config,
    /// Everything a sixteenth of the size.
    pub small: bool,
}

/// A figure over seeds.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Spread {
    /// Its name.
    pub name: String,
    /// Median over seeds.
    pub median: f64,
    /// Mean over seeds.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The paper's figure, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<&'static str>,
}

/// Figures of one seed, by name, in the order of the names.
#[derive(Clone, Debug, Default)]
struct SeedFigures {
    values: BTreeMap<String, f64>,
}

impl SeedFigures {
    fn put(&mut self, name: impl Into<String>, value: f64) {
        self.values.insert(name.into(), value);
    }
}

/// Runs the grids.
pub fn run(options: &GridOptions, report: &(dyn Fn(&str) + Sync)) -> Vec<Spread> {
    let jobs = (options.jobs.max(1) as usize).min(options.seeds.len().max(1));
    let share = options.seeds.len().div_ceil(jobs).max(1);
    let found: Vec<SeedFigures> = std::thread::scope(|scope| {
        let threads: Vec<_> = options
            .seeds
            .chunks(share)
            .map(|seeds| {
                scope.spawn(move || {
                    let one = |seed: &u64| of_seed(options, *seed, report);
                    seeds.iter().map(one).collect::<Vec<SeedFigures>>()
                })
            })
            .collect();
        let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.flat_map(Result::unwrap_or_default).collect()
    });
    spreads(&found)
}

fn of_seed(options: &GridOptions, seed: u64, report: &dyn Fn(&str)) -> SeedFigures {
    let mut found = SeedFigures::default();
    let mut tested = Tested::new(options.config.clone());
    for grid in &options.grids {
        report(&format!("{}, seed {seed}", grid.name()));
        match grid {
            Grid::Coding => coding::run(seed, options.small, &mut tested, &mut found),
            Grid::Services => services::run(seed, options.small, &mut tested, &mut found),
            Grid::Search => search::run(seed, options.small, &mut tested, &mut found),
            Grid::Joint => joint::run(seed, options.small, &mut found),
        }
    }
    if !options.small {
        tested.costs(&mut found);
    }
    found
}

fn spreads(found: &[SeedFigures]) -> Vec<Spread> {
    let Some(first) = found.first() else {
        return Vec::new();
    };
    let spread = |name: &String| {
        let mut values: Vec<f64> = found
            .iter()
            .filter_map(|f| f.values.get(name))
            .copied()
            .collect();
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Spread {
            name: name.clone(),
            median: f64::midpoint(values[last / 2], values[last.div_ceil(2)]),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            min: values[0],
            max: values[last],
            unit: setup::unit(name),
            paper: setup::paper(name),
        }
    };
    first.values.keys().map(spread).collect()
}
