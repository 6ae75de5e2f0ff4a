//! The audit log.

use async_trait::async_trait;

use super::store::writing;
use super::table::table;
use super::{Engine, SqlStore, Statement, TableRow as _, Work as _, direction};
use crate::{Audit, AuditPage, PAGE_ROWS_MAX, PRUNE_ROWS_MAX, StoreError};

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

const PRUNE: &str = "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id <= \
     (SELECT coalesce(max(id), 0) FROM audit) - $1 ORDER BY id LIMIT $2)";

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
        let prune = Statement::new(PRUNE).number(keep).number(PRUNE_ROWS_MAX);
        writing!(self, "audit", |work| work.execute(prune).await?)
    }
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
