//! Lengths of ended programs.

use super::{Cells, Engine, Record, Statement, TENANT};
use crate::{LengthRow, PAGE_ROWS_MAX, StoreError};

const OF_JOB: &str = "SELECT p.created_at_us, p.context_tokens, \
     CAST(MAX(COALESCE(s.finished_at_us, s.arrived_at_us)) AS BIGINT) AS ended_at_us, \
     CAST(COALESCE(MIN(NULLIF(s.prompt_tokens, 0)), 0) AS BIGINT) AS prompt_tokens, \
     CAST(SUM(s.output_tokens) AS BIGINT) AS output_tokens, \
     CAST(SUM(COALESCE(s.finished_at_us, s.arrived_at_us) - s.arrived_at_us) AS BIGINT) AS steps_us \
     FROM (SELECT program, created_at_us, context_tokens FROM programs \
     WHERE tenant = $1 AND job = $2 AND ended IS NOT NULL \
     ORDER BY created_at_us DESC, program DESC LIMIT $3) p \
     JOIN steps s ON s.tenant = $1 AND s.program = p.program \
     GROUP BY p.program, p.created_at_us, p.context_tokens \
     ORDER BY p.created_at_us DESC, p.program DESC";

/// The newest ended programs, newest first.
pub(super) async fn of_job(
    engine: &impl Engine,
    job: &str,
    limit: u32,
) -> Result<Vec<LengthRow>, StoreError> {
    let query = Statement::new(OF_JOB)
        .text(TENANT)
        .text(job)
        .number(limit.min(PAGE_ROWS_MAX).into());
    let rows = engine.read(query).await?;
    rows.iter().map(read).collect()
}

fn read(row: &impl Record) -> Result<LengthRow, StoreError> {
    let cells = Cells {
        table: "programs",
        key: &["created_at_us"],
        row,
    };
    Ok(LengthRow {
        created_at_us: cells.number("created_at_us")?,
        ended_at_us: cells.number("ended_at_us")?,
        prompt_tokens: cells.number("prompt_tokens")?,
        context_tokens: cells.number("context_tokens")?,
        output_tokens: cells.number("output_tokens")?,
        steps_us: cells.number("steps_us")?,
    })
}
