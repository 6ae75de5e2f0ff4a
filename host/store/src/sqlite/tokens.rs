//! API tokens.

use sqlx::sqlite::{SqlitePool, SqliteRow};

use super::cells::Cells;
use super::insert::{self, Table, Values};
use crate::{PAGE_ROWS_MAX, StoreError, TokenRow};

const TOKENS: Table = Table {
    name: "api_tokens",
    columns: &[
        "token",
        "tenant",
        "name",
        "scope",
        "hash",
        "previous_hash",
        "previous_until_us",
        "created_at_us",
        "expires_at_us",
        "revoked_at_us",
        "last_used_at_us",
    ],
    key: &["token"],
};

const ALL: &str = "SELECT token, tenant, name, scope, hash, previous_hash, previous_until_us, \
     created_at_us, expires_at_us, revoked_at_us, last_used_at_us FROM api_tokens \
     ORDER BY created_at_us DESC, token LIMIT ?";

const TOUCH: &str = "UPDATE api_tokens SET last_used_at_us = ? WHERE token = ?";

const PRUNE: &str = "DELETE FROM api_tokens WHERE revoked_at_us < ?1 OR expires_at_us < ?1";

/// Adds or replaces a token.
pub(super) async fn put(writer: &SqlitePool, token: &TokenRow) -> Result<(), StoreError> {
    let mut connection = writer.acquire().await?;
    insert::rows(&mut connection, &TOKENS, std::slice::from_ref(token), bind).await
}

fn bind(token: &TokenRow, values: &mut Values) -> Result<(), StoreError> {
    values.value(token.token.as_str())?;
    values.value(token.tenant.as_str())?;
    values.value(token.name.as_str())?;
    values.value(token.scope.as_str())?;
    values.value(token.hash.as_slice())?;
    values.value(token.previous_hash.as_deref())?;
    values.maybe_number("previous_until_us", token.previous_until_us)?;
    values.number("created_at_us", token.created_at_us)?;
    values.maybe_number("expires_at_us", token.expires_at_us)?;
    values.maybe_number("revoked_at_us", token.revoked_at_us)?;
    values.maybe_number("last_used_at_us", token.last_used_at_us)
}

/// All tokens, newest first.
pub(super) async fn all(pool: &SqlitePool) -> Result<Vec<TokenRow>, StoreError> {
    let rows = sqlx::query(ALL).bind(PAGE_ROWS_MAX).fetch_all(pool).await?;
    rows.iter().map(read).collect()
}

/// Notes when tokens were last used.
pub(super) async fn touch(writer: &SqlitePool, uses: &[(String, u64)]) -> Result<(), StoreError> {
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
    for (token, at_us) in uses {
        let mut values = Values::of("api_tokens");
        values.number("last_used_at_us", *at_us)?;
        values.value(token.as_str())?;
        sqlx::query_with(TOUCH, values.done())
            .execute(&mut *transaction)
            .await?;
    }
    Ok(transaction.commit().await?)
}

/// Removes tokens that have not been good since some time.
pub(super) async fn prune(writer: &SqlitePool, ended_before_us: u64) -> Result<u64, StoreError> {
    let done = sqlx::query(PRUNE)
        .bind(i64::try_from(ended_before_us).unwrap_or(i64::MAX))
        .execute(writer)
        .await?;
    Ok(done.rows_affected())
}

fn read(row: &SqliteRow) -> Result<TokenRow, StoreError> {
    let cells = Cells {
        table: "api_tokens",
        key: &["token"],
        row,
    };
    Ok(TokenRow {
        token: cells.value("token")?,
        tenant: cells.value("tenant")?,
        name: cells.value("name")?,
        scope: cells.value("scope")?,
        hash: cells.value("hash")?,
        previous_hash: cells.value("previous_hash")?,
        previous_until_us: cells.maybe_number("previous_until_us")?,
        created_at_us: cells.number("created_at_us")?,
        expires_at_us: cells.maybe_number("expires_at_us")?,
        revoked_at_us: cells.maybe_number("revoked_at_us")?,
        last_used_at_us: cells.maybe_number("last_used_at_us")?,
    })
}
