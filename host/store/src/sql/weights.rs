//! Versions of weights, numbered in the order in which each job saw them.

use super::{Statement, Work, check_text};
use crate::{PRUNE_ROWS_MAX, StoreError, WeightRow};

/// The casts give PostgreSQL the types of the arguments.
const NOTE: &str = "INSERT INTO weight_versions (job, version, number, seen_at_us) \
     SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), COALESCE(MAX(number), 0) + 1, CAST($3 AS BIGINT) \
     FROM weight_versions WHERE job = $1 ON CONFLICT (job, version) DO NOTHING";

/// Versions of jobs without any program.
const PRUNE: &str = "DELETE FROM weight_versions WHERE (job, version) IN \
     (SELECT job, version FROM weight_versions w WHERE seen_at_us < $1 \
      AND NOT EXISTS (SELECT 1 FROM programs p WHERE p.job = w.job) LIMIT $2)";

/// Assigns a number to a version, unless it has one.
pub(super) async fn note(work: &mut impl Work, row: &WeightRow) -> Result<(), StoreError> {
    check_text(Some(&row.job))?;
    check_text(Some(&row.version))?;
    let note = Statement::new(NOTE)
        .text(&row.job)
        .text(&row.version)
        .number(row.seen_at_us);
    work.execute(note).await?;
    Ok(())
}

/// Removes versions of removed jobs, a bounded number at a time.
pub(super) async fn prune(work: &mut impl Work, before_us: u64) -> Result<(), StoreError> {
    let prune = Statement::new(PRUNE)
        .number(before_us)
        .number(PRUNE_ROWS_MAX);
    work.execute(prune).await?;
    Ok(())
}
