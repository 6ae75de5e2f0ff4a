//! Tail batching after `RollPacker`: groups begin more members than are trained and take the first
//! that end. Prompts whose groups are not done when a batch could be cut without them are put off to
//! the end of the queue, where they run together, without redundancy and as long as they need.
//!
//! `RollPacker` samples one batch at a time. Here the next one has begun already, so a group must
//! also have run for as long as groups usually take.

use treadle_plugin::shaping::RUNNING;
use treadle_plugin::{GroupColumns, MemberColumns, Policy, PolicyError, ShapingPolicy, Verdict};

/// Weight of the newest group in the usual time.
const NEWEST: f64 = 0.05;

treadle_plugin::config! {
    /// Configuration of the policy.
    pub struct Config {
        /// Members that are sampled for each one that is trained; rounded up.
        ratio: f64 = 1.25, 1.0..=8.0;
        /// A group is put off only after this many times the usual time of a group; with 0, as soon
        /// as a batch could be cut without it.
        tail_factor: f64 = 1.0, 0.0..=100.0;
    }
}

/// The policy, and the usual time of a group.
#[derive(Debug, Clone, Default)]
pub struct TailBatchingShaping {
    config: Config,
    /// In milliseconds; 0 before any group ended.
    usual_ms: f64,
}

impl Policy for TailBatchingShaping {
    type Config = Config;

    fn with_config(config: Config) -> Result<Self, PolicyError> {
        Ok(Self {
            config,
            usual_ms: 0.0,
        })
    }

    fn snapshot(&self) -> Result<Vec<u8>, PolicyError> {
        Ok(self.usual_ms.to_le_bytes().into())
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), PolicyError> {
        let usual_ms = snapshot.try_into().map(f64::from_le_bytes);
        let usual_ms = usual_ms.ok().filter(|ms| (0.0..1e30).contains(ms));
        self.usual_ms = usual_ms.ok_or_else(|| {
            PolicyError::failed("the snapshot is no time in 8 bytes; start without it")
        })?;
        Ok(())
    }
}

/// The longest time of a group's members.
fn longest_ms(members: &MemberColumns<'_>, group: usize) -> u64 {
    let of_group = &members.elapsed_ms[members.of_group(group)];
    of_group.iter().copied().max().unwrap_or(0)
}

impl ShapingPolicy for TailBatchingShaping {
    const FUNCTIONS: &'static [&'static str] = &["size", "curtail", "select"];

    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        let of_group = |group: usize| {
            if groups.postponed[group] > 0 {
                return groups.size[group];
            }
            let sampled = f64::from(groups.size[group]) * self.config.ratio;
            let sampled = (sampled - 1e-9).ceil() as u32;
            sampled.clamp(groups.size[group], groups.size_max[group])
        };
        Ok((0..groups.len()).map(of_group).collect())
    }

    fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, PolicyError> {
        let mut verdicts = vec![Verdict::GoOn; members.len()];
        let can_do_without = members.ready_groups >= members.batch_groups;
        let tail_ms = self.usual_ms * self.config.tail_factor;
        for (group, size) in members.groups.size.iter().enumerate() {
            let running: Vec<usize> = members.in_state(group, RUNNING).collect();
            let all = members.of_group(group);
            let ended = all.len() - running.len();
            if ended >= *size as usize {
                for row in running {
                    verdicts[row] = Verdict::End;
                }
                continue;
            }
            let is_new = members.groups.postponed[group] == 0;
            if can_do_without && is_new && longest_ms(members, group) as f64 >= tail_ms {
                verdicts[all].fill(Verdict::Again);
            }
        }
        Ok(verdicts)
    }

    /// The first to end, by the time that they took: all begin together.
    fn select(&mut self, members: &MemberColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        let mut selected = vec![false; members.len()];
        for (group, size) in members.groups.size.iter().enumerate() {
            let mut rows: Vec<usize> = members.of_group(group).collect();
            rows.sort_by_key(|row| (members.elapsed_ms[*row], *row));
            rows.truncate(*size as usize);
            for row in &rows {
                selected[*row] = true;
            }
            let took = rows.last().map_or(0, |row| members.elapsed_ms[*row]) as f64;
            let weight = if self.usual_ms > 0.0 { NEWEST } else { 1.0 };
            self.usual_ms += weight * (took - self.usual_ms);
        }
        Ok(selected)
    }
}

treadle_plugin::shaping_policy!(TailBatchingShaping);

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::{Groups, Harness, Members};
    use treadle_plugin::random::SplitMix64;

    use super::*;

    #[test]
    fn every_answer_is_valid() {
        Harness::new("{}").shaping::<TailBatchingShaping>();
        Harness::new(r#"{"tail_factor": 0}"#).shaping::<TailBatchingShaping>();
    }

    /// Three groups of 2: one is done with a member to spare, one runs, one was put off before.
    fn members(elapsed_ms: u64) -> Members {
        let mut groups = Groups::draw(&mut SplitMix64::new(1), 3);
        (groups.size, groups.size_max) = (vec![2; 3], vec![4; 3]);
        groups.postponed = vec![0, 0, 1];
        let sizes = [3, 3, 2];
        let mut members = Members::draw(&mut SplitMix64::new(1), groups, &sizes, false);
        members.group = vec![0, 0, 0, 1, 1, 2];
        members.state = vec![1, 0, 1, 1, 0, 0];
        members.elapsed_ms = vec![10, 20, 12, 15, elapsed_ms, elapsed_ms];
        members
    }

    #[test]
    fn groups_in_the_tail_are_put_off_once() {
        use Verdict::{Again, End, GoOn};
        let mut policy = TailBatchingShaping::default();
        let over = Members {
            state: vec![1; 6],
            ..members(100)
        };
        let mut of_one = over.clone();
        of_one.group = vec![0, 0, 0, 1, 1, 2];
        policy.select(&of_one.columns()).unwrap();
        assert!(policy.usual_ms > 10.0, "{}", policy.usual_ms);
        let ask = |policy: &mut TailBatchingShaping, elapsed_ms, ready_groups| {
            let members = members(elapsed_ms);
            let columns = MemberColumns {
                ready_groups,
                batch_groups: 4,
                ..members.columns()
            };
            policy.curtail(&columns).unwrap()
        };
        let waits = [GoOn, End, GoOn, GoOn, GoOn, GoOn];
        assert_eq!(ask(&mut policy, 1_000, 3), waits, "no batch yet");
        let put_off = [GoOn, End, GoOn, Again, Again, GoOn];
        assert_eq!(ask(&mut policy, 1_000, 4), put_off);
        policy.usual_ms = 5_000.0;
        assert_eq!(ask(&mut policy, 1_000, 4), waits, "not long yet");
    }

    #[test]
    fn a_prompt_that_was_put_off_gets_no_redundancy() {
        let mut policy = TailBatchingShaping::default();
        let groups = members(1).groups;
        assert_eq!(policy.size(&groups.columns()), Ok(vec![3, 3, 2]));
    }
}
