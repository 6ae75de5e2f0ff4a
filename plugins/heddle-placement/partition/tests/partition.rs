//! The search against the paper's dynamic program and against every assignment.

use heddle_partition::{
    Drained, Interference, Objective, Paper, Partition, Probe, Run, Units, level, partition,
    partition_any_order, probe, reference,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// A kind of worker: time per token, steps of its factor, programs that it runs anyway,
/// how many there are.
type Kind = (u32, Vec<u32>, usize, usize);

fn kind() -> impl Strategy<Value = Kind> {
    (1..50_u32, vec(0..40_u32, 1..5), 0..4_usize, 0..4_usize)
}

/// Few different lengths, so that many are equal, or any.
fn lengths(most: usize) -> impl Strategy<Value = Vec<f64>> {
    let length = prop_oneof![1..6_u32, 1..100_000_u32];
    vec(length, 0..=most).prop_map(|mut lengths| {
        lengths.sort_unstable_by(|left, right| right.cmp(left));
        lengths.into_iter().map(f64::from).collect()
    })
}

fn units(kinds: &[Kind], programs: usize) -> Vec<Units> {
    let of = |(token, rises, offset, _): &Kind| {
        let mut factor = 1.0;
        let points: Vec<(u32, f64)> = rises
            .iter()
            .enumerate()
            .map(|(point, rise)| {
                factor += f64::from(*rise) / 7.0;
                (3 * point as u32 + 2, factor)
            })
            .collect();
        let profile = Interference::new(&points).unwrap();
        Units::new(f64::from(*token) / 3.0, &profile, programs + offset)
    };
    kinds.iter().map(of).collect()
}

fn runs<'u>(kinds: &[Kind], units: &'u [Units]) -> Vec<Run<'u>> {
    let rows = kinds.iter().zip(units);
    rows.map(|((_, _, offset, count), units)| Run {
        units,
        offset: *offset,
        count: *count,
    })
    .collect()
}

/// The latest end of a split, from the groups themselves.
fn latest_us<O: Objective>(lengths: &[f64], runs: &[Run<'_>], sizes: &[usize]) -> f64 {
    let workers = runs
        .iter()
        .flat_map(|run| (0..run.count).map(|_| run.units.after(run.offset)));
    let (mut from, mut latest) = (0, 0.0_f64);
    for (units, &size) in workers.zip(sizes) {
        latest = latest.max(O::end_us(&lengths[from..], size, units));
        from += size;
    }
    assert_eq!(from, lengths.len());
    latest
}

fn is_the_best<O: Objective>(lengths: &[f64], runs: &[Run<'_>]) -> Option<Partition> {
    let found = partition::<O>(lengths, runs);
    let dynamic_us = if lengths.is_empty() {
        Some(0.0)
    } else {
        reference::makespan_us::<O>(lengths, runs)
    };
    // To the last bit.
    assert_eq!(
        found.as_ref().map(|found| found.makespan_us.to_bits()),
        dynamic_us.map(f64::to_bits),
        "{found:?} {dynamic_us:?}"
    );
    let found = found?;
    let workers: usize = runs.iter().map(|run| run.count).sum();
    assert_eq!(found.sizes.len(), workers);
    assert!((latest_us::<O>(lengths, runs, &found.sizes) - found.makespan_us).abs() < 1e-9);
    if !lengths.is_empty() {
        let below = found.makespan_us * (1.0 - 1e-12);
        assert!(matches!(
            probe::<O>(lengths, runs, below),
            Probe::TooMuch(_)
        ));
    }
    let even = level::<O>(lengths, runs).unwrap();
    assert_eq!(even.makespan_us.to_bits(), found.makespan_us.to_bits());
    let latest_us = latest_us::<O>(lengths, runs, &even.sizes);
    assert!((latest_us - found.makespan_us).abs() <= 1e-9 * latest_us);
    Some(found)
}

/// The least latest end over all assignments, contiguous or not.
fn every_assignment(lengths: &[f64], runs: &[Run<'_>]) -> f64 {
    let workers: Vec<&[f64]> = runs
        .iter()
        .flat_map(|run| (0..run.count).map(|_| run.units.after(run.offset)))
        .collect();
    let all = workers.len().pow(lengths.len() as u32);
    let end_us = |mut number: usize| {
        let (mut sizes, mut longest) = (vec![0; workers.len()], vec![0.0_f64; workers.len()]);
        for length in lengths {
            let worker = number % workers.len();
            number /= workers.len();
            sizes[worker] += 1;
            longest[worker] = longest[worker].max(*length);
        }
        let ends =
            (0..workers.len()).map(|worker| workers[worker][sizes[worker]] * longest[worker]);
        ends.fold(0.0, f64::max)
    };
    (0..all).map(end_us).fold(f64::INFINITY, f64::min)
}

proptest! {
    #[test]
    fn equal_workers_get_what_the_dynamic_program_gives(
        lengths in lengths(40), kind in kind(), count in 1..7_usize,
    ) {
        let kinds = [(kind.0, kind.1, 0, count)];
        let units = units(&kinds, lengths.len());
        is_the_best::<Paper>(&lengths, &runs(&kinds, &units));
    }

    #[test]
    fn different_workers_get_what_the_dynamic_program_gives(
        lengths in lengths(40), kinds in vec(kind(), 0..4),
    ) {
        let units = units(&kinds, lengths.len());
        is_the_best::<Paper>(&lengths, &runs(&kinds, &units));
    }

    #[test]
    fn no_assignment_to_equal_workers_is_better(
        lengths in lengths(7), kind in kind(), count in 1..4_usize,
    ) {
        let kinds = [(kind.0, kind.1, 0, count)];
        let units = units(&kinds, lengths.len());
        let runs = runs(&kinds, &units);
        let found = partition::<Paper>(&lengths, &runs).unwrap();
        prop_assert_eq!(found.makespan_us.to_bits(), every_assignment(&lengths, &runs).to_bits());
    }

    #[test]
    fn no_assignment_to_different_workers_is_better_than_the_best_order(
        lengths in lengths(6), mut kinds in vec(kind(), 1..4),
    ) {
        for kind in &mut kinds {
            kind.3 = kind.3.clamp(1, 2);
        }
        kinds.truncate(2);
        let units = units(&kinds, lengths.len());
        let runs = runs(&kinds, &units);
        let found = partition_any_order(&lengths, &runs).unwrap();
        let best_us = every_assignment(&lengths, &runs);
        prop_assert_eq!(found.partition.makespan_us.to_bits(), best_us.to_bits());
        let ordered: Vec<Run<'_>> = found
            .runs
            .iter()
            .map(|&row| Run { count: 1, ..runs[row] })
            .collect();
        let mut counted = found.runs.clone();
        counted.sort_unstable();
        let all: Vec<usize> = (0..runs.len())
            .flat_map(|row| std::iter::repeat_n(row, runs[row].count))
            .collect();
        prop_assert_eq!(counted, all);
        let latest_us = latest_us::<Paper>(&lengths, &ordered, &found.partition.sizes);
        prop_assert_eq!(latest_us.to_bits(), best_us.to_bits());
    }

    #[test]
    fn the_draining_end_is_found_too(lengths in lengths(24), kinds in vec(kind(), 1..3)) {
        let units = units(&kinds, lengths.len());
        let runs = runs(&kinds, &units);
        let found = partition::<Drained>(&lengths, &runs);
        let best_us = reference::makespan_us::<Drained>(&lengths, &runs);
        if let (Some(found), Some(best_us)) = (found, best_us) {
            // Sums of other terms are rounded otherwise.
            prop_assert!((found.makespan_us - best_us).abs() <= 1e-9 * best_us);
            let paper = partition::<Paper>(&lengths, &runs).unwrap();
            prop_assert!(found.makespan_us <= paper.makespan_us * (1.0 + 1e-9));
        }
    }
}

#[test]
fn a_slow_worker_may_be_the_better_place_for_the_longest() {
    let steep = Interference::new(&[(1, 1.0), (100, 100.0)]).unwrap();
    let lengths: Vec<f64> = [10.0].into_iter().chain([1.0; 100]).collect();
    let (fast, slow) = (Units::new(1.0, &steep, 101), Units::new(2.0, &steep, 101));
    let run = |units| Run {
        units,
        offset: 0,
        count: 1,
    };
    let runs = [run(&fast), run(&slow)];
    let in_order = partition::<Paper>(&lengths, &runs).unwrap();
    let any = partition_any_order(&lengths, &runs).unwrap();
    assert!(any.partition.makespan_us < 0.7 * in_order.makespan_us);
    assert_eq!(any.runs[0], 1);
}

#[test]
fn levelling_leaves_no_worker_idle_beside_crowded_ones() {
    let flat = Interference::new(&[(1, 1.0), (100, 10.0)]).unwrap();
    let units = Units::new(1.0, &flat, 33);
    let runs = [Run {
        units: &units,
        offset: 0,
        count: 16,
    }];
    let lengths = [5.0; 33];
    let found = partition::<Paper>(&lengths, &runs).unwrap();
    assert_eq!(found.sizes[11..], [0; 5]);
    let even = level::<Paper>(&lengths, &runs).unwrap();
    assert!(even.sizes.iter().all(|size| *size >= 2), "{:?}", even.sizes);
}
