//! The database: the journal, the latest snapshot and the publisher's cursor.
//! They outlive every daemon.

use super::injected_bug::InjectedBug;
use super::observed::{Auditor, bytes_of};
use std::collections::BTreeMap;
use std::rc::Rc;
use treadle_core::{Core, CoreConfig};
use treadle_dst_outcome::{Checked, broken};
use treadle_model::{GatewayId, Timestamp};
use treadle_scheduler::record;
use treadle_scheduler::recovery::{RecoveryError, Replay};
use treadle_store::{EventRow, Snapshot};

/// One event in the journal.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) seq: u64,
    pub(crate) event: EventRow,
    /// The simulation's time, which a real journal does not have.
    pub(crate) sim_us: u64,
}

/// The database.
pub(crate) struct Database {
    pub(crate) rows: Vec<Rc<Row>>,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) cursor: u64,
    /// Replays every committed event from the first on.
    pub(crate) auditor: Auditor,
    /// Events that gateways in other processes relayed, by their numbers.
    relayed: BTreeMap<(GatewayId, u64), Rc<Row>>,
    config: CoreConfig,
}

impl Database {
    pub(crate) fn new(
        config: &CoreConfig,
        honest: bool,
        injected_bug: Option<InjectedBug>,
    ) -> Self {
        Self {
            rows: Vec::new(),
            snapshot: None,
            cursor: 0,
            auditor: Auditor::new(config, honest, injected_bug),
            relayed: BTreeMap::new(),
            config: InjectedBug::config(injected_bug, config),
        }
    }

    /// Commits a transaction. Committing it again changes nothing.
    pub(crate) fn commit(&mut self, rows: &[Rc<Row>], snapshot: Option<&Snapshot>) -> Checked {
        for row in rows {
            if let Some(known) = self.rows.get(row.seq as usize - 1) {
                if known != row {
                    return broken(
                        "journal",
                        format!("two events are at {}: {known:?} and {row:?}", row.seq),
                    );
                }
                continue;
            }
            if row.seq != self.rows.len() as u64 + 1 {
                return broken(
                    "journal",
                    format!("event {} follows event {}", row.seq, self.rows.len()),
                );
            }
            self.rows.push(Rc::clone(row));
            self.auditor.repeat(row)?;
            if let Ok((_, Some(origin))) = record::decode(&row.event.body) {
                let key = (origin.gateway, origin.number);
                self.relayed.insert(key, Rc::clone(row));
            }
            if let Some(snapshot) = snapshot.filter(|snapshot| snapshot.seq == row.seq) {
                self.compare(&snapshot.state, row.seq)?;
                self.snapshot = Some(snapshot.clone());
            }
        }
        Ok(())
    }

    /// An event of a gateway in another process, if it is on record.
    pub(crate) fn relayed(&self, gateway: GatewayId, number: u64) -> Option<Rc<Row>> {
        self.relayed.get(&(gateway, number)).cloned()
    }

    /// The state that a daemon recovers: the latest snapshot, with the later events replayed.
    pub(crate) fn recover(
        &self,
        now: Timestamp,
        injected_bug: Option<InjectedBug>,
    ) -> Checked<Core> {
        let unreadable = |error: RecoveryError| broken("journal", error.to_string());
        let mut found = self.snapshot.clone();
        if let (Some(InjectedBug::SnapshotCut), Some(cut)) = (injected_bug, &mut found) {
            cut.state.pop();
        }
        let mut replay = Replay::new(self.config.clone(), found.as_ref())
            .or_else(|error| broken("snapshot", error.to_string()))?;
        let left_out = match injected_bug {
            Some(InjectedBug::RecoveryDropsEvent) => self.rows.len() as u64,
            _ => 0,
        };
        let tail = self.rows.iter().skip(replay.seq() as usize);
        for row in tail.filter(|row| row.seq != left_out) {
            let mut event = row.event.clone();
            if injected_bug == Some(InjectedBug::RecoveryMixesTimes) {
                event.at_us = now.0;
            }
            replay.apply(&event).or_else(unreadable)?;
            let last = row.seq == self.rows.len() as u64;
            if last && injected_bug == Some(InjectedBug::RecoveryRepeatsEvent) {
                event.seq += 1;
                replay.apply(&event).or_else(unreadable)?;
            }
        }
        let core = replay.finish().core;
        self.compare(&bytes_of(&core)?, self.rows.len() as u64)?;
        Ok(core)
    }

    /// Checks that a state equals, byte for byte, a replay from the start.
    pub(crate) fn compare(&self, bytes: &[u8], seq: u64) -> Checked {
        let replayed = bytes_of(&self.auditor.core)?;
        if replayed == bytes {
            return Ok(());
        }
        let differs = replayed.iter().zip(bytes).position(|(a, b)| a != b);
        let at = differs.unwrap_or(replayed.len().min(bytes.len()));
        let around = |bytes: &[u8]| {
            let part = &bytes[at.saturating_sub(60)..(at + 60).min(bytes.len())];
            String::from_utf8_lossy(part).into_owned()
        };
        broken(
            "replay",
            format!(
                "after event {seq} the replay differs at byte {at}: ...{}... in place of ...{}...",
                around(&replayed),
                around(bytes)
            ),
        )
    }
}
