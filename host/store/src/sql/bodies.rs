//! Large bodies of steps, compressed.

use async_trait::async_trait;

use super::store::writing;
use super::table::table;
use super::{Cells, Engine, SqlStore, Statement, TableRow as _, Work};
use crate::{Bodies, BodyRow, DESCRIPTION, Names, PRUNE_BODIES_MAX, StoreError};

table! {
    /// A body as stored in the table.
    pub(crate) struct Packed in "bodies", upsert (program, step, kind) {
        /// Program that the step belongs to.
        program: String,
        /// Number of the step.
        step: u64,
        /// Which body of the step this is.
        kind: String,
        /// When it was received.
        at_us: u64,
        /// Its size before it was compressed.
        size_bytes: u64,
        /// Name of the object that holds it, if the row does not.
        object: Option<String>,
        /// The compressed body; empty if an object holds it.
        body: Vec<u8>,
    }
}

const OLDEST: &str = "WHERE at_us < $1 AND object IS NOT NULL ORDER BY at_us LIMIT $2";

const PRUNE: &str = "DELETE FROM bodies WHERE (program, step, kind) IN \
     (SELECT program, step, kind FROM bodies WHERE at_us < $1 ORDER BY at_us LIMIT $2)";

const REMOVE: &str = "DELETE FROM bodies WHERE program = $1 AND step = $2 AND kind = $3";

/// Submission time of the oldest action that has not ended; the bodies that it needs are older.
const OLDEST_NEEDED: &str = "SELECT COALESCE(MIN(submitted_at_us), 4611686018427387904) \
     FROM actions WHERE status IN ('waiting', 'starting', 'running', 'stopping')";

/// Longest time from writing a description to recording its action.
const DESCRIPTION_US: u64 = 3_600_000_000;

#[async_trait]
impl<E: Engine> Bodies for SqlStore<E> {
    async fn put_bodies(&self, rows: &[BodyRow]) -> Result<(), StoreError> {
        self.watched("bodies", async {
            let packed = self.blobs.pack(rows).await?;
            let mut work = self.begin_beside().await?;
            work.insert(&packed).await?;
            work.commit().await
        })
        .await
    }

    async fn bodies(&self, program: &str, step: u64) -> Result<Vec<BodyRow>, StoreError> {
        let of_step = Packed::select("WHERE program = $1 AND step = $2 ORDER BY kind");
        let of_step = of_step.text(program).number(step);
        let packed = self.engine.read_rows(of_step).await?;
        self.blobs.unpack(packed).await
    }

    async fn prune_bodies(&self, before_us: u64) -> Result<u64, StoreError> {
        let oldest = |statement: Statement| statement.number(before_us).number(PRUNE_BODIES_MAX);
        writing!(self, "bodies", |work| {
            let held = work.fetch_rows(oldest(Packed::select(OLDEST))).await?;
            // The objects are removed first: a row without its object is found again later, but an
            // object without its row is not.
            self.blobs.remove(held).await?;
            work.execute(oldest(Statement::new(PRUNE))).await?
        })
    }

    async fn body_bytes(&self, programs: &Names) -> Result<u64, StoreError> {
        bytes_of(&*self.engine, programs).await
    }

    async fn shed_bodies(&self, programs: &Names, bytes: u64) -> Result<u64, StoreError> {
        writing!(self, "bodies", |work| {
            let oldest = work.fetch_rows(oldest_of(programs)).await?;
            let gone = first_of(oldest, bytes);
            let count = gone.len() as u64;
            remove(&mut work, &gone).await?;
            // The objects are removed first: a row without its object is found again later, but an
            // object without its row is not.
            let held = gone.into_iter().filter(|body| body.object.is_some());
            self.blobs.remove(held.collect()).await?;
            count
        })
    }
}

/// Total size of the bodies of these programs.
async fn bytes_of(engine: &impl Engine, programs: &Names) -> Result<u64, StoreError> {
    let mut query =
        Statement::new("SELECT CAST(SUM(size_bytes) AS BIGINT) AS bytes FROM bodies WHERE TRUE");
    push_range(&mut query, programs);
    let rows = engine.read(query).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let cells = Cells {
        table: Packed::TABLE,
        key: &[],
        row,
    };
    Ok(cells.maybe_number("bytes")?.unwrap_or(0))
}

/// The statement that reads the oldest removable bodies of these programs, without their contents.
fn oldest_of(programs: &Names) -> Statement {
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
    query.push_number(PRUNE_BODIES_MAX);
    query
}

/// The first bodies whose sizes reach `bytes` together.
fn first_of(bodies: Vec<Packed>, bytes: u64) -> Vec<Packed> {
    let mut left = bytes;
    let wanted = |body: &Packed| {
        let is_wanted = left > 0;
        left = left.saturating_sub(body.size_bytes);
        is_wanted
    };
    bodies.into_iter().take_while(wanted).collect()
}

/// Removes bodies that were found in the same transaction.
async fn remove(work: &mut impl Work, bodies: &[Packed]) -> Result<(), StoreError> {
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
