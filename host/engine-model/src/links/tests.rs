//! Fairness and times, against a fluid simulation by brute force.

use proptest::prelude::*;

use super::*;

fn topology() -> Topology {
    let worker = |node, gpus| Worker { node, gpus };
    Topology {
        workers: vec![worker(0, 1), worker(0, 2), worker(1, 1), worker(2, 4)],
        clusters: vec![0, 0, 1],
        nvlink_bytes_per_s: 9_000_000,
        pcie_bytes_per_s: 3_000_000,
        network_bytes_per_s: 2_000_000,
        uplink_bytes_per_s: 1_000_000,
    }
}

fn place() -> impl Strategy<Value = TransferEnd> {
    prop_oneof![
        3 => (0_u32..4).prop_map(TransferEnd::Worker),
        1 => (0_u32..3).prop_map(TransferEnd::Host),
    ]
}

#[derive(Clone, Debug)]
struct Move {
    start_us: u64,
    from: TransferEnd,
    to: TransferEnd,
    bytes: u64,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let each = (0_u64..400_000, place(), place(), 0_u64..600_000);
    let each = each.prop_map(|(start_us, from, to, bytes)| Move {
        start_us,
        from,
        to,
        bytes,
    });
    prop::collection::vec(each, 1..10)
}

/// Fair rates by raising all of them a little at a time until a link is full.
fn rates_by_brute_force(topology: &Topology, paths: &[Vec<Link>]) -> Vec<f64> {
    let step = 2_000.0;
    let mut rates = vec![0.0; paths.len()];
    let mut open = vec![true; paths.len()];
    while open.iter().any(|each| *each) {
        for (index, path) in paths.iter().enumerate() {
            let full = |link: &Link| {
                let used: f64 = paths
                    .iter()
                    .zip(&rates)
                    .filter(|(path, _)| path.contains(link))
                    .map(|(_, rate)| rate)
                    .sum();
                used + step > topology.bytes_per_s(*link) as f64
            };
            open[index] &= !path.iter().any(full);
        }
        for (rate, _) in rates.iter_mut().zip(&open).filter(|(_, open)| **open) {
            *rate += step;
        }
    }
    rates
}

/// End of each move, with time in steps.
fn ends_by_brute_force(topology: &Topology, moves: &[Move]) -> Vec<f64> {
    let step_us = 2_000.0;
    let mut left: Vec<f64> = moves.iter().map(|each| each.bytes as f64).collect();
    let mut ends = vec![None; moves.len()];
    let mut now_us = 0.0;
    while ends.iter().any(Option::is_none) {
        let active: Vec<usize> = (0..moves.len())
            .filter(|index| ends[*index].is_none() && moves[*index].start_us as f64 <= now_us)
            .collect();
        let paths: Vec<Vec<Link>> = active
            .iter()
            .map(|index| topology.path(moves[*index].from, moves[*index].to))
            .collect();
        let moving: Vec<usize> = (0..active.len())
            .filter(|at| !paths[*at].is_empty() && left[active[*at]] > 0.0)
            .collect();
        let busy: Vec<Vec<Link>> = moving.iter().map(|at| paths[*at].clone()).collect();
        let rates = rates_by_brute_force(topology, &busy);
        for (at, rate) in moving.iter().zip(rates) {
            left[active[*at]] -= rate * step_us / 1e6;
        }
        for (at, index) in active.iter().enumerate() {
            if paths[at].is_empty() || left[*index] <= 0.0 {
                ends[*index] = Some(now_us);
            }
        }
        now_us += step_us;
    }
    ends.into_iter().flatten().collect()
}

fn run(topology: &Topology, moves: &[Move], stops_us: &[u64]) -> Vec<CompletedTransfer> {
    let mut links = Links::new(topology.clone());
    let mut order: Vec<usize> = (0..moves.len()).collect();
    order.sort_by_key(|index| moves[*index].start_us);
    let mut done = Vec::new();
    for index in order {
        let Move {
            start_us,
            from,
            to,
            bytes,
        } = moves[index];
        for stop_us in stops_us.iter().filter(|stop_us| **stop_us < start_us) {
            links.advance(*stop_us, &mut done);
        }
        links.advance(start_us, &mut done);
        assert!(links.start(start_us, index as u64, from, to, bytes));
    }
    while let Some(at_us) = links.next_event_at() {
        links.advance(at_us, &mut done);
    }
    done
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn transfers_end_when_a_fluid_would(moves in moves()) {
        let topology = topology();
        let ends = ends_by_brute_force(&topology, &moves);
        let done = run(&topology, &moves, &[]);
        prop_assert_eq!(done.len(), moves.len());
        for each in done {
            let wanted = ends[each.id as usize];
            // Steps of time (one may be lost at each start and end), and steps of rates.
            let slack = 2_000.0 * 21.0 + wanted * 0.02;
            prop_assert!((each.at_us as f64 - wanted).abs() < slack, "{each:?} {wanted}");
        }
    }

    #[test]
    fn rates_are_fair_and_links_hold_them(moves in moves()) {
        let topology = topology();
        let mut links = Links::new(topology.clone());
        for (id, each) in (0..).zip(&moves) {
            links.start(0, id, each.from, each.to, each.bytes);
        }
        for transfer in links.transfers.values().filter(|each| !each.path.is_empty()) {
            let on = |link: &Link| -> Vec<u64> {
                let all = links.transfers.values().filter(|each| each.path.contains(link));
                all.map(|each| each.bytes_per_s).collect()
            };
            let bottleneck = transfer.path.iter().any(|link| {
                let rates = on(link);
                let spare = topology.bytes_per_s(*link) - rates.iter().sum::<u64>();
                spare < rates.len() as u64 && rates.iter().all(|rate| *rate <= transfer.bytes_per_s + 1)
            });
            prop_assert!(bottleneck, "{transfer:?} could be faster");
        }
    }

    #[test]
    fn stopping_in_between_changes_nothing(
        moves in moves(),
        mut stops_us in prop::collection::vec(0_u64..500_000, 0..20),
    ) {
        stops_us.sort_unstable();
        let topology = topology();
        prop_assert_eq!(run(&topology, &moves, &stops_us), run(&topology, &moves, &[]));
    }
}

#[test]
fn two_share_a_link_and_the_one_that_is_left_has_it_all() {
    let mut links = Links::new(topology());
    let mut done = Vec::new();
    let (from, to) = (TransferEnd::Worker(0), TransferEnd::Worker(2));
    links.start(0, 1, from, to, 1_000_000);
    links.start(0, 2, from, to, 1_000_000);
    assert_eq!(links.bytes_per_s(1), Some(1_000_000));
    links.advance(250_000, &mut done);
    assert!(!links.start(250_000, 2, from, to, 5));
    assert_eq!(links.cancel(250_000, 1), Some(750_000));
    assert_eq!(links.cancel(250_000, 1), None);
    assert_eq!(links.bytes_per_s(2), Some(2_000_000));
    links.advance(u64::MAX / 2, &mut done);
    assert_eq!(
        done,
        [CompletedTransfer {
            id: 2,
            at_us: 250_000 + 375_000
        }]
    );
    assert_eq!((links.next_event_at(), links.active()), (None, 0));
}

#[test]
fn a_transfer_to_the_same_end_takes_no_time() {
    let mut links = Links::new(topology());
    let mut done = Vec::new();
    links.start(
        5,
        1,
        TransferEnd::Worker(1),
        TransferEnd::Worker(1),
        u64::MAX,
    );
    links.advance(5, &mut done);
    assert_eq!(done, [CompletedTransfer { id: 1, at_us: 5 }]);
}
