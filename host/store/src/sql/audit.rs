//! The audit log.

use super::table::{number, text};
use super::{Cells, Engine, Record, Statement, Table, Values, Work, direction};
use crate::{AuditPage, AuditRow, PAGE_ROWS_MAX, PRUNE_ROWS_MAX, StoreError};

const AUDIT: Table<AuditRow> = Table {
    name: "audit",
    columns: &[
        number("at_us"),
        text("tenant"),
        text("who"),
        text("action"),
        text("target"),
        text("before"),
        text("after"),
        text("request_id"),
        text("address"),
    ],
    key: &[],
    bind,
};

const SELECT: &str = "SELECT id, at_us, tenant, who, action, target, before, after, request_id, \
     address FROM audit WHERE true";

const PRUNE: &str = "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id <= \
     (SELECT coalesce(max(id), 0) FROM audit) - $1 ORDER BY id LIMIT $2)";

/// Adds rows; their numbers are chosen here.
pub(super) async fn add(work: &mut impl Work, rows: &[AuditRow]) -> Result<(), StoreError> {
    work.insert(&AUDIT, rows).await
}

fn bind<'r>(row: &'r AuditRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.number("at_us", row.at_us)?;
    values.text(&row.tenant)?;
    values.text(&row.who)?;
    values.text(&row.action)?;
    values.text(&row.target)?;
    values.text(&row.before)?;
    values.text(&row.after)?;
    values.text(&row.request_id)?;
    values.maybe_text(row.address.as_deref())
}

/// Rows that match.
pub(super) async fn page(
    engine: &impl Engine,
    page: &AuditPage,
) -> Result<Vec<AuditRow>, StoreError> {
    let mut query = Statement::new(SELECT);
    for (column, value) in [
        ("tenant", &page.tenant),
        ("action", &page.action),
        ("target", &page.target),
        ("who", &page.who),
    ] {
        query.push_equal(column, value.as_deref());
    }
    query.push_compared("at_us >= ", page.since_us);
    query.push_compared("id < ", page.before);
    query.push_compared("id > ", page.after);
    query.push(" ORDER BY id ");
    query.push(direction(page.ascending));
    query.push(" LIMIT ");
    query.push_number(page.limit.min(PAGE_ROWS_MAX).into());
    let rows = engine.read(query).await?;
    rows.iter().map(read).collect()
}

/// Removes the oldest rows beyond the newest `keep`, a bounded number at a time.
pub(super) async fn prune(work: &mut impl Work, keep: u64) -> Result<u64, StoreError> {
    let prune = Statement::new(PRUNE).number(keep).number(PRUNE_ROWS_MAX);
    work.execute(prune).await
}

fn read(row: &impl Record) -> Result<AuditRow, StoreError> {
    let cells = Cells {
        table: "audit",
        key: &["id"],
        row,
    };
    Ok(AuditRow {
        id: cells.number("id")?,
        at_us: cells.number("at_us")?,
        tenant: cells.text("tenant")?,
        who: cells.text("who")?,
        action: cells.text("action")?,
        target: cells.text("target")?,
        before: cells.text("before")?,
        after: cells.text("after")?,
        request_id: cells.text("request_id")?,
        address: cells.maybe_text("address")?,
    })
}
