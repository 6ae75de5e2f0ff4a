//! Received commands.

use super::{Cells, Engine, Record, Statement, Work, signed};
use crate::{CommandRow, PRUNE_ROWS_MAX, StoreError};

const NOTE: &str = "INSERT INTO commands (command, kind, at_us, outcome) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (command) DO NOTHING";

const GET: &str = "SELECT command, kind, at_us, outcome FROM commands WHERE command = $1";

const SETTLE: &str = "UPDATE commands SET outcome = $2 WHERE command = $1";

const PRUNE: &str = "DELETE FROM commands WHERE command IN \
     (SELECT command FROM commands WHERE at_us < $1 ORDER BY at_us LIMIT $2)";

/// Stores a command; returns whether it is new.
pub(super) async fn note(work: &mut impl Work, command: &CommandRow) -> Result<bool, StoreError> {
    i64::try_from(command.at_us).map_err(|_| StoreError::OutOfRange {
        table: "commands",
        column: "at_us",
        value: command.at_us,
    })?;
    let note = Statement::new(NOTE)
        .text(&command.id)
        .text(&command.kind)
        .signed(signed(command.at_us))
        .text(&command.outcome);
    Ok(work.execute(note).await? == 1)
}

/// One command.
pub(super) async fn get(
    engine: &impl Engine,
    command: &str,
) -> Result<Option<CommandRow>, StoreError> {
    let rows = engine.read(Statement::new(GET).text(command)).await?;
    rows.first().map(read).transpose()
}

/// One command, as seen within a transaction.
pub(super) async fn get_within(
    work: &mut impl Work,
    command: &str,
) -> Result<Option<CommandRow>, StoreError> {
    let rows = work.fetch(Statement::new(GET).text(command)).await?;
    rows.first().map(read).transpose()
}

/// Sets the result of a command; returns whether it is stored.
pub(super) async fn settle(
    work: &mut impl Work,
    command: &str,
    outcome: &str,
) -> Result<bool, StoreError> {
    let settle = Statement::new(SETTLE).text(command).text(outcome);
    Ok(work.execute(settle).await? == 1)
}

/// Removes old commands, a bounded number at a time.
pub(super) async fn prune(work: &mut impl Work, before_us: u64) -> Result<u64, StoreError> {
    let prune = Statement::new(PRUNE)
        .number(before_us)
        .number(PRUNE_ROWS_MAX);
    work.execute(prune).await
}

fn read(row: &impl Record) -> Result<CommandRow, StoreError> {
    let cells = Cells {
        table: "commands",
        key: &["command"],
        row,
    };
    Ok(CommandRow {
        id: cells.text("command")?,
        kind: cells.text("kind")?,
        at_us: cells.number("at_us")?,
        outcome: cells.text("outcome")?,
    })
}
