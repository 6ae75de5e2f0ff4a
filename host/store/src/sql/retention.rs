//! Removal of rows past their retention, a bounded amount at a time.

use super::head::Head;
use super::sizes::Sizes;
use super::{Cells, Engine, Statement, Work, actions, events};
use crate::{EVENT_BYTES, PRUNE_ROWS_MAX, Pruned, Retention, StoreError};

/// Most programs removed at once; their steps are removed with them.
const PROGRAMS_MAX: u64 = 500;

const EVENTS: &str = "DELETE FROM events WHERE seq IN \
     (SELECT seq FROM events WHERE seq <= $1 ORDER BY seq LIMIT $2)";

const DECISIONS: &str = "DELETE FROM decisions WHERE (seq, id) IN \
     (SELECT seq, id FROM decisions WHERE seq <= $1 ORDER BY seq LIMIT $2)";

const PROGRAMS: &str = "DELETE FROM programs WHERE (tenant, program) IN \
     (SELECT tenant, program FROM programs WHERE ended IS NOT NULL AND updated_at_us < $1 \
      ORDER BY updated_at_us LIMIT $2)";

const NEEDED: &str = "SELECT (SELECT max(seq) FROM snapshots) AS recoverable, \
     (SELECT min(seq) FROM sinks) AS passed";

/// The event up to which the journal exceeds its limit in bytes.
pub(super) async fn beyond_bytes(
    engine: &impl Engine,
    sizes: &Sizes,
    keep: &Retention,
) -> Result<u64, StoreError> {
    let last_seq = events::last_seq(engine).await?;
    let kept = keep.keep_events.max(keep.sink_lag_events_max);
    let from = last_seq.saturating_sub(kept);
    let bytes_max = kept.saturating_mul(EVENT_BYTES);
    let cut = sizes.cut(engine, from, last_seq, bytes_max).await?;
    Ok(if cut > from {
        engine.whole_cut(cut, last_seq)
    } else {
        from
    })
}

/// Removes events, decisions and programs; `beyond` is what [`beyond_bytes`] returned.
pub(super) async fn prune<E: Engine>(
    engine: &E,
    work: &mut E::Work,
    head: &Head,
    keep: &Retention,
    beyond: u64,
) -> Result<Pruned, StoreError> {
    let cut = cut(work, head, keep, beyond).await?;
    let whole = engine.drop_whole(work, cut, head.last_seq).await?;
    let rows = |sql, bound, limit| Statement::new(sql).number(bound).number(limit);
    let events = work
        .execute(rows(EVENTS, whole.rest, PRUNE_ROWS_MAX))
        .await?;
    let decisions = work
        .execute(rows(DECISIONS, whole.rest, PRUNE_ROWS_MAX))
        .await?;
    let programs = work
        .execute(rows(PROGRAMS, keep.ended_before_us, PROGRAMS_MAX))
        .await?;
    let actions = actions::prune(work, keep.ended_before_us, PRUNE_ROWS_MAX).await?;
    let full = events == PRUNE_ROWS_MAX
        || decisions == PRUNE_ROWS_MAX
        || programs == PROGRAMS_MAX
        || actions == PRUNE_ROWS_MAX;
    Ok(Pruned {
        events: whole.events + events,
        decisions: whole.decisions + decisions,
        programs,
        more: whole.more || full,
    })
}

/// The event up to which the journal is no longer needed.
async fn cut<W: Work>(
    work: &mut W,
    head: &Head,
    keep: &Retention,
    beyond: u64,
) -> Result<u64, StoreError> {
    let rows = work.fetch(Statement::new(NEEDED)).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let cells = Cells {
        table: "snapshots",
        key: &[],
        row,
    };
    let recoverable = cells.maybe_number("recoverable")?.unwrap_or(0);
    let passed = cells.maybe_number("passed")?.unwrap_or(u64::MAX);
    let lagging = head.last_seq.saturating_sub(keep.sink_lag_events_max);
    let cut = head.last_seq.saturating_sub(keep.keep_events);
    let cut = cut.min(passed.max(lagging)).max(beyond);
    Ok(cut.min(recoverable))
}
