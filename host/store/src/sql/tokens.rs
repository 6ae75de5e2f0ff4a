//! API tokens.

use super::table::{bytes, number, text};
use super::{Cells, Engine, Record, Statement, Table, Values, Work};
use crate::{PAGE_ROWS_MAX, StoreError, TokenRow};

const TOKENS: Table<TokenRow> = Table {
    name: "api_tokens",
    columns: &[
        text("token"),
        text("tenant"),
        text("name"),
        text("scope"),
        bytes("hash"),
        bytes("previous_hash"),
        number("previous_until_us"),
        number("created_at_us"),
        number("expires_at_us"),
        number("revoked_at_us"),
        number("last_used_at_us"),
    ],
    key: &["token"],
    bind,
};

const ALL: &str = "SELECT token, tenant, name, scope, hash, previous_hash, previous_until_us, \
     created_at_us, expires_at_us, revoked_at_us, last_used_at_us FROM api_tokens \
     ORDER BY created_at_us DESC, token LIMIT $1";

const TOUCH: &str = "UPDATE api_tokens SET last_used_at_us = $1 WHERE token = $2";

const PRUNE: &str = "DELETE FROM api_tokens WHERE revoked_at_us < $1 OR expires_at_us < $1";

/// Adds or replaces a token.
pub(super) async fn put(work: &mut impl Work, token: &TokenRow) -> Result<(), StoreError> {
    work.insert(&TOKENS, std::slice::from_ref(token)).await
}

fn bind<'r>(token: &'r TokenRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.text(&token.token)?;
    values.text(&token.tenant)?;
    values.text(&token.name)?;
    values.text(&token.scope)?;
    values.bytes(&token.hash)?;
    values.maybe_bytes(token.previous_hash.as_deref())?;
    values.maybe_number("previous_until_us", token.previous_until_us)?;
    values.number("created_at_us", token.created_at_us)?;
    values.maybe_number("expires_at_us", token.expires_at_us)?;
    values.maybe_number("revoked_at_us", token.revoked_at_us)?;
    values.maybe_number("last_used_at_us", token.last_used_at_us)
}

/// All tokens, newest first.
pub(super) async fn all(engine: &impl Engine) -> Result<Vec<TokenRow>, StoreError> {
    let rows = engine
        .read(Statement::new(ALL).number(PAGE_ROWS_MAX.into()))
        .await?;
    rows.iter().map(read).collect()
}

/// Records when tokens were last used.
pub(super) async fn touch(work: &mut impl Work, uses: &[(String, u64)]) -> Result<(), StoreError> {
    for (token, at_us) in uses {
        work.execute(Statement::new(TOUCH).number(*at_us).text(token))
            .await?;
    }
    Ok(())
}

/// Removes tokens that have been invalid since before a time.
pub(super) async fn prune(work: &mut impl Work, ended_before_us: u64) -> Result<u64, StoreError> {
    work.execute(Statement::new(PRUNE).number(ended_before_us))
        .await
}

fn read(row: &impl Record) -> Result<TokenRow, StoreError> {
    let cells = Cells {
        table: "api_tokens",
        key: &["token"],
        row,
    };
    Ok(TokenRow {
        token: cells.text("token")?,
        tenant: cells.text("tenant")?,
        name: cells.text("name")?,
        scope: cells.text("scope")?,
        hash: cells.bytes("hash")?,
        previous_hash: cells.maybe_bytes("previous_hash")?,
        previous_until_us: cells.maybe_number("previous_until_us")?,
        created_at_us: cells.number("created_at_us")?,
        expires_at_us: cells.maybe_number("expires_at_us")?,
        revoked_at_us: cells.maybe_number("revoked_at_us")?,
        last_used_at_us: cells.maybe_number("last_used_at_us")?,
    })
}
