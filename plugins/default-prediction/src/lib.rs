//! The default prediction: what remained of the finished programs at the same stage.
//!
//! A stage is a range of finished LLM calls. For each stage the policy keeps a running
//! mean and 90th percentile of the tokens that remained, and the mean of the time in
//! tools, once for each prompt (group) and once for the whole job. A group's figures
//! count by how many programs they come from; the job's fill in with the weight of
//! `job_weight` programs, and what is configured with the weight of one.
//!
//! The groups learnt from last are kept, `groups_max` of them; a snapshot holds all
//! that was learnt.
//!
//! | key | meaning | default |
//! |---|---|---|
//! | `remaining_tokens` | guess before anything is learnt | 1000 |
//! | `remaining_tool_s` | the same for seconds in tools | 10 |
//! | `job_weight` | programs of a group that the whole job counts for | 4 |
//! | `memory` | after so many rows old ones begin to be forgotten | 256 |
//! | `groups_max` | groups that are remembered | 2048 |
//! | `extra` | names of the extra columns; they are not used | none |

mod config;
mod groups;
mod running;
mod saved;

pub use config::Config;

use treadle_plugin::{
    Estimates, FinishedColumns, LiveColumns, Policy, PolicyError, PredictionPolicy,
};

use groups::Groups;
use running::{Running, Stages, stage};

/// The policy and what it has learnt.
#[derive(Debug, Clone, Default)]
pub struct DefaultPrediction {
    config: Config,
    job: Stages,
    groups: Groups,
}

impl DefaultPrediction {
    /// With a configuration, and nothing learnt.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    fn estimate(&self, group: u64, steps: u32) -> Running {
        let guess = Running::guess(
            self.config.remaining_tokens,
            self.config.remaining_tool_s * 1_000.0,
        );
        let stage = stage(steps);
        let job = self.job[stage].filled_with(&guess, 1.0);
        match self.groups.get(group) {
            Some(of_group) => of_group[stage].filled_with(&job, self.config.job_weight),
            None => job,
        }
    }
}

impl Policy for DefaultPrediction {
    fn configure(json: &str) -> Result<Self, PolicyError> {
        Ok(Self::new(Config::parse(json)?))
    }

    fn snapshot(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(saved::write(&self.job, &self.groups))
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), PolicyError> {
        (self.job, self.groups) = saved::read(snapshot, self.config.groups_max as usize)?;
        Ok(())
    }
}

impl PredictionPolicy for DefaultPrediction {
    fn predict(&mut self, programs: &LiveColumns<'_>) -> Result<Estimates, PolicyError> {
        programs.check(self.config.extra.len())?;
        let mut estimates = Estimates::default();
        for (&group, &steps) in programs.group.iter().zip(programs.steps) {
            let expected = self.estimate(group, steps);
            estimates.remaining_tokens.push(expected.tokens);
            estimates
                .remaining_tokens_p90
                .push(expected.tokens_p90.max(expected.tokens));
            estimates.remaining_tool_s.push(expected.tool_ms / 1_000.0);
        }
        Ok(estimates)
    }

    fn learn(&mut self, programs: &FinishedColumns<'_>) -> Result<(), PolicyError> {
        programs.check(self.config.extra.len())?;
        let memory = f64::from(self.config.memory);
        for row in 0..programs.len() {
            let stage = stage(programs.steps[row]);
            let tokens = programs.remaining_tokens[row] as f64;
            let tool_ms = programs.remaining_tool_ms[row] as f64;
            let group = programs.group[row];
            let of_group = self.groups.touch(group, self.config.groups_max as usize);
            of_group[stage].add(tokens, tool_ms, memory);
            self.job[stage].add(tokens, tool_ms, memory);
        }
        Ok(())
    }
}

treadle_plugin::prediction_policy!(DefaultPrediction);

#[cfg(test)]
mod tests;
