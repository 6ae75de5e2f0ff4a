//! Redundant rollouts after `RollArt` §6.3: every group begins more members than are trained; once
//! enough have ended, the rest is cut. So neither a slow environment nor one that fails holds a
//! group up: a member that failed is only replaced if too few would be left.

use treadle_plugin::shaping::RUNNING;
use treadle_plugin::{GroupColumns, MemberColumns, Policy, PolicyError, ShapingPolicy, Verdict};

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Members that are sampled for each one that is trained; rounded up.
        ratio: f64 = 1.25, 1.0..=8.0;
    }
}

/// The policy. It is stateless.
#[derive(Debug, Clone, Default)]
pub struct UniformShaping {
    config: Config,
}

impl Policy for UniformShaping {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl ShapingPolicy for UniformShaping {
    const FUNCTIONS: &'static [&'static str] = &["size", "curtail"];

    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let of_group = |group: usize| {
            let sampled = f64::from(groups.size[group]) * self.config.ratio;
            // Nothing is added for a ratio that binary numbers don't have exactly.
            let sampled = (sampled - 1e-9).ceil() as u32;
            sampled.clamp(groups.size[group], groups.size_max[group])
        };
        Ok((0..groups.len()).map(of_group).collect())
    }

    fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, PolicyError> {
        let mut verdicts = vec![Verdict::GoOn; members.len()];
        for (group, size) in members.groups.size.iter().enumerate() {
            let running: Vec<usize> = members.in_state(group, RUNNING).collect();
            let ended = members.of_group(group).len() - running.len();
            if ended >= *size as usize {
                for row in running {
                    verdicts[row] = Verdict::End;
                }
            }
        }
        Ok(verdicts)
    }
}

treadle_plugin::shaping_policy!(UniformShaping);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Groups, Harness, Members};
    use treadle_plugin::random::SplitMix64;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}").shaping::<UniformShaping>();
        Harness::new(r#"{"ratio": 8}"#).shaping::<UniformShaping>();
    }

    #[test]
    fn the_ratio_is_rounded_up_and_kept_within_bounds() {
        let mut policy = UniformShaping::configure(r#"{"ratio": 1.1}"#).unwrap();
        let mut groups = Groups::draw(&mut SplitMix64::new(1), 3);
        (groups.size, groups.size_max) = (vec![10, 8, 8], vec![20, 16, 8]);
        assert_eq!(policy.size(&groups.columns()), Ok(vec![11, 9, 8]));
    }

    #[test]
    fn the_rest_is_cut_once_enough_have_ended() {
        let mut policy = UniformShaping::default();
        let mut groups = Groups::draw(&mut SplitMix64::new(1), 2);
        (groups.size, groups.size_max) = (vec![2, 2], vec![4, 4]);
        let mut members = Members::draw(&mut SplitMix64::new(1), groups, &[3, 3], false);
        (members.group, members.state) = (vec![0, 0, 0, 1, 1, 1], vec![1, 0, 2, 1, 0, 0]);
        members.tokens = vec![9; 6];
        let verdicts = policy.curtail(&members.columns()).unwrap();
        let mut expected = vec![Verdict::GoOn; 6];
        expected[1] = Verdict::End;
        assert_eq!(verdicts, expected);
    }
}
