//! Plugins: stored once, immutable.

use super::table::{bytes, number, text};
use super::{Cells, Engine, Record, Statement, TENANT, Table, Values, Work, within};
use crate::{COMPONENT_BYTES_MAX, PAGE_ROWS_MAX, PluginHead, PluginRow, StoreError};

const PLUGINS: Table<PluginRow> = Table {
    name: "plugins",
    columns: &[
        text("tenant"),
        text("digest"),
        text("world"),
        text("name"),
        text("version"),
        text("summary"),
        number("size_bytes"),
        number("uploaded_at_us"),
        text("signed_by"),
        bytes("component"),
    ],
    key: &[],
    bind,
};

const KNOWN: &str = "SELECT digest FROM plugins WHERE tenant = $1 AND digest = $2";

const SAME: &str = "SELECT digest FROM plugins WHERE tenant = $1 AND digest = $2 \
     AND component = $3";

const GET: &str = "SELECT digest, world, name, version, summary, size_bytes, uploaded_at_us, \
     signed_by, component FROM plugins WHERE tenant = $1 AND digest = $2";

const ALL: &str = "SELECT digest, world, name, version, summary, size_bytes, uploaded_at_us, \
     signed_by FROM plugins WHERE tenant = $1 ORDER BY uploaded_at_us DESC, digest LIMIT $2";

/// Adds a plugin unless its digest is stored; returns whether it was added.
pub(super) async fn put(work: &mut impl Work, plugin: &PluginRow) -> Result<bool, StoreError> {
    within(
        "the component, in bytes,",
        plugin.component.len(),
        COMPONENT_BYTES_MAX,
    )?;
    let digest = &plugin.head.digest;
    let known = Statement::new(KNOWN).text(TENANT).text(digest);
    if work.fetch(known).await?.is_empty() {
        work.insert(&PLUGINS, std::slice::from_ref(plugin)).await?;
        return Ok(true);
    }
    let same = Statement::new(SAME)
        .text(TENANT)
        .text(digest)
        .bytes(&plugin.component);
    if work.fetch(same).await?.is_empty() {
        return Err(StoreError::Immutable {
            digest: digest.clone(),
        });
    }
    Ok(false)
}

fn bind<'r>(plugin: &'r PluginRow, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    let head = &plugin.head;
    values.text(TENANT)?;
    values.text(&head.digest)?;
    values.text(&head.world)?;
    values.text(&head.name)?;
    values.text(&head.version)?;
    values.text(&head.summary)?;
    values.number("size_bytes", head.size_bytes)?;
    values.number("uploaded_at_us", head.uploaded_at_us)?;
    values.maybe_text(head.signed_by.as_deref())?;
    values.bytes(&plugin.component)
}

/// One plugin with its component.
pub(super) async fn get(
    engine: &impl Engine,
    digest: &str,
) -> Result<Option<PluginRow>, StoreError> {
    let rows = engine
        .read(Statement::new(GET).text(TENANT).text(digest))
        .await?;
    let whole = |row| {
        Ok(PluginRow {
            head: read(row)?,
            component: cells(row).bytes("component")?,
        })
    };
    rows.first().map(whole).transpose()
}

/// All plugins without their components, newest first.
pub(super) async fn all(engine: &impl Engine) -> Result<Vec<PluginHead>, StoreError> {
    let rows = engine
        .read(
            Statement::new(ALL)
                .text(TENANT)
                .number(PAGE_ROWS_MAX.into()),
        )
        .await?;
    rows.iter().map(read).collect()
}

fn cells<R: Record>(row: &R) -> Cells<'_, R> {
    Cells {
        table: "plugins",
        key: &["digest"],
        row,
    }
}

fn read(row: &impl Record) -> Result<PluginHead, StoreError> {
    let cells = cells(row);
    Ok(PluginHead {
        digest: cells.text("digest")?,
        world: cells.text("world")?,
        name: cells.text("name")?,
        version: cells.text("version")?,
        summary: cells.text("summary")?,
        size_bytes: cells.number("size_bytes")?,
        uploaded_at_us: cells.number("uploaded_at_us")?,
        signed_by: cells.maybe_text("signed_by")?,
    })
}
