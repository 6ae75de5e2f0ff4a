//! Snapshots of the core's state, compressed: they are JSON, and saved often if there are many
//! programs.

use std::io::Read;

use super::table::table;
use super::{Engine, Statement, TableRow as _, Work, within};
use crate::bodies::blocking;
use crate::{SNAPSHOT_BYTES_MAX, SNAPSHOTS_KEPT, StoreError};

table! {
    /// The state of the core after an event.
    pub struct Snapshot in "snapshots", upsert (seq) {
        /// Last event that the state includes.
        seq: u64,
        /// When it was saved.
        saved_at_us: u64,
        /// The state, in the core's own format.
        state: Vec<u8>,
    }
}

const REST: &str = "DELETE FROM snapshots WHERE seq NOT IN \
     (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT $1)";

/// Compression level of zstd.
const LEVEL: i32 = 1;
/// First bytes of zstd's format; earlier builds stored plain JSON.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Compresses a snapshot on a blocking thread.
pub(super) async fn pack(snapshot: &Snapshot) -> Result<Snapshot, StoreError> {
    check(snapshot)?;
    let mut snapshot = snapshot.clone();
    blocking(move || {
        let packed = zstd::bulk::compress(&snapshot.state, LEVEL);
        snapshot.state = packed.map_err(|source| StoreError::Bodies {
            place: format!("the snapshot at event {}", snapshot.seq),
            source,
        })?;
        Ok(snapshot)
    })
    .await
}

fn unpack(mut snapshot: Snapshot) -> Result<Snapshot, StoreError> {
    if !snapshot.state.starts_with(&MAGIC) {
        return Ok(snapshot);
    }
    let corrupt = |error: std::io::Error| StoreError::Corrupt {
        table: Snapshot::TABLE,
        column: "state",
        row: snapshot.seq.to_string(),
        reason: error.to_string(),
    };
    let packed = zstd::stream::read::Decoder::new(&*snapshot.state).map_err(corrupt)?;
    let mut state = Vec::new();
    let mut bounded = packed.take(SNAPSHOT_BYTES_MAX as u64 + 1);
    bounded.read_to_end(&mut state).map_err(corrupt)?;
    within("the snapshot, in bytes,", state.len(), SNAPSHOT_BYTES_MAX)?;
    snapshot.state = state;
    Ok(snapshot)
}

/// Saves a snapshot and removes the oldest ones.
pub(super) async fn save(
    work: &mut impl Work,
    last_seq: u64,
    snapshot: &Snapshot,
) -> Result<(), StoreError> {
    if snapshot.seq > last_seq {
        return Err(StoreError::Ahead {
            seq: snapshot.seq,
            last_seq,
        });
    }
    work.insert(std::slice::from_ref(snapshot)).await?;
    let rest = Statement::new(REST).number(SNAPSHOTS_KEPT.into());
    work.execute(rest).await?;
    Ok(())
}

/// Checks the size of a snapshot.
fn check(snapshot: &Snapshot) -> Result<(), StoreError> {
    within(
        "the snapshot, in bytes,",
        snapshot.state.len(),
        SNAPSHOT_BYTES_MAX,
    )
}

/// The newest snapshot.
pub(super) async fn latest(engine: &impl Engine) -> Result<Option<Snapshot>, StoreError> {
    let latest = Snapshot::select("ORDER BY seq DESC LIMIT 1");
    match engine.read_row(latest).await? {
        Some(snapshot) => blocking(move || unpack(snapshot)).await.map(Some),
        None => Ok(None),
    }
}
