//! Sorted and filtered pages, compared with all rows sorted and filtered here.

use treadle_store::{
    AuditPage, AuditRow, Batch, DecisionPage, EventPage, Names, Order, ProgramColumn,
    ProgramCursor, ProgramPage, ProgramRow, SamplePage, SampleRow, SeqPage, StepRow, Store,
};

use super::rows::{self, ALL};

/// Programs with many ties in each column.
fn programs() -> Vec<ProgramRow> {
    let program = |n: u64| ProgramRow {
        status: ["active", "paused"][n as usize % 2].to_owned(),
        worker: (!n.is_multiple_of(3)).then(|| format!("w-{}", n % 3)),
        context_tokens: n * 7 % 5,
        steps: n % 2,
        tokens_total: n * 31 % 17,
        updated_at_us: 100 + n * 13 % 11,
        ended: n.is_multiple_of(5).then(|| "finished".to_owned()),
        reward_millionths: (!n.is_multiple_of(4))
            .then(|| ((n * 17 % 7).cast_signed() - 3) * 500_000),
        ..rows::program(&format!("p-{:02}", n * 29 % 41), n / 4)
    };
    (0..41).map(program).collect()
}

fn fits(page: &ProgramPage, row: &ProgramRow) -> bool {
    page.job.as_ref().is_none_or(|job| *job == row.job)
        && (page.parent.is_none() || page.parent == row.parent)
        && page
            .search
            .as_ref()
            .is_none_or(|text| row.program.contains(&text.to_lowercase()))
        && page
            .status
            .as_ref()
            .is_none_or(|status| *status == row.status)
        && (page.worker.is_none() || page.worker == row.worker)
        && page
            .since_us
            .is_none_or(|since_us| row.updated_at_us >= since_us)
}

pub(crate) async fn paging_through_programs_gives_every_one_once(store: &dyn Store) {
    let all = programs();
    let batch = Batch {
        programs: all.clone(),
        ..Batch::default()
    };
    store.append(&batch).await.unwrap();
    let of_job = ProgramPage {
        job: Some("odd".into()),
        status: Some("active".into()),
        ..ProgramPage::default()
    };
    let of_parent = ProgramPage {
        parent: Some("parent".into()),
        ..ProgramPage::default()
    };
    let recent = ProgramPage {
        worker: Some("w-1".into()),
        since_us: Some(105),
        names: Names::Without("q".into()),
        ..ProgramPage::default()
    };
    let named = ProgramPage {
        search: Some("P-1".into()),
        ..ProgramPage::default()
    };
    for filter in [ProgramPage::default(), of_job, of_parent, recent, named] {
        for column in ProgramColumn::ALL {
            for (ascending, limit) in [(true, 2), (false, 5), (true, 7), (false, ALL)] {
                let page = ProgramPage {
                    column,
                    now_us: 106,
                    ascending,
                    limit,
                    ..filter.clone()
                };
                let mut expected: Vec<_> = all.iter().filter(|row| fits(&page, row)).collect();
                assert!(expected.len() > 2);
                expected.sort_by_key(|row| (page.value_of(row), row.program.clone()));
                if !ascending {
                    expected.reverse();
                }
                let found = all_pages(store, page.clone()).await;
                assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{page:?}");
            }
        }
    }
}

async fn all_pages(store: &dyn Store, mut page: ProgramPage) -> Vec<ProgramRow> {
    let mut found = Vec::new();
    loop {
        let rows = store.programs(&page).await.unwrap();
        let Some(last) = rows.last() else {
            return found;
        };
        page.after = Some(ProgramCursor {
            value: page.value_of(last),
            program: last.program.clone(),
        });
        found.extend(rows);
    }
}

pub(crate) async fn paging_through_events_of_a_job_gives_every_one_once(store: &dyn Store) {
    let mut batch = rows::events(1..=60);
    for event in &mut batch.events {
        let is_code = event.seq.is_multiple_of(3);
        event.job = if is_code { "code" } else { "math" }.into();
    }
    store.append(&batch).await.unwrap();
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let mut found = Vec::new();
        let mut page = EventPage {
            job: Some("code".into()),
            range: SeqPage {
                since_us: Some(100),
                order,
                limit: 4,
                ..SeqPage::default()
            },
            ..EventPage::default()
        };
        loop {
            let rows = store.events_page(&page).await.unwrap();
            let Some(last) = rows.last().map(|row| row.seq) else {
                break;
            };
            match order {
                Order::OldestFirst => page.range.after = Some(last),
                Order::NewestFirst => page.range.before = Some(last),
            }
            found.extend(rows.iter().map(|row| row.seq));
        }
        let mut expected: Vec<u64> = (4..=20).map(|n| n * 3).collect();
        if order == Order::NewestFirst {
            expected.reverse();
        }
        assert_eq!(found, expected, "{order:?}");
    }
}

pub(crate) async fn decisions_are_filtered(store: &dyn Store) {
    let batch = Batch {
        decisions: (1..=12)
            .map(|seq| rows::decision(seq, None, "pause"))
            .collect(),
        ..rows::events(1..=12)
    };
    store.append(&batch).await.unwrap();
    let one = &batch.decisions[6];
    let page = DecisionPage {
        kind: Some(one.kind.clone()),
        worker: one.worker.clone(),
        range: SeqPage {
            since_us: Some(one.at_us),
            limit: ALL,
            ..SeqPage::default()
        },
        ..DecisionPage::default()
    };
    let found = store.decisions(&page).await.unwrap();
    assert_eq!(found, batch.decisions[6..]);
    let other = DecisionPage {
        kind: Some("no-such-kind".into()),
        ..page
    };
    assert!(store.decisions(&other).await.unwrap().is_empty());
}

pub(crate) async fn paging_through_the_audit_log_gives_every_row_once(store: &dyn Store) {
    let change = |at_us: u64| AuditRow {
        id: 0,
        at_us,
        tenant: "a".into(),
        who: "anonymous".into(),
        action: "worker.added".into(),
        target: "w".into(),
        before: "null".into(),
        after: "null".into(),
        request_id: "r1".into(),
        address: None,
    };
    let rows: Vec<_> = (1..=10).map(change).collect();
    store.add_audit(&rows).await.unwrap();
    for ascending in [true, false] {
        let mut found = Vec::new();
        let mut page = AuditPage {
            since_us: Some(4),
            ascending,
            limit: 3,
            ..AuditPage::default()
        };
        loop {
            let rows = store.audit(&page).await.unwrap();
            let Some(last) = rows.last().map(|row| row.id) else {
                break;
            };
            if ascending {
                page.after = Some(last);
            } else {
                page.before = Some(last);
            }
            found.extend(rows.iter().map(|row| row.at_us));
        }
        let mut expected: Vec<u64> = (4..=10).collect();
        if !ascending {
            expected.reverse();
        }
        assert_eq!(found, expected);
    }
}

pub(crate) async fn lengths_are_those_of_the_programs_of_a_job_that_ended(store: &dyn Store) {
    let done = |program: &str, step: u64, (prompt, output): (u64, u64)| StepRow {
        arrived_at_us: 10,
        finished_at_us: Some(10 + step),
        prompt_tokens: prompt,
        output_tokens: output,
        outcome: "finished".into(),
        ..rows::step(program, step)
    };
    let batch = Batch {
        programs: vec![
            ProgramRow {
                updated_at_us: 900,
                ..rows::ended("old", 2)
            },
            rows::ended("new", 4),
            rows::ended("other job", 5),
            rows::ended("without steps", 6),
            rows::program("alive", 8),
        ],
        steps: vec![
            done("old", 1, (50, 7)),
            done("old", 2, (80, 5)),
            done("new", 1, (0, 3)),
            rows::step("new", 2),
            done("other job", 1, (9, 9)),
            done("alive", 1, (9, 9)),
        ],
        ..Batch::default()
    };
    store.append(&batch).await.unwrap();
    let found = store.lengths("even", ALL).await.unwrap();
    let shown = found
        .iter()
        .map(|row| (row.created_at_us, row.ended_at_us, row.prompt_tokens));
    assert_eq!(shown.collect::<Vec<_>>(), [(4, 11, 100), (2, 12, 50)]);
    let sums = found.iter().map(|row| (row.output_tokens, row.steps_us));
    assert_eq!(sums.collect::<Vec<_>>(), [(3, 1), (12, 3)]);
    assert_eq!(found[1].context_tokens, 8_000);
    assert_eq!(
        store.lengths("even", 1).await.unwrap().len(),
        0,
        "without steps"
    );
    assert_eq!(store.lengths("even", 2).await.unwrap().len(), 1);
}

pub(crate) async fn samples_are_thinned_to_one_of_each_stretch(store: &dyn Store) {
    for at_us in [5, 12, 18, 21, 40, 41] {
        let values_json = format!("{{\"n\":{at_us}}}");
        let sample = SampleRow { at_us, values_json };
        store.add_sample(&sample).await.unwrap();
    }
    let page = |since_us, each_us, limit| SamplePage {
        since_us,
        until_us: 40,
        each_us,
        limit,
    };
    let times = async |page: SamplePage| -> Vec<u64> {
        let rows = store.samples(&page).await.unwrap();
        rows.iter().map(|row| row.at_us).collect()
    };
    assert_eq!(times(page(6, 1, ALL)).await, [12, 18, 21, 40]);
    assert_eq!(times(page(6, 10, ALL)).await, [18, 21, 40]);
    assert_eq!(times(page(6, 0, 2)).await, [12, 18]);
    assert_eq!(store.prune_samples(20).await.unwrap(), 3);
    assert_eq!(times(page(0, 1, ALL)).await, [21, 40]);
    let last = store.samples(&page(30, 1, ALL)).await.unwrap();
    assert_eq!(last[0].values_json, "{\"n\":40}");
}
