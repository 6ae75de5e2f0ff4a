//! The daemon's journal: transactions, and what is acknowledged and confirmed after them.

use super::Simulation;
use super::calendar::ScheduledEvent;
use super::daemon::AckTo;
use super::database::Row;
use super::injected_bug::InjectedBug;
use super::schedule::FaultKind;
use std::collections::VecDeque;
use std::rc::Rc;
use treadle_core::Command;
use treadle_core::actions::ActionCommand;
use treadle_core::programs::ProgramCommand;
use treadle_dst_outcome::{Checked, broken};
use treadle_scheduler::link::ToGateway;
use treadle_scheduler::scheduler::Records;

/// Maximum number of events in one transaction.
const TRANSACTION_EVENTS_MAX: usize = 64;

impl Simulation {
    /// Queues rows to write, and acknowledgements to send then.
    pub(super) fn journal(&mut self, records: Records, mut ack: Option<AckTo>) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        for event in records.rows.events {
            let seq = event.seq;
            self.events += 1;
            self.trace.feed(&event.at_us.to_le_bytes());
            self.trace.feed(event.body.as_bytes());
            self.trace
                .line(self.now_us, || format!("{seq:>6} {}", event.body));
            let commands = daemon.scheduler.observer_mut().commands.pop_front();
            for command in commands.unwrap_or_default() {
                self.trace.feed(&command_bytes(&command));
                self.trace
                    .line(self.now_us, || format!("       -> {}", brief(&command)));
            }
            let row = Rc::new(Row {
                seq,
                event,
                sim_us: self.now_us,
            });
            daemon.unwritten.push_back(Rc::clone(&row));
            if let Some(to) = ack.take() {
                daemon.acks.push_back((row, to));
            }
        }
        let through = daemon.scheduler.seq();
        let relayed = records.relayed.into_iter();
        let relayed = relayed.map(|(_, connection, number)| (through, connection, number));
        daemon.relayed.extend(relayed);
    }

    /// Begins a transaction, if none is in progress and there is something to write.
    pub(super) fn write(&mut self) {
        let early = self.injected_bug == Some(InjectedBug::AckBeforeCommit);
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        if early {
            let acks = std::mem::take(&mut daemon.acks);
            self.acknowledge(acks);
            self.notify_recorded(u64::MAX);
        }
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        if daemon.transaction.is_some() {
            return;
        }
        if daemon.unwritten.is_empty() {
            return self.notify_recorded(u64::MAX);
        }
        let count = daemon.unwritten.len().min(TRANSACTION_EVENTS_MAX);
        daemon.transaction = Some(daemon.unwritten.drain(..count).collect());
        let at = self.now_us
            + self
                .streams
                .daemon
                .between(1, self.plan.behaviour.commit_us_max);
        let session = self.session;
        self.calendar.put(at, ScheduledEvent::Commit { session });
    }

    /// The database answers, or the daemon gives up waiting for it.
    pub(crate) fn committed(&mut self, session: u32) -> Checked {
        if self.session_is_over(session) {
            return Ok(());
        }
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        let Some(rows) = daemon.transaction.take() else {
            return Ok(());
        };
        let down = self
            .active_faults
            .strength(FaultKind::DatabaseDown)
            .is_some();
        let lost = self.active_faults.strength(FaultKind::CommitAnswerLost);
        let lost = lost.is_some_and(|strength| self.streams.daemon.percent(strength));
        let believes = self.injected_bug == Some(InjectedBug::DoubtIsCommit);
        if !down {
            self.database.commit(&rows, daemon.snapshot.as_ref())?;
        }
        if (down || lost) && !believes {
            self.counts.count(if down {
                FaultKind::DatabaseDown.name()
            } else {
                FaultKind::CommitAnswerLost.name()
            });
            daemon.transaction = Some(rows);
            let at = self.now_us + self.streams.daemon.between(10_000, 500_000);
            self.calendar.put(at, ScheduledEvent::Commit { session });
            return Ok(());
        }
        let early = u64::from(self.injected_bug == Some(InjectedBug::AckOneEarly));
        let through = rows.last().map_or(0, |row| row.seq) + early;
        let done = daemon
            .acks
            .iter()
            .take_while(|(row, _)| row.seq <= through)
            .count();
        let acks = daemon.acks.drain(..done).collect();
        self.acknowledge(acks);
        self.notify_recorded(through);
        self.write();
        Ok(())
    }

    /// Notifies gateways in other processes, and the executor, of events on record.
    fn notify_recorded(&mut self, through: u64) {
        self.actions_recorded(through);
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        let relayed = daemon.relayed.iter();
        let done = relayed.take_while(|(seq, _, _)| *seq <= through).count();
        let relayed: Vec<_> = daemon.relayed.drain(..done).collect();
        for (_, connection, number) in relayed {
            self.send_message(connection, ToGateway::Recorded { number });
        }
    }

    pub(crate) fn acknowledge(&mut self, acks: VecDeque<(Rc<Row>, AckTo)>) {
        for (row, to) in acks {
            self.acknowledged.push(row);
            match to {
                AckTo::Agent(agent) => self.goodbye_acknowledged(agent),
                AckTo::Owner(engine, wish) => {
                    let engine = &mut self.engines[engine];
                    engine.acknowledged |= engine.wish == wish;
                }
                AckTo::Operator(engine, order) => {
                    let engine = &mut self.engines[engine];
                    engine.orders_acknowledged = engine.orders_acknowledged.max(order);
                }
            }
        }
    }

    /// Checks that everything acknowledged is in the journal, byte for byte.
    pub(crate) fn check_acknowledged(&self) -> Checked {
        for row in &self.acknowledged {
            let found = self.database.rows.get(row.seq as usize - 1);
            if found != Some(row) {
                return broken(
                    "acknowledged",
                    format!("{row:?} was acknowledged, the journal has {found:?}"),
                );
            }
        }
        Ok(())
    }
}

fn command_bytes(command: &Command) -> [u8; 16] {
    let (kind, what, whom) = match command {
        Command::Program(command) => program_numbers(command),
        Command::Action(command) => {
            let (what, whom) = action_numbers(command);
            (0, what, whom)
        }
        Command::Training(_) | Command::Weights(_) => (0, 0, 0),
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(what << 3 | kind).to_le_bytes());
    bytes[8..].copy_from_slice(&whom.to_le_bytes());
    bytes
}

fn program_numbers(command: &ProgramCommand) -> (u64, u64, u64) {
    match command {
        ProgramCommand::DispatchStep {
            step, worker, slot, ..
        } => (
            1,
            step.0,
            u64::from(worker.0) << 32 | u64::from(slot.unwrap_or(u32::MAX)),
        ),
        ProgramCommand::RefuseStep { step, .. } => (2, step.0, 0),
        ProgramCommand::AbortStep { step, .. } => (3, step.0, 0),
        ProgramCommand::AskPolicy { ask, question, .. } => {
            (4, ask.0, question.programs.len() as u64)
        }
        ProgramCommand::ForgetProgram { program } => (5, program.id.0, 0),
        ProgramCommand::PreemptStep { step } => (6, step.0, 0),
        ProgramCommand::MigrateProgram { program, to, .. } => (7, program.0, u64::from(to.0)),
        ProgramCommand::OffloadProgram { program, from, .. } => {
            (7, program.0, 1 << 32 | u64::from(from.0))
        }
        ProgramCommand::LoadProgram { program, to, .. } => {
            (7, program.0, 2 << 32 | u64::from(to.0))
        }
        ProgramCommand::DropCopy { program, .. } => (7, program.0, 3 << 32),
        ProgramCommand::CancelTransfer { program } => (7, program.0, u64::MAX),
    }
}

fn action_numbers(command: &ActionCommand) -> (u64, u64) {
    match command {
        ActionCommand::StartAction {
            action, attempt, ..
        } => (action.0, u64::from(*attempt)),
        ActionCommand::StopAction { action, attempt } => (action.0, 1 << 32 | u64::from(*attempt)),
        ActionCommand::AskElastic { ask, question, .. } => {
            (ask.0, 2 << 32 | question.action.len() as u64)
        }
        ActionCommand::AnswerAction { action } => (action.0, 3 << 32),
    }
}

fn brief(command: &Command) -> String {
    match command {
        Command::Program(ProgramCommand::AskPolicy { ask, question, .. }) => format!(
            "ask {ask}: {:?} of {:?}",
            question.purpose, question.programs.program
        ),
        Command::Program(ProgramCommand::ForgetProgram { program }) => {
            format!("forget {} ({})", program.id, program.key)
        }
        other => format!("{other:?}"),
    }
}
