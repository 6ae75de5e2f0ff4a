//! The publisher, the broker, and a consumer with its own record.

use super::Simulation;
use super::calendar::ScheduledEvent;
use super::database::Row;
use super::injected_bug::InjectedBug;
use super::schedule::FaultKind;
use std::rc::Rc;
use treadle_dst_outcome::{Checked, broken};

/// Number of messages published before the cursor moves.
const PUBLISH_MAX: usize = 128;

/// A consumer, which takes each event once, by its number.
#[derive(Default)]
pub(crate) struct Consumer {
    pub(crate) record: Vec<Rc<Row>>,
    pub(crate) repeated: u64,
}

impl Consumer {
    fn take(&mut self, row: &Rc<Row>, injected_bug: Option<InjectedBug>) -> Checked {
        let last = self.record.len() as u64;
        if row.seq <= last && injected_bug != Some(InjectedBug::ConsumerCountsTwice) {
            self.repeated += 1;
            let known = &self.record[row.seq as usize - 1];
            if known != row {
                return broken(
                    "consumer",
                    format!("event {} came as {known:?} and as {row:?}", row.seq),
                );
            }
            return Ok(());
        }
        if row.seq != last + 1 {
            return broken(
                "consumer",
                format!("event {} came after {last} events", row.seq),
            );
        }
        self.record.push(Rc::clone(row));
        Ok(())
    }
}

impl Simulation {
    /// A daemon's publisher continues from the cursor.
    pub(crate) fn publish(&mut self, session: u32) -> Checked {
        if self.session_is_over(session) {
            return Ok(());
        }
        let again = self.now_us + self.streams.sink.between(1, self.plan.behaviour.publish_us);
        self.calendar
            .put(again, ScheduledEvent::Publish { session });
        if self
            .active_faults
            .strength(FaultKind::DatabaseDown)
            .is_some()
        {
            return Ok(());
        }
        let from = self.database.cursor as usize;
        let rows: Vec<Rc<Row>> = self
            .database
            .rows
            .iter()
            .skip(from)
            .take(PUBLISH_MAX)
            .cloned()
            .collect();
        let Some(last) = rows.last().map(|row| row.seq) else {
            return Ok(());
        };
        if self.injected_bug == Some(InjectedBug::CursorBeforeConfirm) {
            self.database.cursor = last;
        }
        if self.active_faults.strength(FaultKind::BrokerDown).is_some() {
            self.counts.count(FaultKind::BrokerDown.name());
            return Ok(());
        }
        for row in &rows {
            self.consumer.take(row, self.injected_bug)?;
        }
        let confirm_lost = self.active_faults.strength(FaultKind::ConfirmLost);
        if confirm_lost.is_some_and(|strength| self.streams.sink.percent(strength)) {
            self.counts.count(FaultKind::ConfirmLost.name());
            return Ok(());
        }
        self.database.cursor = self.database.cursor.max(last);
        Ok(())
    }

    /// Checks that in the end the consumer has all events of the journal.
    pub(crate) fn compare_consumer(&self) -> Checked {
        if self.consumer.record == self.database.rows {
            return Ok(());
        }
        let (has, rows) = (self.consumer.record.len(), self.database.rows.len());
        broken(
            "consumer",
            format!("the consumer has {has} events, the journal {rows}"),
        )
    }
}
