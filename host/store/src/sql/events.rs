//! Events and decisions.

use super::table::table;
use super::{Cells, Engine, Statement, TENANT, TableRow as _, Work, direction, names};
use crate::{DecisionPage, EventPage, Names, Order, PAGE_ROWS_MAX, SeqPage, StoreError};

table! {
    /// An event that the core has handled.
    pub struct EventRow in "events", insert (seq) {
        /// Position in the journal: 1 for the first event, one more for each further.
        seq: u64,
        /// When the core handled it.
        at_us: u64,
        /// Kind of event, in past tense.
        kind: String,
        /// Job that it belongs to.
        job: String,
        /// Program that it belongs to, if any.
        program: Option<String>,
        /// The event itself, as JSON.
        body: String,
    }
}

table! {
    /// A decision and its reasons.
    pub struct DecisionRow in "decisions", insert (id) {
        /// The event that led to it.
        seq: u64,
        /// When it was taken.
        at_us: u64,
        /// Kind of decision.
        kind: String,
        /// Program that it is about, if any.
        program: Option<String>,
        /// Worker that it is about, if any.
        worker: Option<String>,
        /// Policy that took it, with its version.
        policy: String,
        /// Inputs, scores and alternatives, as JSON.
        why: String,
    }
}

const LAST: &str = "SELECT id, last_seq FROM journal_head";

const MOVE: &str = "UPDATE journal_head SET last_seq = $1";

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
    work.insert(events).await?;
    move_head(work, last_seq).await
}

/// Stores the end of the journal.
pub(super) async fn move_head(work: &mut impl Work, last_seq: u64) -> Result<(), StoreError> {
    work.execute(Statement::new(MOVE).number(last_seq)).await?;
    Ok(())
}

/// The statement that reads a page of events.
pub(super) fn page(page: &EventPage) -> Statement {
    let mut query = EventRow::select("WHERE true");
    for (column, value) in [
        ("job", &page.job),
        ("program", &page.program),
        ("kind", &page.kind),
    ] {
        query.push_equal(column, value.as_deref());
    }
    visible(&mut query, page);
    stretch(&mut query, &page.range, "");
    query
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
        table: DecisionRow::TABLE,
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
pub(super) async fn has_programs(
    engine: &impl Engine,
    page: &DecisionPage,
) -> Result<bool, StoreError> {
    let Some(job) = &page.job else {
        return Ok(true);
    };
    let query = Statement::new(OF_JOB).text(job);
    Ok(!engine.read(query).await?.is_empty())
}

/// The statement that reads a page of decisions.
pub(super) fn decisions(page: &DecisionPage) -> Statement {
    let columns = DecisionRow::list("");
    let mut query = Statement::made(format!("SELECT id, {columns} FROM decisions WHERE true"));
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
    query
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
