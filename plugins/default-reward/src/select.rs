//! Which finished programs are trained on.

use std::collections::{BTreeMap, VecDeque};

use treadle_plugin::CandidateColumns;

/// The programs of a group, in the order in which they are taken.
struct Group {
    rows: VecDeque<usize>,
    /// Whether the rewards are all the same.
    flat: bool,
    /// Staleness of the freshest.
    staleness: u32,
}

/// Rows, best first, at most `wanted`.
pub(crate) fn select(staleness_max: Option<u32>, programs: &CandidateColumns<'_>) -> Vec<u32> {
    let mut members: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for row in 0..programs.len() {
        if staleness_max.is_none_or(|max| programs.staleness[row] <= max) {
            members.entry(programs.group[row]).or_default().push(row);
        }
    }
    let mut groups: Vec<Group> = members
        .into_values()
        .map(|rows| Group::of(programs, rows))
        .collect();
    // Stable: among equals the group with the smaller number.
    groups.sort_by_key(|group| (group.flat, group.staleness));
    let flat = groups.partition_point(|group| !group.flat);
    let wanted = programs.wanted as usize;
    let mut chosen = Vec::new();
    let (differing, equal) = groups.split_at_mut(flat);
    take_in_turn(differing, wanted, &mut chosen);
    take_in_turn(equal, wanted, &mut chosen);
    chosen
}

impl Group {
    fn of(programs: &CandidateColumns<'_>, mut rows: Vec<usize>) -> Self {
        // Fresh first, among equally fresh ones the shorter.
        rows.sort_by_key(|&row| (programs.staleness[row], programs.output_tokens[row], row));
        let reward = |row: &usize| programs.reward[*row];
        let best = rows.iter().map(reward).fold(f64::NEG_INFINITY, f64::max);
        let worst = rows.iter().map(reward).fold(f64::INFINITY, f64::min);
        let staleness = programs.staleness[rows[0]];
        let middle = f64::midpoint(best, worst);
        let (high, low): (Vec<usize>, Vec<usize>) =
            rows.into_iter().partition(|row| reward(row) > middle);
        Self {
            rows: alternate(high, low),
            flat: best <= worst,
            staleness,
        }
    }
}

/// One of each in turn, so that any few of them differ.
fn alternate(high: Vec<usize>, low: Vec<usize>) -> VecDeque<usize> {
    let mut rows = VecDeque::with_capacity(high.len() + low.len());
    let (mut high, mut low) = (high.into_iter(), low.into_iter());
    loop {
        let pair = (high.next(), low.next());
        if pair == (None, None) {
            return rows;
        }
        rows.extend(pair.0);
        rows.extend(pair.1);
    }
}

/// One row of each group in turn until there are enough or none are left.
fn take_in_turn(groups: &mut [Group], wanted: usize, chosen: &mut Vec<u32>) {
    loop {
        let before = chosen.len();
        for group in &mut *groups {
            if chosen.len() >= wanted {
                return;
            }
            chosen.extend(group.rows.pop_front().map(|row| row as u32));
        }
        if chosen.len() == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use treadle_plugin::harness::Candidates;
    use treadle_plugin::random::SplitMix64;

    use super::*;

    fn chosen(group: &[u64], reward: &[f64], staleness: &[u32], wanted: u32) -> Vec<u32> {
        let programs = CandidateColumns {
            group,
            reward,
            staleness,
            output_tokens: &vec![1; group.len()],
            wanted,
            extra: &[],
        };
        select(None, &programs)
    }

    #[test]
    fn groups_whose_rewards_differ_go_first_and_share_evenly() {
        let group = [1, 1, 2, 2, 3, 3];
        let reward = [1.0, 1.0, 0.0, 1.0, 1.0, 0.0];
        assert_eq!(chosen(&group, &reward, &[0; 6], 2), [3, 4]);
        assert_eq!(chosen(&group, &reward, &[0; 6], 4), [3, 4, 2, 5]);
        assert_eq!(chosen(&group, &reward, &[0; 6], 9), [3, 4, 2, 5, 0, 1]);
    }

    #[test]
    fn fresh_programs_and_fresh_groups_go_first() {
        let reward = [1.0, 0.0, 1.0, 0.0, 1.0];
        assert_eq!(
            chosen(&[1, 1, 2, 2, 2], &reward, &[3, 3, 2, 5, 1], 5),
            [4, 0, 3, 1, 2]
        );
    }

    #[test]
    fn what_is_too_old_is_left() {
        let programs = CandidateColumns {
            group: &[1, 1],
            reward: &[0.0, 1.0],
            staleness: &[2, 3],
            output_tokens: &[1, 1],
            wanted: 2,
            extra: &[],
        };
        assert_eq!(select(Some(2), &programs), [0]);
    }

    #[test]
    fn all_are_selected_when_all_are_wanted() {
        let mut random = SplitMix64::new(9);
        for rows in 0..100 {
            let table = Candidates::draw(&mut random, rows, 0);
            let mut chosen = select(
                None,
                &CandidateColumns {
                    wanted: u32::MAX,
                    ..table.columns()
                },
            );
            chosen.sort_unstable();
            assert_eq!(chosen, (0..rows as u32).collect::<Vec<_>>());
        }
    }
}
