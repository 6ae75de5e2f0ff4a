//! Plugins: stored once, immutable; and the tenants that have them.

use std::slice;

use async_trait::async_trait;

use super::store::writing;
use super::table::{Cell as _, Column, table};
use super::{Cells, Engine, Record, SqlStore, Statement, TENANT, TableRow, Values, Work, within};
use crate::{
    COMPONENT_BYTES_MAX, PAGE_ROWS_MAX, PLUGINS_BYTES_MAX, PLUGINS_MAX, Plugins, StoreError,
};

table! {
    /// A plugin without its component.
    pub struct PluginHead in "plugins" with tenant = TENANT, insert (digest) {
        /// Digest of the component.
        digest: String,
        /// World that it implements.
        world: String,
        /// Its name.
        name: String,
        /// Its version.
        version: String,
        /// One-line description.
        summary: String,
        /// Size of the component, in bytes.
        size_bytes: u64,
        /// When it was uploaded.
        uploaded_at_us: u64,
        /// Key that signed it.
        signed_by: Option<String>,
    }
}

/// A plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginRow {
    /// Everything but the component.
    pub head: PluginHead,
    /// The WebAssembly component.
    pub component: Vec<u8>,
}

/// The columns of [`PluginHead`] and one more.
impl TableRow for PluginRow {
    const TABLE: &'static str = PluginHead::TABLE;
    const KEY: &'static [&'static str] = PluginHead::KEY;
    const REPLACES: bool = PluginHead::REPLACES;

    fn columns() -> Vec<Column> {
        let mut columns = PluginHead::columns();
        columns.push(Column::field::<Vec<u8>>("component"));
        columns
    }

    fn bind<'r>(&'r self, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
        self.head.bind(values)?;
        self.component.bind("component", values)
    }

    fn read<R: Record>(cells: &Cells<'_, R>) -> Result<Self, StoreError> {
        Ok(Self {
            head: PluginHead::read(cells)?,
            component: cells.bytes("component")?,
        })
    }
}

const KNOWN: &str = "SELECT digest FROM plugins WHERE tenant = $1 AND digest = $2";

const SAME: &str = "SELECT digest FROM plugins WHERE tenant = $1 AND digest = $2 \
     AND component = $3";

const STORED: &str = "SELECT count(*) AS plugins, \
     CAST(coalesce(sum(size_bytes), 0) AS BIGINT) AS bytes FROM plugins WHERE tenant = $1";

const CLAIM: &str = "INSERT INTO plugin_owners (tenant, digest, since_us) VALUES ($1, $2, $3) \
     ON CONFLICT (tenant, digest) DO NOTHING";

const CLAIMED: &str = "SELECT digest FROM plugin_owners WHERE tenant = $1 ORDER BY digest LIMIT $2";

#[async_trait]
impl<E: Engine> Plugins for SqlStore<E> {
    async fn put_plugin(&self, plugin: &PluginRow) -> Result<bool, StoreError> {
        writing!(self, "plugins", |work| put(&mut work, plugin).await?)
    }

    async fn plugin(&self, digest: &str) -> Result<Option<PluginRow>, StoreError> {
        let one = PluginRow::select("WHERE tenant = $1 AND digest = $2");
        self.engine.read_row(one.text(TENANT).text(digest)).await
    }

    async fn plugins(&self) -> Result<Vec<PluginHead>, StoreError> {
        let all =
            PluginHead::select("WHERE tenant = $1 ORDER BY uploaded_at_us DESC, digest LIMIT $2");
        let all = all.text(TENANT).number(PAGE_ROWS_MAX.into());
        self.engine.read_rows(all).await
    }

    async fn claim_plugin(
        &self,
        tenant: &str,
        digest: &str,
        at_us: u64,
    ) -> Result<bool, StoreError> {
        let claim = Statement::new(CLAIM).text(tenant).text(digest);
        let claim = claim.number(at_us);
        writing!(self, "plugins", |work| work.execute(claim).await? == 1)
    }

    async fn claimed_plugins(&self, tenant: &str) -> Result<Vec<String>, StoreError> {
        let query = Statement::new(CLAIMED).text(tenant);
        let rows = self.engine.read(query.number(PAGE_ROWS_MAX.into())).await?;
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
}

/// Adds a plugin unless its digest is stored; returns whether it was added.
async fn put(work: &mut impl Work, plugin: &PluginRow) -> Result<bool, StoreError> {
    within(
        "the component, in bytes,",
        plugin.component.len(),
        COMPONENT_BYTES_MAX,
    )?;
    let digest = &plugin.head.digest;
    let known = Statement::new(KNOWN).text(TENANT).text(digest);
    if work.fetch(known).await?.is_empty() {
        check_room(work, plugin.head.size_bytes).await?;
        work.insert(slice::from_ref(plugin)).await?;
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

/// Checks that there is room for another plugin of this size.
async fn check_room(work: &mut impl Work, new_bytes: u64) -> Result<(), StoreError> {
    let rows = work.fetch(Statement::new(STORED).text(TENANT)).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let cells = Cells {
        table: "plugins",
        key: &[],
        row,
    };
    let (plugins, bytes) = (cells.number("plugins")?, cells.number("bytes")?);
    if plugins >= PLUGINS_MAX || bytes.saturating_add(new_bytes) > PLUGINS_BYTES_MAX {
        return Err(StoreError::PluginsFull { plugins, bytes });
    }
    Ok(())
}
