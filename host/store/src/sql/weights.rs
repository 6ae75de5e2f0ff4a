//! Versions of weights, numbered as each job saw them.

use super::{Statement, Work, check_text};
use crate::{PRUNE_ROWS_MAX, StoreError, WeightRow};

/// The casts tell PostgreSQL the types of what it is given.
const NOTE: &str = "INSERT INTO weight_versions (job, version, number, seen_at_us) \
     SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), COALESCE(MAX(number), 0) + 1, CAST($3 AS BIGINT) \
     FROM weight_versions WHERE job = $1 ON CONFLICT (job, version) DO NOTHING";

/// Those of jobs without any program.
const PRUNE: &str = "DELETE FROM weight_versions WHERE (job, version) IN \
     (SELECT job, version FROM weight_versions w WHERE seen_at_us < $1 \
      AND NOT EXISTS (SELECT 1 FROM programs p WHERE p.job = w.job) LIMIT $2)";

/// Gives a version its number, unless it has one.
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

/// Removes those of jobs that are gone, a bounded number at a time.
pub(super) async fn prune(work: &mut impl Work, before_us: u64) -> Result<(), StoreError> {
    let prune = Statement::new(PRUNE)
        .number(before_us)
        .number(PRUNE_ROWS_MAX);
    work.execute(prune).await?;
    Ok(())
}
