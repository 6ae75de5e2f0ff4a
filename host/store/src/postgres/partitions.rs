//! Partitions of the journal: created ahead of their events, dropped as a whole.

use std::collections::BTreeSet;

use super::work::PostgresWork;
use crate::StoreError;
use crate::sql::{Dropped, Record, Statement, Work};

/// Events of a partition.
pub(super) const PARTITION_EVENTS: u64 = 250_000;
/// Most partitions dropped in one transaction.
const DROPPED_MAX: usize = 4;
/// Partitioned tables.
const TABLES: [&str; 2] = ["events", "decisions"];

const THERE: &str = "SELECT c.relname::text AS name FROM pg_inherits i \
     JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass($1)";

fn number(seq: u64) -> u64 {
    seq / PARTITION_EVENTS
}

fn name(table: &str, number: u64) -> String {
    format!("{table}_{number:06}")
}

/// First event without room once the partition of event `seq` and the next one exist.
fn room_with(seq: u64) -> u64 {
    (number(seq) + 2).saturating_mul(PARTITION_EVENTS)
}

/// Whether there is enough room, so that no partition has to be created yet.
pub(super) fn suffices(room: u64, last_seq: u64) -> bool {
    last_seq.saturating_add(PARTITION_EVENTS / 2) < room
}

/// Creates the partitions for this range of events. Returns the resulting room.
pub(super) async fn make(
    work: &mut PostgresWork,
    from: u64,
    last_seq: u64,
) -> Result<u64, StoreError> {
    for table in TABLES {
        let there = numbers(work, table).await?;
        for number in number(from)..=number(last_seq) + 1 {
            if there.contains(&number) {
                continue;
            }
            let (name, from) = (name(table, number), number * PARTITION_EVENTS);
            let to = from.saturating_add(PARTITION_EVENTS);
            // Attached rather than created as a partition, so that readers are not blocked.
            for sql in [
                format!("CREATE TABLE {name} (LIKE {table} INCLUDING DEFAULTS)"),
                format!(
                    "ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to})"
                ),
            ] {
                work.execute(Statement::made(sql)).await?;
            }
        }
    }
    Ok(room_with(last_seq))
}

/// Drops partitions whose events are all up to `cut`. Row by row removal is only used if the
/// journal lies in a single partition; a longer one keeps up to a partition more.
pub(super) async fn drop_whole(
    work: &mut PostgresWork,
    cut: u64,
    last_seq: u64,
) -> Result<Dropped, StoreError> {
    let below = number(cut.saturating_add(1));
    let mut dropped = Dropped {
        rest: if number(cut) == number(last_seq) {
            cut
        } else {
            0
        },
        ..Dropped::default()
    };
    for table in TABLES {
        let there = numbers(work, table).await?;
        let mut whole: Vec<u64> = there.range(..below).copied().collect();
        dropped.more |= whole.len() > DROPPED_MAX;
        whole.truncate(DROPPED_MAX);
        for number in whole {
            let name = name(table, number);
            let count = Statement::made(format!("SELECT count(*) AS rows FROM {name}"));
            let rows = work.fetch(count).await?;
            let count = rows.first().map(|row| row.signed("rows")).transpose()?;
            let count = u64::try_from(count.flatten().unwrap_or(0)).unwrap_or(0);
            // A slow reader must not block all others behind this.
            work.execute(Statement::new("SET LOCAL lock_timeout = '2s'"))
                .await?;
            work.execute(Statement::made(format!("DROP TABLE {name}")))
                .await?;
            if table == "events" {
                dropped.events += count;
            } else {
                dropped.decisions += count;
            }
        }
    }
    Ok(dropped)
}

/// The last event of the partition of `cut`, unless the journal ends in that partition.
pub(super) fn whole_cut(cut: u64, last_seq: u64) -> u64 {
    if number(cut) == number(last_seq) {
        return cut;
    }
    (number(cut) + 1) * PARTITION_EVENTS - 1
}

/// The numbers of a table's partitions.
async fn numbers(work: &mut PostgresWork, table: &str) -> Result<BTreeSet<u64>, StoreError> {
    let rows = work.fetch(Statement::new(THERE).text(table)).await?;
    let mut numbers = BTreeSet::new();
    for row in &rows {
        let name = row.text("name")?.unwrap_or_default();
        let number = name
            .rsplit_once('_')
            .and_then(|(_, digits)| digits.parse::<u64>().ok());
        numbers.extend(number);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_room_for_half_a_partition_more() {
        for seq in [0, 1, PARTITION_EVENTS - 1, PARTITION_EVENTS, 10_000_000] {
            let room = room_with(seq);
            assert!(suffices(room, seq), "{seq}");
            assert!(!suffices(room, room - PARTITION_EVENTS / 2));
        }
        assert_eq!(name("events", number(PARTITION_EVENTS)), "events_000001");
    }

    #[test]
    fn a_cut_by_bytes_takes_the_rest_of_an_older_partition() {
        let first = PARTITION_EVENTS;
        assert_eq!(whole_cut(first + 7, first + 9), first + 7);
        assert_eq!(whole_cut(7, first + 9), first - 1);
        assert_eq!(whole_cut(first - 1, first + 9), first - 1);
    }
}
