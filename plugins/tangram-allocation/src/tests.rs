//! Arrangements against all others, and answers against the queue.

use proptest::collection::vec;
use proptest::prelude::*;
use treadle_plugin::FreeUnits;
use treadle_plugin::harness::{Actions, Harness};
use treadle_plugin::random::SplitMix64;

use super::*;
use crate::arrange::Arrange;
use crate::queue::{Choice, Queue, Waiting};

/// Hands out devices as the host does: of the smallest chunk that has them, split in halves.
fn hand_out(chunks: &mut [u32; 4], units: u32) -> bool {
    let level = units.trailing_zeros() as usize;
    let Some(from) = (level..4).find(|&from| chunks[from] > 0) else {
        return false;
    };
    chunks[from] -= 1;
    for half in &mut chunks[level..from] {
        *half += 1;
    }
    true
}

/// Whether these fit together, one after the other.
fn fit(queue: &Queue, started: &[Choice]) -> bool {
    match queue.chunks {
        Some(mut chunks) => started.iter().all(|one| hand_out(&mut chunks, one.units)),
        None => started.iter().map(|one| u64::from(one.units)).sum::<u64>() <= queue.free.units(),
    }
}

fn sum_us(started: &[Choice]) -> u64 {
    started.iter().map(|choice| choice.us).sum()
}

/// The least sum of all ways to start the first `head`.
fn least_us(queue: &Queue, head: usize) -> u64 {
    let mut ways: Vec<Vec<Choice>> = vec![Vec::new()];
    for waiting in &queue.waiting[..head] {
        let longer = |way: &Vec<Choice>| {
            let choices = waiting.choices.iter();
            let way = way.clone();
            choices.map(move |choice| [&way[..], &[*choice]].concat())
        };
        ways = ways.iter().flat_map(longer).collect();
    }
    let fitting = ways.iter().filter(|way| fit(queue, way));
    fitting.map(|way| sum_us(way)).min().unwrap()
}

/// A queue whose first actions, as far as they fit, are candidates.
fn queue(chunks: Option<[u32; 4]>, units: u32, rows: Vec<Vec<(u32, u64)>>) -> Queue {
    let free = chunks.map_or(FreeUnits::plain(units), FreeUnits::chunked);
    let mut left = free;
    let waiting: Vec<Waiting> = (0..)
        .zip(rows)
        .map(|(row, options)| waiting(row, &options))
        .collect();
    let fitting = waiting
        .iter()
        .take_while(|one| left.take(one.least().units));
    Queue {
        free,
        chunks,
        candidates: fitting.count(),
        waiting,
        beyond: 0,
        running: Vec::new(),
    }
}

/// An action with the options that take more and last less than those before.
fn waiting(row: usize, options: &[(u32, u64)]) -> Waiting {
    let mut choices: Vec<Choice> = Vec::new();
    for (option, &(units, us)) in (0..).zip(options) {
        if choices
            .last()
            .is_none_or(|last| units > last.units && us < last.us)
        {
            choices.push(Choice { option, units, us });
        }
    }
    Waiting {
        row,
        choices,
        is_known: true,
    }
}

/// Options of some of these units, and any times.
fn options(units: &'static [u32]) -> impl Strategy<Value = Vec<(u32, u64)>> {
    let some = prop::sample::subsequence(units.to_vec(), 1..=units.len());
    some.prop_flat_map(|units| {
        let times = vec(0_u64..1_000, units.len());
        times.prop_map(move |mut times| {
            times.sort_unstable_by(|a, b| b.cmp(a));
            units.iter().copied().zip(times).collect()
        })
    })
}

/// The choices for a prefix are optimal, and equal to those of a table for only that prefix.
fn check_heads(queue: &Queue) -> Result<(), TestCaseError> {
    let all = Arrange::new(queue);
    for head in 0..=queue.candidates {
        let started = all.head(head);
        prop_assert_eq!(started.len(), head);
        prop_assert!(fit(queue, &started), "{:?}", started);
        prop_assert_eq!(sum_us(&started), least_us(queue, head));
        let mut alone = queue.clone();
        alone.candidates = head;
        prop_assert_eq!(sum_us(&Arrange::new(&alone).head(head)), sum_us(&started));
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_way_to_share_out_units_is_shorter(
        rows in vec(options(&[0, 1, 2, 3, 4, 6, 8]), 0..6),
        units in 0_u32..24,
    ) {
        check_heads(&queue(None, units, rows))?;
    }

    #[test]
    fn no_way_to_split_chunks_is_shorter(
        rows in vec(options(&[1, 2, 4, 8]), 0..6),
        chunks in prop::array::uniform4(0_u32..3),
    ) {
        check_heads(&queue(Some(chunks), 0, rows))?;
    }

    #[test]
    fn whole_nodes_are_as_good_as_any(
        rows in vec(options(&[1, 2, 4, 8]), 0..7),
        nodes in 0_u32..3,
    ) {
        check_heads(&queue(Some([0, 0, 0, nodes]), 0, rows))?;
    }

    #[test]
    fn steps_of_one_unit_that_save_less_and_less_need_no_table(
        savings in vec(vec(1_u64..100, 0..5), 1..5),
        units in 1_u32..20,
    ) {
        let rows = savings.into_iter().map(|mut savings| {
            savings.sort_unstable();
            let mut us = 1_000;
            let mut options = vec![(1, us)];
            for (units, saved) in (2..).zip(savings.iter().rev()) {
                us -= saved;
                options.push((units, us));
            }
            options
        });
        let queue = queue(None, units, rows.collect());
        prop_assert!(matches!(Arrange::new(&queue), Arrange::Steps(_)));
        check_heads(&queue)?;
    }
}

#[test]
fn every_answer_is_valid() {
    for config in [
        "{}",
        r#"{"depth": 1, "horizon_rows": 1}"#,
        r#"{"depth": 8, "share_percent": 0}"#,
    ] {
        Harness::new(config)
            .by_row()
            .allocation::<TangramAllocation>();
    }
}

#[test]
fn what_starts_is_the_head_of_the_candidates_of_each_pool() {
    let mut random = SplitMix64::new(11);
    let mut left_to_wait = 0;
    for _ in 0..2_000 {
        let table = Actions::draw(&mut random, 24, 0, 3);
        let actions = table.columns();
        let chosen = TangramAllocation::default().arrange(&actions).unwrap();
        for pool in 0..3 {
            let rows = (0..actions.len()).filter(|&row| actions.pool[row] == pool);
            let candidates: Vec<usize> = rows.filter(|&row| actions.is_candidate(row)).collect();
            let started = candidates
                .iter()
                .take_while(|row| chosen[**row] >= 0)
                .count();
            let rest = &candidates[started..];
            assert!(
                rest.iter().all(|row| chosen[*row] == -1),
                "{table:?} {chosen:?}"
            );
            assert!(started > 0 || candidates.is_empty(), "{table:?}");
            left_to_wait += rest.len();
        }
        let others = (0..actions.len()).filter(|&row| !actions.is_candidate(row));
        assert!(others.into_iter().all(|row| chosen[row] == -1));
    }
    assert!(left_to_wait > 20, "{left_to_wait}");
}

#[test]
fn nobody_gets_more_than_a_share() {
    let actions = |running: &'static [u32]| ActionColumns {
        pool: &[0],
        candidate: &[1],
        waited_us: &[0],
        option_start: &[0, 4],
        option_units: &[1, 2, 4, 8],
        option_us: &[800.0, 400.0, 200.0, 100.0],
        option_load_us: &[0.0; 4],
        pools: treadle_plugin::PoolColumns {
            free_units: &[8],
            chunked: &[0],
            free_chunks: &[0; 4],
        },
        running: treadle_plugin::RunningColumns {
            pool: &[0, 0][..running.len()],
            units: running,
            left_us: &[50, 60][..running.len()],
        },
        ..ActionColumns::default()
    };
    let chosen = |percent: u32, running| {
        let config = format!("{{\"share_percent\": {percent}}}");
        let mut policy = TangramAllocation::configure(&config).unwrap();
        policy.arrange(&actions(running)).unwrap()[0]
    };
    assert_eq!(chosen(100, &[]), 3);
    // Ten units for two, and for three.
    assert_eq!((chosen(100, &[2]), chosen(100, &[1, 1])), (2, 1));
    assert_eq!((chosen(200, &[1, 1]), chosen(0, &[1, 1])), (2, 3));
    // The least is its own.
    assert_eq!(chosen(1, &[1, 1]), 0);
}

/// A long action that gains from every unit, and a short one behind it.
#[test]
fn the_last_waits_where_its_units_save_more_than_that_costs() {
    let long = vec![(1, 8_000), (2, 4_000), (4, 2_000)];
    let mut queue = queue(None, 4, vec![long, vec![(1, 100)]]);
    let started = |queue: &Queue| evict::start(&Config::default(), queue);
    // 4,000 and 100; with all units for the first 2,000 and 2,100, which is no less.
    assert_eq!(started(&queue), [(0, 1), (1, 0)]);
    // What runs ends soon, and the second need not wait for the first.
    queue.running = vec![(5, 1)];
    assert_eq!(started(&queue), [(0, 2)]);
}
