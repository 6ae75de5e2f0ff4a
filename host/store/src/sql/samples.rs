//! Samples of metrics over time.

use super::table::{number, text};
use super::{Cells, Engine, Record, Statement, Table, Values, Work};
use crate::{PAGE_ROWS_MAX, PRUNE_ROWS_MAX, SamplePage, SampleRow, StoreError};

const SAMPLES: Table<SampleRow> = Table {
    name: "samples",
    columns: &[number("at_us"), text("values_json")],
    key: &["at_us"],
    bind,
};

/// The latest sample of each interval.
const PAGE: &str = "SELECT at_us, values_json FROM samples WHERE at_us IN \
     (SELECT MAX(at_us) FROM samples WHERE at_us >= $1 AND at_us <= $2 GROUP BY at_us / $3) \
     ORDER BY at_us LIMIT $4";

const PRUNE: &str = "DELETE FROM samples WHERE at_us IN \
     (SELECT at_us FROM samples WHERE at_us < $1 ORDER BY at_us LIMIT $2)";

fn bind<'r>(row: &'r SampleRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.number("at_us", row.at_us)?;
    values.text(&row.values)
}

/// Adds a sample, or replaces the one of the same time.
pub(super) async fn add(work: &mut impl Work, row: &SampleRow) -> Result<(), StoreError> {
    work.insert(&SAMPLES, std::slice::from_ref(row)).await
}

/// Samples within a time range, oldest first.
pub(super) async fn page(
    engine: &impl Engine,
    page: &SamplePage,
) -> Result<Vec<SampleRow>, StoreError> {
    let query = Statement::new(PAGE)
        .number(page.since_us)
        .number(page.until_us)
        .number(page.each_us.max(1))
        .number(page.limit.min(PAGE_ROWS_MAX).into());
    let rows = engine.read(query).await?;
    rows.iter().map(read).collect()
}

/// Removes samples before a time, a bounded number at a time.
pub(super) async fn prune(work: &mut impl Work, before_us: u64) -> Result<u64, StoreError> {
    let prune = Statement::new(PRUNE)
        .number(before_us)
        .number(PRUNE_ROWS_MAX);
    work.execute(prune).await
}

fn read(row: &impl Record) -> Result<SampleRow, StoreError> {
    let cells = Cells {
        table: "samples",
        key: &["at_us"],
        row,
    };
    Ok(SampleRow {
        at_us: cells.number("at_us")?,
        values: cells.text("values_json")?,
    })
}
