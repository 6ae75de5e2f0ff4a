//! The audit log.

use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{QueryBuilder, Sqlite};

use super::cells::Cells;
use super::insert::{self, Table, Values};
use crate::{AuditPage, AuditRow, PAGE_ROWS_MAX, PRUNE_ROWS_MAX, StoreError};

const AUDIT: Table = Table {
    name: "audit",
    columns: &[
        "at_us",
        "tenant",
        "who",
        "action",
        "target",
        "before",
        "after",
        "request_id",
        "address",
    ],
    key: &[],
};

const SELECT: &str = "SELECT id, at_us, tenant, who, action, target, before, after, request_id, \
     address FROM audit WHERE true";

const PRUNE: &str = "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id <= \
     (SELECT coalesce(max(id), 0) FROM audit) - ? ORDER BY id LIMIT ?)";

/// Adds rows; their numbers are chosen here.
pub(super) async fn add(writer: &SqlitePool, rows: &[AuditRow]) -> Result<(), StoreError> {
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
    insert::rows(&mut transaction, &AUDIT, rows, bind).await?;
    Ok(transaction.commit().await?)
}

fn bind(row: &AuditRow, values: &mut Values) -> Result<(), StoreError> {
    values.number("at_us", row.at_us)?;
    values.value(row.tenant.as_str())?;
    values.value(row.who.as_str())?;
    values.value(row.action.as_str())?;
    values.value(row.target.as_str())?;
    values.value(row.before.as_str())?;
    values.value(row.after.as_str())?;
    values.value(row.request_id.as_str())?;
    values.value(row.address.as_deref())
}

/// Rows that match, newest first.
pub(super) async fn page(pool: &SqlitePool, page: &AuditPage) -> Result<Vec<AuditRow>, StoreError> {
    let mut query = QueryBuilder::<Sqlite>::new(SELECT);
    for (column, value) in [
        ("tenant", &page.tenant),
        ("action", &page.action),
        ("target", &page.target),
        ("who", &page.who),
    ] {
        if let Some(value) = value {
            query.push(format_args!(" AND {column} = "));
            query.push_bind(value.clone());
        }
    }
    if let Some(before) = page.before {
        query.push(" AND id < ");
        query.push_bind(i64::try_from(before).unwrap_or(i64::MAX));
    }
    query.push(" ORDER BY id DESC LIMIT ");
    query.push_bind(page.limit.min(PAGE_ROWS_MAX));
    let rows = query.build().fetch_all(pool).await?;
    rows.iter().map(read).collect()
}

/// Removes the oldest rows beyond the newest `keep`, a bounded number at a time.
pub(super) async fn prune(writer: &SqlitePool, keep: u64) -> Result<u64, StoreError> {
    let done = sqlx::query(PRUNE)
        .bind(i64::try_from(keep).unwrap_or(i64::MAX))
        .bind(i64::try_from(PRUNE_ROWS_MAX).unwrap_or(i64::MAX))
        .execute(writer)
        .await?;
    Ok(done.rows_affected())
}

fn read(row: &SqliteRow) -> Result<AuditRow, StoreError> {
    let cells = Cells {
        table: "audit",
        key: &["id"],
        row,
    };
    Ok(AuditRow {
        id: cells.number("id")?,
        at_us: cells.number("at_us")?,
        tenant: cells.value("tenant")?,
        who: cells.value("who")?,
        action: cells.value("action")?,
        target: cells.value("target")?,
        before: cells.value("before")?,
        after: cells.value("after")?,
        request_id: cells.value("request_id")?,
        address: cells.value("address")?,
    })
}
