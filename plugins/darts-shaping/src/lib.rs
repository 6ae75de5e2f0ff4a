//! DARTS: groups whose lengths spread sample more members than are trained, and of these the
//! shortest are trained, with a long one.
//!
//! * How many members all groups of a call sample: [`budget`].
//! * Which groups sample them: [`allocate`], by how much lengths of the same prompt spread before.
//! * Of a group that samples fewer than it may: dual-end sampling ([`choose::dual_end`]).
//! * Of a group that samples as many as it may: tail pruning. The shortest are trained, and what is
//!   not among them ends early ([`choose::stopped`]).
//!
//! Before anything is known of lengths, all groups sample equally many. The paper's cost model is in
//! [`cost`]; token-level streaming (appendix E) is no matter of a policy.

pub mod allocate;
pub mod budget;
pub mod choose;
mod config;
pub mod cost;
mod history;

pub use config::{Config, Stop};

use treadle_plugin::shaping::{COMPLETED, RUNNING, TRUNCATED};
use treadle_plugin::{GroupColumns, MemberColumns, Policy, PolicyError, ShapingPolicy, Verdict};

use allocate::Bounds;
use choose::Ended;
use history::{History, Moments};

/// The policy, and what it knows of lengths.
#[derive(Debug, Clone)]
pub struct DartsShaping {
    config: Config,
    history: History,
}

impl Default for DartsShaping {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl DartsShaping {
    /// A policy that knows no lengths.
    pub fn new(config: Config) -> Self {
        Self {
            history: History::new(&config),
            config,
        }
    }
}

/// The most that a group samples: twice what it trains, or less.
fn most(groups: &GroupColumns<'_>, group: usize) -> u32 {
    let twice = groups.size[group].saturating_mul(2);
    groups.size_max[group].min(twice)
}

/// A group that samples as many as it may, and more than are trained, is pruned.
fn is_pruned(groups: &GroupColumns<'_>, group: usize) -> bool {
    let sampled = groups.sampled[group];
    sampled > groups.size[group] && sampled >= most(groups, group)
}

fn ended(members: &MemberColumns<'_>, row: usize) -> Ended {
    Ended {
        tokens: members.tokens[row],
        limited: members.state[row] == TRUNCATED,
    }
}

impl Policy for DartsShaping {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self::new(config))
    }

    fn snapshot(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(self.history.write())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), PolicyError> {
        self.history = History::read(snapshot, &self.config)?;
        Ok(())
    }
}

impl ShapingPolicy for DartsShaping {
    const FUNCTIONS: &'static [&'static str] = &["size", "curtail", "select"];

    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        self.history.close_batch(&self.config);
        let bounds: Vec<Bounds> = (0..groups.len())
            .map(|group| Bounds {
                low: groups.size[group],
                up: most(groups, group),
            })
            .collect();
        let trained: u64 = bounds.iter().map(|of| u64::from(of.low)).sum();
        let up: u64 = bounds.iter().map(|of| u64::from(of.up)).sum();
        let spread = self.history.spread();
        let total = budget::budget(trained, up, self.config.ratio, spread);
        let deviation = |group| {
            self.history
                .deviation(groups.prompt[group], groups.domain[group])
        };
        let deviations: Vec<f64> = (0..groups.len()).map(deviation).collect();
        let weights = allocate::weights(&deviations);
        Ok(allocate::allocate(&weights, &bounds, total))
    }

    fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, PolicyError> {
        let mut verdicts = vec![Verdict::GoOn; members.len()];
        let groups = &members.groups;
        for group in (0..groups.len()).filter(|group| is_pruned(groups, *group)) {
            let over = members.in_state(group, COMPLETED);
            let over: Vec<Ended> = over.map(|row| ended(members, row)).collect();
            let rows: Vec<usize> = members.in_state(group, RUNNING).collect();
            let tokens: Vec<u64> = rows.iter().map(|row| members.tokens[*row]).collect();
            let size = groups.size[group] as usize;
            let stops = choose::stopped(self.config.early_stop.rule(), &over, &tokens, size);
            for (row, _) in rows.iter().zip(stops).filter(|(_, stops)| *stops) {
                verdicts[*row] = Verdict::End;
            }
        }
        Ok(verdicts)
    }

    fn select(&mut self, members: &MemberColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        let mut selected = vec![false; members.len()];
        let groups = &members.groups;
        for group in 0..groups.len() {
            let rows = members.of_group(group);
            let lengths = Moments::of(members.tokens[rows.clone()].iter().copied());
            let (prompt, domain) = (groups.prompt[group], groups.domain[group]);
            self.history.learn(prompt, domain, lengths, &self.config);
            let candidates: Vec<Ended> = rows.clone().map(|row| ended(members, row)).collect();
            let size = groups.size[group] as usize;
            let chosen = if is_pruned(groups, group) {
                choose::shortest(&candidates, size)
            } else {
                choose::dual_end(&candidates, size, self.config.long as usize)
            };
            for at in chosen {
                selected[rows.start + at] = true;
            }
        }
        Ok(selected)
    }
}

treadle_plugin::shaping_policy!(DartsShaping);

#[cfg(test)]
mod tests;
