//! A window of the journal, read from the store.

use super::request::WindowSpec;
use super::{EVENTS_MAX, LabFailure};
use crate::driver::record;
use std::collections::BTreeSet;
use treadle_core::Event;
use treadle_model::Timestamp;
use treadle_simulator::lab::{Recorder, RecorderOptions, Workload};
use treadle_store::{
    EventPage, EventRow, Names, Order, PAGE_ROWS_MAX, ProgramCursor, ProgramPage, SeqPage, Store,
};

/// Kinds of events about no program that are read.
const SHARED_KINDS: &[&str] = &[
    "worker_added",
    "worker_capacity_read",
    "worker_lost",
    "worker_recovered",
    "worker_removed",
    "configured",
    "daemon_restarted",
];
/// Those of them that matter from before the window too.
const KINDS_BEFORE: &[&str] = &[
    "worker_added",
    "worker_capacity_read",
    "worker_removed",
    "configured",
];
/// Pages of programs that are looked through for when they began.
const PROGRAM_PAGES_MAX: usize = 16;

/// Reads the work of a window: of programs with these names, their engines, the settings.
pub(crate) async fn load(
    store: &dyn Store,
    window: &WindowSpec,
    names: &Names,
    options: RecorderOptions,
    goes_on: &(dyn Fn() -> bool + Sync),
) -> Result<Workload, LabFailure> {
    let (from, to) = range(store, window).await?;
    let mut recorder = Recorder::new(options);
    for row in before(store, from).await? {
        recorder.prepare(&event_of(&row)?);
    }
    let mut after = from - 1;
    let mut first_us = None;
    loop {
        if !goes_on() {
            return Err(LabFailure::Cancelled);
        }
        let rows = page(store, names, after, to).await?;
        let Some(last) = rows.last() else {
            break;
        };
        after = last.seq;
        for row in &rows {
            first_us.get_or_insert(row.at_us);
            let event = event_of(row)?;
            if is_of_job(&event, window.job.as_deref()) {
                recorder.take(Timestamp(row.at_us), &event)?;
            }
        }
    }
    if let (Some(first_us), true) = (first_us, from > 1) {
        note_begun_before(store, names, first_us, &mut recorder).await?;
    }
    let mut workload = recorder.finish()?;
    if workload.workers.is_empty() {
        // The events of their coming may be pruned.
        for row in store.workers().await? {
            workload
                .workers
                .push(treadle_simulator::lab::RecordedWorker {
                    url: row.url.into(),
                    kv_tokens: row.capacity_tokens,
                });
        }
    }
    Ok(workload)
}

/// First and last event, within the bound.
async fn range(store: &dyn Store, window: &WindowSpec) -> Result<(u64, u64), LabFailure> {
    let last = store.last_seq().await?;
    let mut from = window.from_seq.unwrap_or(1).max(1);
    if let Some(from_us) = window.from_us {
        from = from.max(first_at(store, from_us, last).await?);
    }
    let mut to = window.to_seq.unwrap_or(last).min(last);
    if let Some(to_us) = window.to_us {
        to = to.min(first_at(store, to_us.saturating_add(1), last).await? - 1);
    }
    if from > to {
        return Err(LabFailure::Range(format!(
            "the window holds no event: it goes from {from} to {to}, and the journal up to {last}"
        )));
    }
    if to - from >= EVENTS_MAX {
        return Err(LabFailure::Range(format!(
            "the window holds {} events, and {EVENTS_MAX} are taken at most; narrow it with from_seq and to_seq, or from_us and to_us",
            to - from + 1
        )));
    }
    Ok((from, to))
}

/// The first event that is not before a time; one past the last if there is none. Times never fall
/// along the journal.
async fn first_at(store: &dyn Store, at_us: u64, last: u64) -> Result<u64, LabFailure> {
    let (mut low, mut high) = (1, last + 1);
    while low < high {
        let middle = u64::midpoint(low, high);
        let row = store.events_after(middle - 1, 1).await?;
        match row.first() {
            // What was pruned is before what is there.
            Some(row) if row.at_us < at_us => low = row.seq.max(middle) + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

async fn page(
    store: &dyn Store,
    names: &Names,
    after: u64,
    to: u64,
) -> Result<Vec<EventRow>, LabFailure> {
    let page = EventPage {
        names: names.clone(),
        shared_kinds: Some(SHARED_KINDS),
        range: SeqPage {
            after: Some(after),
            before: Some(to + 1),
            order: Order::OldestFirst,
            limit: PAGE_ROWS_MAX,
        },
        ..EventPage::default()
    };
    Ok(store.events_page(&page).await?)
}

/// Engines and settings before an event, in order.
async fn before(store: &dyn Store, from: u64) -> Result<Vec<EventRow>, LabFailure> {
    let mut rows = Vec::new();
    for kind in KINDS_BEFORE {
        let page = EventPage {
            kind: Some((*kind).to_owned()),
            range: SeqPage {
                before: Some(from),
                order: Order::NewestFirst,
                limit: PAGE_ROWS_MAX,
                ..SeqPage::default()
            },
            ..EventPage::default()
        };
        rows.extend(store.events_page(&page).await?);
    }
    rows.sort_by_key(|row| row.seq);
    Ok(rows)
}

/// Tells the recorder which of its programs had begun before the window.
async fn note_begun_before(
    store: &dyn Store,
    names: &Names,
    first_us: u64,
    recorder: &mut Recorder,
) -> Result<(), LabFailure> {
    let mut within = BTreeSet::new();
    let mut cursor = None;
    for _ in 0..PROGRAM_PAGES_MAX {
        let page = ProgramPage {
            names: names.clone(),
            after: cursor,
            limit: PAGE_ROWS_MAX,
            ..ProgramPage::default()
        };
        let rows = store.programs(&page).await?;
        let began = rows.iter().filter(|row| row.created_at_us >= first_us);
        within.extend(began.map(|row| row.program.clone()));
        let Some(last) = rows.last() else {
            break;
        };
        if last.created_at_us < first_us {
            break;
        }
        cursor = Some(ProgramCursor {
            created_at_us: last.created_at_us,
            program: last.program.clone(),
        });
    }
    recorder.begun_outside(&within);
    Ok(())
}

fn is_of_job(event: &Event, job: Option<&str>) -> bool {
    match (event, job) {
        (Event::StepArrived(arrival), Some(job)) => &*arrival.job == job,
        // What else happens to a program matters only where its steps were taken.
        _ => true,
    }
}

fn event_of(row: &EventRow) -> Result<Event, LabFailure> {
    let decoded = record::decode(&row.body);
    let (event, _) = decoded.map_err(|error| LabFailure::Event {
        seq: row.seq,
        error,
    })?;
    Ok(event)
}
