//! Large bodies of steps, compressed.

use super::table::{bytes, number, text};
use super::{Cells, Engine, Record, Statement, Table, Values, Work};
use crate::bodies::Packed;
use crate::{DESCRIPTION, Names, StoreError};

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

const REMOVE: &str = "DELETE FROM bodies WHERE program = $1 AND step = $2 AND kind = $3";

/// Submission time of the oldest action that has not ended; the bodies that it needs are older.
const OLDEST_NEEDED: &str = "SELECT COALESCE(MIN(submitted_at_us), 4611686018427387904) \
     FROM actions WHERE status IN ('waiting', 'starting', 'running', 'stopping')";

/// Longest time from writing a description to recording its action.
const DESCRIPTION_US: u64 = 3_600_000_000;

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

/// The oldest bodies that are stored as objects.
pub(super) async fn oldest_objects(
    work: &mut impl Work,
    before_us: u64,
    limit: u64,
) -> Result<Vec<Packed>, StoreError> {
    let query = Statement::new(OLDEST).number(before_us).number(limit);
    let rows = work.fetch(query).await?;
    rows.iter().map(read).collect()
}

/// Removes the oldest bodies, up to a limit.
pub(super) async fn prune(
    work: &mut impl Work,
    before_us: u64,
    limit: u64,
) -> Result<u64, StoreError> {
    work.execute(Statement::new(PRUNE).number(before_us).number(limit))
        .await
}

/// Total size of the bodies of these programs.
pub(super) async fn bytes_of(engine: &impl Engine, programs: &Names) -> Result<u64, StoreError> {
    let mut query =
        Statement::new("SELECT CAST(SUM(size_bytes) AS BIGINT) AS bytes FROM bodies WHERE TRUE");
    push_range(&mut query, programs);
    let rows = engine.read(query).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let cells = Cells {
        table: "bodies",
        key: &[],
        row,
    };
    Ok(cells.maybe_number("bytes")?.unwrap_or(0))
}

/// The oldest removable bodies of these programs, without their contents.
pub(super) async fn oldest_of(
    work: &mut impl Work,
    programs: &Names,
    limit: u64,
) -> Result<Vec<Packed>, StoreError> {
    let mut query = Statement::new(
        "SELECT program, step, kind, at_us, size_bytes, object, substr(body, 1, 0) AS body \
         FROM bodies WHERE TRUE",
    );
    push_range(&mut query, programs);
    query.push(" AND (kind <> ");
    query.push_text(DESCRIPTION);
    query.push(" OR (at_us < ");
    query.push_number(now_us().saturating_sub(DESCRIPTION_US));
    query.push(" AND at_us < (");
    query.push(OLDEST_NEEDED);
    query.push(") - ");
    query.push_number(DESCRIPTION_US);
    query.push(")) ORDER BY at_us LIMIT ");
    query.push_number(limit);
    let rows = work.fetch(query).await?;
    rows.iter().map(read).collect()
}

/// The first bodies whose sizes reach `bytes` together.
pub(super) fn first_of(bodies: Vec<Packed>, bytes: u64) -> Vec<Packed> {
    let mut left = bytes;
    let wanted = |body: &Packed| {
        let is_wanted = left > 0;
        left = left.saturating_sub(body.size_bytes);
        is_wanted
    };
    bodies.into_iter().take_while(wanted).collect()
}

/// Removes bodies that were found in the same transaction.
pub(super) async fn remove(work: &mut impl Work, bodies: &[Packed]) -> Result<(), StoreError> {
    for body in bodies {
        let query = Statement::new(REMOVE).text(&body.program);
        work.execute(query.number(body.step).text(&body.kind))
            .await?;
    }
    Ok(())
}

/// Adds the condition that a program is one of these, in a form that an index serves.
fn push_range(query: &mut Statement, programs: &Names) {
    let (start, (from, relation, to)) = match programs {
        Names::Any => return,
        Names::With(start) => (start, (" AND (program >= ", " AND program < ", ")")),
        Names::Without(start) => (start, (" AND (program < ", " OR program >= ", ")")),
    };
    let mut end = start.clone();
    let last = end
        .pop()
        .and_then(|last| char::from_u32(u32::from(last) + 1));
    end.extend(last);
    query.push(from);
    query.push_text(start);
    query.push(relation);
    query.push_text(&end);
    query.push(to);
}

fn now_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as u64
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
