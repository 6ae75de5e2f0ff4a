//! Events and decisions.

use super::table::{number, text};
use super::{Cells, Engine, Record, Statement, TENANT, Table, Values, Work, direction, names};
use crate::{
    DecisionPage, DecisionRow, EventPage, EventRow, Names, Order, PAGE_ROWS_MAX, SeqPage,
    StoreError,
};

/// Events.
pub(super) const EVENTS: Table<EventRow> = Table {
    name: "events",
    columns: &[
        number("seq"),
        number("at_us"),
        text("kind"),
        text("job"),
        text("program"),
        text("body"),
    ],
    key: &[],
    bind: bind_event,
};

/// Decisions.
pub(super) const DECISIONS: Table<DecisionRow> = Table {
    name: "decisions",
    columns: &[
        number("seq"),
        number("at_us"),
        text("kind"),
        text("program"),
        text("worker"),
        text("policy"),
        text("why"),
    ],
    key: &[],
    bind: bind_decision,
};

const LAST: &str = "SELECT id, last_seq FROM journal_head";

const MOVE: &str = "UPDATE journal_head SET last_seq = $1";

const EVENTS_PAGE: &str = "SELECT seq, at_us, kind, job, program, body FROM events WHERE true";

const DECISIONS_PAGE: &str =
    "SELECT id, seq, at_us, kind, program, worker, policy, why FROM decisions WHERE true";

const DECISIONS_REACH: &str = "SELECT seq, at_us FROM decisions WHERE true";

const OF_JOB: &str = "SELECT job FROM programs WHERE job = $1 LIMIT 1";

/// The last sequence number that was ever assigned.
pub(super) async fn last_seq(engine: &impl Engine) -> Result<u64, StoreError> {
    let rows = engine.read(Statement::new(LAST)).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let cells = Cells {
        table: "journal_head",
        key: &["id"],
        row,
    };
    cells.number("last_seq")
}

/// The journal's last sequence number after these events, which must continue it without a gap.
pub(super) fn follow(mut last_seq: u64, events: &[EventRow]) -> Result<u64, StoreError> {
    for event in events {
        if Some(event.seq) != last_seq.checked_add(1) {
            return Err(StoreError::Gap {
                last_seq,
                got: event.seq,
            });
        }
        last_seq = event.seq;
    }
    Ok(last_seq)
}

/// Adds events that continue the journal and end at `last_seq`.
pub(super) async fn add_events(
    work: &mut impl Work,
    events: &[EventRow],
    last_seq: u64,
) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    work.insert(&EVENTS, events).await?;
    move_head(work, last_seq).await
}

/// Stores the end of the journal.
pub(super) async fn move_head(work: &mut impl Work, last_seq: u64) -> Result<(), StoreError> {
    work.execute(Statement::new(MOVE).number(last_seq)).await?;
    Ok(())
}

fn bind_event<'r>(event: &'r EventRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.number("seq", event.seq)?;
    values.number("at_us", event.at_us)?;
    values.text(&event.kind)?;
    values.text(&event.job)?;
    values.maybe_text(event.program.as_deref())?;
    values.text(&event.body)
}

/// Adds decisions.
pub(super) async fn add_decisions(
    work: &mut impl Work,
    decisions: &[DecisionRow],
) -> Result<(), StoreError> {
    work.insert(&DECISIONS, decisions).await
}

fn bind_decision<'r>(
    decision: &'r DecisionRow,
    values: &mut dyn Values<'r>,
) -> Result<(), StoreError> {
    values.number("seq", decision.seq)?;
    values.number("at_us", decision.at_us)?;
    values.text(&decision.kind)?;
    values.maybe_text(decision.program.as_deref())?;
    values.maybe_text(decision.worker.as_deref())?;
    values.text(&decision.policy)?;
    values.text(&decision.why)
}

/// Events that match.
pub(super) async fn events(
    engine: &impl Engine,
    page: &EventPage,
) -> Result<Vec<EventRow>, StoreError> {
    let mut query = Statement::new(EVENTS_PAGE);
    for (column, value) in [
        ("job", &page.job),
        ("program", &page.program),
        ("kind", &page.kind),
    ] {
        query.push_equal(column, value.as_deref());
    }
    visible(&mut query, page);
    stretch(&mut query, &page.range, "");
    let rows = engine.read(query).await?;
    rows.iter().map(read_event).collect()
}

/// Restricts a query to events of visible programs, and those without a program.
fn visible(query: &mut Statement, page: &EventPage) {
    if page.names == Names::Any && page.shared_kinds.is_none() {
        return;
    }
    query.push(" AND ((program IS NOT NULL");
    names::push(query, "program", &page.names);
    query.push(") OR (program IS NULL");
    if let Some(kinds) = page.shared_kinds {
        query.push(" AND kind IN (");
        for (n, kind) in kinds.iter().enumerate() {
            query.push(if n == 0 { "" } else { ", " });
            query.push_text(kind);
        }
        query.push(")");
    }
    query.push("))");
}

fn read_event(row: &impl Record) -> Result<EventRow, StoreError> {
    let cells = Cells {
        table: "events",
        key: &["seq"],
        row,
    };
    Ok(EventRow {
        seq: cells.number("seq")?,
        at_us: cells.number("at_us")?,
        kind: cells.text("kind")?,
        job: cells.text("job")?,
        program: cells.maybe_text("program")?,
        body: cells.text("body")?,
    })
}

/// The event of the last of the first `rows` decisions that a query for this page scans.
pub(super) async fn decisions_reach(
    engine: &impl Engine,
    page: &DecisionPage,
    rows: u32,
) -> Result<Option<u64>, StoreError> {
    let is_filtered = page.kind.is_some()
        || page.worker.is_some()
        || page.policy.is_some()
        || page.job.is_some()
        || page.names != Names::Any;
    if !is_filtered || page.program.is_some() || !has_programs(engine, page).await? {
        return Ok(None);
    }
    let read = engine.read(decisions_reach_statement(page, rows)).await?;
    let Some(row) = read.first() else {
        return Ok(None);
    };
    let cells = Cells {
        table: "decisions",
        key: &["seq"],
        row,
    };
    let (seq, at_us) = (cells.number("seq")?, cells.number("at_us")?);
    // Times rise with numbers, so rows further back are older still.
    let goes_back = page.range.order == Order::NewestFirst;
    let is_too_old = page.range.since_us.is_some_and(|since_us| at_us < since_us);
    Ok(Some(seq).filter(|_| !(goes_back && is_too_old)))
}

pub(super) fn decisions_reach_statement(page: &DecisionPage, rows: u32) -> Statement {
    let mut query = Statement::new(DECISIONS_REACH);
    query.push_compared("seq > ", page.range.after);
    query.push_compared("seq < ", page.range.before);
    query.push(" ORDER BY seq ");
    query.push(direction(page.range.order == Order::OldestFirst));
    query.push(" LIMIT 1 OFFSET ");
    query.push_number(u64::from(rows.saturating_sub(1)));
    query
}

/// Whether the job of a page, if any, has stored programs.
async fn has_programs(engine: &impl Engine, page: &DecisionPage) -> Result<bool, StoreError> {
    let Some(job) = &page.job else {
        return Ok(true);
    };
    let query = Statement::new(OF_JOB).text(job);
    Ok(!engine.read(query).await?.is_empty())
}

/// Decisions that match.
pub(super) async fn decisions(
    engine: &impl Engine,
    page: &DecisionPage,
) -> Result<Vec<DecisionRow>, StoreError> {
    if !has_programs(engine, page).await? {
        // Otherwise every row would be scanned.
        return Ok(Vec::new());
    }
    let mut query = Statement::new(DECISIONS_PAGE);
    for (column, value) in [
        ("program", &page.program),
        ("kind", &page.kind),
        ("worker", &page.worker),
        ("policy", &page.policy),
    ] {
        query.push_equal(column, value.as_deref());
    }
    if let Some(job) = &page.job {
        // As a subquery per row, so that rows keep the journal's order.
        query.push(" AND EXISTS (SELECT 1 FROM programs p WHERE p.tenant = ");
        query.push_text(TENANT);
        query.push(" AND p.program = decisions.program AND p.job = ");
        query.push_text(job);
        query.push(")");
    }
    names::push(&mut query, "program", &page.names);
    stretch(&mut query, &page.range, ", id ");
    let rows = engine.read(query).await?;
    rows.iter().map(read_decision).collect()
}

fn read_decision(row: &impl Record) -> Result<DecisionRow, StoreError> {
    let cells = Cells {
        table: "decisions",
        key: &["id"],
        row,
    };
    Ok(DecisionRow {
        seq: cells.number("seq")?,
        at_us: cells.number("at_us")?,
        kind: cells.text("kind")?,
        program: cells.maybe_text("program")?,
        worker: cells.maybe_text("worker")?,
        policy: cells.text("policy")?,
        why: cells.text("why")?,
    })
}

/// Ends a query with a range of `seq`; `tie` is the column that orders rows of one event.
fn stretch(query: &mut Statement, page: &SeqPage, tie: &str) {
    query.push_compared("seq > ", page.after);
    query.push_compared("seq < ", page.before);
    query.push_compared("at_us >= ", page.since_us);
    let direction = direction(page.order == Order::OldestFirst);
    query.push(" ORDER BY seq ");
    query.push(direction);
    if !tie.is_empty() {
        query.push(tie);
        query.push(direction);
    }
    query.push(" LIMIT ");
    query.push_number(page.limit.min(PAGE_ROWS_MAX).into());
}
