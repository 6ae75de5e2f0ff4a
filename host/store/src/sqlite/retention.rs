//! Removal of what is no longer asked for, a bounded amount at a time.

use sqlx::sqlite::{SqliteConnection, SqlitePool};

use super::journal;
use crate::{PRUNE_ROWS_MAX, Pruned, Retention, StoreError};

/// Most programs removed at once: each takes all its steps along.
const PROGRAMS_MAX: u64 = 500;

/// Removes events, decisions and programs.
pub(super) async fn prune(writer: &SqlitePool, keep: &Retention) -> Result<Pruned, StoreError> {
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
    let last_seq = journal::last_seq_within(&mut transaction).await?;
    let snapshot: Option<i64> = sqlx::query_scalar("SELECT max(seq) FROM snapshots")
        .fetch_one(&mut *transaction)
        .await?;
    let recoverable = snapshot.map_or(0, |seq| u64::try_from(seq).unwrap_or(0));
    let cut = last_seq.saturating_sub(keep.keep_events).min(recoverable);
    let events = delete(
        &mut transaction,
        "DELETE FROM events WHERE seq IN \
         (SELECT seq FROM events WHERE seq <= ? ORDER BY seq LIMIT ?)",
        cut,
        PRUNE_ROWS_MAX,
    )
    .await?;
    let decisions = delete(
        &mut transaction,
        "DELETE FROM decisions WHERE id IN \
         (SELECT id FROM decisions WHERE seq <= ? ORDER BY seq LIMIT ?)",
        cut,
        PRUNE_ROWS_MAX,
    )
    .await?;
    let programs = delete(
        &mut transaction,
        "DELETE FROM programs WHERE (tenant, program) IN \
         (SELECT tenant, program FROM programs WHERE ended IS NOT NULL AND updated_at_us < ? \
          ORDER BY updated_at_us LIMIT ?)",
        keep.ended_before_us,
        PROGRAMS_MAX,
    )
    .await?;
    transaction.commit().await?;
    Ok(Pruned {
        events,
        decisions,
        programs,
        more: events == PRUNE_ROWS_MAX || decisions == PRUNE_ROWS_MAX || programs == PROGRAMS_MAX,
    })
}

async fn delete(
    connection: &mut SqliteConnection,
    sql: &'static str,
    bound: u64,
    limit: u64,
) -> Result<u64, StoreError> {
    let done = sqlx::query(sql)
        .bind(i64::try_from(bound).unwrap_or(i64::MAX))
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .execute(connection)
        .await?;
    Ok(done.rows_affected())
}
