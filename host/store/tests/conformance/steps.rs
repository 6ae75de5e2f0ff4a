//! Steps and decisions of all programs.

use treadle_store::{
    Batch, DecisionPage, ListedPage, ListedStep, Names, ProgramRow, StepColumn, StepCursor,
    StepRow, Store,
};

use super::rows::{self, ALL};

/// A step that took `took_us` and ended at `at_us`.
fn ended(program: &str, step: u64, at_us: u64, took_us: u64) -> StepRow {
    StepRow {
        arrived_at_us: at_us - took_us,
        finished_at_us: Some(at_us),
        outcome: "stop".into(),
        waited_us: took_us / 2,
        ..rows::step(program, step)
    }
}

fn program(name: &str, job: &str) -> ProgramRow {
    ProgramRow {
        job: job.into(),
        updated_at_us: 10_000,
        ..rows::program(name, 1)
    }
}

/// Changes a page of all steps.
type Change = fn(&mut ListedPage);

/// Reads pages that scan few rows each, as clients do.
pub(crate) async fn pages_that_look_at_few_rows_give_every_step_once(store: &dyn Store) {
    fill(store).await;
    let filters: [Change; 5] = [
        |page| page.job = Some("one".into()),
        |page| page.worker = Some("w-0".into()),
        |page| page.outcome = Some("stop".into()),
        |page| page.names = Names::With("t~".into()),
        |page| (page.waited_us_min, page.since_us) = (Some(350), Some(2_000)),
    ];
    for (change, ascending) in filters.iter().flat_map(|f| [(f, true), (f, false)]) {
        let mut page = ListedPage {
            ascending,
            limit: ALL,
            ..ListedPage::default()
        };
        change(&mut page);
        let whole = store.listed_steps(&page).await.unwrap();
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let reach = store.steps_reach(&page, 2).await.unwrap();
            let mut narrow = page.clone();
            match reach {
                Some(end_us) if ascending => narrow.until_us = Some(end_us + 1),
                Some(end_us) => narrow.since_us = Some(end_us),
                None => {}
            }
            found.extend(store.listed_steps(&narrow).await.unwrap());
            pages += 1;
            let Some(end_us) = reach else { break };
            page.after = Some(StepCursor {
                value: end_us + u64::from(ascending),
                program: String::new(),
                step: 0,
            });
        }
        assert_eq!(found, whole, "{page:?}");
        assert!((3..=6).contains(&pages), "{pages}: {page:?}");
    }
    for change in [
        (|_| ()) as Change,
        |page| page.outcome = Some("failed".into()),
        |page| page.job = Some("nobody's".into()),
    ] {
        let mut page = ListedPage::default();
        change(&mut page);
        assert_eq!(store.steps_reach(&page, 2).await.unwrap(), None, "{page:?}");
    }
    let slowest = ListedPage {
        column: StepColumn::TookUs,
        ascending: true,
        ..ListedPage::default()
    };
    let reach = store.steps_reach(&slowest, 3).await.unwrap();
    assert_eq!(reach, Some(7_000), "the newest three");
}

/// Nine steps of three programs: number n of them ended at 1,000 n.
async fn fill(store: &dyn Store) {
    let step = |n: u64| {
        let name = ["a", "b", "t~c"][n as usize % 3];
        let row = ended(name, n, 1_000 * n, 100 * (n * 4 % 9));
        let outcome = if n == 4 { "failed" } else { "stop" };
        StepRow {
            outcome: outcome.into(),
            worker: Some(format!("w-{}", n % 2)),
            ..row
        }
    };
    let batch = Batch {
        programs: vec![
            program("a", "one"),
            program("b", "two"),
            program("t~c", "one"),
        ],
        // The last one has not ended.
        steps: (1..=9).map(step).chain([rows::step("a", 99)]).collect(),
        ..Batch::default()
    };
    store.append(&batch).await.unwrap();
}

fn numbers(found: &[ListedStep]) -> Vec<u64> {
    found.iter().map(|listed| listed.step.step).collect()
}

pub(crate) async fn listed_steps_are_filtered_and_sorted(store: &dyn Store) {
    fill(store).await;
    let page = ListedPage {
        limit: ALL,
        ..ListedPage::default()
    };
    let all = store.listed_steps(&page).await.unwrap();
    assert_eq!(
        (all[0].job.as_str(), all[0].program_output_tokens),
        ("one", Some(5_000))
    );
    assert_eq!(all[0].step.predicted_tokens_p90, Some(90));
    let filters: [(Change, &[u64]); 9] = [
        (|_| (), &[9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (
            |page| (page.column, page.limit) = (StepColumn::TookUs, 4),
            &[2, 4, 6, 8],
        ),
        (|page| page.job = Some("two".into()), &[7, 4, 1]),
        (|page| page.worker = Some("w-0".into()), &[8, 6, 4, 2]),
        (|page| page.outcome = Some("failed".into()), &[4]),
        (|page| page.waited_us_min = Some(350), &[4, 2]),
        (
            |page| (page.since_us, page.until_us) = (Some(3_000), Some(6_000)),
            &[5, 4, 3],
        ),
        (|page| page.names = Names::With("t~".into()), &[8, 5, 2]),
        (
            |page| {
                page.names = Names::Without("t~".into());
                page.job = Some("one".into());
            },
            &[9, 6, 3],
        ),
    ];
    for (change, expected) in filters {
        let mut page = page.clone();
        change(&mut page);
        let found = store.listed_steps(&page).await.unwrap();
        assert_eq!(numbers(&found), expected, "{page:?}");
    }
    let by_number = ListedPage {
        program: Some("b".into()),
        column: StepColumn::Step,
        ascending: true,
        ..page
    };
    let found = store.listed_steps(&by_number).await.unwrap();
    assert_eq!(numbers(&found), [1, 4, 7]);
    sorted_by_arrival(store, by_number).await;
}

/// Another gateway uses other numbers; the order of arrival counts.
async fn sorted_by_arrival(store: &dyn Store, by_number: ListedPage) {
    let others = Batch {
        steps: vec![ended("b", 900, 50, 0), ended("b", 901, 5_000_000, 0)],
        ..Batch::default()
    };
    store.append(&others).await.unwrap();
    let mut by_arrival = ListedPage {
        column: StepColumn::ArrivedAtUs,
        ..by_number
    };
    let found = store.listed_steps(&by_arrival).await.unwrap();
    let order = numbers(&found);
    assert_eq!(
        (order[0], order[4], order.len()),
        (900, 901, 5),
        "{order:?}"
    );
    by_arrival.after = Some(StepCursor {
        value: 50,
        program: "b".into(),
        step: 900,
    });
    let found = store.listed_steps(&by_arrival).await.unwrap();
    assert_eq!(numbers(&found), order[1..]);
}

pub(crate) async fn paging_through_steps_gives_every_one_once(store: &dyn Store) {
    fill(store).await;
    for column in StepColumn::ALL {
        for ascending in [true, false] {
            let mut page = ListedPage {
                column,
                ascending,
                limit: ALL,
                ..ListedPage::default()
            };
            let whole = store.listed_steps(&page).await.unwrap();
            let mut found = Vec::new();
            page.limit = 2;
            loop {
                let rows = store.listed_steps(&page).await.unwrap();
                let Some(ListedStep { step, .. }) = rows.last() else {
                    break;
                };
                page.after = Some(StepCursor {
                    value: column.of(step).unwrap(),
                    program: step.program.clone(),
                    step: step.step,
                });
                found.extend(rows);
            }
            assert_eq!(found, whole, "{column:?} {ascending}");
            assert_eq!(found.len(), 9);
        }
    }
}

pub(crate) async fn decisions_are_found_across_programs(store: &dyn Store) {
    let name = |seq: u64| ["a", "b", "t~c"][seq as usize % 3];
    let mut batch = Batch {
        programs: vec![
            program("a", "one"),
            program("b", "two"),
            program("t~c", "one"),
        ],
        decisions: (1..=6)
            .map(|seq| rows::decision(seq, Some(name(seq)), "pause"))
            .collect(),
        ..rows::events(1..=6)
    };
    batch.decisions[1].policy = "other@1".into();
    store.append(&batch).await.unwrap();
    let all = rows::decisions(&rows::range(
        None,
        None,
        treadle_store::Order::NewestFirst,
        ALL,
    ));
    let filters = [
        (DecisionPage::default(), vec![6, 5, 4, 3, 2, 1]),
        (
            DecisionPage {
                job: Some("one".into()),
                ..DecisionPage::default()
            },
            vec![6, 5, 3, 2],
        ),
        (
            DecisionPage {
                policy: Some("other@1".into()),
                ..DecisionPage::default()
            },
            vec![2],
        ),
        (
            DecisionPage {
                names: Names::Without("t~".into()),
                ..DecisionPage::default()
            },
            vec![6, 4, 3, 1],
        ),
    ];
    for (page, expected) in filters {
        let page = DecisionPage {
            range: all.range.clone(),
            ..page
        };
        let is_filtered = page
            != DecisionPage {
                range: all.range.clone(),
                ..DecisionPage::default()
            };
        let reach = store.decisions_reach(&page, 2).await.unwrap();
        assert_eq!(reach, is_filtered.then_some(5), "{page:?}");
        let found = store.decisions(&page).await.unwrap();
        let found: Vec<u64> = found.iter().map(|row| row.seq).collect();
        assert_eq!(found, expected, "{page:?}");
    }
    look_back(store, all.range).await;
}

/// Checks how far back pages of decisions of some jobs scan.
async fn look_back(store: &dyn Store, range: treadle_store::SeqPage) {
    let mut page = DecisionPage {
        job: Some("nobody's".into()),
        range,
        ..DecisionPage::default()
    };
    assert!(store.decisions(&page).await.unwrap().is_empty());
    assert_eq!(store.decisions_reach(&page, 2).await.unwrap(), None);
    page.job = Some("one".into());
    page.range.order = treadle_store::Order::OldestFirst;
    assert_eq!(store.decisions_reach(&page, 2).await.unwrap(), Some(2));
    assert_eq!(store.decisions_reach(&page, 7).await.unwrap(), None);
}
