//! Group filtered policy optimisation (GFPO): groups sample more members than are trained, and the
//! shortest are. All members run to their end.

use treadle_plugin::shaping::TRUNCATED;
use treadle_plugin::{GroupColumns, MemberColumns, Policy, PolicyError, ShapingPolicy};

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Members that are sampled for each one that is trained; rounded up.
        ratio: f64 = 2.0, 1.0..=8.0;
    }
}

/// The policy. It is stateless.
#[derive(Debug, Clone, Default)]
pub struct KeepShortestShaping {
    config: Config,
}

impl Policy for KeepShortestShaping {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl ShapingPolicy for KeepShortestShaping {
    const FUNCTIONS: &'static [&'static str] = &["size", "select"];

    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let of_group = |group: usize| {
            let sampled = f64::from(groups.size[group]) * self.config.ratio;
            let sampled = (sampled - 1e-9).ceil() as u32;
            sampled.clamp(groups.size[group], groups.size_max[group])
        };
        Ok((0..groups.len()).map(of_group).collect())
    }

    /// Members that a limit ended count as the longest.
    fn select(&mut self, members: &MemberColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        let mut selected = vec![false; members.len()];
        for (group, size) in members.groups.size.iter().enumerate() {
            let mut rows: Vec<usize> = members.of_group(group).collect();
            rows.sort_by_key(|row| {
                let limited = members.state[*row] == TRUNCATED;
                (limited, members.tokens[*row], *row)
            });
            for row in rows.into_iter().take(*size as usize) {
                selected[row] = true;
            }
        }
        Ok(selected)
    }
}

treadle_plugin::shaping_policy!(KeepShortestShaping);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Groups, Harness, Members};
    use treadle_plugin::random::SplitMix64;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}").shaping::<KeepShortestShaping>();
    }

    #[test]
    fn the_shortest_are_kept() {
        let mut policy = KeepShortestShaping::default();
        let mut groups = Groups::draw(&mut SplitMix64::new(1), 2);
        (groups.size, groups.size_max) = (vec![2, 1], vec![4, 2]);
        assert_eq!(policy.size(&groups.columns()), Ok(vec![4, 2]));
        let mut members = Members::draw(&mut SplitMix64::new(1), groups, &[4, 2], true);
        members.group = vec![0, 0, 0, 0, 1, 1];
        (members.state, members.tokens) = (vec![1, 2, 1, 1, 2, 2], vec![30, 5, 20, 30, 9, 8]);
        let selected = policy.select(&members.columns()).unwrap();
        assert_eq!(selected, [true, false, true, false, false, true]);
    }
}
