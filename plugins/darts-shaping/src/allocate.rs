//! Adaptive redundancy allocation (DARTS §4.2.2, algorithm 1): which groups sample the members of
//! the budget.
//!
//! The sum of `w / members` over groups is minimised. Each member goes where it lowers the sum most,
//! which is optimal as the terms are convex; a heap finds that place.

use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// The bounds of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Members that it samples at least.
    pub low: u32,
    /// Members that it samples at most.
    pub up: u32,
}

/// Weights from 0 to 1 of standard deviations of lengths; 1 for all if all are equal.
pub fn weights(deviations: &[f64]) -> Vec<f64> {
    let least = deviations.iter().copied().fold(f64::INFINITY, f64::min);
    let most = deviations.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let range = most - least;
    let weight = |deviation: &f64| (deviation - least) / range;
    if range > 0.0 && range.is_finite() {
        deviations.iter().map(weight).collect()
    } else {
        vec![1.0; deviations.len()]
    }
}

/// By how much one more member lowers a group's term of the sum.
pub fn gain(weight: f64, members: u32) -> f64 {
    weight / (f64::from(members) * (f64::from(members) + 1.0))
}

/// A group's place in the heap: the larger gain first, and of equal gains the first group.
fn place(weight: f64, members: u32, row: u32) -> u128 {
    // Bits of numbers that are not negative are in the order of the numbers.
    let gain = gain(weight.max(0.0), members).to_bits();
    u128::from(gain) << 32 | u128::from(!row)
}

/// Members of each group, `total` together if the bounds allow it. Of equal gains the first group's
/// wins; groups with weight 0 get more only when all others are full.
pub fn allocate(weights: &[f64], bounds: &[Bounds], total: u64) -> Vec<u32> {
    let mut members: Vec<u32> = bounds.iter().map(|of| of.low).collect();
    let least: u64 = members.iter().map(|of| u64::from(*of)).sum();
    let mut left = total.saturating_sub(least);
    let rows = (0_u32..).zip(weights.iter().zip(bounds));
    let open = rows.filter(|(_, (_, of))| of.low < of.up);
    let open = open.map(|(row, (weight, of))| place(*weight, of.low, row));
    let mut open: BinaryHeap<_> = open.collect();
    while left > 0
        && let Some(mut first) = open.peek_mut()
    {
        let row = !(*first as u32) as usize;
        members[row] += 1;
        left -= 1;
        if members[row] < bounds[row].up {
            *first = place(weights[row], members[row], row as u32);
        } else {
            PeekMut::pop(first);
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shared_out(deviations: &[f64], total: u64) -> Vec<u32> {
        let bounds = vec![Bounds { low: 8, up: 16 }; deviations.len()];
        allocate(&weights(deviations), &bounds, total)
    }

    #[test]
    fn known_allocations() {
        let rising = [100.0, 200.0, 300.0, 400.0];
        assert_eq!(shared_out(&rising, 48), [8, 10, 14, 16]);
        assert_eq!(shared_out(&rising, 40), [8, 8, 11, 13]);
        assert_eq!(shared_out(&rising, 36), [8, 8, 9, 11]);
        let one = [100.0, 100.0, 100.0, 900.0];
        assert_eq!(shared_out(&one, 40), [8, 8, 8, 16]);
        let steep = [0.0, 50.0, 100.0, 1_000.0];
        assert_eq!(shared_out(&steep, 48), [8, 10, 14, 16]);
        let powers = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
        let given = shared_out(&powers, 96);
        assert_eq!(given, [8, 8, 8, 10, 14, 16, 16, 16]);
        let objective = sum(&weights(&rising), &[8, 8, 11, 13]);
        assert!((objective - 0.179_196).abs() < 5e-7, "{objective}");
    }

    #[test]
    fn equal_groups_share_equally_and_the_first_get_the_rest() {
        assert_eq!(shared_out(&[7.0; 4], 38), [10, 10, 9, 9]);
        assert_eq!(shared_out(&[7.0], 100), [16]);
        assert!(shared_out(&[], 100).is_empty());
        assert_eq!(shared_out(&[1.0, 2.0], 3), [8, 8], "no less than the least");
    }

    fn sum(weights: &[f64], members: &[u32]) -> f64 {
        let terms = weights.iter().zip(members);
        terms.map(|(weight, of)| weight / f64::from(*of)).sum()
    }

    /// Algorithm 1 as the paper has it: the largest gain of all, each time.
    fn greedy(weights: &[f64], bounds: &[Bounds], total: u64) -> Vec<u32> {
        let mut members: Vec<u32> = bounds.iter().map(|of| of.low).collect();
        while members.iter().map(|of| u64::from(*of)).sum::<u64>() < total {
            let mut best: Option<usize> = None;
            for row in 0..members.len() {
                let of = |row: usize| gain(weights[row], members[row]);
                let is_better = best.is_none_or(|best| of(row) > of(best));
                if members[row] < bounds[row].up && is_better {
                    best = Some(row);
                }
            }
            let Some(row) = best else { break };
            members[row] += 1;
        }
        members
    }

    /// The least sum of all allocations of `total` to the rows from `row` on.
    fn least_sum(weights: &[f64], bounds: &[Bounds], total: u64) -> f64 {
        let (Some((weight, weights)), Some((of, bounds))) =
            (weights.split_first(), bounds.split_first())
        else {
            return if total == 0 { 0.0 } else { f64::INFINITY };
        };
        let choices = (of.low..=of.up).filter(|members| u64::from(*members) <= total);
        let sums = choices.map(|members| {
            let rest = least_sum(weights, bounds, total - u64::from(members));
            weight / f64::from(members) + rest
        });
        sums.fold(f64::INFINITY, f64::min)
    }

    fn groups() -> impl Strategy<Value = (Vec<f64>, Vec<Bounds>, u64)> {
        let group = (0_u32..50, 1_u32..6, 0_u32..6);
        prop::collection::vec(group, 1..6).prop_flat_map(|groups| {
            let deviations = groups.iter().map(|(of, _, _)| f64::from(*of)).collect();
            let bounds = groups.iter().map(|(_, low, more)| Bounds {
                low: *low,
                up: low + more,
            });
            let bounds: Vec<Bounds> = bounds.collect();
            let low: u64 = bounds.iter().map(|of| u64::from(of.low)).sum();
            let up: u64 = bounds.iter().map(|of| u64::from(of.up)).sum();
            (Just(deviations), Just(bounds), low..=up)
        })
    }

    proptest! {
        #[test]
        fn the_heap_is_the_greedy_algorithm_and_optimal((deviations, bounds, total) in groups()) {
            let weights = weights(&deviations);
            let given = allocate(&weights, &bounds, total);
            prop_assert_eq!(&given, &greedy(&weights, &bounds, total));
            let given_total: u64 = given.iter().map(|of| u64::from(*of)).sum();
            prop_assert_eq!(given_total, total);
            let least = least_sum(&weights, &bounds, total);
            prop_assert!(sum(&weights, &given) <= least + 1e-12);
        }
    }
}
