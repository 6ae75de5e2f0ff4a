//! Neighbours of a plan (§6.2): devices move between two workers, a worker is split
//! into smaller ones, or smaller ones are merged.

use treadle_plugin::random::SplitMix64;

use crate::cluster::Cluster;

/// A random neighbour; `None` if the plan has none of the drawn kind.
pub(crate) fn neighbour(
    cluster: &Cluster,
    plan: &[u32],
    random: &mut SplitMix64,
) -> Option<Vec<u32>> {
    let mut next = plan.to_vec();
    match below(random, 3) {
        0 => redistribute(cluster, &mut next, random)?,
        1 => split(cluster, &mut next, random)?,
        _ => merge(cluster, &mut next, random)?,
    }
    cluster.fill(&mut next);
    (next != plan).then_some(next)
}

fn below(random: &mut SplitMix64, bound: usize) -> usize {
    // The bound is far below 2^64, so the remainder is practically uniform.
    (random.next_u64() % bound.max(1) as u64) as usize
}

/// The degree of a random worker.
fn worker(plan: &[u32], random: &mut SplitMix64) -> Option<usize> {
    let workers: u32 = plan.iter().sum();
    let mut left = below(random, workers as usize) as u32;
    plan.iter().position(|&count| {
        let found = left < count;
        left = left.saturating_sub(count);
        found
    })
}

/// Two workers become two others with no more devices in total.
fn redistribute(cluster: &Cluster, plan: &mut [u32], random: &mut SplitMix64) -> Option<()> {
    for _ in 0..2 {
        plan[worker(plan, random)?] -= 1;
    }
    for _ in 0..2 {
        let left = cluster.left_over(plan);
        let fitting = cluster.degrees.partition_point(|degree| *degree <= left);
        if fitting > 0 {
            plan[below(random, fitting)] += 1;
        }
    }
    Some(())
}

/// A worker becomes several of a smaller degree.
fn split(cluster: &Cluster, plan: &mut [u32], random: &mut SplitMix64) -> Option<()> {
    let kinds = plan.iter().skip(1).filter(|count| **count > 0).count();
    let nth = below(random, kinds);
    let (large, _) = plan
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(_, count)| **count > 0)
        .nth(nth)?;
    let small = below(random, large);
    plan[large] -= 1;
    plan[small] += cluster.degrees[large] / cluster.degrees[small];
    Some(())
}

/// Workers of smaller degrees, the largest of them first, become one of a larger.
fn merge(cluster: &Cluster, plan: &mut [u32], random: &mut SplitMix64) -> Option<()> {
    let large = 1 + below(random, cluster.degrees.len().checked_sub(1)?);
    let needed = *cluster.degrees.get(large)?;
    let start = below(random, large);
    for small in (0..=start).rev().chain(start + 1..large) {
        while cluster.left_over(plan) < needed && plan[small] > 0 {
            plan[small] -= 1;
        }
    }
    if cluster.left_over(plan) < needed {
        return None;
    }
    plan[large] += 1;
    Some(())
}
