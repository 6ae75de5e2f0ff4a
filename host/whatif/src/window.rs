//! Reads a window of the journal from the store.

use super::request::WindowSpec;
use super::{EVENTS_MAX, WhatIfError};
use crate::recorded::{RecordedWorker, Recorder, RecorderOptions, Workload};
use std::collections::BTreeSet;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_model::Tenant;
use treadle_model::{Timestamp, WorkerId};
use treadle_scheduler::record;
use treadle_store::{
    EventPage, EventRow, Journal, Names, Order, PAGE_ROWS_MAX, ProgramCursor, ProgramPage,
    Programs, SeqPage, Store,
};

/// Kinds of events without a program that are read.
const SHARED_KINDS: &[&str] = &[
    "worker_added",
    "worker_capacity_read",
    "worker_lost",
    "worker_recovered",
    "worker_removed",
    "worker_class_set",
    "job_declared",
    "job_removed",
    "group_submitted",
    "configured",
    "daemon_restarted",
];
/// Kinds that are also read from before the window.
const KINDS_BEFORE: &[&str] = &[
    "worker_added",
    "worker_capacity_read",
    "worker_lost",
    "worker_recovered",
    "worker_removed",
    "worker_class_set",
    "job_declared",
    "job_removed",
    "group_submitted",
    "member_arrived",
    "configured",
];
/// Limit on pages of programs that are searched for their beginning.
const PROGRAM_PAGES_MAX: usize = 16;

/// Reads the workload of a window: a tenant's programs or all, their engines, and the settings.
pub async fn load(
    store: &dyn Store,
    window: &WindowSpec,
    tenant: Option<&Tenant>,
    options: RecorderOptions,
    goes_on: &(dyn Fn() -> bool + Sync),
) -> Result<Workload, WhatIfError> {
    let names = tenant.map_or_else(Names::default, Names::from);
    let job = window.job.as_ref().map(|job| match tenant {
        Some(tenant) => tenant.inside(job).into_owned(),
        None => job.to_string(),
    });
    let (from, to) = range(store, window).await?;
    let mut recorder = Recorder::new(options);
    for row in before(store, from).await? {
        recorder.prepare(&event_of(&row)?);
    }
    add_workers_beside(store, from, &mut recorder).await?;
    let mut after = from - 1;
    let mut first_us = None;
    loop {
        if !goes_on() {
            return Err(WhatIfError::Cancelled);
        }
        let rows = page(store, &names, after, to).await?;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            break;
        };
        after = last.seq;
        first_us.get_or_insert(first.at_us);
        let job = job.clone();
        recorder = on_thread(move || take(recorder, &rows, job.as_deref())).await??;
    }
    // If the journal's beginning is pruned, programs may have begun before it.
    if let (Some(first_us), true) = (first_us, from > 1) {
        note_begun_before(store, &names, first_us, &mut recorder).await?;
    }
    Ok(on_thread(move || recorder.finish()).await??)
}

/// Passes the events of a page to the recorder.
fn take(
    mut recorder: Recorder,
    rows: &[EventRow],
    job: Option<&str>,
) -> Result<Recorder, WhatIfError> {
    for row in rows {
        let event = event_of(row)?;
        if is_of_job(&event, job) {
            recorder.take(Timestamp(row.at_us), &event)?;
        }
    }
    Ok(recorder)
}

/// Runs a long computation on a blocking thread.
async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, WhatIfError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| WhatIfError::Ended(error.to_string()))
}

/// Adds engines that existed when the window began, but whose registration was pruned from the
/// journal.
async fn add_workers_beside(
    store: &dyn Store,
    from: u64,
    recorder: &mut Recorder,
) -> Result<(), WhatIfError> {
    let rows = store.workers().await?;
    let rows = rows.into_iter().filter_map(|row| {
        let number = row.worker.strip_prefix('w')?.parse().ok()?;
        Some((WorkerId(number), row))
    });
    let missing: Vec<_> = rows.filter(|(id, _)| !recorder.knows_worker(*id)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let later = later(store, from).await?;
    for (id, row) in missing {
        if later.came.contains(&id) {
            continue;
        }
        let known = RecordedWorker {
            url: row.url.into(),
            kv_tokens: row.capacity_tokens,
            class: None,
        };
        recorder.worker_beside(id, known);
        if row.status == LOST && !later.lost.contains(&id) {
            let cause = "it was lost before the window".into();
            recorder.prepare(&Event::Program(ProgramEvent::WorkerLost {
                worker: id,
                cause,
            }));
        }
    }
    Ok(())
}

/// The store's status of an engine that does not answer.
const LOST: &str = "lost";

/// Engines in events from the window's beginning on.
#[derive(Default)]
struct Later {
    /// Added ones. Those that a restart registers again existed before.
    came: BTreeSet<WorkerId>,
    /// Lost ones.
    lost: BTreeSet<WorkerId>,
}

async fn later(store: &dyn Journal, from: u64) -> Result<Later, WhatIfError> {
    let of_kind = async |kind: &str| -> Result<Vec<EventRow>, WhatIfError> {
        let page = EventPage {
            kind: Some(kind.to_owned()),
            range: SeqPage {
                after: Some(from - 1),
                order: Order::OldestFirst,
                limit: PAGE_ROWS_MAX,
                ..SeqPage::default()
            },
            ..EventPage::default()
        };
        Ok(store.events_page(&page).await?)
    };
    let restarts = of_kind("daemon_restarted").await?;
    let restarted = restarts.first().map_or(u64::MAX, |row| row.seq);
    let mut later = Later::default();
    for row in of_kind("worker_added").await? {
        if let (true, Event::Program(ProgramEvent::WorkerAdded { worker, .. })) =
            (row.seq < restarted, event_of(&row)?)
        {
            later.came.insert(worker);
        }
    }
    for row in of_kind("worker_lost").await? {
        if let Event::Program(ProgramEvent::WorkerLost { worker, .. }) = event_of(&row)? {
            later.lost.insert(worker);
        }
    }
    Ok(later)
}

/// First and last event of a window, within the limit.
async fn range(store: &dyn Journal, window: &WindowSpec) -> Result<(u64, u64), WhatIfError> {
    let last = store.last_seq().await?;
    // The journal's beginning may be pruned.
    let first = store.events_after(0, 1).await?;
    let first = first.first().map_or(1, |row| row.seq);
    let mut from = window.from_seq.unwrap_or(first).max(first);
    if let Some(from_us) = window.from_us {
        from = from.max(first_at(store, from_us, last).await?);
    }
    let mut to = window.to_seq.unwrap_or(last).min(last);
    if let Some(to_us) = window.to_us {
        to = to.min(first_at(store, to_us.saturating_add(1), last).await? - 1);
    }
    if from > to {
        return Err(WhatIfError::Range(format!(
            "the window has no events: it goes from {from} to {to}, and the journal from {first} to {last}"
        )));
    }
    if to - from >= EVENTS_MAX {
        return Err(WhatIfError::Range(format!(
            "the window has {} events, and the limit is {EVENTS_MAX}; narrow it with from_seq and to_seq, or from_us and to_us",
            to - from + 1
        )));
    }
    Ok((from, to))
}

/// The first event at or after a time, or one past the last. Times never decrease along the
/// journal.
async fn first_at(store: &dyn Journal, at_us: u64, last: u64) -> Result<u64, WhatIfError> {
    let (mut low, mut high) = (1, last + 1);
    while low < high {
        let middle = u64::midpoint(low, high);
        let row = store.events_after(middle - 1, 1).await?;
        match row.first() {
            // Pruned events are older than all others.
            Some(row) if row.at_us < at_us => low = row.seq.max(middle) + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

async fn page(
    store: &dyn Journal,
    names: &Names,
    after: u64,
    to: u64,
) -> Result<Vec<EventRow>, WhatIfError> {
    let page = EventPage {
        names: names.clone(),
        shared_kinds: Some(SHARED_KINDS),
        range: SeqPage {
            after: Some(after),
            before: Some(to + 1),
            limit: PAGE_ROWS_MAX,
            ..SeqPage::default()
        },
        ..EventPage::default()
    };
    Ok(store.events_page(&page).await?)
}

/// Events about engines, settings and members before an event, the latest of each kind, in order.
async fn before(store: &dyn Journal, from: u64) -> Result<Vec<EventRow>, WhatIfError> {
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

/// Tells the recorder which programs began before the window.
async fn note_begun_before(
    store: &dyn Programs,
    names: &Names,
    first_us: u64,
    recorder: &mut Recorder,
) -> Result<(), WhatIfError> {
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
            value: page.value_of(last),
            program: last.program.clone(),
        });
    }
    recorder.begun_outside(&within);
    Ok(())
}

fn is_of_job(event: &Event, job: Option<&str>) -> bool {
    match (event, job) {
        (Event::Program(ProgramEvent::StepArrived(arrival)), Some(job)) => &*arrival.job == job,
        // Other events of a program are ignored unless its steps were recorded.
        _ => true,
    }
}

fn event_of(row: &EventRow) -> Result<Event, WhatIfError> {
    let decoded = record::decode(&row.body);
    let (event, _) = decoded.map_err(|error| WhatIfError::Event {
        seq: row.seq,
        error,
    })?;
    Ok(event)
}

#[cfg(test)]
mod tests;
