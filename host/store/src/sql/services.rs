//! Services that actions may use.

use super::table::{number, text};
use super::{Cells, Engine, Record, Statement, Table, Values, Work};
use crate::{PAGE_ROWS_MAX, ServiceRow, StoreError};

const SERVICES: Table<ServiceRow> = Table {
    name: "services",
    columns: &[
        text("service"),
        text("tenant"),
        text("spec"),
        number("load_us"),
        number("declared_at_us"),
    ],
    key: &["service"],
    bind,
};

const ALL: &str = "SELECT service, tenant, spec, load_us, declared_at_us FROM services \
     ORDER BY service LIMIT $1";

/// Adds or replaces a service.
pub(super) async fn put(work: &mut impl Work, service: &ServiceRow) -> Result<(), StoreError> {
    work.insert(&SERVICES, std::slice::from_ref(service)).await
}

fn bind<'r>(row: &'r ServiceRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.text(&row.service)?;
    values.text(&row.tenant)?;
    values.text(&row.spec)?;
    values.number("load_us", row.load_us)?;
    values.number("declared_at_us", row.declared_at_us)
}

/// All services, by name.
pub(super) async fn all(engine: &impl Engine) -> Result<Vec<ServiceRow>, StoreError> {
    let rows = engine
        .read(Statement::new(ALL).number(PAGE_ROWS_MAX.into()))
        .await?;
    rows.iter().map(read).collect()
}

fn read(row: &impl Record) -> Result<ServiceRow, StoreError> {
    let cells = Cells {
        table: "services",
        key: &["service"],
        row,
    };
    Ok(ServiceRow {
        service: cells.text("service")?,
        tenant: cells.text("tenant")?,
        spec: cells.text("spec")?,
        load_us: cells.number("load_us")?,
        declared_at_us: cells.number("declared_at_us")?,
    })
}
