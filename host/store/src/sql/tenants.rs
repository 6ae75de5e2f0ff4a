//! Tenants and their plugins.

use super::table::{number, text};
use super::{Cells, Engine, Record, Statement, Table, Values, Work};
use crate::{PAGE_ROWS_MAX, StoreError, TenantRow};

const TENANTS: Table<TenantRow> = Table {
    name: "tenants",
    columns: &[text("tenant"), number("created_at_us"), text("limits")],
    key: &["tenant"],
    bind,
};

const ALL: &str = "SELECT tenant, created_at_us, limits FROM tenants ORDER BY tenant LIMIT $1";

const CLAIM: &str = "INSERT INTO plugin_owners (tenant, digest, since_us) VALUES ($1, $2, $3) \
     ON CONFLICT (tenant, digest) DO NOTHING";

const CLAIMED: &str = "SELECT digest FROM plugin_owners WHERE tenant = $1 ORDER BY digest LIMIT $2";

/// Adds or replaces a tenant.
pub(super) async fn put(work: &mut impl Work, tenant: &TenantRow) -> Result<(), StoreError> {
    work.insert(&TENANTS, std::slice::from_ref(tenant)).await
}

fn bind<'r>(tenant: &'r TenantRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.text(&tenant.tenant)?;
    values.number("created_at_us", tenant.created_at_us)?;
    values.text(&tenant.limits)
}

/// All tenants, by name.
pub(super) async fn all(engine: &impl Engine) -> Result<Vec<TenantRow>, StoreError> {
    let rows = engine
        .read(Statement::new(ALL).number(PAGE_ROWS_MAX.into()))
        .await?;
    rows.iter().map(read).collect()
}

fn read(row: &impl Record) -> Result<TenantRow, StoreError> {
    let cells = Cells {
        table: "tenants",
        key: &["tenant"],
        row,
    };
    Ok(TenantRow {
        tenant: cells.text("tenant")?,
        created_at_us: cells.number("created_at_us")?,
        limits: cells.text("limits")?,
    })
}

/// Adds a plugin to a tenant; returns whether it is new.
pub(super) async fn claim_plugin(
    work: &mut impl Work,
    tenant: &str,
    digest: &str,
    at_us: u64,
) -> Result<bool, StoreError> {
    let claim = Statement::new(CLAIM)
        .text(tenant)
        .text(digest)
        .number(at_us);
    Ok(work.execute(claim).await? == 1)
}

/// Digests of a tenant's plugins.
pub(super) async fn claimed_plugins(
    engine: &impl Engine,
    tenant: &str,
) -> Result<Vec<String>, StoreError> {
    let query = Statement::new(CLAIMED)
        .text(tenant)
        .number(PAGE_ROWS_MAX.into());
    let rows = engine.read(query).await?;
    let digest = |row| {
        let cells = Cells {
            table: "plugin_owners",
            key: &["digest"],
            row,
        };
        cells.text("digest")
    };
    rows.iter().map(digest).collect()
}
