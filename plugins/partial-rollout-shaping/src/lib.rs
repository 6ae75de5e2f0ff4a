//! Partial rollouts (Kimi k1.5, APRIL): members that are not done when a batch is cut run on under
//! the next weights, with the tokens that they have. treadle always does so within the job's
//! `lag_max`; this policy bounds over how many updates one member may run, and begins it again after
//! that.

use treadle_plugin::shaping::RUNNING;
use treadle_plugin::{GroupColumns, MemberColumns, Policy, PolicyError, ShapingPolicy, Verdict};

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Updates of the weights that a member may run over; after one more it begins again.
        updates_max: u32 = 1, 0..=1_000;
    }
}

/// The policy. It is stateless.
#[derive(Debug, Clone, Default)]
pub struct PartialRolloutShaping {
    config: Config,
}

impl Policy for PartialRolloutShaping {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl ShapingPolicy for PartialRolloutShaping {
    const FUNCTIONS: &'static [&'static str] = &["size", "curtail"];

    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        Ok(groups.size.to_vec())
    }

    fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, PolicyError> {
        let is_over = |row: usize| {
            members.state[row] == RUNNING && members.lag[row] > self.config.updates_max
        };
        let verdict = |row| {
            if is_over(row) {
                Verdict::Again
            } else {
                Verdict::GoOn
            }
        };
        Ok((0..members.len()).map(verdict).collect())
    }
}

treadle_plugin::shaping_policy!(PartialRolloutShaping);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Groups, Harness, Members};
    use treadle_plugin::random::SplitMix64;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}").shaping::<PartialRolloutShaping>();
    }

    #[test]
    fn a_member_begins_again_after_too_many_updates() {
        use Verdict::{Again, GoOn};
        let mut groups = Groups::draw(&mut SplitMix64::new(1), 1);
        (groups.size, groups.size_max) = (vec![4], vec![4]);
        let mut members = Members::draw(&mut SplitMix64::new(1), groups, &[4], false);
        members.group = vec![0; 4];
        (members.state, members.lag) = (vec![0, 0, 1, 0], vec![1, 2, 5, 0]);
        let mut policy = PartialRolloutShaping::default();
        let verdicts = policy.curtail(&members.columns()).unwrap();
        assert_eq!(verdicts, [GoOn, Again, GoOn, GoOn]);
    }
}
