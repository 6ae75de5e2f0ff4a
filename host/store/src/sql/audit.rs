//! The audit log.

use async_trait::async_trait;

use super::table::table;
use super::{Cells, Engine, SqlStore, Statement, TableRow as _, Work as _, direction};
use crate::{AUDIT_ROW_BYTES, Audit, AuditPage, PAGE_ROWS_MAX, PRUNE_ROWS_MAX, StoreError};

table! {
    /// An entry of the audit log.
    pub struct AuditRow in "audit", insert (id) {
        /// Time of the change.
        at_us: u64,
        /// Tenant in which the change was made.
        tenant: String,
        /// The caller who made the change.
        who: String,
        /// What was done, such as `token.created`.
        action: String,
        /// The changed object.
        target: String,
        /// The object before the change, as JSON.
        before: String,
        /// The object after the change, as JSON.
        after: String,
        /// Id of the request.
        request_id: String,
        /// Client address of the request.
        address: Option<String>,
        generated {
            /// Its number, rising; the store chooses it when the row is added.
            id: u64,
        }
    }
}

const NEWEST: &str = "SELECT coalesce(max(id), 0) AS id FROM audit";

const PRUNE: &str = "DELETE FROM audit WHERE id IN \
     (SELECT id FROM audit WHERE id <= $1 ORDER BY id LIMIT $2)";

#[async_trait]
impl<E: Engine> Audit for SqlStore<E> {
    async fn add_audit(&self, rows: &[AuditRow]) -> Result<(), StoreError> {
        self.watched("audit", async {
            let mut work = self.begin_beside().await?;
            work.insert(rows).await?;
            work.commit().await
        })
        .await
    }

    async fn audit(&self, page: &AuditPage) -> Result<Vec<AuditRow>, StoreError> {
        self.engine.read_rows(statement(page)).await
    }

    async fn prune_audit(&self, keep: u64) -> Result<u64, StoreError> {
        self.watched("audit", async {
            let last = newest(&*self.engine).await?;
            let from = last.saturating_sub(keep);
            let bytes_max = keep.saturating_mul(AUDIT_ROW_BYTES);
            let cut = self.audit_sizes.cut(&*self.engine, from, last, bytes_max);
            let prune = Statement::new(PRUNE).number(cut.await?);
            let mut work = self.begin().await?;
            let pruned = work.execute(prune.number(PRUNE_ROWS_MAX)).await?;
            work.commit().await?;
            Ok(pruned)
        })
        .await
    }
}

/// Number of the newest row; 0 without one.
async fn newest(engine: &impl Engine) -> Result<u64, StoreError> {
    let rows = engine.read(Statement::new(NEWEST)).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let cells = Cells {
        table: AuditRow::TABLE,
        key: &[],
        row,
    };
    cells.number("id")
}

fn statement(page: &AuditPage) -> Statement {
    let mut query = AuditRow::select("WHERE true");
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
    query
}
