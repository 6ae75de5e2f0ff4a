//! The database: the journal, the latest snapshot and the publisher's cursor.
//! They outlive every daemon.

use super::observed::Observed;
use super::outcome::{Checked, broken};
use super::sabotage::Sabotage;
use std::rc::Rc;
use treadle_core::{Core, CoreConfig, Event, Origin, State};
use treadle_model::{GatewayId, Timestamp};

/// One event as it is journaled.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) seq: u64,
    /// The scheduler's time at which it was handled.
    pub(crate) at: Timestamp,
    /// The story's time; the journal of a daemon has none.
    pub(crate) sim_us: u64,
    /// The gateway in another process that relayed it.
    pub(crate) origin: Option<Origin>,
    pub(crate) body: String,
}

impl Row {
    pub(crate) fn event(&self) -> Checked<Event> {
        let read = serde_json::from_str(&self.body);
        read.or_else(|error| {
            broken(
                "journal",
                format!("event {} cannot be read: {error}", self.seq),
            )
        })
    }
}

/// The state after the event `seq`.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) seq: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The database.
pub(crate) struct Database {
    pub(crate) rows: Vec<Rc<Row>>,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) cursor: u64,
    /// Folds every committed event from the first on: what a replay gives.
    pub(crate) auditor: Observed,
    config: CoreConfig,
}

impl Database {
    pub(crate) fn new(config: &CoreConfig, honest: bool, sabotage: Option<Sabotage>) -> Self {
        Self {
            rows: Vec::new(),
            snapshot: None,
            cursor: 0,
            auditor: Observed::untampered(config, honest, sabotage),
            config: Sabotage::config(sabotage, config),
        }
    }

    /// Commits a transaction. One that is tried again changes nothing.
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
            self.auditor.repeat(row, &row.event()?)?;
            if let Some(snapshot) = snapshot.filter(|snapshot| snapshot.seq == row.seq) {
                self.compare(&snapshot.bytes, row.seq)?;
                self.snapshot = Some(snapshot.clone());
            }
        }
        Ok(())
    }

    /// The last event of a gateway that is on record.
    pub(crate) fn recorded(&self, gateway: GatewayId) -> u64 {
        let gateways = &self.auditor.core.state().gateways;
        gateways.get(&gateway).copied().unwrap_or(0)
    }

    /// What a daemon finds at its start: the latest snapshot, and the events
    /// after it folded in.
    pub(crate) fn recover(&self, now: Timestamp, sabotage: Option<Sabotage>) -> Checked<State> {
        let (state, seq) = match &self.snapshot {
            Some(snapshot) => {
                let read = serde_json::from_slice(&snapshot.bytes);
                (
                    read.or_else(|error| broken("snapshot", error.to_string()))?,
                    snapshot.seq,
                )
            }
            None => (State::default(), 0),
        };
        let mut core = Core::with_state(self.config.clone(), state);
        let tail = self.rows.iter().skip(seq as usize);
        let left_out = match sabotage {
            Some(Sabotage::RecoveryDropsEvent) => self.rows.len() as u64,
            _ => 0,
        };
        for row in tail.filter(|row| row.seq != left_out) {
            let at = match sabotage {
                Some(Sabotage::RecoveryMixesTimes) => now,
                _ => row.at,
            };
            match row.origin {
                Some(origin) => {
                    core.handle_relayed(at, origin, &row.event()?);
                }
                None => core.handle(at, &row.event()?),
            }
            while core.poll_command().is_some() {}
            while core.poll_decision().is_some() {}
        }
        let bytes = serde_json::to_vec(core.state()).unwrap_or_default();
        self.compare(&bytes, self.rows.len() as u64)?;
        Ok(core.state().clone())
    }

    /// A state must be, byte for byte, what a replay from the start gives.
    pub(crate) fn compare(&self, bytes: &[u8], seq: u64) -> Checked {
        let replayed = self.auditor.bytes()?;
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
