//! Small numbers for gateways, which become part of the ids that they make.

use super::{Cells, Engine, Record, Statement, Work};
use crate::{GATEWAYS_MAX, StoreError};

const GET: &str = "SELECT id, name FROM gateways WHERE name = $1";

const ADD: &str = "INSERT INTO gateways (name) VALUES ($1) ON CONFLICT (name) DO NOTHING";

/// The number of a gateway, always the same for the same name.
pub(super) async fn id<E: Engine>(engine: &E, name: &str) -> Result<u32, StoreError> {
    let known = engine.read(Statement::new(GET).text(name)).await?;
    if let Some(row) = known.first() {
        return read(row);
    }
    let mut work = engine.begin().await?;
    work.execute(Statement::new(ADD).text(name)).await?;
    let rows = work.fetch(Statement::new(GET).text(name)).await?;
    let id = read(rows.first().ok_or(sqlx::Error::RowNotFound)?)?;
    work.commit().await?;
    Ok(id)
}

fn read(row: &impl Record) -> Result<u32, StoreError> {
    let cells = Cells {
        table: "gateways",
        key: &["name"],
        row,
    };
    let id = cells.number("id")?;
    let small = u32::try_from(id).ok().filter(|id| *id <= GATEWAYS_MAX);
    small.ok_or(StoreError::TooLarge {
        what: "the number of gateways of this store",
        got: usize::try_from(id).unwrap_or(usize::MAX),
        max: GATEWAYS_MAX as usize,
    })
}
