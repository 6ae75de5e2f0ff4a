//! Large bodies of steps, compressed.

use super::table::{bytes, number, text};
use super::{Cells, Engine, Record, Statement, Table, Values, Work};
use crate::StoreError;
use crate::bodies::Packed;

const BODIES: Table<Packed> = Table {
    name: "bodies",
    columns: &[
        text("program"),
        number("step"),
        text("kind"),
        number("at_us"),
        number("size_bytes"),
        text("object"),
        bytes("body"),
    ],
    key: &["program", "step", "kind"],
    bind,
};

const OF_STEP: &str = "SELECT program, step, kind, at_us, size_bytes, object, body FROM bodies \
     WHERE program = $1 AND step = $2 ORDER BY kind";

const OLDEST: &str = "SELECT program, step, kind, at_us, size_bytes, object, body FROM bodies \
     WHERE at_us < $1 AND object IS NOT NULL ORDER BY at_us LIMIT $2";

const PRUNE: &str = "DELETE FROM bodies WHERE (program, step, kind) IN \
     (SELECT program, step, kind FROM bodies WHERE at_us < $1 ORDER BY at_us LIMIT $2)";

/// Adds or replaces bodies.
pub(super) async fn put(work: &mut impl Work, bodies: &[Packed]) -> Result<(), StoreError> {
    work.insert(&BODIES, bodies).await
}

fn bind<'r>(body: &'r Packed, values: &mut dyn Values<'r>) -> Result<(), StoreError> {
    values.text(&body.program)?;
    values.number("step", body.step)?;
    values.text(&body.kind)?;
    values.number("at_us", body.at_us)?;
    values.number("size_bytes", body.size_bytes)?;
    values.maybe_text(body.object.as_deref())?;
    values.bytes(&body.bytes)
}

/// All bodies of a step, by kind.
pub(super) async fn of_step(
    engine: &impl Engine,
    program: &str,
    step: u64,
) -> Result<Vec<Packed>, StoreError> {
    let query = Statement::new(OF_STEP).text(program).number(step);
    let rows = engine.read(query).await?;
    rows.iter().map(read).collect()
}

/// The oldest of those that are held elsewhere.
pub(super) async fn oldest_objects(
    work: &mut impl Work,
    before_us: u64,
    limit: u64,
) -> Result<Vec<Packed>, StoreError> {
    let query = Statement::new(OLDEST).number(before_us).number(limit);
    let rows = work.fetch(query).await?;
    rows.iter().map(read).collect()
}

/// Removes the oldest, at most so many.
pub(super) async fn prune(
    work: &mut impl Work,
    before_us: u64,
    limit: u64,
) -> Result<u64, StoreError> {
    work.execute(Statement::new(PRUNE).number(before_us).number(limit))
        .await
}

fn read(row: &impl Record) -> Result<Packed, StoreError> {
    let cells = Cells {
        table: "bodies",
        key: &["program", "step", "kind"],
        row,
    };
    Ok(Packed {
        program: cells.text("program")?,
        step: cells.number("step")?,
        kind: cells.text("kind")?,
        at_us: cells.number("at_us")?,
        size_bytes: cells.number("size_bytes")?,
        object: cells.maybe_text("object")?,
        bytes: cells.bytes("body")?,
    })
}
