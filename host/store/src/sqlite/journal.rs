//! Events and decisions.

use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};
use sqlx::{QueryBuilder, Sqlite};

use super::cells::Cells;
use super::insert::{self, Table, Values};
use super::names;
use crate::{DecisionRow, EventPage, EventRow, Names, Order, PAGE_ROWS_MAX, SeqPage, StoreError};

const EVENTS: Table = Table {
    name: "events",
    columns: &["seq", "at_us", "kind", "job", "program", "body"],
    key: &[],
};

const DECISIONS: Table = Table {
    name: "decisions",
    columns: &["seq", "at_us", "kind", "program", "worker", "policy", "why"],
    key: &[],
};

const HEAD: &str = "SELECT id, last_seq FROM journal_head";

/// Last sequence number that was ever given away.
pub(super) async fn last_seq(pool: &SqlitePool) -> Result<u64, StoreError> {
    head(&sqlx::query(HEAD).fetch_one(pool).await?)
}

/// The same, as the transaction sees it.
pub(super) async fn last_seq_within(connection: &mut SqliteConnection) -> Result<u64, StoreError> {
    head(&sqlx::query(HEAD).fetch_one(connection).await?)
}

fn head(row: &SqliteRow) -> Result<u64, StoreError> {
    let cells = Cells {
        table: "journal_head",
        key: &["id"],
        row,
    };
    cells.number("last_seq")
}

/// Adds events that continue the journal one by one and returns its new last sequence number.
pub(super) async fn add_events(
    connection: &mut SqliteConnection,
    events: &[EventRow],
) -> Result<u64, StoreError> {
    let mut last_seq = last_seq_within(connection).await?;
    if events.is_empty() {
        return Ok(last_seq);
    }
    for event in events {
        if Some(event.seq) != last_seq.checked_add(1) {
            return Err(StoreError::Gap {
                last_seq,
                got: event.seq,
            });
        }
        last_seq = event.seq;
    }
    insert::rows(connection, &EVENTS, events, bind_event).await?;
    let mut values = Values::of("journal_head");
    values.number("last_seq", last_seq)?;
    sqlx::query_with("UPDATE journal_head SET last_seq = ?", values.done())
        .execute(connection)
        .await?;
    Ok(last_seq)
}

fn bind_event(event: &EventRow, values: &mut Values) -> Result<(), StoreError> {
    values.number("seq", event.seq)?;
    values.number("at_us", event.at_us)?;
    values.value(event.kind.as_str())?;
    values.value(event.job.as_str())?;
    values.value(event.program.as_deref())?;
    values.value(event.body.as_str())
}

/// Adds decisions.
pub(super) async fn add_decisions(
    connection: &mut SqliteConnection,
    decisions: &[DecisionRow],
) -> Result<(), StoreError> {
    insert::rows(connection, &DECISIONS, decisions, bind_decision).await
}

fn bind_decision(decision: &DecisionRow, values: &mut Values) -> Result<(), StoreError> {
    values.number("seq", decision.seq)?;
    values.number("at_us", decision.at_us)?;
    values.value(decision.kind.as_str())?;
    values.value(decision.program.as_deref())?;
    values.value(decision.worker.as_deref())?;
    values.value(decision.policy.as_str())?;
    values.value(decision.why.as_str())
}

/// Events that match.
pub(super) async fn events(
    pool: &SqlitePool,
    page: &EventPage,
) -> Result<Vec<EventRow>, StoreError> {
    let mut query =
        QueryBuilder::new("SELECT seq, at_us, kind, job, program, body FROM events WHERE true");
    equal(&mut query, "program", page.program.as_deref());
    equal(&mut query, "kind", page.kind.as_deref());
    visible(&mut query, page);
    stretch(&mut query, &page.range, "");
    let rows = query.build().fetch_all(pool).await?;
    rows.iter().map(read_event).collect()
}

/// Events of programs with some names, and those of no program.
fn visible(query: &mut QueryBuilder<Sqlite>, page: &EventPage) {
    if page.names == Names::Any && page.shared_kinds.is_none() {
        return;
    }
    query.push(" AND ((program IS NOT NULL");
    names::push(query, "program", &page.names);
    query.push(") OR (program IS NULL");
    if let Some(kinds) = page.shared_kinds {
        query.push(" AND kind IN (");
        let mut list = query.separated(", ");
        for kind in kinds {
            list.push_bind(*kind);
        }
        query.push(")");
    }
    query.push("))");
}

fn read_event(row: &SqliteRow) -> Result<EventRow, StoreError> {
    let cells = Cells {
        table: "events",
        key: &["seq"],
        row,
    };
    Ok(EventRow {
        seq: cells.number("seq")?,
        at_us: cells.number("at_us")?,
        kind: cells.value("kind")?,
        job: cells.value("job")?,
        program: cells.value("program")?,
        body: cells.value("body")?,
    })
}

/// Decisions that match.
pub(super) async fn decisions(
    pool: &SqlitePool,
    program: Option<&str>,
    page: &SeqPage,
) -> Result<Vec<DecisionRow>, StoreError> {
    let mut query = QueryBuilder::new(
        "SELECT id, seq, at_us, kind, program, worker, policy, why FROM decisions WHERE true",
    );
    equal(&mut query, "program", program);
    stretch(&mut query, page, ", id");
    let rows = query.build().fetch_all(pool).await?;
    rows.iter().map(read_decision).collect()
}

fn read_decision(row: &SqliteRow) -> Result<DecisionRow, StoreError> {
    let cells = Cells {
        table: "decisions",
        key: &["id"],
        row,
    };
    Ok(DecisionRow {
        seq: cells.number("seq")?,
        at_us: cells.number("at_us")?,
        kind: cells.value("kind")?,
        program: cells.value("program")?,
        worker: cells.value("worker")?,
        policy: cells.value("policy")?,
        why: cells.value("why")?,
    })
}

fn equal(query: &mut QueryBuilder<Sqlite>, column: &str, value: Option<&str>) {
    if let Some(value) = value {
        query.push(format_args!(" AND {column} = "));
        query.push_bind(value.to_owned());
    }
}

/// Ends a query with a stretch of `seq`; `tie` names what orders rows of one event.
fn stretch(query: &mut QueryBuilder<Sqlite>, page: &SeqPage, tie: &str) {
    if let Some(after) = page.after {
        query.push(" AND seq > ");
        query.push_bind(i64::try_from(after).unwrap_or(i64::MAX));
    }
    if let Some(before) = page.before {
        query.push(" AND seq < ");
        query.push_bind(i64::try_from(before).unwrap_or(i64::MAX));
    }
    let direction = match page.order {
        Order::OldestFirst => "ASC",
        Order::NewestFirst => "DESC",
    };
    query.push(format_args!(" ORDER BY seq {direction}"));
    if !tie.is_empty() {
        query.push(format_args!("{tie} {direction}"));
    }
    query.push(" LIMIT ");
    query.push_bind(page.limit.min(PAGE_ROWS_MAX));
}
