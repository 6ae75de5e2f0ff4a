//! Actions that treadle runs.

use super::table::{number, text};
use super::{Cells, Engine, Record, Statement, Table, Values, Work, names};
use crate::{ActionPage, ActionRow, PAGE_ROWS_MAX, StoreError};

pub(super) const ACTIONS: Table<ActionRow> = Table {
    name: "actions",
    columns: &[
        number("action"),
        text("job"),
        text("program"),
        text("kind"),
        text("status"),
        number("attempts"),
        text("spec"),
        text("grants"),
        text("outcome"),
        text("output"),
        number("submitted_at_us"),
        number("granted_at_us"),
        number("began_at_us"),
        number("ended_at_us"),
    ],
    key: &["action"],
    bind,
};

const SELECT: &str = "SELECT action, job, program, kind, status, attempts, spec, grants, outcome, \
     output, submitted_at_us, granted_at_us, began_at_us, ended_at_us FROM actions WHERE ";

const PRUNE: &str = "DELETE FROM actions WHERE action IN \
     (SELECT action FROM actions WHERE ended_at_us < $1 ORDER BY action LIMIT $2)";

/// Adds or replaces actions.
pub(super) async fn put(work: &mut impl Work, actions: &[ActionRow]) -> Result<(), StoreError> {
    work.insert(&ACTIONS, actions).await
}

fn bind<'r>(row: &'r ActionRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.number("action", row.action)?;
    values.text(&row.job)?;
    values.maybe_text(row.program.as_deref())?;
    values.text(&row.kind)?;
    values.text(&row.status)?;
    values.number("attempts", row.attempts)?;
    values.text(&row.spec)?;
    values.maybe_text(row.grants.as_deref())?;
    values.maybe_text(row.outcome.as_deref())?;
    values.maybe_text(row.output.as_deref())?;
    values.number("submitted_at_us", row.submitted_at_us)?;
    values.maybe_number("granted_at_us", row.granted_at_us)?;
    values.maybe_number("began_at_us", row.began_at_us)?;
    values.maybe_number("ended_at_us", row.ended_at_us)
}

/// One action.
pub(super) async fn get(
    engine: &impl Engine,
    action: u64,
) -> Result<Option<ActionRow>, StoreError> {
    let mut query = Statement::new(SELECT);
    query.push("action = ");
    query.push_number(action);
    let rows = engine.read(query).await?;
    rows.first().map(read).transpose()
}

/// Actions that match, newest first.
pub(super) async fn page(
    engine: &impl Engine,
    page: &ActionPage,
) -> Result<Vec<ActionRow>, StoreError> {
    let rows = engine.read(statement(page)).await?;
    rows.iter().map(read).collect()
}

fn statement(page: &ActionPage) -> Statement {
    let mut query = Statement::new(SELECT);
    query.push("TRUE");
    for (column, value) in [
        ("job", &page.job),
        ("program", &page.program),
        ("status", &page.status),
    ] {
        query.push_equal(column, value.as_deref());
    }
    names::push(&mut query, "job", &page.names);
    query.push_compared("action < ", page.before);
    query.push(" ORDER BY action DESC LIMIT ");
    query.push_number(page.limit.min(PAGE_ROWS_MAX).into());
    query
}

/// Removes actions that ended before a time, up to a limit.
pub(super) async fn prune(
    work: &mut impl Work,
    before_us: u64,
    limit: u64,
) -> Result<u64, StoreError> {
    work.execute(Statement::new(PRUNE).number(before_us).number(limit))
        .await
}

fn read(row: &impl Record) -> Result<ActionRow, StoreError> {
    let cells = Cells {
        table: "actions",
        key: &["action"],
        row,
    };
    Ok(ActionRow {
        action: cells.number("action")?,
        job: cells.text("job")?,
        program: cells.maybe_text("program")?,
        kind: cells.text("kind")?,
        status: cells.text("status")?,
        attempts: cells.number("attempts")?,
        spec: cells.text("spec")?,
        grants: cells.maybe_text("grants")?,
        outcome: cells.maybe_text("outcome")?,
        output: cells.maybe_text("output")?,
        submitted_at_us: cells.number("submitted_at_us")?,
        granted_at_us: cells.maybe_number("granted_at_us")?,
        began_at_us: cells.maybe_number("began_at_us")?,
        ended_at_us: cells.maybe_number("ended_at_us")?,
    })
}
