//! Received commands.

use async_trait::async_trait;

use super::store::writing;
use super::table::table;
use super::{Engine, SqlStore, Statement, TableRow as _, Work as _, signed};
use crate::{Commands, PRUNE_ROWS_MAX, StoreError};

table! {
    /// A command that was received.
    pub struct CommandRow in "commands", insert (command) {
        /// Its id, chosen by its sender.
        command: String,
        /// Kind of command.
        kind: String,
        /// When it was received.
        at_us: u64,
        /// Its result, as text; empty until it has one.
        outcome: String,
    }
}

const NOTE: &str = "INSERT INTO commands (command, kind, at_us, outcome) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (command) DO NOTHING";

const SETTLE: &str = "UPDATE commands SET outcome = $2 WHERE command = $1";

const PRUNE: &str = "DELETE FROM commands WHERE command IN \
     (SELECT command FROM commands WHERE at_us < $1 ORDER BY at_us LIMIT $2)";

#[async_trait]
impl<E: Engine> Commands for SqlStore<E> {
    async fn note_command(&self, row: &CommandRow) -> Result<bool, StoreError> {
        self.watched("commands", note(self, row)).await
    }

    async fn command(&self, command: &str) -> Result<Option<CommandRow>, StoreError> {
        self.engine.read_row(one(command)).await
    }

    async fn settle_command(&self, command: &str, outcome: &str) -> Result<bool, StoreError> {
        let settle = Statement::new(SETTLE).text(command).text(outcome);
        writing!(self, "commands", |work| work.execute(settle).await? == 1)
    }

    async fn prune_commands(&self, before_us: u64) -> Result<u64, StoreError> {
        let prune = Statement::new(PRUNE).number(before_us);
        let prune = prune.number(PRUNE_ROWS_MAX);
        writing!(self, "commands", |work| work.execute(prune).await?)
    }
}

fn one(command: &str) -> Statement {
    CommandRow::select("WHERE command = $1").text(command)
}

/// Stores a command; returns whether it is new.
async fn note<E: Engine>(store: &SqlStore<E>, row: &CommandRow) -> Result<bool, StoreError> {
    let mut work = store.begin().await?;
    if work.execute(insertion(row)?).await? != 1 {
        // The command is new if this handle's own commit got no answer but succeeded.
        let stored: Vec<CommandRow> = work.fetch_rows(one(&row.command)).await?;
        let ours = store.unsure.has(&row.command) && stored.first() == Some(row);
        store.unsure.set(&row.command, false);
        return Ok(ours);
    }
    store.unsure.set(&row.command, true);
    work.commit().await?;
    store.unsure.set(&row.command, false);
    Ok(true)
}

/// The statement that stores a command unless its id is stored.
fn insertion(row: &CommandRow) -> Result<Statement, StoreError> {
    i64::try_from(row.at_us).map_err(|_| StoreError::OutOfRange {
        table: CommandRow::TABLE,
        column: "at_us",
        value: row.at_us,
    })?;
    Ok(Statement::new(NOTE)
        .text(&row.command)
        .text(&row.kind)
        .signed(signed(row.at_us))
        .text(&row.outcome))
}
