//! Shapes the groups of training runs.

use treadle_plugin::shaping::{RUNNING, TRUNCATED};
use treadle_plugin::{GroupColumns, MemberColumns, Policy, PolicyError, ShapingPolicy, Verdict};

treadle_plugin::config! {
    /// The keys of the configuration.
    pub struct Config {
        /// Members that each group samples beyond those it trains.
        spares: u32 = 2, 0..=1_024;
    }
}

/// Samples some members more than are trained, and trains the shortest that end first.
#[derive(Debug, Clone, Default)]
pub struct ShortestOfMore {
    config: Config,
}

impl Policy for ShortestOfMore {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self { config })
    }
}

impl ShapingPolicy for ShortestOfMore {
    const FUNCTIONS: &'static [&'static str] = &["size", "curtail", "select"];

    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let bounds = groups.size.iter().zip(groups.size_max);
        let sizes = bounds.map(|(&size, &most)| (size + self.config.spares).min(most));
        Ok(sizes.collect())
    }

    fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, PolicyError> {
        let mut verdicts = vec![Verdict::GoOn; members.len()];
        for (group, &size) in members.groups.size.iter().enumerate() {
            let running: Vec<usize> = members.in_state(group, RUNNING).collect();
            let ended = members.of_group(group).len() - running.len();
            if ended >= size as usize {
                for row in running {
                    verdicts[row] = Verdict::End;
                }
            }
        }
        Ok(verdicts)
    }

    fn select(&mut self, members: &MemberColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        let mut selected = vec![false; members.len()];
        for (group, &size) in members.groups.size.iter().enumerate() {
            let mut rows: Vec<usize> = members.of_group(group).collect();
            // What a limit ended counts as longest.
            rows.sort_by_key(|&row| (members.state[row] == TRUNCATED, members.tokens[row]));
            for row in rows.into_iter().take(size as usize) {
                selected[row] = true;
            }
        }
        Ok(selected)
    }
}

treadle_plugin::shaping_policy!(ShortestOfMore);
