//! Actions that treadle runs, and the services that they may use.

use std::slice;

use async_trait::async_trait;

use super::store::writing;
use super::table::table;
use super::{Engine, SqlStore, Statement, TableRow as _, Work, names};
use crate::{ActionPage, Actions, PAGE_ROWS_MAX, StoreError};

table! {
    /// An action that treadle runs, in its last known state.
    #[derive(Default)]
    pub struct ActionRow in "actions", upsert (action) {
        /// Its number.
        action: u64,
        /// Job that it belongs to.
        job: String,
        /// Program that it belongs to, if any.
        program: Option<String>,
        /// The tool or the reward: actions of the same kind are expected to last equally long.
        kind: String,
        /// `waiting`, `starting`, `running` or `ended`.
        status: String,
        /// How often it was started.
        attempts: u64,
        /// Its description as submitted, as JSON.
        spec: String,
        /// The resources of its last grant, as JSON.
        grants: Option<String>,
        /// How it ended, as JSON.
        outcome: Option<String>,
        /// Digest of its output, if it has any.
        output: Option<String>,
        /// When it was submitted.
        submitted_at_us: u64,
        /// When its resources were granted.
        granted_at_us: Option<u64>,
        /// When its process or request began.
        began_at_us: Option<u64>,
        /// When it ended.
        ended_at_us: Option<u64>,
    }
}

table! {
    /// A service that actions may use.
    #[derive(Default)]
    pub struct ServiceRow in "services", upsert (service) {
        /// Its name.
        service: String,
        /// The tenant that declared it.
        tenant: String,
        /// How it is started and stopped, as JSON.
        spec: String,
        /// Declared time until it is ready.
        load_us: u64,
        /// When it was declared.
        declared_at_us: u64,
    }
}

const PRUNE: &str = "DELETE FROM actions WHERE action IN \
     (SELECT action FROM actions WHERE ended_at_us < $1 ORDER BY action LIMIT $2)";

#[async_trait]
impl<E: Engine> Actions for SqlStore<E> {
    async fn action(&self, action: u64) -> Result<Option<ActionRow>, StoreError> {
        let one = ActionRow::select("WHERE action = $1").number(action);
        self.engine.read_row(one).await
    }

    async fn actions(&self, page: &ActionPage) -> Result<Vec<ActionRow>, StoreError> {
        self.engine.read_rows(statement(page)).await
    }

    async fn put_service(&self, service: &ServiceRow) -> Result<(), StoreError> {
        writing!(self, "services", |work| work
            .insert(slice::from_ref(service))
            .await?)
    }

    async fn services(&self) -> Result<Vec<ServiceRow>, StoreError> {
        let all = ServiceRow::select("ORDER BY service LIMIT $1").number(PAGE_ROWS_MAX.into());
        self.engine.read_rows(all).await
    }
}

fn statement(page: &ActionPage) -> Statement {
    let mut query = ActionRow::select("WHERE TRUE");
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
