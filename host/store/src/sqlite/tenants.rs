//! Tenants, and the plugins that are theirs.

use sqlx::sqlite::{SqlitePool, SqliteRow};

use super::cells::Cells;
use super::insert::{self, Table, Values};
use crate::{PAGE_ROWS_MAX, StoreError, TenantRow};

const TENANTS: Table = Table {
    name: "tenants",
    columns: &["tenant", "created_at_us", "limits"],
    key: &["tenant"],
};

const ALL: &str = "SELECT tenant, created_at_us, limits FROM tenants ORDER BY tenant LIMIT ?";

const CLAIM: &str = "INSERT INTO plugin_owners (tenant, digest, since_us) VALUES (?, ?, ?) \
     ON CONFLICT (tenant, digest) DO NOTHING";

const CLAIMED: &str = "SELECT digest FROM plugin_owners WHERE tenant = ? ORDER BY digest LIMIT ?";

/// Adds or replaces a tenant.
pub(super) async fn put(writer: &SqlitePool, tenant: &TenantRow) -> Result<(), StoreError> {
    let mut connection = writer.acquire().await?;
    insert::rows(
        &mut connection,
        &TENANTS,
        std::slice::from_ref(tenant),
        bind,
    )
    .await
}

fn bind(tenant: &TenantRow, values: &mut Values) -> Result<(), StoreError> {
    values.value(tenant.tenant.as_str())?;
    values.number("created_at_us", tenant.created_at_us)?;
    values.value(tenant.limits.as_str())
}

/// All tenants, by name.
pub(super) async fn all(pool: &SqlitePool) -> Result<Vec<TenantRow>, StoreError> {
    let rows = sqlx::query(ALL).bind(PAGE_ROWS_MAX).fetch_all(pool).await?;
    rows.iter().map(read).collect()
}

fn read(row: &SqliteRow) -> Result<TenantRow, StoreError> {
    let cells = Cells {
        table: "tenants",
        key: &["tenant"],
        row,
    };
    Ok(TenantRow {
        tenant: cells.value("tenant")?,
        created_at_us: cells.number("created_at_us")?,
        limits: cells.value("limits")?,
    })
}

/// Makes a plugin a tenant's; whether it was not before.
pub(super) async fn claim_plugin(
    writer: &SqlitePool,
    tenant: &str,
    digest: &str,
    at_us: u64,
) -> Result<bool, StoreError> {
    let mut values = Values::of("plugin_owners");
    values.value(tenant)?;
    values.value(digest)?;
    values.number("since_us", at_us)?;
    let done = sqlx::query_with(CLAIM, values.done())
        .execute(writer)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Digests of a tenant's plugins.
pub(super) async fn claimed_plugins(
    pool: &SqlitePool,
    tenant: &str,
) -> Result<Vec<String>, StoreError> {
    let digests = sqlx::query_scalar(CLAIMED)
        .bind(tenant)
        .bind(PAGE_ROWS_MAX)
        .fetch_all(pool)
        .await?;
    Ok(digests)
}
