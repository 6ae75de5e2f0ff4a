//! The devices and the expected programs, which determine how good a plan is.

use heddle_partition::{
    Drained, Habits, Interference, MeasuredTimes, Pace, Paper, Probe, Run, Units, fluid_ends_by,
    length, partition, partition_fluid, probe,
};
use treadle_plugin::ParallelismColumns;

use crate::config::{Config, Goal, PROMPT_TOKENS_MAX};

/// Maximum number of devices that are planned together. More are planned in equal parts, each with
/// its share of the programs.
const GPUS_MAX: u32 = 1_024;
/// Shortest time per token, in microseconds.
const TOKEN_US_MIN: f64 = 1e-3;
/// Growth per generated token is cut to this.
const GROWTH_MAX: f64 = 1e3;
/// Time in tools per generated token is cut to this, in microseconds.
const TOOL_US_MAX: f64 = 1e9;

/// Devices, degrees and sorted lengths. A plan is a number of workers for each usable degree, from
/// the slowest to the fastest.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Devices of a part.
    pub(crate) gpus: u32,
    /// Usable degrees, ascending.
    pub(crate) degrees: Vec<u32>,
    /// The row of each degree in the call.
    rows: Vec<usize>,
    /// Number of rows in the call.
    all_rows: usize,
    /// Number of equal parts that the devices are planned in.
    parts: u32,
    /// Usable degrees in the order in which their workers get groups.
    order: Vec<usize>,
    units: Vec<Units>,
    /// The speed of each usable degree.
    paces: Vec<Pace>,
    lengths: Vec<f64>,
    /// Samples of the lengths, and the number of programs that each represents.
    samples: (Vec<f64>, f64),
    prompt_tokens: f64,
    habits: Habits,
    goal: Goal,
}

/// The speed of a degree's workers.
struct Speed {
    token_us: f64,
    profile: Interference,
    pace: Pace,
}

impl Speed {
    /// As configured for the degree, else as measured by the host.
    fn of(config: &Config, call: &ParallelismColumns<'_>, row: usize) -> Self {
        let capacity = call.capacity_tokens[row];
        let mut classes = config.classes.iter();
        let class = classes.find(|class| class.degree == call.degree[row]);
        let token_us = class.and_then(|class| class.token_us);
        let token_us = token_us.unwrap_or(call.token_us[row]).max(TOKEN_US_MIN);
        let seen = MeasuredTimes::of(token_us, call.step_us[row], call.prefill_us[row]);
        // Checked with the configuration.
        let profile = class.and_then(|class| class.interference.as_ref().and(class.profile().ok()));
        let profile = profile.or_else(|| seen.map(MeasuredTimes::profile));
        let iteration = class.and_then(|class| class.pace);
        let pace = match (iteration, seen) {
            (None, Some(seen)) => seen.pace(capacity),
            (iteration, _) => Pace::of(iteration, token_us, capacity),
        };
        Self {
            token_us,
            profile: profile.unwrap_or_default(),
            pace,
        }
    }
}

/// What programs do besides generating: as configured, else as measured by the host.
fn habits(config: &Config, call: &ParallelismColumns<'_>) -> Habits {
    let known = |value: f64, most: f64| (value >= 0.0).then(|| value.min(most));
    let unknown = Habits::default();
    let growth = config.growth.or_else(|| known(call.growth, GROWTH_MAX));
    let tool_us = config.tool_us.or_else(|| known(call.tool_us, TOOL_US_MAX));
    Habits {
        growth: growth.unwrap_or(unknown.growth),
        tool_us: tool_us.unwrap_or(unknown.tool_us),
    }
}

impl Cluster {
    /// From the columns of a call, which have been checked.
    pub fn new(config: &Config, call: &ParallelismColumns<'_>) -> Self {
        let parts = call.gpus.div_ceil(GPUS_MAX).max(1);
        let gpus = call.gpus / parts;
        let mut lengths: Vec<f64> = call
            .expected_tokens
            .iter()
            .map(|&tokens| length(tokens as f64))
            .collect();
        lengths.sort_unstable_by(|left, right| right.total_cmp(left));
        let prompt_tokens = config.prompt_tokens.unwrap_or(call.prompt_tokens as f64);
        let prompt_tokens = prompt_tokens.min(PROMPT_TOKENS_MAX);
        let mean = lengths.iter().sum::<f64>() / lengths.len().max(1) as f64;
        let lengths: Vec<f64> = lengths.into_iter().step_by(parts as usize).collect();
        let usable = |row: &usize| (1..=gpus).contains(&call.degree[*row]);
        let mut rows: Vec<usize> = (0..call.len()).filter(usable).collect();
        rows.sort_by_key(|&row| call.degree[row]);
        let mut speeds = Vec::with_capacity(rows.len());
        let (mut units, mut paces) = (Vec::new(), Vec::new());
        for &row in &rows {
            let speed = Speed::of(config, call, row);
            let mut profile = speed.profile;
            if call.capacity_tokens[row] > 0 {
                let footprint = mean + prompt_tokens;
                profile = profile.capped(call.capacity_tokens[row] as f64 / footprint.max(1.0));
            }
            speeds.push(speed.token_us);
            paces.push(speed.pace);
            units.push(Units::new(speed.token_us, &profile, lengths.len()));
        }
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|&left, &right| {
            let by_speed = speeds[left].total_cmp(&speeds[right]);
            by_speed.then(right.cmp(&left))
        });
        Self {
            gpus,
            degrees: rows.iter().map(|&row| call.degree[row]).collect(),
            rows,
            all_rows: call.len(),
            parts,
            order,
            units,
            paces,
            samples: samples(&lengths),
            prompt_tokens,
            habits: habits(config, call),
            lengths,
            goal: config.objective,
        }
    }

    /// The end of a plan's latest worker, in microseconds; infinite if the plan has no workers for
    /// its programs.
    pub fn end_us(&self, plan: &[u32]) -> f64 {
        if self.goal == Goal::Fluid {
            let (samples, weight) = &self.samples;
            let workers = self.workers(plan);
            let (context, habits) = (self.prompt_tokens, self.habits);
            let found = partition_fluid(&workers, samples, context, habits, *weight);
            return found.map_or(f64::INFINITY, |(_, end_us)| end_us);
        }
        let runs = self.runs(plan);
        let found = match self.goal {
            Goal::Paper => partition::<Paper>(&self.lengths, &runs),
            Goal::Drained | Goal::Fluid => partition::<Drained>(&self.lengths, &runs),
        };
        found.map_or(f64::INFINITY, |found| found.makespan_us)
    }

    /// Whether all workers of a plan can end by then.
    pub(crate) fn ends_by(&self, plan: &[u32], bound_us: f64) -> bool {
        if self.goal == Goal::Fluid {
            let (samples, weight) = &self.samples;
            let workers = self.workers(plan);
            let (context, habits) = (self.prompt_tokens, self.habits);
            return fluid_ends_by(&workers, samples, context, habits, *weight, bound_us);
        }
        let runs = self.runs(plan);
        let found = match self.goal {
            Goal::Paper => probe::<Paper>(&self.lengths, &runs, bound_us),
            Goal::Drained | Goal::Fluid => probe::<Drained>(&self.lengths, &runs, bound_us),
        };
        matches!(found, Probe::Fits(_))
    }

    fn workers(&self, plan: &[u32]) -> Vec<Pace> {
        let rows = self.order.iter();
        rows.flat_map(|&row| std::iter::repeat_n(self.paces[row], plan[row] as usize))
            .collect()
    }

    fn runs(&self, plan: &[u32]) -> Vec<Run<'_>> {
        let rows = self.order.iter().filter(|row| plan[**row] > 0);
        rows.map(|&row| Run {
            units: &self.units[row],
            offset: 0,
            count: plan[row] as usize,
        })
        .collect()
    }

    /// Devices that a plan does not use.
    pub(crate) fn left_over(&self, plan: &[u32]) -> u32 {
        let used: u32 = plan
            .iter()
            .zip(&self.degrees)
            .map(|(count, degree)| count * degree)
            .sum();
        self.gpus - used
    }

    /// Uses remaining devices for workers of the smallest degree: an additional worker may stay
    /// idle, so no plan gets worse.
    pub(crate) fn fill(&self, plan: &mut [u32]) {
        if let Some(smallest) = self.degrees.first() {
            plan[0] += self.left_over(plan) / smallest;
        }
    }

    /// The plans with a single degree, with remaining devices used.
    pub fn homogeneous(&self) -> Vec<Vec<u32>> {
        (0..self.degrees.len())
            .map(|row| {
                let mut plan = vec![0; self.degrees.len()];
                plan[row] = self.gpus / self.degrees[row];
                self.fill(&mut plan);
                plan
            })
            .collect()
    }

    /// The number of plans, counted up to a limit.
    pub(crate) fn plans(&self, most: usize) -> usize {
        let mut plans = 0;
        self.each_plan(&mut |_| {
            plans += 1;
            plans < most
        });
        plans
    }

    /// Calls `look` for each plan without remaining devices, the fastest degrees first, until it
    /// returns false.
    pub(crate) fn each_plan(&self, look: &mut dyn FnMut(&[u32]) -> bool) {
        let mut plan = vec![0; self.degrees.len()];
        if !plan.is_empty() {
            self.each_below(self.degrees.len() - 1, self.gpus, &mut plan, look);
        }
    }

    fn each_below(
        &self,
        row: usize,
        gpus: u32,
        plan: &mut [u32],
        look: &mut dyn FnMut(&[u32]) -> bool,
    ) -> bool {
        if row == 0 {
            plan[0] = gpus / self.degrees[0];
            return look(plan);
        }
        (0..=gpus / self.degrees[row]).all(|count| {
            plan[row] = count;
            self.each_below(row - 1, gpus - count * self.degrees[row], plan, look)
        })
    }

    /// A plan as the answer of the call.
    pub(crate) fn counts(&self, plan: &[u32]) -> Vec<u32> {
        let mut counts = vec![0; self.all_rows];
        for (row, count) in self.rows.iter().zip(plan) {
            counts[*row] = count * self.parts;
        }
        counts
    }
}

/// Maximum number of lengths by which plans are compared.
const SAMPLES_MAX: usize = 512;

fn samples(sorted: &[f64]) -> (Vec<f64>, f64) {
    let each = sorted.len().div_ceil(SAMPLES_MAX).max(1);
    let samples: Vec<f64> = sorted.iter().copied().step_by(each).collect();
    let weight = sorted.len() as f64 / samples.len().max(1) as f64;
    (samples, weight)
}
