//! Secret numbers of the store.

use super::{Cells, Record, Statement, Work};
use crate::StoreError;

const GET: &str = "SELECT name, value FROM keys WHERE name = $1";

const ADD: &str = "INSERT INTO keys (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";

/// The number with this name; `fresh` is stored if there is none.
pub(super) async fn get(work: &mut impl Work, name: &str, fresh: u64) -> Result<u64, StoreError> {
    let value = format!("{fresh:016x}");
    work.execute(Statement::new(ADD).text(name).text(&value))
        .await?;
    let rows = work.fetch(Statement::new(GET).text(name)).await?;
    read(rows.first().ok_or(sqlx::Error::RowNotFound)?)
}

fn read(row: &impl Record) -> Result<u64, StoreError> {
    let cells = Cells {
        table: "keys",
        key: &["name"],
        row,
    };
    let value = cells.text("value")?;
    let read = u64::from_str_radix(&value, 16);
    read.map_err(|_| cells.corrupt("value", "it is not a hexadecimal number".to_owned()))
}
