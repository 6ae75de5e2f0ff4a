//! Progressive prediction after Heddle §4.1: an estimate before the first step, refined after each
//! step.
//!
//! Heddle fine-tunes a small language model on the programs' texts; this policy only has columns:
//! how much a program has generated and how evenly, how its tool calls went, the totals of finished
//! programs with the same prompt, and how far programs with the same prompt are ahead of others. A
//! ridge regression learns online, from each finished program at each of its steps, the logarithms
//! of the remaining tokens and tool time; there is one regression per stage (finished steps, and
//! whether the tool has returned), regularised towards one for all stages. The means follow from
//! the errors of earlier estimates, and so does the 90th percentile: the spread of a stage's errors
//! is its uncertainty.
//!
//! The total of a program that was aborted or has expired is only a lower bound, and the regression
//! learns it as such, so that the longest programs, which are cut short most often, do not count as
//! short ones.
//!
//! It also learns from calls: observations of a group's programs before any of them has finished
//! inform predictions of the others. Repeated calls change nothing, nor does the order of the rows.

mod config;
mod features;
mod groups;
mod model;
mod rows;
mod saved;
mod views;

pub use config::Config;

use treadle_plugin::recent::Recent;
use treadle_plugin::{
    Estimates, FinishedColumns, LiveColumns, Policy, PolicyError, PredictionPolicy,
};

use features::{Common, GroupView, TOKENS_SOFT, features, group_view, so_far};
use groups::{Group, Observation};
use model::{Model, Rest, STAGES};
use rows::Row;
use views::{ViewHistory, no_views};

/// Number of programs that common figures are averaged over.
const COMMON_MEMORY: f64 = 4_096.0;

/// The policy and what it has learnt.
#[derive(Debug, Clone)]
pub struct HeddlePrediction {
    config: Config,
    model: Model,
    common: Common,
    view_history: ViewHistory,
    groups: Recent<u64, Group>,
}

impl Default for HeddlePrediction {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl HeddlePrediction {
    /// A policy that has learnt nothing.
    pub fn new(config: Config) -> Self {
        Self {
            model: Self::empty(&config),
            common: Common::default(),
            view_history: no_views(),
            groups: Recent::new(config.groups_max as usize),
            config,
        }
    }

    fn empty(config: &Config) -> Model {
        Model::new(config.remaining_tokens, config.remaining_tool_s * 1_000.0)
    }

    /// Records the progress of live programs, for others of their groups. Each program counts once
    /// after each step, however often it is in a call.
    fn observe(&mut self, rows: &[Row]) {
        // What is new when a tool has returned counts with the next step.
        let is_new = |row: &&Row| {
            row.steps == 0 || (!row.returned && self.view_history.get(&row.digest()).is_none())
        };
        let mut new: Vec<(u64, u64, &Row)> = rows
            .iter()
            .filter(is_new)
            .map(|row| (row.group, row.digest(), row))
            .collect();
        new.sort_unstable_by_key(|(group, digest, _)| (*group, *digest));
        new.dedup_by_key(|(group, digest, _)| (*group, *digest));
        let mut stages = [(0.0, 0.0); STAGES];
        for (_, _, row) in new.iter().filter(|(_, _, row)| row.steps > 0) {
            let (sum, count) = &mut stages[row.stage()];
            *sum += so_far(row);
            *count += 1.0;
        }
        for (mean, (sum, count)) in self.common.so_far.iter_mut().zip(stages) {
            mean.add(sum, count, COMMON_MEMORY);
        }
        for of_group in new.chunk_by(|a, b| a.0 == b.0) {
            self.observe_group(of_group[0].0, of_group.iter().map(|(_, _, row)| *row));
        }
    }

    fn observe_group<'r>(&mut self, number: u64, rows: impl Iterator<Item = &'r Row>) {
        let group = self.groups.touch(number);
        for row in rows {
            if row.steps <= 1 {
                group.begin(f64::from(self.config.group_memory));
            }
            if row.steps == 0 {
                continue;
            }
            let ahead = so_far(row) - self.common.so_far[row.stage()].value;
            group.see(Observation::new(ahead, row.last_tool_ok));
            if let Some(ok) = row.last_tool_ok {
                let failed = f64::from(u8::from(!ok));
                self.common.failed.add(failed, 1.0, COMMON_MEMORY);
            }
        }
        group.summarise();
    }

    fn view(&self, row: &Row, unknown: &Group) -> GroupView {
        let group = self.groups.get(&row.group).unwrap_or(unknown);
        group_view(group, &self.common)
    }
}

impl Policy for HeddlePrediction {
    type Config = Config;

    const COLUMNS: &'static [&'static str] = &rows::COLUMNS;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self::new(config))
    }

    fn snapshot(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(saved::write(
            &self.model,
            &self.common,
            &self.view_history,
            &self.groups,
        ))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), PolicyError> {
        let empty = Self::empty(&self.config);
        let groups_max = self.config.groups_max as usize;
        (self.model, self.common, self.view_history, self.groups) =
            saved::read(snapshot, empty, groups_max)?;
        Ok(())
    }
}

impl PredictionPolicy for HeddlePrediction {
    const FUNCTIONS: &'static [&'static str] = &["predict", "learn"];

    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError> {
        let rows: Vec<Row> = (0..programs.len())
            .map(|index| Row::live(programs, index))
            .collect();
        self.observe(&rows);
        let column = || Vec::with_capacity(rows.len());
        let mut estimates = Estimates {
            remaining_tokens: column(),
            remaining_tokens_p90: column(),
            remaining_tool_s: column(),
        };
        let unknown = Group::default();
        let mut views = Vec::with_capacity(rows.len());
        for row in &rows {
            let view = self.view(row, &unknown);
            let estimate = self.model.estimate(row.stage(), &features(row, &view));
            estimates.remaining_tokens.push(estimate.tokens);
            estimates.remaining_tokens_p90.push(estimate.tokens_p90);
            estimates.remaining_tool_s.push(estimate.tool_ms / 1_000.0);
            views.push((row.digest(), view));
        }
        // In an order that is independent of the rows'.
        views.sort_unstable_by_key(|(digest, _)| *digest);
        for (digest, view) in views {
            self.view_history.insert(digest, view);
        }
        Ok(estimates)
    }

    fn learn(&mut self, programs: &FinishedColumns<'_>) -> Result<(), PolicyError> {
        let memory = f64::from(self.config.memory);
        let unknown = Group::default();
        // With the features at the time of the prediction, else those before any of these programs:
        // the outcome of a program must not help to estimate it.
        let learnt = (0..programs.len()).map(|index| {
            let row = Row::finished(programs, index);
            let look = self.view_history.get(&row.digest()).copied();
            let view = look.unwrap_or_else(|| self.view(&row, &unknown));
            let rest = Rest {
                tokens: programs.remaining_tokens[index] as f64,
                tool_ms: programs.remaining_tool_ms[index] as f64,
                is_cut_short: row.is_cut_short,
            };
            let seen = features(&row, &view);
            row.output_tokens + self.model.learn(row.stage(), &seen, rest, memory)
        });
        let learnt: Vec<f64> = learnt.collect();
        let memory = f64::from(self.config.group_memory);
        for program in programs.programs() {
            // The latest row of a program that was cut short guesses least.
            let total = learnt[program.end - 1];
            let total = treadle_plugin::exact::log2(total + TOKENS_SOFT);
            self.common.total.add(total, 1.0, COMMON_MEMORY);
            let group = self.groups.touch(programs.group[program.start]);
            group.fresh.add(total, 1.0, memory);
        }
        self.model.refit();
        Ok(())
    }
}

treadle_plugin::prediction_policy!(HeddlePrediction);

#[cfg(test)]
mod tests;
