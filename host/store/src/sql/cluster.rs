//! What the daemons that share a store agree on. Leadership itself is behind [`Engine`].

use async_trait::async_trait;
use tokio::sync::watch;

use super::store::writing;
use super::{Cells, Engine, Record, SqlStore, Statement, Work, head};
use crate::{Candidate, Cluster, GATEWAYS_MAX, LeaderRow, Leadership, StoreError};

const GATEWAY: &str = "SELECT id, name FROM gateways WHERE name = $1";

const ADD_GATEWAY: &str = "INSERT INTO gateways (name) VALUES ($1) ON CONFLICT (name) DO NOTHING";

const KEY: &str = "SELECT name, value FROM keys WHERE name = $1";

const ADD_KEY: &str =
    "INSERT INTO keys (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";

#[async_trait]
impl<E: Engine> Cluster for SqlStore<E> {
    async fn campaign(&self, candidate: &Candidate) -> Result<Option<u64>, StoreError> {
        self.watched("leadership", async {
            if candidate.name.is_empty() {
                return Err(StoreError::Nameless);
            }
            self.engine.campaign(candidate, &self.term).await
        })
        .await
    }

    async fn leader(&self) -> Result<Option<LeaderRow>, StoreError> {
        head::leader(&*self.engine).await
    }

    async fn resign(&self) -> Result<(), StoreError> {
        self.watched("leadership", self.engine.resign(&self.term))
            .await
    }

    fn leadership(&self) -> watch::Receiver<Leadership> {
        self.term.watch()
    }

    async fn gateway_id(&self, name: &str) -> Result<u32, StoreError> {
        self.watched("gateways", gateway_id(&*self.engine, name))
            .await
    }

    async fn key(&self, name: &str, fresh: u64) -> Result<u64, StoreError> {
        writing!(self, "keys", |work| key(&mut work, name, fresh).await?)
    }
}

/// The number of a gateway; any handle may add one.
async fn gateway_id<E: Engine>(engine: &E, name: &str) -> Result<u32, StoreError> {
    let known = engine.read(Statement::new(GATEWAY).text(name)).await?;
    if let Some(row) = known.first() {
        return read_gateway(row);
    }
    let mut work = engine.begin().await?;
    work.execute(Statement::new(ADD_GATEWAY).text(name)).await?;
    let rows = work.fetch(Statement::new(GATEWAY).text(name)).await?;
    let id = read_gateway(rows.first().ok_or(sqlx::Error::RowNotFound)?)?;
    work.commit().await?;
    Ok(id)
}

fn read_gateway(row: &impl Record) -> Result<u32, StoreError> {
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

/// The secret number with this name; stores `fresh` if there wasn't one.
async fn key(work: &mut impl Work, name: &str, fresh: u64) -> Result<u64, StoreError> {
    let value = format!("{fresh:016x}");
    work.execute(Statement::new(ADD_KEY).text(name).text(&value))
        .await?;
    let rows = work.fetch(Statement::new(KEY).text(name)).await?;
    let cells = Cells {
        table: "keys",
        key: &["name"],
        row: rows.first().ok_or(sqlx::Error::RowNotFound)?,
    };
    let value = cells.text("value")?;
    let read = u64::from_str_radix(&value, 16);
    read.map_err(|_| cells.corrupt("value", "it is not a hexadecimal number".to_owned()))
}
