//! Sizes of a table's newest rows, for retention in bytes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Cells, Engine, Statement};
use crate::StoreError;

/// Keys of a stretch. Rows are only added at the end of these tables and removed at their beginning,
/// so that a complete stretch is measured once.
const STRETCH: u64 = 1_000;

/// Of events with their decisions; 256 bytes are for the other columns and the indexes.
const EVENTS: &str = "SELECT seq AS place, CAST(sum(bytes) AS BIGINT) AS bytes FROM \
     (SELECT seq, octet_length(body) + 256 AS bytes FROM events WHERE seq > $1 AND seq <= $2 \
      UNION ALL \
      SELECT seq, octet_length(why) + 256 AS bytes FROM decisions WHERE seq > $1 AND seq <= $2) \
     AS sized GROUP BY seq ORDER BY seq DESC";

/// Of the rows of the audit log, counted in the same way.
const AUDIT: &str = "SELECT id AS place, CAST(octet_length(before) + octet_length(after) \
     + octet_length(target) + 256 AS BIGINT) AS bytes \
     FROM audit WHERE id > $1 AND id <= $2 ORDER BY id DESC";

/// Measures the rows of a table.
#[derive(Debug)]
pub(super) struct Sizes {
    table: &'static str,
    /// Reads the keys greater than `$1` and at most `$2` as `place`, the greatest first, and the
    /// size of their rows as `bytes`.
    sql: &'static str,
    /// Bytes of complete stretches.
    measured: Mutex<BTreeMap<u64, u64>>,
}

impl Sizes {
    /// Of events with their decisions.
    pub(super) fn of_journal() -> Self {
        Self::new("events", EVENTS)
    }

    /// Of the audit log.
    pub(super) fn of_audit() -> Self {
        Self::new("audit", AUDIT)
    }

    fn new(table: &'static str, sql: &'static str) -> Self {
        Self {
            table,
            sql,
            measured: Mutex::default(),
        }
    }

    /// The key up to which rows must be removed, so that the rest has at most `bytes_max`; at least
    /// `from`. The last key is `last`.
    pub(super) async fn cut(
        &self,
        engine: &impl Engine,
        from: u64,
        last: u64,
        bytes_max: u64,
    ) -> Result<u64, StoreError> {
        let (mut to, mut left) = (last, bytes_max);
        while to > from {
            let stretch = (to - 1) / STRETCH;
            let start = (stretch * STRETCH).max(from);
            let is_whole = to - start == STRETCH;
            let known = self.lock().get(&stretch).copied();
            if let Some(bytes) = known.filter(|bytes| is_whole && *bytes <= left) {
                left -= bytes;
                to = start;
                continue;
            }
            let rows = engine.read(Statement::new(self.sql).number(start).number(to));
            let rows = rows.await?;
            if rows.is_empty() {
                // What is older was removed.
                break;
            }
            let before = left;
            for row in &rows {
                let cells = Cells {
                    table: self.table,
                    key: &["place"],
                    row,
                };
                match left.checked_sub(cells.number("bytes")?) {
                    Some(rest) => left = rest,
                    None => return cells.number("place"),
                }
            }
            if is_whole {
                self.lock().insert(stretch, before - left);
            }
            to = start;
        }
        self.lock()
            .retain(|stretch, _| (stretch + 1) * STRETCH > from);
        Ok(from)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
