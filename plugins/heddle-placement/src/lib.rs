//! Heddle's trajectory-aware placement (§5): keeps long programs apart from short ones, by the
//! exact partition of `heddle-partition`, corrected as predictions change.
//!
//! **New programs.** A call with at least half as many programs as were seen so far is the
//! beginning of a rollout: it is partitioned over the workers, the fastest first, taking their
//! running steps into account. Programs that come later, a few at a time, go to the group with
//! similar lengths; the plan is renewed whenever the number of programs has doubled.
//!
//! **Moves.** `"makespan"` moves the longest acting programs of the worker that ends last, or its
//! shortest ones, to where they end sooner, as long as that makes this end earlier by a share of
//! `gain`: a program that has moved has no reason to move back. `"scaled"` is the paper's rule
//! (§5.3): ranks in the current order of lengths, with the plan's group sizes scaled to the
//! remaining programs, and `gain` as the distance in rank, as a share of all programs, by which a
//! program must be out of its group.
//!
//! With `"fluid"` the groups of shorter programs are mixed if no worker ends later because of it:
//! programs of one length would fill the memory and leave it at the same time.
//!
//! `"mixed"` is `"fluid"` if the longest programs determine the end of a rollout. If the amount of
//! work does, every worker gets some of each length, so that all end together, and moves even out
//! programs and contexts as if all had the same remaining length: an unexpectedly long program then
//! finds its worker no fuller than another.
//!
//! Programs that prefer a class of hardware go to it while it has room: to the worker of their plan if
//! that is of their class, otherwise to the least loaded one of it. They return to it if that pays.
//!
//! Steps are not routed: a program stays where it is, with its cache.

mod config;
mod deal;
mod makespan;
mod plan;
mod scaled;
mod speed;
mod workers;

pub use config::{Class, Config, Migrate, Objective, Order};

use treadle_plugin::affinity::{prefer_classes, return_to_classes};
use treadle_plugin::{AssignColumns, MigrateColumns, PlacementPolicy, Policy, PolicyError};

use plan::Plan;
use speed::habits;
use workers::Kinds;

/// Predictions are cut to this many tokens.
const REMAINING_TOKENS_MAX: f64 = 1e12;

/// The policy. It stores the plan, and the lengths that it was made for.
#[derive(Debug, Clone, Default)]
pub struct HeddlePlacement {
    /// The configuration.
    pub config: Config,
    plan: Option<Plan>,
}

impl HeddlePlacement {
    /// Remaining tokens of each program.
    fn lengths(&self, remaining_tokens: &[f64]) -> Vec<f64> {
        remaining_tokens
            .iter()
            .map(|&tokens| {
                let known = tokens >= 0.0;
                let tokens = if known {
                    tokens
                } else {
                    self.config.default_tokens
                };
                heddle_partition::length(tokens.min(REMAINING_TOKENS_MAX))
            })
            .collect()
    }
}

impl Policy for HeddlePlacement {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config, plan: None })
    }

    fn snapshot(&self) -> Result<Vec<u8>, PolicyError> {
        let Some(plan) = &self.plan else {
            return Ok(Vec::new());
        };
        serde_json::to_vec(plan).map_err(|error| PolicyError::failed(error.to_string()))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), PolicyError> {
        let plan: Plan = serde_json::from_slice(snapshot)
            .map_err(|error| PolicyError::invalid_input(error.to_string()))?;
        self.plan = Some(plan.checked()?);
        Ok(())
    }
}

impl PlacementPolicy for HeddlePlacement {
    const FUNCTIONS: &'static [&'static str] = &["assign", "migrate"];

    fn assign(&mut self, programs: &AssignColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        if programs.workers.is_empty() {
            return Err(PolicyError::invalid_input(
                "there are no workers; add one first",
            ));
        }
        let lengths = self.lengths(programs.remaining_tokens);
        let plan = self
            .plan
            .take()
            .filter(|plan| plan.is_for(programs.workers.capacity_tokens));
        let (plan, mut places) = plan::assign(&self.config, plan, programs, &lengths);
        self.plan = Some(plan);
        prefer_classes(programs, &mut places);
        Ok(places)
    }

    fn migrate(&mut self, programs: &MigrateColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let lengths = self.lengths(programs.remaining_tokens);
        let (workers, rows) = (&programs.workers, lengths.len());
        let habits = habits(&self.config, programs.growth, programs.tool_us);
        let kinds = Kinds::of(
            &self.config,
            workers,
            programs.tokens,
            habits,
            &lengths,
            rows,
        );
        let plan = self
            .plan
            .as_ref()
            .filter(|plan| plan.is_for(programs.workers.capacity_tokens));
        let mut places = match self.config.migrate {
            Migrate::Never => programs.at_worker.to_vec(),
            Migrate::Scaled => scaled::migrate(&self.config, plan, programs, &lengths, &kinds),
            Migrate::Makespan if plan.is_some_and(|plan| plan.even) => {
                let alike = vec![lengths.iter().sum::<f64>() / rows.max(1) as f64; rows];
                makespan::migrate(&self.config, programs, &alike, &kinds)
            }
            Migrate::Makespan => makespan::migrate(&self.config, programs, &lengths, &kinds),
        };
        if self.config.migrate != Migrate::Never {
            return_to_classes(programs, &mut places, self.config.moves_max as usize);
        }
        Ok(places)
    }
}

treadle_plugin::placement_policy!(HeddlePlacement);

#[cfg(test)]
mod tests;
