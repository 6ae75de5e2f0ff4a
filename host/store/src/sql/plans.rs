//! Checks the query plans of the pages that the console opens with: the index used, and that no
//! more than a page is sorted.

use super::programs::Which;
use super::{Engine, Record, Statement, Work, events, programs, steps};
use crate::postgres::PostgresEngine;
use crate::sqlite::SqliteEngine;
use crate::{
    DecisionPage, ListedPage, PostgresLocation, ProgramColumn, ProgramCursor, ProgramPage,
    StepColumn,
};
use treadle_services::{Schema, are_skipped};

/// Enough rows that PostgreSQL avoids a full scan.
const FILL: [&str; 4] = [
    "INSERT INTO programs (program, job, parent, status, phase, worker, context_tokens, steps, \
     tokens_total, created_at_us, updated_at_us, ended) \
     SELECT 'p-' || n, 'job-' || n % 50, CASE WHEN n % 10 = 0 THEN 'parent-' || n % 90 END, \
     CASE n % 40 WHEN 0 THEN 'paused' ELSE 'finished' END, 'acting', 'w-' || n % 60, n % 977, 1, n, n, \
     n + n % 89, \
     CASE n % 40 WHEN 0 THEN NULL ELSE 'finished' END FROM generate_series(1, 20000) AS n",
    "INSERT INTO steps (program, step, worker, arrived_at_us, finished_at_us, prompt_tokens, \
     output_tokens, outcome, waited_us) \
     SELECT 'p-' || n, n, 'w', n, n + 5, 1, 1, CASE n % 1000 WHEN 0 THEN 'failed' ELSE 'stop' END, \
     0 FROM generate_series(1, 20000) AS n",
    "INSERT INTO decisions (seq, at_us, kind, policy, why) \
     SELECT n, n, 'place', 'native', '' FROM generate_series(1, 20000) AS n",
    "ANALYZE",
];

/// PostgreSQL keeps decisions in partitions.
const PARTITIONS: [&str; 2] = [
    "CREATE TABLE decisions_000000 PARTITION OF decisions FOR VALUES FROM (0) TO (15000)",
    "CREATE TABLE decisions_000001 PARTITION OF decisions FOR VALUES FROM (15000) TO (30000)",
];

/// Pages of programs, and the index that each is read by.
fn program_pages() -> Vec<(ProgramPage, &'static str)> {
    let page = || ProgramPage {
        limit: 100,
        ..ProgramPage::default()
    };
    let some = |text: &str| Some(text.to_owned());
    vec![
        (page(), "programs_by_age"),
        (
            ProgramPage {
                ascending: true,
                ..page()
            },
            "programs_by_age",
        ),
        (
            ProgramPage {
                job: some("job-7"),
                ..page()
            },
            "programs_by_job",
        ),
        (
            ProgramPage {
                status: some("paused"),
                ..page()
            },
            "programs_by_status",
        ),
        (
            ProgramPage {
                parent: some("parent-30"),
                ..page()
            },
            "programs_by_parent",
        ),
        (
            ProgramPage {
                worker: some("w-7"),
                ..page()
            },
            "programs_by_worker",
        ),
        (
            ProgramPage {
                search: some("-1"),
                ..page()
            },
            "programs_by_age",
        ),
    ]
}

/// The query plan of a statement, as text.
async fn plan(engine: &impl Engine, query: Statement, how: &str, column: &str) -> String {
    let rows = engine.read(query.explained(how)).await.expect("a plan");
    let lines: Vec<_> = rows.iter().filter_map(|row| row.shown(column)).collect();
    lines.join("; ")
}

/// Checks query plans; `sorts` is the word for sorting in them.
async fn check(engine: &impl Engine, how: &str, column: &str, sorts: &str) {
    for (page, index) in program_pages() {
        let plan = plan(engine, programs::statement(&page), how, column).await;
        assert!(plan.contains(index), "{page:?}: {plan}");
        // A parent has few programs, so those may be sorted.
        assert!(!plan.contains(sorts) || page.parent.is_some(), "{plan}");
    }
    let by_tokens = ProgramPage {
        job: Some("job-7".to_owned()),
        column: ProgramColumn::TokensTotal,
        limit: 100,
        ..ProgramPage::default()
    };
    let sorted = plan(engine, programs::statement(&by_tokens), how, column).await;
    assert!(sorted.contains("programs_by_job"), "{sorted}");
    check_merged(engine, how, column, sorts).await;
    for (since_us, column_of_page) in [
        (None, StepColumn::FinishedAtUs),
        (Some(19_900), StepColumn::TookUs),
    ] {
        let page = ListedPage {
            since_us,
            column: column_of_page,
            limit: 100,
            ..ListedPage::default()
        };
        let plan = plan(engine, steps::statement(&page), how, column).await;
        assert!(plan.contains("steps_by_end"), "{plan}");
        let is_sorted = column_of_page == StepColumn::TookUs;
        assert_eq!(plan.contains(sorts), is_sorted, "{plan}");
    }
    let of_outcome = |outcome: &str| ListedPage {
        outcome: Some(outcome.to_owned()),
        limit: 100,
        ..ListedPage::default()
    };
    let amiss = steps::statement(&of_outcome("failed"));
    let amiss = plan(engine, amiss, how, column).await;
    assert!(amiss.contains("steps_amiss"), "{amiss}");
    assert!(!amiss.contains(sorts), "{amiss}");
    let reach = steps::reach_statement(&of_outcome("stop"), 100);
    let reach = plan(engine, reach, how, column).await;
    assert!(reach.contains("steps_by_end"), "{reach}");
    assert!(!reach.contains(sorts), "{reach}");
    let of_kind = DecisionPage {
        kind: Some("pause".to_owned()),
        ..DecisionPage::default()
    };
    let reach = events::decisions_reach_statement(&of_kind, 100);
    let reach = plan(engine, reach, how, column).await;
    assert!(!reach.contains(sorts), "{reach}");
}

/// Checks sorts that are read in two parts: ended programs in the order of an index, and live ones
/// by a partial index.
async fn check_merged(engine: &impl Engine, how: &str, column: &str, sorts: &str) {
    for sorted_by in ProgramColumn::ALL {
        for ascending in [false, true] {
            let index = match sorted_by {
                ProgramColumn::CreatedAtUs => continue,
                ProgramColumn::UpdatedAtUs => "programs_ended",
                ProgramColumn::ContextTokens => "programs_by_context",
                ProgramColumn::Steps => "programs_by_steps",
                ProgramColumn::TokensTotal => "programs_by_tokens",
                ProgramColumn::Reward if ascending => "programs_by_reward_rising",
                ProgramColumn::Reward => "programs_by_reward_falling",
                ProgramColumn::Lasted => "programs_by_lasted",
            };
            let mut page = ProgramPage {
                column: sorted_by,
                now_us: 30_000,
                ascending,
                limit: 100,
                ..ProgramPage::default()
            };
            for value in [None, Some(40)] {
                page.after = value.map(|value| ProgramCursor {
                    value,
                    program: "p-7".to_owned(),
                });
                let ended = programs::part(&page, Which::Ended);
                let ended = plan(engine, ended, how, column).await;
                assert!(ended.contains(index), "{page:?}: {ended}");
                // Only programs with equal times are sorted, by their names.
                let is_sorted = ended.contains(sorts) && sorted_by != ProgramColumn::UpdatedAtUs;
                assert!(!is_sorted, "{page:?}: {ended}");
                let whole = plan(engine, programs::statement(&page), how, column).await;
                assert!(whole.contains(index), "{page:?}: {whole}");
                assert!(whole.contains("programs_live"), "{page:?}: {whole}");
            }
        }
    }
}

#[tokio::test]
async fn pages_that_the_console_opens_with_are_read_in_an_indexs_order() {
    let engine = SqliteEngine::open_memory().await.expect("SQLite");
    check(&engine, "EXPLAIN QUERY PLAN ", "detail", "TEMP B-TREE").await;
}

#[tokio::test]
async fn pages_are_read_in_an_indexs_order_in_postgresql() {
    if are_skipped() {
        return;
    }
    let schema = Schema::fresh("plans");
    let at = PostgresLocation {
        schema: schema.name.clone(),
        ..PostgresLocation::new(schema.url.clone())
    };
    let engine = PostgresEngine::open(&at, true).await.expect("PostgreSQL");
    let mut work = engine.begin().await.expect("a transaction");
    for sql in PARTITIONS.into_iter().chain(FILL) {
        let filled = work.execute(Statement::new(sql)).await;
        filled.expect("it is filled");
    }
    work.commit().await.expect("it commits");
    check(&engine, "EXPLAIN ", "QUERY PLAN", "Sort").await;
    engine.close().await;
}
