//! Measures how long pages of a large store take. With 100,000 programs: `cargo nextest run -p
//! treadle-store --run-ignored only --no-capture -E 'test(measured)'`.

use std::future::Future;
use std::time::{Duration, Instant};

use treadle_store::{
    Batch, DecisionPage, ListedPage, Order, ProgramColumn, ProgramPage, ProgramRow, SeqPage,
    StepColumn, StepRow, Store, StoreError,
};

use super::{backends, rows};

const PROGRAMS: u64 = 100_000;
/// Number of live programs.
const LIVE: u64 = 2_000;
const STEPS_EACH: u64 = 5;
const BATCH: u64 = 10_000;
/// Number of readings for the median.
const READINGS: usize = 15;

fn program(n: u64) -> ProgramRow {
    let row = rows::ended(
        &format!("p-{:08x}", n.wrapping_mul(2_654_435_761) as u32),
        n,
    );
    let is_live = (PROGRAMS - LIVE..PROGRAMS).contains(&n);
    ProgramRow {
        ended: row.ended.filter(|_| !is_live),
        worker: is_live.then(|| format!("w-{}", n % 8)),
        steps: n % 50,
        context_tokens: n.wrapping_mul(31) % 90_000,
        reward_millionths: n.is_multiple_of(3).then_some((n % 1_001).cast_signed()),
        job: if n < 1_000 {
            "oldest".into()
        } else {
            format!("job-{}", n % 20)
        },
        status: if n.is_multiple_of(100) {
            "paused"
        } else {
            "finished"
        }
        .into(),
        updated_at_us: n + 100 * STEPS_EACH + 100,
        tokens_total: n.wrapping_mul(40_503) % 100_000,
        ..row
    }
}

fn steps_of(program: &ProgramRow) -> impl Iterator<Item = StepRow> {
    let at = program.created_at_us;
    (1..=STEPS_EACH).map(move |number| StepRow {
        arrived_at_us: at + number * 100,
        finished_at_us: Some(at + number * 100 + at % 97),
        outcome: "stop".into(),
        ..rows::step(&program.program, number)
    })
}

async fn fill(store: &dyn Store) {
    for first in (0..PROGRAMS).step_by(BATCH as usize) {
        let programs: Vec<_> = (first..first + BATCH).map(program).collect();
        let decisions = programs.iter().zip(first + 1..);
        let batch = Batch {
            decisions: decisions
                .map(|(row, seq)| rows::decision(seq, Some(&row.program), "place"))
                .collect(),
            steps: programs.iter().flat_map(steps_of).collect(),
            programs,
            ..rows::events(first + 1..=first + BATCH)
        };
        store.append(&batch).await.unwrap();
    }
}

async fn timed<T, F: Future<Output = Result<Vec<T>, StoreError>>>(
    what: &str,
    read: impl Fn() -> F,
) {
    let mut times: Vec<Duration> = Vec::new();
    let mut found = 0;
    for _ in 0..READINGS {
        let begun = Instant::now();
        found = read().await.unwrap().len();
        times.push(begun.elapsed());
    }
    times.sort();
    let (median, most) = (times[READINGS / 2], times[READINGS - 1]);
    println!("  {what:<44} {found:>4} rows {median:>10.1?} at most {most:.1?}");
}

async fn programs(store: &dyn Store) {
    type Change = fn(&mut ProgramPage);
    let pages: [(&str, Change); 16] = [
        ("newest", |_| ()),
        ("of a job", |page| page.job = Some("job-7".into())),
        ("of a status", |page| page.status = Some("paused".into())),
        ("of a worker that has none", |page| {
            page.worker = Some("w-9".into());
        }),
        ("search, in many", |page| page.search = Some("A1".into())),
        ("search, in none", |page| page.search = Some("zzz".into())),
        ("by tokens", |page| page.column = ProgramColumn::TokensTotal),
        ("by how long they lasted", |page| {
            page.column = ProgramColumn::Lasted;
        }),
        ("by last change", |page| {
            page.column = ProgramColumn::UpdatedAtUs;
        }),
        ("by steps", |page| page.column = ProgramColumn::Steps),
        ("by context", |page| {
            page.column = ProgramColumn::ContextTokens;
        }),
        ("by reward", |page| page.column = ProgramColumn::Reward),
        ("of a worker", |page| page.worker = Some("w-1".into())),
        ("of a worker, by tokens", |page| {
            page.worker = Some("w-1".into());
            page.column = ProgramColumn::TokensTotal;
        }),
        ("of a status that most have, by tokens", |page| {
            page.status = Some("finished".into());
            page.column = ProgramColumn::TokensTotal;
        }),
        ("of a job, by tokens", |page| {
            page.job = Some("job-7".into());
            page.column = ProgramColumn::TokensTotal;
        }),
    ];
    for (what, change) in pages {
        let mut page = ProgramPage {
            limit: 100,
            ..ProgramPage::default()
        };
        change(&mut page);
        timed(&format!("programs, {what}"), || store.programs(&page)).await;
    }
}

/// The cost of writing programs: live ones again, as after a step, and their ends.
async fn writes(store: &dyn Store) {
    const EACH: u64 = 1_000;
    let live = |round: u64| {
        let rows = (PROGRAMS..PROGRAMS + EACH).map(|n| ProgramRow {
            status: "active".into(),
            worker: Some(format!("w-{}", n % 8)),
            ended: None,
            steps: round,
            tokens_total: round * 1_000 + n,
            updated_at_us: PROGRAMS * 2 + round,
            ..program(n)
        });
        rows.collect::<Vec<_>>()
    };
    let mut times = Vec::new();
    for round in 0..READINGS as u64 {
        let batch = Batch {
            programs: live(round),
            ..Batch::default()
        };
        let begun = Instant::now();
        store.append(&batch).await.unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    println!(
        "  {EACH} live programs written once more {:>17.1?}",
        times[READINGS / 2]
    );
    let ends = Batch {
        programs: (PROGRAMS..PROGRAMS + EACH).map(program).collect(),
        ..Batch::default()
    };
    let begun = Instant::now();
    store.append(&ends).await.unwrap();
    println!("  {EACH} programs ended {:>31.1?}", begun.elapsed());
}

async fn steps(store: &dyn Store) {
    type Change = fn(&mut ListedPage);
    let pages: [(&str, Change); 7] = [
        ("newest", |_| ()),
        ("of a job", |page| page.job = Some("job-7".into())),
        ("of a worker that has none", |page| {
            page.worker = Some("w-9".into());
        }),
        ("slowest of the last tenth", |page| {
            page.column = StepColumn::TookUs;
            page.since_us = Some(PROGRAMS * 9 / 10);
        }),
        ("slowest of all", |page| page.column = StepColumn::TookUs),
        ("of an old job", |page| page.job = Some("oldest".into())),
        ("of a job that is unknown", |page| {
            page.job = Some("none".into());
        }),
    ];
    for (what, change) in pages {
        let mut page = ListedPage {
            limit: 100,
            ..ListedPage::default()
        };
        change(&mut page);
        timed(&format!("steps, {what}"), || store.listed_steps(&page)).await;
    }
}

async fn decisions(store: &dyn Store) {
    for (what, job) in [
        ("newest", None),
        ("of a job", Some("job-7")),
        ("of no job", Some("none")),
    ] {
        let page = DecisionPage {
            job: job.map(Into::into),
            range: SeqPage {
                order: Order::NewestFirst,
                limit: 100,
                ..SeqPage::default()
            },
            ..DecisionPage::default()
        };
        timed(&format!("decisions, {what}"), || store.decisions(&page)).await;
    }
}

#[tokio::test]
#[ignore = "it measures, for a minute"]
async fn measured_pages_of_many_programs() {
    let places = [
        Some(("SQLite", backends::file())),
        backends::schema().map(|s| ("PostgreSQL", s)),
    ];
    for (name, scratch) in places.into_iter().flatten() {
        let store = scratch.open().await;
        fill(&*store).await;
        println!("{name}, {PROGRAMS} programs with {STEPS_EACH} steps each");
        programs(&*store).await;
        writes(&*store).await;
        steps(&*store).await;
        decisions(&*store).await;
        store.close().await.unwrap();
    }
}
