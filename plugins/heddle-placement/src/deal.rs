//! Which ranks of the sorted list each group gets.
//!
//! Contiguous groups keep long programs apart from short ones (§5.2). But programs of one length
//! grow in step: their contexts fill a worker's memory and leave it at the same time, so that on
//! average only half of it is used. If it makes no group end later than the latest one, the groups
//! of shorter programs are dealt like cards, so that each gets some of every length. If there is
//! more work than the longest programs take by themselves, all groups are dealt.

use heddle_partition::{Load, Member, Pace, deal_evenly};

use crate::plan::Group;
use crate::workers::Kinds;

/// How much dealing may delay the latest end, as a share.
const SLACK: f64 = 0.01;

/// Gives each group its stretch of the list.
pub(crate) fn in_order(groups: &[Group]) -> Vec<Vec<usize>> {
    let mut from = 0;
    let stretch = |group: &Group| {
        from += group.size;
        (from - group.size..from).collect()
    };
    groups.iter().map(stretch).collect()
}

/// Gives the first groups their stretches, and as many of the others as possible a share of the
/// rest.
pub(crate) fn mixed(groups: &mut [Group], sorted: &[f64], kinds: &Kinds) -> Vec<Vec<usize>> {
    let stretches = in_order(groups);
    let end_us = |group: &Group, ranks: &[usize]| {
        let member = |&rank: &usize| Member {
            remaining: sorted[rank],
            context: kinds.context,
        };
        let members: Vec<Member> = ranks.iter().map(member).collect();
        kinds.end_us(group.worker as usize, &members, &[])
    };
    let latest = |groups: &[Group], ranks: &[Vec<usize>]| {
        let ends = groups
            .iter()
            .zip(ranks)
            .map(|(group, ranks)| end_us(group, ranks));
        ends.fold(0.0, f64::max)
    };
    let bound_us = latest(groups, &stretches) * (1.0 + SLACK);
    for first in 0..groups.len() {
        let dealt = dealt(&groups[first..], &stretches[first..]);
        if latest(&groups[first..], &dealt) <= bound_us {
            for (group, ranks) in groups[first..].iter_mut().zip(&dealt) {
                group.longest = ranks.first().map_or(0.0, |rank| sorted[*rank]);
                group.shortest = ranks.last().map_or(0.0, |rank| sorted[*rank]);
            }
            return [&stretches[..first], &dealt].concat();
        }
    }
    stretches
}

/// Whether the amount of work, rather than the longest program, determines the end of the rollout.
pub(crate) fn is_even(sorted: &[f64], kinds: &Kinds, most: f64) -> bool {
    let mut all = Load::default();
    for load in loads(sorted, kinds) {
        all.add(&load);
    }
    let workers: Vec<usize> = (0..kinds.of_worker.len()).collect();
    all.is_mostly_work(&paces(&workers, kinds), kinds.habits, most)
}

/// Gives each group some of every length, so that all end together.
pub(crate) fn evenly(groups: &mut [Group], sorted: &[f64], kinds: &Kinds) -> Vec<Vec<usize>> {
    let workers: Vec<usize> = groups.iter().map(|group| group.worker as usize).collect();
    let loads: Vec<Load> = loads(sorted, kinds).collect();
    let mut ranks = vec![Vec::new(); groups.len()];
    let dealt = deal_evenly(&paces(&workers, kinds), &loads, kinds.habits);
    for (rank, row) in dealt.into_iter().enumerate() {
        ranks[row].push(rank);
    }
    for (group, ranks) in groups.iter_mut().zip(&ranks) {
        group.size = ranks.len();
        // Later programs go to the group with the largest remaining share.
        group.longest = sorted.first().copied().unwrap_or(0.0);
        group.shortest = sorted.last().copied().unwrap_or(0.0);
    }
    ranks
}

fn loads<'a>(sorted: &'a [f64], kinds: &'a Kinds) -> impl Iterator<Item = Load> + 'a {
    sorted.iter().map(|&remaining| {
        let context = kinds.context;
        Load::of(Member { remaining, context }, kinds.habits)
    })
}

fn paces(workers: &[usize], kinds: &Kinds) -> Vec<Pace> {
    let pace = |worker: &usize| kinds.paces[kinds.of_worker[*worker]];
    workers.iter().map(pace).collect()
}

/// Deals the ranks of all stretches, longest first, each to the group that is furthest below its
/// share.
fn dealt(groups: &[Group], stretches: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut dealt: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
    for rank in stretches.iter().flatten() {
        let open = (0..groups.len()).filter(|&row| dealt[row].len() < groups[row].size);
        let share = |row: usize| (dealt[row].len() + 1) as f64 / groups[row].size as f64;
        let next = open.min_by(|&left, &right| share(left).total_cmp(&share(right)));
        if let Some(row) = next {
            dealt[row].push(*rank);
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(size: usize) -> Group {
        Group::of_size(0, size)
    }

    #[test]
    fn stretches_follow_one_another() {
        let groups = [group(2), group(0), group(3)];
        assert_eq!(in_order(&groups), [vec![0, 1], vec![], vec![2, 3, 4]]);
    }

    #[test]
    fn cards_are_dealt_by_shares_and_all_of_them() {
        let groups = [group(2), group(4)];
        let dealt = dealt(&groups, &in_order(&groups));
        assert_eq!(dealt, [vec![1, 4], vec![0, 2, 3, 5]]);
    }
}
